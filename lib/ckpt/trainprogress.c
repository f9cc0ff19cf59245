/* trainprogress - how far the training is that a checkpoint of another trainer is of */
#include "lib/ckpt/trainprogress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/ckpt/unpickle.h"

enum { MOST_KEYS = 256 }; /* of a group; PyTorch has fewer than thirty */

void progress_init(struct progress *p)
{
    *p = (struct progress){ .updates = (double)NAN,
                            .steps = UINT64_MAX,
                            .scheduled = UINT64_MAX };
}

void progress_clear(struct progress *p)
{
    free(p->group);
    free(p->parameter);
    free(p->logged);
    progress_init(p);
}

/* The number V, or NaN. */
static double number_of(const struct pickled *v)
{
    return pickled_is(v, PICKLED_REAL)     ? v->real
           : pickled_is(v, PICKLED_NUMBER) ? (double)v->number
                                           : (double)NAN;
}

static bool is_true(const struct pickled *v)
{
    return pickled_is(v, PICKLED_NUMBER) && v->number;
}

void progress_begin_group(struct progress_group *g)
{
    const double none = (double)NAN;

    *g = (struct progress_group){ .rate = none,
                                  .first_rate = none,
                                  .beta1 = none,
                                  .beta2 = none,
                                  .eps = none,
                                  .decay = none };
}

void progress_set(struct progress_group *g, const char *setting,
                  const struct pickled *value)
{
    if (!strcmp(setting, "lr"))
        g->rate = number_of(value);
    else if (!strcmp(setting, "initial_lr"))
        g->first_rate = number_of(value);
    else if (!strcmp(setting, "eps"))
        g->eps = number_of(value);
    else if (!strcmp(setting, "weight_decay"))
        g->decay = number_of(value);
    else if (!strcmp(setting, "amsgrad") && is_true(value))
        g->odd = "amsgrad";
    else if (!strcmp(setting, "maximize") && is_true(value))
        g->odd = "maximize";
    else if (!strcmp(setting, "momentum_decay")) /* of torch.optim.NAdam */
        g->odd = "Nesterov momentum (torch.optim.NAdam)";
    else if (!strcmp(setting, "bias_correction") && pickled_is(value, PICKLED_NUMBER) &&
             !value->number) /* of DeepSpeed's and apex's FusedAdam */
        g->odd = "no correction of its moments' bias";
    else if (!strcmp(setting, "decoupled_weight_decay"))
        g->within = pickled_is(value, PICKLED_NUMBER) && !value->number;
    else if (!strcmp(setting, "betas") &&
             (pickled_is(value, PICKLED_TUPLE) || pickled_is(value, PICKLED_LIST)) &&
             value->list.n == 2) {
        g->beta1 = number_of(value->list.v[0]);
        g->beta2 = number_of(value->list.v[1]);
    }
}

bool progress_alike(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static size_t add_group(struct progress *p, struct progress_group g)
{
    if (g.within && g.decay != 0 && !isnan(g.decay))
        g.odd = "weight decay within the gradient (torch.optim.Adam)";
    p->group = xgrow(p->group, &p->caps[0], p->ngroups + 1, sizeof(*p->group));
    p->group[p->ngroups] = g;
    return p->ngroups++;
}

size_t progress_find_group(struct progress *p, const struct progress_group *g)
{
    for (size_t i = 0; i < p->ngroups; i++) {
        const struct progress_group *x = &p->group[i];

        if (progress_alike(x->rate, g->rate) &&
            progress_alike(x->first_rate, g->first_rate) &&
            progress_alike(x->beta1, g->beta1) && progress_alike(x->beta2, g->beta2) &&
            progress_alike(x->eps, g->eps) && progress_alike(x->decay, g->decay) &&
            x->within == g->within)
            return i;
    }
    return add_group(p, *g);
}

int progress_add_group(struct progress *p, const struct pickled *group,
                       const char *path, struct err *err)
{
    struct progress_group g;

    if (!pickled_is(group, PICKLED_DICT) || group->list.n > 2 * MOST_KEYS)
        return err_set(err, ERR_INPUT, "%s: a group of parameters is no dictionary",
                       path);
    progress_begin_group(&g);
    for (size_t i = 0; i + 1 < group->list.n; i += 2)
        if (pickled_is(group->list.v[i], PICKLED_TEXT))
            progress_set(&g, group->list.v[i]->text.s, group->list.v[i + 1]);
    add_group(p, g);
    return 0;
}

struct progress_parameter *progress_add_parameter(struct progress *p, size_t group)
{
    p->parameter =
        xgrow(p->parameter, &p->caps[1], p->nparameters + 1, sizeof(*p->parameter));
    p->parameter[p->nparameters] = (struct progress_parameter){ .group = group };
    return &p->parameter[p->nparameters++];
}

void progress_add_rate(struct progress *p, uint64_t update, double rate)
{
    p->logged = xgrow(p->logged, &p->caps[2], p->nlogged + 1, sizeof(*p->logged));
    p->logged[p->nlogged++] = (struct progress_rate){ update, rate };
}

void progress_see(struct progress *p, double updates)
{
    p->uneven |= p->updates != updates && !isnan(p->updates);
    p->updates = updates;
}
