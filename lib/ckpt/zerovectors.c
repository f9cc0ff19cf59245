/* zerovectors - the flat vectors in which ZeRO's ranks keep f32 masters and moments */
#include "lib/ckpt/zerovectors.h"

#include <inttypes.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/ckpt/pickle.h"

const char *const zerovectors_names[ZEROVECTORS_MOST] = { "fp32", "exp_avg",
                                                          "exp_avg_sq" };

enum {
    LEAST_STEPS = 1 << 28, /* entries that may be looked at, and for each byte read */
    BYTE_STEPS = 16
};

static int wrong(const char *path, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: %s", path, what);
}

/* Counts a search of V.  A hostile file has few bytes for many names that are sought in
 * many entries: false after too many. */
static bool count_steps(struct zerovectors *z, const struct pickled *v)
{
    z->steps += pickled_is(v, PICKLED_DICT) ? v->list.n / 2 : 0;
    return z->steps <= LEAST_STEPS + BYTE_STEPS * *z->read;
}

/* Appends the one-dimensional tensor V of file PATH, input INPUT, to F. */
static int add_span(struct zerovectors *z, struct flatvec *f, const struct pickled *v,
                    const char *path, int input, struct err *err)
{
    struct tensor t;

    if (!pickled_is(v, PICKLED_TENSOR))
        return wrong(path, "a group's masters or moments are no tensor", err);
    if (pickle_tensor(&t, v, &z->s->pool, path, "a group of masters", err) < 0)
        return -1;
    if (t.ndim != 1 || t.stride || (z->typed && t.dtype != z->dtype))
        return wrong(
            path, "a group's masters or moments are no flat vector of one type", err);
    z->typed = true;
    z->dtype = t.dtype;
    return flatvec_append(f, input, t.offset, t.shape[0])
               ? 0
               : wrong(path, "a group is too large", err);
}

/* Reads the paddings of OPTIM, a list of lists of numbers, if it has any. */
static int read_paddings(struct zerovectors *z, const struct pickled *optim,
                         const char *path, struct err *err)
{
    const struct pickled *all = pickled_get(optim, "param_alignment_paddings");
    size_t n = 0, cap = 0;

    if (!pickled_is(all, PICKLED_LIST))
        return 0;
    for (size_t g = 0; g < all->list.n; g++) {
        const struct pickled *group = all->list.v[g];

        for (size_t i = 0; pickled_is(group, PICKLED_LIST) && i < group->list.n; i++) {
            if (group->list.v[i]->kind != PICKLED_NUMBER ||
                group->list.v[i]->number < 0 || n > *z->read)
                return wrong(path, "a padding that is no number", err);
            z->padding = xgrow(z->padding, &cap, n + 1, sizeof(*z->padding));
            z->padding[n++] = (uint64_t)group->list.v[i]->number;
        }
    }
    z->npadding = n;
    return 0;
}

/* The number of ranks in partition_count, a number or a list of them. */
static int64_t count_ranks(const struct pickled *count)
{
    int64_t most = 0;

    if (pickled_is(count, PICKLED_NUMBER))
        return count->number;
    for (size_t i = 0; pickled_is(count, PICKLED_LIST) && i < count->list.n; i++)
        if (count->list.v[i]->kind == PICKLED_NUMBER && count->list.v[i]->number > most)
            most = count->list.v[i]->number;
    return most;
}

/* Checks the optimizer states of rank I, and takes the stage from those of rank 0. */
static int check_optim(struct zerovectors *z, const struct pickled *optim, size_t i,
                       const char *path, struct err *err)
{
    const struct pickled *stage = pickled_get(optim, "zero_stage");
    int64_t found = 1, ranks; /* BF16_Optimizer, which is like stage 1, names none */

    if (!pickled_is(optim, PICKLED_DICT) ||
        (stage && !pickled_integer(stage, &found)) || found < 1 || found > 3)
        return wrong(path, "no optimizer states of ZeRO's stages 1 to 3", err);
    if (i && found != z->stage)
        return wrong(path, "of another stage than rank 0", err);
    z->stage = found;
    ranks = count_ranks(pickled_get(optim, "partition_count"));
    if (ranks && ranks != (int64_t)z->ranks)
        return err_set(err, ERR_INPUT,
                       "%s: %zu files of optimizer states; %" PRId64
                       " ranks wrote them",
                       z->dir, z->ranks, ranks);
    return 0;
}

/* Vector number VECTOR of group G of OPTIM; or NULL. */
static const struct pickled *
find_moment(struct zerovectors *z, const struct pickled *optim, size_t g, int vector)
{
    const struct pickled *state =
        pickled_get(pickled_get(optim, z->stage == 3 ? "optimizer_state_dict"
                                                     : "base_optimizer_state"),
                    "state");

    if (!count_steps(z, optim) || !count_steps(z, state))
        return NULL;
    for (size_t i = 0; pickled_is(state, PICKLED_DICT) && i + 1 < state->list.n; i += 2)
        if (state->list.v[i]->kind == PICKLED_NUMBER &&
            state->list.v[i]->number == (int64_t)g)
            return pickled_get(state->list.v[i + 1], zerovectors_names[vector]);
    return NULL;
}

int zerovectors_progress(struct source *s, const struct pickle_values *v,
                         const struct pickled *groups, const struct pickled *state,
                         const char *path, struct err *err)
{
    struct progress *p = &s->progress;
    double step;

    for (size_t g = 0; pickled_is(groups, PICKLED_LIST) && g < groups->list.n; g++) {
        if (pickle_number(v, pickled_get(groups->list.v[g], "step"), &step))
            progress_see(p, step); /* DeepSpeed's FusedAdam */
        if (progress_add_group(p, groups->list.v[g], path, err) < 0)
            return -1;
    }
    for (size_t i = 0; pickled_is(state, PICKLED_DICT) && i + 1 < state->list.n; i += 2)
        if (pickled_is(state->list.v[i + 1], PICKLED_DICT) &&
            pickle_number(v, pickled_get(state->list.v[i + 1], "step"), &step))
            progress_see(p, step);
    return 0;
}

/* Takes the groups of the optimizer, and its updates, from the states OPTIM of the
 * file V. */
static int read_progress(struct zerovectors *z, const struct pickle_values *v,
                         const struct pickled *optim, const char *path, struct err *err)
{
    const struct pickled *base = pickled_get(
        optim, z->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");

    z->s->progress.path = z->dir;
    return zerovectors_progress(z->s, v, pickled_get(base, "param_groups"),
                                pickled_get(base, "state"), path, err);
}

int zerovectors_add_rank(struct zerovectors *z, const struct pickle_values *v, size_t i,
                         const char *path, int input, struct err *err)
{
    const struct pickled *optim = pickled_get(v->root, "optimizer_state_dict");
    const struct pickled *groups;

    if (check_optim(z, optim, i, path, err) < 0)
        return -1;
    groups = pickled_get(optim, z->stage == 3 ? "fp32_flat_groups"
                                              : "single_partition_of_fp32_groups");
    if (!pickled_is(groups, PICKLED_LIST))
        return wrong(path, "no groups of f32 masters", err);
    if (!i) {
        z->nflat = z->stage == 3 ? z->ranks : groups->list.n;
        for (int k = 0; k < ZEROVECTORS_MOST; k++)
            z->flat[k] = xcalloc(z->nflat + 1, sizeof(*z->flat[k]));
        if (z->stage < 3 && read_paddings(z, optim, path, err) < 0)
            return -1;
        if (z->nvectors > 1 && !z->s->progress.ngroups &&
            read_progress(z, v, optim, path, err) < 0)
            return -1;
    }
    if (z->stage < 3 && groups->list.n != z->nflat)
        return wrong(path, "another number of groups than rank 0 has", err);
    for (size_t g = 0; g < groups->list.n; g++)
        for (int k = 0; k < z->nvectors; k++) {
            const struct pickled *of = k == ZEROVECTORS_MASTERS
                                           ? groups->list.v[g]
                                           : find_moment(z, optim, g, k);

            if (add_span(z, &z->flat[k][z->stage == 3 ? i : g], of, path, input, err) <
                0)
                return -1;
        }
    return 0;
}

void zerovectors_clear(struct zerovectors *z)
{
    for (int k = 0; k < ZEROVECTORS_MOST; k++) {
        for (size_t i = 0; i < z->nflat; i++)
            flatvec_clear(&z->flat[k][i]);
        free(z->flat[k]);
        z->flat[k] = NULL;
    }
    free(z->padding);
    z->padding = NULL;
    z->nflat = z->npadding = 0;
}
