/* progress - how far the training is that a checkpoint of another trainer is of */
#include "lib/ckpt/progress.h"

#include <math.h>
#include <stdlib.h>

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

/* What makes GROUP, with a decay of DECAY, another optimizer than AdamW. */
static const char *find_odd(const struct pickled *group, double decay)
{
    const struct pickled *apart = pickled_get(group, "decoupled_weight_decay");

    if (is_true(pickled_get(group, "amsgrad")))
        return "amsgrad";
    if (is_true(pickled_get(group, "maximize")))
        return "maximize";
    if (pickled_is(apart, PICKLED_NUMBER) && !apart->number && decay != 0)
        return "weight decay within the gradient (torch.optim.Adam)";
    return NULL;
}

int progress_add_group(struct progress *p, const struct pickled *group,
                       const char *path, struct err *err)
{
    struct progress_group g = { .beta1 = (double)NAN, .beta2 = (double)NAN };
    const struct pickled *betas;

    if (!pickled_is(group, PICKLED_DICT) || group->list.n > 2 * MOST_KEYS)
        return err_set(err, ERR_INPUT, "%s: a group of parameters is no dictionary",
                       path);
    betas = pickled_get(group, "betas");
    if ((pickled_is(betas, PICKLED_TUPLE) || pickled_is(betas, PICKLED_LIST)) &&
        betas->list.n == 2) {
        g.beta1 = number_of(betas->list.v[0]);
        g.beta2 = number_of(betas->list.v[1]);
    }
    g.rate = number_of(pickled_get(group, "lr"));
    g.first_rate = number_of(pickled_get(group, "initial_lr"));
    g.eps = number_of(pickled_get(group, "eps"));
    g.decay = number_of(pickled_get(group, "weight_decay"));
    g.odd = find_odd(group, g.decay);
    p->group = xgrow(p->group, &p->caps[0], p->ngroups + 1, sizeof(*p->group));
    p->group[p->ngroups++] = g;
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
