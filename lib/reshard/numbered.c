/* numbered - an optimizer's states by number, as states of a model's weights */
#include "lib/reshard/numbered.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/ckpt/form.h"
#include "lib/ckpt/numberedstate.h"
#include "lib/model/decay.h"
#include "lib/model/module-order.h"

/* The states have been described by the file that they are in. */
#define NAMES UINT64_MAX / 64

static size_t count_group(const struct progress *p, size_t group)
{
    size_t n = 0;

    for (size_t i = 0; i < p->nparameters; i++)
        n += p->parameter[i].group == group;
    return n;
}

/* Puts those of the N tensors at ORDER that decay before the others; returns how many
 * they are. */
static size_t split(size_t *order, size_t n, const struct model *m)
{
    bool *decays = decay_new(m, DECAY_USUAL);
    size_t *late = xmalloc((n + 1) * sizeof(*late)), k = 0, l = 0;

    for (size_t i = 0; i < n; i++)
        if (decays[order[i]])
            order[k++] = order[i];
        else
            late[l++] = order[i];
    memcpy(order + k, late, l * sizeof(*late));
    free(late);
    free(decays);
    return k;
}

/* Gives parameter I of S to the weight T. */
static int give(struct source *s, size_t i, const struct tensor *t, struct err *err)
{
    struct progress *p = &s->progress;

    for (int k = 0; k < NUMBEREDSTATE_NROLES; k++) {
        const struct tensor *moment = &p->parameter[i].moment[k];

        if (moment->ndim != t->ndim ||
            memcmp(moment->shape, t->shape, (size_t)t->ndim * sizeof(*t->shape)) != 0)
            return err_set(err, ERR_INPUT,
                           "%s: the %s of parameter %zu has another shape than %s, "
                           "whose it is by the order of the model",
                           p->path, numberedstate_roles[k], i, t->name);
        if (form_add_state(s, moment, t->name, numberedstate_roles[k], NAMES, p->path,
                           err) < 0)
            return -1;
        s->group[s->nstates - 1] = (int)p->parameter[i].group;
    }
    return 0;
}

int numbered_apply(struct source *s, const struct model *m, struct err *err)
{
    struct progress *p = &s->progress;
    size_t *order, n, decaying;
    int ret = 0;

    if (order_new(&order, &n, m, err) < 0)
        return err_prefix(err, "%s", p->path);
    if (p->nparameters != n)
        ret =
            err_set(err, ERR_INPUT,
                    "%s: has %zu parameters; the model has %zu: whose they are cannot "
                    "be told",
                    p->path, p->nparameters, n);
    else if (p->ngroups == 2) {
        decaying = split(order, n, m);
        if (count_group(p, 0) != decaying)
            ret = err_set(err, ERR_INPUT,
                          "%s: %zu of the %zu parameters are in its first group; those "
                          "that decay are %zu: whose they are cannot be told",
                          p->path, count_group(p, 0), n, decaying);
    } else if (p->ngroups != 1) {
        ret = err_set(err, ERR_INPUT,
                      "%s: %zu groups of parameters without names: whose they are "
                      "cannot be told",
                      p->path, p->ngroups);
    }
    for (size_t i = 0; i < n && ret == 0; i++)
        ret = give(s, i, &s->tensor[m->tensor[order[i]].source], err);
    free(order);
    return ret;
}
