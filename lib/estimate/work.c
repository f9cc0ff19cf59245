/* work - the cost of one token on a rank, summed over layers */
#include "lib/estimate/work.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"

/* Scores are written, read and written by the softmax, and read. */
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

/* ---- units ---- */

static struct work unit_work(const struct unit *u, const struct memory_options *o)
{
    double columns = 0;
    struct work w = { 0 };

    for (int k = 0; k < u->ncaches; k++) {
        uint64_t window = u->cache[k].window;

        columns += (double)u->cache[k].cols;
        w.cached += (double)(window && window < o->seq ? window : o->seq) *
                    (double)u->cache[k].cols * format_bits(o->kv_format) / 8;
    }
    w.cached += 2 * (double)u->state * sizeof(float); /* read and written */
    w.keys = (double)o->compute_bytes * columns;
    for (int c = 0; c < WEIGHT_CLASSES; c++) {
        double adapters = (double)o->lora_rank * (double)u->weight[c].adapted_sides;

        w.products +=
            2 * adapters *
            (c == WEIGHT_EXPERT && u->all ? (double)u->top / (double)u->all : 1);
        if (c == WEIGHT_EXPERT)
            continue;
        w.weights += (double)u->weight[c].elements;
        w.trained += (double)u->weight[c].trained + adapters;
    }
    w.experts = (double)u->weight[WEIGHT_EXPERT].elements;
    w.trained_experts =
        (double)u->weight[WEIGHT_EXPERT].trained +
        (double)o->lora_rank * (double)u->weight[WEIGHT_EXPERT].adapted_sides;
    return w;
}

/* ---- instructions ---- */

struct reader {
    struct profile *p; /* NULL: only work_of */
    const struct costmodel *a;
    const struct program *program;
    const struct memory_options *o;
    struct cost_step step; /* the mean row of a sequence */
    int *last;             /* [nunits]: last instruction that saves something */
};

struct cost_step work_step(const struct program *p, const struct memory_options *o)
{
    struct cost_step s = cost_token((double)o->seq);

    s.whole = o->train;
    s.dense = o->train && !o->flash;
    s.senders = p->mesh.size[MESH_EP];
    s.value_bytes = s.weight_bytes = (double)o->compute_bytes;
    return s;
}

/* True if neither the result nor the first source of INST is sharded over tp. */
static bool is_whole(const struct program *p, const struct inst *inst)
{
    const struct value *to = &p->value[inst->dst], *from = &p->value[inst->src[0]];

    return to->cols == to->whole_cols && from->cols == from->whole_cols;
}

/* Adds the bytes that INST moves, and the products that every rank repeats. */
static void add_moves(struct work *w, const struct reader *r, const struct inst *inst,
                      const struct cost *c)
{
    const struct program *p = r->program;
    const struct op_info *op = &op_table[inst->op];

    if (op->role == ROLE_LOSS && !r->o->fused_loss) /* an f32 copy, and its softmax */
        w->cut += (r->step.value_bytes + 3 * sizeof(float)) *
                  (double)p->value[inst->src[0]].cols;
    if (torch_usual(inst).free)
        return;
    w->instructions++;
    if (op->traffic != TRAFFIC_PRODUCT) {
        w->cut += c->sharded;
        w->whole += c->whole;
        return;
    }
    if (!r->a->trained[p->weight[inst->weight].tensor])
        w->frozen += c->products;
    w->cut += c->sharded + c->whole;
    w->matrices += r->step.weight_bytes * cost_weights(p, inst, INFINITY);
    if (inst->mixture < 0 && is_whole(p, inst))
        w->repeated += c->products;
}

/* True if INST reduces what experts of all tensor ranks make, and nothing else. */
static bool is_combination(const struct program *p, const struct inst *inst)
{
    for (const struct inst *i = inst; i-- > p->inst;)
        if (i->dst == inst->src[0])
            return i->op == OP_EXPERT_COMBINE;
    return false;
}

/* Adds a collective over tp.  all_to_all_seconds (steptime.c) covers ep and sp. */
static void add_collective(struct work *w, const struct reader *r,
                           const struct inst *inst)
{
    double bytes = cost_bytes(r->program, &r->program->value[inst->dst], &r->step);

    if (cost_over(inst) != MESH_TP)
        return;
    if (op_table[inst->op].collective == COLLECTIVE_ALL_REDUCE) {
        w->reduced += bytes;
        w->reductions++;
        if (is_combination(r->program, inst)) {
            w->combined += bytes;
            w->combinations++;
        }
    } else {
        w->gathered += bytes;
        w->gathers++;
    }
}

/* What each key costs that a kernel works on in vain, KEY FLOPs, at the EDGES of a mask
 * and at its start. */
static void find_edges(struct work *w, double key, int edges)
{
    w->started = key;
    w->masked = key * edges;
}

static struct work work_of(const struct reader *r, const struct inst *inst)
{
    const struct program *p = r->program;
    const struct op_info *op = &op_table[inst->op];
    struct op_scores scores = op_scores(inst);
    struct cost c = cost_of(p, inst, &r->step);
    double bytes = r->step.value_bytes;
    struct work w = { .products = c.products, .attention = c.attention };

    add_moves(&w, r, inst, &c);
    if (inst->mixture >= 0)
        w.grouped = c.products;
    if (op->collective != COLLECTIVE_NONE)
        add_collective(&w, r, inst);
    if (scores.heads) {
        w.heads = bytes * op_flops(p, inst).key / 2;
        w.layers = 1;
        if (r->o->flash)
            find_edges(&w, op_flops(p, inst).key,
                       scores.causal + (scores.window && scores.window < r->o->seq));
        else
            w.scores = SCORE_PASSES * bytes * (double)scores.heads * (double)r->o->seq;
    }
    if (op->role == ROLE_DISPATCH) {
        w.routed = bytes * (double)(p->mixture[inst->mixture].top *
                                    p->value[inst->src[0]].whole_cols);
        w.routes = 1;
    }
    return w;
}

static void read_instruction(struct reader *r, int i)
{
    const struct inst *inst = &r->program->inst[i];
    int u = costmodel_unit(r->p->a, &r->program->value[inst->dst]);
    const struct unit *unit = &r->p->a->unit[u];
    struct work w = work_of(r, inst);

    if (unit->layer < 0)
        w.head = w.products;
    work_add(&r->p->all[unit->depth + 1], &w, 1);
    if (unit->layer >= 0 && i < r->last[u])
        work_add(&r->p->again[unit->depth + 1], &w, 1);
}

static void read_program(struct profile *p, const struct memory_options *o)
{
    struct reader r = { .p = p, .a = p->a, .program = p->a->program, .o = o };

    r.step = work_step(r.program, o);
    r.last = xcalloc((size_t)p->a->nunits + 1, sizeof(*r.last));
    for (int i = 0; i < r.program->ninsts; i++)
        if (op_saved(&r.program->inst[i]))
            r.last[costmodel_unit(p->a, &r.program->value[r.program->inst[i].dst])] = i;
    for (int i = 0; i < r.program->ninsts; i++) {
        const struct inst *inst = &r.program->inst[i];

        if (inst->op == OP_ROUTE && inst->route.groups > 1)
            p->reach = (double)inst->route.of / (double)inst->route.groups;
        read_instruction(&r, i);
    }
    free(r.last);
}

struct own_work work_own(const struct costmodel *a, const struct program *program,
                         const struct memory_options *o)
{
    struct reader r = {
        .a = a, .program = program, .o = o, .step = work_step(program, o)
    };
    struct own_work sum = { 0 };

    for (int i = program->nforward; i < program->ninsts; i++) {
        const struct inst *inst = &program->inst[i];
        const struct value *to = &program->value[inst->dst];
        struct work w;

        /* of a mean row there is no part of a weight's gradient */
        r.step.rows[ROWS_ONE] = to->gradient ? 0 : 1 / (double)o->seq;
        w = work_of(&r, inst);
        if (to->gradient)
            w.matrices += 2 * (double)sizeof(float) * (double)to->cols;
        work_add(to->again ? &sum.again : &sum.back, &w, 1);
    }
    return sum;
}

/* ---- the model ---- */

struct profile *profile_new(const struct costmodel *a, const struct memory_options *o)
{
    struct profile *p = xcalloc(1, sizeof(*p));
    int nlayers = model_layers(a->model);

    p->a = a;
    p->reach = 1;
    p->depths = nlayers ? nlayers : 1;
    p->all = xcalloc((size_t)p->depths + 1, sizeof(*p->all));
    p->again = xcalloc((size_t)p->depths + 1, sizeof(*p->again));
    for (int i = 0; i < a->nunits; i++) {
        const struct unit *u = &a->unit[i];
        struct work w = unit_work(u, o);
        double boundary = (double)u->kept.boundary * (double)o->compute_bytes;

        work_add(&p->all[u->depth + 1], &w, 1);
        if (u->layer < 0)
            continue;
        work_add(&p->again[u->depth + 1], &w, 1);
        p->boundary = boundary > p->boundary ? boundary : p->boundary;
        if (u->all) {
            p->chosen = (double)u->top / (double)u->all;
            p->top = (double)u->top;
        }
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
