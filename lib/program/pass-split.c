/* pass-split - divides the reverse: first the gradients of inputs, then those of
 * weights
 *
 * So that a pipeline's stage can send the gradient of its input before it makes those
 * of its weights, which nobody waits for (Qi et al. 2023, "Zero Bubble Pipeline
 * Parallelism").  Whatever the gradients of imported values, and of rows of embedding
 * tables, depend on comes first; all else follows, in the same order.  So each weight's
 * gradient has the same terms in the same order.  Values that both parts read stay
 * until the second. */
#include "lib/program/pass.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

int pass_split(struct builder *b)
{
    struct program *p = b->p;
    const size_t n = (size_t)(p->ninsts - p->nforward);
    bool *used, *first;
    struct inst *late;
    int nlate = 0, end = p->nforward;

    p->nsplit = p->ninsts;
    if (!b->opt->reverse || !b->opt->split)
        return 0;
    used = xcalloc((size_t)p->nvalues + 1, sizeof(*used));
    first = xcalloc((size_t)p->ninsts + 1, sizeof(*first));
    late = xmalloc((n + 1) * sizeof(*late));
    for (int i = 0; i < p->nimports; i++)
        used[p->back_export[i]] = true;
    for (int i = p->ninsts - 1; i >= p->nforward; i--) {
        const struct inst *inst = &p->inst[i];

        first[i] = used[inst->dst];
        for (int k = 0; k < inst->nsrc; k++)
            if (first[i] || inst->op == OP_EMBEDDING_BACK)
                used[inst->src[k]] = true;
    }
    for (int i = p->nforward; i < p->ninsts; i++)
        if (first[i])
            p->inst[end++] = p->inst[i];
        else
            late[nlate++] = p->inst[i];
    p->nsplit = end;
    memcpy(p->inst + end, late, (size_t)nlate * sizeof(*late));
    free(used);
    free(first);
    free(late);
    return 0;
}
