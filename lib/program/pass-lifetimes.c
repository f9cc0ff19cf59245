/* pass-lifetimes - the first and the last instruction that needs a value */
#include "lib/program/pass.h"

/* The value that holds the number of rows of V, whose rows go to experts. */
static int counts_of(const struct program *p, int v)
{
    const struct mixture *m = &p->mixture[p->value[v].mixture];

    return p->value[v].rows == ROWS_SENT ? m->sent : m->counts;
}

int pass_lifetimes(struct builder *b)
{
    struct program *p = b->p;
    int end = -1; /* the last part of the latest fused operation */

    for (int i = 0; i < p->nvalues; i++)
        p->value[i].first = p->value[i].last = -1;
    for (int i = 0; i < p->nimports; i++)
        p->value[p->import[i]].first = p->value[p->import[i]].last = 0;
    for (int i = 0; i < p->nexports && p->back_import; i++)
        p->value[p->back_import[i]].first = p->value[p->back_import[i]].last =
            p->nforward;
    if (p->given)
        p->value[p->given - 1].first = p->value[p->given - 1].last = p->nforward;
    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];
        int last; /* all parts of a fused operation run at once */

        if (inst->parts) {
            end = i + inst->parts;
            continue;
        }
        last = end > i ? end : i;
        if (p->value[inst->dst].first < 0)
            p->value[inst->dst].first = i;
        p->value[inst->dst].last = last;
        if (p->value[inst->dst].mixture >= 0)
            p->value[counts_of(p, inst->dst)].last = last;
        for (int k = 0; k < inst->nsrc; k++) {
            p->value[inst->src[k]].last = last;
            if (p->value[inst->src[k]].mixture >= 0)
                p->value[counts_of(p, inst->src[k])].last = last;
        }
    }
    for (int i = 0; i < p->noutputs; i++)
        if (p->value[p->output[i].value].first >= 0)
            p->value[p->output[i].value].last = p->ninsts;
    for (int i = 0; i < p->nexports; i++)
        p->value[p->export[i]].last = p->ninsts;
    for (int i = 0; i < p->nimports && p->back_export; i++)
        p->value[p->back_export[i]].last = p->nsplit;
    return 0;
}
