/* backward - the peak of activations and their gradients in each unit's backward
 * pass */
#include "lib/estimate/backward.h"

#include <stdlib.h>

#include "lib/base/mem.h"

/* The gradients of a unit's values, from its end to its beginning.  A sum passes its
 * gradient on unchanged, so several values can share one. */
struct gradients {
    struct columns now; /* live gradients and saved activations not read yet */
    uint64_t made;      /* elements of the weight gradients computed so far */
    int *owner;         /* [nvalues]: value whose gradient it shares; -1: no gradient */
    int *shared;        /* [nvalues]: number of values that share this one's gradient */
};

/* Elements of H, f32 copies counted twice, replicated values divided by TP. */
static uint64_t weight_of(const struct columns *h, uint64_t tp)
{
    return h->cut + h->whole / tp + 2 * (h->wide_cut + h->wide_whole / tp);
}

static void note_worst(struct unit_worst *worst, const struct columns *now,
                       uint64_t made, uint64_t tp)
{
    if (weight_of(now, tp) > weight_of(&worst->columns, tp))
        *worst = (struct unit_worst){ *now, made };
}

/* VALUE has a gradient from now on: that of OWNER, which may be VALUE itself. Gradients
 * of logits are counted with the loss. */
static void begin_gradient(const struct values *v, struct gradients *g, int value,
                           int owner)
{
    if (g->owner[value] >= 0)
        return;
    g->owner[value] = owner;
    g->shared[owner]++;
    if (owner == value && !values_are_logits(v, value))
        values_add(&g->now, v, value);
}

static void end_gradient(const struct values *v, struct gradients *g, int value)
{
    int owner = g->owner[value];

    g->owner[value] = -1;
    if (--g->shared[owner] == 0 && !values_are_logits(v, owner))
        values_drop(&g->now, v, owner);
}

/* Frees what instruction I saved; its derivative is done. */
static void let_go(struct values *v, struct gradients *g, int i)
{
    const struct inst *inst = &v->a->program->inst[i];
    const struct columns *copies = &v->copies[i];

    for (int k = 0; k <= inst->nsrc; k++) {
        int value = values_storage(v, k < inst->nsrc ? inst->src[k] : inst->dst);

        if (v->keeper[value] != i)
            continue;
        values_drop(&g->now, v, value);
        v->keeper[value] = -1;
    }
    g->now.cut -= copies->cut;
    g->now.whole -= copies->whole;
    g->now.wide_cut -= copies->wide_cut;
    g->now.wide_whole -= copies->wide_whole;
}

static void step_back(struct values *v, struct unit *u, struct gradients *g, int i)
{
    const struct program *p = v->a->program;
    const struct inst *inst = &p->inst[i];
    const struct value *result = &p->value[inst->dst];
    const struct op_info *op = &op_table[inst->op];
    struct columns most;

    begin_gradient(v, g, inst->dst, inst->dst);
    for (int k = 0; k < op->grads; k++)
        begin_gradient(v, g, inst->src[k],
                       op->passes ? g->owner[inst->dst] : inst->src[k]);
    most = g->now;
    if (v->eager) {
        struct op_torch torch = torch_of(&v->a->torch, inst);
        uint64_t n = values_columns(v, result);

        *(value_is_cut(result) ? &most.wide_cut : &most.wide_whole) +=
            (uint64_t)torch.gradients * n;
        *(value_is_cut(result) ? &most.cut : &most.whole) +=
            (uint64_t)torch.temporaries * n;
    }
    if (inst->weight >= 0)
        g->made += p->weight[inst->weight].rows * p->weight[inst->weight].cols;
    note_worst(&u->worst[UNIT_WHOLE], &most, g->made, 1);
    note_worst(&u->worst[UNIT_CUT], &most, g->made, (uint64_t)p->mesh.size[MESH_TP]);
    if (op_scores(inst).heads)
        note_worst(&u->worst[UNIT_ATTENTION], &most, g->made, 1);
    end_gradient(v, g, inst->dst);
    let_go(v, g, i);
}

/* PART of ALL in thousandths. */
static uint64_t share_of(uint64_t part, uint64_t all)
{
    return all ? (uint64_t)((double)part / (double)all * 1000) : 1000;
}

/* Goes back through the unit that ends before instruction END; returns its first
 * one. */
static int go_back(struct values *v, struct gradients *g, int end)
{
    const struct program *p = v->a->program;
    struct unit *u = values_unit(v, p->inst[end - 1].dst);
    int begin = end;

    g->now = u->kept.columns;
    g->made = 0;
    while (begin > 0 && values_unit(v, p->inst[begin - 1].dst) == u) {
        begin--;
        step_back(v, u, g, begin);
    }
    for (int i = begin; i < end; i++) /* gradients of other units' values */
        for (int k = 0; k < p->inst[i].nsrc; k++)
            if (g->owner[p->inst[i].src[k]] >= 0)
                end_gradient(v, g, p->inst[i].src[k]);
    for (int k = 0; k < UNIT_MOMENTS; k++)
        u->worst[k].made = share_of(u->worst[k].made, g->made);
    return begin;
}

void backward_find_worst(struct values *v)
{
    const struct program *p = v->a->program;
    struct gradients g = { .shared = xcalloc((size_t)p->nvalues + 1, sizeof(int)),
                           .owner = xmalloc(sizeof(int) * (size_t)(p->nvalues + 1)) };

    for (int i = 0; i < p->nvalues; i++)
        g.owner[i] = -1;
    for (int end = p->ninsts; end > 0;)
        end = go_back(v, &g, end);
    free(g.owner);
    free(g.shared);
}
