/* turned - y = x W of many rows, x rounded to bf16, by weights in bf16, on CPUs with
 * AMX or AVX512-BF16
 *
 * W has a row for each term, so that products of pairs of terms need two of its rows
 * together.  A task lays AMX_SIDE of its columns out so, once for all rows of x. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/tiled.h"

enum {
    LEAST = 128, /* rows for which this is faster, */
    LEAST_OF_AMX = 32,
    APART = AMX_SIDE /* numbers between rows of x, so that equal columns map to
                      * different cache sets */
};

struct product {
    float *y;
    const float *x;
    const struct matrix *w;
    size_t rows, in, out;
    size_t steps;      /* of AMX_SIDE terms */
    uint16_t *rounded; /* [whole AMX_SIDEs of rows][stride]: x */
    size_t stride;
    uint16_t *room; /* [threads][steps] tiles: columns of w */
};

/* Task: a row of x, or one that there is not, of zeros. */
static void round_row(void *arg, size_t row, int thread)
{
    const struct product *p = arg;
    uint16_t *to = p->rounded + row * p->stride;
    const size_t n = row < p->rows ? p->in : 0;

    (void)thread;
    if (n)
        amx_round(to, p->x + row * p->in, n);
    memset(to + n, 0, (p->stride - n) * sizeof(*to));
}

/* Task: AMX_SIDE outputs. */
static void multiply_columns(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    const size_t first = task * AMX_SIDE, left = p->out - first;
    const size_t n = left < AMX_SIDE ? left : AMX_SIDE;
    uint16_t *columns = p->room + (size_t)thread * p->steps * AMX_SIDE * AMX_SIDE;

    for (size_t k = 0; k < p->steps; k++) {
        const size_t term = k * AMX_SIDE, terms = p->in - term;

        amx_weave(columns + k * AMX_SIDE * AMX_SIDE,
                  (const uint16_t *)p->w->data + term * p->out + first, p->out,
                  terms < AMX_SIDE ? terms : AMX_SIDE, n);
    }
    tiled_begin();
    for (size_t row = 0; row < p->rows; row += AMX_SIDE)
        tiled_multiply(&(struct amx_product){
            .w = p->rounded + row * p->stride,
            .w_stride = p->stride,
            .x = columns,
            .steps = p->steps,
            .rows = n,
            .outs = p->rows - row < AMX_SIDE ? p->rows - row : AMX_SIDE,
            .y = p->y + row * p->out + first,
            .y_stride = p->out,
            .turned = true });
    tiled_end();
}

bool cpu_has_turned(size_t rows, const struct matrix *w)
{
    return w->dtype == DTYPE_BF16 && w->rows && w->cols && tiled_has() &&
           rows >= (size_t)(amx_has() ? LEAST_OF_AMX : LEAST);
}

int cpu_matmul_turned(struct device *d, float *y, const float *x, size_t rows,
                      const struct matrix *w, struct err *err)
{
    struct product p = { .y = y,
                         .x = x,
                         .w = w,
                         .rows = rows,
                         .in = (size_t)w->rows,
                         .out = (size_t)w->cols,
                         .steps = amx_sides((size_t)w->rows) };
    const size_t whole = amx_sides(rows) * AMX_SIDE;

    p.stride = p.steps * AMX_SIDE + APART;
    p.rounded = mem_alloc(
        (whole * p.stride + (size_t)cpu_threads(d) * p.steps * AMX_SIDE * AMX_SIDE) *
            sizeof(*p.rounded),
        "rows of a product", err);
    if (!p.rounded)
        return -1;
    p.room = p.rounded + whole * p.stride;
    cpu_parallel(d, whole, round_row, &p);
    cpu_parallel(d, amx_sides(p.out), multiply_columns, &p);
    free(p.rounded);
    return 0;
}
