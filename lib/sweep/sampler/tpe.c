/* tpe - the tree-structured Parzen estimator
 *
 * Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NIPS 2011), with
 * the rules of Optuna 5.  Trials are split into the best ("below") and the others
 * ("above"); of 24 points drawn from the density of the first, the one whose ratio to
 * the density of the others is largest is tried.
 *
 * Parameters that every finished trial has share one multivariate density; each of the
 * others, those of a branch, has a density of its own, estimated from the trials that
 * have it.  With group=yes, parameters that are in force together share a density
 * instead, as with Optuna's group=True.  With several objectives every parameter has
 * its own.  Running trials count as bad ("constant liar"), so that workers in parallel
 * do not crowd one place. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/pareto.h"
#include "lib/sweep/sampler/parzen.h"
#include "lib/sweep/sampler/sampler.h"

enum { SET_STARTUP, SET_CANDIDATES, SET_GROUP };
enum { BELOW_MAX = 25 };

static const char *const no_yes[] = { "no", "yes", NULL };

static const struct setting settings[] = {
    [SET_STARTUP] = { .name = "startup",
                      .fallback = 10,
                      .min = 0,
                      .max = 1e9,
                      .integer = true,
                      .help = "finished trials drawn at random first" },
    [SET_CANDIDATES] = { .name = "candidates",
                         .fallback = 24,
                         .min = 1,
                         .max = 1e6,
                         .integer = true,
                         .help = "points compared for each trial" },
    [SET_GROUP] = { .name = "group",
                    .words = no_yes,
                    .help = "one density for all parameters of a branch: yes or no" },
    { .name = NULL },
};

/* Better trials sort first: complete by loss, pruned by how far and how well they
 * went, infeasible by violation. */
enum tier { TIER_COMPLETE, TIER_PRUNED, TIER_INFEASIBLE };

struct entry {
    const struct past *trial;
    enum tier tier;
    double first, second;
};

struct split {
    const struct past **below, **above; /* by ascending number */
    size_t nbelow, nabove;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->tier != y->tier)
        return x->tier < y->tier ? -1 : 1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->second != y->second)
        return x->second < y->second ? -1 : 1;
    return x->trial < y->trial ? -1 : x->trial > y->trial;
}

static struct entry rate(const struct past *t)
{
    struct entry e = { .trial = t };

    if (t->violation > 0) {
        e.tier = TIER_INFEASIBLE;
        e.first = t->violation;
    } else if (t->state == PAST_COMPLETE) {
        e.tier = TIER_COMPLETE;
        e.first = t->loss[0];
    } else {
        e.tier = TIER_PRUNED;
        e.first = t->last_step >= 0 ? -(double)t->last_step : 1;
        e.second = t->last_step < 0 ? 0 : isnan(t->last_loss) ? INFINITY : t->last_loss;
    }
    return e;
}

/* Whether T teaches the densities anything. */
static bool counts(const struct past *t)
{
    return t->state == PAST_COMPLETE || t->state == PAST_PRUNED || t->violation > 0;
}

/* With several objectives: bring the best WANTED of the N complete entries forward. */
static void best_first(struct entry *e, size_t n, size_t m, size_t wanted)
{
    double *losses = xcalloc(n, m * sizeof(*losses));
    size_t *chosen = xcalloc(n, sizeof(*chosen));

    for (size_t i = 0; i < n; i++) {
        memcpy(losses + i * m, e[i].trial->loss, m * sizeof(*losses));
        e[i].first = 1;
    }
    pareto_best(chosen, wanted, losses, n, m);
    for (size_t i = 0; i < wanted; i++)
        e[chosen[i]].first = 0;
    qsort(e, n, sizeof(*e), compare_entries);
    free(losses);
    free(chosen);
}

static int compare_trials(const void *a, const void *b)
{
    const struct past *const *x = a, *const *y = b;

    return *x < *y ? -1 : *x > *y; /* rows of one table, by number */
}

static void split_trials(struct split *s, const struct history *h)
{
    struct entry *e = xcalloc(h->n + 1, sizeof(*e));
    size_t n = 0, complete = 0, wanted;

    s->below = xcalloc(h->n + 1, sizeof(*s->below));
    s->above = xcalloc(h->n + 1, sizeof(*s->above));
    s->nbelow = s->nabove = 0;
    for (size_t i = 0; i < h->n; i++)
        if (counts(&h->trials[i]))
            e[n++] = rate(&h->trials[i]);
    qsort(e, n, sizeof(*e), compare_entries);
    while (complete < n && e[complete].tier == TIER_COMPLETE)
        complete++;
    wanted = (n + 9) / 10;
    if (h->nobjectives == 1 && wanted > BELOW_MAX)
        wanted = BELOW_MAX;
    if (h->nobjectives > 1 && wanted > 0 && wanted < complete)
        best_first(e, complete, h->nobjectives, wanted);
    for (size_t i = 0; i < n; i++) {
        if (i < wanted)
            s->below[s->nbelow++] = e[i].trial;
        else
            s->above[s->nabove++] = e[i].trial;
    }
    for (size_t i = 0; i < h->n; i++)
        if (h->trials[i].state == PAST_RUNNING)
            s->above[s->nabove++] = &h->trials[i];
    qsort(s->below, s->nbelow, sizeof(*s->below), compare_trials);
    qsort(s->above, s->nabove, sizeof(*s->above), compare_trials);
    free(e);
}

/* The estimator over the parameters WHICH[n] from those TRIALS that have them all. */
static void estimate(struct parzen *p, const struct past *const *trials, size_t ntrials,
                     const struct space *space, const size_t *which, size_t n,
                     bool even)
{
    const struct dist **dists = xcalloc(n, sizeof(*dists));
    double *x = xcalloc(ntrials + 1, n * sizeof(*x));
    size_t kept = 0;

    for (size_t i = 0; i < n; i++)
        dists[i] = &space->params[which[i]].dist;
    for (size_t t = 0; t < ntrials; t++) {
        bool all = true;

        for (size_t i = 0; i < n; i++) {
            x[kept * n + i] = trials[t]->x[which[i]];
            all = all && !isnan(x[kept * n + i]);
        }
        kept += all;
    }
    parzen_init(p, x, kept, dists, n, even);
    free(x);
    free(dists);
}

/* Choose the parameters WHICH[n] of X together. */
static void choose(double *x, const struct split *s, const size_t *which, size_t n,
                   const struct sampler_task *task)
{
    struct parzen below, above;
    double *point = xcalloc(n, sizeof(*point));
    double best = -INFINITY;
    bool even = task->history->nobjectives > 1;

    estimate(&below, s->below, s->nbelow, task->space, which, n, even);
    estimate(&above, s->above, s->nabove, task->space, which, n, false);
    for (int c = 0; c < (int)task->set[SET_CANDIDATES]; c++) {
        double score;

        parzen_draw(&below, point, task->rng);
        score = parzen_log_density(&below, point) - parzen_log_density(&above, point);
        if (c > 0 && !(score > best))
            continue;
        best = score;
        for (size_t i = 0; i < n; i++)
            x[which[i]] = point[i];
    }
    parzen_clear(&below);
    parzen_clear(&above);
    free(point);
}

static size_t finished(const struct history *h)
{
    size_t n = 0;

    for (size_t i = 0; i < h->n; i++)
        n += counts(&h->trials[i]);
    return n;
}

/* Whether every finished trial has parameter I. */
static bool in_all(const struct history *h, size_t i)
{
    for (size_t t = 0; t < h->n; t++)
        if (counts(&h->trials[t]) && isnan(h->trials[t].x[i]))
            return false;
    return true;
}

/* Which parameters share a density: writes the group of each to GROUP[n] and returns
 * the number of groups, of which some may be empty. */
static size_t group_params(size_t *group, const struct sampler_task *task)
{
    const struct space *space = task->space;
    size_t ngroups = 1;

    if (task->history->nobjectives == 1 && task->set[SET_GROUP] > 0)
        return space_groups(space, group);
    for (size_t i = 0; i < space->n; i++)
        group[i] =
            task->history->nobjectives == 1 && in_all(task->history, i) ? 0 : ngroups++;
    return ngroups;
}

/* A group is chosen even when it will not be in force: its numbers cost little, and
 * the caller leaves it out. */
static int draw(double *x, struct sampler_note *note, const struct sampler_task *task)
{
    const struct space *space = task->space;
    size_t *group, *which, ngroups;
    struct split split;

    (void)note;
    sampler_prior(x, space, task->rng);
    if ((double)finished(task->history) < task->set[SET_STARTUP] || !task->history->n)
        return 1;
    group = xcalloc(space->n + 1, sizeof(*group));
    which = xcalloc(space->n + 1, sizeof(*which));
    ngroups = group_params(group, task);
    split_trials(&split, task->history);
    for (size_t g = 0; g < ngroups; g++) {
        size_t n = 0;

        for (size_t i = 0; i < space->n; i++)
            if (group[i] == g && !dist_single(&space->params[i].dist))
                which[n++] = i;
        if (n > 0)
            choose(x, &split, which, n, task);
    }
    free(split.below);
    free(split.above);
    free(group);
    free(which);
    return 1;
}

const struct sampler sampler_tpe = {
    .name = "tpe",
    .summary = "tree-structured Parzen estimator",
    .settings = settings,
    .draw = draw,
};
