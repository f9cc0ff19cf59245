/* many - y = x W^T of many rows, x rounded to bf16, by bf16 weights, on CPUs with AMX
 *
 * oneDNN multiplies tiles of fixed size, each on one thread with all terms, so the
 * number of threads does not change a sum.  Its order may depend on the number of
 * rows. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/onednn.h"

enum {
    LEAST = 48, /* rows for which oneDNN's copies of weights are worth while */
    TILE_ROWS = 512,
    TILE_OUTS = 256,
    STEP = 32 /* rows are padded to a multiple of it, and begin in different cache
               * sets */
};

struct product {
    float *y;
    const float *x;
    uint16_t *terms; /* x rounded */
    size_t rows, in, out, stride;
    const struct matrix *w;
    size_t bands; /* tiles that cover the rows */
    atomic_bool lost;
};

/* Task: a row of x. */
static void round_row(void *arg, size_t row, int thread)
{
    const struct product *p = arg;

    (void)thread;
    cpu_round_bf16(p->terms + row * p->stride, p->x + row * p->in, p->in);
}

static void multiply_tile(void *arg, size_t task, int thread)
{
    struct product *p = arg;
    size_t row = task % p->bands * TILE_ROWS, first = task / p->bands * TILE_OUTS;
    const struct onednn_shape shape = {
        .m = p->rows - row < TILE_ROWS ? p->rows - row : TILE_ROWS,
        .n = p->out - first < TILE_OUTS ? p->out - first : TILE_OUTS,
        .k = p->in,
        .x_stride = p->stride,
        .y_stride = p->out
    };
    struct onednn *product = onednn_new(DTYPE_BF16, &shape);

    (void)thread;
    if (!product ||
        !onednn_run(product, p->y + row * p->out + first, p->terms + row * p->stride,
                    (const uint16_t *)p->w->data + first * p->in))
        atomic_store(&p->lost, true);
    onednn_free(product);
}

bool cpu_has_many(size_t rows, const struct matrix *w)
{
    return w->dtype == DTYPE_BF16 && rows >= LEAST && w->cols && w->rows &&
           onednn_has_amx();
}

int cpu_linear_many(struct device *d, float *y, const float *x, size_t rows,
                    const struct matrix *w, struct err *err)
{
    size_t in = (size_t)w->cols;
    struct product p = { .y = y,
                         .x = x,
                         .rows = rows,
                         .in = in,
                         .out = (size_t)w->rows,
                         .w = w,
                         .stride = (in + STEP - 1) / STEP * STEP + STEP,
                         .bands = (rows + TILE_ROWS - 1) / TILE_ROWS };

    p.terms = mem_alloc(rows * p.stride * sizeof(*p.terms), "rows of a product", err);
    if (!p.terms)
        return -1;
    cpu_parallel(d, rows, round_row, &p);
    cpu_parallel(d, (p.out + TILE_OUTS - 1) / TILE_OUTS * p.bands, multiply_tile, &p);
    free(p.terms);
    return p.lost ? err_set(err, ERR_SYSTEM, CPU_OUTER_LOST) : 0;
}
