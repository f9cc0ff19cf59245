/* costmodel - the per-layer cost model of one rank
 *
 * The column "saved" of the table of operations says which values the backward pass
 * reads: a product its input if its weight is trained; an elementwise product both
 * factors; activations and norms their input (ReLU, tanh and sigmoid their result);
 * attention q, k, v and its result (Dao 2023) or its scores; sums, rotations and
 * scalings nothing.  For a GPT block this gives the 34 bytes per element of Korthikanti
 * et al. 2022, equation 1.
 *
 * PyTorch in eager mode runs some operations as several, which save copies (struct
 * op_torch): an RMS norm saves its input in f32 and the normalized value; an
 * approximate GELU saves three more values.  A segment is a view there and keeps all of
 * its value alive. */
#include "lib/estimate/costmodel.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/format.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/estimate/backward.h"
#include "lib/model/frozen.h"
#include "lib/run/adapter.h"
#include "lib/reshard/summary.h"
#include "lib/program/packable.h"

/* How a tensor takes part in training: with a gradient, with LoRA adapters, or not. */
enum training { TRAINED, ADAPTED, FROZEN };

struct builder {
    struct costmodel *a;
    const struct model *m;
    struct cutter *cutter;
    enum packable *packable; /* with .unpacked */
    enum training *training; /* [ntensors] */
    const struct costmodel_options *opt;
    uint64_t ep, ep_at; /* ranks that share experts, and which of them this is */
    struct values values;
    int at;        /* index of the current instruction */
    bool *biased;  /* [nweights]: a table of relative biases that was read before */
    bool *crossed; /* [nvalues]: counted in unit_kept.boundary */
    int products;  /* number of products of the unit so far */
    bool *turned;  /* [ninsts]: products that copy a transposed source in PyTorch */
    bool *spared;  /* [nvalues]: selective recomputation saves it (unit.sparse) */
    int *cache_of; /* [nvalues]: index in its unit's cache, or -1 */
};

/* Sets the training of every tensor that LIST names; LoRA adapts only matrices. */
static int mark_named(struct builder *b, const char *option, const char *list,
                      enum training training, struct err *err)
{
    int least = training == ADAPTED ? 2 : 0; /* dimensions */

    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        bool found = false;

        for (size_t i = 0; i < b->m->ntensors; i++)
            if (b->m->tensor[i].ndim >= least &&
                frozen_is_called(&b->m->tensor[i], p, n)) {
                b->training[i] = training;
                found = true;
            }
        if (!found)
            return err_set(err, ERR_USAGE, "%s: %s has no %s called '%.*s'", option,
                           b->m->family, least ? "matrix" : "tensor", (int)n, p);
        p += n + (p[n] == ',');
    }
    return 0;
}

static int find_training(struct builder *b, const struct costmodel_options *opt,
                         struct err *err)
{
    for (size_t i = 0; i < b->m->ntensors; i++) {
        const struct model_tensor *t = &b->m->tensor[i];

        b->training[i] = model_kind(b->m, t->kind).beside || t->frozen     ? FROZEN
                         : opt && opt->only                                ? FROZEN
                         : !opt || !opt->lora                              ? TRAINED
                         : !opt->targets && t->section >= 0 && t->ndim > 1 ? ADAPTED
                                                                           : FROZEN;
    }
    if (opt && opt->lora && opt->targets &&
        mark_named(b, "--lora", opt->targets, ADAPTED, err) < 0)
        return -1;
    for (size_t i = 0; i < b->m->ntensors && opt && opt->lora; i++)
        if (b->training[i] == FROZEN && adapter_saves(b->m, i, opt->saved))
            b->training[i] = TRAINED;
    if (opt && opt->only && mark_named(b, "--train-only", opt->only, TRAINED, err) < 0)
        return -1;
    if (opt && opt->freeze && mark_named(b, "--freeze", opt->freeze, FROZEN, err) < 0)
        return -1;
    return 0;
}

/* Of one expert, or of all, which are its first axis. */
static bool is_of_experts(const struct model *m, const struct model_tensor *t)
{
    int sym = t->ndim > 1 ? axis_dealt(t->axis[0], &m->scope) : -1;

    return model_is_expert(m, t) || (sym >= 0 && model_dealt_over(m, sym) == MESH_EP);
}

/* True if T has values of each expert, which frameworks other than tp-run shard with
 * these. */
static bool goes_with_experts(const struct builder *b, const struct model_tensor *t)
{
    return t->of_experts && !b->opt->tp_run;
}

static enum weight_class class_of(const struct builder *b, const struct model_tensor *t)
{
    if (t->ndim < 2)
        return WEIGHT_VECTOR;
    if (is_of_experts(b->m, t) || goes_with_experts(b, t))
        return WEIGHT_EXPERT;
    return t->section >= 0 ? WEIGHT_MATRIX : WEIGHT_TABLE;
}

static struct common *find_common(struct costmodel *a, uint64_t read_by,
                                  enum weight_class class)
{
    for (int i = 0; i < a->ncommons; i++)
        if (a->common[i].read_by == read_by && a->common[i].class == class)
            return &a->common[i];
    a->common = xrealloc(a->common, sizeof(*a->common) * (size_t)(a->ncommons + 1));
    a->common[a->ncommons] = (struct common){ .read_by = read_by, .class = class };
    return &a->common[a->ncommons++];
}

/* Elements of tensor I on this rank; *rows and *sides (rows + columns) of its
 * matrices. */
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

        if (!k && goes_with_experts(b, t))
            size = size / b->ep + (b->ep_at < size % b->ep);
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
    sum->elements += n;
    sum->rows += rows;
    if (b->training[i] == TRAINED) {
        sum->trained += n;
        sum->trained_sides += sides;
    } else if (b->training[i] == ADAPTED) {
        sum->adapted_sides += sides;
    }
}

/* Bytes of N elements of tensor I in the checkpoint, or unpacked; 0 without one. */
static uint64_t stored_bytes(const struct model *m, size_t i, uint64_t n,
                             const enum dtype *stored, bool unpacked)
{
    struct model_packing p;
    uint64_t bytes = 0;

    if (stored && unpacked && model_kind(m, m->tensor[i].kind).companion_of >= 0)
        return 0;
    if (stored && unpacked && model_packing(m, i, &p) && p.part[PACKED_SCALES] >= 0)
        return n *
               (uint64_t)dtype_bits(model_unpacked(
                   m, &p, stored[m->tensor[p.part[PACKED_SCALES]].source])) /
               8;
    if (stored && m->tensor[i].source >= 0 &&
        !dtype_bytes(&bytes, stored[m->tensor[i].source], n))
        bytes = n * (uint64_t)dtype_bits(stored[m->tensor[i].source]) / 8;
    return bytes;
}

/* Bytes of the codes of tensor I, of which this rank has N elements; 0 if it stays. */
static uint64_t code_bytes(const struct builder *b, size_t i, uint64_t n, int bits)
{
    const struct model_tensor *t = &b->m->tensor[i];
    enum packable how = b->packable ? b->packable[i] : PACKABLE_NOT;
    int in = how == PACKABLE_COLS ? t->ndim - 2 : t->ndim - 1;
    int out = how == PACKABLE_COLS ? t->ndim - 1 : t->ndim - 2;
    enum format f = bits == 4 ? FORMAT_INT4 : FORMAT_INT8;
    uint64_t cols, rows, codes, scales;
    struct slice slice;

    if (how == PACKABLE_NOT || t->ndim < 2 ||
        (format_table[f].whole && t->axis[in]->size % format_table[f].numbers))
        return 0;
    cutter_slice(b->cutter, i, &slice);
    cols = slice.runs[in]->count;
    rows = slice.runs[out]->count;
    if (!cols || !rows || !format_bytes(&codes, f, rows, cols) ||
        !format_scale_bytes(&scales, f, rows, cols, 0))
        return 0;
    return n / cols / rows * (codes + scales);
}

/* Adds tensor I: N elements, stored in BYTES. */
static void add_coded(struct weight_sum *sum, const struct builder *b, size_t i,
                      uint64_t n, uint64_t bytes)
{
    for (int k = 0; k < 2; k++) {
        uint64_t codes = code_bytes(b, i, n, k ? 4 : 8);

        sum->coded[k].bytes += codes;
        sum->coded[k].others += codes ? 0 : n;
        sum->coded[k].stored += codes ? 0 : bytes;
    }
}

static void sum_weights(struct builder *b, const enum dtype *stored)
{
    for (size_t i = 0; i < b->m->ntensors; i++) {
        const struct model_tensor *t = &b->m->tensor[i];
        struct model_kind kind = model_kind(b->m, t->kind);
        const struct model_tensor *whose = t;
        uint64_t rows, sides, bytes, n = local_elements(b, i, &rows, &sides);
        struct weight_sum *sum;

        if (!n || (!summary_has(b->m, i) && kind.companion_of < 0))
            continue;
        if (kind.companion_of >= 0)
            whose = &b->m->tensor[kind.companion_of];
        if (t->section >= 0) {
            struct unit *u = &b->a->unit[b->a->first_unit[t->section] + t->layer];

            sum = &u->weight[model_is_expert(b->m, t) ? WEIGHT_EXPERT
                                                      : class_of(b, whose)];
        } else {
            sum = &find_common(b->a, kind.read_by, class_of(b, whose))->sum;
            if (n > b->a->largest)
                b->a->largest = n;
        }
        bytes = stored_bytes(b->m, i, n, stored, b->opt->unpacked);
        if (stored && b->opt->unpacked && model_code_bits(b->m) &&
            code_bytes(b, i, n, model_code_bits(b->m)))
            bytes = code_bytes(b, i, n, model_code_bits(b->m)); /* as tp-run has it */
        sum->bytes += bytes;
        add_coded(sum, b, i, n, bytes);
        if (summary_has(b->m, i))
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
    int n, total = 0;
    const struct model_section *section = model_sections(b->m, &n);
    struct costmodel *a = b->a;

    for (int i = 0; i < n; i++)
        total += section[i].count;
    a->unit = xcalloc((size_t)total + 1, sizeof(*a->unit));
    a->first_unit = xcalloc((size_t)n + 1, sizeof(*a->first_unit));
    for (int i = 0; i < n; i++) {
        const struct model_section *sec = &section[i];

        a->first_unit[i] = a->nunits;
        for (int k = 0; k < sec->count; k++) {
            struct unit *u = &a->unit[a->nunits++];

            u->section = sec->name;
            u->index = i;
            u->layer = sec->repeated ? k : -1;
            u->depth = sec->repeated ? sec->depth + k : sec->depth ? sec->depth - 1 : 0;
        }
    }
}

/* Counts V as input of unit U if another unit makes it. */

/* Unit U reads V, and needs it where it is made again. */
static void cross(struct builder *b, struct unit *u, int v)
{
    if (values_unit(&b->values, v) == u || b->crossed[v])
        return;
    b->crossed[v] = true;
    u->kept.boundary += b->a->program->value[v].whole_cols;
}

/* Unit U saves V for its backward pass. */
static void keep(struct builder *b, struct unit *u, int v)
{
    v = values_storage(&b->values, v);
    if (b->values.keeper[v] >= 0 || b->a->program->value[v].rows == ROWS_TABLE)
        return; /* rows of a table are few, and the same for all sequences */
    b->values.keeper[v] = b->at;
    values_add(&u->kept.columns, &b->values, v);
    if (b->spared[v])
        values_add(&u->sparse_kept, &b->values, v);
    cross(b, u, v);
}

/* The instruction that makes VALUE, or what it is made of element by element: a
 * product, a norm, attention or an embedding; or -1. */
static int origin_of(const struct builder *b, int value)
{
    const struct program *p = b->a->program;
    int i = b->values.producer[value];

    while (i >= 0 && p->inst[i].nsrc && p->inst[i].op != OP_EMBEDDING &&
           p->inst[i].op != OP_LAYERNORM && p->inst[i].op != OP_RMSNORM &&
           op_table[p->inst[i].op].traffic != TRAFFIC_PRODUCT &&
           !op_scores(&p->inst[i]).heads)
        i = b->values.producer[p->inst[i].src[0]];
    return i;
}

/* Marks the products whose source PyTorch has with tokens before sequences. */
static void find_turned(struct builder *b)
{
    const struct program *p = b->a->program;

    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];
        int from;

        if (op_scores(inst).window && torch_of(&b->a->torch, inst).turned)
            for (int k = 0; k < 3; k++)
                if ((from = origin_of(b, inst->src[k])) >= 0)
                    b->turned[from] = true;
        if (op_table[inst->op].traffic == TRAFFIC_PRODUCT &&
            (from = origin_of(b, inst->src[0])) >= 0 &&
            p->inst[from].op == OP_EMBEDDING &&
            torch_of(&b->a->torch, &p->inst[from]).turned)
            b->turned[i] = true;
    }
}

/* The field of C for VALUE's placement; f32 copies if WIDE. */
static uint64_t *place(struct columns *c, const struct value *value, bool wide)
{
    if (value_is_cut(value))
        return wide ? &c->wide_cut : &c->cut;
    return wide ? &c->wide_whole : &c->whole;
}

/* The current instruction saves TIMES copies of V, in f32 if WIDE. */
static void copy(struct builder *b, struct unit *u, int v, uint64_t times, bool wide)
{
    const struct value *value = &b->a->program->value[v];
    uint64_t n = values_columns(&b->values, value) * times;

    *place(&b->values.copies[b->at], value, wide) += n;
    *place(&u->kept.columns, value, wide) += n;
}

/* True for a product with a frozen weight: only the weight's gradient would read what
 * it saves. */
static bool reads_no_source(const struct builder *b, const struct inst *inst)
{
    return op_table[inst->op].traffic == TRAFFIC_PRODUCT &&
           b->training[b->a->program->weight[inst->weight].tensor] == FROZEN;
}

/* An operation that computes in f32 saves its source in f32, and the value that the
 * weight multiplies. */
static void keep_upcast(struct builder *b, struct unit *u, const struct inst *inst,
                        const struct op_torch *torch)
{
    int x = values_storage(&b->values, inst->src[0]);

    if (inst->weight >= 0 &&
        b->training[b->a->program->weight[inst->weight].tensor] == TRAINED)
        copy(b, u, x, 1, b->opt->narrow && torch->wide);
    if (!b->opt->narrow) {
        keep(b, u, x);
        return;
    }
    copy(b, u, x, 1, true);
    if (torch->both)
        keep(b, u, x);
    if (b->values.keeper[x] < 0)
        cross(b, u, x);
}

/* A norm that saves what differs from the mean does so for the variance and for the
 * result, and what its weight multiplies, all in f32; if PARTED, the first two are one,
 * in the type of its source. */
static void keep_centred(struct builder *b, struct unit *u, const struct inst *inst,
                         bool parted)
{
    int x = values_storage(&b->values, inst->src[0]);

    if (parted)
        copy(b, u, x, 2, false);
    else
        copy(b, u, x, inst->weight >= 0 ? 3 : 2, b->opt->narrow);
    if (b->values.keeper[x] < 0)
        cross(b, u, x);
}

/* Attention's queries, keys and values as PyTorch copies them, COUNT of these sources,
 * keys and values once for each head if SPREAD says so. */
static void copy_heads(struct builder *b, struct unit *u, const struct inst *inst,
                       int first, int count, bool spread, bool wide)
{
    uint64_t n = spread ? op_scores(inst).spread : 0;

    for (int k = first; k < first + count; k++)
        copy(b, u, inst->src[k], 1, wide);
    *(wide ? &b->values.copies[b->at].wide_cut : &b->values.copies[b->at].cut) += n;
    *(wide ? &u->kept.columns.wide_cut : &u->kept.columns.cut) += n;
}

/* True if V is the result of an activation that saves its own source.  A fused kernel
 * then recomputes V where it is read. */
static bool is_made_again(const struct builder *b, int v)
{
    int maker = b->values.producer[v];
    const struct inst *inst = maker < 0 ? NULL : &b->a->program->inst[maker];

    return inst && !b->opt->eager && inst->op == OP_ACTIVATION &&
           op_saved(inst) == 1 << 0;
}

/* True if Q is concatenated from two tensors: only a part of each head is rotated, or Q
 * is rotated as a view of a fused projection.  PyTorch's attention then returns its
 * result in the memory order of Q, head by head, and the output projection needs a
 * contiguous copy. */
static bool is_joined(const struct builder *b, int q)
{
    const struct program *p = b->a->program;
    int maker = b->values.producer[q], from;
    const struct inst *inst = maker < 0 ? NULL : &p->inst[maker];

    if (!inst || inst->op != OP_ROPE)
        return inst && inst->op == OP_CONCAT;
    from = b->values.producer[inst->src[0]];
    return p->rope[inst->rope.table].dim < inst->rope.head ||
           (from >= 0 && op_table[p->inst[from].op].result == RESULT_PART);
}

/* What attention saves as copies; returns those that it then saves not as values. */
static unsigned keep_heads(struct builder *b, struct unit *u, const struct inst *inst,
                           const struct op_torch *torch)
{
    unsigned copied = 0;

    if (torch->chunks || torch->blocks)
        return 7;
    if (torch->unfused && !b->opt->scores) {
        copy_heads(b, u, inst, 0, 3, true, b->opt->narrow);
        return 7 | SAVES_RESULT;
    }
    if (torch->spread && !b->opt->scores) {
        copy_heads(b, u, inst, 1, 2, true, false);
        return 6;
    }
    if (torch->scored && b->opt->scores && b->opt->narrow) {
        copy_heads(b, u, inst, 0, 2, false, true);
        copied = 3;
    }
    for (int k = 0; k < 3 && (b->opt->scores || torch->split); k++)
        if (!(copied >> k & 1) &&
            values_storage(&b->values, inst->src[k]) != inst->src[k]) {
            copy(b, u, inst->src[k], 1, false); /* a product wants it in one piece */
            copied |= 1U << k;
        }
    return copied;
}

/* True if INST adds the results of experts that compute every token, with weights that
 * are all 1: PyTorch then sums them without any weights. */
static bool only_adds(const struct builder *b, const struct inst *inst)
{
    int route = inst->op == OP_EXPERT_COMBINE ? b->values.producer[inst->src[1]] : -1;
    const struct inst *by = route < 0 ? NULL : &b->a->program->inst[route];

    return by && b->opt->eager && b->a->torch.of[OP_ROUTE] & TORCH_EVERY &&
           by->op == OP_ROUTE && by->route.renorm &&
           b->a->program->mixture[inst->mixture].top == 1;
}

/* Saves what the derivative of INST reads.  Logits are not counted here, but with the
 * loss. */
static void keep_saved(struct builder *b, struct unit *u, const struct inst *inst)
{
    struct op_torch torch = torch_of(&b->a->torch, inst);
    unsigned saved = op_saved(inst);

    if (torch.part || reads_no_source(b, inst) || only_adds(b, inst))
        return;
    if ((torch.centred || torch.parted) && b->opt->eager) {
        keep_centred(b, u, inst, torch.parted);
        return;
    }
    if (b->opt->eager && b->opt->narrow && b->values.routes[b->at] &&
        b->a->torch.of[OP_ROUTE] & TORCH_WIDE) {
        copy(b, u, inst->src[0], 1, true);
        return;
    }
    if (b->opt->eager && op_scores(inst).heads)
        saved &= ~keep_heads(b, u, inst, &torch);
    if (torch.upcast && b->opt->eager) {
        keep_upcast(b, u, inst, &torch);
        return;
    }
    for (int k = 0; k < inst->nsrc; k++) {
        if (!(saved >> k & 1) || (inst->op == OP_MUL && is_made_again(b, inst->src[k])))
            continue;
        if (b->turned[b->at] && b->opt->eager &&
            b->values.keeper[values_storage(&b->values, inst->src[k])] >= 0)
            u->kept.turned +=
                values_columns(&b->values, &b->a->program->value[inst->src[k]]);
        else if (!values_are_logits(&b->values, inst->src[k]))
            keep(b, u, inst->src[k]);
        else if (values_are_logits(&b->values, inst->dst))
            b->a->caps++;
    }
    if (saved & SAVES_RESULT)
        keep(b, u, inst->dst);
    if (b->opt->eager && op_scores(inst).heads && !b->opt->scores && !torch.unfused &&
        !torch.ordered && is_joined(b, inst->src[0]))
        copy(b, u, inst->dst, 1, false);
    if (!b->opt->eager)
        return;
    if (torch.copies)
        copy(b, u, inst->dst, (uint64_t)torch.copies, false);
    u->kept.flags += (uint64_t)torch.flags *
                     values_columns(&b->values, &b->a->program->value[inst->dst]);
    if (torch.related) /* keys also lie in the order that a product wants */
        copy(b, u, inst->src[1], 1, false);
    if (torch.strided)
        copy(b, u, inst->src[0], 1, false);
}

/* Attention with a window that PyTorch makes of chunks or blocks. */
static void keep_local(struct builder *b, struct unit *u, const struct inst *inst,
                       const struct op_scores *scores, bool blocks)
{
    const struct value *v = b->a->program->value;

    u->kept.local.reach = scores->window - 1;
    u->kept.local.blocks = blocks;
    u->kept.local.heads += scores->heads;
    u->kept.local.keys += values_columns(&b->values, &v[inst->src[1]]);
    u->kept.local.values += values_columns(&b->values, &v[inst->src[2]]);
    if (inst->weight >= 0 && !b->biased[inst->weight]) {
        b->biased[inst->weight] = true;
        u->kept.local.biases++;
    }
}

/* With scores, keys and values are repeated for each query head. */
static void keep_scores(struct builder *b, struct unit *u, const struct inst *inst,
                        const struct op_scores *scores)
{
    struct op_torch torch = torch_of(&b->a->torch, inst);

    if (b->opt->eager && (torch.chunks || torch.blocks)) {
        keep_local(b, u, inst, scores, torch.blocks);
        return;
    }
    u->kept.masked |= torch.masked;
    u->kept.narrow |= torch.narrow;
    u->kept.unfused += torch.unfused ? scores->heads : 0;
    u->kept.spread = torch.spread || inst->attention.kv_heads == 1 ? 0 : scores->spread;
    u->kept.heads += scores->heads;
    u->kept.capped |= scores->capped || torch.bounded;
    if (inst->op == OP_ATTENTION && inst->weight >= 0 && !inst->attention.sinks &&
        !b->biased[inst->weight]) {
        b->biased[inst->weight] = true;
        u->kept.biases++;
        u->kept.biased += torch.unfused || b->opt->scores ? 0 : scores->heads;
    }
    if (torch.related) {
        u->kept.related = b->a->program->value[inst->src[0]].cols;
        u->kept.span = inst->attention.span;
        u->kept.near = !inst->attention.far;
    }
    u->kept.window = scores->window;
    if (b->opt->eager && b->opt->scores) {
        b->values.copies[b->at].cut += scores->spread;
        u->kept.columns.cut += scores->spread;
    }
}

/* Notes the results that selective recomputation saves instead of recomputing. */
static void spare(struct builder *b, struct unit *u, const struct inst *inst)
{
    int spared = torch_usual(inst).spared;

    if (!spared)
        return;
    b->spared[inst->dst] = spared == 1 || b->products++ % spared == 0;
    if (b->spared[inst->dst])
        values_add(&u->sparse, &b->values, inst->dst);
}

/* True for the row-parallel product that ends an attention or FFN block: dropout
 * follows. */
static bool ends_block(const struct builder *b, const struct inst *inst)
{
    int inner = (int)op_table[inst->op].inner - INNER_ROWS; /* axis of the weight */
    const struct model_tensor *t;

    if (inner < 0)
        return false;
    t = &b->m->tensor[b->a->program->weight[inst->weight].tensor];
    return t->section >= 0 && axis_dealt(t->axis[!inner], &b->m->scope) < 0 &&
           axis_dealt(t->axis[inner], &b->m->scope) >= 0;
}

static void add_cache(struct builder *b, struct unit *u, int value)
{
    uint64_t cols = b->a->program->value[value].cols;

    if (u->ncaches < UNIT_MAX_CACHES)
        u->cache[u->ncaches++] = (struct unit_cache){ .cols = cols };
    else
        u->cache[UNIT_MAX_CACHES - 1].cols += cols;
    b->cache_of[value] = u->ncaches - 1;
}

/* Attention reads cached keys and values by heads, no further back than its window. */
static void note_reader(struct builder *b, const struct inst *inst)
{
    for (int k = 1; k < inst->nsrc; k++) {
        int at = b->cache_of[inst->src[k]];
        struct unit_cache *c;

        if (at < 0)
            continue;
        c = &values_unit(&b->values, inst->src[k])->cache[at];
        if (op_scores(inst).window)
            c->window = op_scores(inst).window;
        if (op_table[inst->op].role == ROLE_ATTENDS)
            c->heads = inst->attention.kv_heads;
    }
}

static void read_role(struct builder *b, struct unit *u, const struct inst *inst)
{
    const struct program *p = b->a->program;

    switch (op_table[inst->op].role) {
    case ROLE_CACHE:
        add_cache(b, u, inst->dst);
        break;
    case ROLE_DISPATCH:
        u->top = p->mixture[inst->mixture].top;
        u->all = p->mixture[inst->mixture].all;
        break;
    case ROLE_LOSS:
        b->a->vocab = p->value[inst->src[0]].cols;
        break;
    case ROLE_STATE:
        u->state += op_table[inst->op].state(inst);
        break;
    case ROLE_ATTENDS:
    case ROLE_TEXT:
    case ROLE_NONE:
        break;
    }
}

static void read_instruction(struct builder *b, const struct inst *inst)
{
    const struct program *p = b->a->program;
    struct op_scores scores = op_scores(inst);
    struct unit *u = values_unit(&b->values, inst->dst);

    spare(b, u, inst);
    keep_saved(b, u, inst);
    if (scores.heads)
        keep_scores(b, u, inst, &scores);
    if (ends_block(b, inst))
        u->kept.masks += p->value[inst->dst].whole_cols;
    read_role(b, u, inst);
}

/* ---- instructions ---- */

static void read_program(struct builder *b)
{
    const struct program *p = b->a->program;
    const struct unit *unit = NULL;

    values_open(&b->values, b->a, b->opt->eager);
    b->cache_of = xmalloc(sizeof(*b->cache_of) * (size_t)(p->nvalues + 1));
    b->biased = xcalloc((size_t)p->nweights + 1, sizeof(*b->biased));
    b->crossed = xcalloc((size_t)p->nvalues + 1, sizeof(*b->crossed));
    b->spared = xcalloc((size_t)p->nvalues + 1, sizeof(*b->spared));
    b->turned = xcalloc((size_t)p->ninsts + 1, sizeof(*b->turned));
    find_turned(b);
    for (int i = 0; i < p->nvalues; i++)
        b->cache_of[i] = -1;
    for (b->at = 0; b->at < p->ninsts; b->at++) {
        const struct unit *its = values_unit(&b->values, p->inst[b->at].dst);

        if (its != unit)
            b->products = 0;
        unit = its;
        read_instruction(b, &p->inst[b->at]);
    }
    for (int i = 0; i < p->ninsts; i++)
        if (op_scores(&p->inst[i]).heads)
            note_reader(b, &p->inst[i]);
    backward_find_worst(&b->values);
}

/* Builds the program that ends in the loss, or in the family's outputs if the model has
 * no logits. */

/* The program that ends in the likelihood, or, where the model has no logits, in what
 * the family names. */
static int build_program(struct costmodel *a, const struct mesh *mesh,
                         const int coord[MESH_NAXES], bool training, struct err *err)
{
    struct program_options opt = { .tail = TAIL_NLL,
                                   .wanted = true,
                                   .training = training };
    struct err first = { 0 };

    if (program_build(&a->program, a->model, mesh, coord, &opt, &first) == 0)
        return 0;
    opt = (struct program_options){ .tail = TAIL_NONE, .training = training };
    return program_build(&a->program, a->model, mesh, coord, &opt, err);
}

static bool same_unit(const struct unit *u, const struct unit *v)
{
    return !strcmp(u->section, v->section) && u->ncaches == v->ncaches &&
           u->state == v->state && !memcmp(u->weight, v->weight, sizeof(u->weight)) &&
           !memcmp(&u->kept, &v->kept, sizeof(u->kept)) &&
           !memcmp(&u->sparse, &v->sparse, sizeof(u->sparse)) &&
           !memcmp(&u->sparse_kept, &v->sparse_kept, sizeof(u->sparse_kept)) &&
           !memcmp(u->worst, v->worst, sizeof(u->worst)) &&
           !memcmp(u->cache, v->cache, sizeof(u->cache));
}

static void find_alike(struct costmodel *a)
{
    for (int i = 0; i < a->nunits; i++)
        a->unit[i].like =
            i && same_unit(&a->unit[i], &a->unit[i - 1]) ? a->unit[i - 1].like : i;
    a->run = xcalloc((size_t)a->nunits + 1, sizeof(*a->run));
    for (int i = 0; i < a->nunits; i++) {
        const struct unit *u = &a->unit[i];

        if (!i || u->like != u[-1].like || u->depth != u[-1].depth + 1)
            a->run[a->nruns++].first = i;
        a->run[a->nruns - 1].n++;
    }
}

int costmodel_open(struct costmodel **out, const struct model *m,
                   const struct mesh *mesh, const int coord[MESH_NAXES],
                   const enum dtype *stored, const struct costmodel_options *opt,
                   struct err *err)
{
    int size[MESH_NAXES] = {
        [MESH_TP] = mesh->size[MESH_TP], [MESH_EP] = mesh->size[MESH_EP]
    };
    int at[MESH_NAXES] = { [MESH_TP] = coord[MESH_TP], [MESH_EP] = coord[MESH_EP] };
    struct costmodel *a = xcalloc(1, sizeof(*a));
    const struct costmodel_options none = { 0 };
    struct builder b = { .a = a,
                         .m = m,
                         .opt = opt ? opt : &none,
                         .ep = (uint64_t)size[MESH_EP],
                         .ep_at = (uint64_t)at[MESH_EP] };
    struct mesh small;
    uint64_t n;
    int ret = -1;

    a->model = m;
    b.training = xcalloc(m->ntensors + 1, sizeof(*b.training));
    if (mesh_set(&small, size, NULL, err) < 0)
        goto out;
    small.pad_vocab = mesh->pad_vocab;
    if (cutter_open(&b.cutter, m, &small, at, err) < 0 ||
        find_training(&b, opt, err) < 0 || torch_read(&a->torch, m, err) < 0 ||
        build_program(a, &small, at, b.opt->training, err) < 0)
        goto out;
    a->causal = a->program->causal;
    a->narrow_loss = a->torch.of[OP_ROW_STATS] & TORCH_NARROW;
    for (int i = 0; i < a->program->nropes; i++)
        if (!mem_mul(&n, a->program->rope[i].dim, model_context(m)) ||
            !mem_add(&a->angles, a->angles, n)) {
            err_set(err, ERR_INPUT, "%s: its positions overflow", model_config_name(m));
            goto out;
        }
    a->trained = xcalloc(m->ntensors + 1, sizeof(*a->trained));
    for (size_t i = 0; i < m->ntensors; i++)
        a->trained[i] = b.training[i] == TRAINED;
    if (b.opt->unpacked) {
        b.packable = packable_new(m, err);
        if (!b.packable)
            goto out;
    }
    make_units(&b);
    sum_weights(&b, stored);
    read_program(&b);
    find_alike(a);
    ret = 0;
out:
    cutter_free(b.cutter);
    free(b.packable);
    free(b.training);
    values_close(&b.values);
    free(b.biased);
    free(b.crossed);
    free(b.spared);
    free(b.turned);
    free(b.cache_of);
    if (ret < 0)
        costmodel_close(a);
    else
        *out = a;
    return ret;
}

void costmodel_close(struct costmodel *a)
{
    if (!a)
        return;
    program_free(a->program);
    free(a->first_unit);
    free(a->run);
    free(a->unit);
    free(a->common);
    free(a->trained);
    free(a);
}

void costmodel_drop_program(struct costmodel *a)
{
    program_free(a->program);
    a->program = NULL;
}

bool costmodel_runs(const struct unit *u, int first, int count)
{
    return u->depth >= first && u->depth < first + count;
}

int costmodel_unit(const struct costmodel *a, const struct value *v)
{
    if (v->section < 0)
        return a->nunits - 1;
    return a->first_unit[v->section] + (v->layer >= 0 ? v->layer : 0);
}

bool costmodel_holds(const struct costmodel *a, const struct common *c, int first,
                     int count)
{
    if (!c->read_by)
        return first == 0;
    for (int i = 0; i < a->nunits; i++)
        if (c->read_by >> a->unit[i].index & 1 &&
            costmodel_runs(&a->unit[i], first, count))
            return true;
    return false;
}

static uint64_t count_values(const struct model *m, bool buffers)
{
    uint64_t total = 0;

    for (size_t i = 0; i < m->ntensors; i++) {
        uint64_t n = 1;

        for (int k = 0; k < m->tensor[i].ndim; k++)
            n *= m->tensor[i].axis[k]->size;
        if (summary_has(m, i) && m->tensor[i].buffer == buffers)
            total += n;
    }
    return total;
}

uint64_t costmodel_params(const struct model *m)
{
    return count_values(m, false);
}

uint64_t costmodel_buffers(const struct model *m)
{
    return count_values(m, true);
}
