/* bf16dot-rows - y = x W^T of many rows, x rounded to bf16, by bf16 weights or by
 * codes, which are widened to bf16, on CPUs with AVX512-BF16 */
#include <string.h>

#include "lib/cpu/product/codes-linear.h"
#include "lib/cpu/product/linear.h"

#if CPU_HAS_WIDE
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
        memcpy(to + j * stride, linear_element(w, first + j, col), terms * sizeof(*to));
}

/* y[M][N] times the scales of 8 bits of the rows of W from FIRST on. */
static void scale_outputs(float *y, size_t y_stride, size_t m, const struct matrix *w,
                          uint64_t first, size_t n)
{
    const float *scale = (const float *)w->scale + first;

    for (size_t i = 0; i < m && w->format == FORMAT_INT8; i++)
        for (size_t j = 0; j < n; j++)
            y[i * y_stride + j] *= scale[j];
}

/* The same for paired x, whose weights are copied, or widened from codes.  ROOM is that
 * of tree_sums_join. */
void bf16dot_rows(float *y, size_t y_stride, const float *x, size_t x_stride, size_t m,
                  const struct tiles *t, const struct matrix *w, uint64_t first,
                  size_t n, const struct sum_tree *tree, float *room)
{
    struct tree_sums s = {
        .y = y, .y_stride = y_stride, .room = room + BF16DOT_FLOATS, .m = m, .n = n
    };
    uint16_t *copy = (uint16_t *)(void *)room;
    struct linear_terms of = { 0 };

    for (int k = 0; k < tree->n; k++) {
        size_t stride;
        float *to = tree_sums_at(&s, s.count, &stride);

        of.count = tree->leaf[k].cols;
        for (uint64_t at = 0; at < of.count; at += BF16DOT_BLOCK) {
            size_t terms =
                of.count - at < BF16DOT_BLOCK ? (size_t)(of.count - at) : BF16DOT_BLOCK;
            struct weight_rows panel = { .data = (const char *)copy,
                                         .stride = BF16DOT_BLOCK + 2 * APART };

            pair_panel(copy, panel.stride, w, first, n, of.start + at, terms);
            pair_tiles(to, stride, x + of.x + linear_floats(t, (size_t)at), x_stride, m,
                       t, &panel, n, terms, at > 0);
        }
        scale_outputs(to, stride, m, w, first, n);
        tree_sums_join(&s, tree->leaf[k].adds);
        linear_next(&of, t);
    }
}
#endif
