/* random - independent draws from the prior */
#include "lib/sweep/sampler/sampler.h"

static const struct setting settings[] = { { .name = NULL } };

static int draw(double *x, struct sampler_note *note, const struct sampler_task *task)
{
    (void)note;
    sampler_prior(x, task->space, task->rng);
    return 1;
}

const struct sampler sampler_random = {
    .name = "random",
    .summary = "independent draws from each parameter's distribution",
    .settings = settings,
    .blind = true,
    .draw = draw,
};
