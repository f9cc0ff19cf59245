/* exchange - instructions for which a rank needs the others, or rows of the whole step
 */
#include "lib/run/exchange.h"

#include <math.h>
#include <string.h>

#include "lib/base/mem.h"

static double *stats(struct engine *e, size_t n)
{
    e->stat = xgrow(e->stat, &e->stat_cap, n + 1, sizeof(*e->stat));
    return e->stat;
}

static float *exchange(struct engine *e, size_t n)
{
    e->exchange = xgrow(e->exchange, &e->exchange_cap, n + 1, sizeof(*e->exchange));
    return e->exchange;
}

int exchange_norm(struct engine *e, const struct inst *inst, struct err *err)
{
    size_t rows = rows_of(e, inst->src[0]), cols = e->p->value[inst->dst].cols;
    size_t width = inst->norm.width, groups = width ? rows * cols / width : 0;
    bool cut = inst->norm.cut, center = inst->op == OP_LAYERNORM;
    size_t count = cut ? rows : groups; /* an empty part still takes part in the sums */
    double *mean = stats(e, 3 * count + 1), *square = mean + count,
           *zero = square + count;
    const float *x = value(e, inst->src[0]);
    double n = (double)inst->norm.whole_width;

    memset(mean, 0, 3 * count * sizeof(*mean));
    if (center) {
        if (inst->norm.owned && groups)
            e->ops->group_sum(e->device, mean, x, NULL, groups, width);
        if (cut && comm_run(e->comm, comm_all_reduce_f64(mean, count), err) < 0)
            return -1;
        for (size_t i = 0; i < count; i++)
            mean[i] /= n;
    }
    if (inst->norm.owned && groups)
        e->ops->group_sum(e->device, square, x, center ? mean : zero, groups, width);
    if (cut && comm_run(e->comm, comm_all_reduce_f64(square, count), err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        square[i] = 1 / sqrt(square[i] / n + inst->norm.eps);
    e->ops->group_scale(e->device, value(e, inst->dst), x, center ? mean : NULL, square,
                        groups, width, weight_of(e, inst->weight), inst->norm.plus_one,
                        weight_of(e, inst->weight2));
    return 0;
}

int exchange_gather(struct engine *e, const struct inst *inst, struct err *err)
{
    const struct gather *g = &e->p->gather[inst->gather.gather];
    size_t rows = rows_of(e, inst->src[0]), mine = e->p->value[inst->src[0]].cols;
    size_t whole = e->p->value[inst->dst].cols, most = 0;
    float *own, *all;

    for (int r = 0; r < g->parts; r++)
        most = g->runs[r].count > most ? g->runs[r].count : most;
    own = exchange(e, rows * most * (size_t)(g->parts + 1));
    all = own + rows * most;
    memcpy(own, value(e, inst->src[0]), rows * mine * sizeof(*own));
    if (comm_run(e->comm, comm_all_gather(own, all, rows * most * sizeof(*own)), err) <
        0)
        return -1;
    for (int r = 0; r < g->parts; r++)
        for (size_t i = 0; i < rows; i++) {
            const float *from = all + ((size_t)r * rows * most) + i * g->runs[r].count;

            for (size_t k = 0; k < g->runs[r].n; k++) {
                const struct run *run = &g->runs[r].v[k];

                if (run->owned)
                    memcpy(value(e, inst->dst) + i * whole + run->start, from,
                           run->count * sizeof(*from));
                from += run->count;
            }
        }
    return 0;
}

void exchange_slice(struct engine *e, const struct inst *inst)
{
    const struct gather *g = &e->p->gather[inst->gather.gather];
    const struct runs *runs = &g->runs[e->p->coord[MESH_TP]];
    size_t rows = rows_of(e, inst->src[0]), whole = e->p->value[inst->src[0]].cols;
    float *to = value(e, inst->dst);

    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < runs->n; k++) {
            memcpy(to, value(e, inst->src[0]) + i * whole + runs->v[k].start,
                   runs->v[k].count * sizeof(*to));
            to += runs->v[k].count;
        }
}

/* Rows that one rank of the sequence group has, to all: the others add nothing. */
static int share_rows(struct engine *e, float *y, size_t n, struct err *err)
{
    struct comm *c = e->sequence.comm;

    return e->sequence.shared ? 0 : comm_run(c, comm_all_reduce(y, n), err);
}

/* Row ROW of the step (of all ranks' rows) to TO, zeros where it is another's. */
static void copy_row(const struct engine *e, float *to, const float *x, size_t row,
                     size_t cols)
{
    size_t own = row - e->sequence.first;

    if (row >= e->sequence.first && own < e->sequence.count)
        memcpy(to, x + own * cols, cols * sizeof(*to));
    else
        memset(to, 0, cols * sizeof(*to));
}

int exchange_take(struct engine *e, const struct inst *inst, struct err *err)
{
    size_t cols = e->p->value[inst->dst].cols;
    float *y = value(e, inst->dst);

    for (size_t i = 0; i < e->step.nwanted; i++)
        copy_row(e, y + i * cols, value(e, inst->src[0]), (size_t)e->step.wanted[i],
                 cols);
    return share_rows(e, y, e->step.nwanted * cols, err);
}

int exchange_first(struct engine *e, const struct inst *inst, struct err *err)
{
    size_t cols = e->p->value[inst->dst].cols;
    float *y = value(e, inst->dst);

    copy_row(e, y, value(e, inst->src[0]), 0, cols);
    return share_rows(e, y, cols, err);
}

/* What a rank knows of one row over its columns. */
struct row_part {
    double max, sum; /* sum of exp(x - max) */
    double target;   /* the target's value, where it is held */
    double index;    /* of the largest */
};

static struct row_part look_at_row(const float *x, size_t n, uint64_t first,
                                   int64_t target)
{
    struct row_part r = { .max = -INFINITY,
                          .target = -INFINITY,
                          .index = (double)first };

    for (size_t i = 0; i < n; i++)
        if ((double)x[i] > r.max) {
            r.max = (double)x[i];
            r.index = (double)(first + i);
        }
    for (size_t i = 0; i < n; i++)
        r.sum += exp((double)x[i] - r.max);
    if (target >= (int64_t)first && target < (int64_t)(first + n))
        r.target = (double)x[target - (int64_t)first];
    return r;
}

int exchange_rows(struct engine *e, const struct inst *inst, struct err *err)
{
    size_t rows = rows_of(e, inst->src[0]), cols = e->p->value[inst->src[0]].cols;
    int parts = inst->row.cut ? e->comm->size : 1;
    struct row_part *mine, *all;

    mine = (struct row_part *)(void *)stats(e, rows * (size_t)(parts + 1) *
                                                   sizeof(*mine) / sizeof(double));
    all = inst->row.cut ? mine + rows : mine;
    for (size_t i = 0; i < rows; i++) {
        size_t row = e->p->value[inst->src[0]].rows == ROWS_WANTED && e->step.wanted
                         ? (size_t)e->step.wanted[i]
                         : e->sequence.first + i;
        int64_t target = e->targets ? e->targets[row] : -1;

        mine[i] = look_at_row(value(e, inst->src[0]) + i * cols, cols, inst->row.first,
                              target);
    }
    if (inst->row.cut &&
        comm_run(e->comm, comm_all_gather(mine, all, rows * sizeof(*mine)), err) < 0)
        return -1;
    for (size_t i = 0; i < rows; i++) {
        struct row_part r = all[i];

        for (int k = 1; k < parts; k++) {
            const struct row_part *o = &all[(size_t)k * rows + i];
            double max = o->max > r.max ? o->max : r.max;

            if (o->max == -INFINITY)
                continue;
            r.sum = r.sum * exp(r.max - max) + o->sum * exp(o->max - max);
            r.index = o->max > r.max ? o->index : r.index;
            r.max = max;
            r.target = o->target > r.target ? o->target : r.target;
        }
        value(e, inst->dst)[i] = inst->op == OP_ARGMAX
                                     ? (float)r.index
                                     : (float)(r.max + log(r.sum) - r.target);
    }
    return 0;
}
