/* work - what one token costs a rank of a model, summed over layers */
#include "lib/estimate/work.h"

#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/model/state.h"

/* Attention's scores are written, read and written by the softmax, and read. */
enum { SCORE_PASSES = 4 };

void work_add(struct work *to, const struct work *w, double sign)
{
    double *a = (double *)to;
    const double *b = (const double *)w;

    for (int i = 0; i < WORK_FIELDS; i++)
        a[i] += sign * b[i];
}

void work_add_layers(struct work *to, const struct work *sums, int first, int count)
{
    work_add(to, &sums[first + count], 1);
    work_add(to, &sums[first], -1);
}

/* ---- of a unit ---- */

static struct work unit_work(const struct profile *p, const struct unit *u,
                             const struct memory_options *o)
{
    double seq = (double)o->seq, bytes = (double)o->compute_bytes, columns = 0;
    bool half = o->train && p->a->causal && o->flash;
    struct work w = { 0 };

    w.products = 2 * (double)u->products;
    w.attention = 2 * (double)u->attention * (half ? seq / 2 : seq);
    w.scores = o->flash ? 0 : SCORE_PASSES * bytes * (double)u->kept.heads * seq;
    w.reduced = bytes * (double)u->reduced;
    w.reductions = u->reductions;
    for (int k = 0; k < u->ncaches; k++) {
        uint64_t window = u->cache[k].window;

        columns += (double)u->cache[k].cols;
        w.cached += (double)(window && window < o->seq ? window : o->seq) *
                    (double)(u->cache[k].cols * o->kv_bytes);
    }
    w.heads = bytes * (double)u->attention;
    w.keys = bytes * columns;
    w.layers = u->attention > 0;
    for (int c = 0; c < WEIGHT_CLASSES; c++)
        if (c != WEIGHT_EXPERT)
            w.weights += (double)u->weight[c].elements;
    w.experts = (double)u->weight[WEIGHT_EXPERT].elements;
    w.routed = bytes * (double)u->routed;
    w.routes = u->routed > 0;
    return w;
}

/* ---- of instructions ---- */

struct reader {
    struct profile *p;
    const struct program *program;
    const struct memory_options *o;
    int *last; /* [nunits]: the last instruction whose sources are read again */
};

/* The experts that INST works for, or NULL. */
static const struct mixture *mixture_of(const struct reader *r, const struct inst *inst)
{
    return inst->mixture < 0 ? NULL : &r->program->mixture[inst->mixture];
}

/* Rows of INST for a token of this rank; all choose all experts equally often. */
static double rows_of(const struct reader *r, const struct inst *inst)
{
    const struct mixture *m = mixture_of(r, inst);

    return m ? (double)r->program->mesh.size[MESH_EP] * (double)(m->count * m->top) /
                   (double)m->all
             : 1;
}

/* Elements of the matrices that a product multiplies with, of one expert. */
static double matrix_of(const struct program *p, const struct inst *inst)
{
    if (inst->op == OP_HEAD_LINEAR || inst->op == OP_HEAD_MATMUL)
        return (double)(inst->head.count * inst->head.a * inst->head.b);
    return (double)(p->weight[inst->weight].rows * p->weight[inst->weight].cols);
}

/* Is no value of INST cut over tp? */
static bool is_whole(const struct program *p, const struct inst *inst)
{
    const struct value *to = &p->value[inst->dst], *from = &p->value[inst->src[0]];

    return to->cols == to->whole_cols && from->cols == from->whole_cols;
}

/* What INST moves, and does on every rank. */
static struct work moves_of(const struct reader *r, const struct inst *inst)
{
    const struct program *p = r->program;
    const struct mixture *m = mixture_of(r, inst);
    bool multiplies = op_table[inst->op].traffic == TRAFFIC_PRODUCT;
    double bytes = (double)r->o->compute_bytes;
    struct work w = { 0 };

    if (inst->op == OP_ROW_STATS &&
        !r->o->fused_loss) /* an f32 copy, and its softmax */
        w.cut = (bytes + 3 * sizeof(float)) * (double)p->value[inst->src[0]].cols;
    if (op_table[inst->op].traffic == TRAFFIC_NOTHING)
        return w;
    for (int k = -1; k < inst->nsrc; k++) {
        const struct value *v = &p->value[k < 0 ? inst->dst : inst->src[k]];
        double n = bytes * rows_of(r, inst) * (double)v->cols;

        if (v->dtype != DTYPE_F32)
            continue;
        if (multiplies || v->cols < v->whole_cols)
            w.cut += n;
        else
            w.whole += n;
    }
    if (!multiplies)
        return w;
    w.matrices = bytes * matrix_of(p, inst) * (m ? (double)m->count : 1);
    if (!m && is_whole(p, inst))
        w.repeated = 2 * rows_of(r, inst) * matrix_of(p, inst);
    return w;
}

/* What a unit's work has of INST besides. */
static struct work rest_of(const struct reader *r, const struct inst *inst)
{
    struct work w = { 0 };

    if (op_table[inst->op].traffic == TRAFFIC_PRODUCT)
        w.products = 2 * rows_of(r, inst) * matrix_of(r->program, inst);
    if (inst->op == OP_ALL_REDUCE) {
        w.reduced = (double)r->o->compute_bytes *
                    (double)r->program->value[inst->dst].whole_cols;
        w.reductions = 1;
    }
    return w;
}

static void read_instruction(struct reader *r, int i)
{
    const struct inst *inst = &r->program->inst[i];
    int u = anatomy_unit(r->p->a, &r->program->value[inst->dst]);
    const struct unit *unit = &r->p->a->unit[u];
    struct work w, rest;

    w = moves_of(r, inst);
    rest = rest_of(r, inst);
    work_add(&r->p->all[unit->depth + 1], &w, 1);
    if (unit->layer < 0)
        return;
    if (i < r->last[u])
        work_add(&r->p->again[unit->depth + 1], &w, 1);
    else
        work_add(&r->p->again[unit->depth + 1], &rest, -1);
}

static void read_program(struct profile *p, const struct memory_options *o)
{
    struct reader r = { .p = p, .program = p->a->program, .o = o };

    r.last = xcalloc((size_t)p->a->nunits + 1, sizeof(*r.last));
    for (int i = 0; i < r.program->ninsts; i++)
        if (op_table[r.program->inst[i].op].saved(&r.program->inst[i]))
            r.last[anatomy_unit(p->a, &r.program->value[r.program->inst[i].dst])] = i;
    for (int i = 0; i < r.program->ninsts; i++)
        read_instruction(&r, i);
    free(r.last);
}

/* ---- of a model ---- */

struct profile *profile_new(const struct anatomy *a, const struct memory_options *o)
{
    struct profile *p = xcalloc(1, sizeof(*p));
    int nlayers = a->model->state->nlayers;

    p->a = a;
    p->depths = nlayers ? nlayers : 1;
    p->all = xcalloc((size_t)p->depths + 1, sizeof(*p->all));
    p->again = xcalloc((size_t)p->depths + 1, sizeof(*p->again));
    for (int i = 0; i < a->nunits; i++) {
        const struct unit *u = &a->unit[i];
        struct work w = unit_work(p, u, o);
        double border = (double)u->kept.border * (double)o->compute_bytes;

        work_add(&p->all[u->depth + 1], &w, 1);
        if (u->layer < 0)
            continue;
        work_add(&p->again[u->depth + 1], &w, 1);
        p->border = border > p->border ? border : p->border;
        if (u->all)
            p->chosen = (double)u->top / (double)u->all;
        if (u->kept.heads && (p->least == 0 || (double)u->kept.heads < p->least))
            p->least = (double)u->kept.heads;
    }
    read_program(p, o);
    for (int d = 1; d <= p->depths; d++) {
        work_add(&p->all[d], &p->all[d - 1], 1);
        work_add(&p->again[d], &p->again[d - 1], 1);
    }
    return p;
}

void profile_free(struct profile *p)
{
    if (!p)
        return;
    free(p->all);
    free(p->again);
    free(p);
}
