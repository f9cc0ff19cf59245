/* pass-adapters - adds B (s * A x) to the products of the weights that have adapters
 *
 * Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", equation 3.
 * x is the product's source and y its result; r is the adapter's rank.
 *
 *   y          A [r][in]         u = A x      B [out][r]      B u
 *   sharded    replicated        replicated   its rows here   sharded as y
 *   partial    its columns here  partial      replicated      partial: linear in u
 *   replicated replicated        replicated   replicated      replicated
 *
 * So an adapter costs no collective: its sum over ranks is y's own.  A program with a
 * derivative drops elements of x before A, if the adapter asks for it.  The rows u of
 * texts that do not choose the adapter become 0, where texts choose.
 *
 * With magnitudes m (Liu et al. 2024, "DoRA: Weight-Decomposed Low-Rank Adaptation",
 * equation 5) the sum is multiplied by m / |W + s B A|, the norms of the rows, which
 * count as constants (section 4.3).  Where elements are dropped, W reads them as well,
 * as PEFT has it: y + g (W + s B A) x' - W x', g the factor.  Texts that choose the
 * adapter get the difference to W x. */
#include "lib/program/pass.h"

#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/model/feed.h"

struct adapting {
    struct builder *b;
    const struct inst *old;
    int *now;              /* [nvalues before]: the value to read instead */
    int (*weight)[4];      /* [nadapters]: its parts in p->weight, plus 1; 0: not yet */
    int choice[ROWS_MOST]; /* what the texts of these rows choose, plus 1; 0: not yet */
};

static void append(struct adapting *a, const struct inst *inst)
{
    struct program *p = a->b->p;

    p->inst = xgrow(p->inst, &a->b->inst_cap, (size_t)p->ninsts + 1, sizeof(*p->inst));
    p->inst[p->ninsts++] = *inst;
}

/* Appends adapter I's PART, one of EXPERTS in a row, to p->weight. */
static void add_weight(struct adapting *a, size_t i, enum adapter_part part,
                       uint64_t experts)
{
    struct builder *b = a->b;
    struct program *p = b->p;
    const struct axis *axis[2];
    int n = model_adapter_axes(b->m, i, part, axis);

    p->weight =
        xgrow(p->weight, &b->weight_cap, (size_t)p->nweights + 1, sizeof(*p->weight));
    p->weight[p->nweights++] = (struct weight){
        .tensor = b->m->adapter[i].tensor,
        .rows = n < 2 ? 1 : axis_count(axis[0], NULL, &b->m->scope, b->share),
        .cols = axis_count(axis[n - 1], NULL, &b->m->scope, b->share),
        .experts = experts,
        .adapter = (int)i + 1,
        .part = part,
    };
}

/* The number, from 1, of the expert whose slice of a tensor W is; 0: it is no slice. */
static uint64_t expert_of(const struct adapting *a, const struct weight *w)
{
    const struct model *m = a->b->m;
    uint64_t at = w->slice - 1;
    struct runs runs;
    size_t r = 0;

    if (!w->slice)
        return 0;
    axis_runs(&runs, m->tensor[w->tensor].axis[0], &m->scope, a->b->share);
    while (at >= runs.v[r].count)
        at -= runs.v[r++].count;
    at += runs.v[r].start;
    runs_clear(&runs);
    return at + 1;
}

/* The adapter of W that was added together with adapter I; -1: there is none. */
static long beside(const struct adapting *a, size_t i, const struct weight *w)
{
    const struct model *m = a->b->m;
    const uint64_t expert = expert_of(a, w);

    for (size_t k = m->adapter[i].from; k < m->nadapters; k++)
        if (m->adapter[k].tensor == w->tensor && m->adapter[k].expert == expert &&
            m->adapter[k].from == m->adapter[i].from)
            return (long)k;
    return -1;
}

/* Index of adapter I's PART in p->weight; of experts, whose weights INST reads, that of
 * the first, followed by the others'. */
static int weight_of(struct adapting *a, const struct inst *inst, size_t i,
                     enum adapter_part part)
{
    struct program *p = a->b->p;
    uint64_t experts = p->weight[inst->weight].experts;

    if (a->weight[i][part])
        return a->weight[i][part] - 1;
    a->weight[i][part] = p->nweights + 1;
    if (!experts)
        add_weight(a, i, part, 0);
    for (uint64_t e = 0; e < experts; e++)
        add_weight(a, (size_t)beside(a, i, &p->weight[inst->weight + (int)e]), part,
                   experts);
    return a->weight[i][part] - 1;
}

/* Have all experts whose weights INST reads adapters like I, that of the first? */
static int check_experts(struct adapting *a, const struct inst *inst, size_t i)
{
    const struct program *p = a->b->p;
    const struct model *m = a->b->m;
    const struct model_adapter *own = &m->adapter[i];

    for (uint64_t e = 0; e < p->weight[inst->weight].experts; e++) {
        const struct weight *w = &p->weight[inst->weight + (int)e];
        long k = beside(a, i, w);
        const struct model_adapter *other = k < 0 ? NULL : &m->adapter[k];

        if (!other || other->rank.size != own->rank.size || other->scale < own->scale ||
            other->scale > own->scale)
            return err_set(a->b->err, ERR_NO,
                           "tensor %s: the experts of a layer have adapters of one "
                           "rank and scale, all or none",
                           m->tensor[w->tensor].name);
    }
    return own->magnitudes || own->dropout > 0
               ? err_set(a->b->err, ERR_NO,
                         "tensor %s: an adapter of experts has neither DoRA nor "
                         "dropout",
                         m->tensor[own->tensor].name)
               : 0;
}

/* Emits OP of X, or of nothing if that is -1, with the columns COL, placed as PLACE,
 * beside the product INST. */
static struct inst *emit(struct adapting *a, enum op op, const struct inst *inst, int x,
                         const struct axis *col, enum place place)
{
    struct program *p = a->b->p;
    struct value like = p->value[inst->dst], *v;
    struct inst *made = build_emit(a->b, op, col, place, like.rows);

    if (x >= 0)
        made->src[made->nsrc++] = x;
    made->line = inst->line;
    v = &p->value[made->dst];
    v->section = like.section;
    v->layer = like.layer;
    return made;
}

/* The seed of adapter I's dropout: FNV-1a of what it adapts. */
static uint64_t site_of(const struct model *m, size_t i)
{
    const struct model_tensor *t = &m->tensor[m->adapter[i].tensor];
    char *text = str_dupf("lora.%s.%d.%d.%zu", t->key, t->layer, t->expert, i);
    uint64_t h = 0xCBF29CE484222325;

    for (const char *p = text; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001B3;
    free(text);
    return h;
}

/* What adapter I reads of X, the source of the product INST. */
static int drop(struct adapting *a, const struct inst *inst, size_t i, int x)
{
    const struct model_adapter *own = &a->b->m->adapter[i];
    enum place place = a->b->p->value[x].place;
    struct inst *made;
    struct axis col; /* the types move */

    if (!a->b->opt->reverse || !(own->dropout > 0))
        return x;
    axis_copy(&col, &a->b->type[x].col);
    made = emit(a, OP_DROPOUT, inst, x, &col, place);
    made->drop.rate = own->dropout;
    made->drop.site = site_of(a->b->m, i);
    made->drop.gather = place == PLACE_CUT ? build_gather(a->b, &col) : -1;
    axis_clear(&col);
    return made->dst;
}

/* What the texts of the rows ROWS choose, [rows][adapters]: 1 in the column of one.
 * Made beside the product INST; -1: *err is set. */
static int choice_of(struct adapting *a, const struct inst *inst, int rows)
{
    struct builder *b = a->b;
    struct program *p = b->p;
    const char *name = p->rows.v[rows].name;
    struct inst *made;
    struct axis col; /* the types move */
    int from;

    if (a->choice[rows])
        return a->choice[rows] - 1;
    if (rows == ROWS_WANTED || rows == ROWS_ONE) {
        from = choice_of(a, inst, ROWS_TOKENS);
        if (from < 0)
            return -1;
        axis_copy(&col, &b->type[from].col);
        made = emit(a, rows == ROWS_ONE ? OP_FIRST : OP_TAKE, inst, from, &col,
                    PLACE_WHOLE);
        axis_clear(&col);
        p->value[made->dst].rows = rows;
        a->choice[rows] = build_shared_rows(b, made->dst) + 1;
        return a->choice[rows] - 1;
    }
    from = feeds_choice(b->m, name);
    if (from < 0)
        return err_set(b->err, ERR_NO,
                       "tensor %s: its product is of %s, for which no text chooses an "
                       "adapter: give this one without a name",
                       b->m->tensor[p->weight[inst->weight].tensor].name, name);
    made = emit(a, OP_INPUT, inst, -1, &p->input[from].feed->axis, PLACE_WHOLE);
    made->input = from;
    p->value[made->dst].rows = rows;
    a->choice[rows] = made->dst + 1;
    return made->dst;
}

/* What emit made, one after another, is placed as the product's result and has its
 * columns. */
struct shape {
    const struct inst *inst;
    int chosen, column; /* as inst.only: the value, from 1; 0: of all texts */
    const struct axis *col;
    enum place place;
};

static struct inst *emit_as(struct adapting *a, const struct shape *s, enum op op,
                            int x)
{
    struct inst *made = emit(a, op, s->inst, x, s->col, s->place);

    made->only.by = s->chosen;
    made->only.column = s->column;
    return made;
}

static int emit_sum(struct adapting *a, const struct shape *s, int x, int y)
{
    struct inst *made = emit_as(a, s, OP_ADD, x);

    made->src[made->nsrc++] = y;
    return made->dst;
}

static int emit_scaled(struct adapting *a, const struct shape *s, int x, double by)
{
    struct inst *made;

    if (by >= 1 && by <= 1)
        return x;
    made = emit_as(a, s, OP_SCALE, x);
    made->scalar = by;
    return made->dst;
}

static int emit_weighed(struct adapting *a, const struct shape *s, enum op op, int x,
                        int weight)
{
    struct inst *made = emit_as(a, s, op, x);

    made->weight = weight;
    return made->dst;
}

/* The rows X of texts that choose OWN, the others 0. */
static int emit_chosen(struct adapting *a, const struct shape *s,
                       const struct model_adapter *own, int x, int chosen)
{
    struct inst *made;

    if (!own->chosen)
        return x;
    made = emit_as(a, s, OP_MUL_ROWS, x);
    made->src[made->nsrc++] = chosen;
    made->column = (uint64_t)own->chosen - 1;
    return made->dst;
}

/* B s A x, of adapter I; with CHOSEN, of the texts that choose it. */
static int emit_product(struct adapting *a, const struct shape *s, size_t i, int x,
                        int chosen)
{
    const struct model_adapter *own = &a->b->m->adapter[i];
    const struct shape inner = { .inst = s->inst,
                                 .chosen = s->chosen,
                                 .column = s->column,
                                 .col = &own->rank,
                                 .place =
                                     s->place == PLACE_CUT ? PLACE_WHOLE : s->place };
    int w = weight_of(a, s->inst, i, ADAPTER_A), u;
    struct inst *made = emit_as(a, &inner, OP_LINEAR, x);

    made->weight = w;
    made->tree = s->inst->tree; /* it sums over the same columns */
    u = made->dst;
    if (!own->magnitudes)
        u = emit_chosen(a, &inner, own, u, chosen);
    u = emit_scaled(a, &inner, u, own->scale);
    return emit_weighed(a, s, OP_LINEAR, u, weight_of(a, s->inst, i, ADAPTER_B));
}

/* Y, the sum of W x and s B A x of adapter I, times its factors. */
static int emit_factors(struct adapting *a, const struct shape *s, size_t i, int y)
{
    y = emit_weighed(a, s, OP_MUL_VECTOR, y, weight_of(a, s->inst, i, ADAPTER_NORM));
    return emit_weighed(a, s, OP_MUL_VECTOR, y,
                        weight_of(a, s->inst, i, ADAPTER_MAGNITUDE));
}

/* Appends adapter I of the product INST, whose result is Y so far; returns the sum, or
 * -1. */
static int add_one(struct adapting *a, const struct inst *inst, size_t i, int y)
{
    struct program *p = a->b->p;
    struct axis col; /* the types move */
    const struct model_adapter *own = &a->b->m->adapter[i];
    struct shape s = { .inst = inst, .col = &col, .place = p->value[inst->dst].place };
    int chosen = own->chosen ? choice_of(a, inst, p->value[inst->dst].rows) : 0;
    int x, u, plain = own->chosen ? inst->dst : y;

    if (chosen < 0)
        return -1;
    if (own->chosen) {
        s.chosen = chosen + 1;
        s.column = own->chosen - 1;
    }
    x = drop(a, inst, i, inst->src[0]);
    axis_copy(&col, &a->b->type[inst->dst].col);
    if (own->magnitudes && x != inst->src[0]) {
        plain = emit_weighed(a, &s, inst->op, x, inst->weight);
        a->b->p->inst[a->b->p->ninsts - 1].tree = inst->tree;
    }
    u = emit_product(a, &s, i, x, chosen);
    if (own->magnitudes)
        u = emit_factors(a, &s, i, emit_sum(a, &s, plain, u));
    if (own->magnitudes && (own->chosen || plain != y)) {
        u = emit_sum(a, &s, u, emit_scaled(a, &s, plain, -1));
        u = emit_chosen(a, &s, own, u, chosen);
    }
    if (!own->magnitudes || own->chosen || plain != y) {
        u = emit_sum(a, &s, y, u);
        p->inst[p->ninsts - 1].only.keeps = true;
    }
    axis_clear(&col);
    return u;
}

static int adapt(struct adapting *a, const struct inst *inst)
{
    struct program *p = a->b->p;
    const struct model *m = a->b->m;
    uint64_t expert;
    size_t tensor;
    int y = inst->dst;

    if (inst->op != OP_LINEAR && inst->op != OP_MATMUL)
        return 0;
    a->b->mixture = inst->mixture;
    tensor = p->weight[inst->weight].tensor;
    expert = expert_of(a, &p->weight[inst->weight]);
    for (size_t i = 0; i < m->nadapters; i++) {
        if (m->adapter[i].tensor != tensor || m->adapter[i].expert != expert ||
            m->adapter[i].turned != (inst->op == OP_MATMUL))
            continue;
        if (p->weight[inst->weight].experts && check_experts(a, inst, i) < 0)
            return -1;
        if (a->b->opt->deterministic && p->value[y].place == PLACE_PARTIAL)
            return err_set(a->b->err, ERR_NO,
                           "tensor %s: with an adapter its product over tp is a sum "
                           "that no tree fixes: --deterministic is not possible",
                           m->tensor[tensor].name);
        y = add_one(a, inst, i, y);
        if (y < 0)
            return -1;
    }
    if (y != inst->dst) {
        p->value[y].name = p->value[inst->dst].name;
        p->value[inst->dst].name = NULL;
        a->now[inst->dst] = y;
    }
    return 0;
}

int pass_adapters(struct builder *b)
{
    struct program *p = b->p;
    struct adapting a = { .b = b, .old = p->inst };
    int ninsts = p->ninsts, nvalues = p->nvalues, ret = 0;

    if (!b->m->nadapters)
        return 0;
    a.now = xmalloc(((size_t)nvalues + 1) * sizeof(*a.now));
    a.weight = xcalloc(b->m->nadapters, sizeof(*a.weight));
    for (int v = 0; v < nvalues; v++)
        a.now[v] = v;
    p->inst = NULL;
    p->ninsts = 0;
    b->inst_cap = 0;
    b->mixture = -1;
    for (int i = 0; i < ninsts && ret == 0; i++) {
        struct inst inst = a.old[i];

        for (int k = 0; k < inst.nsrc; k++)
            inst.src[k] = a.now[inst.src[k]];
        append(&a, &inst);
        ret = adapt(&a, &inst);
    }
    for (int i = 0; i < p->noutputs; i++)
        p->output[i].value = a.now[p->output[i].value];
    free((void *)a.old);
    free(a.now);
    free(a.weight);
    return ret;
}
