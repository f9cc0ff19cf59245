/* halving - asynchronous successive halving, alone and in Hyperband's brackets
 *
 * Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys 2020) and
 * "Hyperband" (JMLR 18, 2018).  At rung k, that is step resource * reduction^(rate +
 * k), a trial goes on only when it is among the best 1/reduction of those that got
 * there. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/sort.h"
#include "lib/base/str.h"
#include "lib/sweep/pruner/pruner.h"

struct halving {
    double resource; /* NaN: estimated from complete trials */
    double reduction, rate, bootstrap;
};

enum { SET_RESOURCE, SET_REDUCTION, SET_RATE, SET_BOOTSTRAP, SET_PROMOTE };

static const char *const no_yes[] = { "no", "yes", NULL };

static const struct setting halving_settings[] = {
    [SET_RESOURCE] = { .name = "resource",
                       .fallback = NAN,
                       .min = 1,
                       .max = 1e15,
                       .integer = true,
                       .help = "step of the first rung, or auto" },
    [SET_REDUCTION] = { .name = "reduction",
                        .fallback = 4,
                        .min = 2,
                        .max = 1e6,
                        .integer = true,
                        .help = "one in so many goes on" },
    [SET_RATE] = { .name = "rate",
                   .fallback = 0,
                   .min = 0,
                   .max = 1e3,
                   .integer = true,
                   .help = "rungs left out at the start" },
    [SET_BOOTSTRAP] = { .name = "bootstrap",
                        .fallback = 0,
                        .min = 0,
                        .max = 1e9,
                        .integer = true,
                        .help = "trials a rung needs to let one pass" },
    [SET_PROMOTE] = { .name = "promote",
                      .words = no_yes,
                      .help = "pause, and go on when a rung has enough others" },
    { .name = NULL },
};

/* The largest last step of a complete trial that PRUNER's bracket sees, -1 for none. */
static int64_t longest(const struct curve *trials, size_t n)
{
    int64_t last = -1;

    for (size_t i = 0; i < n; i++)
        if (trials[i].state == PAST_COMPLETE && trials[i].n > 0 &&
            trials[i].steps[trials[i].n - 1] > last)
            last = trials[i].steps[trials[i].n - 1];
    return last;
}

/* Whether LOSS passes RUNG among the trials TASK shows. */
static bool passes(const struct pruner_task *task, size_t rung, double value,
                   const struct halving *h)
{
    double *losses = xcalloc(task->n + 1, sizeof(*losses));
    double sign = task->maximize ? -1 : 1;
    size_t n = 0, at;
    bool pass;

    for (size_t i = 0; i < task->n; i++)
        if (task->trials[i].nrungs > rung && !task->trials[i].resumed &&
            task->trials[i].number != task->self->number)
            losses[n++] = sign * task->trials[i].rungs[rung];
    losses[n++] = sign * value;
    sort_doubles(losses, n);
    at = n / (size_t)h->reduction;
    pass = (double)n > h->bootstrap && sign * value <= losses[at > 0 ? at - 1 : 0];
    free(losses);
    return pass;
}

static void judge_rungs(struct pruner_verdict *v, const struct pruner_task *task,
                        const struct halving *h)
{
    const struct curve *self = task->self;
    int64_t step = self->steps[self->n - 1], last;
    double value = self->values[self->n - 1], resource = h->resource;
    size_t rung = self->nrungs;

    if (isnan(resource)) {
        last = longest(task->trials, task->n);
        if (last < 0)
            return;
        resource = fmax(floor((double)last / 100), 1);
    }
    v->first_rung = v->end_rung = (int)rung;
    v->rung_value = value;
    while ((double)step >= resource * pow(h->reduction, h->rate + (double)rung)) {
        v->prune = isnan(value);
        if (v->prune)
            return;
        v->end_rung = (int)rung + 1;
        v->prune = !passes(task, rung, value, h);
        if (v->prune)
            return;
        rung++;
    }
}

static void judge_halving(struct pruner_verdict *v, const struct pruner_task *task,
                          const double *set)
{
    struct halving h = { set[SET_RESOURCE], set[SET_REDUCTION], set[SET_RATE],
                         set[SET_BOOTSTRAP] };

    judge_rungs(v, task, &h);
}

static int check_halving(const double *set, struct err *err)
{
    return set[SET_PROMOTE] > 0 && isnan(set[SET_RESOURCE])
               ? err_set(err, ERR_USAGE,
                         "successive-halving: promote=yes takes resource=STEP, the "
                         "first rung")
               : 0;
}

static bool pauses(const double *set)
{
    return set[SET_PROMOTE] > 0;
}

struct ranked {
    double loss;
    const struct curve *trial;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->loss != y->loss)
        return x->loss < y->loss ? -1 : 1;
    return x->trial->number - y->trial->number;
}

/* Of those that were paused at RUNG, the best that is among the best 1/reduction of all
 * that got there. */
static const struct curve *promote_at(struct ranked *room,
                                      const struct pruner_task *task, const double *set,
                                      size_t rung)
{
    double sign = task->maximize ? -1 : 1;
    size_t n = 0;

    for (size_t i = 0; i < task->n; i++) {
        const struct curve *t = &task->trials[i];

        if (t->nrungs > rung && !t->resumed && !isnan(t->rungs[rung]))
            room[n++] = (struct ranked){ sign * t->rungs[rung], t };
    }
    qsort(room, n, sizeof(*room), compare_ranked);
    for (size_t i = 0;
         i < n / (size_t)set[SET_REDUCTION] && (double)n > set[SET_BOOTSTRAP]; i++)
        if (room[i].trial->resumable && room[i].trial->nrungs == rung + 1)
            return room[i].trial;
    return NULL;
}

/* Algorithm 2 of Li et al.: from the highest rung down. */
static const struct curve *promote(const struct pruner_task *task, const double *set)
{
    struct ranked *room = xcalloc(task->n + 1, sizeof(*room));
    const struct curve *next = NULL;
    size_t rungs = 0;

    for (size_t i = 0; i < task->n; i++)
        if (task->trials[i].nrungs > rungs)
            rungs = task->trials[i].nrungs;
    while (rungs-- > 0 && !next)
        next = promote_at(room, task, set, rungs);
    free(room);
    return next;
}

const struct pruner pruner_successive_halving = {
    .name = "successive-halving",
    .summary = "at growing steps, let the best part go on",
    .settings = halving_settings,
    .judge = judge_halving,
    .check = check_halving,
    .pauses = pauses,
    .promote = promote,
};

enum { BAND_RESOURCE, BAND_MAX, BAND_REDUCTION, BAND_BOOTSTRAP };

static const struct setting hyperband_settings[] = {
    [BAND_RESOURCE] = { .name = "resource",
                        .fallback = 1,
                        .min = 1,
                        .max = 1e15,
                        .integer = true,
                        .help = "step of the first rung" },
    [BAND_MAX] = { .name = "max",
                   .fallback = NAN,
                   .min = 1,
                   .max = 1e15,
                   .integer = true,
                   .help = "steps of a complete trial, or auto" },
    [BAND_REDUCTION] = { .name = "reduction",
                         .fallback = 3,
                         .min = 2,
                         .max = 1e6,
                         .integer = true,
                         .help = "one in so many goes on" },
    [BAND_BOOTSTRAP] = { .name = "bootstrap",
                         .fallback = 0,
                         .min = 0,
                         .max = 1e9,
                         .integer = true,
                         .help = "trials a rung needs to let one pass" },
    { .name = NULL },
};

/* Trials are dealt to brackets by a checksum of their name, in proportion to
 * ceil(brackets * reduction^s / (s + 1)), s the bracket's number from the end. */
static int bracket_of(const char *study_name, int number, int brackets,
                      double reduction)
{
    char *name = str_dupf("%s_%d", study_name, number);
    uint32_t crc = hash_crc32(0, name, strlen(name));
    double total = 0, at;
    int bracket = 0;

    free(name);
    for (int i = 0; i < brackets; i++)
        total += ceil(brackets * pow(reduction, brackets - 1 - i) / (brackets - i));
    at = fmod(crc, total);
    while (bracket + 1 < brackets) {
        at -= ceil(brackets * pow(reduction, brackets - 1 - bracket) /
                   (brackets - bracket));
        if (at < 0)
            break;
        bracket++;
    }
    return bracket;
}

static void judge_hyperband(struct pruner_verdict *v, const struct pruner_task *task,
                            const double *set)
{
    struct halving h = { set[BAND_RESOURCE], set[BAND_REDUCTION], 0,
                         set[BAND_BOOTSTRAP] };
    double most = set[BAND_MAX];
    struct curve *mine = xcalloc(task->n + 1, sizeof(*mine));
    struct pruner_task sub = *task;
    int brackets, bracket;

    if (isnan(most))
        most = (double)longest(task->trials, task->n) + 1;
    if (most < h.resource) /* no complete trial yet, or shorter than one rung */
        goto out;
    brackets = (int)floor(log(most / h.resource) / log(h.reduction)) + 1;
    bracket = bracket_of(task->study_name, task->self->number, brackets, h.reduction);
    h.rate = bracket;
    sub.trials = mine;
    sub.n = 0;
    for (size_t i = 0; i < task->n; i++)
        if (bracket_of(task->study_name, task->trials[i].number, brackets,
                       h.reduction) == bracket)
            mine[sub.n++] = task->trials[i];
    judge_rungs(v, &sub, &h);
out:
    free(mine);
}

const struct pruner pruner_hyperband = {
    .name = "hyperband",
    .summary = "successive halving with several first rungs side by side",
    .settings = hyperband_settings,
    .judge = judge_hyperband,
};
