/* norm-back - gradients of norms and of their weights */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/reverse/gradient.h"

/* Mean and factor of each group, as in the forward pass: from the sums over all ranks,
 * or if SQUARES is NULL from the columns of X.  One allocation, returned. */
static double *norm_statistics(struct device *d, const struct inst *inst,
                               const float *x, size_t groups, const double *squares,
                               const double *sum, double **factor, struct err *err)
{
    double whole = (double)inst->norm.whole_width;
    double *mean = cpu_take(d, (2 * groups + 1) * sizeof(*mean), "row statistics", err);

    if (!mean)
        return NULL;
    *factor = mean + groups;
    memset(mean, 0, groups * sizeof(*mean));
    if (squares) {
        for (size_t i = 0; i < groups && inst->norm.centred; i++)
            mean[i] = sum[i] / whole;
        memcpy(*factor, squares, groups * sizeof(*mean));
    } else {
        if (inst->norm.centred)
            cpu_group_sum(d, mean, x, inst->norm.width, NULL, groups, inst->norm.width);
        for (size_t i = 0; i < groups; i++)
            mean[i] /= whole;
        cpu_group_sum(d, *factor, x, inst->norm.width, mean, groups, inst->norm.width);
    }
    for (size_t i = 0; i < groups; i++)
        (*factor)[i] = 1 / sqrt((*factor)[i] / whole + inst->norm.eps);
    return mean;
}

struct norm {
    float *y;
    const float *d, *x, *w; /* w [period], or NULL: ones */
    double *mean, *factor;
    double *terms; /* [groups][2]: sums of a xh, and of a, where a = d (w + plus) */
    size_t width, period;
    double plus, whole;
    bool centred, corrects; /* this rank's columns are counted */
};

static double scaled(const struct norm *n, size_t at)
{
    return (double)n->d[at] * (n->w ? (double)n->w[at % n->period] + n->plus : 1);
}

static void norm_terms(void *arg, size_t task, int thread)
{
    const struct norm *n = arg;
    double by = 0, sum = 0;

    (void)thread;
    for (size_t i = 0; i < n->width; i++) {
        size_t at = task * n->width + i;
        double a = scaled(n, at);

        by += a * ((double)n->x[at] - n->mean[task]) * n->factor[task];
        sum += a;
    }
    n->terms[2 * task] = by;
    n->terms[2 * task + 1] = sum;
}

/* dx = r (a - [mean(a)] - xh mean(a xh)) */
static void norm_back(void *arg, size_t task, int thread)
{
    const struct norm *n = arg;
    double r = n->factor[task], by = 0, sum = 0;

    (void)thread;
    if (n->corrects) {
        by = n->terms[2 * task] / n->whole;
        sum = n->centred ? n->terms[2 * task + 1] / n->whole : 0;
    }
    for (size_t i = 0; i < n->width; i++) {
        size_t at = task * n->width + i;
        double xh = ((double)n->x[at] - n->mean[task]) * r;

        n->y[at] = (float)(r * (scaled(n, at) - sum - xh * by));
    }
}

/* Fills N for CALL's d and a; SQUARES and SUM are the sums over all ranks, or NULL. The
 * caller frees *wide and n->mean. */
static int open_norm(struct norm *n, struct device *d, const struct call *c,
                     size_t *groups, float **wide, const double *squares,
                     const double *sum, struct err *err)
{
    const struct inst *inst = c->inst;
    size_t rows = gradient_rows(&c->x[0]);

    *n = (struct norm){ .d = c->x[0].data,
                        .x = c->x[1].data,
                        .width = inst->norm.width,
                        .plus = inst->norm.plus_one,
                        .whole = (double)inst->norm.whole_width,
                        .centred = inst->norm.centred,
                        .corrects = inst->norm.owned };
    *wide = NULL;
    *groups = squares ? rows : rows * c->x[1].cols / inst->norm.width;
    n->mean = norm_statistics(d, inst, n->x, *groups, squares, sum, &n->factor, err);
    if (!n->mean)
        return -1;
    if (c->w) {
        n->period = c->w->cols;
        *wide = cpu_take(d, (n->period + 1) * sizeof(**wide), "a norm's weight", err);
        if (!*wide) {
            cpu_give(d, n->mean);
            return -1;
        }
        n->w = cpu_widen(c->w, 0, n->period, *wide);
    }
    return 0;
}

int kernel_norm_back(struct device *d, const struct call *c, struct err *err)
{
    struct norm n;
    size_t groups;
    float *wide;
    int ret = -1;

    if (open_norm(&n, d, c, &groups, &wide, NULL, NULL, err) < 0)
        return -1;
    n.y = c->y.data;
    n.terms = cpu_take(d, (2 * groups + 1) * sizeof(*n.terms), "row statistics", err);
    if (n.terms) {
        cpu_parallel(d, groups, norm_terms, &n);
        cpu_parallel(d, groups, norm_back, &n);
        ret = 0;
    }
    cpu_give(d, n.terms);
    cpu_give(d, n.mean);
    cpu_give(d, wide);
    return ret;
}

int kernel_norm_terms(struct device *d, const struct call *c, struct err *err)
{
    struct norm n;
    size_t groups;
    float *wide;

    if (open_norm(&n, d, c, &groups, &wide, c->x[2].data, c->x[3].data, err) < 0)
        return -1;
    n.terms = c->y.data;
    cpu_parallel(d, groups, norm_terms, &n);
    cpu_give(d, n.mean);
    cpu_give(d, wide);
    return 0;
}

int kernel_norm_apply_back(struct device *d, const struct call *c, struct err *err)
{
    struct norm n;
    size_t groups;
    float *wide;

    if (open_norm(&n, d, c, &groups, &wide, c->x[3].data, c->x[4].data, err) < 0)
        return -1;
    n.y = c->y.data;
    n.terms = c->x[2].data;
    cpu_parallel(d, groups, norm_back, &n);
    cpu_give(d, n.mean);
    cpu_give(d, wide);
    return 0;
}

/* Column k of the weight applies to columns k, k + period, ... of each row. */
static void add_normed(void *arg, size_t task, int thread)
{
    const struct gradient_columns *s = arg;
    size_t end, first = gradient_span(task, GRADIENT_COLS, s->period, &end);
    double sum[GRADIENT_COLS] = { 0 };

    (void)thread;
    for (size_t at = 0; at < s->rows * s->cols; at += s->period)
        for (size_t k = first; k < end; k++) {
            size_t group = (at + k) / s->width;

            sum[k - first] += (double)s->d[at + k] *
                              ((double)s->x[at + k] - s->mean[group]) *
                              s->factor[group];
        }
    for (size_t k = first; k < end; k++)
        s->y[k] += (float)sum[k - first];
}

int kernel_norm_weight(struct device *d, const struct call *c, struct err *err)
{
    struct norm n;
    size_t groups;
    struct gradient_columns s;
    float *wide;

    if (!c->w->cols)
        return 0;
    if (open_norm(&n, d, c, &groups, &wide, c->x[2].data, c->x[3].data, err) < 0)
        return -1;
    s = (struct gradient_columns){ .y = c->y.data,
                                   .d = n.d,
                                   .x = n.x,
                                   .rows = gradient_rows(&c->x[0]),
                                   .cols = c->x[1].cols,
                                   .mean = n.mean,
                                   .factor = n.factor,
                                   .width = n.width,
                                   .period = n.period };
    cpu_parallel(d, gradient_blocks(s.period, GRADIENT_COLS), add_normed, &s);
    cpu_give(d, n.mean);
    cpu_give(d, wide);
    return 0;
}
