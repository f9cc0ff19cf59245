/* nsga2 - the elitist non-dominated sorting genetic algorithm
 *
 * Deb et al., "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II" (IEEE TEC
 * 6(2), 2002), with Optuna's operators: binary tournaments, uniform crossover, mutation
 * by a fresh draw.  A trial carries its generation; the parents of a generation are
 * the best of the one before and its parents, which every draw works out anew. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/pareto.h"
#include "lib/sweep/sampler/sampler.h"

enum { SET_POPULATION, SET_CROSSOVER, SET_SWAP, SET_MUTATION };

static const struct setting settings[] = {
    [SET_POPULATION] = { .name = "population",
                         .fallback = 50,
                         .min = 2,
                         .max = 1e6,
                         .integer = true,
                         .help = "trials of a generation" },
    [SET_CROSSOVER] = { .name = "crossover",
                        .fallback = 0.9,
                        .min = 0,
                        .max = 1,
                        .help = "probability that a child has two parents" },
    [SET_SWAP] = { .name = "swap",
                   .fallback = 0.5,
                   .min = 0,
                   .max = 1,
                   .help = "probability that a parameter is the first parent's" },
    [SET_MUTATION] = { .name = "mutation",
                       .fallback = NAN,
                       .min = 0,
                       .max = 1,
                       .help =
                           "probability that a parameter is drawn afresh, or auto" },
    { .name = NULL },
};

struct ranked {
    const struct past *trial;
    size_t rank;
    double crowding; /* larger is lonelier */
};

struct value_row {
    double value;
    size_t index;
};

static int compare_values(const void *a, const void *b)
{
    const struct value_row *x = a, *y = b;

    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Add what objective C gives to the crowding distance of the N trials E (section
 * III-B of the paper); the outermost are infinitely lonely. */
static void add_crowding(struct ranked *e, size_t n, size_t c)
{
    struct value_row *v = xcalloc(n + 1, sizeof(*v));
    double least = INFINITY, most = -INFINITY, width;

    for (size_t i = 0; i < n; i++) {
        v[i] = (struct value_row){ e[i].trial->loss[c], i };
        if (v[i].value > -INFINITY)
            least = fmin(least, v[i].value);
        if (v[i].value < INFINITY)
            most = fmax(most, v[i].value);
    }
    qsort(v, n, sizeof(*v), compare_values);
    width = most > least ? most - least : 1;
    if (v[0].value != v[n - 1].value)
        for (size_t i = 0; i < n; i++) {
            double before = i > 0 ? v[i - 1].value : -INFINITY;
            double after = i + 1 < n ? v[i + 1].value : INFINITY;

            if (before != after)
                e[v[i].index].crowding += (after - before) / width;
        }
    free(v);
}

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->crowding != y->crowding)
        return x->crowding > y->crowding ? -1 : 1;
    return x->trial < y->trial ? -1 : x->trial > y->trial;
}

/* Ranks of E[n]: the feasible by domination, then the others by violation. */
static void rank_trials(struct ranked *e, size_t n, size_t m)
{
    double *losses = xcalloc(n + 1, m * sizeof(*losses));
    double *violation = xcalloc(n + 1, sizeof(*violation));
    size_t *rank = xcalloc(n + 1, sizeof(*rank));
    size_t feasible = 0, infeasible = 0, levels = 0;

    for (size_t i = 0; i < n; i++) {
        if (e[i].trial->violation > 0)
            violation[infeasible++] = e[i].trial->violation;
        else
            memcpy(losses + feasible++ * m, e[i].trial->loss, m * sizeof(*losses));
    }
    pareto_ranks(rank, losses, feasible, m, 0);
    pareto_ranks(rank + feasible, violation, infeasible, 1, 0);
    for (size_t i = 0; i < feasible; i++)
        levels = rank[i] + 1 > levels ? rank[i] + 1 : levels;
    infeasible = feasible;
    feasible = 0;
    for (size_t i = 0; i < n; i++)
        e[i].rank =
            e[i].trial->violation > 0 ? levels + rank[infeasible++] : rank[feasible++];
    free(losses);
    free(violation);
    free(rank);
}

/* Keep the best WANTED of POOL[n], best first; returns how many that are. */
static size_t select_best(const struct past **pool, size_t n, size_t m, size_t wanted)
{
    struct ranked *e = xcalloc(n + 1, sizeof(*e));

    for (size_t i = 0; i < n; i++)
        e[i].trial = pool[i];
    rank_trials(e, n, m);
    qsort(e, n, sizeof(*e), compare_ranked);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && e[end].rank == e[i].rank; end++)
            ;
        if (i < wanted && end > wanted)
            for (size_t c = 0; c < m; c++)
                add_crowding(e + i, end - i, c);
    }
    qsort(e, n, sizeof(*e), compare_ranked);
    n = n < wanted ? n : wanted;
    for (size_t i = 0; i < n; i++)
        pool[i] = e[i].trial;
    free(e);
    return n;
}

/* The generation that is being filled. */
static int present_generation(const struct history *h, size_t population)
{
    int latest = 0;
    size_t count = 0;

    for (size_t i = 0; i < h->n; i++) {
        const struct past *t = &h->trials[i];

        if (t->state != PAST_COMPLETE || t->generation < latest)
            continue;
        if (t->generation > latest)
            count = 0;
        latest = t->generation;
        count++;
    }
    return count < population ? latest : latest + 1;
}

/* Write the parents of GENERATION to POOL (room for all trials); returns how many. */
static size_t find_parents(const struct past **pool, const struct history *h,
                           int generation, size_t population)
{
    size_t *first = xcalloc((size_t)generation + 2, sizeof(*first));
    const struct past **sorted = xcalloc(h->n + 1, sizeof(*sorted));
    size_t n = 0;

    /* Count, sum up and deal: the trials ordered by generation. */
    for (size_t i = 0; i < h->n; i++)
        if (h->trials[i].state == PAST_COMPLETE && h->trials[i].generation >= 0 &&
            h->trials[i].generation < generation)
            first[h->trials[i].generation + 1]++;
    for (int g = 0; g < generation; g++)
        first[g + 1] += first[g];
    for (size_t i = 0; i < h->n; i++)
        if (h->trials[i].state == PAST_COMPLETE && h->trials[i].generation >= 0 &&
            h->trials[i].generation < generation)
            sorted[first[h->trials[i].generation]++] = &h->trials[i];
    for (int g = 0; g < generation; g++) { /* first[g] is now where g ends */
        for (size_t i = g ? first[g - 1] : 0; i < first[g]; i++)
            pool[n++] = sorted[i];
        n = select_best(pool, n, h->nobjectives, population);
    }
    free(first);
    free(sorted);
    return n;
}

static bool dominates(const struct past *a, const struct past *b, size_t m)
{
    if (a->violation > 0 || b->violation > 0)
        return a->violation < b->violation;
    return pareto_dominates(a->loss, b->loss, m);
}

/* A binary tournament among POOL[n] without the trial EXCEPT. */
static const struct past *tournament(const struct past *const *pool, size_t n,
                                     const struct past *except, size_t m,
                                     struct rng *rng)
{
    const struct past *pair[2];

    for (int i = 0; i < 2; i++)
        do
            pair[i] = pool[rng_below(rng, n)];
        while (n > 1 && pair[i] == except);
    return dominates(pair[0], pair[1], m) ? pair[0] : pair[1];
}

/* Parameters no parent has stay as drawn from the prior. */
static void breed(double *x, const struct past *const *pool, size_t n,
                  const struct sampler_task *task)
{
    const struct past *parent[2];
    size_t params = task->space->n, m = task->history->nobjectives;
    double mutation = task->set[SET_MUTATION];
    struct rng *rng = task->rng;

    if (isnan(mutation))
        mutation = 1.0 / (double)(params > 1 ? params : 1);
    if (rng_uniform(rng) < task->set[SET_CROSSOVER]) {
        parent[0] = tournament(pool, n, NULL, m, rng);
        parent[1] = tournament(pool, n, parent[0], m, rng);
    } else {
        parent[0] = parent[1] = pool[rng_below(rng, n)];
    }
    for (size_t i = 0; i < params; i++) {
        bool second = rng_uniform(rng) >= task->set[SET_SWAP];
        double value = parent[second]->x[i];

        if (isnan(value))
            value = parent[!second]->x[i];
        if (rng_uniform(rng) >= mutation && !isnan(value))
            x[i] = value;
    }
}

static int draw(double *x, struct sampler_note *note, const struct sampler_task *task)
{
    const struct history *h = task->history;
    size_t population = (size_t)task->set[SET_POPULATION], n;
    const struct past **pool = xcalloc(2 * h->n + 1, sizeof(*pool));

    note->generation = present_generation(h, population);
    sampler_prior(x, task->space, task->rng);
    n = find_parents(pool, h, note->generation, population);
    if (n > 0)
        breed(x, pool, n, task);
    free(pool);
    return 1;
}

const struct sampler sampler_nsga_ii = {
    .name = "nsga-ii",
    .summary = "genetic algorithm for several objectives",
    .settings = settings,
    .generation_key = "NSGAIISampler:generation",
    .draw = draw,
};
