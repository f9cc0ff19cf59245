/* values - the values of a forward pass and the instructions that save them */
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

/* Marks the product that makes the scores by which INST chooses experts. */
static void mark_router(struct values *v, const struct inst *inst)
{
    const struct program *p = v->a->program;
    int i = inst->op == OP_ROUTE ? v->producer[inst->src[0]] : -1;

    while (i >= 0 && op_table[p->inst[i].op].traffic != TRAFFIC_PRODUCT)
        i = p->inst[i].nsrc ? v->producer[p->inst[i].src[0]] : -1;
    if (i >= 0)
        v->routes[i] = true;
}

/* Marks the source of INST if INST is a column-parallel product. */
static void mark_gathered(struct values *v, const struct inst *inst)
{
    const struct program *p = v->a->program;

    if (op_table[inst->op].traffic == TRAFFIC_PRODUCT &&
        value_is_cut(&p->value[inst->dst]) && !value_is_cut(&p->value[inst->src[0]]))
        v->gathered[values_storage(v, inst->src[0])] = true;
}

void values_open(struct values *v, struct costmodel *a, bool eager)
{
    const struct program *p = a->program;

    *v = (struct values){ .a = a, .eager = eager };
    v->producer = xmalloc(sizeof(*v->producer) * (size_t)(p->nvalues + 1));
    v->keeper = xmalloc(sizeof(*v->keeper) * (size_t)(p->nvalues + 1));
    v->logits = xcalloc((size_t)p->nvalues + 1, sizeof(*v->logits));
    v->gathered = xcalloc((size_t)p->nvalues + 1, sizeof(*v->gathered));
    v->routes = xcalloc((size_t)p->ninsts + 1, sizeof(*v->routes));
    v->copies = xcalloc((size_t)p->ninsts + 1, sizeof(*v->copies));
    for (int i = 0; i < p->nvalues; i++)
        v->producer[i] = v->keeper[i] = -1;
    for (int i = 0; i < p->ninsts; i++) {
        v->producer[p->inst[i].dst] = i;
        if (op_table[p->inst[i].op].role == ROLE_LOSS)
            mark_logits(v, p->inst[i].src[0]);
    }
    for (int i = 0; i < p->ninsts; i++) {
        mark_gathered(v, &p->inst[i]);
        mark_router(v, &p->inst[i]);
    }
}

void values_close(struct values *v)
{
    free(v->producer);
    free(v->keeper);
    free(v->copies);
    free(v->routes);
    free(v->logits);
    free(v->gathered);
}

struct unit *values_unit(const struct values *v, int value)
{
    return &v->a->unit[costmodel_unit(v->a, &v->a->program->value[value])];
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

    if (m && v->eager && v->a->torch.of[OP_ROUTE] & TORCH_EVERY)
        return n * groups * m->count;
    return m ? (n * groups * m->count * m->top + m->all / 2) / m->all : n;
}

uint64_t values_columns(const struct values *v, const struct value *value)
{
    if (value->dtype != DTYPE_F32)
        return 0;
    if (value->rows == ROWS_SENT)
        return value->cols * v->a->program->mixture[value->mixture].top;
    return values_of_experts(v, value->mixture, value->cols);
}

/* The elements of VALUE, by placement. */
static struct columns columns_of(const struct values *v, int value)
{
    const struct value *its = &v->a->program->value[value];
    uint64_t n = values_columns(v, its);

    if (value_is_cut(its))
        return (struct columns){ .cut = n };
    return (struct columns){ .whole = n, .gathered = v->gathered[value] ? n : 0 };
}

void values_add(struct columns *sum, const struct values *v, int value)
{
    struct columns c = columns_of(v, value);

    sum->cut += c.cut;
    sum->whole += c.whole;
    sum->gathered += c.gathered;
}

void values_drop(struct columns *sum, const struct values *v, int value)
{
    struct columns c = columns_of(v, value);

    sum->cut -= c.cut;
    sum->whole -= c.whole;
    sum->gathered -= c.gathered;
}
