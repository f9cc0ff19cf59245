/* linear-many-rows - y = x W^T of many rows, from panels of weights in f32 */
#include <string.h>

#include "lib/cpu/product/linear.h"

#if CPU_HAS_WIDE
/* Sums of many rows: of eight rows, one after another, by N outputs. */
typedef float eight_rows[EIGHT];

/* The first of eight rows: row I of M, or an earlier one where fewer are left. */
static size_t eight_from(size_t i, size_t m)
{
    return m - i < EIGHT ? m - EIGHT : i;
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
            linear_transpose(to + turned, y_stride, sums + turned);
        for (size_t r = 0; r < EIGHT; r++)
            for (size_t c = turned; c < n; c++)
                to[r * y_stride + c] = sums[c][r];
    }
}

/* Are weights read where they are by M rows?  For few, copying those of f32 takes
 * longer than it saves; tiles for AVX2 read a weight twice. */
static bool reads_in_place(const struct matrix *w, const struct tiles *t, size_t m)
{
    return w->format == FORMAT_F32 &&
           m <= (t->ahead_by_tile ? IN_PLACE_AVX2 : IN_PLACE);
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
    const size_t size = (m + EIGHT - 1) / EIGHT * outs,
                 unit = linear_size_of(w->format);
    eight_rows *sums = (eight_rows *)(room + BLOCK_OUTS * (BLOCK + APART)), *to = sums;
    struct linear_terms of = { 0 };

    memset(room + n * (BLOCK + APART), 0, (outs - n) * (BLOCK + APART) * sizeof(*room));
    for (int k = 0; k < tree->n; k++, to += size) {
        of.count = tree->leaf[k].cols;
        for (uint64_t at = 0; at < of.count; at += BLOCK) {
            size_t terms = of.count - at < BLOCK ? (size_t)(of.count - at) : BLOCK;
            uint64_t col = of.start + at;
            struct weight_rows panel = { .data = linear_element(w, first, col),
                                         .stride = w->cols };

            if (n < outs || !reads_in_place(w, t, m))
                panel = linear_widen_panel(w, first, n, col, terms, room);
            panel.ahead = linear_read_next(w, first, n, col + terms);
            panel.apart = (size_t)w->cols * unit;
            panel.step = VEC * unit;
            block_sums(to, x + of.x + at, x_stride, m, t, &panel, outs,
                       cpu_arranged(w->format, terms), EIGHT_OUTS * panel.apart,
                       at > 0);
        }
        for (int a = 0; a < tree->leaf[k].adds; a++, to -= size)
            for (size_t c = 0; c < size; c++)
                for (size_t i = 0; i < EIGHT; i++)
                    (to - size)[c][i] += to[c][i];
        linear_next(&of, linear_tiles(w->format));
    }
    store_block(y, y_stride, m, n, sums, outs);
}

void linear_many_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
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
#endif

/* Many rows: widens a panel of weights and uses it for all rows. */
void linear_many_panels(float *y, size_t y_stride, const float *x, size_t x_stride,
                        size_t m, const struct matrix *w, uint64_t first, size_t n,
                        struct linear_terms of, float *panel)
{
    for (uint64_t k = 0; k < of.count; k += BLOCK) {
        size_t terms = of.count - k < BLOCK ? (size_t)(of.count - k) : BLOCK;

        for (size_t j = 0; j < n; j += PANEL) {
            size_t some = n - j < PANEL ? n - j : PANEL;
            struct weight_rows at =
                linear_widen_panel(w, first + j, some, of.start + k, terms, panel);

            linear_tiles(FORMAT_F32)
                ->dot(y + j, y_stride, x + of.x + k, x_stride, &at, m, some,
                      cpu_arranged(w->format, terms), k > 0);
        }
    }
}

/* y[M][N] = x w^T with TREE, for many rows. */
void linear_many_panels_tree(float *y, size_t y_stride, const float *x, size_t x_stride,
                             size_t m, const struct matrix *w, uint64_t first, size_t n,
                             const struct sum_tree *tree, float *panel, float *room)
{
    for (size_t j = 0; j < n; j += PANEL) {
        struct tree_sums s = { .y = y + j,
                               .y_stride = y_stride,
                               .room = room,
                               .m = m,
                               .n = n - j < PANEL ? n - j : PANEL };
        struct linear_terms of = { 0 };

        for (int k = 0; k < tree->n; k++) {
            size_t stride;
            float *to = tree_sums_at(&s, s.count, &stride);

            of.count = tree->leaf[k].cols;
            linear_many_panels(to, stride, x, x_stride, m, w, first + j, s.n, of,
                               panel);
            tree_sums_join(&s, tree->leaf[k].adds);
            linear_next(&of, linear_tiles(w->format));
        }
    }
}
