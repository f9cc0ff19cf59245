/* cma-es - sampling by the covariance matrix adaptation evolution strategy
 *
 * Serves the numeric unconditional parameters, each scaled to [0, 1]; the others are
 * drawn from the prior.  The state is worked out anew by replaying the generations
 * that the trials carry, so a draw needs nothing but the study. */
#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/cma.h"
#include "lib/sweep/sampler/sampler.h"

enum { SET_POPULATION, SET_STARTUP, SET_SIGMA, SET_SEPARABLE };
/* With more parameters a covariance is not learnt within the trials one has: its
 * diagonal is, and takes no time. */
enum { SEPARABLE = 100 };

static const char *const separable[] = { "auto", "no", "yes", NULL };

static const struct setting settings[] = {
    [SET_POPULATION] = { .name = "population",
                         .fallback = NAN,
                         .min = 4,
                         .max = 1e6,
                         .integer = true,
                         .help = "trials of a generation, or auto" },
    [SET_STARTUP] = { .name = "startup",
                      .fallback = 1,
                      .min = 0,
                      .max = 1e9,
                      .integer = true,
                      .help = "trials drawn at random first" },
    [SET_SIGMA] = { .name = "sigma",
                    .fallback = 1.0 / 6,
                    .min = 1e-10,
                    .max = 1,
                    .help = "first step size, as a part of the range" },
    [SET_SEPARABLE] = { .name = "separable",
                        .words = separable,
                        .help = "learn no correlations: auto (above 100 parameters), "
                                "yes or no" },
    { .name = NULL },
};

static bool serves(const struct space_param *p)
{
    return p->dist.kind != DIST_CATEGORICAL && p->parent < 0 && !dist_single(&p->dist);
}

static bool has_all(const struct past *t, const size_t *which, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(t->x[which[i]]))
            return false;
    return true;
}

/* Tell S one generation after another, as long as they are full.  Generations overlap
 * when workers run in parallel, so each is looked for from the first trial that is of
 * it or of a later one. */
static void replay(struct cma *s, const struct history *h, const struct space *space,
                   const size_t *which)
{
    double *points = xcalloc(s->population, s->n * sizeof(*points));
    double *losses = xcalloc(s->population, sizeof(*losses));
    size_t count, begin = 0;

    do {
        size_t next = h->n;

        count = 0;
        for (size_t i = begin; i < h->n && count < s->population; i++) {
            const struct past *t = &h->trials[i];

            if (t->state != PAST_COMPLETE || t->generation < s->generation)
                continue;
            if (next == h->n)
                next = i; /* the generations to come begin here or later */
            if (t->generation != s->generation || !has_all(t, which, s->n))
                continue;
            for (size_t k = 0; k < s->n; k++)
                points[count * s->n + k] =
                    space_to_unit(&space->params[which[k]].dist, t->x[which[k]]);
            losses[count++] = t->loss[0];
        }
        begin = next;
        if (count == s->population)
            cma_tell(s, points, losses);
    } while (count == s->population);
    free(points);
    free(losses);
}

static int check(const struct space *space, const double *set, struct err *err)
{
    (void)set;
    for (size_t i = 0; i < space->n; i++)
        if (serves(&space->params[i]))
            return 0;
    return err_set(err, ERR_USAGE, "cma-es needs a numeric parameter");
}

static int draw(double *x, struct sampler_note *note, const struct sampler_task *task)
{
    const struct space *space = task->space;
    size_t *which = xcalloc(space->n + 1, sizeof(*which)), n = 0, complete = 0;
    double *unit = xcalloc(space->n + 1, sizeof(*unit));
    double population = task->set[SET_POPULATION];
    struct cma state;

    sampler_prior(x, space, task->rng);
    for (size_t i = 0; i < space->n; i++)
        if (serves(&space->params[i]))
            which[n++] = i;
    for (size_t i = 0; i < task->history->n; i++)
        complete += task->history->trials[i].state == PAST_COMPLETE;
    if ((double)complete < task->set[SET_STARTUP] || n == 0)
        goto out;
    for (size_t i = 0; i < n; i++)
        unit[i] = 0.5;
    cma_init(&state, n, unit, task->set[SET_SIGMA],
             isnan(population) ? 0 : (size_t)population,
             task->set[SET_SEPARABLE] > 0 ? task->set[SET_SEPARABLE] > 1
                                          : n > SEPARABLE);
    replay(&state, task->history, space, which);
    cma_ask(&state, unit, 10 * (int)n, task->rng);
    for (size_t i = 0; i < n; i++)
        x[which[i]] = space_from_unit(&space->params[which[i]].dist, unit[i]);
    note->generation = state.generation;
    cma_clear(&state);
out:
    free(which);
    free(unit);
    return 1;
}

const struct sampler sampler_cma_es = {
    .name = "cma-es",
    .summary = "covariance matrix adaptation evolution strategy",
    .settings = settings,
    .generation_key = "cma:generation",
    .single_objective = true,
    .check = check,
    .draw = draw,
};
