/* gradient - what the kernels of the reverse share
 *
 * D is the gradient of the result of the reversed operation.  Gradients of weights are
 * added to their memory, so micro-batches accumulate in order.  The order of all sums
 * is independent of the number of threads. */
#ifndef LIB_CPU_REVERSE_GRADIENT_H
#define LIB_CPU_REVERSE_GRADIENT_H

#include <stddef.h>

#include "lib/cpu/cpu.h"

enum { GRADIENT_COLS = 64 }; /* columns of a task */

static inline size_t gradient_rows(const struct buffer *b)
{
    return (size_t)*b->rows;
}

static inline size_t gradient_blocks(size_t n, size_t block)
{
    return (n + block - 1) / block;
}

/* Elements FIRST (returned) to *end, of N, for task TASK. */
static inline size_t gradient_span(size_t task, size_t block, size_t n, size_t *end)
{
    size_t first = task * block;

    *end = n - first < block ? n : first + block;
    return first;
}

/* Sums over rows: a task adds up the rows of a block of columns in order. */
struct gradient_columns {
    const struct call *c;
    float *y;
    const float *d, *x;
    size_t rows, cols, part; /* PART: of a column sum, its rows for each of a value */
    const double *mean, *factor; /* of each group of width columns */
    size_t width, period;
};

#endif
