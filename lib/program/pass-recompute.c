/* pass-recompute - values that the reverse reads are dropped and computed again
 *
 * A dropped value is free after its last reader in the forward pass.  Where the reverse
 * first reads it, the instruction that makes it is appended once more, after those that
 * make its own dropped sources; kernels give the same bits each time, and dropout's
 * numbers are a function of the place and the token.  So the gradients are the same to
 * the bit.
 *
 * The ranks of a tensor group must run the same collectives in the same order.  The
 * reverse leaves out some gradients on all ranks but the first; it marks them
 * (value.elsewhere), they count as readers here, and this pass takes them out. */
#include "lib/program/pass.h"

#include <stdlib.h>

#include "lib/base/mem.h"

struct again {
    struct builder *b;
    struct inst *old; /* the program before */
    int ninsts, nvalues;
    int *maker;    /* [nvalues]: forward instruction that makes the value; or -1 */
    int *part;     /* [nvalues]: model_part of the value */
    bool *dropped; /* [nvalues] */
    int *copy;     /* [nvalues]: the value computed again, or -1: not yet */
};

/* Rotary angles and the like: made of nothing, before all layers. */
static bool is_constant(const struct inst *inst)
{
    return inst->nsrc == 0 && inst->weight < 0;
}

static bool attends(const struct inst *inst)
{
    return op_scores(inst).heads > 0;
}

static bool is_product(const struct inst *inst)
{
    return op_table[inst->op].inner != INNER_NONE;
}

/* ---- what is dropped ---- */

/* Drops all values made in the first LAYERS layers (0: all) of this stage that no other
 * layer reads. */
static void drop_layers(struct again *a, int layers)
{
    struct program *p = a->b->p;
    int last = -1, seen = 0;

    for (int i = 0; i < p->nforward; i++) {
        const struct inst *inst = &a->old[i];
        const struct value *v = &p->value[inst->dst];

        if (v->layer < 0 || is_constant(inst))
            continue;
        if (a->part[inst->dst] != last) {
            last = a->part[inst->dst];
            seen++;
        }
        a->dropped[inst->dst] = !layers || seen <= layers;
    }
    for (int i = 0; i < p->nforward; i++)
        for (int k = 0; k < a->old[i].nsrc; k++)
            if (a->part[a->old[i].src[k]] != a->part[a->old[i].dst])
                a->dropped[a->old[i].src[k]] = false;
}

/* Saves the results of attention and of every second product of a layer, the first
 * among them: torchtitan's policy of selective activation checkpointing. */
static void save_products(struct again *a)
{
    struct program *p = a->b->p;
    int last = -1, products = 0;

    for (int i = 0; i < p->nforward; i++) {
        const struct inst *inst = &a->old[i];

        if (a->part[inst->dst] != last)
            products = 0;
        last = a->part[inst->dst];
        if (attends(inst) || (is_product(inst) && products++ % 2 == 0))
            a->dropped[inst->dst] = false;
    }
}

/* Drops what attention reads, as far as it can be made from what the reverse reads
 * anyway without a product or a collective: rotated and normalized queries and keys.
 * Its scores are never stored. */
static void drop_attention(struct again *a)
{
    struct program *p = a->b->p;
    bool *inside = xcalloc((size_t)a->nvalues + 1, sizeof(*inside));
    bool *back = xcalloc((size_t)a->nvalues + 1, sizeof(*back));

    for (int i = p->nforward; i < a->ninsts; i++)
        for (int k = 0; k < a->old[i].nsrc; k++)
            if (a->old[i].src[k] < a->nvalues)
                back[a->old[i].src[k]] = true;
    for (int i = p->nforward - 1; i >= 0; i--) {
        const struct inst *inst = &a->old[i];

        for (int k = 0; k < inst->nsrc && (attends(inst) || inside[inst->dst]); k++) {
            int m = a->maker[inst->src[k]];

            inside[inst->src[k]] =
                m >= 0 && a->part[inst->src[k]] == a->part[inst->dst] &&
                !is_product(&a->old[m]) && !attends(&a->old[m]) &&
                op_table[a->old[m].op].on_device && !is_constant(&a->old[m]);
        }
    }
    for (int i = 0; i < p->nforward; i++) {
        const struct inst *inst = &a->old[i];
        bool can = inside[inst->dst];

        for (int k = 0; k < inst->nsrc && can; k++) {
            int s = inst->src[k];

            can = a->dropped[s] || back[s] ||
                  (a->maker[s] >= 0 && is_constant(&a->old[a->maker[s]]));
        }
        a->dropped[inst->dst] = can;
    }
    free(inside);
    free(back);
}

/* Saves what leaves the stage, and the counts of rows that the engine reads by
 * value. */
static void save_others(struct again *a)
{
    struct program *p = a->b->p;

    for (int i = 0; i < p->noutputs; i++)
        a->dropped[p->output[i].value] = false;
    for (int i = 0; i < p->nexports; i++)
        a->dropped[p->export[i]] = false;
    for (int i = 0; i < p->nmixtures; i++)
        a->dropped[p->mixture[i].counts] = a->dropped[p->mixture[i].sent] = false;
}

/* ---- computing it again ---- */

static void append(struct again *a, const struct inst *inst)
{
    struct program *p = a->b->p;

    p->inst = xgrow(p->inst, &a->b->inst_cap, (size_t)p->ninsts + 1, sizeof(*p->inst));
    p->inst[p->ninsts++] = *inst;
}

/* The value to read for V in the reverse: V itself, or its second making. */
static int again(struct again *a, int v)
{
    struct program *p = a->b->p;
    struct inst inst;
    struct value like;

    if (v >= a->nvalues || !a->dropped[v])
        return v;
    if (a->copy[v] >= 0)
        return a->copy[v];
    inst = a->old[a->maker[v]];
    for (int k = 0; k < inst.nsrc; k++)
        inst.src[k] = again(a, inst.src[k]);
    like = p->value[v];
    a->copy[v] = build_emit_plain(a->b, inst.op, like.cols, like.dtype, like.rows)->dst;
    like.again = true;
    p->value[a->copy[v]] = like;
    inst.dst = a->copy[v];
    p->inst[p->ninsts - 1] = inst;
    return a->copy[v];
}

static void rewrite(struct again *a)
{
    struct program *p = a->b->p;

    p->inst = NULL;
    p->ninsts = 0;
    a->b->inst_cap = 0;
    for (int i = 0; i < p->nforward; i++)
        append(a, &a->old[i]);
    for (int i = p->nforward; i < a->ninsts; i++) {
        struct inst inst = a->old[i];

        for (int k = 0; k < inst.nsrc; k++)
            inst.src[k] = again(a, inst.src[k]);
        if (!p->value[inst.dst].elsewhere)
            append(a, &inst);
    }
}

int pass_recompute(struct builder *b)
{
    struct program *p = b->p;
    struct again a = {
        .b = b, .old = p->inst, .ninsts = p->ninsts, .nvalues = p->nvalues
    };
    size_t n = (size_t)p->nvalues + 1;

    if (!b->opt->reverse)
        return 0;
    a.maker = xmalloc(n * sizeof(*a.maker));
    a.part = xmalloc(n * sizeof(*a.part));
    a.dropped = xcalloc(n, sizeof(*a.dropped));
    a.copy = xmalloc(n * sizeof(*a.copy));
    for (int v = 0; v < p->nvalues; v++) {
        a.maker[v] = a.copy[v] = -1;
        a.part[v] = model_part(p->model, p->value[v].section, p->value[v].layer);
    }
    for (int i = 0; i < p->nforward; i++)
        a.maker[p->inst[i].dst] = i;
    switch (b->opt->recompute.kind) {
    case RECOMPUTE_ATTENTION:
        drop_attention(&a);
        break;
    case RECOMPUTE_FULL:
    case RECOMPUTE_PRODUCTS:
        drop_layers(&a, b->opt->recompute.layers);
        break;
    default:
        break;
    }
    if (b->opt->recompute.kind == RECOMPUTE_PRODUCTS)
        save_products(&a);
    save_others(&a);
    rewrite(&a);
    free(a.old);
    free(a.maker);
    free(a.part);
    free(a.dropped);
    free(a.copy);
    return 0;
}
