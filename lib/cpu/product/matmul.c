/* matmul - y = x W: terms are added in order */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/product/linear.h"

enum {
    STRIP = MATMUL_STRIP,
    DEEP = 256, /* terms at a time, whose weights are copied for many rows; */
    SOME = 32,  /* of weights that are used where they are, */
    SHALLOW = 8 /* of few rows: as many streams of weights as are read ahead */
};

/* y[M][outputs FIRST to FIRST + N] = x W. */
static void outer_strip(float *y, size_t y_stride, const float *x, size_t x_stride,
                        size_t m, const struct matrix *w, uint64_t row, uint64_t in,
                        uint64_t first, size_t n)
{
    float wide[DEEP * STRIP];
    const bool copied = m > (size_t)(w->format == FORMAT_F32 ? IN_PLACE : FEW);
    const size_t deep = copied ? DEEP : m > FEW ? SOME : SHALLOW;

    for (size_t i = 0; i < m; i++)
        memset(y + i * y_stride, 0, n * sizeof(*y));
    for (uint64_t k = 0; k < in; k += deep) {
        size_t terms = in - k < deep ? (size_t)(in - k) : deep, stride = w->cols;
        const char *at = linear_element(w, row + k, first);
        enum format type = w->format;

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
            type = FORMAT_F32;
        }
        linear_tiles(type)->outer(y, y_stride, x + k, x_stride, at, stride, m, n,
                                  terms);
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

/* y[M][N] = x w with TREE. */
static void outer_tree(float *y, size_t y_stride, const float *x, size_t x_stride,
                       size_t m, const struct matrix *w, uint64_t first, size_t n,
                       const struct sum_tree *tree, float *room)
{
    for (size_t j = 0; j < n; j += STRIP) {
        struct tree_sums s = { .y = y + j,
                               .y_stride = y_stride,
                               .room = room,
                               .m = m,
                               .n = n - j < STRIP ? n - j : STRIP };
        uint64_t row = 0;

        for (int k = 0; k < tree->n; k++, row += tree->leaf[k - 1].cols) {
            size_t stride;
            float *to = tree_sums_at(&s, s.count, &stride);

            outer_strip(to, stride, x + row, x_stride, m, w, row, tree->leaf[k].cols,
                        first + j, s.n);
            tree_sums_join(&s, tree->leaf[k].adds);
        }
    }
}

static void matmul_outputs(void *arg, size_t task, int thread)
{
    const struct linear *p = arg;
    size_t n, first = (size_t)linear_span(p, task, &n);

    if (p->tree)
        outer_tree(p->y + first, p->out, p->x, p->in, p->rows, p->w, first, n, p->tree,
                   p->rooms + (size_t)thread * p->room);
    else
        cpu_outer_rows(p->y + first, p->out, p->x, p->in, p->rows, p->w, 0, p->in,
                       first, n);
}

/* Outputs per task of y = x W: of few rows one task for each thread. */
static uint64_t matmul_share(const struct device *d, const struct linear *p)
{
    uint64_t share = p->out / (uint64_t)cpu_threads(d) + 1;

    if (p->tree || p->rows > FEW)
        return 2 * STRIP;
    return (share + STRIP - 1) / STRIP * STRIP;
}

int cpu_matmul(struct device *d, float *y, const float *x, size_t rows,
               const struct matrix *w, const struct sum_tree *tree, struct err *err)
{
    struct linear p = { .y = y,
                        .x = x,
                        .rows = rows,
                        .w = w,
                        .in = w->rows,
                        .out = w->cols,
                        .tree = tree,
                        .room = tree ? TREE_SUMS * STRIP * rows : 0 };

    if (p.room) {
        p.rooms = cpu_take(d, (size_t)cpu_threads(d) * p.room * sizeof(*p.rooms),
                           "sums of a product", err);
        if (!p.rooms)
            return -1;
    }
    linear_share_out(d, &p, matmul_share(d, &p), matmul_outputs);
    cpu_give(d, p.rooms);
    return 0;
}

struct narrowing {
    float *to;
    const float *x;
    size_t cols;
};

static void round_row(void *arg, size_t row, int thread)
{
    const struct narrowing *r = arg;

    (void)thread;
    cpu_round_half(r->to + row * r->cols, r->x + row * r->cols, r->cols);
}

int cpu_matmul_half(struct device *d, float *y, const float *x, size_t rows,
                    const struct matrix *w, const struct sum_tree *tree,
                    struct err *err)
{
    struct narrowing r = { .x = x, .cols = (size_t)w->rows };
    int ret;

    r.to = cpu_take(d, (rows * r.cols + 1) * sizeof(*r.to), "rows of a product", err);
    if (!r.to)
        return -1;
    cpu_parallel(d, rows, round_row, &r);
    ret = cpu_matmul(d, y, r.to, rows, w, tree, err);
    cpu_give(d, r.to);
    return ret;
}
