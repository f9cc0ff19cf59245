/* trainloss - which loss a run has, and the labels that it needs */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/train.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

/* Sets *causal: can S's model generate? */
static int find_causal(bool *causal, const struct session *s, struct err *err)
{
    const struct program_options options = { .tail = TAIL_NONE };
    const int coord[MESH_NAXES] = { 0 };
    struct program *p;

    if (program_build(&p, s->checkpoint->model, &s->mesh, coord, &options, err) < 0)
        return -1;
    *causal = p->causal;
    program_free(p);
    return 0;
}

static bool takes_classes(enum loss_kind kind)
{
    return loss_table[kind].labels == LABELS_TEXT ||
           loss_table[kind].labels == LABELS_TOKENS;
}

int train_loss_find(struct train *t, struct err *err)
{
    const struct model *m = t->session->checkpoint->model;
    const char *problem;
    double classes = 0;
    bool causal;

    if (find_causal(&causal, t->session, err) < 0)
        return -1;
    if (!t->o.loss) {
        if (losses_find(&t->loss, m, causal, err) < 0)
            return -1;
    } else {
        t->loss = (enum loss_kind)(t->o.loss - 1);
        if (!losses_fit(t->loss, m, causal))
            return err_set(err, ERR_USAGE, "--loss %s: %s has no head for it",
                           loss_choices[t->o.loss], model_config_name(m));
    }
    problem = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(model_config(m), "problem_type"));
    (void)!model_number(m, "labels", &classes);
    if (t->loss == LOSS_CLASS && !t->o.loss) /* as transformers */
        t->loss =
            problem && !strcmp(problem, "multi_label_classification") ? LOSS_LABELS
            : (problem && !strcmp(problem, "regression")) || (!problem && classes < 2)
                ? LOSS_VALUES
                : LOSS_CLASS;
    if (takes_classes(t->loss) && classes < 2)
        return err_set(err, ERR_INPUT,
                       "%s: one label (num_labels): the loss of a single class is 0, "
                       "and nothing is learned; --loss regression learns a number",
                       model_config_name(m));
    if (t->loss == LOSS_SPAN && (classes < 2 || classes > 2))
        return err_set(
            err, ERR_INPUT,
            "%s: %.0f labels (num_labels): a span has two, its begin and its "
            "end",
            model_config_name(m), classes);
    if (t->loss == LOSS_REWARD && classes > 1)
        return err_set(err, ERR_INPUT,
                       "%s: %.0f labels (num_labels): a reward is a single score",
                       model_config_name(m), classes);
    return 0;
}

struct loss_numbers train_loss_numbers(const struct train *t)
{
    struct loss_numbers n = t->o.numbers;

    if (n.beta < 0)
        n.beta = loss_table[t->loss].beta;
    if (n.clip_high < 0)
        n.clip_high = n.clip_low;
    return n;
}

/* ---- labels ---- */

/* The names of the classes, by config.json's id2label. */
static void find_classes(struct data_options *o, const struct model *m)
{
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(model_config(m), "id2label");
    double classes = 0;
    const char **name;

    (void)!model_number(m, "labels", &classes);
    o->classes = (size_t)classes;
    name = xcalloc(o->classes + 1, sizeof(*name));
    for (size_t i = 0; i < o->classes; i++) {
        char *key = str_dupf("%zu", i);

        name[i] = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(names, key));
        name[i] = name[i] ? name[i] : "";
        free(key);
    }
    o->class_name = name;
}

static bool is_text(const struct tokenizer_added *t, const char *text)
{
    return t->len == strlen(text) && !memcmp(t->text, text, t->len);
}

/* The mask token, and what is never masked. */
static int find_mask(struct data_options *o, const struct train *t, struct err *err)
{
    const struct tokenizer *tokenizer = t->session->tokenizer;
    struct tokenizer_added token;

    o->mask = (struct masking){ .probability = t->o.mask_probability,
                                .mask = t->o.mask_id,
                                .vocab = o->vocab,
                                .seed = t->o.seed };
    o->mask.special = xcalloc((size_t)o->vocab + 1, sizeof(*o->mask.special));
    for (size_t i = 0; tokenizer && tokenizer_added(tokenizer, i, &token); i++) {
        const bool mask = is_text(&token, "[MASK]") || is_text(&token, "<mask>");

        if (mask && t->o.mask_id < 0)
            o->mask.mask = (int32_t)token.id;
        if (token.special && token.id < o->vocab)
            o->mask.special[token.id] = true;
    }
    if (o->mask.mask < 0)
        return err_set(err, ERR_USAGE,
                       "the tokenizer has neither [MASK] nor <mask>: give --mask-id");
    if ((uint64_t)o->mask.mask >= o->vocab)
        return err_set(err, ERR_USAGE, "--mask-id %d: the vocabulary has %llu tokens",
                       o->mask.mask, (unsigned long long)o->vocab);
    return 0;
}

/* How a decoder reads what it is to make, and what its encoder reads. */
static void find_source(struct data_options *o, const struct train *t)
{
    const struct model *m = t->session->checkpoint->model;
    const char *how = t->loss == LOSS_TARGET ? "target_shift" : "shifted";
    double x;

    o->shift.is = losses_source(m, &o->shift.start);
    o->shift.wraps = model_number(m, how, &x) && x > 1;
    o->source_vocab = model_number(m, "source_vocab", &x) ? (uint64_t)x : o->vocab;
    o->source_most = model_number(m, "source_context", &x) ? (size_t)x : 0;
}

size_t train_documents_most(const struct train *t)
{
    const size_t a = data_documents_most(t->data);
    const size_t b = t->eval ? data_documents_most(t->eval) : 0;

    return a > b ? a : b;
}

size_t train_source_most(const struct train *t)
{
    const size_t a = data_source_most(t->data);
    const size_t b = t->eval ? data_source_most(t->eval) : 0;

    return a > b ? a : b;
}

void train_loss_classes(struct data_options *o, const struct train *t)
{
    if (takes_classes(t->loss) || t->loss == LOSS_VALUES || t->loss == LOSS_LABELS)
        find_classes(o, t->session->checkpoint->model);
}

int train_loss_labels(struct data_options *o, const struct train *t, struct err *err)
{
    double types;

    o->labels = loss_table[t->loss].labels;
    find_source(o, t);
    o->unscaled = t->o.unscaled;
    o->references = train_loss_numbers(t).beta > 0;
    if (model_number(t->session->checkpoint->model, "types", &types))
        o->types = (uint32_t)types;
    if (o->labels == LABELS_MASKED && !(t->o.mask_probability > 0)) {
        o->labels = LABELS_TOKENS; /* the files say which tokens are masked */
        o->classes = (size_t)o->vocab;
        return 0;
    }
    train_loss_classes(o, t);
    return o->labels == LABELS_MASKED ? find_mask(o, t, err) : 0;
}

void train_loss_clear(struct data_options *o)
{
    free((void *)o->class_name);
    free(o->mask.special);
}
