/* pass-boundary - cuts a program down to one pipeline stage
 *
 * A stage runs the instructions of its sections and layers (model_stage).  It receives
 * from the previous stage the values that it reads but does not make (p->import), and
 * sends to the next stage the values that any later stage reads (p->export).  A value
 * that only passes through is in both lists.  A cached value is never sent: each stage
 * that reads it makes it from the rows in its own cache. */
#include "lib/program/pass.h"

#include <stdlib.h>

#include "lib/base/mem.h"

/* The pipeline stages that make and read the values. */
struct stages {
    int *runs; /* [ninsts]: stage of the instruction; never falls */
    int *made; /* [nvalues]: stage that makes it; -1: no instruction does */
    int *read; /* [nvalues]: last stage that reads it; at least made */
};

/* Each stage that reads the result of INST makes it itself: it needs no activation of
 * another stage (cached rows, rotary angles). */
static bool is_local(const struct inst *inst)
{
    return inst->op == OP_KEEP || (inst->nsrc == 0 && inst->weight < 0);
}

static void place(struct stages *s, const struct program *p)
{
    int last = p->mesh.size[MESH_PP] - 1, at = 0;

    for (int i = 0; i < p->ninsts; i++) {
        const struct value *v = &p->value[p->inst[i].dst];
        int stage = v->section < 0
                        ? last
                        : model_stage(p->model, &p->mesh, v->section, v->layer);

        at = stage > at ? stage : at;
        s->runs[i] = at;
        s->made[p->inst[i].dst] = s->read[p->inst[i].dst] = at;
    }
    for (int i = p->ninsts - 1; i >= 0; i--) {
        const struct inst *inst = &p->inst[i];
        int needed = inst->op == OP_KEEP ? s->read[inst->dst] : s->runs[i];

        for (int k = 0; k < inst->nsrc; k++)
            if (s->read[inst->src[k]] < needed)
                s->read[inst->src[k]] = needed;
    }
}

/* Does an instruction of stage STAGE read value V? */
static bool is_read_on(const struct program *p, const struct stages *s, int v,
                       int stage)
{
    for (int i = 0; i < p->ninsts; i++)
        for (int k = 0; k < p->inst[i].nsrc && s->runs[i] == stage; k++)
            if (p->inst[i].src[k] == v)
                return true;
    return false;
}

static void keep_own(struct program *p, const struct stages *s, int stage)
{
    bool *own = xcalloc((size_t)p->ninsts + 1, sizeof(*own));
    int n = 0;

    for (int i = 0; i < p->ninsts; i++)
        own[i] = s->runs[i] == stage || (is_local(&p->inst[i]) && s->runs[i] < stage &&
                                         s->read[p->inst[i].dst] >= stage &&
                                         is_read_on(p, s, p->inst[i].dst, stage));
    for (int i = 0; i < p->ninsts; i++)
        if (own[i])
            p->inst[n++] = p->inst[i];
    p->ninsts = n;
    free(own);
}

int pass_boundary(struct builder *b)
{
    struct program *p = b->p;
    struct stages s;
    int stage = p->coord[MESH_PP];
    bool *local;

    if (p->mesh.size[MESH_PP] == 1)
        return 0;
    local = xcalloc((size_t)p->nvalues + 1, sizeof(*local));
    s.runs = xcalloc((size_t)p->ninsts + 1, sizeof(*s.runs));
    s.made = xcalloc((size_t)p->nvalues + 1, sizeof(*s.made));
    s.read = xcalloc((size_t)p->nvalues + 1, sizeof(*s.read));
    p->import = xcalloc((size_t)p->nvalues + 1, sizeof(*p->import));
    p->export = xcalloc((size_t)p->nvalues + 1, sizeof(*p->export));
    for (int v = 0; v < p->nvalues; v++)
        s.made[v] = s.read[v] = -1;
    place(&s, p);
    for (int i = 0; i < p->ninsts; i++)
        if (is_local(&p->inst[i]))
            local[p->inst[i].dst] = true;
    for (int v = 0; v < p->nvalues; v++) {
        if (s.made[v] < 0 || local[v])
            continue;
        if (s.made[v] < stage && s.read[v] >= stage)
            p->import[p->nimports++] = v;
        if (s.made[v] <= stage && s.read[v] > stage)
            p->export[p->nexports++] = v;
    }
    for (int i = 0; i < p->noutputs; i++)
        p->output[i].stage = s.made[p->output[i].value];
    keep_own(p, &s, stage);
    free(s.runs);
    free(s.made);
    free(s.read);
    free(local);
    return 0;
}
