/* tile-avx2 - tile loops for CPUs with AVX2
 *
 * As those of tile-loops.h, in tiles of at most SUMS sums: sixteen registers hold them
 * and their operands. */
#include "lib/cpu/product/tile.h"

#include "lib/cpu/simd/avx2.h"

#if CPU_HAS_WIDE
/* Loops that are unrolled whole. */
#define ALL _Pragma("GCC unroll 24") for

enum {
    SUMS = 12,
    TALL = 4,             /* rows of a tile of three outputs */
    LINE = 64,            /* bytes of a step of weights, and of a line of a cache */
    MOST_STREAMS = 4,     /* of one row, of two registers each */
    BROAD = 2 * LANES,    /* y = x W: outputs computed together, */
    ONE_BROAD = 8 * LANES /* and those of one row */
};

static inline __attribute__((always_inline)) size_t size_of(enum format type)
{
    return type == FORMAT_F32 ? 4 : 2;
}

/* Terms of a step, which are LINE bytes. */
static inline __attribute__((always_inline)) size_t step_of(enum format type)
{
    return LINE / size_of(type);
}

/* Widens f16 in the lower halves of *w: vec_widen_f16 for LANES of them. */
static inline __attribute__((always_inline)) void widen_f16(vec_half *out,
                                                            vec_half_u32 w)
{
    vec_half_u32 sign = (w & 0x8000u) << 16, mag = (w & 0x7fffu) << 13;
    vec_half_i32 special;
    vec_half scaled;

    memcpy(&scaled, &mag, sizeof(scaled));
    scaled *= 0x1p112f;
    memcpy(&w, &scaled, sizeof(w));
    special = (vec_half_i32)(w + 0x38800000u) >> 31;
    w |= ((vec_half_u32)special & 0x7f800000u) | sign;
    memcpy(out, &w, sizeof(*out));
}

/* Loads LANES weights at P or, of 16 bits, those at even positions, or ODD ones. */
static inline __attribute__((always_inline)) void load(vec_half *out, enum format type,
                                                       const void *p, bool odd)
{
    vec_half_u32 w;

    if (type == FORMAT_F32) {
        half_load(out, p);
        return;
    }
    memcpy(&w, p, sizeof(w));
    if (type == FORMAT_F16) {
        widen_f16(out, odd ? w >> 16 : w & 0xffffu);
    } else {
        w = odd ? w & 0xffff0000u : w << 16;
        memcpy(out, &w, sizeof(*out));
    }
    half_hold(out);
}

/* ---- y = x W^T ---- */

/* acc[i * OUTS + j] += LANES terms of rows i at X times rows j at W.  Keeps the fewer
 * of the two in registers; names, because GCC stores an array of them. */
static inline __attribute__((always_inline)) void
add_lanes(vec_half *acc, const float *x, size_t x_stride, const char *w, size_t apart,
          enum format type, bool odd, int rows, int outs)
{
    vec_half a, b, c, one;

    if (outs <= 3) {
        load(&a, type, w, odd);
        if (outs > 1)
            load(&b, type, w + apart, odd);
        if (outs > 2)
            load(&c, type, w + 2 * apart, odd);
        ALL(int i = 0; i < rows; i++)
        {
            half_load(&one, x + (size_t)i * x_stride);
            half_fuse(&acc[i * outs], &a, &one);
            if (outs > 1)
                half_fuse(&acc[i * outs + 1], &b, &one);
            if (outs > 2)
                half_fuse(&acc[i * outs + 2], &c, &one);
        }
        return;
    }
    half_load(&a, x);
    if (rows > 1)
        half_load(&b, x + x_stride);
    ALL(int j = 0; j < outs; j++)
    {
        load(&one, type, w + (size_t)j * apart, odd);
        half_fuse(&acc[j], &one, &a);
        if (rows > 1)
            half_fuse(&acc[outs + j], &one, &b);
    }
}

/* One step: the lower lanes (PART 0) or the upper ones of each of its vectors. */
static inline __attribute__((always_inline)) void
add_step(vec_half *acc, const float *x, size_t x_stride, const char *w, size_t apart,
         enum format type, int part, int rows, int outs)
{
    x += part * LANES;
    w += (size_t)part * sizeof(*acc);
    add_lanes(acc, x, x_stride, w, apart, type, false, rows, outs);
    if (type != FORMAT_F32)
        add_lanes(acc, x + VEC, x_stride, w, apart, type, true, rows, outs);
}

/* The last N terms, less than a step; an f32 x is not padded. */
static inline __attribute__((always_inline)) void
add_last(vec_half *acc, const float *x, size_t x_stride, const char *w, size_t apart,
         enum format type, size_t n, int part, int rows, int outs)
{
    char last[SUMS / 2][LINE] = { { 0 } };
    float padded[TALL][VEC] = { { 0 } };

    for (int j = 0; j < outs; j++)
        memcpy(last[j], w + (size_t)j * apart, n * size_of(type));
    for (int i = 0; i < rows && type == FORMAT_F32; i++)
        memcpy(padded[i], x + (size_t)i * x_stride, n * sizeof(*x));
    if (type == FORMAT_F32)
        add_step(acc, padded[0], VEC, last[0], LINE, type, part, rows, outs);
    else
        add_step(acc, x, x_stride, last[0], LINE, type, part, rows, outs);
}

/* What a pass prefetches in each step.  A CPU drops prefetches of what it has no
 * buffers for: they are spread over the passes of a tile. */
struct later {
    const char *far; /* LINES lines, APART bytes apart, to the L2 cache; STEP bytes
                      * further with each step */
    int lines;       /* or 0 */
    size_t apart, step;
    int near; /* or 0: the weights of so many outputs later, to the L1 cache */
};

/* acc[i * OUTS + j] = sums of N terms, the lanes of one PART.  TYPE, PART, ROWS, OUTS,
 * later.lines and later.near are constants after inlining. */
static inline __attribute__((always_inline)) void
pass(vec_half acc[SUMS], const float *x, size_t x_stride, const struct weight_rows *w,
     enum format type, size_t n, int part, struct later later, int rows, int outs)
{
    const size_t step = step_of(type), apart = w->stride * size_of(type);
    const size_t near = (size_t)later.near * apart;
    const char *at = w->data;
    size_t k = 0;

    ALL(int s = 0; s < rows * outs; s++) acc[s] = (vec_half){ 0 };
    for (; k + step <= n; k += step, at += LINE) {
        ALL(int j = 0; j < later.lines; j++)
        __builtin_prefetch(later.far + (size_t)j * later.apart, 0, 2);
        later.far += later.lines ? later.step : 0;
        if (later.near)
            __builtin_prefetch(at + near, 0, 3);
        add_step(acc, x + k, x_stride, at, apart, type, part, rows, outs);
    }
    if (k < n)
        add_last(acc, x + k, x_stride, at, apart, type, n - k, part, rows, outs);
}

/* acc[i * OUTS + j]: the lanes of both parts, added. */
static inline __attribute__((always_inline)) void
passes(vec_half acc[SUMS], const float *x, size_t x_stride, const struct weight_rows *w,
       enum format type, size_t n, struct later lower, struct later upper, int rows,
       int outs)
{
    vec_half kept[SUMS];

    pass(kept, x, x_stride, w, type, n, 0, lower, rows, outs);
    pass(acc, x, x_stride, w, type, n, 1, upper, rows, outs);
    ALL(int s = 0; s < rows * outs; s++) acc[s] += kept[s];
}

/* What pass P of a tile of eight rows prefetches: output P of `ahead` if FAR, and the
 * weights of output P - 1 of the next tile. */
static inline __attribute__((always_inline)) struct later
later_of(const struct weight_rows *w, bool far, int p)
{
    return (struct later){ .far = far ? w->ahead + (size_t)p * w->apart : NULL,
                           .lines = far && p < EIGHT_OUTS,
                           .step = w->step,
                           .near = p ? EIGHT_OUTS + p - 1 : 0 };
}

/* to[TALL] = the lower or UPPER half of *sum, or += if ADD. */
static inline __attribute__((always_inline)) void
put_half(float *to, const vec_half *sum, bool upper, bool add)
{
    typedef float vec_tall __attribute__((vector_size(TALL * sizeof(float))));
    vec_tall half = upper ? __builtin_shufflevector(*sum, *sum, 4, 5, 6, 7)
                          : __builtin_shufflevector(*sum, *sum, 0, 1, 2, 3),
             had = { 0 };

    if (add)
        memcpy(&had, to, sizeof(had));
    half = add ? had + half : half;
    memcpy(to, &half, sizeof(half));
}

/* tile_eight, which prefetches `ahead` if FAR, a constant after inlining. */
static inline __attribute__((always_inline)) void
tile_eight_far(float sums[EIGHT_OUTS][EIGHT], const float *x, size_t x_stride,
               const struct weight_rows *w, enum format type, size_t n, bool add,
               bool far)
{
    vec_half third[EIGHT], sum;

    ALL(int h = 0; h < 2; h++)
    {
        vec_half acc[SUMS], both[EIGHT];

        passes(acc, x + (size_t)(h * TALL) * x_stride, x_stride, w, type, n,
               later_of(w, far, 2 * h), later_of(w, far, 2 * h + 1), TALL, EIGHT_OUTS);
        ALL(int i = 0; i < TALL; i++)
        {
            both[i] = acc[i * EIGHT_OUTS];
            both[TALL + i] = acc[i * EIGHT_OUTS + 1];
            third[h * TALL + i] = acc[i * EIGHT_OUTS + 2];
        }
        half_sum_eight(&sum, both);
        put_half(sums[0] + h * TALL, &sum, false, add);
        put_half(sums[1] + h * TALL, &sum, true, add);
    }
    half_sum_eight(&sum, third);
    put_half(sums[2], &sum, false, add);
    put_half(sums[2] + TALL, &sum, true, add);
}

/* sums[j][i] = x_i . w_j, or += if ADD, over N terms. */
static inline __attribute__((always_inline)) void
tile_eight(float sums[EIGHT_OUTS][EIGHT], const float *x, size_t x_stride,
           const struct weight_rows *w, enum format type, size_t n, bool add)
{
    if (w->ahead)
        tile_eight_far(sums, x, x_stride, w, type, n, add, true);
    else
        tile_eight_far(sums, x, x_stride, w, type, n, add, false);
}

/* y[i][j] = x_i . w_j, or += if ADD, over N terms; ROWS and OUTS are constants after
 * inlining. */
static inline __attribute__((always_inline)) void tile(float *y, size_t y_stride,
                                                       const float *x, size_t x_stride,
                                                       const struct weight_rows *w,
                                                       enum format type, size_t n,
                                                       bool add, int rows, int outs)
{
    vec_half both[2 * LANES] = { { 0 } };
    float sum[2 * LANES];

    if (w->ahead)
        passes(both, x, x_stride, w, type, n,
               (struct later){ w->ahead, outs, w->apart, w->step, 0 },
               (struct later){ 0 }, rows, outs);
    else
        passes(both, x, x_stride, w, type, n, (struct later){ 0 }, (struct later){ 0 },
               rows, outs);
    for (int s = 0; s < rows * outs; s += LANES) {
        vec_half eight;

        half_sum_eight(&eight, both + s);
        memcpy(sum + s, &eight, sizeof(eight));
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < outs; j++) {
            float *at = y + (size_t)i * y_stride + j;

            *at = add ? *at + sum[i * outs + j] : sum[i * outs + j];
        }
}

/* ROWS rows of x by N outputs, OUTS at a time. */
static inline __attribute__((always_inline)) void
some_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
          const struct weight_rows *w, enum format type, size_t n, size_t terms,
          bool add, int rows, int outs)
{
    const size_t step = (size_t)outs, unit = size_of(type);
    struct weight_rows at = *w;
    size_t j = 0;

    at.apart = LINE;
    at.step = step * LINE;
    for (; j + step <= n; j += step, at.data += step * w->stride * unit) {
        tile(y + j, y_stride, x, x_stride, &at, type, terms, add, rows, outs);
        at.ahead = at.ahead ? at.ahead + step * terms * unit : NULL;
    }
    for (at.ahead = NULL; j < n; j++, at.data += w->stride * unit)
        tile(y + j, y_stride, x, x_stride, &at, type, terms, add, rows, 1);
}

static inline __attribute__((always_inline)) void
all_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
         const struct weight_rows *rows_of_w, enum format type, size_t m, size_t n,
         size_t terms, bool add)
{
    struct weight_rows w = *rows_of_w;

    for (; m >= TALL; m -= TALL, w.ahead = NULL) {
        some_rows(y, y_stride, x, x_stride, &w, type, n, terms, add, TALL, 3);
        y += TALL * y_stride;
        x += TALL * x_stride;
    }
    if (m == 3)
        some_rows(y, y_stride, x, x_stride, &w, type, n, terms, add, 3, 3);
    else if (m == 2)
        some_rows(y, y_stride, x, x_stride, &w, type, n, terms, add, 2, OUTS);
    else if (m == 1)
        some_rows(y, y_stride, x, x_stride, &w, type, n, terms, add, 1, OUTS);
}

/* ---- one row ---- */

/* sum[2 * s + part] += a step of stream s, at W; a whole one prefetches. */
static inline __attribute__((always_inline)) void
add_streams(vec_half *acc, const float *x, const char *const *w, size_t offset,
            enum format type, bool some, int width, enum vec_ahead ahead)
{
    ALL(int s = 0; s < width; s++)
    {
        const char *at = w[s] + offset;

        if (!some)
            vec_prefetch(at, ahead);
        ALL(int part = 0; part < 2; part++)
        {
            vec_half xv, wv;

            half_load(&xv, x + part * LANES);
            if (type == FORMAT_F32) {
                half_fuse_at(&acc[2 * s + part], &xv, at + part * (int)sizeof(xv));
                continue;
            }
            load(&wv, type, at + part * (int)sizeof(xv), false);
            half_fuse(&acc[2 * s + part], &wv, &xv);
            half_load(&xv, x + VEC + part * LANES);
            load(&wv, type, at + part * (int)sizeof(xv), true);
            half_fuse(&acc[2 * s + part], &wv, &xv);
        }
    }
}

/* A stretch of N terms of one row by WIDTH outputs: to[s] = their lanes. */
static inline __attribute__((always_inline)) void
stretch(vec_half *to, const float *x, const char *const *row, enum format type,
        size_t n, int width, enum vec_ahead ahead)
{
    const size_t step = step_of(type);
    vec_half acc[2 * MOST_STREAMS];
    size_t k = 0;

    ALL(int s = 0; s < 2 * width; s++) acc[s] = (vec_half){ 0 };
    FOUR_TIMES(; k + step <= n; k += step)
    add_streams(acc, x + k, row, k * size_of(type), type, false, width, ahead);
    if (k < n) {
        char last[MOST_STREAMS][LINE] = { { 0 } };
        float padded[2 * VEC] = { 0 };
        const char *all[MOST_STREAMS];

        memcpy(padded, x + k, (type == FORMAT_F32 ? n - k : step) * sizeof(*x));
        ALL(int s = 0; s < width; s++)
        {
            all[s] =
                memcpy(last[s], row[s] + k * size_of(type), (n - k) * size_of(type));
        }
        add_streams(acc, padded, all, 0, type, true, width, ahead);
    }
    ALL(int s = 0; s < width; s++) to[s] = acc[2 * s] + acc[2 * s + 1];
}

/* One row by WIDTH outputs, over N terms: so many stretches that their sums are eight
 * at a time. */
static inline __attribute__((always_inline)) void
tile_streams(float *sums, const float *x, const struct weight_rows *w, enum format type,
             size_t n, int width, enum vec_ahead ahead)
{
    const char *row[MOST_STREAMS];

    ALL(int s = 0; s < width; s++)
    row[s] = w->data + (size_t)s * w->stride * size_of(type);
    for (size_t k = 0; k < n;) {
        vec_half all[EIGHT] = { { 0 } }, sum;
        const bool add = k > 0;
        int of = 0;

        for (; of < EIGHT && k < n; of += width) {
            size_t some = n - k < BLOCK ? n - k : BLOCK;

            stretch(all + of, x + k, row, type, some, width, ahead);
            ALL(int s = 0; s < width; s++) row[s] += some * size_of(type);
            k += some;
        }
        half_sum_eight(&sum, all);
        for (int s = 0; s < width; s++)
            sums[s] = add ? sums[s] + sum[s] : sum[s];
        for (int i = width; i < of; i += width)
            for (int s = 0; s < width; s++)
                sums[s] += sum[i + s];
    }
}

/* ---- y = x W ---- */

/* Loads LANES neighbouring weights at P. */
static inline __attribute__((always_inline)) void
load_row(vec_half *out, enum format type, const void *p)
{
    vec_half_u32 w;

    if (type == FORMAT_F32) {
        half_load(out, p);
    } else if (type == FORMAT_F16) {
        __asm__("vcvtph2ps %1, %0" : "=x"(*out) : "m"(*(const uint16_t(*)[LANES])p));
    } else {
        __asm__("vpmovzxwd %1, %0" : "=x"(w) : "m"(*(const uint16_t(*)[LANES])p));
        w <<= 16;
        memcpy(out, &w, sizeof(*out));
    }
}

/* y[i][c] += x[i][k] w[k][c] over N terms k; VECS registers of outputs.  One row waits
 * for its weights, and prefetches those of two calls of so many terms later. */
static inline __attribute__((always_inline)) void
add_outer(float *y, size_t y_stride, const float *x, size_t x_stride, const char *w,
          size_t apart, enum format type, size_t n, int rows, int vecs)
{
    const size_t bytes = LANES * size_of(type), ahead = 2 * n * apart;
    vec_half acc[SUMS], wv[BROAD / LANES], by;

    ALL(int i = 0; i < rows; i++)
    ALL(int c = 0; c < vecs; c++)
    half_load(&acc[i * vecs + c], y + (size_t)i * y_stride + c * LANES);
    for (size_t k = 0; k < n; k++, w += apart, x++) {
        if (rows > 1)
            ALL(int c = 0; c < vecs; c++)
        load_row(&wv[c], type, w + (size_t)c * bytes);
        ALL(int i = 0; i < rows; i++)
        {
            half_spread(&by, x + (size_t)i * x_stride);
            ALL(int c = 0; c < vecs; c++)
            {
                const char *at = w + (size_t)c * bytes;

                if (rows == 1 && (size_t)c * bytes % LINE == 0)
                    __builtin_prefetch((const void *)((uintptr_t)at + ahead), 0, 2);
                if (rows == 1)
                    load_row(&wv[0], type, at);
                half_fuse(&acc[i * vecs + c], &wv[rows == 1 ? 0 : c], &by);
            }
        }
    }
    ALL(int i = 0; i < rows; i++)
    ALL(int c = 0; c < vecs; c++)
    memcpy(y + (size_t)i * y_stride + c * LANES, &acc[i * vecs + c], sizeof(*acc));
}

/* ROWS rows by the outputs in whole tiles of VECS registers; returns their number. */
static inline __attribute__((always_inline)) size_t
outer_tiles(float *y, size_t y_stride, const float *x, size_t x_stride, const char *w,
            size_t apart, enum format type, size_t outs, size_t n, int rows, int vecs)
{
    const size_t broad = (size_t)vecs * LANES;
    size_t j = 0;

    for (; j + broad <= outs; j += broad)
        add_outer(y + j, y_stride, x, x_stride, w + j * size_of(type), apart, type, n,
                  rows, vecs);
    return j;
}

static inline __attribute__((always_inline)) void
outer_all(float *y, size_t y_stride, const float *x, size_t x_stride, const char *w,
          size_t w_stride, enum format type, size_t m, size_t outs, size_t n)
{
    const struct tiles *any = type == FORMAT_F32    ? &tile_f32
                              : type == FORMAT_BF16 ? &tile_bf16
                                                    : &tile_f16;
    const size_t apart = w_stride * size_of(type), unit = size_of(type);

    for (size_t rows, j; m; m -= rows, y += rows * y_stride, x += rows * x_stride) {
        rows = m < TALL ? 1 : TALL;
        if (rows == 1) {
            j = outer_tiles(y, y_stride, x, x_stride, w, apart, type, outs, n, 1,
                            ONE_BROAD / LANES);
            j += outer_tiles(y + j, y_stride, x, x_stride, w + j * unit, apart, type,
                             outs - j, n, 1, BROAD / LANES);
        } else {
            j = outer_tiles(y, y_stride, x, x_stride, w, apart, type, outs, n, TALL,
                            BROAD / LANES);
        }
        if (j < outs)
            any->outer(y + j, y_stride, x, x_stride, w + j * unit, w_stride, rows,
                       outs - j, n);
    }
}

/* ---- instantiation for each type ---- */

static inline __attribute__((always_inline)) void
widen_steps(float *to, const char *from, enum format type, size_t n)
{
    if (type == FORMAT_F32)
        memcpy(to, from, n * sizeof(*to));
    for (size_t k = 0; type != FORMAT_F32 && k < n; k += 2 * VEC)
        ALL(size_t i = 0; i < 4; i++)
        {
            vec_half v;

            load(&v, type, from + k * size_of(type) + i % 2 * sizeof(v), i >= 2);
            memcpy(to + k + i * LANES, &v, sizeof(v));
        }
}

#define STREAMS_OF(name, type, width, ahead)                                   \
    static void name(float *sums, const float *x, const struct weight_rows *w, \
                     size_t terms)                                             \
    {                                                                          \
        tile_streams(sums, x, w, type, terms, width, ahead);                   \
    }
#define TILES(type, T, stored_as)                                                      \
    static void type##_dot(float *y, size_t y_stride, const float *x, size_t x_stride, \
                           const struct weight_rows *w, size_t m, size_t n,            \
                           size_t terms, bool add)                                     \
    {                                                                                  \
        all_rows(y, y_stride, x, x_stride, w, T, m, n, terms, add);                    \
    }                                                                                  \
    static void type##_eight(float sums[EIGHT_OUTS][EIGHT], const float *x,            \
                             size_t x_stride, const struct weight_rows *w,             \
                             size_t terms, bool add)                                   \
    {                                                                                  \
        tile_eight(sums, x, x_stride, w, T, terms, add);                               \
    }                                                                                  \
    static void type##_outer(float *y, size_t y_stride, const float *x,                \
                             size_t x_stride, const char *w, size_t w_stride,          \
                             size_t m, size_t outs, size_t n)                          \
    {                                                                                  \
        outer_all(y, y_stride, x, x_stride, w, w_stride, T, m, outs, n);               \
    }                                                                                  \
    static void type##_widen(float *to, const char *from, size_t n)                    \
    {                                                                                  \
        widen_steps(to, from, T, n);                                                   \
    }                                                                                  \
    STREAMS_OF(type##_streams_4, T, 4, VEC_TO_L2)                                      \
    STREAMS_OF(type##_near_4, T, 4, VEC_TO_L1)                                         \
    STREAMS_OF(type##_near_2, T, 2, VEC_TO_L1)                                         \
    STREAMS_OF(type##_near_1, T, 1, VEC_TO_L1)                                         \
    const struct tiles tile_##type##_avx2 = { .kind = stored_as,                       \
                                              .size = (T) == FORMAT_F32 ? 4 : 2,       \
                                              .block = BLOCK,                          \
                                              .ahead_by_tile = true,                   \
                                              .dot = type##_dot,                       \
                                              .eight = type##_eight,                   \
                                              .way = { { 4, type##_streams_4 },        \
                                                       { 4, type##_near_4 },           \
                                                       { 2, type##_near_2 },           \
                                                       { 1, type##_near_1 } },         \
                                              .outer = type##_outer,                   \
                                              .widen = type##_widen };

TILES(f32, FORMAT_F32, STORED_F32)
TILES(bf16, FORMAT_BF16, STORED_BF16)
TILES(f16, FORMAT_F16, STORED_F16)

void tile_dots_avx2(float *y, size_t y_stride, const float *x, size_t x_stride,
                    size_t m, const float *w, size_t w_stride, size_t n, size_t terms)
{
    struct weight_rows at = { .stride = w_stride };

    for (size_t rows; m; m -= rows, y += rows * y_stride, x += rows * x_stride) {
        size_t j = 0;

        rows = m < EIGHT ? m : EIGHT;
        for (; rows == EIGHT && j + EIGHT_OUTS <= n; j += EIGHT_OUTS) {
            float sums[EIGHT_OUTS][EIGHT];

            at.data = (const char *)(w + j * w_stride);
            f32_eight(sums, x, x_stride, &at, terms, false);
            for (size_t i = 0; i < EIGHT; i++)
                for (size_t c = 0; c < EIGHT_OUTS; c++)
                    y[i * y_stride + j + c] = sums[c][i];
        }
        at.data = (const char *)(w + j * w_stride);
        f32_dot(y + j, y_stride, x, x_stride, &at, rows, n - j, terms, false);
    }
}
#endif
