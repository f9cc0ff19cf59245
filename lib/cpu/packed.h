/* packed - interface between products by packed weights and their loops
 *
 * Packed weights are those of 8 and 4 bits of lib/base/codes.h, in a struct matrix of
 * type I8 or U8.  tile-int8.c and tile-int4.c have the loops, packed.c makes products
 * from them.  Each sum has a fixed order, as in linear.c. */
#ifndef LIB_CPU_PACKED_H
#define LIB_CPU_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    INT8_OUTS = 6,   /* outputs of a tile */
    INT4_OUTS = 8,   /* the same for few rows; a multiple of 4 */
    INT4_TERMS = 128 /* terms of a step */
};

/* Rows of codes of 8 bits. */
struct int8_rows {
    const int8_t *data;
    size_t stride;
    const int8_t *ahead; /* what to prefetch, in memory order; or NULL */
};

/* y[M][N] = x w^T without the scales, or +=, over TERMS terms. */
void int8_dot(float *y, size_t y_stride, const float *x, size_t x_stride,
              const struct int8_rows *w, size_t m, size_t n, size_t terms, bool add);
void int8_widen(float *to, const int8_t *from, size_t n);

/* INT4_TERMS terms of a row of x, rounded to 16 bits: each block of CODES_BLOCK terms
 * has a scale.  Dword l of a step of codes, of which word w has terms 4w to 4w + 3,
 * meets the words 2l and 2l + 1 of each of the four vectors. */
struct int4_step {
    int16_t x[4][32];   /* x[p][w] is term 4w + p */
    int32_t offset[16]; /* -8 times the sum of the terms of each dword */
    float scale[16];    /* of the block of each dword */
};

/* Rows of codes of 4 bits.  64 bytes behind the last code and 16 bytes behind the last
 * scale are read, too; their values do not matter but must be finite. */
struct int4_rows {
    const uint8_t *data;
    const uint16_t *scale;
    size_t stride, scale_stride;
    const uint8_t *ahead;        /* as above */
    const uint16_t *scale_ahead; /* if ahead */
};

/* Rounds the N terms at X, whole blocks; the last step is padded with zeros. */
void int4_arrange(struct int4_step *to, const float *x, size_t n);
/* y[M][N] = x w^T, or +=, over STEPS steps. */
void int4_dot(float *y, size_t y_stride, const struct int4_step *x, size_t x_stride,
              const struct int4_rows *w, size_t m, size_t n, size_t steps, bool add);

#endif
