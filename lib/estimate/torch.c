/* torch - what PyTorch saves for each operation, and what a family's words change */
#include "lib/estimate/torch.h"

#include <string.h>

#include "lib/model/expr.h"
#include "lib/model/family.h"
#include "lib/program/program.h"

/* ---- the table ---- */

static struct op_torch torch_free(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ .free = true };
}

/* One kernel in PyTorch, also where it is three instructions here (sharded norms). */
static struct op_torch torch_statistic(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ .part = true };
}

/* The backward pass holds the gradients of its product, mean, power and cast.  Gemma
 * (weight + 1) computes all of it in f32. */
static struct op_torch torch_rmsnorm(const struct inst *inst)
{
    return (
        struct op_torch){ .upcast = true, .wide = inst->norm.plus_one, .gradients = 4 };
}

/* OLMo's, which has no weight, computes in f32. */
static struct op_torch torch_layernorm(const struct inst *inst)
{
    return (struct op_torch){ .upcast = inst->weight < 0 };
}

static struct op_torch torch_activation(const struct inst *inst)
{
    switch (inst->act) {
    case ACT_GELU_NEW: /* eight elementwise kernels */
        return (struct op_torch){ .copies = 3 };
    case ACT_QUICK_GELU:
        return (struct op_torch){ .copies = 1 };
    default:
        return (struct op_torch){ 0 };
    }
}

/* expm1 and its difference from x, two products, and which side of 0 x is on. */
static struct op_torch torch_xielu(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ .copies = 3, .flags = 1 };
}

/* The rows that its taps see are copied side by side, once for each tap. */
static struct op_torch torch_dynamic(const struct inst *inst)
{
    return (struct op_torch){ .copies = (int)inst->taps.count - 1 };
}

/* Selective recomputation saves every second product (as torchtitan does) and
 * attention's result. */
static struct op_torch torch_product(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ .spared = 2 };
}

static struct op_torch torch_attention(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ .spared = 1 };
}

static struct op_torch torch_relate(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ .spared = 1, .related = true };
}

/* An operation without a row is one kernel that saves what its derivative reads. */
static struct op_torch (*const usual[OP_COUNT])(const struct inst *) = {
    [OP_LINEAR] = torch_product,
    [OP_MATMUL] = torch_product,
    [OP_INPUT] = torch_free,
    [OP_UNFOLD] = torch_free,
    [OP_ADD_VECTOR] = torch_free,
    [OP_ACTIVATION] = torch_activation,
    [OP_XIELU] = torch_xielu,
    [OP_RMSNORM] = torch_rmsnorm,
    [OP_LAYERNORM] = torch_layernorm,
    [OP_ROW_SUM] = torch_statistic,
    [OP_ROW_SQUARES] = torch_statistic,
    [OP_RMS_APPLY] = torch_rmsnorm,
    [OP_ANGLES] = torch_free,
    [OP_KEEP] = torch_free,
    [OP_ATTENTION] = torch_attention,
    [OP_STREAM] = torch_attention,
    [OP_RELATE] = torch_relate,
    [OP_RELATE_XL] = torch_attention,
    [OP_GLOBAL_ATTENTION] = torch_attention,
    [OP_SIDE_ATTENTION] = torch_attention,
    [OP_DYNAMIC] = torch_dynamic,
    [OP_CHOOSE] = torch_free,
    [OP_EXPERT_COUNT] = torch_free,
    [OP_EXPERT_INDEX] = torch_free,
    [OP_ROUTER_SUMS] = torch_free,
    [OP_BALANCE] = torch_free,
    [OP_SEGMENT] = torch_free,
    [OP_TAKE] = torch_free,
    [OP_FIRST] = torch_free,
    [OP_ALL_REDUCE] = torch_free,
    [OP_ALL_GATHER] = torch_free,
    [OP_ALL_TO_ALL] = torch_free,
    [OP_ARRANGE] = torch_free,
    [OP_SLICE] = torch_free,
    [OP_ROW_STATS] = torch_free,
    [OP_NLL] = torch_free,
    [OP_SAMPLE] = torch_free,
    [OP_HEADS_PACK] = torch_free,
    [OP_HEADS_UNPACK] = torch_free,
    [OP_CACHE_READ] = torch_free,
    [OP_MERGE] = torch_free,
    [OP_ARGMAX] = torch_free,
};

struct op_torch torch_usual(const struct inst *inst)
{
    return usual[inst->op] ? usual[inst->op](inst) : (struct op_torch){ 0 };
}

/* ---- words of a family ---- */

static const struct {
    const char *name;
    enum torch_word word;
} words[] = {
    { "fused", TORCH_FUSED },       { "wide", TORCH_WIDE },
    { "centred", TORCH_CENTRED },   { "narrow", TORCH_NARROW },
    { "spread", TORCH_SPREAD },     { "unfused", TORCH_UNFUSED },
    { "f32_scores", TORCH_SCORED }, { "by_hand", TORCH_BY_HAND },
    { "split", TORCH_SPLIT },       { "ordered", TORCH_ORDERED },
    { "parted", TORCH_PARTED },     { "both", TORCH_BOTH },
    { "open", TORCH_OPEN },         { "strided", TORCH_STRIDED },
    { "bounded", TORCH_BOUNDED },   { "masked", TORCH_MASKED },
    { "turned", TORCH_TURNED },     { "chunks", TORCH_CHUNKS },
    { "blocks", TORCH_BLOCKS },     { "every", TORCH_EVERY },
};

/* The operation with NAME ("loss": the one that reads the logits), or OP_COUNT. */
static enum op find_op(const char *name)
{
    for (int i = 0; i < OP_COUNT; i++)
        if (!strcmp(op_table[i].name, name) ||
            (op_table[i].role == ROLE_LOSS && !strcmp(name, "loss")))
            return (enum op)i;
    return OP_COUNT;
}

static int read_words(unsigned *out, const struct family_entry *e, const char *text,
                      size_t len, struct err *err)
{
    for (size_t at = 0, n; at < len; at += n + 1) {
        const char *blank = memchr(text + at, ' ', len - at);
        size_t i = 0;

        n = blank ? (size_t)(blank - text) - at : len - at;
        while (i < sizeof(words) / sizeof(*words) &&
               (strlen(words[i].name) != n || memcmp(words[i].name, text + at, n)))
            i++;
        if (i == sizeof(words) / sizeof(*words))
            return family_error(e->doc, e->json, 0, err,
                                "'%.*s' is not a word for '%s'", (int)n, text + at,
                                e->key);
        *out |= words[i].word;
    }
    return 0;
}

int torch_read(struct torch_words *out, const struct model *m, struct err *err)
{
    const struct family_table *t = &model_family(m)->torch;

    *out = (struct torch_words){ { 0 } };
    for (size_t i = 0; i < t->n; i++) {
        const struct family_entry *e = &t->v[i];
        enum op op = find_op(e->key);
        struct expr_value v;
        struct err cause = { 0 };

        if (op == OP_COUNT)
            return family_error(e->doc, e->json, 0, err, "no operation is called '%s'",
                                e->key);
        if (!json_string(e->json))
            return family_error(e->doc, e->json, 0, err, "expected an expression");
        if (model_eval(m, e->json->text, strlen(e->json->text), -1, &v, &cause) < 0)
            return family_place(e->doc, e->json, 0, &cause, err);
        if (v.kind != EXPR_WORD)
            return family_error(e->doc, e->json, 0, err, "expected words");
        if (read_words(&out->of[op], e, v.word, v.len, err) < 0)
            return -1;
    }
    return 0;
}

int torch_check(const struct model *m, struct err *err)
{
    struct torch_words read;

    return torch_read(&read, m, err);
}

struct op_torch torch_of(const struct torch_words *w, const struct inst *inst)
{
    struct op_torch t = torch_usual(inst);
    unsigned word = w->of[inst->op];

    if (word & TORCH_FUSED)
        t = (struct op_torch){ .spared = t.spared };
    if (word & TORCH_BY_HAND)
        t = (struct op_torch){ .spared = t.spared, .temporaries = 3 };
    if (word & TORCH_CENTRED)
        t.upcast = t.centred = true;
    t.wide |= (word & (TORCH_WIDE | TORCH_CENTRED)) != 0;
    t.narrow = word & TORCH_NARROW;
    t.spread = word & TORCH_SPREAD;
    t.unfused = word & TORCH_UNFUSED || (word & TORCH_OPEN && !op_scores(inst).causal);
    t.parted = word & TORCH_PARTED;
    t.both = word & TORCH_BOTH;
    t.strided = word & TORCH_STRIDED;
    t.bounded = word & TORCH_BOUNDED;
    t.masked = word & TORCH_MASKED;
    t.chunks = word & TORCH_CHUNKS && op_scores(inst).window;
    t.blocks = word & TORCH_BLOCKS && op_scores(inst).window;
    t.turned = word & TORCH_TURNED;
    t.split = word & TORCH_SPLIT;
    t.ordered = word & (TORCH_SPLIT | TORCH_ORDERED);
    t.scored = word & TORCH_SCORED;
    return t;
}
