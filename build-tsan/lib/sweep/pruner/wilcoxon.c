/* wilcoxon - pruning by the signed-rank test against the best trial
 *
 * Wilcoxon, "Individual Comparisons by Ranking Methods" (1945).  The values are scores
 * of the same instances, in whatever order: those that the trial and the best complete
 * one both have are paired by their step.  Ties and zeros are treated as in SciPy's
 * wilcoxon with zero_method="zsplit", which Optuna asks. */
#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/sweep/pruner/pruner.h"

enum { SET_P, SET_STARTUP };
enum {
    EXACT = 50,
    EXACT_TIED = 13
}; /* up to so many pairs there is no approximation */

static const struct setting settings[] = {
    [SET_P] = { .name = "p",
                .fallback = 0.1,
                .min = 0,
                .max = 1,
                .help = "stop where the chance of being no worse is below this" },
    [SET_STARTUP] = { .name = "startup",
                      .fallback = 2,
                      .min = 0,
                      .max = 1e9,
                      .integer = true,
                      .help = "pairs before a trial is stopped" },
    { .name = NULL },
};

struct pair {
    double gap;     /* the trial's loss less the best one's */
    int twice_rank; /* midranks are halves */
};

static int compare_pairs(const void *a, const void *b)
{
    double x = fabs(((const struct pair *)a)->gap);
    double y = fabs(((const struct pair *)b)->gap);

    return x < y ? -1 : x > y;
}

/* Give V[n] their ranks by size, equals the mean of theirs; returns the sum of t^3 - t
 * over the groups of t equals. */
static double rank(struct pair *v, size_t n)
{
    double ties = 0;

    qsort(v, n, sizeof(*v), compare_pairs);
    for (size_t i = 0, end; i < n; i = end) {
        double t;

        for (end = i + 1; end < n && fabs(v[end].gap) == fabs(v[i].gap);)
            end++;
        for (size_t k = i; k < end; k++)
            v[k].twice_rank = (int)(i + 1 + end);
        t = (double)(end - i);
        ties += t * t * t - t;
    }
    return ties;
}

/* The chance that as large a sum of the ranks above zero comes about when the sign of
 * every gap is a coin's: by counting all of them. */
static double count_signs(const struct pair *v, size_t n, int twice_sum)
{
    int most = 0;
    double *chance, p = 0;

    for (size_t i = 0; i < n; i++)
        most += v[i].twice_rank;
    chance = xcalloc((size_t)most + 1, sizeof(*chance));
    chance[0] = 1;
    for (size_t i = 0; i < n; i++) {
        int r = v[i].twice_rank;

        if (v[i].gap == 0) { /* half of its rank is on either side */
            twice_sum -= r / 2;
            continue;
        }
        for (int s = most; s >= 0; s--)
            chance[s] = 0.5 * (chance[s] + (s >= r ? chance[s - r] : 0));
    }
    for (int s = twice_sum < 0 ? 0 : twice_sum; s <= most; s++)
        p += chance[s];
    free(chance);
    return p;
}

/* The one-sided p-value of the gaps V[n] being above zero. */
static double signed_rank(struct pair *v, size_t n)
{
    double ties = rank(v, n), dn = (double)n, mean, variance, z;
    bool clean = ties == 0 && v[0].gap != 0;
    int twice_sum = 0;

    for (size_t i = 0; i < n; i++)
        twice_sum += v[i].gap > 0    ? v[i].twice_rank
                     : v[i].gap == 0 ? v[i].twice_rank / 2
                                     : 0;
    if (n <= (clean ? EXACT : EXACT_TIED))
        return count_signs(v, n, twice_sum);
    mean = dn * (dn + 1) / 4;
    variance = dn * (dn + 1) * (2 * dn + 1) / 24 - ties / 48;
    z = (0.5 * twice_sum - mean) / sqrt(variance);
    return 0.5 * erfc(z * sqrt(0.5));
}

static const struct curve *best_trial(const struct pruner_task *task)
{
    const struct curve *best = NULL;

    for (size_t i = 0; i < task->n; i++) {
        const struct curve *c = &task->trials[i];

        if (c->state != PAST_COMPLETE || isnan(c->value) || c->infeasible)
            continue;
        if (!best || (task->maximize ? c->value > best->value : c->value < best->value))
            best = c;
    }
    return best;
}

/* The mean of the reports of C, as losses; NaN when one of them is not finite. */
static double mean_loss(const struct curve *c, bool maximize)
{
    double sum = 0;

    for (size_t i = 0; i < c->n; i++)
        sum += isfinite(c->values[i]) ? c->values[i] : NAN;
    return (maximize ? -sum : sum) / (double)c->n;
}

static void judge(struct pruner_verdict *v, const struct pruner_task *task,
                  const double *set)
{
    const struct curve *self = task->self, *best = best_trial(task);
    struct pair *pairs;
    size_t n = 0;

    if (!best || best->n == 0 || isnan(mean_loss(self, false)) ||
        isnan(mean_loss(best, false)))
        return;
    pairs = xcalloc(self->n + 1, sizeof(*pairs));
    for (size_t i = 0, k = 0; i < self->n; i++) {
        while (k < best->n && best->steps[k] < self->steps[i])
            k++;
        if (k < best->n && best->steps[k] == self->steps[i])
            pairs[n++].gap = task->maximize ? best->values[k] - self->values[i]
                                            : self->values[i] - best->values[k];
    }
    /* A trial whose mean is the better one is let be, whatever the ranks say. */
    if (n >= 2 && (double)n >= set[SET_STARTUP] && signed_rank(pairs, n) < set[SET_P])
        v->prune = mean_loss(best, task->maximize) < mean_loss(self, task->maximize);
    free(pairs);
}

const struct pruner pruner_wilcoxon = {
    .name = "wilcoxon",
    .summary = "stop what is worse than the best trial, by a signed-rank test",
    .settings = settings,
    .judge = judge,
};
