/* collective - what the backends of comm.h have in common */
#include "lib/comm/collective.h"

#include <string.h>

size_t collective_part(const struct collective *op, const struct comm_parts *p, int r)
{
    return (p->count ? p->count[r] : op->n) * op->unit;
}

size_t collective_start(const struct collective *op, const struct comm_parts *p, int r)
{
    size_t elements = 0;

    if (!p->count)
        return (size_t)r * op->n * op->unit;
    if (p->offset)
        return p->offset[r] * op->unit;
    for (int i = 0; i < r; i++)
        elements += p->count[i];
    return elements * op->unit;
}

void collective_copy(void *to, const void *from, size_t bytes)
{
    if (to != from && bytes)
        memcpy(to, from, bytes);
}

void collective_add(const struct collective *op, void *to, const void *a, const void *b,
                    size_t bytes)
{
    if (op->sum == COMM_SUM_F32) {
        float *x = to;
        const float *y = a, *z = b;

#pragma omp simd
        for (size_t i = 0; i < bytes / sizeof(*x); i++)
            x[i] = y[i] + z[i];
    } else {
        double *x = to;
        const double *y = a, *z = b;

#pragma omp simd
        for (size_t i = 0; i < bytes / sizeof(*x); i++)
            x[i] = y[i] + z[i];
    }
}

void collective_alone(const struct collective *op)
{
    const char *from = op->from;
    char *to = op->to;

    switch (op->kind) {
    case COMM_REDUCE_SCATTER:
    case COMM_ALL_GATHER:
        collective_copy(to, from, collective_part(op, &op->part, 0));
        break;
    case COMM_ALL_TO_ALL:
        collective_copy(to + collective_start(op, &op->in, 0),
                        from + collective_start(op, &op->part, 0),
                        collective_part(op, &op->part, 0));
        break;
    case COMM_ALL_REDUCE:
    case COMM_BROADCAST:
    case COMM_NKINDS:
        break;
    }
}
