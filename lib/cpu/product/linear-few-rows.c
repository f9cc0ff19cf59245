/* linear-few-rows - y = x W^T of few rows: weights are widened as they are read */
#include "lib/cpu/product/linear.h"

#if CPU_HAS_WIDE
/* Sums of N outputs in whole tiles over a stretch of paired terms from K on, part by
 * part; the lanes of all outputs are kept between these. */
static const char *pair_sums(float sums[][EIGHT], const float *x, size_t x_stride,
                             const struct tiles *t, const struct matrix *w,
                             uint64_t first, size_t n, struct linear_terms of,
                             uint64_t k, size_t terms, const char *ahead)
{
    vec kept[GROUP / EIGHT_OUTS][EIGHT * EIGHT_OUTS];

    for (size_t p = 0; p < terms; p += BF16DOT_PART)
        for (size_t c = 0; c < n; c += EIGHT_OUTS) {
            size_t some = terms - p < BF16DOT_PART ? terms - p : BF16DOT_PART;
            struct weight_rows at = { .data = linear_element(w, first + c,
                                                             of.start + k + p),
                                      .stride = w->cols,
                                      .ahead = ahead,
                                      .apart = LINE,
                                      .step = EIGHT_OUTS * LINE };

            t->keep(kept[c / EIGHT_OUTS], x + of.x + linear_floats(t, (size_t)k + p),
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
                       size_t n, struct linear_terms of)
{
    const size_t row = (size_t)w->cols * t->size;
    const char *ahead = !t->ahead_by_tile && first + n + GROUP <= w->rows
                            ? linear_element(w, first + n, 0) + n * of.start * t->size
                            : NULL;

    for (uint64_t k = 0; k < of.count; k += t->block) {
        size_t terms = of.count - k < t->block ? (size_t)(of.count - k) : t->block;

        if (t->paired)
            ahead = pair_sums(sums, x, x_stride, t, w, first, n, of, k, terms, ahead);
        else if (t->ahead_by_tile)
            ahead = linear_read_next(w, first, n, of.start + k + terms);
        for (size_t c = 0; c < n && !t->paired; c += EIGHT_OUTS) {
            struct weight_rows at = { .data =
                                          linear_element(w, first + c, of.start + k),
                                      .stride = w->cols,
                                      .ahead = ahead,
                                      .apart = t->ahead_by_tile ? row : LINE,
                                      .step =
                                          t->ahead_by_tile ? LINE : EIGHT_OUTS * LINE };

            t->eight(sums + c, x + of.x + linear_floats(t, k), x_stride, &at, terms,
                     k > 0);
            if (ahead)
                ahead += EIGHT_OUTS * (t->ahead_by_tile ? row : terms * t->size);
        }
    }
}

/* EIGHT rows by N outputs in whole tiles, one group at a time. */
static void dot_eight(float *y, size_t y_stride, const float *x, size_t x_stride,
                      const struct tiles *t, const struct matrix *w, uint64_t first,
                      size_t n, const struct sum_tree *tree)
{
    float sums[TREE_SUMS + 1][GROUP][EIGHT];

    for (size_t j = 0; j < n; j += GROUP) {
        size_t outs = n - j < GROUP ? n - j : GROUP, last = 0, turned = 0;
        struct linear_terms of = { 0 };

        for (int k = 0; k < tree->n; k++, last++) {
            of.count = tree->leaf[k].cols;
            eight_sums(sums[last], x, x_stride, t, w, first + j, outs, of);
            for (int a = 0; a < tree->leaf[k].adds; a++, last--)
                for (size_t c = 0; c < outs; c++)
                    for (size_t i = 0; i < EIGHT; i++)
                        sums[last - 1][c][i] += sums[last][c][i];
            linear_next(&of, t);
        }
        for (; turned + EIGHT <= outs; turned += EIGHT)
            linear_transpose(y + j + turned, y_stride, sums[0] + turned);
        for (size_t i = 0; i < EIGHT; i++)
            for (size_t c = turned; c < outs; c++)
                y[i * y_stride + j + c] = sums[0][c][i];
    }
}
#endif

/* One tile of outputs: terms from K on. */
static void dot_tile(float *y, size_t y_stride, const float *x, size_t x_stride,
                     size_t m, const struct tiles *t, const struct matrix *w,
                     uint64_t out, size_t n, struct linear_terms of, uint64_t k)
{
    size_t terms = of.count - k < t->block ? (size_t)(of.count - k) : t->block;
    struct weight_rows at = { .data = linear_element(w, out, of.start + k),
                              .stride = w->cols };

    if (out + 2 * OUTS <= w->rows)
        at.ahead = linear_element(w, out + OUTS, 0) + OUTS * (of.start + k) * t->size;
    t->dot(y, y_stride, x + of.x + linear_floats(t, k), x_stride, &at, m, n, terms,
           k > 0);
}

/* Few rows: one tile of outputs after another, each over all terms.  A tile reads
 * several rows of weights at once, which hardware prefetchers follow badly, so the rows
 * of the next tile are prefetched in memory order.  More rows: stretch by stretch, so
 * that these are used from the L2 cache. */
static void dot_some(float *y, size_t y_stride, const float *x, size_t x_stride,
                     size_t m, const struct tiles *t, const struct matrix *w,
                     uint64_t first, size_t n, struct linear_terms of)
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
    float room[TREE_SUMS * FEW * GROUP];

    for (size_t j = 0; j < n; j += GROUP) {
        struct tree_sums s = { .y = y + j,
                               .y_stride = y_stride,
                               .room = room,
                               .m = m,
                               .n = n - j < GROUP ? n - j : GROUP };
        struct linear_terms of = { 0 };

        for (int k = 0; k < tree->n; k++) {
            size_t stride;
            float *to = tree_sums_at(&s, s.count, &stride);

            of.count = tree->leaf[k].cols;
            dot_some(to, stride, x, x_stride, m, t, w, first + j, s.n, of);
            tree_sums_join(&s, tree->leaf[k].adds);
            linear_next(&of, t);
        }
    }
}

void linear_few_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
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
                     (struct linear_terms){ .count = w->cols });
    }
}
