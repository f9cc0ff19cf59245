/* pick - chooses a token from a row of logits in host memory */
#include "lib/run/pick.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"

/* Only so many of the likeliest are candidates of top_h, as in transformers. */
enum { TOP_H_MOST = 100 };

struct candidate {
    double weight; /* exp((logit - largest) / temperature) */
    double key;    /* by which they are sorted where it is not the logit */
    float logit;
    int32_t id;
};

struct picker {
    float *row;
    struct candidate *c;
    size_t cap_row, cap_c;
    size_t n;                    /* candidates that are left */
    double total;                /* sum of their weights */
    double largest, temperature; /* by which they weigh */
    bool sorted;                 /* the likeliest first */
    size_t fewest;               /* that are left */
};

struct picker *picker_new(void)
{
    return xcalloc(1, sizeof(struct picker));
}

void picker_free(struct picker *p)
{
    if (!p)
        return;
    free(p->row);
    free(p->c);
    free(p);
}

bool pick_needs_logits(const struct pick *how)
{
    return how->likely >= 0 || ((how->edited || how->draws > 1) && how->only < 0);
}

size_t pick_told(const struct pick *how)
{
    return (how->likely > 0 ? 1 + (size_t)how->likely : 1) +
           (how->draws > 1 ? (size_t)how->draws - 1 : 0);
}

/* How many of these are the likeliest. */
static size_t likeliest(const struct pick *how)
{
    return how->likely > 0 ? (size_t)how->likely : 0;
}

/* ---- logits ---- */

static float edit_logit(const struct edit *e, float x)
{
    x += e->bias;
    x = x > 0 ? x / e->scale : x * e->scale;
    x += e->after;
    return isfinite(x) ? x + fabsf(x) * e->decay : x;
}

/* Leaves -inf in place of what is not among ALLOWED[words]. */
static void keep_allowed(float *x, size_t vocab, const uint32_t *allowed, size_t words)
{
    for (size_t i = 0; i < vocab; i += 32) {
        const uint32_t bits = i / 32 < words ? allowed[i / 32] : 0;
        const size_t n = vocab - i < 32 ? vocab - i : 32;

        for (size_t k = 0; k < n && bits != UINT32_MAX; k++)
            x[i + k] = bits >> k & 1 ? x[i + k] : -INFINITY;
    }
}

static void edit_row(float *x, size_t vocab, const struct pick_edits *edits)
{
    const struct edit *v = edits->v;

    for (size_t i = 0; i < edits->n; i++)
        if (v[i].id >= 0 && (size_t)v[i].id < vocab)
            x[v[i].id] = edit_logit(&v[i], x[v[i].id]);
    if (edits->allowed)
        keep_allowed(x, vocab, edits->allowed, edits->words);
}

/* The likeliest of X[vocab], the first of equal ones; -1: they decide nothing. */
static int32_t largest_of(const float *x, size_t vocab)
{
    int32_t at = 0;

    for (size_t i = 0; i < vocab; i++) {
        if (isnan(x[i]))
            return -1;
        if (x[i] > x[at])
            at = (int32_t)i;
    }
    return vocab && isfinite(x[at]) ? at : -1;
}

/* log sum exp of X[n]; NaN where they decide nothing. */
static double log_sum(const float *x, size_t n)
{
    double largest = -INFINITY, sum = 0;

    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i]))
            return NAN;
        largest = (double)x[i] > largest ? (double)x[i] : largest;
    }
    if (!isfinite(largest))
        return NAN;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - largest);
    return largest + log(sum);
}

/* ---- candidates ---- */

static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1)
                                : (x->id > y->id) - (x->id < y->id);
}

static int by_key(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    return x->key != y->key ? (x->key > y->key ? 1 : -1) : by_logit(a, b);
}

static void sort(struct picker *p)
{
    if (!p->sorted)
        qsort(p->c, p->n, sizeof(*p->c), by_logit);
    p->sorted = true;
}

static void recount(struct picker *p)
{
    p->total = 0;
    for (size_t i = 0; i < p->n; i++)
        p->total += p->c[i].weight;
}

/* Keeps those that weigh at least LEAST; the likeliest weighs 1. */
static void keep_weight(struct picker *p, double least)
{
    size_t n = 0;

    least = least < 1 ? least : 1;
    if (p->fewest > 1)
        sort(p);
    for (size_t i = 0; i < p->n; i++)
        if (p->c[i].weight >= least || (p->fewest > 1 && i < p->fewest))
            p->c[n++] = p->c[i];
    p->n = n;
}

/* Keeps the likeliest, while the entropy of those so far is at most TOP_H of the
 * entropy of all (Potraghloo et al. 2025, "Top-H decoding"). */
static void keep_entropy(struct picker *p, double top_h)
{
    double entropy = 0, sum = 0;
    size_t n = 0;

    sort(p);
    p->n = p->n < TOP_H_MOST ? p->n : TOP_H_MOST;
    recount(p);
    while (p->n > 1 && !(p->c[p->n - 1].weight > 0)) /* nothing of the entropy */
        p->n--;
    for (size_t i = 0; i < p->n; i++)
        entropy -= p->c[i].weight / p->total * log(p->c[i].weight / p->total);
    for (; n < p->n; n++) {
        sum -= p->c[n].weight / p->total * log(p->c[n].weight / p->total);
        if (n && sum > top_h * entropy)
            break;
    }
    p->n = n;
}

/* Keeps the K likeliest, and those as likely as the last of them. */
static void keep_rank(struct picker *p, size_t k)
{
    size_t n = k = k > p->fewest ? k : p->fewest;

    if (k >= p->n)
        return;
    sort(p);
    while (n < p->n && p->c[n].logit == p->c[k - 1].logit)
        n++;
    p->n = n;
}

/* Keeps as few of the likeliest as have TOP_P of the weight (Holtzman et al. 2020). */
static void keep_mass(struct picker *p, double top_p)
{
    double sum = 0, total = p->total;
    size_t n = 0;

    /* all that weigh less add up to less than what may be left out */
    keep_weight(p, (1 - top_p) * total / (double)p->n / 2);
    sort(p);
    while (n < p->n && (sum < top_p * total || n < p->fewest))
        sum += p->c[n++].weight;
    p->n = n;
}

static double entropy_of(const struct picker *p)
{
    double entropy = 0;

    for (size_t i = 0; i < p->n; i++)
        if (p->c[i].weight > 0)
            entropy -= p->c[i].weight / p->total * log(p->c[i].weight / p->total);
    return entropy;
}

/* Keeps those whose surprise is nearest to the expected one, until they have MASS
 * (Meister et al. 2023, "Locally typical sampling"). */
static void keep_typical(struct picker *p, double mass)
{
    const double entropy = entropy_of(p);
    double sum = 0;
    size_t n = 0;

    for (size_t i = 0; i < p->n; i++)
        p->c[i].key = fabs(-log(p->c[i].weight / p->total) - entropy);
    qsort(p->c, p->n, sizeof(*p->c), by_key);
    p->sorted = false;
    while (n < p->n && (sum < mass * p->total || n < p->fewest))
        sum += p->c[n++].weight;
    while (n < p->n && p->c[n].key == p->c[n - 1].key)
        n++;
    p->n = n;
}

/* Hewitt et al. 2022, "Truncation sampling as language model desmoothing". */
static double eta_of(const struct picker *p, double epsilon)
{
    const double eta = sqrt(epsilon) * exp(-entropy_of(p));

    return eta < epsilon ? eta : epsilon;
}

/* The candidates of X[vocab] that HOW leaves.  Returns false if the logits decide
 * nothing. */
static bool find_candidates(struct picker *p, const float *x, size_t vocab,
                            const struct pick *how)
{
    const double t = how->draw.temperature > 0 ? how->draw.temperature : 1;
    float largest = -INFINITY;

    for (size_t i = 0; i < vocab; i++) {
        if (isnan(x[i]))
            return false;
        largest = x[i] > largest ? x[i] : largest;
    }
    if (!isfinite(largest))
        return false;
    p->c = xgrow(p->c, &p->cap_c, vocab, sizeof(*p->c));
    p->n = 0;
    p->fewest = how->fewest > 1 ? (size_t)how->fewest : 1;
    p->sorted = false;
    p->largest = (double)largest;
    p->temperature = t;
    for (size_t i = 0; i < vocab; i++)
        if (x[i] > -INFINITY)
            p->c[p->n++] =
                (struct candidate){ .weight = exp(((double)x[i] - p->largest) / t),
                                    .logit = x[i],
                                    .id = (int32_t)i };
    recount(p);
    if (how->draw.temperature <= 0)
        return true;
    if (how->top_h > 0)
        keep_entropy(p, how->top_h);
    if (how->draw.top_k)
        keep_rank(p, (size_t)how->draw.top_k);
    recount(p);
    if (how->draw.top_p < 1)
        keep_mass(p, how->draw.top_p);
    if (how->min_p > 0)
        keep_weight(p, how->min_p);
    recount(p);
    if (how->typical_p < 1)
        keep_typical(p, how->typical_p);
    recount(p);
    if (how->epsilon > 0)
        keep_weight(p, how->epsilon * p->total);
    recount(p);
    if (how->eta > 0)
        keep_weight(p, eta_of(p, how->eta) * p->total);
    recount(p);
    return true;
}

/* The likeliest of the candidates, or one that is drawn from them: in the order of
 * their ids where all logits are candidates, else the likeliest first, as a backend's
 * sampler does. */
static struct candidate choose(struct picker *p, const struct pick *how, uint64_t seed,
                               bool all)
{
    struct rng rng;
    double draw, sum = 0;
    size_t at = 0;

    if (how->draw.temperature <= 0) {
        for (size_t i = 1; i < p->n; i++)
            if (by_logit(&p->c[i], &p->c[at]) < 0)
                at = i;
        return p->c[at];
    }
    if (!all)
        sort(p);
    rng_init(&rng, seed, how->draw.position);
    draw = rng_uniform(&rng) * p->total;
    for (; at + 1 < p->n; at++) {
        sum += p->c[at].weight;
        if (draw < sum)
            break;
    }
    return p->c[at];
}

static bool takes_all(const struct pick *how)
{
    return how->top_h <= 0 && !how->draw.top_k && how->draw.top_p >= 1 &&
           how->min_p <= 0 && how->typical_p >= 1 && how->epsilon <= 0 && how->eta <= 0;
}

/* ---- what is told ---- */

/* Does A come after B, or has it no token? */
static bool is_after(const struct likely *a, const struct likely *b)
{
    return a->id < 0 || a->logprob < b->logprob ||
           (a->logprob == b->logprob && a->id > b->id);
}

/* Puts id I with VALUE among the OUT[n], the likeliest first, of equal ones the first
 * id. */
static void rank(struct likely *out, size_t n, size_t i, float value)
{
    const struct likely one = { (int32_t)i, value };
    size_t at = n;

    if (value == -INFINITY)
        return;
    while (at > 0 && is_after(&out[at - 1], &one)) {
        if (at < n)
            out[at] = out[at - 1];
        at--;
    }
    if (at < n)
        out[at] = one;
}

/* OUT[n] becomes the likeliest of X[vocab]; their log-probabilities are X - LESS. */
static void tell_row(const float *x, size_t vocab, double less, struct likely *out,
                     size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i].id = -1;
    for (size_t i = 0; i < vocab && n; i++)
        rank(out, n, i, x[i]);
    for (size_t i = 0; i < n && out[i].id >= 0; i++)
        out[i].logprob = (float)((double)out[i].logprob - less);
}

static float logprob_of(const struct picker *p, float logit)
{
    return (float)(((double)logit - p->largest) / p->temperature - log(p->total));
}

/* The same of the candidates; what is no candidate has no place. */
static void tell_candidates(const struct picker *p, struct likely *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i].id = -1;
    for (size_t i = 0; i < p->n && n; i++)
        rank(out, n, (size_t)p->c[i].id, p->c[i].logit);
    for (size_t i = 0; i < n && out[i].id >= 0; i++)
        out[i].logprob = logprob_of(p, out[i].logprob);
}

static void tell_only(int32_t id, struct likely *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (struct likely){ i ? -1 : id, 0 };
}

void pick_tell(const float *logits, size_t vocab, int32_t id, size_t likely,
               struct likely *out)
{
    const double raw = log_sum(logits, vocab);

    out[0] = (struct likely){ id, -INFINITY };
    tell_row(logits, vocab, raw, out + 1, likely);
    if (isnan(raw))
        out[0].id = -1;
    else if (id >= 0 && (size_t)id < vocab)
        out[0].logprob = (float)((double)logits[id] - raw);
}

/* ---- scores ---- */

double pick_noise(const struct draw *d, int32_t id)
{
    struct rng r;
    double u;

    rng_init(&r, d->seed, d->position);
    r.counter = (uint64_t)id;
    u = rng_uniform(&r);
    return -log(-log(u > 0 ? u : 0x1p-54));
}

/* X[vocab] += BY. */
static void shift(float *x, size_t vocab, double by)
{
    for (size_t i = 0; i < vocab; i++)
        x[i] = (float)((double)x[i] + by);
}

/* Leaves -inf in place of what is no candidate of HOW. */
static void keep_candidates(struct picker *p, float *x, size_t vocab,
                            const struct pick *how)
{
    const bool any = find_candidates(p, x, vocab, how);

    for (size_t i = 0; i < vocab; i++)
        x[i] = -INFINITY;
    for (size_t i = 0; i < p->n && any; i++)
        x[p->c[i].id] = (float)((double)p->c[i].logit / how->draw.temperature);
}

/* OUT[n] becomes the tokens with the best of the scores X[vocab] of HOW. */
static void tell_drawn(const float *x, size_t vocab, const struct pick *how,
                       struct likely *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i].id = -1;
    for (size_t i = 0; i < vocab && n; i++)
        if (x[i] > -INFINITY)
            rank(out, n, i, (float)((double)x[i] + pick_noise(&how->draw, (int32_t)i)));
    for (size_t i = 0; i < n && out[i].id >= 0; i++)
        out[i].logprob = x[out[i].id];
}

/* The scores of the logits in p->row become what HOW makes of them; false: a logit is
 * NaN or +inf, or all are -inf. */
static bool score_row(struct picker *p, size_t vocab, const struct pick *how,
                      const struct pick_edits *edits)
{
    double sum = log_sum(p->row, vocab);

    if (isnan(sum))
        return false;
    shift(p->row, vocab, -sum);
    edit_row(p->row, vocab, edits);
    if (how->draw.temperature > 0)
        keep_candidates(p, p->row, vocab, how);
    if (how->normal) {
        sum = log_sum(p->row, vocab);
        shift(p->row, vocab, isnan(sum) ? 0 : -sum);
    }
    return true;
}

static void tell_scores(struct picker *p, size_t vocab, const struct pick *how,
                        const struct pick_edits *edits, struct likely *out)
{
    const size_t told = likeliest(how);

    if (!score_row(p, vocab, how, edits))
        out[0].id = -1;
    else if (how->only >= 0)
        tell_only(how->only, out + 1, told);
    else if (how->draw.temperature > 0)
        tell_drawn(p->row, vocab, how, out + 1, told);
    else
        tell_row(p->row, vocab, 0, out + 1, told);
}

/* *OUT = the I-th token that HOW chooses of the candidates; NEXT as of pick_token. RAW:
 * log sum exp of LOGITS. */
static void pick_one(struct picker *p, const float *logits, double raw,
                     const struct pick *how, uint64_t i, int32_t next,
                     struct likely *out)
{
    const bool here = how->edited || how->draws > 1;

    out->id = how->only >= 0 ? how->only
              : here         ? choose(p, how, how->draw.seed + i, takes_all(how)).id
                             : next;
    if (how->likely >= 0 && how->of == PICK_RAW)
        out->logprob = (float)((double)logits[out->id] - raw);
    else
        out->logprob = how->only >= 0 ? 0 : logprob_of(p, p->row[out->id]);
}

void pick_token(struct picker *p, const float *logits, size_t vocab,
                const struct pick *how, const struct pick_edits *edits, int32_t next,
                struct likely *out)
{
    const size_t told = likeliest(how);
    double raw = 0;

    out[0] = (struct likely){ next, 0 };
    if (!pick_needs_logits(how)) {
        out[0].id = how->only >= 0 && next >= 0 ? how->only : next;
        for (int32_t i = 1; i < how->draws; i++)
            out[i] = out[0];
        return;
    }
    p->row = xgrow(p->row, &p->cap_row, vocab, sizeof(*p->row));
    memcpy(p->row, logits, vocab * sizeof(*p->row));
    if (how->of == PICK_SCORES) {
        tell_scores(p, vocab, how, edits, out);
        return;
    }
    if (how->likely >= 0 && how->of == PICK_RAW) {
        raw = log_sum(p->row, vocab);
        tell_row(p->row, vocab, raw, out + 1, told);
    }
    edit_row(p->row, vocab, edits);
    if (how->draw.temperature <= 0 && how->likely < 0) { /* no draw, and nothing told */
        out[0].id = next < 0 ? PICK_NOT_FINITE : largest_of(p->row, vocab);
        if (next >= 0 && out[0].id < 0)
            out[0].id = PICK_NOTHING;
        for (int32_t i = 1; i < how->draws; i++)
            out[i] = out[0];
        return;
    }
    if (!find_candidates(p, p->row, vocab, how) || next < 0) {
        out[0].id = next < 0 ? PICK_NOT_FINITE : PICK_NOTHING;
        return;
    }
    if (how->of == PICK_PROCESSED && how->only >= 0)
        tell_only(how->only, out + 1, told);
    else if (how->of == PICK_PROCESSED)
        tell_candidates(p, out + 1, told);
    pick_one(p, logits, raw, how, 0, next, out);
    for (uint64_t i = 1; i < (uint64_t)how->draws; i++)
        pick_one(p, logits, raw, how, i, next, out + told + i);
}
