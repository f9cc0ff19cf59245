/* losses - what a training run minimizes: the table of losses */
#include "lib/train/losses.h"

#include <math.h>
#include <stddef.h>

/* log(sigmoid(x)), for any x. */
static double log_sigmoid(double x)
{
    return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

/* Sums the likelihoods of both documents, of N targets. */
static void sum_documents(const struct loss_tokens *s, double nll[2], size_t n[2])
{
    nll[0] = nll[1] = 0;
    n[0] = n[1] = 0;
    for (size_t k = 0; k < s->n; k++)
        if (s->target[k] >= 0) {
            nll[k >= s->second] += (double)s->nll[k];
            n[k >= s->second]++;
        }
}

/* The derivative by each likelihood of a document is that by their sum. */
static void spread(const struct loss_tokens *s, const double each[2], float *by)
{
    for (size_t k = 0; k < s->n; k++)
        by[k] = s->target[k] < 0 ? 0 : (float)each[k >= s->second];
}

/* Rafailov et al. 2023, equation 7, with the smoothing of cDPO (Mitchell 2023). */
static double dpo(const struct loss_numbers *o, const struct loss_tokens *s, float *by)
{
    const double smoothing = o->smoothing;
    double nll[2], z, each[2];
    size_t n[2];

    sum_documents(s, nll, n);
    z = o->beta * ((s->reference[0] - nll[0]) - (s->reference[1] - nll[1]));
    each[0] = o->beta * ((1 - smoothing) * exp(log_sigmoid(-z)) -
                         smoothing * exp(log_sigmoid(z)));
    each[1] = -each[0];
    spread(s, each, by);
    return -(1 - smoothing) * log_sigmoid(z) - smoothing * log_sigmoid(-z);
}

/* Hong et al. 2024, equations 4 to 7: the mean likelihood of the chosen answer's
 * tokens, and beta times -log sigmoid of the log of the ratio of both answers' odds,
 * p / (1 - p), where log p is the mean log-likelihood of their tokens.  An answer that
 * is certain, of which f32 knows no more, has the odds of the next smaller p. */
static double orpo(const struct loss_numbers *o, const struct loss_tokens *s, float *by)
{
    const double least = 0x1p-24;
    double nll[2], each[2], odds[2], z, slope;
    size_t n[2];

    sum_documents(s, nll, n);
    for (int k = 0; k < 2; k++) {
        nll[k] = fmax(nll[k] / (double)n[k], least);
        odds[k] = -nll[k] - log(-expm1(-nll[k]));
    }
    z = odds[0] - odds[1];
    slope = o->beta * exp(log_sigmoid(-z));
    each[0] = (1 + slope / -expm1(-nll[0])) / (double)n[0];
    each[1] = -slope / -expm1(-nll[1]) / (double)n[1];
    spread(s, each, by);
    return nll[0] - o->beta * log_sigmoid(z);
}

/* Ethayarajh et al. 2024, equation 8: weight times 1 - sigmoid(beta (r - kl)) of a good
 * answer, 1 - sigmoid(beta (kl - r)) of a bad one, where r is the log of the ratio of
 * its likelihoods by the model and by the reference. */
static double kto(const struct loss_numbers *o, const struct loss_tokens *s, float *by)
{
    const bool good = s->value[0] > 0;
    const double weight = good ? o->good : o->bad, sign = good ? 1 : -1;
    double nll[2], z, each[2];
    size_t n[2];

    sum_documents(s, nll, n);
    z = sign * o->beta * (s->reference[0] - nll[0] - s->kl);
    each[0] = weight * sign * o->beta * exp(log_sigmoid(z) + log_sigmoid(-z));
    each[1] = 0;
    spread(s, each, by);
    return weight * exp(log_sigmoid(-z));
}

/* Sum over the tokens of -min(r A, clip(r) A) + beta (q - log q - 1), where r is the
 * ratio of the likelihoods by the model and when they were drawn, A the advantage
 * (Schulman et al. 2017, equation 7), and q that of the reference's likelihood and the
 * model's (Shao et al. 2024, equation 4).  Not known when it was drawn: it is the
 * model's own, and r is 1. */
static double policy(const struct loss_numbers *o, const struct loss_tokens *s,
                     float *by)
{
    const double *v = s->value;
    double loss = 0, n = 1;

    if (o->by_text) {
        n = 0;
        for (size_t k = 0; k < s->n; k++)
            n += s->target[k] >= 0;
    }
    for (size_t k = 0; k < s->n; k++) {
        const double p = -(double)s->nll[k], a = v[0];
        double ratio, held, slope = 0;

        if (s->target[k] < 0)
            continue;
        ratio = isnan(v[1]) ? 1 : exp(p - v[1]);
        held = fmin(fmax(ratio, 1 - o->clip_low), 1 + o->clip_high);
        loss -= fmin(ratio * a, held * a) / n;
        if (!(held * a < ratio * a)) /* else the loss is a constant */
            slope = ratio * a;
        if (o->beta > 0 && !isnan(v[2])) {
            loss += o->beta * (expm1(v[2] - p) - (v[2] - p)) / n;
            slope += o->beta * expm1(v[2] - p);
        }
        by[k] = (float)(slope / n); /* by the negative of p */
        v += 3;
    }
    return loss;
}

/* Mean of squares, as MSELoss over the numbers of a text. */
static double of_values(const struct loss_rows *r, double by, float *d)
{
    const double n = (double)r->cols;
    double sum = 0;

    for (size_t k = 0; k < r->cols; k++) {
        const double off = (double)r->logits[k] - r->value[k];

        sum += off * off / n;
        d[k] = (float)(by * 2 * off / n);
    }
    return sum;
}

/* Mean over the classes, as BCEWithLogitsLoss. */
static double of_labels(const struct loss_rows *r, double by, float *d)
{
    const double n = (double)r->cols;
    double sum = 0;

    for (size_t k = 0; k < r->cols; k++) {
        const double x = (double)r->logits[k], y = r->value[k];

        sum -= (y * log_sigmoid(x) + (1 - y) * log_sigmoid(-x)) / n;
        d[k] = (float)(by * (exp(log_sigmoid(x)) - y) / n);
    }
    return sum;
}

/* Adds the cross-entropy of column K over the rows, whose label is row AT. */
static double of_place(const struct loss_rows *r, size_t k, size_t at, double by,
                       float *d)
{
    double most = -INFINITY, sum = 0;

    for (size_t i = 0; i < r->rows; i++)
        most = fmax(most, (double)r->logits[i * r->cols + k]);
    for (size_t i = 0; i < r->rows; i++)
        sum += exp((double)r->logits[i * r->cols + k] - most);
    for (size_t i = 0; i < r->rows; i++)
        d[i * r->cols + k] =
            (float)(by *
                    (exp((double)r->logits[i * r->cols + k] - most) / sum - (i == at)));
    return most + log(sum) - (double)r->logits[at * r->cols + k];
}

/* Mean of those of its begin and its end; a place outside the text counts as 0. */
static double of_span(const struct loss_rows *r, double by, float *d)
{
    double sum = 0;

    for (size_t k = 0; k < 2; k++)
        if (r->value[k] >= 0 && r->value[k] < (double)r->rows)
            sum += of_place(r, k, (size_t)r->value[k], by / 2, d) / 2;
    return sum;
}

/* Of two scores, the first of which should be higher. */
static double of_reward(const struct loss_rows *r, double by, float *d)
{
    const double z = (double)r->logits[0] - (double)r->logits[r->cols];

    d[0] = (float)(-by * exp(log_sigmoid(-z)));
    d[r->cols] = -d[0];
    return -log_sigmoid(z);
}

/* Of several scores, one of which should be the highest. */
static double of_choice(const struct loss_rows *r, double by, float *d)
{
    const struct loss_rows one = { .logits = r->logits,
                                   .rows = r->rows,
                                   .cols = r->cols };

    return of_place(&one, 0, (size_t)r->value[0], by, d);
}

/* Of a row of N logits X with temperature T: *MOST and the sum of exp((x - most) / T),
 * whose terms are E[N] unless that is NULL. */
static double exp_sum(const float *x, size_t n, double t, double *most, float *e)
{
    double sum = 0;

    *most = -INFINITY;
    for (size_t i = 0; i < n; i++)
        *most = fmax(*most, (double)x[i]);
    for (size_t i = 0; i < n; i++) {
        const double one = exp(((double)x[i] - *most) / t);

        sum += one;
        if (e)
            e[i] = (float)one;
    }
    return sum;
}

/* The loss of a row of N logits X by what a teacher tells of K tokens, at V their ids
 * and log-probabilities: the square of the temperature times sum p (log p - log q) over
 * these tokens and all others together (Hinton et al. 2015); D becomes its derivative,
 * times BY. */
static double of_teacher(const struct loss_numbers *o, const float *x, size_t n,
                         const double *v, size_t k, double by, float *d)
{
    /* what is less is the rounding of sums of numbers in f32 */
    const double t = o->temperature, nothing = 1e-7, least = 1e-12;
    double most, sum = exp_sum(x, n, t, &most, d), loss = 0, p = 1, q = 1, all, in;

    for (size_t i = 0; i < k; i++) {
        const double log_p = v[2 * i + 1];
        const double log_q = ((double)x[(size_t)v[2 * i]] - most) / t - log(sum);

        if (log_p > -INFINITY)
            loss += exp(log_p) * (log_p - log_q);
        p -= exp(log_p);
        q -= exp(log_q);
    }
    all = 1 - p;
    p = k < n && p > nothing ? p : 0;
    q = fmax(q, least);
    if (p > 0)
        loss += p * (log(p) - log(q));
    in = p > 0 ? p / q : 0;
    for (size_t j = 0; j < n; j++)
        d[j] *= (float)(by * t * (all - in * (1 - q)) / sum);
    for (size_t i = 0; i < k; i++) {
        const size_t j = (size_t)v[2 * i];
        const double q_j = exp(((double)x[j] - most) / t) / sum;

        d[j] += (float)(by * t * (in * q_j - exp(v[2 * i + 1])));
    }
    return t * t * loss;
}

/* Adds that of the targets' own likelihoods to D, SHARE of both. */
static double of_target(const float *x, size_t n, size_t target, double share,
                        double by, float *d)
{
    double most, sum = exp_sum(x, n, 1, &most, NULL);

    for (size_t j = 0; j < n; j++)
        d[j] = (float)((1 - share) * (double)d[j] +
                       share * by * (exp((double)x[j] - most) / sum - (j == target)));
    return most + log(sum) - (double)x[target];
}

/* Sum over the tokens. */
static double of_distil(const struct loss_rows *r, double by, float *d)
{
    const size_t k = (size_t)r->value[0];
    const double *v = r->value + 1, share = r->o->hard;
    double sum = 0;

    for (size_t i = 0; i < r->rows; i++) {
        const float *x = r->logits + i * r->cols;
        float *to = d + i * r->cols;

        if (r->target[i] < 0)
            continue;
        sum += (1 - share) * of_teacher(r->o, x, r->cols, v, k, by, to);
        if (share > 0)
            sum += share * of_target(x, r->cols, (size_t)r->target[i], share, by, to);
        v += 2 * k;
    }
    return sum;
}

const struct loss_info loss_table[LOSS_KINDS] = {
    [LOSS_NEXT] = { .name = "next",
                    .labels = LABELS_NEXT,
                    .counted = "token",
                    .task = "CAUSAL_LM",
                    .heads = { "lm" } },
    [LOSS_TARGET] = { .name = "target",
                      .labels = LABELS_TARGET,
                      .counted = "token",
                      .task = "SEQ_2_SEQ_LM",
                      .heads = { "lm" } },
    [LOSS_MASKED] = { .name = "masked",
                      .labels = LABELS_MASKED,
                      .counted = "token",
                      .heads = { "lm" } },
    [LOSS_CLASS] = { .name = "class",
                     .labels = LABELS_TEXT,
                     .counted = "text",
                     .task = "SEQ_CLS",
                     .heads = { "classify", "scored" } },
    [LOSS_TAGS] = { .name = "tags",
                    .labels = LABELS_TOKENS,
                    .counted = "token",
                    .task = "TOKEN_CLS",
                    .heads = { "tag", "tagged" } },
    [LOSS_DPO] = { .name = "dpo",
                   .labels = LABELS_PAIR,
                   .counted = "pair",
                   .documents = 2,
                   .beta = 0.1,
                   .tokens = dpo,
                   .task = "CAUSAL_LM",
                   .heads = { "lm" } },
    [LOSS_VALUES] = { .name = "regression",
                      .labels = LABELS_VALUE,
                      .counted = "text",
                      .rows = of_values,
                      .task = "SEQ_CLS",
                      .heads = { "classify", "scored" } },
    [LOSS_LABELS] = { .name = "multi-label",
                      .labels = LABELS_VALUES,
                      .counted = "text",
                      .rows = of_labels,
                      .task = "SEQ_CLS",
                      .heads = { "classify", "scored" } },
    [LOSS_SPAN] = { .name = "span",
                    .labels = LABELS_SPAN,
                    .counted = "text",
                    .each = true,
                    .rows = of_span,
                    .task = "QUESTION_ANS",
                    .heads = { "answers" } },
    [LOSS_REWARD] = { .name = "reward",
                      .labels = LABELS_TEXTS,
                      .counted = "pair",
                      .documents = 2,
                      .rows = of_reward,
                      .task = "SEQ_CLS",
                      .heads = { "classify", "scored" } },
    [LOSS_ORPO] = { .name = "orpo",
                    .labels = LABELS_TEXTS,
                    .counted = "pair",
                    .documents = 2,
                    .beta = 0.1,
                    .tokens = orpo,
                    .task = "CAUSAL_LM",
                    .heads = { "lm" } },
    [LOSS_CHOICE] = { .name = "choice",
                      .labels = LABELS_CHOICES,
                      .counted = "text",
                      .rows = of_choice,
                      .heads = { "choices" } },
    [LOSS_KTO] = { .name = "kto",
                   .labels = LABELS_JUDGED,
                   .counted = "answer",
                   .documents = 2,
                   .beta = 0.1,
                   .distance = true,
                   .tokens = kto,
                   .task = "CAUSAL_LM",
                   .heads = { "lm" } },
    [LOSS_POLICY] = { .name = "policy",
                      .labels = LABELS_DRAWN,
                      .counted = "token",
                      .by_token = true,
                      .tokens = policy,
                      .task = "CAUSAL_LM",
                      .heads = { "lm" } },
    [LOSS_DISTIL] = { .name = "distill",
                      .labels = LABELS_TAUGHT,
                      .counted = "token",
                      .by_token = true,
                      .each = true,
                      .rows = of_distil,
                      .task = "CAUSAL_LM",
                      .heads = { "lm" } },
};

const char *const loss_choices[] = { "auto",        "next", "target", "masked",
                                     "class",       "tags", "dpo",    "regression",
                                     "multi-label", "span", "reward", "orpo",
                                     "choice",      "kto",  "policy", "distill",
                                     NULL };

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

    if (losses_source(m, &start) != (kind == LOSS_TARGET) && kind != LOSS_CLASS &&
        kind != LOSS_VALUES && kind != LOSS_LABELS)
        return false;
    if (kind == LOSS_SPAN)
        return holds(m, "answers", false);
    if (kind == LOSS_CHOICE)
        return holds(m, "choices", false);
    if (kind == LOSS_TARGET)
        return holds(m, "lm", true);
    if (loss_table[kind].tokens || kind == LOSS_DISTIL)
        return holds(m, "lm", true) && causal;
    if (kind == LOSS_NEXT || kind == LOSS_MASKED)
        return holds(m, "lm", true) && (causal || kind == LOSS_MASKED);
    if (holds(m, "answers", false) || holds(m, "choices", false))
        return false;
    for (size_t i = 0; head[i]; i++)
        found |= holds(m, head[i], false);
    return found;
}

enum lossroom losses_room(enum loss_kind kind)
{
    const struct loss_info *loss = &loss_table[kind];

    return loss->tokens  ? LOSSROOM_TOKEN
           : !loss->rows ? LOSSROOM_NONE
           : loss->each  ? LOSSROOM_ROWS
                         : LOSSROOM_TEXT;
}

enum loss_kind losses_usual(const struct model *m)
{
    double labels = 0;

    (void)model_number(m, "labels", &labels);
    return holds(m, "answers", false)   ? LOSS_SPAN
           : holds(m, "choices", false) ? LOSS_CHOICE
           : labels > 0 && labels < 2 &&
                   (holds(m, "classify", false) || holds(m, "scored", false))
               ? LOSS_VALUES
               : LOSS_NEXT;
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
