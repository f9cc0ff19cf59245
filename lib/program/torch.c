/* torch - how PyTorch runs a family's operations, where it differs from the operation
 * table */
#include "lib/program/torch.h"

#include <string.h>

#include "lib/model/expr.h"
#include "lib/model/family.h"
#include "lib/program/program.h"

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

struct op_torch torch_of(const struct torch_words *w, const struct inst *inst)
{
    struct op_torch t = op_table[inst->op].torch(inst);
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
    t.unfused = word & TORCH_UNFUSED ||
                (word & TORCH_OPEN && !op_table[inst->op].scores(inst).causal);
    t.parted = word & TORCH_PARTED;
    t.both = word & TORCH_BOTH;
    t.strided = word & TORCH_STRIDED;
    t.bounded = word & TORCH_BOUNDED;
    t.masked = word & TORCH_MASKED;
    t.chunks = word & TORCH_CHUNKS && op_table[inst->op].scores(inst).window;
    t.blocks = word & TORCH_BLOCKS && op_table[inst->op].scores(inst).window;
    t.turned = word & TORCH_TURNED;
    t.split = word & TORCH_SPLIT;
    t.ordered = word & (TORCH_SPLIT | TORCH_ORDERED);
    t.scored = word & TORCH_SCORED;
    return t;
}
