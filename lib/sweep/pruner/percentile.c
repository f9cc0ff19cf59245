/* percentile - pruning by comparison with finished trials or with fixed limits
 *
 * The median pruner is the percentile pruner at 50 (Golovin et al., "Google Vizier",
 * KDD 2017: the median stopping rule, on the best value so far). */
#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/base/sort.h"
#include "lib/sweep/pruner/pruner.h"

/* The percentile settings; the median's are the same without the last. */
enum { SET_STARTUP, SET_WARMUP, SET_INTERVAL, SET_TRIALS, SET_PERCENTILE };

#define STARTUP                                                                  \
    {                                                                            \
        .name = "startup", .fallback = 5, .min = 0, .max = 1e9, .integer = true, \
        .help = "complete trials before any is pruned"                           \
    }
#define WARMUP                                                                   \
    {                                                                            \
        .name = "warmup", .fallback = 0, .min = 0, .max = 1e15, .integer = true, \
        .help = "first step at which to prune"                                   \
    }
#define INTERVAL                                                                   \
    {                                                                              \
        .name = "interval", .fallback = 1, .min = 1, .max = 1e15, .integer = true, \
        .help = "steps between two checks"                                         \
    }
#define TRIALS                                                                  \
    {                                                                           \
        .name = "trials", .fallback = 1, .min = 1, .max = 1e9, .integer = true, \
        .help = "complete trials that must have reported this step"             \
    }

static const struct setting median_settings[] = {
    [SET_STARTUP] = STARTUP, [SET_WARMUP] = WARMUP, [SET_INTERVAL] = INTERVAL,
    [SET_TRIALS] = TRIALS,   { .name = NULL },
};

static const struct setting percentile_settings[] = {
    [SET_STARTUP] = STARTUP,
    [SET_WARMUP] = WARMUP,
    [SET_INTERVAL] = INTERVAL,
    [SET_TRIALS] = TRIALS,
    [SET_PERCENTILE] = { .name = "percentile",
                         .fallback = 25,
                         .min = 0,
                         .max = 100,
                         .help = "part of the trials, in percent, that is kept" },
    { .name = NULL },
};

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Checks happen once per interval of steps: at the first report inside it. */
static bool due(const struct curve *self, int64_t warmup, int64_t interval)
{
    int64_t step = self->steps[self->n - 1], start;
    int64_t before = self->n > 1 ? self->steps[self->n - 2] : -1;

    if (step < warmup)
        return false;
    start = floor_div(step - warmup, interval) * interval + warmup;
    return (before > -1 ? before : -1) < start;
}

/* The P-th percentile of V[n], which is sorted here, interpolated linearly. */
static double percentile(double *v, size_t n, double p)
{
    double at = p / 100 * (double)(n - 1), part;
    size_t i = (size_t)floor(at);

    sort_doubles(v, n);
    part = at - (double)i;
    return part > 0 ? v[i] + (v[i + 1] - v[i]) * part : v[i];
}

/* The percentile of what the complete trials reported at STEP, as losses; NaN when
 * fewer than LEAST did. */
static double percentile_at(const struct pruner_task *task, int64_t step, double p,
                            double least)
{
    double *losses = xcalloc(task->n + 1, sizeof(*losses)), out = NAN;
    size_t n = 0, reported = 0;

    for (size_t i = 0; i < task->n; i++) {
        const struct curve *c = &task->trials[i];
        size_t low = 0, high = c->n;

        if (c->state != PAST_COMPLETE)
            continue;
        while (low < high) {
            size_t mid = low + (high - low) / 2;

            if (c->steps[mid] < step)
                low = mid + 1;
            else
                high = mid;
        }
        if (low == c->n || c->steps[low] != step)
            continue;
        reported++;
        if (!isnan(c->values[low]))
            losses[n++] = task->maximize ? -c->values[low] : c->values[low];
    }
    if ((double)reported >= least && n > 0)
        out = percentile(losses, n, p);
    free(losses);
    return out;
}

static void judge(struct pruner_verdict *v, const struct pruner_task *task,
                  const double *set, double p)
{
    const struct curve *self = task->self;
    size_t complete = 0;
    double best = NAN, bar;

    for (size_t i = 0; i < task->n; i++)
        complete += task->trials[i].state == PAST_COMPLETE;
    if (complete == 0 || (double)complete < set[SET_STARTUP] ||
        !due(self, (int64_t)set[SET_WARMUP], (int64_t)set[SET_INTERVAL]))
        return;
    for (size_t i = 0; i < self->n; i++)
        best = fmin(best, task->maximize ? -self->values[i] : self->values[i]);
    bar = percentile_at(task, self->steps[self->n - 1], p, set[SET_TRIALS]);
    v->prune = isnan(best) || best > bar; /* a bar of NaN prunes nothing */
}

static void judge_median(struct pruner_verdict *v, const struct pruner_task *task,
                         const double *set)
{
    judge(v, task, set, 50);
}

static void judge_percentile(struct pruner_verdict *v, const struct pruner_task *task,
                             const double *set)
{
    judge(v, task, set, set[SET_PERCENTILE]);
}

const struct pruner pruner_median = {
    .name = "median",
    .summary = "stop what is worse than the median of complete trials at its step",
    .settings = median_settings,
    .judge = judge_median,
};

const struct pruner pruner_percentile = {
    .name = "percentile",
    .summary = "the same with another percentile than 50",
    .settings = percentile_settings,
    .judge = judge_percentile,
};

enum { LIMIT_LOWER, LIMIT_UPPER, LIMIT_WARMUP, LIMIT_INTERVAL };

static const struct setting threshold_settings[] = {
    [LIMIT_LOWER] = { .name = "lower",
                      .fallback = -INFINITY,
                      .min = -INFINITY,
                      .max = INFINITY,
                      .help = "stop below this value" },
    [LIMIT_UPPER] = { .name = "upper",
                      .fallback = INFINITY,
                      .min = -INFINITY,
                      .max = INFINITY,
                      .help = "stop above this value" },
    [LIMIT_WARMUP] = WARMUP,
    [LIMIT_INTERVAL] = INTERVAL,
    { .name = NULL },
};

static void judge_threshold(struct pruner_verdict *v, const struct pruner_task *task,
                            const double *set)
{
    const struct curve *self = task->self;
    double latest = self->values[self->n - 1];

    if (due(self, (int64_t)set[LIMIT_WARMUP], (int64_t)set[LIMIT_INTERVAL]))
        v->prune = !(latest >= set[LIMIT_LOWER] && latest <= set[LIMIT_UPPER]);
}

const struct pruner pruner_threshold = {
    .name = "threshold",
    .summary = "stop what is not a number or leaves [lower, upper]",
    .settings = threshold_settings,
    .judge = judge_threshold,
};
