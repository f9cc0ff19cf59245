/* optimizer - how gradients change weights */
#include "lib/train/optimizer.h"

#include <math.h>
#include <stddef.h>

#include "lib/train/parameters.h"

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

const struct optimizer_info optimizer_table[OPTIMIZER_KINDS] = {
    [OPTIMIZER_ADAMW] = { .name = "adamw",
                          .slot = { "exp_avg", "exp_avg_sq" },
                          .update = ARRAY_ADAMW,
                          .set = set_adamw },
    [OPTIMIZER_SGD] = { .name = "sgd", .update = ARRAY_SGD, .set = set_sgd },
    [OPTIMIZER_MOMENTUM] = { .name = "momentum",
                             .slot = { "momentum_buffer" },
                             .update = ARRAY_MOMENTUM,
                             .set = set_sgd },
};

const char *const optimizer_choices[OPTIMIZER_KINDS + 1] = {
    [OPTIMIZER_ADAMW] = "adamw",
    [OPTIMIZER_SGD] = "sgd",
    [OPTIMIZER_MOMENTUM] = "momentum",
};

int optimizer_slots(enum optimizer_kind kind)
{
    int n = 0;

    while (optimizer_table[kind].slot[n])
        n++;
    return n;
}

/* Does row B follow A in all arrays, to be updated alike? */
static bool follows(const struct parameter *a, const struct parameter *b, int slots)
{
    bool next = b->trained && b->decays == a->decays && a->first + a->count == a->n &&
                !b->first && b->weight == a->weight + a->n &&
                b->gradient == a->gradient + a->n;

    for (int k = 0; k < slots && next; k++)
        next = b->slot[k] == a->slot[k] + a->count;
    return next;
}

/* As torch.nn.utils.clip_grad_norm_, which also multiplies when the factor is 1.
 * Neighbours are updated by one call. */
int optimizer_step(struct optimizer *o, struct parameters *p, double rate, double norm,
                   struct err *err)
{
    const struct optimizer_info *how = &optimizer_table[o->options.kind];
    double factor = o->options.clip > 0 ? o->options.clip / (norm + 1e-6) : 1;
    int n = p->program->nweights, slots = optimizer_slots(o->options.kind), next;

    o->t++;
    for (int i = 0; i < n; i = next) {
        const struct parameter *row = &p->row[i];
        struct array_call c = { .n = row->count };

        next = i + 1;
        if (!row->trained)
            continue;
        for (; next < n && follows(&p->row[next - 1], &p->row[next], slots); next++)
            c.n += p->row[next].count;
        c.y = row->weight + row->first;
        c.x = row->gradient + row->first;
        for (int k = 0; k < slots; k++)
            c.slot[k] = row->slot[k];
        how->set(&c.by, &o->options, rate, o->t, row->decays ? o->options.decay : 0);
        c.by.factor = factor < 1 ? (float)factor : 1;
        if (parameters_run(p, how->update, &c, err) < 0)
            return -1;
    }
    return 0;
}
