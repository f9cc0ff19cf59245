/* optimizer - makes an optimizer's updates of the store of parameters */
#include "lib/train/optimizer.h"

#include <stddef.h>

#include "lib/train/nomaster.h"
#include "lib/train/parameters.h"
#include "lib/train/wholes.h"

/* Does row B follow A in all arrays, to be updated alike? */
static bool follows(const struct parameter *a, const struct parameter *b, int slots)
{
    bool next = b->count && a->own && b->own && b->decays == a->decays && !a->load &&
                !b->load && b->own == a->own + a->count && b->sum == a->sum + a->count;

    for (int k = 0; k < slots && next; k++)
        next = a->slot[k] ? b->slot[k] == a->slot[k] + a->count : !b->slot[k];
    return next;
}

/* Moves the biases of a router towards equal loads. */
static int move_bias(const struct optimizer *o, struct parameters *p,
                     const struct parameter *row, uint64_t tokens, struct err *err)
{
    const struct array_call c = {
        .n = row->count,
        .y = row->own,
        .x = row->sum,
        .by.bias = { .factor = 1,
                     .mean = (float)((double)(tokens * row->load) / (double)row->loads),
                     .by = (float)o->bias_speed }
    };

    return parameters_run(p, ARRAY_BIAS, &c, err);
}

/* What gradients are multiplied by: as torch.nn.utils.clip_grad_norm_, which also
 * multiplies when it is 1. */
static float factor_of(const struct optimizer *o, double norm)
{
    double factor = o->options.clip > 0 ? o->options.clip / (norm + 1e-6) : 1;

    factor = factor < 1 ? factor : 1;
    return o->scale > 0 ? (float)factor / (float)o->scale : (float)factor;
}

/* Updates weight I and those behind it, N elements. */
static int update(const struct optimizer *o, struct parameters *p, int i, uint64_t n,
                  double rate, double norm, struct err *err)
{
    const struct parameter *row = &p->row[i];
    const struct optimizer_info *how = &optimizer_table[o->options.kind];
    struct array_call c = { .n = n };

    c.y = row->own;
    c.x = row->sum;
    for (int k = 0, used = 0; k < optimizer_slots(o->options.kind); k++)
        if (row->slot[k])
            c.slot[used++] = row->slot[k];
    how->set(&c.by, &o->options, rate, o->t, row->decays ? o->options.decay : 0);
    c.by.factor = factor_of(o, norm);
    if (parameters_lacks_master(p, i))
        return nomaster_update(p, i, how->update, &c, o->seed, o->t, 1 - o->average,
                               err);
    return parameters_update(p, how->update, &c, err);
}

/* Neighbours are updated by one call. */
int optimizer_step(struct optimizer *o, struct parameters *p, double rate, double norm,
                   uint64_t tokens, struct err *err)
{
    int n = p->program->nweights, slots = p->slots, next;

    o->t++;
    for (int i = 0; i < n; i = next) {
        const struct parameter *row = &p->row[i];
        uint64_t count = row->count;

        next = i + 1;
        if (!row->count)
            continue;
        for (; next < n && !wholes_has(o->wholes, i) && !wholes_has(o->wholes, next) &&
               follows(&p->row[next - 1], &p->row[next], slots);
             next++)
            count += p->row[next].count;
        if (wholes_has(o->wholes, i) ? wholes_update(o->wholes, i, &o->options, rate,
                                                     o->t, factor_of(o, norm), err) < 0
            : row->load              ? move_bias(o, p, row, tokens, err) < 0
                                     : update(o, p, i, count, rate, norm, err) < 0)
            return -1;
        if (p->average >= 0 && !parameters_lacks_master(p, i) &&
            parameters_average(p, row, row->own, 0, count, 1 - o->average, err) < 0)
            return -1;
    }
    return 0;
}
