/* losses - what a training run minimizes: the table of losses */
#include "lib/train/losses.h"

#include <math.h>
#include <stddef.h>

/* log(sigmoid(x)), for any x. */
static double log_sigmoid(double x)
{
    return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

/* Rafailov et al. 2023, equation 7, with the smoothing of cDPO (Mitchell 2023). */
static double dpo(const struct loss_numbers *o, const double nll[2],
                  const double reference[2], double by[2])
{
    const double z = o->beta * ((reference[0] - nll[0]) - (reference[1] - nll[1]));
    const double smoothing = o->smoothing;

    by[0] = o->beta *
            ((1 - smoothing) * exp(log_sigmoid(-z)) - smoothing * exp(log_sigmoid(z)));
    by[1] = -by[0];
    return -(1 - smoothing) * log_sigmoid(z) - smoothing * log_sigmoid(-z);
}

const struct loss_info loss_table[LOSS_KINDS] = {
    [LOSS_NEXT] = { .name = "next",
                    .labels = LABELS_NEXT,
                    .counted = "token",
                    .heads = { "lm" } },
    [LOSS_TARGET] = { .name = "target",
                      .labels = LABELS_TARGET,
                      .counted = "token",
                      .heads = { "lm" } },
    [LOSS_MASKED] = { .name = "masked",
                      .labels = LABELS_MASKED,
                      .counted = "token",
                      .heads = { "lm" } },
    [LOSS_CLASS] = { .name = "class",
                     .labels = LABELS_TEXT,
                     .counted = "text",
                     .heads = { "classify", "scored" } },
    [LOSS_TAGS] = { .name = "tags",
                    .labels = LABELS_TOKENS,
                    .counted = "token",
                    .heads = { "tag", "tagged" } },
    [LOSS_DPO] = { .name = "dpo",
                   .labels = LABELS_PAIR,
                   .counted = "pair",
                   .pair = dpo,
                   .heads = { "lm" } },
};

const char *const loss_choices[] = { "auto",  "next", "target", "masked",
                                     "class", "tags", "dpo",    NULL };

/* Families with one head alone do not say that they have it. */
static bool holds(const struct model *m, const char *symbol, bool unless)
{
    double x;

    return model_number(m, symbol, &x) ? x != 0 : unless;
}

bool losses_source(const struct model *m, int32_t *start)
{
    double x = 0;
    bool is = model_number(m, "start", &x);

    *start = (int32_t)x;
    return is;
}

bool losses_fit(enum loss_kind kind, const struct model *m, bool causal)
{
    const char *const *head = loss_table[kind].heads;
    bool found = false;
    int32_t start;

    if (losses_source(m, &start) != (kind == LOSS_TARGET) && kind != LOSS_CLASS)
        return false;
    if (kind == LOSS_TARGET)
        return holds(m, "lm", true);
    if (loss_table[kind].labels == LABELS_PAIR)
        return holds(m, "lm", true) && causal;
    if (kind == LOSS_NEXT || kind == LOSS_MASKED)
        return holds(m, "lm", true) && (causal || kind == LOSS_MASKED);
    if (holds(m, "answers", false) || holds(m, "choices", false))
        return false;
    for (size_t i = 0; head[i]; i++)
        found |= holds(m, head[i], false);
    return found;
}

int losses_find(enum loss_kind *kind, const struct model *m, bool causal,
                struct err *err)
{
    for (int k = 0; k < LOSS_KINDS; k++)
        if (losses_fit((enum loss_kind)k, m, causal)) {
            *kind = (enum loss_kind)k;
            return 0;
        }
    return err_set(err, ERR_INPUT,
                   "%s: this model has no head that can be trained: neither of a "
                   "language model nor for classes of texts or tokens",
                   model_config_name(m));
}
