/* pass-weights - numbers the weights in the order of their first use, and drops unused
 * ones */
#include "lib/program/pass.h"

#include <stdlib.h>

#include "lib/base/mem.h"

/* Number of consecutive weights that W stands for: one per expert. */
static int weight_count(const struct weight *w)
{
    return w->experts ? (int)w->experts : 1;
}

int pass_weights(struct builder *b)
{
    struct program *p = b->p;
    int *weight = xmalloc(sizeof(*weight) * (size_t)(p->nweights + 1));
    struct weight *kept;
    int n = 0;

    for (int i = 0; i < p->nweights; i++)
        weight[i] = -1;
    for (int i = 0; i < p->ninsts; i++) {
        int *ref[] = { &p->inst[i].weight, &p->inst[i].weight2 };

        for (int k = 0; k < 2; k++) {
            if (*ref[k] >= 0 && weight[*ref[k]] < 0) {
                weight[*ref[k]] = n;
                n += weight_count(&p->weight[*ref[k]]);
            }
            if (*ref[k] >= 0)
                *ref[k] = weight[*ref[k]];
        }
    }
    kept = xcalloc((size_t)n + 1, sizeof(*kept));
    for (int i = 0; i < p->nweights; i++)
        for (int k = 0; weight[i] >= 0 && k < weight_count(&p->weight[i]); k++)
            kept[weight[i] + k] = p->weight[i + k];
    free(p->weight);
    p->weight = kept;
    p->nweights = n;
    free(weight);
    return 0;
}
