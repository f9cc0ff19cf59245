/* rounded - the weights in bf16 or f16 that products read in mixed precision */
#include "lib/train/rounded.h"

#include <stdlib.h>

#include "lib/program/roundable.h"

/* Does the store have numbers of weight I, which are rounded? */
static bool is_rounded(const struct rounded *r, int i)
{
    return r->is[i] && r->p->row[i].weight;
}

int rounded_open(struct rounded *r, struct parameters *p, enum format format,
                 struct err *err)
{
    uint64_t at = 0;

    *r = (struct rounded){ .p = p, .format = format, .is = roundable_new(p->program) };
    for (int i = 0; i < p->program->nweights; i++)
        r->n += is_rounded(r, i) ? p->row[i].n : 0;
    if (!r->n)
        return 0;
    r->copy = p->ops->alloc(p->device, r->n * sizeof(*r->copy),
                            "the weights that are rounded", err);
    if (!r->copy)
        return -1;
    for (int i = 0; i < p->program->nweights; i++) {
        if (!is_rounded(r, i))
            continue;
        p->matrix[i].data = r->copy + at;
        p->matrix[i].format = format;
        at += p->row[i].n;
    }
    return 0;
}

void rounded_close(struct rounded *r)
{
    if (r->copy)
        r->p->ops->release(r->p->device, r->copy);
    free(r->is);
    *r = (struct rounded){ 0 };
}

/* Weights that follow one another are rounded by one call. */
int rounded_make(struct rounded *r, struct err *err)
{
    struct parameters *p = r->p;
    uint64_t at = 0;
    int n = p ? p->program->nweights : 0;

    if (r->current || !r->n)
        return 0;
    for (int i = 0, next; i < n; i = next) {
        struct array_call c = { .y = r->copy + at,
                                .x = p->row[i].weight,
                                .y_format = r->format,
                                .x_format = FORMAT_F32 };

        for (next = i; next < n && is_rounded(r, next) &&
                       p->row[next].weight == p->row[i].weight + c.n;
             next++)
            c.n += p->row[next].n;
        at += c.n;
        if (next == i)
            next++;
        else if (parameters_run(p, ARRAY_CAST, &c, err) < 0)
            return -1;
    }
    r->current = true;
    return 0;
}

void rounded_memory(const struct rounded *r, struct ledger *list)
{
    ledger_add(list, "weights", LEDGER_DEVICE, r->n * sizeof(*r->copy));
}
