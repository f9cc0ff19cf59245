/* pass-sequence - what tensor ranks compute alike is divided by rows
 *
 * Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer
 * Models", section 4.2.2: between the products that tensor ranks share, norms, dropout,
 * biases and residuals are the same on all of them.  With .sequence each rank has a
 * part of the tokens there.  The all-reduce after a product becomes a reduce-scatter,
 * which adds in the same order; whatever reads all rows gathers them before, in the
 * reverse once more, so that what is saved is a part.
 *
 * Forward pass and reverse are treated alike.  The gradient of a weight that reads a
 * part, of a norm or a bias, becomes a sum over the ranks.  What crosses stages is
 * whole. */
#include "lib/program/pass.h"

#include <stdlib.h>

#include "lib/base/mem.h"

enum { PHASES = 2 }; /* the forward pass and the reverse */

struct dividing {
    struct builder *b;
    struct program *p;
    struct inst *old; /* the program before */
    int ninsts, nforward, nvalues;
    int space;          /* of the rows of a part */
    bool *part;         /* [nvalues]: its rows are a part's */
    bool *sent;         /* [nvalues]: it comes from another stage */
    int *readers;       /* [nvalues] */
    bool *joins;        /* [nvalues]: something that can be divided reads it */
    int *own;           /* [nvalues]: the part of a whole value, from 1; 0: not yet */
    int *whole[PHASES]; /* [nvalues]: the gathered rows of a part, too */
    bool *summed;       /* [nweights]: became a sum over the ranks here */
};

/* Does each row of INST's result follow from those rows of its sources, or is it a sum
 * over rows for the gradient of a weight? */
static bool goes_by_rows(const struct inst *inst)
{
    switch (inst->op) {
    case OP_ADD:
    case OP_MUL:
    case OP_SCALE:
    case OP_ADD_VECTOR:
    case OP_MUL_VECTOR:
    case OP_ACTIVATION:
    case OP_ACTIVATION_BACK:
    case OP_DROPOUT:
    case OP_RMSNORM:
    case OP_LAYERNORM:
    case OP_NORM_BACK:
    case OP_NORM_WEIGHT:
    case OP_COLUMN_SUM:
        return true;
    default:
        return false;
    }
}

/* Has every tensor rank the same numbers of value V, a row for each token? */
static bool is_alike(const struct dividing *d, int v)
{
    const struct value *its = &d->p->value[v];

    return its->place == PLACE_WHOLE && its->dtype == DTYPE_F32 && its->mixture < 0 &&
           !its->kept && (its->rows == ROWS_TOKENS || its->rows == d->space);
}

static bool can_divide(const struct dividing *d, const struct inst *inst)
{
    bool can = goes_by_rows(inst) && inst->nsrc > 0 &&
               (d->p->value[inst->dst].gradient || is_alike(d, inst->dst));

    for (int k = 0; k < inst->nsrc && can; k++)
        can = is_alike(d, inst->src[k]);
    return can;
}

/* The sum of what the ranks have, which nobody else reads, for what can be divided. */
static bool can_scatter(const struct dividing *d, const struct inst *inst)
{
    return inst->op == OP_ALL_REDUCE && inst->over == MESH_TP &&
           is_alike(d, inst->dst) && d->readers[inst->src[0]] == 1 &&
           d->joins[inst->dst];
}

/* ---- the new program ---- */

static void append(struct dividing *d, const struct inst *inst)
{
    struct program *p = d->p;

    p->inst = xgrow(p->inst, &d->b->inst_cap, (size_t)p->ninsts + 1, sizeof(*p->inst));
    p->inst[p->ninsts++] = *inst;
}

/* Emits OP of V, for AT; the result has rows of space ROWS. */
static int emit(struct dividing *d, enum op op, int v, int rows, const struct inst *at)
{
    const struct value like = d->p->value[v];
    const struct value place = d->p->value[at->dst];
    struct inst *inst = build_emit_plain(d->b, op, like.cols, like.dtype, rows);
    struct value *y = &d->p->value[inst->dst];

    inst->line = at->line;
    inst->src[inst->nsrc++] = v;
    inst->gather.gather = -1;
    y->section = place.section;
    y->layer = place.layer;
    return inst->dst;
}

/* The rows of V that are this rank's part. */
static int own_rows(struct dividing *d, int v, const struct inst *at)
{
    if (d->part[v])
        return v;
    if (!d->own[v])
        d->own[v] = emit(d, OP_OWN_ROWS, v, d->space, at) + 1;
    return d->own[v] - 1;
}

/* All rows of V, which is a part, in PHASE. */
static int all_rows(struct dividing *d, int v, int phase, const struct inst *at)
{
    if (v >= d->nvalues || !d->part[v])
        return v;
    if (!d->whole[phase][v])
        d->whole[phase][v] = emit(d, OP_ALL_GATHER, v, ROWS_TOKENS, at) + 1;
    return d->whole[phase][v] - 1;
}

/* Divides the instruction; a weight's gradient is then a term on each rank. */
static void divide(struct dividing *d, struct inst *inst)
{
    struct value *y;
    int w;

    for (int k = 0; k < inst->nsrc; k++)
        inst->src[k] = own_rows(d, inst->src[k], inst);
    y = &d->p->value[inst->dst];
    if (!y->gradient) {
        d->part[inst->dst] = true;
        y->rows = d->space;
        return;
    }
    y->elsewhere = false;
    w = y->gradient - 1;
    d->summed[w] |= !d->p->weight[w].summed;
    d->p->weight[w].summed = true;
}

static void rewrite_one(struct dividing *d, struct inst inst, int phase)
{
    bool divides = false;

    for (int k = 0; k < inst.nsrc; k++)
        divides |=
            inst.src[k] < d->nvalues && (d->part[inst.src[k]] || d->sent[inst.src[k]]);
    if (can_scatter(d, &inst)) {
        d->part[inst.dst] = true;
        d->p->value[inst.dst].rows = d->space;
    } else if (divides && can_divide(d, &inst)) {
        divide(d, &inst);
    } else {
        for (int k = 0; k < inst.nsrc; k++)
            inst.src[k] = all_rows(d, inst.src[k], phase, &inst);
    }
    append(d, &inst);
}

/* Gathers the N values V, which others read whole, at the end of PHASE. */
static void join(struct dividing *d, int *v, int n, int phase)
{
    for (int i = 0; i < n; i++) {
        const struct inst at = { .dst = v[i] };

        v[i] = all_rows(d, v[i], phase, &at);
    }
}

static void rewrite(struct dividing *d)
{
    struct program *p = d->p;

    p->inst = NULL;
    p->ninsts = 0;
    d->b->inst_cap = 0;
    for (int i = 0; i < d->nforward; i++)
        rewrite_one(d, d->old[i], 0);
    join(d, p->export, p->nexports, 0);
    for (int i = 0; i < p->noutputs; i++)
        if (p->output[i].stage == p->coord[MESH_PP])
            join(d, &p->output[i].value, 1, 0);
    p->nforward = p->ninsts;
    for (int i = d->nforward; i < d->ninsts; i++)
        rewrite_one(d, d->old[i], 1);
    join(d, p->back_export, p->nimports, 1);
}

/* The terms of a new sum that are the same on all ranks count on the first. */
static void count_once(struct dividing *d)
{
    struct program *p = d->p;

    for (int i = p->nforward; i < p->ninsts; i++) {
        struct value *y = &p->value[p->inst[i].dst];

        if (y->gradient && d->summed[y->gradient - 1] &&
            p->value[p->inst[i].src[0]].rows != d->space)
            y->elsewhere |= p->coord[MESH_TP] > 0;
    }
}

static void find_readers(struct dividing *d)
{
    for (int i = 0; i < d->p->nimports; i++)
        d->sent[d->p->import[i]] = true;
    for (int i = 0; i < d->p->nexports; i++)
        d->sent[d->p->back_import[i]] = true;
    for (int i = 0; i < d->ninsts; i++)
        for (int k = 0; k < d->old[i].nsrc; k++) {
            d->readers[d->old[i].src[k]]++;
            d->joins[d->old[i].src[k]] |= can_divide(d, &d->old[i]);
        }
}

int pass_sequence(struct builder *b)
{
    struct program *p = b->p;
    const struct row_space share = { .how = HOW_SHARE,
                                     .parent = ROWS_TOKENS,
                                     .times = 1,
                                     .by = (uint64_t)p->mesh.size[MESH_TP],
                                     .plus = p->coord[MESH_TP] };
    struct dividing d = { .b = b,
                          .p = p,
                          .old = p->inst,
                          .ninsts = p->ninsts,
                          .nforward = p->nforward,
                          .nvalues = p->nvalues };
    const size_t n = (size_t)p->nvalues + 1;

    if (!b->opt->sequence || !b->opt->reverse || p->mesh.size[MESH_TP] == 1)
        return 0;
    if (b->opt->deterministic)
        return err_set(b->err, ERR_NO,
                       "deterministic training: gradients of norms are sums over the "
                       "ranks that share the tokens");
    d.space = rows_derive(&p->rows, &share, "part", sizeof("part") - 1);
    if (d.space < 0)
        return err_set(b->err, ERR_NO, "family %s: has too many kinds of rows",
                       p->model->family);
    d.part = xcalloc(n, sizeof(*d.part));
    d.sent = xcalloc(n, sizeof(*d.sent));
    d.readers = xcalloc(n, sizeof(*d.readers));
    d.joins = xcalloc(n, sizeof(*d.joins));
    d.own = xcalloc(n, sizeof(*d.own));
    for (int k = 0; k < PHASES; k++)
        d.whole[k] = xcalloc(n, sizeof(*d.whole[k]));
    d.summed = xcalloc((size_t)p->nweights + 1, sizeof(*d.summed));
    find_readers(&d);
    rewrite(&d);
    count_once(&d);
    free(d.old);
    free(d.part);
    free(d.sent);
    free(d.readers);
    free(d.joins);
    free(d.own);
    for (int k = 0; k < PHASES; k++)
        free(d.whole[k]);
    free(d.summed);
    return 0;
}
