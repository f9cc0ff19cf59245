/* linear - y = x W^T and y = x W
 *
 * Each sum has a fixed order, which does not depend on the other rows and outputs, nor
 * on the number of threads: a row's result does not depend on its batch.  y = x W^T:
 * the lanes of a vector sum stretches of BLOCK terms (rounded x: of PAIRS_BLOCK), a
 * fixed tree adds the lanes, and the stretches are added in order.  y = x W: terms are
 * added in order.  16-bit weights: one vector holds the weights at even positions of
 * 32, the next those at odd positions (vec_pair_bf16); x is rearranged in the same way
 * once and padded with zeros.
 *
 * Tensor parallelism: if ranks may divide the terms of a sum, it is computed in parts,
 * each in the order above, and a binary tree adds the parts (struct sum_tree).  A rank
 * that has all terms of a subtree computes the same value as several ranks would.
 *
 * Register tiles of rows x outputs reuse each loaded weight for several rows.  With few
 * rows, weights are widened to f32 as they are read; with more, a panel of weights is
 * widened first or, with many, copied into whole lines. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/product/tile.h"
#include "lib/cpu/product/codes-linear.h"
#include "lib/cpu/product/streams.h"
#include "lib/cpu/simd/vec.h"

#ifdef HAVE_DNNL
#include <dnnl.h>
#endif

enum {
    FEW = 16,       /* maximum number of rows for which weights are widened as they
                     * are read */
    IN_PLACE = 128, /* rows for which f32 weights are not copied, */
    IN_PLACE_AVX2 = 32,
    CHUNK = 128,            /* rows that tiles of paired x reuse, from the L2 cache */
    WIDENED = 128,          /* rows for which codes are widened to bf16 */
    TASK = 1 << 16,         /* weights of a task with few rows */
    PANEL = 8 * OUTS,       /* outputs computed together */
    GROUP = 8 * EIGHT_OUTS, /* outputs computed together in tiles of eight rows */
    BLOCK_OUTS = 4 * GROUP, /* of many rows: outputs whose weights, of a stretch, fit
                             * into the L2 cache, */
    BLOCK_ROWS = 512,       /* and rows that are multiplied by these */
    LINE = 64,              /* bytes of a line of a cache */
    APART = VEC, /* padding between rows, so that equal columns map to different cache
                  * sets */
    PAIRS_FLOATS = BLOCK_OUTS * (PAIRS_BLOCK / 2 + APART), /* of a block's weights */
    STRIP = 128, /* y = x W: outputs computed together, */
    DEEP = 256,  /* and terms at a time, whose weights are copied for many rows; */
    SOME = 32,   /* of weights that are used where they are, */
    SHALLOW = 8  /* of few rows: as many streams of weights as are read ahead */
};

static size_t size_of(enum dtype type)
{
    return type == DTYPE_F32 ? 4 : 2;
}

enum cpu_loops cpu_newest = CPU_VNNI;

/* The loops for weights of type TYPE. */
static const struct tiles *tiles_of(enum dtype type)
{
#if CPU_HAS_WIDE
    if (cpu_has() == CPU_AVX2)
        return type == DTYPE_F32    ? &tile_f32_avx2
               : type == DTYPE_BF16 ? &tile_bf16_avx2
                                    : &tile_f16_avx2;
#endif
    return type == DTYPE_F32 ? &tile_f32 : type == DTYPE_BF16 ? &tile_bf16 : &tile_f16;
}

static const char *element(const struct matrix *w, uint64_t row, uint64_t col)
{
    return (const char *)w->data + (row * w->cols + col) * size_of(w->dtype);
}

/* ---- tree sums ---- */

enum { SUMS = TREE_LEAVES / 2 }; /* maximum number of pending sums besides the first */

/* Pending partial sums of an [m][n] result of a tree: the first is in Y, the others in
 * ROOM. */
struct sums {
    float *y;
    size_t y_stride;
    float *room; /* [SUMS][m][n] */
    size_t m, n;
    size_t count; /* number of pending sums */
};

static float *sum_at(const struct sums *s, size_t k, size_t *stride)
{
    *stride = k ? s->n : s->y_stride;
    return k ? s->room + (k - 1) * s->m * s->n : s->y;
}

/* Counts one more pending sum, then ADDS times replaces the last two by their sum. */
static void join_sums(struct sums *s, int adds)
{
    s->count++;
    for (int k = 0; k < adds; k++, s->count--) {
        size_t y_stride, z_stride;
        float *y = sum_at(s, s->count - 2, &y_stride);
        const float *z = sum_at(s, s->count - 1, &z_stride);

        for (size_t i = 0; i < s->m; i++)
            for (size_t j = 0; j < s->n; j++)
                y[i * y_stride + j] += z[i * z_stride + j];
    }
}

/* ---- y = x W^T ---- */

size_t cpu_arranged(enum dtype type, size_t n)
{
    return type == DTYPE_F32 ? n : (n + 2 * VEC - 1) / (2 * VEC) * (2 * VEC);
}

void cpu_arrange(float *to, const float *x, enum dtype type, size_t n)
{
    size_t k = 0;

    if (type == DTYPE_F32) {
        memcpy(to, x, n * sizeof(*x));
        return;
    }
    for (; k + 2 * VEC <= n; k += 2 * VEC)
        for (size_t i = 0; i < VEC; i++) {
            to[k + i] = x[k + 2 * i];
            to[k + VEC + i] = x[k + 2 * i + 1];
        }
    if (k == n)
        return;
    memset(to + k, 0, 2 * VEC * sizeof(*to));
    for (size_t i = k; i < n; i++)
        to[k + (i - k) / 2 + (i - k) % 2 * VEC] = x[i];
}

/* Widens N weights at FROM to f32, in the arrangement of x (cpu_arrange). */
static void widen_row(float *to, const char *from, enum dtype type, size_t n)
{
    size_t steps = n / (2 * VEC) * (2 * VEC);
    char rest[2 * VEC * sizeof(uint16_t)] = { 0 };

    if (type == DTYPE_F32) {
        memcpy(to, from, n * sizeof(*to));
        return;
    }
    memcpy(rest, from + steps * sizeof(uint16_t), (n - steps) * sizeof(uint16_t));
    tiles_of(type)->widen(to, from, steps);
    if (steps < n)
        tiles_of(type)->widen(to + steps, rest, 2 * VEC);
}

/* Widens N rows of W from row FIRST on, TERMS columns from column COL on, to f32 rows
 * with a stride of BLOCK + APART. */
static struct weight_rows widen_panel(const struct matrix *w, uint64_t first, size_t n,
                                      uint64_t col, size_t terms, float *to)
{
    for (size_t j = 0; j < n; j++)
        widen_row(to + j * (BLOCK + APART), element(w, first + j, col), w->dtype,
                  terms);
    return (struct weight_rows){ .data = (const char *)to, .stride = BLOCK + APART };
}

/* The terms of a partial sum: columns [start, start + count) of W, and where they begin
 * in the arranged x. */
struct terms {
    uint64_t start, count;
    size_t x;
};

/* Floats that N arranged terms of x take. */
static size_t floats_of(const struct tiles *t, size_t n)
{
    size_t whole = (n + 2 * VEC - 1) / (2 * VEC) * (2 * VEC);

    return t->paired ? whole / 2 : t->size == sizeof(float) ? n : whole;
}

/* Advances *of to the terms that follow. */
static void next_terms(struct terms *of, const struct tiles *t)
{
    of->start += of->count;
    of->x += floats_of(t, of->count);
}

static struct sum_tree whole_row(const struct matrix *w)
{
    return (struct sum_tree){ .n = 1, .leaf = { { .cols = w->cols } } };
}

#if CPU_HAS_WIDE
/* Where the N outputs from FIRST on read on from column COL, or the next N outputs if
 * COL is the end of a row; NULL: there are none. */
static const char *read_next(const struct matrix *w, uint64_t first, size_t n,
                             uint64_t col)
{
    if (col < w->cols)
        return element(w, first, col);
    return first + 2 * n <= w->rows ? element(w, first + n, 0) : NULL;
}

/* Sums of N outputs in whole tiles over a stretch of paired terms from K on, part by
 * part; the lanes of all outputs are kept between these. */
static const char *pair_sums(float sums[][EIGHT], const float *x, size_t x_stride,
                             const struct tiles *t, const struct matrix *w,
                             uint64_t first, size_t n, struct terms of, uint64_t k,
                             size_t terms, const char *ahead)
{
    vec kept[GROUP / EIGHT_OUTS][EIGHT * EIGHT_OUTS];

    for (size_t p = 0; p < terms; p += PAIRS_PART)
        for (size_t c = 0; c < n; c += EIGHT_OUTS) {
            size_t some = terms - p < PAIRS_PART ? terms - p : PAIRS_PART;
            struct weight_rows at = { .data = element(w, first + c, of.start + k + p),
                                      .stride = w->cols,
                                      .ahead = ahead,
                                      .apart = LINE,
                                      .step = EIGHT_OUTS * LINE };

            t->keep(kept[c / EIGHT_OUTS], x + of.x + floats_of(t, (size_t)k + p),
                    x_stride, &at, some, p > 0);
            ahead = ahead ? ahead + EIGHT_OUTS * some * t->size : NULL;
        }
    for (size_t c = 0; c < n; c += EIGHT_OUTS)
        t->join(sums + c, kept[c / EIGHT_OUTS], k > 0);
    return ahead;
}

/* Sums over some terms of EIGHT rows by N outputs, in whole tiles.  Goes stretch by
 * stretch, so that x stays in the L1 cache, and prefetches as T says. */
static void eight_sums(float sums[][EIGHT], const float *x, size_t x_stride,
                       const struct tiles *t, const struct matrix *w, uint64_t first,
                       size_t n, struct terms of)
{
    const size_t row = (size_t)w->cols * t->size;
    const char *ahead = !t->ahead_by_tile && first + n + GROUP <= w->rows
                            ? element(w, first + n, 0) + n * of.start * t->size
                            : NULL;

    for (uint64_t k = 0; k < of.count; k += t->block) {
        size_t terms = of.count - k < t->block ? (size_t)(of.count - k) : t->block;

        if (t->paired)
            ahead = pair_sums(sums, x, x_stride, t, w, first, n, of, k, terms, ahead);
        else if (t->ahead_by_tile)
            ahead = read_next(w, first, n, of.start + k + terms);
        for (size_t c = 0; c < n && !t->paired; c += EIGHT_OUTS) {
            struct weight_rows at = { .data = element(w, first + c, of.start + k),
                                      .stride = w->cols,
                                      .ahead = ahead,
                                      .apart = t->ahead_by_tile ? row : LINE,
                                      .step =
                                          t->ahead_by_tile ? LINE : EIGHT_OUTS * LINE };

            t->eight(sums + c, x + of.x + floats_of(t, k), x_stride, &at, terms, k > 0);
            if (ahead)
                ahead += EIGHT_OUTS * (t->ahead_by_tile ? row : terms * t->size);
        }
    }
}

/* The lanes LOW.. of *a and *b in turns, of each quarter. */
#define IN_TURNS(a, b, low)                                                          \
    __builtin_shufflevector(a, b, low, 8 + low, low + 1, 9 + low, low + 4, 12 + low, \
                            low + 5, 13 + low)
/* The pairs LOW of *a and *b, of each half. */
#define PAIRS_OF(a, b, low)                                                         \
    __builtin_shufflevector(a, b, low, low + 1, 8 + low, 9 + low, low + 4, low + 5, \
                            12 + low, 13 + low)

/* y[i * STRIDE + c] = x[c][i] of eight by eight. */
CPU_HALF static void transpose_eight(float *y, size_t stride, const float (*x)[EIGHT])
{
    vec_half r[8], t[8];

    _Pragma("GCC unroll 8") for (int c = 0; c < 8; c++) memcpy(&r[c], x[c], sizeof(*r));
    _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++)
    {
        t[2 * k] = IN_TURNS(r[2 * k], r[2 * k + 1], 0);
        t[2 * k + 1] = IN_TURNS(r[2 * k], r[2 * k + 1], 2);
    }
    _Pragma("GCC unroll 2") for (int h = 0; h < 8; h += 4)
    {
        r[h] = PAIRS_OF(t[h], t[h + 2], 0);
        r[h + 1] = PAIRS_OF(t[h], t[h + 2], 2);
        r[h + 2] = PAIRS_OF(t[h + 1], t[h + 3], 0);
        r[h + 3] = PAIRS_OF(t[h + 1], t[h + 3], 2);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        t[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        t[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++)
        memcpy(y + i * stride, &t[i], sizeof(*t));
}

/* EIGHT rows by N outputs in whole tiles, one group at a time. */
static void dot_eight(float *y, size_t y_stride, const float *x, size_t x_stride,
                      const struct tiles *t, const struct matrix *w, uint64_t first,
                      size_t n, const struct sum_tree *tree)
{
    float sums[SUMS + 1][GROUP][EIGHT];

    for (size_t j = 0; j < n; j += GROUP) {
        size_t outs = n - j < GROUP ? n - j : GROUP, last = 0, turned = 0;
        struct terms of = { 0 };

        for (int k = 0; k < tree->n; k++, last++) {
            of.count = tree->leaf[k].cols;
            eight_sums(sums[last], x, x_stride, t, w, first + j, outs, of);
            for (int a = 0; a < tree->leaf[k].adds; a++, last--)
                for (size_t c = 0; c < outs; c++)
                    for (size_t i = 0; i < EIGHT; i++)
                        sums[last - 1][c][i] += sums[last][c][i];
            next_terms(&of, t);
        }
        for (; turned + EIGHT <= outs; turned += EIGHT)
            transpose_eight(y + j + turned, y_stride, sums[0] + turned);
        for (size_t i = 0; i < EIGHT; i++)
            for (size_t c = turned; c < outs; c++)
                y[i * y_stride + j + c] = sums[0][c][i];
    }
}
#endif

/* One tile of outputs: terms from K on. */
static void dot_tile(float *y, size_t y_stride, const float *x, size_t x_stride,
                     size_t m, const struct tiles *t, const struct matrix *w,
                     uint64_t out, size_t n, struct terms of, uint64_t k)
{
    size_t terms = of.count - k < t->block ? (size_t)(of.count - k) : t->block;
    struct weight_rows at = { .data = element(w, out, of.start + k),
                              .stride = w->cols };

    if (out + 2 * OUTS <= w->rows)
        at.ahead = element(w, out + OUTS, 0) + OUTS * (of.start + k) * t->size;
    t->dot(y, y_stride, x + of.x + floats_of(t, k), x_stride, &at, m, n, terms, k > 0);
}

/* Few rows: one tile of outputs after another, each over all terms.  A tile reads
 * several rows of weights at once, which hardware prefetchers follow badly, so the rows
 * of the next tile are prefetched in memory order.  More rows: stretch by stretch, so
 * that these are used from the L2 cache. */
static void dot_some(float *y, size_t y_stride, const float *x, size_t x_stride,
                     size_t m, const struct tiles *t, const struct matrix *w,
                     uint64_t first, size_t n, struct terms of)
{
    const bool many = m > FEW;

    for (size_t j = 0; j < n && !many; j += OUTS)
        for (uint64_t k = 0; k < of.count; k += t->block)
            dot_tile(y + j, y_stride, x, x_stride, m, t, w, first + j,
                     n - j < OUTS ? n - j : OUTS, of, k);
    for (uint64_t k = 0; k < of.count && many; k += t->block)
        for (size_t j = 0; j < n; j += OUTS)
            dot_tile(y + j, y_stride, x, x_stride, m, t, w, first + j,
                     n - j < OUTS ? n - j : OUTS, of, k);
}

/* The same with a tree, one group of outputs at a time. */
static void dot_some_tree(float *y, size_t y_stride, const float *x, size_t x_stride,
                          size_t m, const struct tiles *t, const struct matrix *w,
                          uint64_t first, size_t n, const struct sum_tree *tree)
{
    float room[SUMS * FEW * GROUP];

    for (size_t j = 0; j < n; j += GROUP) {
        struct sums s = { .y = y + j,
                          .y_stride = y_stride,
                          .room = room,
                          .m = m,
                          .n = n - j < GROUP ? n - j : GROUP };
        struct terms of = { 0 };

        for (int k = 0; k < tree->n; k++) {
            size_t stride;
            float *to = sum_at(&s, s.count, &stride);

            of.count = tree->leaf[k].cols;
            dot_some(to, stride, x, x_stride, m, t, w, first + j, s.n, of);
            join_sums(&s, tree->leaf[k].adds);
            next_terms(&of, t);
        }
    }
}

#if CPU_HAS_WIDE
/* One row by as many outputs as LOOP has streams of weights, each of which continues
 * with the next call: outputs that are APART outputs from one another. */
static void dot_streams(float *y, size_t apart, const float *x, const struct tiles *t,
                        const struct stream_loop *loop, const struct matrix *w,
                        uint64_t first, const struct sum_tree *tree)
{
    float sums[SUMS + 1][STREAMS];
    struct terms of = { 0 };
    size_t last = 0;

    memset(sums[0], 0, sizeof(*sums)); /* compilers do not see that there is a leaf */
    for (int k = 0; k < tree->n; k++, last++) {
        struct weight_rows at = { .stride = w->cols * apart };

        of.count = tree->leaf[k].cols;
        at.data = element(w, first, of.start);
        loop->sums(sums[last], x + of.x, &at, (size_t)of.count);
        for (int a = 0; a < tree->leaf[k].adds; a++, last--)
            for (size_t i = 0; i < loop->width; i++)
                sums[last - 1][i] += sums[last][i];
        next_terms(&of, t);
    }
    for (size_t i = 0; i < loop->width; i++)
        y[i * apart] = sums[0][i];
}
#endif

static void dot_few(float *y, size_t y_stride, const float *x, size_t x_stride,
                    size_t m, const struct tiles *t, const struct matrix *w,
                    uint64_t first, size_t n, const struct sum_tree *tree)
{
#if CPU_HAS_WIDE
    for (size_t tiles = n / EIGHT_OUTS * EIGHT_OUTS;
         m >= EIGHT && m <= FEW && cpu_has() != CPU_ANY;
         m -= EIGHT, y += EIGHT * y_stride, x += EIGHT * x_stride) {
        dot_eight(y, y_stride, x, x_stride, t, w, first, tiles, tree);
        dot_some_tree(y + tiles, y_stride, x, x_stride, EIGHT, t, w, first + tiles,
                      n - tiles, tree);
    }
#endif
    for (size_t some, most = tree->n > 1 ? FEW : CHUNK; m;
         m -= some, y += some * y_stride, x += some * x_stride) {
        some = m < most ? m : most;
        if (tree->n > 1)
            dot_some_tree(y, y_stride, x, x_stride, some, t, w, first, n, tree);
        else
            dot_some(y, y_stride, x, x_stride, some, t, w, first, n,
                     (struct terms){ .count = w->cols });
    }
}

#if CPU_HAS_WIDE
/* Sums of many rows: of eight rows, one after another, by N outputs. */
typedef float eight_rows[EIGHT];

/* The first of eight rows: row I of M, or an earlier one where fewer are left. */
static size_t eight_from(size_t i, size_t m)
{
    return m - i < EIGHT ? m - EIGHT : i;
}

/* Floats of a thread's room for dot_blocks or, if PAIRED, dot_pairs. */
static size_t block_floats(size_t rows, const struct sum_tree *tree, bool paired)
{
    size_t some = rows < BLOCK_ROWS ? (rows + EIGHT - 1) / EIGHT * EIGHT : BLOCK_ROWS;

    if (paired)
        return PAIRS_FLOATS + (tree->n > 1 ? SUMS * rows * BLOCK_OUTS : 0);
    return BLOCK_OUTS * (BLOCK + APART + some * (tree->n > 1 ? SUMS + 1 : 1));
}

/* sums[][n], or += if ADD, of M rows by the panel AT of N outputs over TERMS terms,
 * with the loops T for f32; the first rows prefetch what AT says, for each tile of
 * outputs NEXT bytes further. */
static void block_sums(eight_rows *sums, const float *x, size_t x_stride, size_t m,
                       const struct tiles *t, const struct weight_rows *at, size_t n,
                       size_t terms, size_t next, bool add)
{
    for (size_t i = 0; i < m; i += EIGHT, sums += n) {
        size_t row = eight_from(i, m);
        const size_t group = i / EIGHT;
        struct weight_rows w = *at;

        /* a CPU drops prefetches that come too fast */
        w.one = m > EIGHT * (EIGHT_OUTS - 1) && !t->ahead_by_tile;
        if (group >= (w.one ? EIGHT_OUTS : 1))
            w.ahead = NULL;
        else if (w.ahead)
            w.ahead += group * w.apart;
        for (size_t c = 0; c < n; c += EIGHT_OUTS) {
            t->eight(sums + c, x + row * x_stride, x_stride, &w, terms, add);
            w.data += EIGHT_OUTS * w.stride * sizeof(*x);
            w.ahead = w.ahead ? w.ahead + next : NULL;
        }
    }
}

/* Y of M rows by N outputs = these sums, of OUTS outputs. */
static void store_block(float *y, size_t y_stride, size_t m, size_t n,
                        const eight_rows *sums, size_t outs)
{
    for (size_t i = 0; i < m; i += EIGHT, sums += outs) {
        float *to = y + eight_from(i, m) * y_stride;
        size_t turned = 0;

        for (; turned + EIGHT <= n; turned += EIGHT)
            transpose_eight(to + turned, y_stride, sums + turned);
        for (size_t r = 0; r < EIGHT; r++)
            for (size_t c = turned; c < n; c++)
                to[r * y_stride + c] = sums[c][r];
    }
}

/* Are weights read where they are by M rows?  For few, copying those of f32 takes
 * longer than it saves; tiles for AVX2 read a weight twice. */
static bool reads_in_place(const struct matrix *w, const struct tiles *t, size_t m)
{
    return w->dtype == DTYPE_F32 && m <= (t->ahead_by_tile ? IN_PLACE_AVX2 : IN_PLACE);
}

/* At least EIGHT rows, at most BLOCK_ROWS, by at most BLOCK_OUTS outputs.  Stretch by
 * stretch, the weights are widened into a panel or, for many rows, copied, so that they
 * are read in order and from whole lines; then all rows are multiplied by it. */
static void dot_block(float *y, size_t y_stride, const float *x, size_t x_stride,
                      size_t m, const struct tiles *t, const struct matrix *w,
                      uint64_t first, size_t n, const struct sum_tree *tree,
                      float *room)
{
    const size_t outs = (n + EIGHT_OUTS - 1) / EIGHT_OUTS * EIGHT_OUTS;
    const size_t size = (m + EIGHT - 1) / EIGHT * outs, unit = size_of(w->dtype);
    eight_rows *sums = (eight_rows *)(room + BLOCK_OUTS * (BLOCK + APART)), *to = sums;
    struct terms of = { 0 };

    memset(room + n * (BLOCK + APART), 0, (outs - n) * (BLOCK + APART) * sizeof(*room));
    for (int k = 0; k < tree->n; k++, to += size) {
        of.count = tree->leaf[k].cols;
        for (uint64_t at = 0; at < of.count; at += BLOCK) {
            size_t terms = of.count - at < BLOCK ? (size_t)(of.count - at) : BLOCK;
            uint64_t col = of.start + at;
            struct weight_rows panel = { .data = element(w, first, col),
                                         .stride = w->cols };

            if (n < outs || !reads_in_place(w, t, m))
                panel = widen_panel(w, first, n, col, terms, room);
            panel.ahead = read_next(w, first, n, col + terms);
            panel.apart = (size_t)w->cols * unit;
            panel.step = VEC * unit;
            block_sums(to, x + of.x + at, x_stride, m, t, &panel, outs,
                       cpu_arranged(w->dtype, terms), EIGHT_OUTS * panel.apart, at > 0);
        }
        for (int a = 0; a < tree->leaf[k].adds; a++, to -= size)
            for (size_t c = 0; c < size; c++)
                for (size_t i = 0; i < EIGHT; i++)
                    (to - size)[c][i] += to[c][i];
        next_terms(&of, tiles_of(w->dtype));
    }
    store_block(y, y_stride, m, n, sums, outs);
}

static void dot_blocks(float *y, size_t y_stride, const float *x, size_t x_stride,
                       size_t m, const struct tiles *t, const struct matrix *w,
                       uint64_t first, size_t n, const struct sum_tree *tree,
                       float *room)
{
    for (size_t i = 0; i < m; i += BLOCK_ROWS) {
        size_t row = eight_from(i, m);
        size_t some = m - row < BLOCK_ROWS ? m - row : BLOCK_ROWS;

        dot_block(y + row * y_stride, y_stride, x + row * x_stride, x_stride, some, t,
                  w, first, n, tree, room);
    }
}

/* y[M][N], or += if ADD, by a panel of paired weights: six outputs, whose weights stay
 * in the L1 cache, by CHUNK rows, which stay in L2, after another. */
static void pair_tiles(float *y, size_t y_stride, const float *x, size_t x_stride,
                       size_t m, const struct tiles *t, const struct weight_rows *panel,
                       size_t n, size_t terms, bool add)
{
    for (size_t i = 0; i < m; i += CHUNK)
        for (size_t j = 0; j < n; j += OUTS) {
            struct weight_rows at = *panel;

            at.data += j * panel->stride * t->size;
            t->dot(y + i * y_stride + j, y_stride, x + i * x_stride, x_stride, &at,
                   m - i < CHUNK ? m - i : CHUNK, n - j < OUTS ? n - j : OUTS, terms,
                   add);
        }
}

/* to[N][stride] = TERMS terms from column COL on of the rows of W from FIRST on, in
 * bf16; of 8 bits without their scales. */
static void pair_panel(uint16_t *to, size_t stride, const struct matrix *w,
                       uint64_t first, size_t n, uint64_t col, size_t terms)
{
    if (cpu_has_codes(w)) {
        codes_widen(to, stride, w, first, n, col, terms);
        return;
    }
    for (size_t j = 0; j < n; j++)
        memcpy(to + j * stride, element(w, first + j, col), terms * sizeof(*to));
}

/* y[M][N] times the scales of 8 bits of the rows of W from FIRST on. */
static void scale_outputs(float *y, size_t y_stride, size_t m, const struct matrix *w,
                          uint64_t first, size_t n)
{
    const float *scale = (const float *)w->scale + first;

    for (size_t i = 0; i < m && w->dtype == DTYPE_I8; i++)
        for (size_t j = 0; j < n; j++)
            y[i * y_stride + j] *= scale[j];
}

/* The same for paired x, whose weights are copied, or widened from codes.  ROOM is that
 * of join_sums. */
static void dot_pairs(float *y, size_t y_stride, const float *x, size_t x_stride,
                      size_t m, const struct tiles *t, const struct matrix *w,
                      uint64_t first, size_t n, const struct sum_tree *tree,
                      float *room)
{
    struct sums s = {
        .y = y, .y_stride = y_stride, .room = room + PAIRS_FLOATS, .m = m, .n = n
    };
    uint16_t *copy = (uint16_t *)(void *)room;
    struct terms of = { 0 };

    for (int k = 0; k < tree->n; k++) {
        size_t stride;
        float *to = sum_at(&s, s.count, &stride);

        of.count = tree->leaf[k].cols;
        for (uint64_t at = 0; at < of.count; at += PAIRS_BLOCK) {
            size_t terms =
                of.count - at < PAIRS_BLOCK ? (size_t)(of.count - at) : PAIRS_BLOCK;
            struct weight_rows panel = { .data = (const char *)copy,
                                         .stride = PAIRS_BLOCK + 2 * APART };

            pair_panel(copy, panel.stride, w, first, n, of.start + at, terms);
            pair_tiles(to, stride, x + of.x + floats_of(t, (size_t)at), x_stride, m, t,
                       &panel, n, terms, at > 0);
        }
        scale_outputs(to, stride, m, w, first, n);
        join_sums(&s, tree->leaf[k].adds);
        next_terms(&of, t);
    }
}
#endif

/* Many rows: widens a panel of weights and uses it for all rows. */
static void dot_many(float *y, size_t y_stride, const float *x, size_t x_stride,
                     size_t m, const struct matrix *w, uint64_t first, size_t n,
                     struct terms of, float *panel)
{
    for (uint64_t k = 0; k < of.count; k += BLOCK) {
        size_t terms = of.count - k < BLOCK ? (size_t)(of.count - k) : BLOCK;

        for (size_t j = 0; j < n; j += PANEL) {
            size_t some = n - j < PANEL ? n - j : PANEL;
            struct weight_rows at =
                widen_panel(w, first + j, some, of.start + k, terms, panel);

            tiles_of(DTYPE_F32)->dot(y + j, y_stride, x + of.x + k, x_stride, &at, m,
                                     some, cpu_arranged(w->dtype, terms), k > 0);
        }
    }
}

void cpu_dot_rows(float *y, size_t y_stride, const float *x, size_t x_stride, size_t m,
                  const struct matrix *w, uint64_t first, size_t n, float *panel)
{
    const struct sum_tree all = whole_row(w);

    if (panel)
        dot_many(y, y_stride, x, x_stride, m, w, first, n,
                 (struct terms){ .count = w->cols }, panel);
    else
        dot_few(y, y_stride, x, x_stride, m, tiles_of(w->dtype), w, first, n, &all);
}

size_t cpu_panel_floats(void)
{
    return (size_t)PANEL * (BLOCK + APART);
}

/* ---- y = x W ---- */

/* y[M][outputs FIRST to FIRST + N] = x W. */
static void outer_strip(float *y, size_t y_stride, const float *x, size_t x_stride,
                        size_t m, const struct matrix *w, uint64_t row, uint64_t in,
                        uint64_t first, size_t n)
{
    float wide[DEEP * STRIP];
    const bool copied = m > (size_t)(w->dtype == DTYPE_F32 ? IN_PLACE : FEW);
    const size_t deep = copied ? DEEP : m > FEW ? SOME : SHALLOW;

    for (size_t i = 0; i < m; i++)
        memset(y + i * y_stride, 0, n * sizeof(*y));
    for (uint64_t k = 0; k < in; k += deep) {
        size_t terms = in - k < deep ? (size_t)(in - k) : deep, stride = w->cols;
        const char *at = element(w, row + k, first);
        enum dtype type = w->dtype;

        if (copied) {
            for (size_t i = 0; i < terms; i++) {
                float *to = wide + i * STRIP;
                const float *from =
                    cpu_widen(w, (row + k + i) * w->cols + first, n, to);

                if (from != to)
                    memcpy(to, from, n * sizeof(*to));
            }
            at = (const char *)wide;
            stride = STRIP;
            type = DTYPE_F32;
        }
        tiles_of(type)->outer(y, y_stride, x + k, x_stride, at, stride, m, n, terms);
    }
}

void cpu_outer_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
                    size_t m, const struct matrix *w, uint64_t row, uint64_t in,
                    uint64_t first, size_t n)
{
    size_t strip = m > FEW ? STRIP : n; /* few rows read weights in long runs */

    for (size_t j = 0; j < n; j += strip)
        outer_strip(y + j, y_stride, x, x_stride, m, w, row, in, first + j,
                    n - j < strip ? n - j : strip);
}

/* ---- products with trees ---- */

/* y[M][N] = x w^T with TREE, for many rows. */
static void dot_many_tree(float *y, size_t y_stride, const float *x, size_t x_stride,
                          size_t m, const struct matrix *w, uint64_t first, size_t n,
                          const struct sum_tree *tree, float *panel, float *room)
{
    for (size_t j = 0; j < n; j += PANEL) {
        struct sums s = { .y = y + j,
                          .y_stride = y_stride,
                          .room = room,
                          .m = m,
                          .n = n - j < PANEL ? n - j : PANEL };
        struct terms of = { 0 };

        for (int k = 0; k < tree->n; k++) {
            size_t stride;
            float *to = sum_at(&s, s.count, &stride);

            of.count = tree->leaf[k].cols;
            dot_many(to, stride, x, x_stride, m, w, first + j, s.n, of, panel);
            join_sums(&s, tree->leaf[k].adds);
            next_terms(&of, tiles_of(w->dtype));
        }
    }
}

/* y[M][N] = x w with TREE. */
static void outer_tree(float *y, size_t y_stride, const float *x, size_t x_stride,
                       size_t m, const struct matrix *w, uint64_t first, size_t n,
                       const struct sum_tree *tree, float *room)
{
    for (size_t j = 0; j < n; j += STRIP) {
        struct sums s = { .y = y + j,
                          .y_stride = y_stride,
                          .room = room,
                          .m = m,
                          .n = n - j < STRIP ? n - j : STRIP };
        uint64_t row = 0;

        for (int k = 0; k < tree->n; k++, row += tree->leaf[k - 1].cols) {
            size_t stride;
            float *to = sum_at(&s, s.count, &stride);

            outer_strip(to, stride, x + row, x_stride, m, w, row, tree->leaf[k].cols,
                        first + j, s.n);
            join_sums(&s, tree->leaf[k].adds);
        }
    }
}

/* ---- distribution over threads ---- */

/* One product, shared by its threads. */
struct product {
    float *y;
    const float *x;
    float *apart; /* for y = x W^T: x arranged, with padding between rows */
    size_t rows, x_stride;
    const struct matrix *w;
    bool rounded;                      /* terms of x are rounded to bf16 */
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

/* Runs RUN in tasks of SHARE outputs each. */
static void share_out(struct device *d, struct product *p, uint64_t share,
                      cpu_task *run)
{
    p->share = share;
    cpu_parallel(d, (size_t)((p->out + share - 1) / share), run, p);
}

/* Returns the first output of TASK; *n is their number. */
static uint64_t outputs(const struct product *p, size_t task, size_t *n)
{
    uint64_t first = task * p->share;

    *n = (size_t)(p->out - first < p->share ? p->out - first : p->share);
    return first;
}

static void linear_outputs(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    size_t n, first = (size_t)outputs(p, task, &n);
    const float *x = p->apart;
    float *panel = p->panels ? p->panels + (size_t)thread * cpu_panel_floats() : NULL;

    if (p->tree->n > 1 && panel)
        dot_many_tree(p->y + first, p->out, x, p->x_stride, p->rows, p->w, first, n,
                      p->tree, panel, p->rooms + (size_t)thread * p->room);
    else if (panel)
        dot_many(p->y + first, p->out, x, p->x_stride, p->rows, p->w, first, n,
                 (struct terms){ .count = p->in }, panel);
    else
        dot_few(p->y + first, p->out, x, p->x_stride, p->rows, p->tiles, p->w, first, n,
                p->tree);
}

#if CPU_HAS_WIDE
static void linear_blocks(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    size_t n, first = (size_t)outputs(p, task, &n);
    float *room = p->rooms + (size_t)thread * p->room;

    if (p->tiles->paired)
        dot_pairs(p->y + first, p->out, p->apart, p->x_stride, p->rows, p->tiles, p->w,
                  first, n, p->tree, room);
    else
        dot_blocks(p->y + first, p->out, p->apart, p->x_stride, p->rows, p->panel, p->w,
                   first, n, p->tree, room);
}
#endif

/* Are there so many rows that they are faster in blocks?  Sets the room for these. */
static bool wants_blocks(struct product *p)
{
#if CPU_HAS_WIDE
    if (cpu_has() != CPU_ANY &&
        (cpu_has_codes(p->w) || p->rows > (p->tiles->paired ? 2 * CHUNK : FEW))) {
        p->room = block_floats(p->rows, p->tree, p->tiles->paired);
        return true;
    }
#endif
    (void)p;
    return false;
}

/* Tasks of a block's outputs, or of less, so that all threads have some. */
static void share_blocks(struct device *d, struct product *p)
{
#if CPU_HAS_WIDE
    /* whole groups of codes, too */
    const uint64_t unit =
        cpu_has_codes(p->w) ? (uint64_t)(OUTS * CODES_ROWS / 2) : GROUP;
    uint64_t share = p->out / (4 * (uint64_t)cpu_threads(d)) / unit * unit;

    share = share < unit ? unit : share < BLOCK_OUTS ? share : BLOCK_OUTS;
    share_out(d, p, share, linear_blocks);
#else
    (void)d;
    (void)p;
#endif
}

/* Outputs per task: some 100 KB of weights, in whole panels. */
static uint64_t few_share(const struct product *p)
{
    uint64_t share = TASK / (p->in + 1) + 1;

    return (share + PANEL - 1) / PANEL * PANEL;
}

#if CPU_HAS_WIDE
/* One row: a CPU prefetches streams of weights that it reads in order, and no other way
 * of reading was as fast. */
static void linear_streams(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    struct stream_part part = streams_task(&p->streams, task);

    (void)thread;
    for (uint64_t j = part.first; j < part.first + part.times; j++)
        dot_streams(p->y + j, (size_t)part.apart, p->apart, p->tiles, p->loop, p->w, j,
                    p->tree);
    if (part.count)
        dot_few(p->y + part.first, p->out, p->apart, p->x_stride, p->rows, p->tiles,
                p->w, part.first, (size_t)part.count, p->tree);
}
#endif

/* Runs it.  Returns false if that is impossible, or if there are too few outputs. */
static bool share_streams(struct device *d, struct product *p)
{
#if CPU_HAS_WIDE
    struct streams *s = &p->streams;
    struct autotune *tuning = cpu_autotune(d, p->tiles->kind, ONE_ROW);
    uint64_t bytes = p->in * p->out * p->tiles->size;
    double start;

    if (p->rows != 1 || cpu_has() == CPU_ANY)
        return false;
    p->loop = &p->tiles->way[autotune_next(tuning, AUTOTUNE_WAYS, bytes)];
    *s = (struct streams){ .all = p->out,
                           .threads = (uint64_t)cpu_threads(d),
                           .width = p->loop->width,
                           .share = few_share(p) / p->loop->width };
    s->length = s->all / (s->width * s->threads);
    s->length -= s->length && s->length % 2 == 0; /* even ones meet in a cache set */
    if (!s->length)
        return false;
    start = clock_seconds();
    cpu_parallel(d, streams_tasks(s), linear_streams, p);
    autotune_note(tuning, AUTOTUNE_WAYS, bytes, clock_seconds() - start);
    return true;
#else
    (void)d;
    (void)p;
    return false;
#endif
}

/* Runs it by eight rows at a time or more, in BLOCKS or panels. */
static void share_rows(struct device *d, struct product *p, bool blocks)
{
    const uint64_t bytes = p->in * p->out * p->tiles->size;
    const int rows = p->rows <= FEW     ? FEW_ROWS
                     : p->rows <= CHUNK ? SOME_ROWS
                                        : MANY_ROWS;
    struct autotune *tuning = cpu_autotune(d, p->tiles->kind, rows);
    const int n = p->rows >= EIGHT && p->tiles->near ? 2 : 1;
    double start;

    p->panel = tiles_of(DTYPE_F32);
    if (n > 1 && autotune_next(tuning, n, bytes)) {
        p->tiles = p->tiles->near;
        p->panel = p->panel->near;
    }
    start = clock_seconds();
    if (blocks)
        share_blocks(d, p);
    else
        share_out(d, p, p->panels ? PANEL : few_share(p), linear_outputs);
    if (n > 1)
        autotune_note(tuning, n, bytes, (clock_seconds() - start) / (double)p->rows);
}

static void matmul_outputs(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    size_t n, first = (size_t)outputs(p, task, &n);

    if (p->tree)
        outer_tree(p->y + first, p->out, p->x, p->in, p->rows, p->w, first, n, p->tree,
                   p->rooms + (size_t)thread * p->room);
    else
        cpu_outer_rows(p->y + first, p->out, p->x, p->in, p->rows, p->w, 0, p->in,
                       first, n);
}

CPU_CLONES void cpu_round_bf16(uint16_t *to, const float *x, size_t n)
{
    for (size_t k = 0; k < n; k += VEC) {
        size_t some = n - k < VEC ? n - k : VEC;
        vec v = { 0 };
        vec_u32 bits;
        vec_u16 upper;

        if (some == VEC)
            vec_load_f32(&v, x + k);
        else
            memcpy(&v, x + k, some * sizeof(*x));
        vec_round_bf16(&v);
        memcpy(&bits, &v, sizeof(bits));
        upper = __builtin_convertvector(bits >> 16, vec_u16);
        memcpy(to + k, &upper, some * sizeof(*to));
    }
}

/* Rounds the N floats at X to bf16 in place; N is a multiple of VEC. */
CPU_CLONES static void round_in_place(float *x, size_t n)
{
    for (size_t k = 0; k < n; k += VEC) {
        vec v;

        vec_load_f32(&v, x + k);
        vec_round_bf16(&v);
        memcpy(x + k, &v, sizeof(v));
    }
}

static void set_apart(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    float *to = p->apart + task * p->x_stride;
    const float *x = p->x + task * p->in;

    (void)thread;
    for (int k = 0; k < p->tree->n; k++) {
        size_t cols = (size_t)p->tree->leaf[k].cols;
        size_t floats = floats_of(p->tiles, cols);

        if (p->tiles->paired) {
            memset(to, 0, floats * sizeof(*to));
            cpu_round_bf16((uint16_t *)to, x, cols);
        } else {
            cpu_arrange(to, x, p->w->dtype, cols);
            if (p->rounded)
                round_in_place(to, floats);
        }
        to += floats;
        x += cols;
    }
}

/* y = x W^T; ROUNDED: x is rounded to bf16. */
static int linear(struct device *d, float *y, const float *x, size_t rows,
                  const struct matrix *w, const struct sum_tree *tree, bool rounded,
                  struct err *err)
{
    const struct sum_tree whole = whole_row(w);
    struct product p = { .y = y,
                         .x = x,
                         .rows = rows,
                         .w = w,
                         .rounded = rounded,
                         .tiles = rounded ? tile_bf16dot() : NULL,
                         .tree = tree ? tree : &whole,
                         .in = w->cols,
                         .out = w->rows,
                         .x_stride = (size_t)w->cols + 2 * VEC * TREE_LEAVES + APART };
    size_t apart, panels = 0, rooms;
    float *room = NULL;
    bool blocks;

    if (!w->cols) {
        memset(y, 0, rows * w->rows * sizeof(*y));
        return 0;
    }
    if (!p.tiles)
        p.tiles = tiles_of(w->dtype);
    if (p.tiles->paired)
        p.x_stride = (size_t)w->cols / 2 + VEC * (TREE_LEAVES + 1) + APART;
    p.x_stride = (p.x_stride + VEC - 1) / VEC * VEC;
    apart = rows * p.x_stride;
    blocks = wants_blocks(&p);
    if (!blocks && rows > FEW && !p.tiles->paired) {
        panels = (size_t)cpu_threads(d) * cpu_panel_floats();
        p.room = p.tree->n > 1 ? SUMS * PANEL * rows : 0;
    }
    rooms = (size_t)cpu_threads(d) * p.room;
    room =
        mem_alloc((apart + panels + rooms) * sizeof(*room), "rows of a product", err);
    if (!room)
        return -1;
    p.apart = room;
    cpu_parallel(d, rows, set_apart, &p);
    if (panels)
        p.panels = room + apart;
    if (rooms)
        p.rooms = room + apart + panels;
    if (blocks || !share_streams(d, &p))
        share_rows(d, &p, blocks);
    free(room);
    return 0;
}

int cpu_linear(struct device *d, float *y, const float *x, size_t rows,
               const struct matrix *w, const struct sum_tree *tree, struct err *err)
{
    return linear(d, y, x, rows, w, tree, false, err);
}

int cpu_linear_rounded(struct device *d, float *y, const float *x, size_t rows,
                       const struct matrix *w, const struct sum_tree *tree,
                       struct err *err)
{
    return linear(d, y, x, rows, w, tree, w->dtype == DTYPE_BF16, err);
}

bool cpu_has_codes_bf16dot(size_t rows, const struct matrix *w)
{
    return cpu_has_codes(w) && !codes_by_amx(w) && rows >= WIDENED && w->cols &&
           tile_bf16dot();
}

int cpu_codes_bf16dot(struct device *d, float *y, const float *x, size_t rows,
                      const struct matrix *w, const struct sum_tree *tree,
                      struct err *err)
{
    return linear(d, y, x, rows, w, tree, true, err);
}

/* Outputs per task of y = x W: of few rows one task for each thread. */
static uint64_t matmul_share(const struct device *d, const struct product *p)
{
    uint64_t share = p->out / (uint64_t)cpu_threads(d) + 1;

    if (p->tree || p->rows > FEW)
        return 2 * STRIP;
    return (share + STRIP - 1) / STRIP * STRIP;
}

int cpu_matmul(struct device *d, float *y, const float *x, size_t rows,
               const struct matrix *w, const struct sum_tree *tree, struct err *err)
{
    struct product p = { .y = y,
                         .x = x,
                         .rows = rows,
                         .w = w,
                         .in = w->rows,
                         .out = w->cols,
                         .tree = tree,
                         .room = tree ? SUMS * STRIP * rows : 0 };

    if (p.room) {
        p.rooms = mem_alloc((size_t)cpu_threads(d) * p.room * sizeof(*p.rooms),
                            "sums of a product", err);
        if (!p.rooms)
            return -1;
    }
    share_out(d, &p, matmul_share(d, &p), matmul_outputs);
    free(p.rooms);
    return 0;
}

/* ---- products of f32 matrices ---- */

void cpu_dots(float *y, size_t y_stride, const float *x, size_t x_stride, size_t m,
              const float *w, size_t w_stride, size_t n, size_t terms)
{
    struct weight_rows rows = { .data = (const char *)w, .stride = w_stride };

#if CPU_HAS_WIDE
    if (terms % VEC == 0 && cpu_has() != CPU_ANY) {
        (cpu_is_wide() ? tile_dots : tile_dots_avx2)(y, y_stride, x, x_stride, m, w,
                                                     w_stride, n, terms);
        return;
    }
#endif
    tiles_of(DTYPE_F32)->dot(y, y_stride, x, x_stride, &rows, m, n, terms, false);
}

void cpu_add_weighted(float *y, size_t y_stride, const float *x, size_t x_stride,
                      size_t m, const float *w, size_t w_stride, size_t n, size_t terms)
{
    tiles_of(DTYPE_F32)->outer(y, y_stride, x, x_stride, (const char *)w, w_stride, m,
                               n, terms);
}

bool cpu_is_dnnl(const void *code)
{
#ifdef HAVE_DNNL
    Dl_info at, library;

    return dladdr(code, &at) && dladdr((void *)(uintptr_t)dnnl_sgemm, &library) &&
           at.dli_fbase == library.dli_fbase;
#else
    (void)code;
    return false;
#endif
}

void cpu_gemm(size_t m, size_t n, size_t k, const float *a, const float *b, float *c)
{
#ifdef HAVE_DNNL
    if (dnnl_sgemm('N', 'T', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, 1.0f, a,
                   (dnnl_dim_t)k, b, (dnnl_dim_t)k, 0.0f, c,
                   (dnnl_dim_t)n) == dnnl_success)
        return;
#endif
    cpu_dots(c, n, a, k, m, b, k, n, k);
}
