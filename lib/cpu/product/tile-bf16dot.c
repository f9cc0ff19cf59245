/* tile-bf16dot - tile loops for bf16 weights and x rounded to bf16
 *
 * vdpbf16ps adds the products of two neighbouring terms to each f32 lane: of a vector
 * of 32 terms, lane l has terms 2 l and 2 l + 1, whatever the shape of the tile.  The
 * instruction flushes subnormal numbers to zero (Intel's manual). */
#include <stdint.h>

#include "lib/cpu/product/tile.h"
#include "lib/cpu/simd/avx512bf16.h"
#include "lib/cpu/simd/vec.h"

#if CPU_HAS_WIDE
enum { STEP = 2 * VEC };

/* vec_add_pairs with the terms at W (see vec_fuse_at). */
static inline CPU_WIDE __attribute__((always_inline)) void
add_pairs_at(vec *sum, const void *w, const vec_pairs *x)
{
    vec to = *sum;

    __asm__ volatile("vdpbf16ps %1, %2, %0"
                     : "+v"(to)
                     : "m"(*(const vec_pairs *)w), "v"(*x));
    *sum = to;
}

/* Loads a vector of terms at P; N < 32 terms are padded with zeros. */
static inline CPU_WIDE __attribute__((always_inline)) void
load_pairs(vec_pairs *out, const void *p, size_t n)
{
    *out = (vec_pairs){ 0 };
    memcpy(out, p, n * sizeof(uint16_t));
    __asm__("" : "+v"(*out)); /* keep it in a register: see vec_hold */
}

/* acc[i][j] += products of N terms, at most a vector, of row i of x and row j of w.
 * Keeps the rows of x in registers; names, because GCC stores an array of them. */
static inline CPU_WIDE __attribute__((always_inline)) void
add_step(vec acc[ROWS][OUTS], const float *x, size_t x_stride, const char *w,
         size_t w_stride, size_t n, int rows, int outs)
{
    vec_pairs x0, x1, x2, x3, wv;

    load_pairs(&x0, x, STEP);
    if (rows > 1)
        load_pairs(&x1, x + x_stride, STEP);
    if (rows > 2)
        load_pairs(&x2, x + 2 * x_stride, STEP);
    if (rows > 3)
        load_pairs(&x3, x + 3 * x_stride, STEP);
    EACH(int j = 0; j < outs; j++)
    {
        load_pairs(&wv, w + (size_t)j * w_stride * sizeof(uint16_t), n);
        vec_add_pairs(&acc[0][j], &wv, &x0);
        if (rows > 1)
            vec_add_pairs(&acc[1][j], &wv, &x1);
        if (rows > 2)
            vec_add_pairs(&acc[2][j], &wv, &x2);
        if (rows > 3)
            vec_add_pairs(&acc[3][j], &wv, &x3);
    }
}

/* acc[ROWS][OUTS] over N terms; prefetches LINES vectors with each.  LINES, ROWS and
 * OUTS are constants after inlining. */
static inline CPU_WIDE __attribute__((always_inline)) void
make_sums(vec acc[ROWS][OUTS], const float *x, size_t x_stride,
          const struct weight_rows *w, size_t n, int lines, int rows, int outs)
{
    const char *data = w->data, *ahead = w->ahead;
    size_t k = 0;

    EACH(int i = 0; i < rows; i++)
    EACH(int j = 0; j < outs; j++) acc[i][j] = (vec){ 0 };
    for (; k + STEP <= n; k += STEP, x += VEC, data += STEP * sizeof(uint16_t)) {
        if (lines) {
            EACH(int j = 0; j < lines; j++)
            __builtin_prefetch(ahead + (size_t)j * STEP * sizeof(uint16_t), 0, 2);
            ahead += (size_t)lines * STEP * sizeof(uint16_t);
        }
        add_step(acc, x, x_stride, data, w->stride, STEP, rows, outs);
    }
    if (k < n)
        add_step(acc, x, x_stride, data, w->stride, n - k, rows, outs);
}

static inline CPU_WIDE __attribute__((always_inline)) void
tile(float *y, size_t y_stride, const float *x, size_t x_stride,
     const struct weight_rows *w, size_t n, bool add, int lines, int rows, int outs)
{
    vec acc[ROWS][OUTS];
    float sum[ROWS * OUTS];

    make_sums(acc, x, x_stride, w, n, lines, rows, outs);
    if (rows == ROWS && outs == OUTS) {
        EACH(int i = 0; i < ROWS * OUTS; i += 8)
        vec_sum_eight(sum + i, &acc[0][0] + i, 1);
    } else {
        EACH(int i = 0; i < rows; i++)
        EACH(int j = 0; j < outs; j++) sum[i * outs + j] = vec_sum(&acc[i][j]);
    }
    EACH(int i = 0; i < rows; i++) EACH(int j = 0; j < outs; j++)
    {
        float *at = y + (size_t)i * y_stride + j;

        *at = add ? *at + sum[i * outs + j] : sum[i * outs + j];
    }
}

/* LINES: of the prefetch. */
static inline CPU_WIDE __attribute__((always_inline)) void
some_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
          const struct weight_rows *w, size_t n, size_t terms, bool add, int lines,
          int rows)
{
    struct weight_rows at = *w;
    size_t j = 0;

    for (; j + OUTS <= n; j += OUTS, at.data += OUTS * w->stride * sizeof(uint16_t))
        tile(y + j, y_stride, x, x_stride, &at, terms, add, lines, rows, OUTS);
    for (; j < n; j++, at.data += w->stride * sizeof(uint16_t))
        tile(y + j, y_stride, x, x_stride, &at, terms, add, 0, rows, 1);
}

/* Many rows prefetch one vector with each, so that memory is read all the time. */
CPU_WIDE static void dot(float *y, size_t y_stride, const float *x, size_t x_stride,
                         const struct weight_rows *rows_of_w, size_t m, size_t n,
                         size_t terms, bool add)
{
    struct weight_rows w = *rows_of_w;
    int left = w.ahead ? OUTS : 0; /* vectors to prefetch with each that is read */

    for (; m >= ROWS; m -= ROWS, y += ROWS * y_stride, x += ROWS * x_stride)
        if (left == OUTS && m < OUTS * ROWS) {
            some_rows(y, y_stride, x, x_stride, &w, n, terms, add, OUTS, ROWS);
            left = 0;
        } else if (left) {
            some_rows(y, y_stride, x, x_stride, &w, n, terms, add, 1, ROWS);
            w.ahead += terms * sizeof(uint16_t);
            left--;
        } else {
            some_rows(y, y_stride, x, x_stride, &w, n, terms, add, 0, ROWS);
        }
    if (m == 3)
        some_rows(y, y_stride, x, x_stride, &w, n, terms, add, left ? OUTS : 0, 3);
    else if (m == 2)
        some_rows(y, y_stride, x, x_stride, &w, n, terms, add, left ? OUTS : 0, 2);
    else if (m == 1)
        some_rows(y, y_stride, x, x_stride, &w, n, terms, add, left ? OUTS : 0, 1);
}

/* acc[EIGHT][EIGHT_OUTS] += products of N terms, at most a vector. */
static inline CPU_WIDE __attribute__((always_inline)) void
add_eight(vec acc[EIGHT][EIGHT_OUTS], const float *x, size_t x_stride, const char *w,
          size_t w_stride, size_t n)
{
    vec_pairs w0, w1, w2, xv;

    load_pairs(&w0, w, n);
    load_pairs(&w1, w + w_stride * sizeof(uint16_t), n);
    load_pairs(&w2, w + 2 * w_stride * sizeof(uint16_t), n);
    EACH(int i = 0; i < EIGHT; i++)
    {
        load_pairs(&xv, x + (size_t)i * x_stride, STEP);
        vec_add_pairs(&acc[i][0], &w0, &xv);
        vec_add_pairs(&acc[i][1], &w1, &xv);
        vec_add_pairs(&acc[i][2], &w2, &xv);
    }
}

static inline CPU_WIDE __attribute__((always_inline)) void
keep_lanes(vec kept[EIGHT * EIGHT_OUTS], const float *x, size_t x_stride,
           const struct weight_rows *w, size_t terms, bool more, bool near)
{
    const char *data = w->data, *ahead = w->ahead;
    vec acc[EIGHT][EIGHT_OUTS];
    size_t k = 0;

    EACH(int i = 0; i < EIGHT; i++)
    EACH(int j = 0; j < EIGHT_OUTS; j++)
    acc[i][j] = more ? kept[i * EIGHT_OUTS + j] : (vec){ 0 };
    for (; k + STEP <= terms; k += STEP, x += VEC, data += STEP * sizeof(uint16_t)) {
        if (ahead) {
            EACH(int j = 0; j < EIGHT_OUTS; j++)
            vec_fetch(ahead + (size_t)j * w->apart, near);
            ahead += w->step;
        }
        add_eight(acc, x, x_stride, data, w->stride, STEP);
    }
    if (k < terms)
        add_eight(acc, x, x_stride, data, w->stride, terms - k);
    EACH(int i = 0; i < EIGHT; i++)
    EACH(int j = 0; j < EIGHT_OUTS; j++) kept[i * EIGHT_OUTS + j] = acc[i][j];
}

#define KEEP_OF(name, near)                                                 \
    CPU_WIDE static void name(vec kept[EIGHT * EIGHT_OUTS], const float *x, \
                              size_t x_stride, const struct weight_rows *w, \
                              size_t terms, bool more)                      \
    {                                                                       \
        keep_lanes(kept, x, x_stride, w, terms, more, near);                \
    }

KEEP_OF(keep, false)
KEEP_OF(near_keep, true)

CPU_WIDE static void join(float sums[EIGHT_OUTS][EIGHT],
                          const vec kept[EIGHT * EIGHT_OUTS], bool add)
{
    EACH(int j = 0; j < EIGHT_OUTS; j++)
    vec_add_eight(sums[j], &kept[j], EIGHT_OUTS, add);
}

/* acc[WIDTH] += products of N terms, at most a vector.  Each stream prefetches what it
 * reads later. */
static inline CPU_WIDE __attribute__((always_inline)) void
add_streams(vec *acc, const float *x, const char *const *w, size_t offset, size_t n,
            int width, enum vec_ahead ahead)
{
    vec_pairs wv, xv;

    load_pairs(&xv, x, STEP);
    EACH(int s = 0; s < width; s++)
    {
        const char *at = w[s] + offset;

        if (n == STEP) {
            vec_prefetch(at, ahead);
            add_pairs_at(&acc[s], at, &xv);
        } else {
            load_pairs(&wv, at, n);
            vec_add_pairs(&acc[s], &wv, &xv);
        }
    }
}

/* WIDTH is a constant after inlining; as tile_streams of tile-loops.h. */
static inline CPU_WIDE __attribute__((always_inline)) void
some_streams(float *sums, const float *x, const struct weight_rows *w, size_t terms,
             int width, enum vec_ahead ahead)
{
    const char *row[STREAMS];

    EACH(int s = 0; s < width; s++)
    row[s] = w->data + (size_t)s * w->stride * sizeof(uint16_t);
    for (size_t k = 0; k < terms;) {
        const size_t start = k;
        vec acc[STREAMS];

        EACH(int s = 0; s < STREAMS; s++) acc[s] = (vec){ 0 };
        EACH(int of = 0; of < STREAMS; of += width)
        {
            const size_t end = terms - k < BF16DOT_BLOCK ? terms : k + BF16DOT_BLOCK;

            for (; k + 4 * STEP <= end; k += 4 * STEP) {
                vec_hide(&k);
                EACH(size_t u = 0; u < 4; u++)
                add_streams(acc + of, x + (k + u * STEP) / 2, row,
                            (k + u * STEP) * sizeof(uint16_t), STEP, width, ahead);
            }
            for (; k + STEP <= end; k += STEP)
                add_streams(acc + of, x + k / 2, row, k * sizeof(uint16_t), STEP, width,
                            ahead);
            if (k < end) {
                add_streams(acc + of, x + k / 2, row, k * sizeof(uint16_t), end - k,
                            width, ahead);
                k = end;
            }
        }
        vec_add_stretches(sums, acc, width,
                          (terms - start + BF16DOT_BLOCK - 1) / BF16DOT_BLOCK,
                          start > 0);
    }
}

#define STREAMS_OF(name, width, ahead)                                   \
    CPU_WIDE static void name(float *sums, const float *x,               \
                              const struct weight_rows *w, size_t terms) \
    {                                                                    \
        some_streams(sums, x, w, terms, width, ahead);                   \
    }

STREAMS_OF(streams_8, 8, VEC_TO_L2)
STREAMS_OF(streams_4, 4, VEC_TO_L2)
STREAMS_OF(near_4, 4, VEC_TO_L1)
STREAMS_OF(near_2, 2, VEC_TO_L1)

#define TABLE(eight_rows, sibling)                                                     \
    {                                                                                  \
        .kind = STORED_BF16DOT, .size = sizeof(uint16_t), .block = BF16DOT_BLOCK,      \
        .paired = true, .dot = dot, .keep = eight_rows, .join = join, .near = sibling, \
        .way = {                                                                       \
            { 8, streams_8 },                                                          \
            { 4, streams_4 },                                                          \
            { 4, near_4 },                                                             \
            { 2, near_2 }                                                              \
        }                                                                              \
    }

const struct tiles *tile_bf16dot(void)
{
    static const struct tiles near_tiles = TABLE(near_keep, NULL);
    static const struct tiles pairs_of_bf16 = TABLE(keep, &near_tiles);

    return avx512bf16_has() ? &pairs_of_bf16 : NULL;
}
#else
const struct tiles *tile_bf16dot(void)
{
    return NULL;
}
#endif
