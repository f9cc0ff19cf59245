/* pytorchgroups - the groups of parameters of another trainer's checkpoint */
#include "lib/reshard/pytorchgroups.h"

#include <math.h>
#include <stdlib.h>

#include "lib/ckpt/trainprogress.h"

int pytorchgroups_check(const struct checkpoint *c, struct err *err)
{
    const struct progress *p = &c->source.progress;
    const char *path = c->path;
    const struct progress_group *first = p->group;

    for (size_t g = 0; g < p->ngroups; g++) {
        const struct progress_group *x = &p->group[g];

        if (x->odd)
            return err_set(err, ERR_NO, "%s: its optimizer has %s, which AdamW has not",
                           path, x->odd);
        if (isnan(x->rate))
            return err_set(err, ERR_INPUT, "%s: a group of parameters without a rate",
                           path);
        if (!progress_alike(x->beta1, first->beta1) ||
            !progress_alike(x->beta2, first->beta2) ||
            !progress_alike(x->eps, first->eps))
            return err_set(err, ERR_NO,
                           "%s: groups of parameters with different betas or eps",
                           path);
        if (!progress_alike(x->rate, first->rate) ||
            !progress_alike(x->first_rate, first->first_rate))
            return err_set(err, ERR_NO, "%s: groups of parameters with different rates",
                           path);
    }
    return 0;
}

/* Do the weights decay as KIND says, by one number, which *DECAY becomes, and the
 * others not at all? */
static bool fits(double *decay, const struct checkpoint *c, enum decay_kind kind)
{
    const struct progress *p = &c->source.progress;
    bool *decays = decay_new(c->model, kind), fits = true;

    *decay = (double)NAN;
    for (size_t i = c->nweights; i < c->ntensors && fits; i++) {
        int g = c->source.group[i - c->nweights];
        double own = g < 0 ? (double)NAN : p->group[g].decay;
        bool on = c->which[i] >= 0 && decays[c->which[i]];

        if (isnan(own))
            continue;
        if (on && isnan(*decay))
            *decay = own;
        fits = on ? own == *decay : own == 0;
    }
    free(decays);
    return fits;
}

bool pytorchgroups_decay(enum decay_kind *kind, double *decay,
                         const struct checkpoint *c)
{
    for (int k = 0; k < DECAY_KINDS; k++)
        if (fits(decay, c, (enum decay_kind)k)) {
            *kind = (enum decay_kind)k;
            return true;
        }
    return false;
}
