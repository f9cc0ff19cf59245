/* codes-linear - interface between products by codes and their loops
 *
 * Codes are weights of 8 and 4 bits, in groups of rows (base/format.h).  codes-int8.c,
 * codes-int4.c (int4, and MXFP4: twice its numbers are integers, too) and codes-fp8.c
 * have the loops, codes-linear.c makes products from them.
 *
 * Terms of x are rounded to integers of 23 bits, relative to the largest of a segment
 * of at most SEGMENT_TERMS terms, in three digits of 8 bits; a sum over a segment is
 * then one of integers, exact in any order.  With --compute bf16 and loops for AVX2
 * they have 16 bits. */
#ifndef LIB_CPU_PRODUCT_CODES_LINEAR_H
#define LIB_CPU_PRODUCT_CODES_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/codes.h"
#include "lib/cpu/simd/vec.h"
#include "lib/device/device.h"

enum {
    SEGMENT_TERMS = 512,
    SEGMENT_BLOCKS = SEGMENT_TERMS / CODES_BLOCK,
    SEGMENT_ROOM = SEGMENT_TERMS + 64, /* terms with padding: a segment of 8 bits may
                                        * begin and end inside a word */
    DIGITS = 3,
    CODES_TILE = 4 /* most rows, or groups of outputs, of a tile */
};

/* A segment of a row of x.  A term is (digit 2 * 256 + digit 1) * 256 + digit 0, times
 * the scale.  For 8 bits on CPUs with AVX2 it has two digits: half 1 * 4096 + half 0.
 */
struct codes_segment {
    union {
        _Alignas(64) int8_t digit[DIGITS][SEGMENT_ROOM];
        int16_t half[2][SEGMENT_ROOM];
        float term[SEGMENT_ROOM]; /* for FP8: x as it is */
    };
    int32_t sum[SEGMENT_BLOCKS + 1][DIGITS]; /* of 8 bits: [0]: -128 times the sum of
                                              * the digits; of 4 bits: of each block,
                                              * -8 times it; of MXFP4 -12 times it */
    float scale;
};

/* Rounds the N terms at X for weights of F, whose words of 4 numbers begin LEAD terms
 * before; if COARSE to integers of 16 bits, without the highest digit. */
void codes_round(struct codes_segment *to, const float *x, size_t n, size_t lead,
                 enum format f, bool coarse);

/* A tile of one segment: rows of x by one group of outputs, or one row by groups of 4
 * bits that lie apart, which are as many streams of weights. */
struct codes_tile {
    float *y; /* [rows or groups][CODES_ROWS]: the products are added, times the scales
               * of x */
    const struct codes_segment *x;
    size_t stride;       /* segments between rows */
    const uint8_t *w;    /* codes of a group of outputs */
    const void *scale;   /* of 4 bits: of each block; of FP8: of the first PER words;
                          * of int8 none are applied */
    size_t apart;        /* bytes of codes between groups */
    size_t count;        /* words of each output, or blocks */
    size_t left, per;    /* of FP8: words of the first scale, and of each more; */
    size_t scales_apart; /* scales between groups */
    enum format format;
    int rows, groups; /* of 8 bits one group; else rows is 1, or groups */
    bool hints;       /* of one row by one group: prefetch what is read later */
    bool coarse;      /* if codes_by_avx2: the terms of x are */
};
void codes_int8_segment(const struct codes_tile *t);
void codes_int4_segment(const struct codes_tile *t);
void codes_fp8_segment(const struct codes_tile *t);
/* The same on CPUs with AVX2.  codes_by_avx2: are these used here, also where AVX-512
 * has no products of bytes?  codes_round rounds for them then. */
static inline bool codes_by_avx2(void)
{
    return cpu_has() == CPU_AVX2 || cpu_has() == CPU_AVX512;
}
void codes_int8_segment_avx2(const struct codes_tile *t);
void codes_int4_segment_avx2(const struct codes_tile *t);
/* The same of up to AMX_ROWS rows by AMX, with the same bits; reads X of as many.
 * codes_by_amx: is it used for more than a few rows? */
void codes_int8_segment_amx(const struct codes_tile *t);
bool codes_by_amx(const struct matrix *w);

/* Are they of 4 bits, in blocks of CODES_BLOCK?  Of FP8? */
static inline bool codes_are_four(enum format f)
{
    return f == FORMAT_INT4 || f == FORMAT_MXFP4;
}

static inline bool codes_are_fp8(enum format f)
{
    return f == FORMAT_E4M3 || f == FORMAT_E5M2;
}

/* to[N][stride] = TERMS numbers from column COL on of the rows of W from FIRST on, a
 * multiple of CODES_ROWS, in bf16: of int8 the codes, of others what they stand for,
 * rounded; of 4 bits COL and TERMS are whole blocks.  TO has room for 3 more terms. */
void codes_widen(uint16_t *to, size_t stride, const struct matrix *w, uint64_t first,
                 size_t n, uint64_t col, size_t terms);

#endif
