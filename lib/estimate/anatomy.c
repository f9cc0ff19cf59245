/* anatomy - what one rank holds and makes of a model, unit by unit
 *
 * Which values the backward pass reads follows from the derivative of each operation: a
 * product reads its input where its weight is trained, a product of two values both, an
 * activation and a norm their input, attention q, k, v and its result (Dao 2023) or the
 * scores; sums, rotations and scalings read nothing.  For a GPT block this gives the 34
 * bytes per element of Korthikanti et al. 2022, equation 1. */
#include "lib/estimate/anatomy.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/model/outline.h"
#include "lib/model/state.h"

/* How a tensor takes part in training. */
enum training { TRAINED, ADAPTED, FROZEN };

struct builder {
    struct anatomy *a;
    const struct model *m;
    struct cutter *cutter;
    enum training *training; /* [ntensors] */
    int *producer;           /* [nvalues]: the instruction that makes it */
    bool *kept;              /* [nvalues]: counted */
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

/* The value whose memory V is. */
static int storage_of(const struct builder *b, int v)
{
    const struct program *p = b->a->program;

    while (b->producer[v] >= 0 && (p->inst[b->producer[v]].op == OP_KEEP ||
                                   p->inst[b->producer[v]].op == OP_TAKE))
        v = p->inst[b->producer[v]].src[0];
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

/* The backward pass of unit U reads V. */
static void keep(struct builder *b, struct unit *u, int v)
{
    const struct value *value;
    uint64_t cols;

    v = storage_of(b, v);
    if (b->kept[v])
        return;
    b->kept[v] = true;
    value = &b->a->program->value[v];
    cols = value->rows == ROWS_CHOSEN ? of_experts(b, value->cols) : value->cols;
    if (value->cols < value->whole_cols)
        u->kept.cut += cols;
    else
        u->kept.whole += cols;
    if (&b->a->unit[unit_of(b, v)] != u)
        u->kept.border += value->whole_cols;
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
    case OP_ACTIVATION:
    case OP_SOFTCAP:
    case OP_CLIP:
    case OP_RMSNORM:
    case OP_LAYERNORM:
        keep(b, u, inst->src[0]);
        break;
    case OP_ATTENTION:
        for (int k = 0; k < 3; k++)
            keep(b, u, inst->src[k]);
        keep(b, u, inst->dst);
        u->kept.heads += inst->attention.heads;
        u->attention += inst->attention.heads *
                        (inst->attention.head_dim + inst->attention.value_dim);
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

static void read_program(struct builder *b)
{
    const struct program *p = b->a->program;

    b->producer = xmalloc(sizeof(*b->producer) * (size_t)(p->nvalues + 1));
    b->cache_of = xmalloc(sizeof(*b->cache_of) * (size_t)(p->nvalues + 1));
    b->kept = xcalloc((size_t)p->nvalues + 1, sizeof(*b->kept));
    for (int i = 0; i < p->nvalues; i++)
        b->producer[i] = b->cache_of[i] = -1;
    for (int i = 0; i < p->ninsts; i++)
        b->producer[p->inst[i].dst] = i;
    for (int i = 0; i < p->ninsts; i++)
        read_instruction(b, &p->inst[i]);
    for (int i = 0; i < p->ninsts; i++)
        if (p->inst[i].op == OP_ATTENTION && p->inst[i].attention.window)
            note_window(b, &p->inst[i]);
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
    struct builder b = { .a = a, .m = m };
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
    free(b.kept);
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
