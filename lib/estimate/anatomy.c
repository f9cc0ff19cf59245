/* anatomy - what one rank holds and makes of a model, unit by unit
 *
 * Which values the backward pass reads follows from the derivative of each operation: a
 * product reads its input where its weight is trained, a product of two values both, an
 * activation and a norm their input (ReLU, tanh and the sigmoid their result),
 * attention q, k, v and its result (Dao 2023) or the scores; sums, rotations and
 * scalings read nothing.  For a GPT block this gives the 34 bytes per element of
 * Korthikanti et al. 2022, equation 1.
 *
 * PyTorch, where each operation is run by itself, makes some of several, which keep
 * copies: an RMS norm its input in f32 and what the weight multiplies; an approximate
 * GELU three values more.  A segment there is a view, which keeps all of its value.
 *
 * Then the backward pass is gone through: what has been read is let go, while gradients
 * of values come and go, until the unit is done. */
#include "lib/estimate/anatomy.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/model/outline.h"
#include "lib/model/state.h"

/* Values in f32 that PyTorch has at once while it goes back through an RMS norm: the
 * gradients of its product, mean and power among them. */
enum { RMSNORM_GRADIENTS = 4 };

/* How a tensor takes part in training. */
enum training { TRAINED, ADAPTED, FROZEN };

struct builder {
    struct anatomy *a;
    const struct model *m;
    struct cutter *cutter;
    enum training *training; /* [ntensors] */
    int *producer;           /* [nvalues]: the instruction that makes it */
    const struct anatomy_options *opt;
    int at;      /* the instruction that is read */
    int *keeper; /* [nvalues]: the first instruction whose derivative reads it */
    struct columns *copies;  /* [ninsts]: what an instruction keeps besides values */
    bool *crossed;           /* [nvalues]: counted as a border */
    int products;            /* of the unit, so far */
    const struct value *nll; /* what the loss is made of, or NULL */
    int *cache_of;           /* [nvalues]: index in its unit's caches, or -1 */
    int *first_unit;         /* [nsections] */
    const struct inst *loop; /* over experts, inside of which we are, or NULL */
};

/* ---- names of tensors ---- */

/* Is NAME (N bytes) the family's word for T, its name, or the module that has it? */
static bool is_called(const struct model_tensor *t, const char *name, size_t n)
{
    const char *end = strrchr(t->name, '.'), *begin = end;

    if ((strlen(t->key) == n && !memcmp(t->key, name, n)) ||
        (strlen(t->name) == n && !memcmp(t->name, name, n)))
        return true;
    while (begin && begin > t->name && begin[-1] != '.')
        begin--;
    return end && (size_t)(end - begin) == n && !memcmp(begin, name, n);
}

/* Set the training of every tensor that LIST names. */
static int mark_named(struct builder *b, const char *option, const char *list,
                      enum training training, struct err *err)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        bool found = false;

        for (size_t i = 0; i < b->m->ntensors; i++)
            if (is_called(&b->m->tensor[i], p, n)) {
                b->training[i] = training;
                found = true;
            }
        if (!found)
            return err_set(err, ERR_USAGE, "%s: %s has no tensor called '%.*s'", option,
                           b->m->family, (int)n, p);
        p += n + (p[n] == ',');
    }
    return 0;
}

static int find_training(struct builder *b, const struct anatomy_options *opt,
                         struct err *err)
{
    for (size_t i = 0; i < b->m->ntensors; i++) {
        const struct model_tensor *t = &b->m->tensor[i];

        b->training[i] = !opt || !opt->lora                                ? TRAINED
                         : !opt->targets && t->section >= 0 && t->ndim > 1 ? ADAPTED
                                                                           : FROZEN;
    }
    if (opt && opt->lora && opt->targets &&
        mark_named(b, "--lora", opt->targets, ADAPTED, err) < 0)
        return -1;
    if (opt && opt->freeze && mark_named(b, "--freeze", opt->freeze, FROZEN, err) < 0)
        return -1;
    return 0;
}

/* ---- weights ---- */

static enum weight_class class_of(const struct model_tensor *t)
{
    if (t->ndim < 2)
        return WEIGHT_VECTOR;
    if (t->expert >= 0)
        return WEIGHT_EXPERT;
    return t->section >= 0 ? WEIGHT_MATRIX : WEIGHT_TABLE;
}

static struct common *find_common(struct anatomy *a, uint64_t read_by,
                                  enum weight_class class)
{
    for (int i = 0; i < a->ncommons; i++)
        if (a->common[i].read_by == read_by && a->common[i].class == class)
            return &a->common[i];
    a->common = xrealloc(a->common, sizeof(*a->common) * (size_t)(a->ncommons + 1));
    a->common[a->ncommons] = (struct common){ .read_by = read_by, .class = class };
    return &a->common[a->ncommons++];
}

/* Elements of tensor I that this rank has, and rows + columns of its matrices. */
static uint64_t local_elements(struct builder *b, size_t i, uint64_t *rows,
                               uint64_t *sides)
{
    const struct model_tensor *t = &b->m->tensor[i];
    uint64_t n = 1, last = 1, before = 1, matrices = 1;
    struct slice slice;

    *rows = *sides = 0;
    cutter_slice(b->cutter, i, &slice);
    if (!slice.held)
        return 0;
    for (int k = 0; k < t->ndim; k++) {
        uint64_t size = slice.runs[k]->count + (k ? 0 : slice.pad);

        n *= size;
        if (k + 2 < t->ndim)
            matrices *= size;
        before = last;
        last = size;
    }
    if (t->ndim > 1) {
        *rows = matrices * before;
        *sides = matrices * (before + last);
    }
    return n;
}

static void add_weight(struct weight_sum *sum, const struct builder *b, size_t i,
                       uint64_t n, uint64_t rows, uint64_t sides)
{
    const struct model_tensor *t = &b->m->tensor[i];

    sum->elements += n;
    sum->rows += rows;
    if (b->training[i] == TRAINED) {
        sum->trained += n;
        sum->trained_sides += sides;
    } else if (b->training[i] == ADAPTED && t->ndim > 1) {
        sum->adapted_sides += sides;
    }
}

/* Bytes of tensor I as stored, this rank's share of them. */
static uint64_t stored_bytes(const struct model *m, size_t i, uint64_t n,
                             const enum dtype *stored)
{
    uint64_t bytes = 0;

    if (stored && m->tensor[i].source >= 0 &&
        !dtype_bytes(&bytes, stored[m->tensor[i].source], n))
        bytes = n * (uint64_t)dtype_bits(stored[m->tensor[i].source]) / 8;
    return bytes;
}

static void sum_weights(struct builder *b, const enum dtype *stored)
{
    const struct model_state *s = b->m->state;

    for (size_t i = 0; i < b->m->ntensors; i++) {
        const struct model_tensor *t = &b->m->tensor[i];
        const struct tensor_def *d = &s->def[t->def];
        const struct model_tensor *whose = t;
        uint64_t rows, sides, n = local_elements(b, i, &rows, &sides);
        struct weight_sum *sum;

        if (!n || (!outline_has(b->m, i) && d->companion_of < 0))
            continue;
        if (d->companion_of >= 0)
            whose = &b->m->tensor[s->def[d->companion_of].first];
        if (t->section >= 0) {
            struct unit *u = &b->a->unit[b->first_unit[t->section] + t->layer];

            sum = &u->weight[t->expert >= 0 ? WEIGHT_EXPERT : class_of(whose)];
        } else {
            sum = &find_common(b->a, d->read_by, class_of(whose))->sum;
            if (n > b->a->largest)
                b->a->largest = n;
        }
        sum->bytes += stored_bytes(b->m, i, n, stored);
        if (outline_has(b->m, i))
            add_weight(sum, b, i, n, rows, sides);
    }
    for (int i = 0; i < b->a->nunits; i++) {
        uint64_t n = 0;

        for (int c = 0; c < WEIGHT_CLASSES; c++)
            n += b->a->unit[i].weight[c].elements;
        if (n > b->a->largest)
            b->a->largest = n;
    }
}

/* ---- units ---- */

static void make_units(struct builder *b)
{
    const struct model_state *s = b->m->state;
    struct anatomy *a = b->a;
    int total = 0;

    for (int i = 0; i < s->nsections; i++)
        total += s->section[i].count;
    a->unit = xcalloc((size_t)total + 1, sizeof(*a->unit));
    for (int i = 0; i < s->nsections; i++) {
        const struct model_section *sec = &s->section[i];

        b->first_unit[i] = a->nunits;
        for (int k = 0; k < sec->count; k++) {
            struct unit *u = &a->unit[a->nunits++];

            u->section = sec->name;
            u->index = i;
            u->layer = sec->repeated ? k : -1;
            u->depth = sec->repeated ? sec->depth + k : sec->depth ? sec->depth - 1 : 0;
        }
    }
}

static int unit_of(const struct builder *b, int value)
{
    const struct value *v = &b->a->program->value[value];

    if (v->section < 0)
        return b->a->nunits - 1;
    return b->first_unit[v->section] + (v->layer >= 0 ? v->layer : 0);
}

/* ---- values ---- */

/* The value whose memory V is, or a part of it. */
static int storage_of(const struct builder *b, int v)
{
    const struct program *p = b->a->program;

    while (b->producer[v] >= 0) {
        enum op op = p->inst[b->producer[v]].op;

        if (op != OP_KEEP && op != OP_TAKE && !(op == OP_SEGMENT && b->opt->eager))
            break;
        v = p->inst[b->producer[v]].src[0];
    }
    return v;
}

/* N for each row of an expert, per token of this rank: each goes to some of all
 * experts, in the mean equally often, and the other ranks of ep send theirs. */
static uint64_t of_experts(const struct builder *b, uint64_t n)
{
    uint64_t groups = (uint64_t)b->a->program->mesh.size[MESH_EP], all;

    if (!b->loop)
        return n;
    all = b->loop->each.all;
    return (n * groups * b->loop->each.count * b->loop->each.top + all / 2) / all;
}

static bool is_cut(const struct value *v)
{
    return v->cols < v->whole_cols;
}

/* Elements of V for each token of this rank. */
static uint64_t elements_of(const struct builder *b, const struct value *v)
{
    return v->rows == ROWS_CHOSEN ? of_experts(b, v->cols) : v->cols;
}

/* Unit U reads V, and needs it where it is made again. */
static void cross(struct builder *b, struct unit *u, int v)
{
    if (&b->a->unit[unit_of(b, v)] == u || b->crossed[v])
        return;
    b->crossed[v] = true;
    u->kept.border += b->a->program->value[v].whole_cols;
}

/* The backward pass of unit U reads V. */
static void keep(struct builder *b, struct unit *u, int v)
{
    const struct value *value;

    v = storage_of(b, v);
    if (b->keeper[v] >= 0)
        return;
    b->keeper[v] = b->at;
    value = &b->a->program->value[v];
    *(is_cut(value) ? &u->kept.cut : &u->kept.whole) += elements_of(b, value);
    cross(b, u, v);
}

/* The instruction that is read keeps TIMES as much as V besides, in f32 if WIDE. */
static void copy(struct builder *b, struct unit *u, int v, uint64_t times, bool wide)
{
    const struct value *value = &b->a->program->value[v];
    uint64_t n = elements_of(b, value) * times;
    struct columns *c = &b->copies[b->at];

    if (is_cut(value)) {
        *(wide ? &c->wide_cut : &c->cut) += n;
        *(wide ? &u->kept.wide_cut : &u->kept.cut) += n;
    } else {
        *(wide ? &c->wide_whole : &c->whole) += n;
        *(wide ? &u->kept.wide_whole : &u->kept.whole) += n;
    }
}

/* What the weight multiplies is kept, too, and where values are narrow X only in f32
 * (with Gemma's weight, to which one is added, both). */
static void keep_rmsnorm(struct builder *b, struct unit *u, const struct inst *inst)
{
    int x = storage_of(b, inst->src[0]);

    if (b->opt->eager)
        copy(b, u, x, 1, b->opt->narrow && inst->norm.plus_one);
    if (!b->opt->eager || !b->opt->narrow) {
        keep(b, u, x);
        return;
    }
    copy(b, u, x, 1, true);
    if (b->keeper[x] < 0)
        cross(b, u, x);
}

static void keep_activation(struct builder *b, struct unit *u, const struct inst *inst)
{
    bool by_result =
        inst->act == ACT_RELU || inst->act == ACT_TANH || inst->act == ACT_SIGMOID;

    keep(b, u, by_result ? inst->dst : inst->src[0]);
    if (b->opt->eager && inst->act == ACT_GELU_NEW)
        copy(b, u, inst->dst, 3, false);
    if (b->opt->eager && inst->act == ACT_QUICK_GELU)
        copy(b, u, inst->dst, 1, false);
}

/* Scores are made of as many keys and values as there are heads. */
static void keep_attention(struct builder *b, struct unit *u, const struct inst *inst)
{
    uint64_t each = inst->attention.head_dim + inst->attention.value_dim;
    uint64_t spread = (inst->attention.heads - inst->attention.kv_heads) * each;

    for (int k = 0; k < 3; k++)
        keep(b, u, inst->src[k]);
    keep(b, u, inst->dst);
    u->kept.heads += inst->attention.heads;
    u->kept.capped |= inst->attention.softcap > 0;
    u->attention += inst->attention.heads * each;
    if (b->opt->eager && b->opt->scores) {
        b->copies[b->at].cut += spread;
        u->kept.cut += spread;
    }
}

/* Every second product is made again (as torchtitan chooses them). */
static void spare_product(struct builder *b, struct unit *u, int dst)
{
    const struct value *v = &b->a->program->value[dst];

    if (b->products++ % 2 == 0)
        *(is_cut(v) ? &u->sparse.cut : &u->sparse.whole) += elements_of(b, v);
}

/* Are V the logits that the loss reads, or what they are made of? */
static bool is_logits(const struct builder *b, int v)
{
    return b->nll && b->a->program->value[v].whole_cols == b->nll->whole_cols;
}

/* The row sums over a dealt axis that end a block: what dropout acts on. */
static bool ends_block(const struct builder *b, const struct inst *inst)
{
    const struct weight *w = &b->a->program->weight[inst->weight];
    const struct model_tensor *t = &b->m->tensor[w->tensor];
    const struct axis *to = t->axis[inst->op == OP_MATMUL];

    return t->section >= 0 && axis_dealt(to, &b->m->scope) < 0 &&
           axis_dealt(t->axis[inst->op != OP_MATMUL], &b->m->scope) >= 0;
}

static void add_cache(struct unit *u, uint64_t cols)
{
    if (u->ncaches < UNIT_MAX_CACHES)
        u->cache[u->ncaches++] = (struct unit_cache){ .cols = cols };
    else
        u->cache[UNIT_MAX_CACHES - 1].cols += cols;
}

/* Attention reads the cached values K and V no further back than its window. */
static void note_window(struct builder *b, const struct inst *inst)
{
    for (int k = 1; k < inst->nsrc; k++)
        if (b->cache_of[inst->src[k]] >= 0)
            b->a->unit[unit_of(b, inst->src[k])]
                .cache[b->cache_of[inst->src[k]]]
                .window = inst->attention.window;
}

static void read_instruction(struct builder *b, const struct inst *inst)
{
    const struct program *p = b->a->program;
    struct unit *u = &b->a->unit[unit_of(b, inst->dst)];

    switch (inst->op) {
    case OP_LINEAR:
    case OP_MATMUL:
        if (b->training[p->weight[inst->weight].tensor] != FROZEN)
            keep(b, u, inst->src[0]);
        u->products +=
            of_experts(b, p->weight[inst->weight].rows * p->weight[inst->weight].cols);
        if (ends_block(b, inst))
            u->kept.masks += p->value[inst->dst].whole_cols;
        spare_product(b, u, inst->dst);
        break;
    case OP_HEAD_LINEAR:
    case OP_HEAD_MATMUL:
        if (b->training[p->weight[inst->weight].tensor] != FROZEN)
            keep(b, u, inst->src[0]);
        u->products += inst->head.count * inst->head.a * inst->head.b;
        break;
    case OP_EACH: /* its rows come from what is kept */
        b->loop = inst;
        u->routed += inst->each.top * p->value[inst->src[0]].whole_cols;
        u->top = inst->each.top;
        u->all = inst->each.all;
        break;
    case OP_JOIN: /* the weights are trained too */
        keep(b, u, inst->src[0]);
        b->loop = NULL;
        break;
    case OP_SOFTMAX:
    case OP_ROUTE:
        keep(b, u, inst->src[0]);
        break;
    case OP_MUL_ROWS:
    case OP_MUL:
        keep(b, u, inst->src[0]);
        keep(b, u, inst->src[1]);
        break;
    case OP_CLIP:
    case OP_LAYERNORM:
        keep(b, u, inst->src[0]);
        break;
    case OP_SOFTCAP:
        if (is_logits(b, inst->dst))
            b->a->caps++;
        else
            keep(b, u, inst->src[0]);
        break;
    case OP_ACTIVATION:
        keep_activation(b, u, inst);
        break;
    case OP_RMSNORM:
        keep_rmsnorm(b, u, inst);
        break;
    case OP_ATTENTION:
        keep_attention(b, u, inst);
        *(is_cut(&p->value[inst->dst]) ? &u->sparse.cut : &u->sparse.whole) +=
            p->value[inst->dst].cols;
        break;
    case OP_ALLREDUCE:
        u->reduced += p->value[inst->dst].whole_cols;
        u->reductions++;
        break;
    case OP_KEEP:
        add_cache(u, p->value[inst->dst].cols);
        b->cache_of[inst->dst] = u->ncaches - 1;
        break;
    case OP_NLL:
        b->a->vocab = p->value[inst->src[0]].cols;
        break;
    default:
        break;
    }
}

/* ---- the backward pass ---- */

/* Gradients of a unit's values, as it is gone through from its end.  A sum hands its
 * own on: several values then share one. */
struct gradients {
    struct columns now; /* they, and what the unit keeps and still has to read */
    uint64_t made;      /* elements of its weights' gradients */
    int *owner;         /* [nvalues]: the value whose gradient it shares; -1: none */
    int *shared;        /* [nvalues]: values that share that of this owner */
};

static void take(struct columns *sum, const struct builder *b, int v)
{
    const struct value *value = &b->a->program->value[v];

    *(is_cut(value) ? &sum->cut : &sum->whole) += elements_of(b, value);
}

static void drop(struct columns *sum, const struct builder *b, int v)
{
    const struct value *value = &b->a->program->value[v];

    *(is_cut(value) ? &sum->cut : &sum->whole) -= elements_of(b, value);
}

static uint64_t weight_of(const struct columns *h)
{
    return h->cut + h->whole + 2 * (h->wide_cut + h->wide_whole);
}

static void note_worst(struct unit_worst *worst, const struct columns *now,
                       uint64_t made)
{
    if (weight_of(now) > weight_of(&worst->columns))
        *worst = (struct unit_worst){ *now, made };
}

/* V has a gradient from now on: OWNER's, or its own (which, for logits, is counted with
 * the loss). */
static void begin_gradient(const struct builder *b, struct gradients *g, int v,
                           int owner)
{
    if (g->owner[v] >= 0)
        return;
    g->owner[v] = owner;
    g->shared[owner]++;
    if (owner == v && !is_logits(b, v))
        take(&g->now, b, v);
}

static void end_gradient(const struct builder *b, struct gradients *g, int v)
{
    int owner = g->owner[v];

    g->owner[v] = -1;
    if (--g->shared[owner] == 0 && !is_logits(b, owner))
        drop(&g->now, b, owner);
}

/* Sources of INST that have gradients; *HANDS_ON tells whether they are its result's.
 */
static int differentiable(const struct inst *inst, bool *hands_on)
{
    *hands_on = false;
    switch (inst->op) {
    case OP_EMBEDDING:
    case OP_NLL:
        return 0;
    case OP_ADD:
    case OP_ADD_VECTOR:
    case OP_KEEP:
    case OP_TAKE:
    case OP_ALLREDUCE:
        *hands_on = true;
        return inst->nsrc;
    case OP_EACH:
        return 1;
    case OP_JOIN:
        return 2;
    case OP_ATTENTION:
        return 3;
    default:
        return inst->nsrc;
    }
}

/* What INST kept is read and no longer needed. */
static void let_go(struct builder *b, struct gradients *g, int i)
{
    const struct inst *inst = &b->a->program->inst[i];

    for (int k = 0; k <= inst->nsrc; k++) {
        int v = storage_of(b, k < inst->nsrc ? inst->src[k] : inst->dst);

        if (b->keeper[v] != i)
            continue;
        drop(&g->now, b, v);
        b->keeper[v] = -1;
    }
    g->now.cut -= b->copies[i].cut;
    g->now.whole -= b->copies[i].whole;
    g->now.wide_cut -= b->copies[i].wide_cut;
    g->now.wide_whole -= b->copies[i].wide_whole;
}

static void step_back(struct builder *b, struct unit *u, struct gradients *g, int i)
{
    const struct inst *inst = &b->a->program->inst[i];
    bool hands_on;
    int n = differentiable(inst, &hands_on);
    struct columns most;

    begin_gradient(b, g, inst->dst, inst->dst);
    for (int k = 0; k < n; k++)
        begin_gradient(b, g, inst->src[k],
                       hands_on ? g->owner[inst->dst] : inst->src[k]);
    most = g->now;
    if (inst->op == OP_RMSNORM && b->opt->eager) /* in f32, of each of its operations */
        *(is_cut(&b->a->program->value[inst->dst]) ? &most.wide_cut
                                                   : &most.wide_whole) +=
            RMSNORM_GRADIENTS * elements_of(b, &b->a->program->value[inst->dst]);
    if (inst->weight >= 0)
        g->made += b->a->program->weight[inst->weight].rows *
                   b->a->program->weight[inst->weight].cols;
    note_worst(&u->worst, &most, g->made);
    if (inst->op == OP_ATTENTION)
        note_worst(&u->worst_attention, &most, g->made);
    end_gradient(b, g, inst->dst);
    let_go(b, g, i);
}

/* In thousandths. */
static uint64_t share_of(uint64_t part, uint64_t all)
{
    return all ? (uint64_t)((double)part / (double)all * 1000) : 1000;
}

/* The beginning of the loop over experts that ends at I. */
static const struct inst *loop_before(const struct program *p, int i)
{
    while (p->inst[i].op != OP_EACH)
        i--;
    return &p->inst[i];
}

/* Go back through the unit whose last instruction is before END; returns its first. */
static int go_back(struct builder *b, struct gradients *g, int end)
{
    const struct program *p = b->a->program;
    struct unit *u = &b->a->unit[unit_of(b, p->inst[end - 1].dst)];
    int begin = end;

    g->now = (struct columns){ u->kept.cut, u->kept.whole, u->kept.wide_cut,
                               u->kept.wide_whole };
    g->made = 0;
    while (begin > 0 && &b->a->unit[unit_of(b, p->inst[begin - 1].dst)] == u) {
        begin--;
        if (p->inst[begin].op == OP_JOIN)
            b->loop = loop_before(p, begin);
        step_back(b, u, g, begin);
        if (p->inst[begin].op == OP_EACH)
            b->loop = NULL;
    }
    for (int i = begin; i < end; i++) /* those of values of other units */
        for (int k = 0; k < p->inst[i].nsrc; k++)
            if (g->owner[p->inst[i].src[k]] >= 0)
                end_gradient(b, g, p->inst[i].src[k]);
    u->worst.made = share_of(u->worst.made, g->made);
    u->worst_attention.made = share_of(u->worst_attention.made, g->made);
    return begin;
}

static void go_all_back(struct builder *b)
{
    const struct program *p = b->a->program;
    struct gradients g = { .shared = xcalloc((size_t)p->nvalues + 1, sizeof(int)),
                           .owner = xmalloc(sizeof(int) * (size_t)(p->nvalues + 1)) };

    for (int v = 0; v < p->nvalues; v++)
        g.owner[v] = -1;
    for (int end = p->ninsts; end > 0;)
        end = go_back(b, &g, end);
    free(g.owner);
    free(g.shared);
}

/* ---- instructions ---- */

static void read_program(struct builder *b)
{
    const struct program *p = b->a->program;
    int unit = -1;

    b->producer = xmalloc(sizeof(*b->producer) * (size_t)(p->nvalues + 1));
    b->cache_of = xmalloc(sizeof(*b->cache_of) * (size_t)(p->nvalues + 1));
    b->keeper = xmalloc(sizeof(*b->keeper) * (size_t)(p->nvalues + 1));
    b->crossed = xcalloc((size_t)p->nvalues + 1, sizeof(*b->crossed));
    b->copies = xcalloc((size_t)p->ninsts + 1, sizeof(*b->copies));
    for (int i = 0; i < p->nvalues; i++)
        b->producer[i] = b->cache_of[i] = b->keeper[i] = -1;
    for (int i = 0; i < p->ninsts; i++) {
        b->producer[p->inst[i].dst] = i;
        if (p->inst[i].op == OP_NLL)
            b->nll = &p->value[p->inst[i].src[0]];
    }
    for (b->at = 0; b->at < p->ninsts; b->at++) {
        int its = unit_of(b, p->inst[b->at].dst);

        if (its != unit)
            b->products = 0;
        unit = its;
        read_instruction(b, &p->inst[b->at]);
    }
    for (int i = 0; i < p->ninsts; i++)
        if (p->inst[i].op == OP_ATTENTION && p->inst[i].attention.window)
            note_window(b, &p->inst[i]);
    go_all_back(b);
}

/* ---- opening ---- */

/* The program that ends in the likelihood, or, where the model has no logits, in what
 * the family names. */
static int build_program(struct anatomy *a, const struct mesh *mesh,
                         const int coord[MESH_NAXES], struct err *err)
{
    struct program_options opt = { .tail = TAIL_NLL, .wanted = true };
    struct err first = { 0 };

    if (program_build(&a->program, a->model, mesh, coord, &opt, &first) == 0)
        return 0;
    opt = (struct program_options){ .tail = TAIL_NONE };
    return program_build(&a->program, a->model, mesh, coord, &opt, err);
}

int anatomy_open(struct anatomy **out, const struct model *m, const struct mesh *mesh,
                 const int coord[MESH_NAXES], const enum dtype *stored,
                 const struct anatomy_options *opt, struct err *err)
{
    int size[MESH_NAXES] = {
        [MESH_TP] = mesh->size[MESH_TP], [MESH_EP] = mesh->size[MESH_EP]
    };
    int at[MESH_NAXES] = { [MESH_TP] = coord[MESH_TP], [MESH_EP] = coord[MESH_EP] };
    struct anatomy *a = xcalloc(1, sizeof(*a));
    const struct anatomy_options none = { 0 };
    struct builder b = { .a = a, .m = m, .opt = opt ? opt : &none };
    struct mesh small;
    int ret = -1;

    a->model = m;
    b.training = xcalloc(m->ntensors + 1, sizeof(*b.training));
    b.first_unit = xcalloc((size_t)m->state->nsections + 1, sizeof(*b.first_unit));
    if (mesh_set(&small, size, NULL, err) < 0)
        goto out;
    small.pad_vocab = mesh->pad_vocab;
    if (cutter_open(&b.cutter, m, &small, at, err) < 0 ||
        find_training(&b, opt, err) < 0 || build_program(a, &small, at, err) < 0)
        goto out;
    a->causal = a->program->causal;
    make_units(&b);
    sum_weights(&b, stored);
    read_program(&b);
    ret = 0;
out:
    cutter_free(b.cutter);
    free(b.training);
    free(b.first_unit);
    free(b.producer);
    free(b.keeper);
    free(b.crossed);
    free(b.copies);
    free(b.cache_of);
    if (ret < 0)
        anatomy_close(a);
    else
        *out = a;
    return ret;
}

void anatomy_close(struct anatomy *a)
{
    if (!a)
        return;
    program_free(a->program);
    free(a->unit);
    free(a->common);
    free(a);
}

bool anatomy_runs(const struct unit *u, int first, int count)
{
    return u->depth >= first && u->depth < first + count;
}

bool anatomy_holds(const struct anatomy *a, const struct common *c, int first,
                   int count)
{
    if (!c->read_by)
        return first == 0;
    for (int i = 0; i < a->nunits; i++)
        if (c->read_by >> a->unit[i].index & 1 &&
            anatomy_runs(&a->unit[i], first, count))
            return true;
    return false;
}

uint64_t anatomy_params(const struct model *m)
{
    uint64_t total = 0;

    for (size_t i = 0; i < m->ntensors; i++) {
        uint64_t n = 1;

        for (int k = 0; k < m->tensor[i].ndim; k++)
            n *= m->tensor[i].axis[k]->size;
        if (outline_has(m, i))
            total += n;
    }
    return total;
}
