/* space - the parameters of a sweep: their values, prior shapes and conditions */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/space/space.h"
#include "lib/sweep/space/special.h"
#include "lib/sweep/space/truncnorm.h"

/* Values of a number on which others depend that are counted one by one. */
enum { MOST_VALUES = 1 << 20 };

static void param_clear(struct space_param *p)
{
    free(p->name);
    dist_clear(&p->dist);
    free(p->weights);
    free(p->when);
    free(p->ranges);
}

void space_clear(struct space *s)
{
    for (size_t i = 0; i < s->n; i++)
        param_clear(&s->params[i]);
    free(s->params);
    *s = (struct space){ 0 };
}

void space_add(struct space *s, const struct space_param *p)
{
    s->params = xgrow(s->params, &s->cap, s->n + 1, sizeof(*s->params));
    s->params[s->n++] = *p;
}

int space_find(const struct space *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->params[i].name, name))
            return (int)i;
    return -1;
}

/* Whether P is in force when its parent has VALUE. */
static bool meets(const struct space *s, const struct space_param *p, double value)
{
    if (isnan(value))
        return false;
    if (s->params[p->parent].dist.kind == DIST_CATEGORICAL)
        return p->when[(size_t)value];
    for (size_t i = 0; i < p->nranges; i++)
        if (value >= p->ranges[i].low && value <= p->ranges[i].high)
            return true;
    return false;
}

bool space_active(const struct space *s, const double *x, size_t i)
{
    const struct space_param *p = &s->params[i];

    return p->parent < 0 || meets(s, p, x[p->parent]);
}

void space_settle(const struct space *s, double *x)
{
    for (size_t i = 0; i < s->n; i++)
        if (!space_active(s, x, i))
            x[i] = NAN;
}

double space_to_scale(const struct dist *d, double value)
{
    return d->log ? log(value) : value;
}

double space_from_scale(const struct dist *d, double t)
{
    return space_nearest(d, d->log ? exp(t) : t);
}

void space_scale_bounds(const struct dist *d, double *low, double *high)
{
    double half = d->step / 2;

    if (d->kind == DIST_CATEGORICAL) {
        *low = -0.5;
        *high = (double)d->nchoices - 0.5;
        return;
    }
    *low = space_to_scale(d, d->low - half);
    *high = space_to_scale(d, d->high + half);
}

double space_to_unit(const struct dist *d, double value)
{
    double low, high;

    space_scale_bounds(d, &low, &high);
    return (space_to_scale(d, value) - low) / (high - low);
}

double space_from_unit(const struct dist *d, double u)
{
    double low, high;

    space_scale_bounds(d, &low, &high);
    return space_from_scale(d, low + u * (high - low));
}

double space_nearest(const struct dist *d, double value)
{
    if (d->kind == DIST_CATEGORICAL)
        return fmin(fmax(round(value), 0), (double)d->nchoices - 1);
    if (d->step > 0)
        value = dist_nth(d, floor((value - d->low) / d->step + 0.5));
    return fmin(fmax(value, d->low), d->high);
}

static double weighted_quantile(const struct space_param *p, double u)
{
    size_t last = 0;

    for (size_t i = 0; i < p->dist.nchoices; i++) {
        if (p->weights[i] <= 0)
            continue;
        last = i;
        u -= p->weights[i];
        if (u < 0)
            break;
    }
    return (double)last;
}

/* A normal prior is cut where its distribution ends. */
static double normal_quantile(const struct space_param *p, double u, bool logarithm)
{
    double low = p->dist.low, high = p->dist.high, t;

    if (logarithm) {
        low = log(fmax(low, 0x1p-1022));
        high = log(high);
    }
    t = p->a + p->b * truncnorm_quantile(u, (low - p->a) / p->b, (high - p->a) / p->b);
    return logarithm ? exp(t) : t;
}

double space_quantile(const struct space_param *p, double u)
{
    const struct dist *d = &p->dist;
    double low, high, value;

    switch (p->shape) {
    case SPACE_WEIGHTED:
        return weighted_quantile(p, u);
    case SPACE_NORMAL:
    case SPACE_LOGNORMAL:
        value = normal_quantile(p, u, p->shape == SPACE_LOGNORMAL || d->log);
        return space_nearest(d, value);
    case SPACE_BETA:
        return space_nearest(d, special_beta_quantile(u, p->a, p->b));
    case SPACE_LOG:
        low = log(p->a);
        return space_nearest(d, exp(low + u * (log(p->b) - low)));
    case SPACE_FLAT:
        break;
    }
    if (d->kind == DIST_CATEGORICAL)
        return fmin(floor(u * (double)d->nchoices), (double)d->nchoices - 1);
    space_scale_bounds(d, &low, &high);
    return space_from_scale(d, low + u * (high - low));
}

uint64_t space_count(const struct dist *d)
{
    double n;

    if (d->kind == DIST_CATEGORICAL)
        return d->nchoices;
    if (d->low == d->high)
        return 1;
    if (d->step <= 0)
        return 0;
    n = floor((d->high - d->low) / d->step + 0.5) + 1;
    return n < 0x1p53 ? (uint64_t)n : 0;
}

double space_nth(const struct dist *d, uint64_t k)
{
    if (d->kind == DIST_CATEGORICAL)
        return (double)k;
    return d->step > 0 ? dist_nth(d, (double)k) : d->low;
}

bool space_is_parent(const struct space *s, size_t i)
{
    for (size_t k = i + 1; k < s->n; k++)
        if (s->params[k].parent == (int)i)
            return true;
    return false;
}

/* Points of the parameters that depend on I, given I's value VALUE. */
static bool count_children(const struct space *s, size_t i, double value,
                           uint64_t *out);

/* Points of parameter I and all that depends on it; false when there is no end, or too
 * many values to look at. */
static bool count_param(const struct space *s, size_t i, uint64_t *out)
{
    const struct dist *d = &s->params[i].dist;
    uint64_t total = 0, children, n = space_count(d);

    if (!space_is_parent(s, i)) {
        *out = n;
        return n > 0;
    }
    if (!n || n > MOST_VALUES)
        return false;
    for (uint64_t k = 0; k < n; k++)
        if (!count_children(s, i, space_nth(d, k), &children) ||
            !mem_add(&total, total, children))
            return false;
    *out = total;
    return true;
}

static bool count_children(const struct space *s, size_t i, double value, uint64_t *out)
{
    uint64_t total = 1, one;

    for (size_t k = i + 1; k < s->n; k++)
        if (s->params[k].parent == (int)i && meets(s, &s->params[k], value))
            if (!count_param(s, k, &one) || !mem_mul(&total, total, one))
                return false;
    *out = total;
    return true;
}

uint64_t space_size(const struct space *s)
{
    uint64_t total = 1, one;

    for (size_t i = 0; i < s->n; i++)
        if (s->params[i].parent < 0)
            if (!count_param(s, i, &one) || !mem_mul(&total, total, one))
                return 0;
    return total;
}

static bool same_condition(const struct space *s, size_t i, size_t k)
{
    const struct space_param *p = &s->params[i], *q = &s->params[k];

    if (p->parent != q->parent)
        return false;
    if (p->parent < 0)
        return true;
    if (s->params[p->parent].dist.kind == DIST_CATEGORICAL)
        return !memcmp(p->when, q->when,
                       s->params[p->parent].dist.nchoices * sizeof(*p->when));
    if (p->nranges != q->nranges)
        return false;
    for (size_t r = 0; r < p->nranges; r++)
        if (p->ranges[r].low != q->ranges[r].low ||
            p->ranges[r].high != q->ranges[r].high)
            return false;
    return true;
}

size_t space_groups(const struct space *s, size_t *group)
{
    size_t n = 1;

    for (size_t i = 0; i < s->n; i++) {
        size_t k = 0;

        if (s->params[i].parent < 0) {
            group[i] = 0;
            continue;
        }
        while (k < i && !same_condition(s, i, k))
            k++;
        group[i] = k < i ? group[k] : n++;
    }
    return n;
}
