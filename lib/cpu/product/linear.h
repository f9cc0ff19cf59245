/* linear - interface between the files that make y = x W^T and y = x W */
#ifndef LIB_CPU_PRODUCT_LINEAR_H
#define LIB_CPU_PRODUCT_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/cpu/cpu.h"
#include "lib/cpu/product/streams.h"
#include "lib/cpu/product/tile.h"
#include "lib/cpu/simd/vec.h"

enum {
    FEW = 16,       /* maximum number of rows for which weights are widened as they
                     * are read */
    IN_PLACE = 128, /* rows for which f32 weights are not copied, */
    IN_PLACE_AVX2 = 32,
    CHUNK = 128,            /* rows that tiles of paired x reuse, from the L2 cache */
    PANEL = 8 * OUTS,       /* outputs computed together */
    GROUP = 8 * EIGHT_OUTS, /* outputs computed together in tiles of eight rows */
    BLOCK_OUTS = 4 * GROUP, /* of many rows: outputs whose weights, of a stretch, fit
                             * into the L2 cache, */
    BLOCK_ROWS = 512,       /* and rows that are multiplied by these */
    MATMUL_STRIP = 128,     /* of y = x W: outputs computed together */
    LINE = 64,              /* bytes of a line of a cache */
    APART = VEC, /* padding between rows, so that equal columns map to different cache
                  * sets */
    BF16DOT_FLOATS = BLOCK_OUTS * (BF16DOT_BLOCK / 2 + APART) /* of a block's weights */
};

static inline size_t linear_size_of(enum format type)
{
    return type == FORMAT_F32 ? 4 : 2;
}

/* The loops for weights of type TYPE. */
static inline const struct tiles *linear_tiles(enum format type)
{
#if CPU_HAS_WIDE
    if (cpu_has() == CPU_AVX2)
        return type == FORMAT_F32    ? &tile_f32_avx2
               : type == FORMAT_BF16 ? &tile_bf16_avx2
                                     : &tile_f16_avx2;
#endif
    return type == FORMAT_F32    ? &tile_f32
           : type == FORMAT_BF16 ? &tile_bf16
                                 : &tile_f16;
}

static inline const char *linear_element(const struct matrix *w, uint64_t row,
                                         uint64_t col)
{
    return (const char *)w->data + (row * w->cols + col) * linear_size_of(w->format);
}

/* ---- tree sums ---- */

/* Maximum number of pending sums besides the first. */
enum { TREE_SUMS = TREE_LEAVES / 2 };

/* Pending partial sums of an [m][n] result of a tree: the first is in Y, the others in
 * ROOM. */
struct tree_sums {
    float *y;
    size_t y_stride;
    float *room; /* [TREE_SUMS][m][n] */
    size_t m, n;
    size_t count; /* number of pending sums */
};

static inline float *tree_sums_at(const struct tree_sums *s, size_t k, size_t *stride)
{
    *stride = k ? s->n : s->y_stride;
    return k ? s->room + (k - 1) * s->m * s->n : s->y;
}

/* Counts one more pending sum, then ADDS times replaces the last two by their sum. */
static inline void tree_sums_join(struct tree_sums *s, int adds)
{
    s->count++;
    for (int k = 0; k < adds; k++, s->count--) {
        size_t y_stride, z_stride;
        float *y = tree_sums_at(s, s->count - 2, &y_stride);
        const float *z = tree_sums_at(s, s->count - 1, &z_stride);

        for (size_t i = 0; i < s->m; i++)
            for (size_t j = 0; j < s->n; j++)
                y[i * y_stride + j] += z[i * z_stride + j];
    }
}

/* ---- terms ---- */

/* The terms of a partial sum: columns [start, start + count) of W, and where they begin
 * in the arranged x. */
struct linear_terms {
    uint64_t start, count;
    size_t x;
};

/* Floats that N arranged terms of x take. */
static inline size_t linear_floats(const struct tiles *t, size_t n)
{
    size_t whole = (n + 2 * VEC - 1) / (2 * VEC) * (2 * VEC);

    return t->paired ? whole / 2 : t->size == sizeof(float) ? n : whole;
}

/* Advances *of to the terms that follow. */
static inline void linear_next(struct linear_terms *of, const struct tiles *t)
{
    of->start += of->count;
    of->x += linear_floats(t, of->count);
}

static inline struct sum_tree linear_whole(const struct matrix *w)
{
    return (struct sum_tree){ .n = 1, .leaf = { { .cols = w->cols } } };
}

/* Where the N outputs from FIRST on read on from column COL, or the next N outputs if
 * COL is the end of a row; NULL: there are none. */
static inline const char *linear_read_next(const struct matrix *w, uint64_t first,
                                           size_t n, uint64_t col)
{
    if (col < w->cols)
        return linear_element(w, first, col);
    return first + 2 * n <= w->rows ? linear_element(w, first + n, 0) : NULL;
}

/* One product, shared by its threads. */
struct linear {
    float *y;
    const float *x;
    const uint16_t *bf16; /* instead of x, or NULL */
    float *apart;         /* for y = x W^T: x arranged, with padding between rows */
    size_t rows, x_stride;
    const struct matrix *w;
    bool rounded;                      /* terms of x are rounded to bf16, or f16 */
    const struct tiles *tiles, *panel; /* loops; those for panels in f32 */
    uint64_t in, out;                  /* columns of x and y */
    uint64_t share;                    /* outputs per task */
    struct streams streams;
    const struct stream_loop *loop; /* of one row */
    float *panels;                  /* [threads], or NULL */
    const struct sum_tree *tree;    /* or NULL */
    float *rooms;                   /* [threads][room], of blocks or of a tree */
    size_t room;
};

/* Outputs per task: some 100 KB of weights, in whole panels. */
uint64_t linear_share(const struct linear *p);
/* Widens N rows of W from row FIRST on, TERMS columns from column COL on, to f32 rows
 * with a stride of BLOCK + APART. */
struct weight_rows linear_widen_panel(const struct matrix *w, uint64_t first, size_t n,
                                      uint64_t col, size_t terms, float *to);
/* Rounds the N floats at X to bf16 in place; N is a multiple of VEC. */
void linear_round(float *x, size_t n);

/* Runs RUN in tasks of SHARE outputs each. */
void linear_share_out(struct device *d, struct linear *p, uint64_t share,
                      cpu_task *run);
/* Returns the first output of TASK; *n is their number. */
uint64_t linear_span(const struct linear *p, size_t task, size_t *n);

/* Runs P, of one row, on all threads.  Returns false if that is impossible, or if there
 * are too few outputs. */
bool linear_one_row(struct device *d, struct linear *p);
/* The other loops run on the calling thread and make y[M][N], outputs from FIRST on.
 * Few rows, or many where nothing else is. */
void linear_few_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
                     size_t m, const struct tiles *t, const struct matrix *w,
                     uint64_t first, size_t n, const struct sum_tree *tree);
/* Many rows: widens a panel of weights and uses it for all rows. */
void linear_many_panels(float *y, size_t y_stride, const float *x, size_t x_stride,
                        size_t m, const struct matrix *w, uint64_t first, size_t n,
                        struct linear_terms of, float *panel);
/* y[M][N] = x w^T with TREE, for many rows. */
void linear_many_panels_tree(float *y, size_t y_stride, const float *x, size_t x_stride,
                             size_t m, const struct matrix *w, uint64_t first, size_t n,
                             const struct sum_tree *tree, float *panel, float *room);

/* What follows needs AVX2 or AVX-512.  y[i * STRIDE + c] = x[c][i] of eight by eight.
 */
void linear_transpose(float *y, size_t stride, const float (*x)[EIGHT]);
/* At least EIGHT rows, in blocks of rows and outputs; ROOM is of a thread. */
void linear_many_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
                      size_t m, const struct tiles *t, const struct matrix *w,
                      uint64_t first, size_t n, const struct sum_tree *tree,
                      float *room);
/* The same for paired x, whose weights are copied, or widened from codes. */
void bf16dot_rows(float *y, size_t y_stride, const float *x, size_t x_stride, size_t m,
                  const struct tiles *t, const struct matrix *w, uint64_t first,
                  size_t n, const struct sum_tree *tree, float *room);

#endif
