/* codes-linear - interface between products by codes and their loops
 *
 * Codes are weights of 8 and 4 bits of lib/base/codes.h, in a struct matrix of
 * type I8 or U8.  codes-int8.c and codes-int4.c have the loops, codes-linear.c makes
 * products from them.
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
    };
    int32_t sum[SEGMENT_BLOCKS + 1][DIGITS]; /* of 8 bits: [0]: -128 times the sum of
                                              * the digits; of 4 bits: of each block, -8
                                              * times it */
    float scale;
};

/* Rounds the N terms at X for 8 bits, after LEAD zeros, or for 4 bits; if COARSE to
 * integers of 16 bits, without the highest digit. */
void codes_round(struct codes_segment *to, const float *x, size_t n, size_t lead,
                 bool four, bool coarse);

/* A tile of one segment: rows of x by one group of outputs, or one row by groups of 4
 * bits that lie apart, which are as many streams of weights. */
struct codes_tile {
    float *y; /* [rows or groups][CODES_ROWS]: the products are added, times the scales
               * of x */
    const struct codes_segment *x;
    size_t stride;         /* segments between rows */
    const uint8_t *w;      /* codes of a group of outputs */
    const uint16_t *scale; /* of 4 bits: of each block; of 8 bits none are applied */
    size_t apart;          /* bytes of codes between groups */
    size_t count;          /* words of each output, or blocks */
    int rows, groups;      /* of 8 bits one group; else rows is 1, or groups */
    bool hints;            /* of one row by one group: prefetch what is read later */
    bool coarse;           /* if codes_by_avx2: the terms of x are */
};
void codes_int8_segment(const struct codes_tile *t);
void codes_int4_segment(const struct codes_tile *t);
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

/* to[N][stride] = TERMS numbers from column COL on of the rows of W from FIRST on, a
 * multiple of CODES_ROWS, in bf16: of 8 bits the codes, of 4 bits what they stand for,
 * rounded; there COL and TERMS are whole blocks.  TO has room for 3 more terms. */
void codes_widen(uint16_t *to, size_t stride, const struct matrix *w, uint64_t first,
                 size_t n, uint64_t col, size_t terms);

#endif
