/* pbt - population based training
 *
 * Jaderberg et al., "Population Based Training of Neural Networks" (arXiv 1711.09846).
 * A trial is one member's part of a training: generation 0 begins with nothing, every
 * later one with the checkpoint that another trial ended with, its parent.  That is the
 * member's own last trial, whose point it keeps; but a member among the worst QUANTILE
 * takes the checkpoint of one of the best (truncation selection, section 4.1.1) and
 * that one's point, in which each parameter is drawn anew or moved by FACTOR.
 *
 * With wait=yes a generation begins when the one before has ended, so that members are
 * compared after as much training, and draws do not depend on how many trials run at
 * once.  Otherwise a member goes on at once, and is compared with the last results of
 * the others.  What failed is made again, from one of the best; a pruned trial is as
 * bad as the worst, and nobody's parent. */
#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/sampler.h"

enum { SET_POPULATION, SET_QUANTILE, SET_FACTOR, SET_RESAMPLE, SET_WAIT };

static const char *const no_yes[] = { "no", "yes", NULL };

static const struct setting settings[] = {
    [SET_POPULATION] = { .name = "population",
                         .fallback = 8,
                         .min = 2,
                         .max = 1e6,
                         .integer = true,
                         .help = "members" },
    [SET_QUANTILE] = { .name = "quantile",
                       .fallback = 0.25,
                       .min = 0,
                       .max = 0.5,
                       .help = "the part of them that is replaced, by as many others" },
    [SET_FACTOR] = { .name = "factor",
                     .fallback = 1.2,
                     .min = 1,
                     .max = 1e6,
                     .help = "by which a parameter is multiplied or divided" },
    [SET_RESAMPLE] = { .name = "resample",
                       .fallback = 0.25,
                       .min = 0,
                       .max = 1,
                       .help = "how probably it is drawn anew instead" },
    [SET_WAIT] = { .name = "wait",
                   .fallback = 1,
                   .words = no_yes,
                   .help = "for all of a generation, before the next one" },
    { .name = NULL },
};

struct member {
    const struct past *last;   /* the newest that ended with a result, or NULL */
    const struct past *failed; /* the newest that has none, or NULL */
    bool runs;
};

static bool has_result(const struct past *t)
{
    return t->state == PAST_COMPLETE || t->state == PAST_PRUNED;
}

static bool can_be_parent(const struct past *t)
{
    return t->state == PAST_COMPLETE && !(t->violation > 0) && isfinite(t->loss[0]);
}

static double loss_of(const struct past *t)
{
    return can_be_parent(t) ? t->loss[0] : INFINITY;
}

static void look(struct member *m, int n, const struct history *h)
{
    for (size_t i = 0; i < h->n; i++) {
        const struct past *t = &h->trials[i];
        struct member *its = t->member >= 0 && t->member < n ? &m[t->member] : NULL;

        if (!its || t->generation < 0)
            continue;
        if (t->state == PAST_RUNNING)
            its->runs = true;
        else if (!has_result(t))
            its->failed = t;
        else if (!its->last || t->generation > its->last->generation)
            its->last = t;
    }
}

static int next_generation(const struct member *m)
{
    return m->last ? m->last->generation + 1 : 0;
}

/* The one whose turn it is, or -1: of those that do not run, the least advanced. */
static int choose(const struct member *m, int n)
{
    int chosen = -1;

    for (int i = 0; i < n; i++)
        if (!m[i].runs &&
            (chosen < 0 || next_generation(&m[i]) < next_generation(&m[chosen])))
            chosen = i;
    return chosen;
}

/* Have all members ended generation G? */
static bool all_ended(const struct member *m, int n, int g)
{
    for (int i = 0; i < n; i++)
        if (next_generation(&m[i]) <= g)
            return false;
    return true;
}

/* What the others are compared by, best first; of generation G alone unless it is -1.
 */
static int rank(const struct past **out, const struct member *m, int n,
                const struct history *h, int g)
{
    const struct past **of = xcalloc((size_t)n, sizeof(*of));
    int nout = 0;

    for (int i = 0; i < n; i++)
        of[i] = m[i].last;
    for (size_t i = 0; g >= 0 && i < h->n; i++)
        if (has_result(&h->trials[i]) && h->trials[i].generation == g &&
            h->trials[i].member >= 0 && h->trials[i].member < n)
            of[h->trials[i].member] = &h->trials[i];
    for (int i = 0; i < n; i++) { /* by insertion: equals in the members' order */
        int at = nout;

        if (!of[i])
            continue;
        for (; at > 0 && loss_of(of[i]) < loss_of(out[at - 1]); at--)
            out[at] = out[at - 1];
        out[at] = of[i];
        nout++;
    }
    free(of);
    return nout;
}

/* VALUE moved up or down, by one step of D at least. */
static double perturb(const struct dist *d, double value, double factor, bool up)
{
    double moved;

    if (d->kind == DIST_CATEGORICAL)
        return fmin(fmax(value + (up ? 1 : -1), 0), (double)d->nchoices - 1);
    moved = up ? value * factor : value / factor;
    moved = space_nearest(d, fmin(fmax(moved, d->low), d->high));
    if (d->step > 0 && moved == value)
        moved = space_nearest(d, value + (up ? d->step : -d->step));
    return moved;
}

/* X is PARENT's point, with each parameter drawn anew or moved. */
static void explore(double *x, const struct past *parent,
                    const struct sampler_task *task)
{
    const struct space *space = task->space;

    sampler_prior(x, space, task->rng);
    for (size_t i = 0; i < space->n; i++) {
        const struct dist *d = &space->params[i].dist;
        bool anew = rng_uniform(task->rng) < task->set[SET_RESAMPLE];
        bool up = rng_uniform(task->rng) < 0.5;

        if (!isnan(parent->x[i]) && !anew)
            x[i] = perturb(d, parent->x[i], task->set[SET_FACTOR], up);
    }
}

/* One of the best of RANKED that has a checkpoint to go on from, or NULL. */
static const struct past *choose_parent(const struct past *const *ranked, int n,
                                        const struct sampler_task *task)
{
    int best = (int)(task->set[SET_QUANTILE] * task->set[SET_POPULATION]);

    best = best < 1 ? 1 : best;
    while (n && (n > best || !can_be_parent(ranked[n - 1])))
        n--;
    return n ? ranked[(int)(rng_uniform(task->rng) * n)] : NULL;
}

/* Is T among the worst? */
static bool is_bad(const struct past *t, const struct past *const *ranked, int n,
                   const struct sampler_task *task)
{
    int worst = (int)(task->set[SET_QUANTILE] * task->set[SET_POPULATION]);

    if (!can_be_parent(t))
        return true;
    worst = task->set[SET_QUANTILE] > 0 && worst < 1 ? 1 : worst;
    for (int i = n > worst ? n - worst : 1; i < n; i++)
        if (ranked[i] == t)
            return loss_of(t) > loss_of(ranked[0]);
    return false;
}

static void go_on(double *x, struct sampler_note *note, const struct member *m, int n,
                  const struct sampler_task *task)
{
    const struct member *self = &m[note->member];
    const struct past **ranked = xcalloc((size_t)n, sizeof(*ranked));
    int nranked = rank(ranked, m, n, task->history,
                       task->set[SET_WAIT] > 0 ? note->generation - 1 : -1);
    const struct past *parent = choose_parent(ranked, nranked, task);
    bool failed = self->failed && self->failed->generation == note->generation;

    if (!failed && !is_bad(self->last, ranked, nranked, task)) {
        note->parent = self->last->number;
        for (size_t i = 0; i < task->space->n; i++)
            x[i] = self->last->x[i];
    } else if (parent) {
        note->parent = parent->number;
        explore(x, parent, task);
    } else { /* none has anything to go on from */
        sampler_prior(x, task->space, task->rng);
    }
    free(ranked);
}

static int draw(double *x, struct sampler_note *note, const struct sampler_task *task)
{
    int n = (int)task->set[SET_POPULATION], drawn = 1;
    struct member *m = xcalloc((size_t)n, sizeof(*m));

    look(m, n, task->history);
    note->member = choose(m, n);
    note->generation = note->member < 0 ? -1 : next_generation(&m[note->member]);
    if (note->member < 0 || (task->set[SET_WAIT] > 0 && note->generation > 0 &&
                             !all_ended(m, n, note->generation - 1)))
        drawn = SAMPLER_LATER;
    else if (note->generation == 0)
        sampler_prior(x, task->space, task->rng);
    else
        go_on(x, note, m, n, task);
    free(m);
    return drawn;
}

const struct sampler sampler_pbt = {
    .name = "pbt",
    .summary = "population based training",
    .settings = settings,
    .generation_key = PBT_GENERATION_KEY,
    .single_objective = true,
    .forks = true,
    .draw = draw,
};
