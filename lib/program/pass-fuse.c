/* pass-fuse - several instructions as one, where the backend has a kernel for that
 *
 * A fused operation is a row of the table like any other.  It is put before its parts,
 * the instructions that it stands for, which are moved together and stay in the
 * program: who sums costs, loads weights or looks for the KV cache sees the same
 * instructions as without it, and only what runs the program sees a difference.  Values
 * that nobody but the parts reads get no memory.
 *
 * It runs after the reverse and not on a program with a derivative, whose instructions
 * read what would be inside. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/program/fuse.h"
#include "lib/program/pass.h"

static bool take(void *arg, const struct program *p, const struct inst *inst)
{
    (void)arg;
    (void)p;
    (void)inst;
    return true;
}

const struct program_fuse program_fuse_all = { .takes = take };

/* ---- what the rules look at ---- */

/* Instruction I, if it is an OP of all rows that nothing has fused yet; else NULL. */
static const struct inst *alone_at(const struct fusing *f, int i, enum op op)
{
    return i >= 0 && f->p->inst[i].op == op && !f->p->inst[i].only.by && !f->part[i]
               ? &f->p->inst[i]
               : NULL;
}

static void add_part(struct fusion *out, int i)
{
    int at = out->n++;

    for (; at > 0 && out->inst[at - 1] > i; at--)
        out->inst[at] = out->inst[at - 1];
    out->inst[at] = i;
}

static bool has_part(const struct fusion *o, int i)
{
    for (int k = 0; k < o->n; k++)
        if (o->inst[k] == i)
            return true;
    return false;
}

/* The instruction OP that makes V, which is read once; -1: something else does. */
static int hidden_maker(const struct fusing *f, int v, enum op op)
{
    int i = f->maker[v];

    return f->reads[v] == 1 && alone_at(f, i, op) ? i : -1;
}

/* The instruction OP that reads V after instruction I; -1: there is none. */
static int reader_after(const struct fusing *f, int i, int v, enum op op)
{
    for (int k = i + 1; k < f->p->ninsts; k++)
        for (int s = 0; s < f->p->inst[k].nsrc; s++)
            if (f->p->inst[k].src[s] == v && alone_at(f, k, op))
                return k;
    return -1;
}

/* Adds the product that makes V, and the bias that is added to it.  Returns its source;
 * -1: V is made in another way, or read by others. */
static int add_product(const struct fusing *f, int v, struct fusion *out)
{
    int bias = hidden_maker(f, v, OP_ADD_VECTOR), product;

    if (bias >= 0) {
        add_part(out, bias);
        v = f->p->inst[bias].src[0];
    }
    product = hidden_maker(f, v, OP_LINEAR);
    if (product < 0)
        return -1;
    add_part(out, product);
    return f->p->inst[product].src[0];
}

bool parts_gated_linear(const struct fusing *f, int at, struct fusion *out)
{
    const struct inst *mul = alone_at(f, at, OP_MUL);

    for (int k = 0; mul && k < 2; k++) {
        int act = hidden_maker(f, mul->src[k], OP_ACTIVATION), x;

        *out = (struct fusion){ 0 };
        add_part(out, at);
        if (act < 0)
            continue;
        add_part(out, act);
        x = add_product(f, f->p->inst[act].src[0], out);
        if (x >= 0 && x == add_product(f, mul->src[1 - k], out))
            return true;
    }
    return false;
}

/* Are A and B computed in the same layer, for the same rows? */
static bool are_beside(const struct program *p, int a, int b)
{
    const struct value *v = &p->value[p->inst[a].dst], *w = &p->value[p->inst[b].dst];

    return v->section == w->section && v->layer == w->layer && v->rows == w->rows &&
           v->mixture == w->mixture;
}

bool parts_linears(const struct fusing *f, int at, struct fusion *out)
{
    enum { MOST = INST_PARTS / 2 };
    const struct inst *first = alone_at(f, at, OP_LINEAR);
    int products = 0;

    *out = (struct fusion){ 0 };
    if (!first || f->reads[first->src[0]] < 2 || f->p->weight[first->weight].experts)
        return false;
    for (int i = at; i >= 0 && products < MOST;
         i = reader_after(f, i, first->src[0], OP_LINEAR)) {
        int v = f->p->inst[i].dst, bias;

        if (!are_beside(f->p, at, i))
            continue;
        add_part(out, i);
        products++;
        bias = f->reads[v] == 1 ? reader_after(f, i, v, OP_ADD_VECTOR) : -1;
        if (bias >= 0)
            add_part(out, bias);
    }
    return products > 1;
}

bool parts_add_norm(const struct fusing *f, int at, struct fusion *out)
{
    const struct inst *add = alone_at(f, at, OP_ADD);
    int norm;

    *out = (struct fusion){ 0 };
    if (!add)
        return false;
    norm = reader_after(f, at, add->dst, OP_RMSNORM);
    if (norm < 0)
        norm = reader_after(f, at, add->dst, OP_LAYERNORM);
    if (norm < 0 || f->p->inst[norm].norm.width != f->p->value[add->dst].cols)
        return false;
    add_part(out, at);
    add_part(out, norm);
    return true;
}

bool parts_rope_keep(const struct fusing *f, int at, struct fusion *out)
{
    const struct inst *attention = alone_at(f, at, OP_ATTENTION);
    const struct program *p = f->p;
    int q, k, v, turned;

    *out = (struct fusion){ .late = true };
    if (!attention || p->mesh.size[MESH_SP] > 1)
        return false;
    q = f->maker[attention->src[0]];
    k = f->maker[attention->src[1]];
    v = f->maker[attention->src[2]];
    turned = alone_at(f, k, OP_KEEP) ? hidden_maker(f, p->inst[k].src[0], OP_ROPE) : -1;
    if (turned < 0)
        return false;
    add_part(out, turned);
    add_part(out, k);
    if (alone_at(f, q, OP_ROPE) && p->inst[q].src[1] == p->inst[turned].src[1] &&
        are_beside(p, q, turned))
        add_part(out, q);
    if (v != k && alone_at(f, v, OP_KEEP) && are_beside(p, v, k))
        add_part(out, v);
    return true;
}

/* ---- moving the parts together ---- */

/* Can all parts of O run where its first one stands, or its last? */
static bool can_move(const struct fusing *f, const struct fusion *o)
{
    int first = o->inst[0], last = o->inst[o->n - 1];

    for (int i = first; i <= last; i++) {
        const struct inst *inst = &f->p->inst[i];
        bool own = has_part(o, i);

        if (own == o->late)
            continue;
        /* early: a part's sources; late: the parts' results, for those between */
        for (int k = 0; k < inst->nsrc; k++) {
            int maker = f->maker[inst->src[k]];

            if (o->late ? has_part(o, maker) : maker >= first && !has_part(o, maker))
                return false;
        }
    }
    return true;
}

/* Marks the values that only the parts of O read. */
static void hide(const struct fusing *f, struct program *p, const struct fusion *o)
{
    for (int i = 0; i < o->n; i++) {
        int v = p->inst[o->inst[i]].dst, own = 0;

        for (int k = 0; k < o->n; k++)
            for (int s = 0; s < p->inst[o->inst[k]].nsrc; s++)
                own += p->inst[o->inst[k]].src[s] == v;
        p->value[v].inside = own && own == f->reads[v];
    }
}

/* OP for the parts of O, and they behind it. */
static void arrange(struct inst *to, const struct program *p, enum op op,
                    const struct fusion *o)
{
    const struct inst *first = &p->inst[o->inst[0]];

    to[0] = (struct inst){ .op = op,
                           .dst = first->dst,
                           .weight = -1,
                           .weight2 = -1,
                           .line = first->line,
                           .mixture = first->mixture,
                           .parts = o->n };
    for (int k = 0; k < o->n; k++)
        to[1 + k] = p->inst[o->inst[k]];
}

/* ---- the pass ---- */

static void look_at(struct fusing *f)
{
    const struct program *p = f->p;

    for (int v = 0; v < p->nvalues; v++) {
        f->maker[v] = -1;
        f->reads[v] = 0;
    }
    f->part = xcalloc((size_t)p->ninsts + 1, sizeof(*f->part));
    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];

        if (inst->parts) {
            memset(f->part + i, true, (size_t)inst->parts + 1);
            continue;
        }
        f->maker[inst->dst] = i;
        for (int k = 0; k < inst->nsrc; k++)
            f->reads[inst->src[k]]++;
    }
    for (int i = 0; i < p->noutputs; i++)
        f->reads[p->output[i].value]++;
    for (int i = 0; i < p->nexports; i++)
        f->reads[p->export[i]]++;
    for (int i = 0; i < p->nmixtures; i++) { /* the engine reads these */
        f->reads[p->mixture[i].counts]++;
        f->reads[p->mixture[i].sent]++;
    }
}

/* Finds the fusions of OP; at[i] = number of the one that instruction I belongs to. */
static struct fusion *find_fusions(struct fusing *f, enum op op,
                                   const struct program_fuse *fuse, int *at, int *n)
{
    const struct program *p = f->p;
    struct fusion *all = NULL, one;
    struct inst with[1 + INST_PARTS];
    size_t cap = 0;

    *n = 0;
    for (int i = 0; i < p->ninsts; i++)
        at[i] = -1;
    for (int i = 0; i < p->ninsts; i++) {
        if (!op_table[op].parts(f, i, &one) || !can_move(f, &one))
            continue;
        arrange(with, p, op, &one);
        if (!fuse->takes(fuse->arg, p, with))
            continue;
        for (int k = 0; k < one.n; k++) {
            at[one.inst[k]] = *n;
            f->part[one.inst[k]] = true;
        }
        all = xgrow(all, &cap, (size_t)*n + 1, sizeof(*all));
        all[(*n)++] = one;
    }
    return all;
}

/* Fuses what OP can stand for. */
static void fuse(struct program *p, enum op op, const struct program_fuse *how)
{
    struct fusing f = { .p = p,
                        .maker = xmalloc(sizeof(int) * ((size_t)p->nvalues + 1)),
                        .reads = xmalloc(sizeof(int) * ((size_t)p->nvalues + 1)) };
    int *at = xmalloc(sizeof(*at) * ((size_t)p->ninsts + 1)), fusions, n = 0;
    struct fusion *all;
    struct inst *inst;

    look_at(&f);
    all = find_fusions(&f, op, how, at, &fusions);
    inst = xmalloc(sizeof(*inst) * (size_t)(p->ninsts + fusions + 1));
    for (int i = 0; i < p->ninsts; i++) {
        const struct fusion *o = at[i] < 0 ? NULL : &all[at[i]];

        if (!o) {
            inst[n++] = p->inst[i];
        } else if (i == o->inst[o->late ? o->n - 1 : 0]) {
            arrange(inst + n, p, op, o);
            n += 1 + o->n;
            hide(&f, p, o);
        }
    }
    free(p->inst);
    p->inst = inst;
    p->ninsts = n;
    free(f.maker);
    free(f.reads);
    free(f.part);
    free(all);
    free(at);
}

int pass_fuse(struct builder *b)
{
    struct program *p = b->p;

    for (int op = 0; op < OP_COUNT && b->opt->fuse.takes && !b->opt->reverse; op++)
        if (op_table[op].parts)
            fuse(p, (enum op)op, &b->opt->fuse);
    p->nforward = b->opt->reverse ? p->nforward : p->ninsts;
    return 0;
}
