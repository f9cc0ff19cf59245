/* tile - interface between products and their tile loops
 *
 * tile-TYPE.c has the loops for one type of weights, instantiated from tile-loops.h;
 * the files of linear.h compose products from these loops. */
#ifndef LIB_CPU_PRODUCT_TILE_H
#define LIB_CPU_PRODUCT_TILE_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/cpu/simd/vec.h"
#include "lib/cpu/product/autotune.h"

/* Loops that are unrolled: whole, and four times. */
#define EACH       _Pragma("GCC unroll 8") for
#define FOUR_TIMES _Pragma("GCC unroll 4") for

enum {
    ROWS = 4,  /* rows of a tile of y = x W^T, */
    OUTS = 6,  /* and its outputs */
    EIGHT = 8, /* rows of a tile if there are at least eight and enough registers, */
    EIGHT_OUTS = 3, /* and its outputs */
    STREAMS = 8, /* most outputs of one row at once, whose weights may lie far apart */
    BLOCK = 512, /* terms of a stretch: some rows of x fit into the L1 cache */
    BF16DOT_BLOCK = 2048, /* of paired x */
    BF16DOT_PART = 512,   /* terms of it for which eight rows fit into the L1 cache */
};

/* A block of rows of weights. */
struct weight_rows {
    const char *data;
    size_t stride;     /* elements between rows */
    const char *ahead; /* what to prefetch; or NULL */
    size_t apart;      /* bytes between the lines that a step prefetches, one for each
                        * output, */
    size_t step;       /* and to those of the next step */
    bool one;          /* eight rows: a step prefetches for one output only */
};

/* One of several loops for one row of x. */
struct stream_loop {
    size_t width; /* outputs at a time: streams of weights */
    /* sums[width] over TERMS terms, stretch by stretch */
    void (*sums)(float *sums, const float *x, const struct weight_rows *w,
                 size_t terms);
};

/* The loops for weights of one type.  Strides count elements. */
struct tiles {
    enum stored kind;
    size_t size;        /* bytes of a weight */
    size_t block;       /* terms of a stretch */
    bool ahead_by_tile; /* eight rows prefetch what their tiles read next but a
                         * stretch, else weights in memory order */
    bool paired; /* a float of x holds two consecutive bf16 terms, padded with zeros to
                  * whole vectors; otherwise x is arranged by cpu_arrange */
    /* y[M][N] = x w^T, or += if ADD, over TERMS terms.  The first rows prefetch
     * `ahead`. */
    void (*dot)(float *y, size_t y_stride, const float *x, size_t x_stride,
                const struct weight_rows *w, size_t m, size_t n, size_t terms,
                bool add);
    /* The same for EIGHT rows by EIGHT_OUTS outputs; NULL unless CPU_HAS_WIDE. */
    void (*eight)(float sums[EIGHT_OUTS][EIGHT], const float *x, size_t x_stride,
                  const struct weight_rows *w, size_t terms, bool add);
    const struct tiles *near; /* the same, but eight rows prefetch to the L1 cache, not
                               * to L2; or NULL */
    /* If paired, instead: kept, or += if MORE, the lanes of the sums over TERMS terms;
     * and sums[], or += if ADD, the sums of these lanes. */
    void (*keep)(vec kept[EIGHT * EIGHT_OUTS], const float *x, size_t x_stride,
                 const struct weight_rows *w, size_t terms, bool more);
    void (*join)(float sums[EIGHT_OUTS][EIGHT], const vec kept[EIGHT * EIGHT_OUTS],
                 bool add);
    struct stream_loop way[AUTOTUNE_WAYS]; /* of one row; none unless CPU_HAS_WIDE */
    /* y[M][OUTS] += x w over N terms; NULL if paired, as is widen */
    void (*outer)(float *y, size_t y_stride, const float *x, size_t x_stride,
                  const char *w, size_t w_stride, size_t m, size_t outs, size_t n);
    /* widens N weights, a multiple of 2 VEC, to f32 in the order of cpu_arrange */
    void (*widen)(float *to, const char *from, size_t n);
};

/* For CPUs with AVX-512 (eight and streams) and for any (the others); and for those
 * with AVX2. */
extern const struct tiles tile_f32, tile_bf16, tile_f16;
extern const struct tiles tile_f32_avx2, tile_bf16_avx2, tile_f16_avx2;

/* cpu_dots over TERMS terms, a multiple of VEC; on CPUs with AVX-512, or AVX2. */
typedef void tile_dots_fn(float *y, size_t y_stride, const float *x, size_t x_stride,
                          size_t m, const float *w, size_t w_stride, size_t n,
                          size_t terms);
tile_dots_fn tile_dots, tile_dots_avx2;

/* Loops for bf16 weights and paired x, with the CPU's bf16 dot product; NULL if it has
 * none. */
const struct tiles *tile_bf16dot(void);

#endif
