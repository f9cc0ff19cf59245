/* gp - Bayesian optimization with a Gaussian process
 *
 * Jones, Schonlau and Welch, "Efficient Global Optimization of Expensive Black-Box
 * Functions" (1998): the next point is where the loss is expected to fall furthest
 * below the least so far, in the logarithm (Ament et al., "Unexpected Improvements to
 * Expected Improvement", 2023).  Losses are first bent towards a normal distribution
 * (Yeo and Johnson, "A New Family of Power Transformations", 2000), as HEBO does
 * (Cowen-Rivers et al., 2022).  The first points are those of a Sobol sequence.
 *
 * A parameter that is not in force stands at the middle of its range, a choice at one
 * of its own.  Running trials are believed to end at the mean predicted for them
 * (Ginsbourger, Le Riche and Carraro, 2010).  An infeasible trial is as bad as the
 * worst. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/gaussian.h"
#include "lib/sweep/sampler/minimize.h"
#include "lib/sweep/sampler/qmc.h"
#include "lib/sweep/sampler/sampler.h"
#include "lib/sweep/sampler/sobol.h"

enum { SET_STARTUP, SET_FITTED };

static const struct setting settings[] = {
    [SET_STARTUP] = { .name = "startup",
                      .fallback = 10,
                      .min = 1,
                      .max = 1e9,
                      .integer = true,
                      .help = "complete trials drawn from a Sobol sequence first" },
    [SET_FITTED] = { .name = "fitted",
                     .fallback = 200,
                     .min = 10,
                     .max = 2000,
                     .integer = true,
                     .help = "trials the process is fitted to at most" },
    { .name = NULL },
};

enum {
    PRELIMINARY = 1500, /* points compared before any is improved */
    NEAR = 300,         /* besides, about the best trials */
    STARTS = 8,         /* of which so many are improved */
    ROUNDS = 6,
    ASCENT = 40,
    MANY_VALUES = 24, /* from here on a number is moved as if it were continuous */
};

static const double NOT_IN_FORCE = -1; /* a choice that no parameter has */

struct model {
    const struct space *space;
    size_t d; /* of the space's parameters that have more than one value */
    size_t *which;
    bool *choice;
    struct gaussian gaussian;
    double best;
    double *room;
};

/* U[d] of the point X. */
static void encode(const struct model *m, double *u, const double *x)
{
    for (size_t i = 0; i < m->d; i++) {
        const struct dist *dist = &m->space->params[m->which[i]].dist;
        double value = x[m->which[i]];

        if (m->choice[i])
            u[i] = isnan(value) ? NOT_IN_FORCE : value;
        else
            u[i] = isnan(value) ? 0.5 : space_to_unit(dist, value);
    }
}

/* log(phi(z) + z Phi(z)), and d of it by z; section 3 of Ament et al. */
static double log_improvement(double z, double *derivative)
{
    static const double log_sqrt_2pi = 0.91893853320467274178;
    static const double sqrt1_2 = 0.70710678118654752440;
    double phi = exp(-0.5 * z * z - log_sqrt_2pi), cdf, h, ratio;

    if (z > -1) {
        cdf = 0.5 * erfc(-z * sqrt1_2);
        h = phi + z * cdf;
        *derivative = cdf / h;
        return log(h);
    }
    if (z > -25) { /* in units of phi, with Mills' ratio Phi / phi */
        ratio = 0.5 * erfc(-z * sqrt1_2) / phi;
        h = 1 + z * ratio;
    } else { /* its asymptotic series */
        double s = 1 / (z * z);

        ratio = -1 / z * (1 - s * (1 - 3 * s * (1 - 5 * s)));
        h = s * (1 - 3 * s * (1 - 5 * s * (1 - 7 * s)));
    }
    *derivative = ratio / h;
    return log(h) - 0.5 * z * z - log_sqrt_2pi;
}

/* The logarithm of the expected improvement at U, and its gradient unless NULL. */
static double acquisition(const struct model *m, const double *u, double *gradient)
{
    const struct gaussian *g = &m->gaussian;
    double *dmean = gradient ? m->room + 2 * g->n : NULL;
    double *ddeviation = gradient ? dmean + m->d : NULL;
    double mean, deviation, z, slope, value;

    gaussian_predict(g, u, &mean, &deviation, dmean, ddeviation, m->room);
    z = (m->best - mean) / deviation;
    value = log_improvement(z, &slope) + log(deviation);
    for (size_t i = 0; gradient && i < m->d; i++)
        gradient[i] = slope * (-dmean[i] - z * ddeviation[i]) / deviation +
                      ddeviation[i] / deviation;
    return value;
}

static double value_at(const struct model *m, const double *x, double *u)
{
    encode(m, u, x);
    return acquisition(m, u, NULL);
}

/* Values of parameter I, or 0 when it is moved as if it were continuous. */
static size_t count_values(const struct model *m, size_t i)
{
    uint64_t n = space_count(&m->space->params[m->which[i]].dist);

    return m->choice[i] || n <= MANY_VALUES ? (size_t)n : 0;
}

static double nth_value(const struct dist *d, size_t k)
{
    return d->kind == DIST_CATEGORICAL ? (double)k : dist_nth(d, (double)k);
}

/* A branch that X enters anew stands in its middle. */
static void settle(const struct space *space, double *x)
{
    for (size_t i = 0; i < space->n; i++)
        if (!space_active(space, x, i))
            x[i] = NAN;
        else if (isnan(x[i]))
            x[i] = space_quantile(&space->params[i], 0.5);
}

struct climb {
    const struct model *m;
    double *u;         /* [d]: the point, of which some entries move */
    double *full;      /* [d]: room for its gradient */
    const size_t *way; /* which those are */
    size_t n;
};

static double climb_loss(void *context, const double *t, double *gradient)
{
    struct climb *c = context;
    double value;

    for (size_t i = 0; i < c->n; i++)
        c->u[c->way[i]] = t[i];
    value = acquisition(c->m, c->u, c->full);
    for (size_t i = 0; i < c->n; i++)
        gradient[i] = -c->full[c->way[i]];
    return isfinite(value) ? -value : INFINITY;
}

/* Move the continuous parameters of X uphill together. */
static void climb(const struct model *m, double *x, double *room)
{
    double *u = room, *full = u + m->d, *t = full + m->d, *low = t + m->d;
    double *high = low + m->d;
    size_t *way = xcalloc(m->d + 1, sizeof(*way));
    struct climb c = { .m = m, .u = u, .full = full, .way = way };

    encode(m, u, x);
    for (size_t i = 0; i < m->d; i++)
        if (!count_values(m, i) && !isnan(x[m->which[i]])) {
            t[c.n] = u[i];
            low[c.n] = 0;
            high[c.n] = 1;
            way[c.n++] = i;
        }
    if (c.n > 0)
        minimize(t, c.n, low, high, climb_loss, &c, 1e-9, ASCENT);
    for (size_t i = 0; i < c.n; i++) {
        size_t k = m->which[way[i]];

        x[k] = space_from_unit(&m->space->params[k].dist, t[i]);
    }
    settle(m->space, x); /* a number may have opened or closed a branch */
    free(way);
}

/* Try every value of each parameter that has few; returns whether X moved. */
static bool exchange(const struct model *m, double *x, double *value, double *room)
{
    size_t n = m->space->n;
    double *u = room, *trial = room + m->d;
    bool moved = false;

    for (size_t i = 0; i < m->d; i++) {
        size_t k = m->which[i], count = count_values(m, i);

        for (size_t v = 0; v < count && !isnan(x[k]); v++) {
            double found;

            memcpy(trial, x, n * sizeof(*x));
            trial[k] = nth_value(&m->space->params[k].dist, v);
            if (trial[k] == x[k])
                continue;
            settle(m->space, trial);
            found = value_at(m, trial, u);
            if (found > *value) {
                memcpy(x, trial, n * sizeof(*x));
                *value = found;
                moved = true;
            }
        }
    }
    return moved;
}

/* Improve X; returns the acquisition there. */
static double improve(const struct model *m, double *x)
{
    size_t n = m->space->n;
    double *room = xcalloc(6 * m->d + 2 * n + 1, sizeof(*room));
    double *trial = room + 5 * m->d + n, value = value_at(m, x, room);

    for (int round = 0; round < ROUNDS; round++) {
        double found;
        bool moved = false;

        memcpy(trial, x, n * sizeof(*x));
        climb(m, trial, room);
        found = value_at(m, trial, room);
        if (found > value) {
            moved = found > value + 1e-6;
            memcpy(x, trial, n * sizeof(*x));
            value = found;
        }
        moved = exchange(m, x, &value, room) || (moved && round == 0);
        if (!moved)
            break;
    }
    free(room);
    return value;
}

/* Yeo and Johnson's transformation with the power P. */
static double bend(double y, double p)
{
    if (y >= 0)
        return fabs(p) < 1e-6 ? log1p(y) : expm1(p * log1p(y)) / p;
    return fabs(p - 2) < 1e-6 ? -log1p(-y) : -expm1((2 - p) * log1p(-y)) / (2 - p);
}

static void standardize(double *y, size_t n)
{
    double mean = 0, square = 0;

    for (size_t i = 0; i < n; i++)
        mean += y[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        square += (y[i] - mean) * (y[i] - mean) / (double)n;
    for (size_t i = 0; i < n; i++)
        y[i] = square > 0 ? (y[i] - mean) / sqrt(square) : 0;
}

/* Make Y[n] as normal as a power can: the likelihood of each P, (3.1) of the paper. */
static void normalize(double *y, size_t n)
{
    double best = -INFINITY, power = 1;

    standardize(y, n);
    for (double p = -3; p <= 2; p += 0.125) {
        double mean = 0, square = 0, jacobian = 0, likelihood;

        for (size_t i = 0; i < n; i++) {
            mean += bend(y[i], p) / (double)n;
            jacobian += copysign(log1p(fabs(y[i])), y[i]);
        }
        for (size_t i = 0; i < n; i++)
            square += (bend(y[i], p) - mean) * (bend(y[i], p) - mean) / (double)n;
        likelihood = -0.5 * (double)n * log(square) + (p - 1) * jacobian;
        if (likelihood > best) {
            best = likelihood;
            power = p;
        }
    }
    for (size_t i = 0; i < n; i++)
        y[i] = bend(y[i], power);
    standardize(y, n);
}

struct ranked {
    const struct past *trial;
    double loss;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->loss != y->loss)
        return x->loss < y->loss ? -1 : 1;
    return x->trial < y->trial ? -1 : x->trial > y->trial;
}

static bool feasible(const struct past *t)
{
    return t->state == PAST_COMPLETE && !(t->violation > 0) && !isnan(t->loss[0]);
}

/* What there is to learn from, best first; returns how many.  Infinite losses are the
 * end of the finite ones, those of infeasible trials the worst of the feasible. */
static size_t observations(struct ranked *out, const struct history *h)
{
    double low = INFINITY, high = -INFINITY;
    size_t n = 0;

    for (size_t i = 0; i < h->n; i++)
        if (feasible(&h->trials[i]) && isfinite(h->trials[i].loss[0])) {
            low = fmin(low, h->trials[i].loss[0]);
            high = fmax(high, h->trials[i].loss[0]);
        }
    for (size_t i = 0; i < h->n; i++) {
        const struct past *t = &h->trials[i];

        if (!feasible(t) && !(t->violation > 0))
            continue;
        out[n].trial = t;
        out[n].loss = low > high ? (t->violation > 0 ? t->violation : t->loss[0] > 0)
                      : t->violation > 0 ? high
                                         : fmin(fmax(t->loss[0], low), high);
        n++;
    }
    qsort(out, n, sizeof(*out), compare_ranked);
    return n;
}

/* The points compared first; X[space->n] is one, drawn from the prior, or near one of
 * the best trials when R is not NULL. */
static void candidate(double *x, const struct model *m, const struct past *near,
                      struct rng *rng)
{
    sampler_prior(x, m->space, rng);
    for (size_t i = 0; near && i < m->d; i++) {
        size_t k = m->which[i];
        const struct dist *d = &m->space->params[k].dist;
        double u = rng_uniform(rng), z = rng_normal(rng);

        if (isnan(near->x[k]) || u * (double)m->d < 1 || (m->choice[i] && u > 0.8))
            continue; /* as drawn */
        x[k] = m->choice[i]
                   ? near->x[k]
                   : space_from_unit(
                         d, fmin(fmax(space_to_unit(d, near->x[k]) + 0.05 * z, 0), 1));
    }
    settle(m->space, x);
}

struct start {
    double value;
    double *x;
};

static int compare_starts(const void *a, const void *b)
{
    const struct start *x = a, *y = b;

    return x->value > y->value ? -1 : x->value < y->value;
}

/* X becomes the best point that is found. */
static void search(double *x, const struct model *m, const struct ranked *past,
                   size_t npast, struct rng *rng)
{
    enum { ALL = PRELIMINARY + NEAR + 1 };
    size_t n = m->space->n;
    struct start *all = xcalloc(ALL, sizeof(*all));
    double *points = xcalloc(ALL, (n + 1) * sizeof(*points));
    double *u = xcalloc(m->d + 1, sizeof(*u)), best = -INFINITY;

    for (size_t i = 0; i < ALL; i++) {
        const struct past *near =
            i < PRELIMINARY ? NULL
                            : past[(i - PRELIMINARY) % (npast < 5 ? npast : 5)].trial;

        all[i].x = points + i * n;
        if (i + 1 < ALL) {
            candidate(all[i].x, m, near, rng);
        } else {
            memcpy(all[i].x, past[0].trial->x, n * sizeof(*x));
            settle(m->space, all[i].x);
        }
        all[i].value = value_at(m, all[i].x, u);
    }
    qsort(all, ALL, sizeof(*all), compare_starts);
    for (size_t s = 0, i = 0; s < STARTS && i < ALL; s++) {
        double value = improve(m, all[i].x);

        if (value > best) {
            best = value;
            memcpy(x, all[i].x, n * sizeof(*x));
        }
        /* the next ones from ever farther down, so that they are not all in one place
         */
        i = s < 2 ? i + 1 : i * 2;
    }
    free(all);
    free(points);
    free(u);
}

/* Fit the process to the trials PAST[n] and those that run. */
static void fit(struct model *m, const struct history *h, const struct ranked *past,
                size_t n, double *x, double *y)
{
    struct gaussian first;
    size_t all = n;
    double deviation;

    for (size_t i = 0; i < n; i++) {
        encode(m, x + i * m->d, past[i].trial->x);
        y[i] = past[i].loss;
    }
    normalize(y, n);
    gaussian_fit(&first, x, y, n, m->choice, m->d);
    for (size_t i = 0; i < h->n; i++)
        if (h->trials[i].state == PAST_RUNNING) {
            encode(m, x + all * m->d, h->trials[i].x);
            gaussian_predict(&first, x + all * m->d, &y[all], &deviation, NULL, NULL,
                             m->room);
            all++;
        }
    gaussian_again(&m->gaussian, &first, x, y, all);
    gaussian_clear(&first);
    m->best = INFINITY;
    for (size_t i = 0; i < all; i++) {
        double mean;

        gaussian_predict(&m->gaussian, x + i * m->d, &mean, &deviation, NULL, NULL,
                         m->room);
        m->best = fmin(m->best, mean);
    }
}

/* Of more than MOST observations keep the best half, and of the others the newest. */
static size_t thin(struct ranked *past, size_t n, size_t most)
{
    size_t kept = most / 2;
    const struct past *oldest = NULL;

    if (n <= most)
        return n;
    /* The k-th newest of the rest, by repeated selection of the bar. */
    for (size_t left = most - kept; left > 0; left--) {
        const struct past *newest = NULL;

        for (size_t i = kept; i < n; i++)
            if ((!oldest || past[i].trial < oldest) && past[i].trial > newest)
                newest = past[i].trial;
        oldest = newest;
    }
    for (size_t i = most / 2; i < n; i++)
        if (past[i].trial >= oldest)
            past[kept++] = past[i];
    return kept;
}

static void draw_first(double *x, const struct sampler_task *task)
{
    const struct space *space = task->space;

    if (space->n > SOBOL_DIMS) {
        sampler_prior(x, space, task->rng);
        return;
    }
    for (size_t i = 0; i < space->n; i++)
        x[i] = space_quantile(&space->params[i],
                              qmc_sobol((uint64_t)task->number, i, &task->seed));
}

static int draw(double *x, struct sampler_note *note, const struct sampler_task *task)
{
    const struct history *h = task->history;
    struct model m = { .space = task->space };
    struct ranked *past = xcalloc(h->n + 1, sizeof(*past));
    size_t n = observations(past, h), running = 0;
    double *points, *losses;

    (void)note;
    m.which = xcalloc(task->space->n + 1, sizeof(*m.which));
    m.choice = xcalloc(task->space->n + 1, sizeof(*m.choice));
    for (size_t i = 0; i < task->space->n; i++)
        if (!dist_single(&task->space->params[i].dist)) {
            m.choice[m.d] = task->space->params[i].dist.kind == DIST_CATEGORICAL;
            m.which[m.d++] = i;
        }
    draw_first(x, task);
    if ((double)n >= task->set[SET_STARTUP] && m.d > 0) {
        n = thin(past, n, (size_t)task->set[SET_FITTED]);
        for (size_t i = 0; i < h->n; i++)
            running += h->trials[i].state == PAST_RUNNING;
        points = xcalloc(n + running + 1, m.d * sizeof(*points));
        losses = xcalloc(n + running + 1, sizeof(*losses));
        m.room = xcalloc(2 * (n + running + m.d) + 1, sizeof(*m.room));
        fit(&m, h, past, n, points, losses);
        search(x, &m, past, n, task->rng);
        gaussian_clear(&m.gaussian);
        free(points);
        free(losses);
        free(m.room);
    }
    free(m.which);
    free(m.choice);
    free(past);
    return 1;
}

const struct sampler sampler_gp = {
    .name = "gp",
    .summary = "Bayesian optimization with a Gaussian process",
    .settings = settings,
    .single_objective = true,
    .draw = draw,
};
