/* random - independent draws from the prior */
#include "lib/sweep/sampler/sampler.h"

static const struct setting settings[] = { { .name = NULL } };

static int draw(double *x, int *generation, const struct sampler_task *task)
{
    (void)generation;
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
