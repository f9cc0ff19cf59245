/* magnitudes - DoRA in training: norms that follow the adapter's matrices */
#include "lib/train/magnitudes.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/run/adapternorm.h"

struct following {
    struct parameters *p;
    const struct adapter *begins; /* or NULL */
    struct comm *sharing;
};

/* TO = weight I, of which each of those that share has its range. */
static int gather(struct following *f, int i, float *to, struct err *err)
{
    const struct parameter *row = &f->p->row[i];
    double *sum = mem_alloc(row->n * sizeof(*sum) + 1, "a matrix of an adapter", err);
    int ret = -1;

    if (!sum)
        return -1;
    for (uint64_t k = 0; k < row->n; k++)
        sum[k] = 0;
    ret = row->count ? parameters_take(f->p, to, i, row->first, row->count, err) : 0;
    for (uint64_t k = 0; k < row->count && ret == 0; k++)
        sum[row->first + k] = (double)to[k];
    if (ret == 0)
        ret = comm_run(f->sharing, comm_all_reduce_f64(sum, (size_t)row->n), err);
    for (uint64_t k = 0; k < row->n && ret == 0; k++)
        to[k] = (float)sum[k];
    free(sum);
    return ret;
}

static int read_matrix(void *arg, int i, float *to, struct err *err)
{
    struct following *f = arg;
    const struct parameter *row = &f->p->row[i];

    return parameters_gathers(f->p) && row->trained
               ? gather(f, i, to, err)
               : parameters_take(f->p, to, i, 0, row->n, err);
}

/* This rank's part of weight I begins as NORM. */
static int begin(void *arg, int i, const float *norm, struct err *err)
{
    struct following *f = arg;
    const struct parameter *row = &f->p->row[i];
    size_t adapter = (size_t)f->p->program->weight[i].adapter - 1;
    const bool part = parameters_gathers(f->p);

    if (!f->begins || adapter_stores(f->begins, adapter, ADAPTER_MAGNITUDE))
        return 0;
    return part
               ? parameters_put(f->p, i, norm + row->first, row->first, row->count, err)
               : parameters_put(f->p, i, norm, 0, row->n, err);
}

int magnitudes_follow(struct parameters *p, const struct adapter *begins,
                      struct comm *tensor, struct comm *sharing, int threads,
                      struct err *err)
{
    struct following f = { p, begins, sharing };

    return adapternorm_make(&(struct adapternorm){ .program = p->program,
                                                   .ops = p->ops,
                                                   .device = p->device,
                                                   .matrix = p->matrix,
                                                   .tensor = tensor,
                                                   .threads = threads,
                                                   .read = read_matrix,
                                                   .begin = begin,
                                                   .arg = &f },
                            err);
}
