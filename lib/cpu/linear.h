/* linear - what products share with their loops over tiles
 *
 * The loops for weights of one type are a file of their own, tile-TYPE.c, made of
 * tile.h; how a product is put together of them is linear.c. */
#ifndef LIB_CPU_LINEAR_H
#define LIB_CPU_LINEAR_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/cpu/vec.h"

enum {
    ROWS = 4,       /* of a tile of y = x W^T, */
    OUTS = 6,       /* and its outputs */
    EIGHT = 8,      /* rows of a tile where there are as many, and registers, */
    EIGHT_OUTS = 3, /* and its outputs */
};

/* Weights in rows, from some term on. */
struct weight_rows {
    const char *data;
    size_t stride;     /* elements between rows */
    const char *ahead; /* what is read next, in the order of memory; or NULL */
};

/* The loops for weights of one type.  Strides count elements. */
struct tiles {
    size_t size; /* bytes of a weight */
    bool packed; /* of x a float is two terms in bf16, in their own order, and zeros up
                    to a whole vector; else x is as cpu_arrange leaves it */
    /* y[M][N] = x w^T, or += when ADD, over TERMS.  The first rows fetch what is ahead.
     */
    void (*dot)(float *y, size_t y_stride, const float *x, size_t x_stride,
                const struct weight_rows *w, size_t m, size_t n, size_t terms,
                bool add);
    /* The same of EIGHT rows and EIGHT_OUTS outputs; NULL unless CPU_HAS_WIDE, to be
     * called when cpu_is_wide(). */
    void (*eight)(float sums[EIGHT_OUTS][EIGHT], const float *x, size_t x_stride,
                  const struct weight_rows *w, size_t terms, bool add);
    /* y[M][OUTS] += x w over N terms; NULL where packed, as is widen */
    void (*outer)(float *y, size_t y_stride, const float *x, size_t x_stride,
                  const char *w, size_t w_stride, size_t m, size_t outs, size_t n);
    /* N weights, in whole steps, as f32 in the order of cpu_arrange */
    void (*widen)(float *to, const char *from, size_t n);
};

extern const struct tiles tile_f32, tile_bf16, tile_f16;

#if CPU_HAS_WIDE
/* cpu_dots over TERMS in whole vectors, where cpu_is_wide(). */
void tile_dots(float *y, size_t y_stride, const float *x, size_t x_stride, size_t m,
               const float *w, size_t w_stride, size_t n, size_t terms);
#endif

/* Of weights in bf16 and packed terms of x: the CPU multiplies and adds pairs.  NULL
 * where it cannot. */
const struct tiles *tile_pairs(void);

#endif
