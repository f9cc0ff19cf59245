/* roundable - the weights that are rounded to bf16 in a training with --compute bf16 */
#include "lib/program/roundable.h"

#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/program/program.h"

static bool is_product(enum op op)
{
    return op == OP_LINEAR || op == OP_MATMUL || op == OP_HEAD_LINEAR ||
           op == OP_HEAD_MATMUL;
}

bool *roundable_new(const struct program *p)
{
    bool *of = xcalloc((size_t)p->nweights + 1, sizeof(*of));

    for (int k = 0; k < p->nforward; k++) {
        const struct inst *inst = &p->inst[k];
        int n;

        if (!is_product(inst->op) || inst->weight < 0)
            continue;
        n = p->weight[inst->weight].experts ? (int)p->weight[inst->weight].experts : 1;
        for (int i = inst->weight; i < inst->weight + n; i++)
            of[i] = true;
    }
    return of;
}
