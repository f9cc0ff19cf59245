/* pedanova - how much each parameter matters to being among the best */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/sort.h"
#include "lib/sweep/sampler/pedanova.h"
#include "lib/sweep/sampler/pareto.h"
#include "lib/sweep/space/truncnorm.h"

enum { GRID_STEPS = 50, REGIME_LEAST = 2 };

static const double TOP = 0.1; /* the part of the trials that are the best */
static const double TINY = 1e-12;

/* The complete trials, and which of them are among the best. */
struct sample {
    const struct past **trials; /* [n] */
    bool *top;                  /* [n] */
    size_t n, ntop;
};

/* All at or below the loss of the last of the best tenth. */
static void top_by_loss(struct sample *s, size_t objective, size_t wanted)
{
    double *losses = xcalloc(s->n, sizeof(*losses)), bar;

    for (size_t i = 0; i < s->n; i++)
        losses[i] = s->trials[i]->loss[objective];
    sort_doubles(losses, s->n);
    bar = losses[wanted - 1];
    for (size_t i = 0; i < s->n; i++)
        s->top[i] = s->trials[i]->loss[objective] <= bar;
    free(losses);
}

/* The best tenth by Pareto rank; ties by what they add to the hypervolume. */
static void top_by_rank(struct sample *s, size_t m, size_t wanted)
{
    double *losses = xcalloc(s->n, m * sizeof(*losses));
    size_t *chosen = xcalloc(s->n, sizeof(*chosen));

    for (size_t i = 0; i < s->n; i++)
        memcpy(losses + i * m, s->trials[i]->loss, m * sizeof(*losses));
    pareto_best(chosen, wanted, losses, s->n, m);
    for (size_t i = 0; i < wanted; i++)
        s->top[chosen[i]] = true;
    free(losses);
    free(chosen);
}

static void take_sample(struct sample *s, const struct history *h, int objective)
{
    size_t wanted;

    *s = (struct sample){ 0 };
    s->trials = xcalloc(h->n + 1, sizeof(*s->trials));
    s->top = xcalloc(h->n + 1, sizeof(*s->top));
    for (size_t i = 0; i < h->n; i++) {
        const struct past *t = &h->trials[i];
        bool finite = t->state == PAST_COMPLETE;

        for (size_t c = 0; finite && c < h->nobjectives; c++)
            if (objective < 0 || (size_t)objective == c)
                finite = isfinite(t->loss[c]);
        if (finite)
            s->trials[s->n++] = t;
    }
    if (!s->n)
        return;
    wanted = (size_t)ceil(TOP * (double)s->n);
    if (objective < 0 && h->nobjectives > 1)
        top_by_rank(s, h->nobjectives, wanted);
    else
        top_by_loss(s, objective < 0 ? 0 : (size_t)objective, wanted);
    for (size_t i = 0; i < s->n; i++)
        s->ntop += s->top[i];
}

/* Points of the grid on which the densities of D are compared. */
static size_t grid_size(const struct dist *d)
{
    double n = GRID_STEPS;

    if (d->kind == DIST_CATEGORICAL)
        return d->nchoices;
    if (d->kind == DIST_INT && d->log)
        n = ceil(log(d->high - d->low + 1) / log(2)) + 1;
    else if (d->step > 0)
        n = nearbyint((d->high - d->low) / d->step) + 1;
    return (size_t)fmin(n, GRID_STEPS);
}

static size_t grid_index(const struct dist *d, double value, size_t size)
{
    double low, high, step;

    if (d->kind == DIST_CATEGORICAL)
        return (size_t)value;
    low = space_to_scale(d, d->low);
    high = space_to_scale(d, d->high);
    step = (high - low) / (double)(size - 1);
    value = ceil((space_to_scale(d, value) - low) / step - 0.5);
    return (size_t)fmin(fmax(value, 0), (double)size - 1);
}

/* Scott's rule on the counts, with the interquartile range; section 4 of the paper. */
static double scott_width(const double *at, const double *weight, size_t n)
{
    double total = 0, mean = 0, square = 0, sum = 0, iqr, sigma, q1, q3;
    size_t i1 = n, i3 = n;

    for (size_t i = 0; i < n; i++) {
        total += weight[i];
        mean += weight[i] * at[i];
    }
    mean /= total;
    q1 = floor(total / 4);
    q3 = floor(total * 3 / 4);
    for (size_t i = 0; i < n; i++) {
        square += weight[i] * (at[i] - mean) * (at[i] - mean);
        sum += weight[i];
        if (i1 == n && sum >= q1)
            i1 = i;
        if (i3 == n && sum > q3)
            i3 = i;
    }
    sigma = sqrt(square / fmax(1, total - 1));
    iqr = at[i3 < n ? i3 : n - 1] - at[i1];
    sigma = 1.059 * fmin(iqr / 1.34, sigma) * pow(total, -0.2);
    return fmax(sigma, 0.5 / 1.64);
}

static void numeric_density(double *out, const double *count, size_t size)
{
    double *at = xcalloc(size, sizeof(*at)), *weight = xcalloc(size, sizeof(*weight));
    double total = 1, width, last = (double)size - 1;
    size_t n = 0;

    for (size_t g = 0; g < size; g++)
        if (count[g] > 0) {
            at[n] = (double)g;
            weight[n++] = count[g];
            total += count[g];
        }
    width = scott_width(at, weight, n);
    for (size_t g = 0; g < size; g++) {
        double x = (double)g, mu = last / 2, sigma = last + 1;

        out[g] =
            exp(truncnorm_log_mass((x - 0.5 - mu) / sigma, (x + 0.5 - mu) / sigma) -
                truncnorm_log_mass((-0.5 - mu) / sigma, (last + 0.5 - mu) / sigma)) /
            total;
        for (size_t k = 0; k < n; k++) {
            double z = 1 / width, left = (x - 0.5 - at[k]) * z;
            double mass = truncnorm_log_mass(left, left + z);
            double all =
                truncnorm_log_mass((-0.5 - at[k]) * z, (last + 0.5 - at[k]) * z);

            out[g] += weight[k] / total * exp(mass - all);
        }
    }
    free(at);
    free(weight);
}

/* The prior is spread evenly, and so is a share of each kernel. */
static void choice_density(double *out, const double *count, size_t size)
{
    double total = 1, kernels = 1, share, sum;

    for (size_t g = 0; g < size; g++) {
        total += count[g];
        kernels += count[g] > 0;
    }
    share = 1 / kernels;
    sum = 1 + share * (double)size;
    for (size_t g = 0; g < size; g++) {
        out[g] = 1 / (double)size / total;
        for (size_t k = 0; k < size; k++)
            out[g] += count[k] / total * ((k == g) + share) / sum;
    }
}

/* DENSITY[size] of parameter I over the trials of S, or over the best of them. */
static void density(double *out, const struct sample *s, const struct dist *d, size_t i,
                    size_t size, bool top)
{
    double *count = xcalloc(size, sizeof(*count));

    for (size_t t = 0; t < s->n; t++)
        if (!isnan(s->trials[t]->x[i]) && (!top || s->top[t]))
            count[grid_index(d, s->trials[t]->x[i], size)]++;
    if (d->kind == DIST_CATEGORICAL)
        choice_density(out, count, size);
    else
        numeric_density(out, count, size);
    free(count);
}

/* Pearson's divergence of the best's density from all trials', sum p (q/p - 1)^2. */
static double divergence(const struct sample *s, const struct dist *d, size_t i)
{
    size_t size = grid_size(d);
    double *best = xcalloc(size, sizeof(*best)), *all = xcalloc(size, sizeof(*all));
    double sum = 0;

    density(best, s, d, i, size, true);
    density(all, s, d, i, size, false);
    for (size_t g = 0; g < size; g++) {
        double ratio = (best[g] + TINY) / (all[g] + TINY) - 1;

        sum += (all[g] + TINY) * ratio * ratio;
    }
    free(best);
    free(all);
    return sum;
}

/* A parameter that only some trials have is weighed by how much oftener the best have
 * it. */
static double one_importance(const struct sample *s, const struct dist *d, size_t i)
{
    size_t have = 0, top_have = 0;
    double top_part, part, quantile = (double)s->ntop / (double)s->n;

    for (size_t t = 0; t < s->n; t++) {
        have += !isnan(s->trials[t]->x[i]);
        top_have += !isnan(s->trials[t]->x[i]) && s->top[t];
    }
    if (have < REGIME_LEAST || !top_have || dist_single(d))
        return 0;
    top_part = (double)top_have / (double)s->ntop;
    part = (double)have / (double)s->n;
    return top_part * top_part / part * divergence(s, d, i) * quantile * quantile;
}

void pedanova_importance(double *out, const struct history *h,
                         const struct space *space, int objective, bool normalized)
{
    struct sample s;
    double sum = 0;

    take_sample(&s, h, objective);
    for (size_t i = 0; i < space->n; i++) {
        out[i] = s.n > 1 ? one_importance(&s, &space->params[i].dist, i) : 0;
        sum += out[i];
    }
    for (size_t i = 0; normalized && s.n > 1 && i < space->n; i++)
        out[i] = sum > 0 ? out[i] / sum : 1.0 / (double)space->n;
    free(s.trials);
    free(s.top);
}
