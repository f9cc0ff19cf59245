/* module-order - the numbers that an optimizer of PyTorch gives a model's parameters */
#include "lib/model/module-order.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/model/family.h"

/* Where a tensor is: run is that of its key among runs of keys of one section. */
struct place {
    int run, layer, expert, rank;
    size_t tensor;
};

static int compare(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->run != y->run)
        return x->run < y->run ? -1 : 1;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

static bool is_parameter(const struct model_tensor *t)
{
    return t->tied < 0 && t->source >= 0 && !t->frozen;
}

/* Sets RUN [kinds] and RANK [kinds] of the kinds that the model has; -1: the family
 * does not say. */
static void rank_kinds(int *run, int *rank, const struct model *m)
{
    const struct json *order = model_family(m)->order;
    size_t n = model_kinds(m);
    int last = -1, nth = -1, at = 0;

    for (size_t k = 0; k < n; k++)
        run[k] = rank[k] = -1;
    for (const struct json *j = order ? order->first : NULL; j; j = j->next, at++) {
        const struct model_tensor *found = NULL;

        for (size_t t = 0; t < m->ntensors && !found; t++)
            if (is_parameter(&m->tensor[t]) && !strcmp(m->tensor[t].key, j->text))
                found = &m->tensor[t];
        if (!found)
            continue;
        nth += found->section < 0 || found->section != last;
        last = found->section;
        run[found->kind] = nth;
        rank[found->kind] = at;
    }
}

int order_new(size_t **out, size_t *n, const struct model *m, struct err *err)
{
    size_t kinds = model_kinds(m), count = 0, *made;
    int *run = xmalloc((kinds + 1) * sizeof(*run));
    int *rank = xmalloc((kinds + 1) * sizeof(*rank));
    struct place *place = xmalloc((m->ntensors + 1) * sizeof(*place));
    int ret = 0;

    rank_kinds(run, rank, m);
    for (size_t t = 0; t < m->ntensors && ret == 0; t++) {
        const struct model_tensor *x = &m->tensor[t];

        if (!is_parameter(x))
            continue;
        if (run[x->kind] < 0)
            ret = err_set(err, ERR_NO,
                          "family %s does not say what number an optimizer gives %s",
                          m->family, x->name);
        place[count++] = (struct place){ .run = run[x->kind],
                                         .layer = x->layer,
                                         .expert = x->expert,
                                         .rank = rank[x->kind],
                                         .tensor = t };
    }
    if (ret == 0 && count)
        qsort(place, count, sizeof(*place), compare);
    if (ret == 0) {
        made = xmalloc((count + 1) * sizeof(*made));
        for (size_t i = 0; i < count; i++)
            made[i] = place[i].tensor;
        *out = made;
        *n = count;
    }
    free(place);
    free(rank);
    free(run);
    return ret;
}
