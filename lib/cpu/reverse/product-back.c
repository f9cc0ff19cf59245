/* product-back - gradients of the weights of products */
#include <stdatomic.h>

#include "lib/cpu/reverse/gradient.h"

enum { FEW = 16 }; /* columns that are transposed at a time */

/* cpu_outer, row after row, so that the bits of C depend neither on M nor on N: oneDNN
 * adds in another order at the edges of its tiles, on some CPUs. */
static void outer_in_order(float *c, size_t ldc, const float *a, size_t lda, size_t m,
                           const float *b, size_t ldb, size_t n, size_t rows)
{
    float turned[FEW][GRADIENT_COLS];

    for (size_t t = 0; t < rows; t += GRADIENT_COLS) {
        size_t some = rows - t < GRADIENT_COLS ? rows - t : GRADIENT_COLS;

        for (size_t i = 0; i < m; i += FEW) {
            size_t few = m - i < FEW ? m - i : FEW;

            for (size_t k = 0; k < some; k++)
                for (size_t r = 0; r < few; r++)
                    turned[r][k] = a[(t + k) * lda + i + r];
            cpu_add_weighted(c + i * ldc, ldc, turned[0], GRADIENT_COLS, few,
                             b + t * ldb, ldb, n, some);
        }
    }
}

/* A product of HEADS matrices side by side, each of COLS_A by COLS_B. */
struct outer {
    float *y;
    const float *a, *b;
    size_t rows, heads, cols_a, cols_b, share; /* columns of a that are one task's */
    bool in_order;     /* ranks with parts of the columns have the same bits */
    atomic_bool *lost; /* a product failed */
};

/* cpu_outer for as many rows at a time as a program that runs in chunks has: the bits
 * are those of all rows at once. */
static void outer_in_chunks(float *c, size_t ldc, const float *a, size_t lda, size_t m,
                            const float *b, size_t ldb, const struct outer *o)
{
    for (size_t t = 0, some; t < o->rows; t += some) {
        some = program_chunk_rows(o->rows - t);
        if (!cpu_outer(c, ldc, a + t * lda, lda, m, b + t * ldb, ldb, o->cols_b, some))
            atomic_store(o->lost, true);
    }
}

static void outer_some(void *arg, size_t task, int thread)
{
    const struct outer *o = arg;
    size_t tasks = gradient_blocks(o->cols_a, o->share), head = task / tasks, end;
    size_t first = gradient_span(task % tasks, o->share, o->cols_a, &end),
           m = end - first;
    size_t lda = o->heads * o->cols_a, ldb = o->heads * o->cols_b, ldc = o->cols_b;
    float *c = o->y + (head * o->cols_a + first) * ldc;
    const float *a = o->a + head * o->cols_a + first, *b = o->b + head * o->cols_b;

    (void)thread;
    if (o->in_order)
        outer_in_order(c, ldc, a, lda, m, b, ldb, o->cols_b, o->rows);
    else
        outer_in_chunks(c, ldc, a, lda, m, b, ldb, o);
}

/* The share depends only on the sizes, and so does the order of the sums. */
static int run_outer(struct device *d, struct outer o, struct err *err)
{
    atomic_bool lost = false;

    if (!o.rows || !o.cols_a || !o.cols_b)
        return 0;
    o.lost = &lost;
    o.share = o.cols_a / 16 / GRADIENT_COLS * GRADIENT_COLS;
    o.share = o.share < GRADIENT_COLS       ? GRADIENT_COLS
              : o.share > 4 * GRADIENT_COLS ? 4 * GRADIENT_COLS
                                            : o.share;
    cpu_parallel(d, o.heads * gradient_blocks(o.cols_a, o.share), outer_some, &o);
    return lost ? err_set(err, ERR_SYSTEM, CPU_OUTER_LOST) : 0;
}

int kernel_outer(struct device *d, const struct call *c, struct err *err)
{
    return run_outer(d,
                     (struct outer){ .y = c->y.data,
                                     .a = c->x[0].data,
                                     .b = c->x[1].data,
                                     .rows = gradient_rows(&c->x[0]),
                                     .heads = 1,
                                     .cols_a = c->w->rows,
                                     .cols_b = c->w->cols,
                                     .in_order = c->program->deterministic },
                     err);
}

int kernel_head_outer(struct device *d, const struct call *c, struct err *err)
{
    return run_outer(
        d,
        (struct outer){ .y = (float *)c->y.data + c->inst->head.row * c->w->cols,
                        .a = c->x[0].data,
                        .b = c->x[1].data,
                        .rows = gradient_rows(&c->x[0]),
                        .heads = c->inst->head.count,
                        .cols_a = c->inst->head.a,
                        .cols_b = c->inst->head.b,
                        .in_order = c->program->deterministic },
        err);
}
