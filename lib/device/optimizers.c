/* optimizers - the table of optimizers: how gradients change weights */
#include "lib/device/optimizers.h"

#include <math.h>
#include <stddef.h>

#define TRAINED "adamw", "sgd", "momentum", "lion"
const char *const optimizer_names[OPTIMIZER_KINDS + 1] = { TRAINED, "adam8bit",
                                                           "adafactor", "muon", NULL };
const char *const optimizer_choices[OPTIMIZER_TRAINED + 1] = { TRAINED, NULL };

/* PyTorch computes scalars in double and rounds them to f32 once. */
static void set_adamw(union update_numbers *by, const struct optimizer_options *o,
                      double rate, uint64_t t, double decay)
{
    struct adamw_numbers *a = &by->adamw;

    a->keep = (float)(1 - rate * decay);
    a->b2 = (float)o->beta2;
    a->one_b1 = (float)(1 - o->beta1);
    a->one_b2 = (float)(1 - o->beta2);
    a->root = (float)sqrt(1 - pow(o->beta2, (double)t));
    a->eps = (float)o->eps;
    a->by = (float)(-(rate / (1 - pow(o->beta1, (double)t))));
}

static void set_sgd(union update_numbers *by, const struct optimizer_options *o,
                    double rate, uint64_t t, double decay)
{
    (void)t;
    by->sgd.decay = (float)decay;
    by->sgd.momentum = (float)o->momentum;
    by->sgd.by = (float)-rate;
}

static void set_lion(union update_numbers *by, const struct optimizer_options *o,
                     double rate, uint64_t t, double decay)
{
    struct lion_numbers *a = &by->lion;

    (void)t;
    a->keep = (float)(1 - rate * decay);
    a->b1 = (float)o->beta1;
    a->one_b1 = (float)(1 - o->beta1);
    a->b2 = (float)o->beta2;
    a->one_b2 = (float)(1 - o->beta2);
    a->by = (float)-rate;
}

const struct optimizer_info optimizer_table[OPTIMIZER_TRAINED] = {
    [OPTIMIZER_ADAMW] = { .slot = { "exp_avg", "exp_avg_sq" },
                          .update = ARRAY_ADAMW,
                          .uses = OPTIMIZER_USES_BETAS | OPTIMIZER_USES_EPS,
                          .set = set_adamw },
    [OPTIMIZER_SGD] = { .update = ARRAY_SGD, .set = set_sgd },
    [OPTIMIZER_MOMENTUM] = { .slot = { "momentum_buffer" },
                             .update = ARRAY_MOMENTUM,
                             .uses = OPTIMIZER_USES_MOMENTUM,
                             .set = set_sgd },
    [OPTIMIZER_LION] = { .slot = { "exp_avg" },
                         .update = ARRAY_LION,
                         .uses = OPTIMIZER_USES_BETAS,
                         .beta2 = 0.99,
                         .set = set_lion },
};

int optimizer_slots(enum optimizer_kind kind)
{
    int n = 0;

    while (optimizer_table[kind].slot[n])
        n++;
    return n;
}

/* Numbers of N before the range of rank RANK; without a product that overflows. */
static uint64_t before(uint64_t n, uint64_t rank, uint64_t size)
{
    uint64_t blocks = n / OPTIMIZER_BLOCK;

    if (rank == size)
        return n;
    return (blocks / size * rank + blocks % size * rank / size) * OPTIMIZER_BLOCK;
}

void optimizer_range(uint64_t n, int rank, int size, uint64_t *first, uint64_t *count)
{
    *first = before(n, (uint64_t)rank, (uint64_t)size);
    *count = before(n, (uint64_t)rank + 1, (uint64_t)size) - *first;
}
