/* bf16tile-transposed - products of many rows, rounded to bf16, by weights in bf16, on
 * CPUs with AMX or AVX512-BF16
 *
 * A task lays AMX_SIDE outputs' weights out, once for all rows of x: pairs of terms,
 * each of 16 outputs.  No sum is then made across the lanes of a register. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/bf16tile.h"

enum {
    LEAST = 32,          /* rows for which y = x W is faster so, */
    LEAST_OF_ROWS = 512, /* and y = x W^T, for which other loops are fast, too */
    APART = AMX_SIDE     /* numbers between rows of x, so that equal columns map to
                          * different cache sets */
};

struct product {
    float *y;
    const float *x;
    const uint16_t *bf16; /* instead of x, or NULL */
    const struct matrix *w;
    bool by_output; /* w has a row for each output, else for each term */
    size_t rows, in, out;
    size_t steps;      /* of AMX_SIDE terms */
    uint16_t *rounded; /* [whole AMX_SIDEs of rows][stride]: x */
    size_t stride;
    uint16_t *room; /* [threads][steps] tiles: weights */
};

/* Task: a row of x, or one that there is not, of zeros. */
static void round_row(void *arg, size_t row, int thread)
{
    const struct product *p = arg;
    uint16_t *to = p->rounded + row * p->stride;
    const size_t n = row < p->rows ? p->in : 0;

    (void)thread;
    if (n && p->bf16)
        memcpy(to, p->bf16 + row * p->in, n * sizeof(*to));
    else if (n)
        amx_round(to, p->x + row * p->in, n);
    memset(to + n, 0, (p->stride - n) * sizeof(*to));
}

/* Lays the weights of N <= AMX_SIDE outputs from FIRST on out. */
static void lay_out(const struct product *p, uint16_t *to, size_t first, size_t n)
{
    const uint16_t *w = p->w->data;

    if (p->by_output) {
        amx_turn(to, w + first * p->in, p->in, n, p->in, p->steps);
        return;
    }
    for (size_t k = 0; k < p->steps; k++) {
        const size_t term = k * AMX_SIDE, terms = p->in - term;

        amx_weave(to + k * AMX_SIDE * AMX_SIDE, w + term * p->out + first, p->out,
                  terms < AMX_SIDE ? terms : AMX_SIDE, n);
    }
}

/* Task: AMX_SIDE outputs. */
static void multiply_outputs(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    const size_t first = task * AMX_SIDE, left = p->out - first;
    const size_t n = left < AMX_SIDE ? left : AMX_SIDE;
    uint16_t *weights = p->room + (size_t)thread * p->steps * AMX_SIDE * AMX_SIDE;

    lay_out(p, weights, first, n);
    bf16tile_begin();
    for (size_t row = 0; row < p->rows; row += AMX_SIDE)
        bf16tile_multiply(&(struct amx_product){
            .w = p->rounded + row * p->stride,
            .w_stride = p->stride,
            .x = weights,
            .steps = p->steps,
            .rows = n,
            .outs = p->rows - row < AMX_SIDE ? p->rows - row : AMX_SIDE,
            .y = p->y + row * p->out + first,
            .y_stride = p->out,
            .transposed = true });
    bf16tile_end();
}

static int multiply(struct device *d, struct product p, struct err *err)
{
    const size_t whole = amx_sides(p.rows) * AMX_SIDE, threads = (size_t)cpu_threads(d);

    p.steps = amx_sides(p.in);
    p.stride = p.steps * AMX_SIDE + APART;
    p.rounded = cpu_take(d,
                         (whole * p.stride + threads * p.steps * AMX_SIDE * AMX_SIDE) *
                             sizeof(*p.rounded),
                         "rows of a product", err);
    if (!p.rounded)
        return -1;
    p.room = p.rounded + whole * p.stride;
    cpu_parallel(d, whole, round_row, &p);
    cpu_parallel(d, amx_sides(p.out), multiply_outputs, &p);
    cpu_give(d, p.rounded);
    return 0;
}

static bool has(size_t rows, size_t least, const struct matrix *w)
{
    return rows >= least && w->format == FORMAT_BF16 && w->rows && w->cols &&
           bf16tile_has();
}

bool cpu_has_transposed_matmul(size_t rows, const struct matrix *w)
{
    return has(rows, LEAST, w);
}

int cpu_transposed_matmul(struct device *d, float *y, const float *x, size_t rows,
                          const struct matrix *w, struct err *err)
{
    return multiply(d,
                    (struct product){ .y = y,
                                      .x = x,
                                      .w = w,
                                      .rows = rows,
                                      .in = (size_t)w->rows,
                                      .out = (size_t)w->cols },
                    err);
}

bool cpu_has_transposed_linear(size_t rows, const struct matrix *w)
{
    return has(rows, LEAST_OF_ROWS, w);
}

int cpu_transposed_linear(struct device *d, float *y, const void *x, enum format type,
                          size_t rows, const struct matrix *w, struct err *err)
{
    return multiply(d,
                    (struct product){ .y = y,
                                      .x = x,
                                      .bf16 = type == FORMAT_BF16 ? x : NULL,
                                      .w = w,
                                      .by_output = true,
                                      .rows = rows,
                                      .in = (size_t)w->cols,
                                      .out = (size_t)w->rows },
                    err);
}
