/* values - the values of a forward pass, and what keeps them for the backward pass */
#include "lib/estimate/values.h"

#include <stdlib.h>

#include "lib/base/mem.h"

static void mark_logits(struct values *v, int value)
{
    const struct program *p = v->a->program;

    for (int i = v->producer[value]; i >= 0; i = v->producer[value]) {
        v->logits[value] = true;
        if (op_table[p->inst[i].op].traffic == TRAFFIC_PRODUCT || !p->inst[i].nsrc)
            return;
        value = p->inst[i].src[0];
    }
}

void values_open(struct values *v, struct anatomy *a, bool eager)
{
    const struct program *p = a->program;

    *v = (struct values){ .a = a, .eager = eager };
    v->producer = xmalloc(sizeof(*v->producer) * (size_t)(p->nvalues + 1));
    v->keeper = xmalloc(sizeof(*v->keeper) * (size_t)(p->nvalues + 1));
    v->logits = xcalloc((size_t)p->nvalues + 1, sizeof(*v->logits));
    v->copies = xcalloc((size_t)p->ninsts + 1, sizeof(*v->copies));
    for (int i = 0; i < p->nvalues; i++)
        v->producer[i] = v->keeper[i] = -1;
    for (int i = 0; i < p->ninsts; i++) {
        v->producer[p->inst[i].dst] = i;
        if (op_table[p->inst[i].op].role == ROLE_LOSS)
            mark_logits(v, p->inst[i].src[0]);
    }
}

void values_close(struct values *v)
{
    free(v->producer);
    free(v->keeper);
    free(v->copies);
    free(v->logits);
}

struct unit *values_unit(const struct values *v, int value)
{
    return &v->a->unit[anatomy_unit(v->a, &v->a->program->value[value])];
}

int values_storage(const struct values *v, int value)
{
    const struct program *p = v->a->program;

    while (v->producer[value] >= 0) {
        enum op_result result = op_table[p->inst[v->producer[value]].op].result;

        if (result == RESULT_OWN || (result == RESULT_PART && !v->eager))
            break;
        value = p->inst[v->producer[value]].src[0];
    }
    return value;
}

bool values_are_logits(const struct values *v, int value)
{
    return v->logits[value];
}

bool value_is_cut(const struct value *value)
{
    return value->cols < value->whole_cols;
}

uint64_t values_of_experts(const struct values *v, int mixture, uint64_t n)
{
    const struct program *p = v->a->program;
    uint64_t groups = (uint64_t)p->mesh.size[MESH_EP];
    const struct mixture *m = mixture < 0 ? NULL : &p->mixture[mixture];

    return m ? (n * groups * m->count * m->top + m->all / 2) / m->all : n;
}

uint64_t values_columns(const struct values *v, const struct value *value)
{
    return value->dtype == DTYPE_F32 ? values_of_experts(v, value->mixture, value->cols)
                                     : 0;
}

void values_add(struct columns *sum, const struct values *v, int value)
{
    const struct value *its = &v->a->program->value[value];

    *(value_is_cut(its) ? &sum->cut : &sum->whole) += values_columns(v, its);
}
