/* pass-order - puts instructions without inputs (rotary angles) first
 *
 * Every layer reads them, and in the arena they then lie below short-lived values. */
#include "lib/program/pass.h"

#include <stdlib.h>

#include "lib/base/mem.h"

int pass_order(struct builder *b)
{
    struct program *p = b->p;
    struct inst *inst = xmalloc(sizeof(*inst) * (size_t)(p->ninsts + 1));
    int n = 0;

    for (int first = 1; first >= 0; first--)
        for (int i = 0; i < p->ninsts; i++)
            if ((p->inst[i].nsrc == 0 && p->inst[i].weight < 0) == first)
                inst[n++] = p->inst[i];
    free(p->inst);
    p->inst = inst;
    return 0;
}
