/* tile-loops - the loops of tile.h, for weights of any type
 *
 * A file that includes this instantiates them for one type: TILE_KERNELS. */
#ifndef LIB_CPU_PRODUCT_TILE_LOOPS_H
#define LIB_CPU_PRODUCT_TILE_LOOPS_H

#include <stdint.h>
#include <string.h>

#include "lib/cpu/product/tile.h"
#include "lib/cpu/simd/vec.h"

static inline __attribute__((always_inline)) size_t size_of(enum format type)
{
    return type == FORMAT_F32 ? 4 : 2;
}

/* Loads VEC weights at P as f32; TYPE is a constant after inlining. */
static inline __attribute__((always_inline)) void load(vec *out, enum format type,
                                                       const void *p)
{
    if (type == FORMAT_F32)
        vec_load_f32(out, p);
    else if (type == FORMAT_BF16)
        vec_load_bf16(out, p);
    else
        vec_load_f16(out, p);
}

/* Loads N < VEC weights; the other lanes are zeros. */
static inline __attribute__((always_inline)) void load_some(vec *out, enum format type,
                                                            const void *p, size_t n)
{
    float all[VEC] = { 0 };

    memcpy(all, p, n * size_of(type));
    load(out, type, all);
}

/* Terms of a step: one vector, or two for 16-bit weights. */
static inline __attribute__((always_inline)) size_t step_of(enum format type)
{
    return type == FORMAT_F32 ? VEC : 2 * VEC;
}

/* Loads half HALF of a step of weights at P. */
static inline __attribute__((always_inline)) void load_half(vec *out, enum format type,
                                                            const void *p, int half)
{
    if (type == FORMAT_F32)
        vec_load_f32(out, p);
    else if (type == FORMAT_BF16)
        vec_pair_bf16(out, p, half);
    else
        vec_pair_f16(out, p, half);
}

/* ---- y = x W^T ---- */

/* acc[i][j] += terms of a half step: row i at X times row j at W; only N terms of x if
 * SOME.  Keeps the rows of x in registers. */
static inline __attribute__((always_inline)) void
add_half(vec acc[ROWS][OUTS], const float *x, size_t x_stride, const char *w,
         size_t w_stride, enum format type, int half, bool some, size_t n, int rows,
         int outs)
{
    vec xv[ROWS], wv;

    EACH(int i = 0; i < rows; i++)
    if (some)
        load_some(&xv[i], FORMAT_F32, x + (size_t)i * x_stride, n);
    else
        vec_load_f32(&xv[i], x + (size_t)i * x_stride);
    EACH(int j = 0; j < outs; j++)
    {
        load_half(&wv, type, w + (size_t)j * w_stride * size_of(type), half);
        EACH(int i = 0; i < rows; i++) acc[i][j] += wv * xv[i];
    }
}

/* One step of terms. */
static inline __attribute__((always_inline)) void
add_terms(vec acc[ROWS][OUTS], const float *x, size_t x_stride, const char *w,
          size_t w_stride, enum format type, int rows, int outs)
{
    add_half(acc, x, x_stride, w, w_stride, type, 0, false, 0, rows, outs);
    if (type != FORMAT_F32)
        add_half(acc, x + VEC, x_stride, w, w_stride, type, 1, false, 0, rows, outs);
}

/* The last N terms, less than a step; an f32 x is not padded. */
static inline __attribute__((always_inline)) void
add_last(vec acc[ROWS][OUTS], const float *x, size_t x_stride, const char *w,
         size_t w_stride, enum format type, size_t n, int rows, int outs)
{
    char all[OUTS][VEC * sizeof(float)] = { 0 };
    const size_t stride = sizeof(*all) / size_of(type);

    for (int j = 0; j < outs; j++)
        memcpy(all[j], w + (size_t)j * w_stride * size_of(type), n * size_of(type));
    if (type == FORMAT_F32)
        add_half(acc, x, x_stride, all[0], stride, type, 0, true, n, rows, outs);
    else
        add_terms(acc, x, x_stride, all[0], stride, type, rows, outs);
}

/* y[i][j] = x_i . w_j, or += if ADD, over N terms; ROWS and OUTS are constants after
 * inlining. */
static inline __attribute__((always_inline)) void tile(float *y, size_t y_stride,
                                                       const float *x, size_t x_stride,
                                                       const struct weight_rows *w,
                                                       enum format type, size_t n,
                                                       bool add, int rows, int outs)
{
    const size_t step = step_of(type);
    vec acc[ROWS][OUTS];
    size_t k = 0;

    EACH(int i = 0; i < rows; i++)
    EACH(int j = 0; j < outs; j++) acc[i][j] = (vec){ 0 };
    for (; w->ahead && k + step <= n; k += step) {
        EACH(int j = 0; j < outs; j++)
        __builtin_prefetch(
            w->ahead + (k * (size_t)outs + (size_t)j * step) * size_of(type), 0, 2);
        add_terms(acc, x + k, x_stride, w->data + k * size_of(type), w->stride, type,
                  rows, outs);
    }
    for (; k + step <= n; k += step)
        add_terms(acc, x + k, x_stride, w->data + k * size_of(type), w->stride, type,
                  rows, outs);
    if (k < n)
        add_last(acc, x + k, x_stride, w->data + k * size_of(type), w->stride, type,
                 n - k, rows, outs);
    EACH(int i = 0; i < rows; i++) EACH(int j = 0; j < outs; j++)
    {
        float *at = y + (size_t)i * y_stride + j, sum = vec_sum(&acc[i][j]);

        *at = add ? *at + sum : sum;
    }
}

/* ROWS rows of x by N outputs. */
static inline __attribute__((always_inline)) void
some_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
          const struct weight_rows *w, enum format type, size_t n, size_t terms,
          bool add, int rows)
{
    const size_t outs = OUTS;
    struct weight_rows at = *w;
    size_t j = 0;

    for (; j + outs <= n; j += outs, at.data += outs * w->stride * size_of(type))
        tile(y + j, y_stride, x, x_stride, &at, type, terms, add, rows, (int)outs);
    for (; j < n; j++, at.data += w->stride * size_of(type))
        tile(y + j, y_stride, x, x_stride, &at, type, terms, add, rows, 1);
}

static inline __attribute__((always_inline)) void
all_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
         const struct weight_rows *rows_of_w, enum format type, size_t m, size_t n,
         size_t terms, bool add)
{
    struct weight_rows w = *rows_of_w;
    size_t i = 0;

    for (; i + ROWS <= m; i += ROWS, w.ahead = NULL)
        some_rows(y + i * y_stride, y_stride, x + i * x_stride, x_stride, &w, type, n,
                  terms, add, ROWS);
    y += i * y_stride;
    x += i * x_stride;
    if (m - i == 3)
        some_rows(y, y_stride, x, x_stride, &w, type, n, terms, add, 3);
    else if (m - i == 2)
        some_rows(y, y_stride, x, x_stride, &w, type, n, terms, add, 2);
    else if (m - i == 1)
        some_rows(y, y_stride, x, x_stride, &w, type, n, terms, add, 1);
}

static inline __attribute__((always_inline)) void
widen_pairs(float *to, const char *from, enum format type, size_t n)
{
    if (type == FORMAT_F32)
        memcpy(to, from, n * sizeof(*to));
    for (size_t k = 0; type != FORMAT_F32 && k < n; k += 2 * VEC)
        for (int half = 0; half < 2; half++) {
            vec v;

            load_half(&v, type, from + k * size_of(type), half);
            memcpy(to + k + (size_t)half * VEC, &v, sizeof(v));
        }
}

#if CPU_HAS_WIDE
/* A tile of eight rows of x, so that a weight is widened once for all of them.  One
 * register holds the current row of x, three hold the weights: names, because GCC
 * stores an array of them. */
static inline CPU_WIDE __attribute__((always_inline)) void
add_eight(vec acc[EIGHT][EIGHT_OUTS], const float *x, size_t x_stride, const char *w,
          size_t w_stride, enum format type, int half, bool some, size_t n)
{
    vec w0, w1, w2, xv;

    load_half(&w0, type, w, half);
    load_half(&w1, type, w + w_stride * size_of(type), half);
    load_half(&w2, type, w + 2 * w_stride * size_of(type), half);
    vec_hold(&w0);
    vec_hold(&w1);
    vec_hold(&w2);
    EACH(int i = 0; i < EIGHT; i++)
    {
        if (some)
            load_some(&xv, FORMAT_F32, x + (size_t)i * x_stride, n);
        else
            vec_load_f32(&xv, x + (size_t)i * x_stride);
        vec_hold(&xv);
        vec_fuse(&acc[i][0], &w0, &xv);
        vec_fuse(&acc[i][1], &w1, &xv);
        vec_fuse(&acc[i][2], &w2, &xv);
    }
}

/* sums[j][i] = x_i . w_j, or += if ADD, over N terms.  NEAR: prefetches to the L1
 * cache. */
static inline CPU_WIDE __attribute__((always_inline)) void
tile_eight(float sums[EIGHT_OUTS][EIGHT], const float *x, size_t x_stride,
           const struct weight_rows *w, enum format type, size_t n, bool add, bool near)
{
    const size_t step = step_of(type);
    const int halves = type == FORMAT_F32 ? 1 : 2;
    const char *ahead = w->ahead;
    vec acc[EIGHT][EIGHT_OUTS];
    size_t k = 0;

    EACH(int i = 0; i < EIGHT; i++)
    EACH(int j = 0; j < EIGHT_OUTS; j++) acc[i][j] = (vec){ 0 };
    for (; k + step <= n; k += step) {
        if (ahead) {
            vec_fetch(ahead, near);
            if (!w->one) {
                EACH(int j = 1; j < EIGHT_OUTS; j++)
                vec_fetch(ahead + (size_t)j * w->apart, near);
            }
            ahead += w->step;
        }
        EACH(int h = 0; h < halves; h++)
        add_eight(acc, x + k + h * VEC, x_stride, w->data + k * size_of(type),
                  w->stride, type, h, false, 0);
    }
    if (k < n) {
        char all[EIGHT_OUTS][VEC * sizeof(float)] = { 0 };

        for (size_t j = 0; j < EIGHT_OUTS; j++)
            memcpy(all[j], w->data + (j * w->stride + k) * size_of(type),
                   (n - k) * size_of(type));
        for (int h = 0; h < halves; h++)
            add_eight(acc, x + k + h * VEC, x_stride, all[0],
                      sizeof(*all) / size_of(type), type, h, type == FORMAT_F32, n - k);
    }
    EACH(int j = 0; j < EIGHT_OUTS; j++)
    vec_add_eight(sums[j], &acc[0][j], EIGHT_OUTS, add);
}

/* acc[WIDTH] += terms of a step at X and W; only N terms of x if SOME, and otherwise
 * each stream prefetches what it reads later. */
static inline CPU_WIDE __attribute__((always_inline)) void
add_streams(vec *acc, const float *x, const char *const *w, size_t offset,
            enum format type, bool some, size_t n, int width, enum vec_ahead ahead)
{
    vec xv, next, wv;

    if (some)
        load_some(&xv, FORMAT_F32, x, n);
    else
        vec_load_f32(&xv, x);
    vec_hold(&xv);
    if (type != FORMAT_F32) {
        vec_load_f32(&next, x + VEC);
        vec_hold(&next);
    }
    EACH(int s = 0; s < width; s++)
    {
        const char *at = w[s] + offset;
        vec_u32 both;

        if (!some)
            vec_prefetch(at, ahead);
        if (type == FORMAT_F32) {
            vec_fuse_at(&acc[s], &xv, at);
            continue;
        }
        memcpy(&both, at, sizeof(both));
        __asm__("" : "+v"(both)); /* one load for both halves */
        load_half(&wv, type, &both, 0);
        vec_fuse(&acc[s], &wv, &xv);
        load_half(&wv, type, &both, 1);
        vec_fuse(&acc[s], &wv, &next);
    }
}

/* One row by WIDTH outputs, over N terms: so many stretches that their sums are eight
 * at a time. */
static inline CPU_WIDE __attribute__((always_inline)) void
tile_streams(float *sums, const float *x, const struct weight_rows *w, enum format type,
             size_t n, int width, enum vec_ahead ahead)
{
    const size_t step = step_of(type);
    const char *row[STREAMS];

    EACH(int s = 0; s < width; s++)
    row[s] = w->data + (size_t)s * w->stride * size_of(type);
    for (size_t k = 0; k < n;) {
        const size_t start = k;
        vec acc[STREAMS];

        EACH(int s = 0; s < STREAMS; s++) acc[s] = (vec){ 0 };
        EACH(int of = 0; of < STREAMS; of += width)
        {
            const size_t end = n - k < BLOCK ? n : k + BLOCK;

            for (; k + 4 * step <= end; k += 4 * step) {
                vec_hide(&k);
                EACH(size_t u = 0; u < 4; u++)
                add_streams(acc + of, x + k + u * step, row,
                            (k + u * step) * size_of(type), type, false, 0, width,
                            ahead);
            }
            for (; k + step <= end; k += step)
                add_streams(acc + of, x + k, row, k * size_of(type), type, false, 0,
                            width, ahead);
            if (k < end) {
                char rest[STREAMS][VEC * sizeof(float)] = { 0 };
                const char *all[STREAMS];

                EACH(int s = 0; s < width; s++)
                {
                    all[s] = memcpy(rest[s], row[s] + k * size_of(type),
                                    (end - k) * size_of(type));
                }
                add_streams(acc + of, x + k, all, 0, type, true,
                            type == FORMAT_F32 ? end - k : VEC, width, ahead);
                k = end;
            }
        }
        vec_add_stretches(sums, acc, width, (n - start + BLOCK - 1) / BLOCK, start > 0);
    }
}

#endif

/* ---- y = x W ---- */

/* acc[i] += x[i][k] w[k] over N terms k; VECS vectors of outputs start with the values
 * at Y. */
static inline __attribute__((always_inline)) void
add_outer(float *y, size_t y_stride, const float *x, size_t x_stride, const char *w,
          size_t w_stride, enum format type, size_t n, int rows, int vecs)
{
    vec acc[ROWS][8], wv;
    /* two calls of so many terms later: one row waits for its weights */
    const size_t ahead = 2 * n * w_stride * size_of(type);

    EACH(int i = 0; i < rows; i++)
    EACH(int c = 0; c < vecs; c++)
    vec_load_f32(&acc[i][c], y + (size_t)i * y_stride + c * VEC);
    for (size_t k = 0; k < n; k++)
        EACH(int c = 0; c < vecs; c++)
        {
            const char *at = w + (k * w_stride + (size_t)c * VEC) * size_of(type);

            if (rows == 1 && c % (int)(64 / (VEC * size_of(type))) == 0)
                __builtin_prefetch((const void *)((uintptr_t)at + ahead), 0, 2);
            load(&wv, type, at);
            EACH(int i = 0; i < rows; i++)
            acc[i][c] += wv * x[(size_t)i * x_stride + k];
        }
    EACH(int i = 0; i < rows; i++)
    EACH(int c = 0; c < vecs; c++)
    memcpy(y + (size_t)i * y_stride + c * VEC, &acc[i][c], sizeof(acc[i][c]));
}

/* Fewer than VEC outputs. */
static inline __attribute__((always_inline)) void
add_outer_some(float *y, const float *x, const char *w, size_t w_stride,
               enum format type, size_t n, size_t outs)
{
    vec acc, wv;

    load_some(&acc, FORMAT_F32, y, outs);
    for (size_t k = 0; k < n; k++) {
        load_some(&wv, type, w + k * w_stride * size_of(type), outs);
        acc += wv * x[k];
    }
    memcpy(y, &acc, outs * sizeof(*y));
}

static inline __attribute__((always_inline)) void
outer_rows(float *y, size_t y_stride, const float *x, size_t x_stride, const char *w,
           size_t w_stride, enum format type, size_t n, size_t outs, int rows)
{
    size_t j = 0;

    for (; rows == 1 && j + 8 * VEC <= outs; j += 8 * VEC)
        add_outer(y + j, y_stride, x, x_stride, w + j * size_of(type), w_stride, type,
                  n, rows, 8);
    for (; j + 4 * VEC <= outs; j += 4 * VEC)
        add_outer(y + j, y_stride, x, x_stride, w + j * size_of(type), w_stride, type,
                  n, rows, 4);
    for (; j + VEC <= outs; j += VEC)
        add_outer(y + j, y_stride, x, x_stride, w + j * size_of(type), w_stride, type,
                  n, rows, 1);
    for (int i = 0; i < rows && j < outs; i++)
        add_outer_some(y + (size_t)i * y_stride + j, x + (size_t)i * x_stride,
                       w + j * size_of(type), w_stride, type, n, outs - j);
}

static inline __attribute__((always_inline)) void
outer_all(float *y, size_t y_stride, const float *x, size_t x_stride, const char *w,
          size_t w_stride, enum format type, size_t m, size_t outs, size_t n)
{
    size_t i = 0;

    for (; i + ROWS <= m; i += ROWS)
        outer_rows(y + i * y_stride, y_stride, x + i * x_stride, x_stride, w, w_stride,
                   type, n, outs, ROWS);
    for (; i < m; i++)
        outer_rows(y + i * y_stride, y_stride, x + i * x_stride, x_stride, w, w_stride,
                   type, n, outs, 1);
}

/* ---- instantiation for one type ---- */

#if CPU_HAS_WIDE
#define TILE_WIDE(type)                         \
    TILE_EIGHT(eight, type, false)              \
    TILE_EIGHT(near_eight, type, true)          \
    TILE_STREAMS(streams_8, type, 8, VEC_TO_L2) \
    TILE_STREAMS(streams_4, type, 4, VEC_TO_L2) \
    TILE_STREAMS(near_4, type, 4, VEC_TO_L1)    \
    TILE_STREAMS(near_2, type, 2, VEC_TO_L1)
#define TILE_EIGHT(name, type, near)                                         \
    CPU_WIDE static void name(float sums[EIGHT_OUTS][EIGHT], const float *x, \
                              size_t x_stride, const struct weight_rows *w,  \
                              size_t terms, bool add)                        \
    {                                                                        \
        tile_eight(sums, x, x_stride, w, type, terms, add, near);            \
    }
#define TILE_STREAMS(name, type, width, ahead)                           \
    CPU_WIDE static void name(float *sums, const float *x,               \
                              const struct weight_rows *w, size_t terms) \
    {                                                                    \
        tile_streams(sums, x, w, type, terms, width, ahead);             \
    }
#define TILE_EIGHT_NAME eight
#define TILE_EIGHT_NEAR near_eight
#define TILE_WAYS                                          \
    {                                                      \
        { 8, streams_8 }, { 4, streams_4 }, { 4, near_4 }, \
        {                                                  \
            2, near_2                                      \
        }                                                  \
    }
#else
#define TILE_WIDE(type)
#define TILE_EIGHT_NAME NULL
#define TILE_EIGHT_NEAR NULL
#define TILE_WAYS \
    {             \
        {         \
            0     \
        }         \
    }
#endif

#define TILE_KERNELS(name, type)                                                       \
    CPU_CLONES static void dot(float *y, size_t y_stride, const float *x,              \
                               size_t x_stride, const struct weight_rows *w, size_t m, \
                               size_t n, size_t terms, bool add)                       \
    {                                                                                  \
        all_rows(y, y_stride, x, x_stride, w, type, m, n, terms, add);                 \
    }                                                                                  \
    CPU_CLONES static void outer(float *y, size_t y_stride, const float *x,            \
                                 size_t x_stride, const char *w, size_t w_stride,      \
                                 size_t m, size_t outs, size_t n)                      \
    {                                                                                  \
        outer_all(y, y_stride, x, x_stride, w, w_stride, type, m, outs, n);            \
    }                                                                                  \
    CPU_CLONES static void widen(float *to, const char *from, size_t n)                \
    {                                                                                  \
        widen_pairs(to, from, type, n);                                                \
    }                                                                                  \
    TILE_WIDE(type)                                                                    \
    static const struct tiles near_tiles = TILE_TABLE(type, TILE_EIGHT_NEAR, NULL);    \
    const struct tiles name = TILE_TABLE(type, TILE_EIGHT_NAME, &near_tiles);

#define TILE_TABLE(type, eight_rows, sibling)                                   \
    {                                                                           \
        .kind = (type) == FORMAT_F32    ? STORED_F32                            \
                : (type) == FORMAT_BF16 ? STORED_BF16                           \
                                        : STORED_F16,                           \
        .size = (type) == FORMAT_F32 ? 4 : 2, .block = BLOCK, .dot = dot,       \
        .eight = eight_rows, .near = sibling, .way = TILE_WAYS, .outer = outer, \
        .widen = widen                                                          \
    }

#endif
