/* pass-unused - drops instructions whose results nothing reads */
#include "lib/program/pass.h"

#include <stdlib.h>

#include "lib/base/mem.h"

int pass_unused(struct builder *b)
{
    struct program *p = b->p;
    bool *used = xcalloc((size_t)p->nvalues + 1, sizeof(*used));
    int n = 0;

    for (int i = 0; i < p->noutputs; i++)
        used[p->output[i].value] = true;
    for (int i = p->ninsts - 1; i >= 0; i--)
        for (int k = 0; k < p->inst[i].nsrc && used[p->inst[i].dst]; k++)
            used[p->inst[i].src[k]] = true;
    for (int i = 0; i < p->ninsts; i++)
        if (used[p->inst[i].dst])
            p->inst[n++] = p->inst[i];
    p->ninsts = n;
    free(used);
    return 0;
}
