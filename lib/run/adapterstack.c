/* adapterstack - matrices of an adapter that all experts of a layer share */
#include "lib/run/adapterstack.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/str.h"

void adapter_stack_shape(const struct adapter_stack *s, const struct model *m, size_t i,
                         enum adapter_part part, uint64_t shape[2])
{
    const uint64_t all = m->adapter[i].rank.size * s->experts;
    const struct axis *axis[2];
    const bool first = (part == ADAPTER_A) != s->swapped; /* the experts' rows */

    model_adapter_axes(m, i, part, axis);
    shape[!first] = all;
    shape[first] = axis[part == ADAPTER_A]->size;
}

uint64_t adapter_stack_place(const struct adapter_stack *s, enum adapter_part part,
                             uint64_t rank, uint64_t width, uint64_t i, uint64_t k)
{
    if (part == ADAPTER_A)
        return s->swapped ? k * width + i * s->experts + s->expert
                          : (s->expert * rank + i) * width + k;
    return s->swapped ? (s->expert * rank + k) * width + i
                      : (s->first + i) * width + k * s->experts + s->expert;
}

/* Do A and B, names of parameters, begin with one module? */
static bool share_module(const char *a, const char *b)
{
    const char *x = strrchr(a, '.'), *y = strrchr(b, '.');

    return x && y && x - a == y - b && !memcmp(a, b, (size_t)(x - a));
}

char *adapter_stack_module_dup(const struct model *m, size_t i)
{
    const struct model_adapter *own = &m->adapter[i];
    char *name = model_parameter_dup(m, own->tensor), *dot = strrchr(name, '.');
    struct str out = { 0 };

    str_addf(&out, "%.*s", (int)(dot ? dot - name : 0), name);
    for (size_t k = own->from; k < m->nadapters; k++) {
        char *other;

        if (m->adapter[k].from != own->from || m->adapter[k].expert != 1 ||
            m->adapter[k].tensor <= own->tensor ||
            m->tensor[m->adapter[k].tensor].layer != m->tensor[own->tensor].layer)
            continue;
        other = model_parameter_dup(m, m->adapter[k].tensor);
        if (share_module(name, other))
            str_add(&out, ".base_layer");
        free(other);
    }
    free(name);
    return str_steal(&out);
}
