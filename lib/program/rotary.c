/* rotary - inverse frequencies of rotary position embeddings, and their scalings
 *
 * RoPE: Su et al. 2021, arXiv:2104.09864.  Linear: Chen et al. 2023, arXiv:2306.15595.
 * Dynamic NTK and YaRN: Peng et al. 2023, arXiv:2309.00071.  LongRoPE: Ding et al.
 * 2024, arXiv:2402.13753.  llama3: the scaling published with Llama 3.1.  Proportional:
 * transformers 5, modeling_rope_utils.py. */
#include "lib/program/rotary.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/expr.h"

static const double PI = 3.14159265358979323846;

static const char *const fields[] = { "style",  "dim",        "theta",    "type",
                                      "factor", "original",   "context",  "low",
                                      "high",   "fast",       "slow",     "attention",
                                      "mscale", "mscale_all", "truncate", "short",
                                      "long",   "head",       "part",     NULL };

/* The rotary table of a family, while it is evaluated. */
struct table {
    const struct model *m;
    const struct family_entry *e;
    struct err *err;
};

static int get(struct table *t, const char *field, struct expr_value *out)
{
    const struct json *j = json_get(t->e->json, field);
    struct err e = { 0 };

    *out = (struct expr_value){ .kind = EXPR_NULL };
    if (!j)
        return 0;
    if (!json_string(j))
        return family_error(t->e->doc, j, 0, t->err, "expected an expression");
    if (model_eval(t->m, j->text, j->n, -1, out, &e) < 0)
        return family_place(t->e->doc, j, 0, &e, t->err);
    return 0;
}

static int get_number(struct table *t, const char *field, double otherwise, double *out)
{
    struct expr_value v;

    if (get(t, field, &v) < 0)
        return -1;
    *out = v.kind == EXPR_NUMBER || v.kind == EXPR_BOOL ? v.number : otherwise;
    if (isnan(*out))
        return err_set(t->err, ERR_INPUT, "%s: the rotary scaling lacks '%s'",
                       model_config_name(t->m), field);
    return 0;
}

/* In f32, as the models were trained: at large positions the rounding is visible in the
 * angles. */
static void plain_frequencies(struct rope *r, double theta)
{
    for (uint64_t i = 0; i < r->dim / 2; i++)
        r->inv_freq[i] =
            (double)(1 / powf((float)theta, 2.0f * (float)i / (float)r->dim));
}

const double *program_rope_at(const struct rope *r, uint64_t length, double *out)
{
    double n = (double)length, dim = (double)r->dim, theta;
    struct rope tmp = { .dim = r->dim, .inv_freq = out };

    if (length <= r->context || (!r->dynamic && !r->long_freq))
        return r->inv_freq;
    if (r->long_freq)
        return r->long_freq;
    theta = r->theta *
            pow(r->factor * n / (double)r->context - (r->factor - 1), dim / (dim - 2));
    plain_frequencies(&tmp, theta);
    return out;
}

bool program_rope_changes(const struct program *p, uint64_t length)
{
    for (int i = 0; i < p->nropes; i++)
        if (p->rope[i].long_freq && length == p->rope[i].context + 1)
            return true;
    return false;
}

static int scale_llama3(struct table *t, struct rope *r, double factor, double original)
{
    double low, high;

    if (get_number(t, "low", NAN, &low) < 0 || get_number(t, "high", NAN, &high) < 0)
        return -1;
    for (uint64_t i = 0; i < r->dim / 2; i++) {
        double f = r->inv_freq[i], wave = 2 * PI / f, smooth;

        if (wave > original / low)
            r->inv_freq[i] = f / factor;
        else if (wave >= original / high) {
            smooth = (original / wave - low) / (high - low);
            r->inv_freq[i] = (1 - smooth) * f / factor + smooth * f;
        }
    }
    return 0;
}

static double yarn_mscale(double scale, double m)
{
    return scale <= 1 ? 1 : 0.1 * m * log(scale) + 1;
}

/* The dimension whose wave makes ROTATIONS turns over the original context. */
static double yarn_dim(double rotations, double dim, double theta, double original)
{
    return dim * log(original / (rotations * 2 * PI)) / (2 * log(theta));
}

static int scale_yarn(struct table *t, struct rope *r, double factor, double original)
{
    double fast, slow, attention, mscale, mscale_all, truncate, low, high;
    double dim = (double)r->dim;

    if (get_number(t, "fast", 32, &fast) < 0 || get_number(t, "slow", 1, &slow) < 0 ||
        get_number(t, "attention", -1, &attention) < 0 ||
        get_number(t, "mscale", 0, &mscale) < 0 ||
        get_number(t, "mscale_all", 0, &mscale_all) < 0 ||
        get_number(t, "truncate", 1, &truncate) < 0)
        return -1;
    if (attention >= 0)
        r->scale = attention;
    else if (mscale != 0 && mscale_all != 0)
        r->scale = yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all);
    else
        r->scale = yarn_mscale(factor, 1);
    low = yarn_dim(fast, dim, r->theta, original);
    high = yarn_dim(slow, dim, r->theta, original);
    if (truncate != 0) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, dim - 1);
    if (low == high)
        high += 0.001;
    for (uint64_t i = 0; i < r->dim / 2; i++) {
        double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);

        r->inv_freq[i] = r->inv_freq[i] / factor * ramp + r->inv_freq[i] * (1 - ramp);
    }
    return 0;
}

/* The plain frequencies, each divided by its factor in the config's list FIELD. */
static int divide(struct table *t, const struct rope *r, const char *field, double *out)
{
    struct expr_value v;
    const cJSON *each = NULL;
    uint64_t n = 0;

    if (get(t, field, &v) < 0)
        return -1;
    if (v.kind == EXPR_JSON && cJSON_IsArray(v.json))
        each = v.json->child;
    for (; each; each = each->next) {
        if (n == r->dim / 2 || !cJSON_IsNumber(each) || !(each->valuedouble > 0))
            break;
        out[n] = (double)(1 / ((float)each->valuedouble *
                               powf((float)r->theta, 2.0f * (float)n / (float)r->dim)));
        n++;
    }
    if (n != r->dim / 2 || each)
        return err_set(t->err, ERR_INPUT,
                       "%s: the rotary scaling's '%s' must be %" PRIu64
                       " factors above 0",
                       model_config_name(t->m), field, r->dim / 2);
    return 0;
}

static int scale_longrope(struct table *t, struct rope *r, double factor,
                          double original)
{
    double attention;

    if (get_number(t, "attention", -1, &attention) < 0)
        return -1;
    r->context = (uint64_t)original;
    r->scale = attention >= 0 ? attention
               : factor <= 1  ? 1
                              : sqrt(1 + log(factor) / log(original));
    r->long_freq = xcalloc(r->dim / 2, sizeof(*r->long_freq));
    return divide(t, r, "short", r->inv_freq) < 0 ||
                   divide(t, r, "long", r->long_freq) < 0
               ? -1
               : 0;
}

/* The frequencies of a table of the whole head, of which the first part of the pairs
 * turns; the others have the frequency 0. */
static int scale_proportional(struct table *t, struct rope *r)
{
    double part, factor;
    uint64_t turning;

    if (get_number(t, "part", 1, &part) < 0 || get_number(t, "factor", 1, &factor) < 0)
        return -1;
    if (!(part >= 0 && part <= 1) || !(factor > 0))
        return err_set(t->err, ERR_INPUT, "%s: bad rotary scaling",
                       model_config_name(t->m));
    turning = (uint64_t)floor(part * (double)r->dim / 2);
    for (uint64_t i = 0; i < r->dim / 2; i++)
        r->inv_freq[i] = i < turning ? r->inv_freq[i] / factor : 0;
    return 0;
}

static int scale(struct table *t, struct rope *r, const struct expr_value *type)
{
    /* "su" is longrope's first name */
    bool by_length = expr_word_is(type, "longrope") || expr_word_is(type, "su");
    bool ratio = expr_word_is(type, "yarn") || by_length;
    double factor, original, context;

    /* "mrope" turns three parts of a head by three positions, which are equal in text
     */
    if (type->kind == EXPR_NULL || expr_word_is(type, "default") ||
        expr_word_is(type, "mrope"))
        return 0;
    if (expr_word_is(type, "proportional"))
        return scale_proportional(t, r);
    if (get_number(t, "original", NAN, &original) < 0 ||
        get_number(t, "context", original, &context) < 0)
        return -1;
    /* without a factor, yarn and longrope take the ratio of the two lengths */
    if (get_number(t, "factor", ratio ? context / original : NAN, &factor) < 0)
        return -1;
    if (!(factor > 0) || !(original >= 1) || !(context >= 1))
        return err_set(t->err, ERR_INPUT, "%s: bad rotary scaling",
                       model_config_name(t->m));
    r->factor = factor;
    if (expr_word_is(type, "linear")) {
        for (uint64_t i = 0; i < r->dim / 2; i++)
            r->inv_freq[i] /= factor;
        return 0;
    }
    if (expr_word_is(type, "dynamic")) {
        r->dynamic = true;
        r->context = (uint64_t)context;
        return 0;
    }
    if (expr_word_is(type, "llama3"))
        return scale_llama3(t, r, factor, original);
    if (expr_word_is(type, "yarn"))
        return scale_yarn(t, r, factor, original);
    if (by_length)
        return scale_longrope(t, r, factor, original);
    return err_set(t->err, ERR_INPUT,
                   "%s: rotary scaling '%.*s' is not known (linear, dynamic, llama3, "
                   "yarn, longrope, proportional, mrope)",
                   model_config_name(t->m), (int)type->len,
                   type->word ? type->word : "");
}

int rotary_init(struct rope *out, const struct model *m, const struct family_entry *e,
                struct err *err)
{
    struct table t = { .m = m, .e = e, .err = err };
    struct rope r = { .scale = 1 };
    struct expr_value style, type;
    double dim;

    for (const struct json *j = e->json->first; j; j = j->next) {
        int i = 0;

        while (fields[i] && j->key && strcmp(fields[i], j->key))
            i++;
        if (!fields[i])
            return family_error(e->doc, j, 0, err, "unknown key '%s' of a rotary table",
                                j->key);
    }
    if (get(&t, "style", &style) < 0 || get(&t, "type", &type) < 0 ||
        get_number(&t, "dim", NAN, &dim) < 0 ||
        get_number(&t, "theta", NAN, &r.theta) < 0)
        return -1;
    if (expr_word_is(&type, "proportional") && get_number(&t, "head", dim, &dim) < 0)
        return -1;
    r.interleaved = expr_word_is(&style, "interleaved");
    if (!r.interleaved && !expr_word_is(&style, "half"))
        return family_error(e->doc, e->json, 0, err,
                            "\"style\" must be 'half' or 'interleaved'");
    dim = floor(dim);
    if (dim < 2 || dim > 1 << 20 || fmod(dim, 2) != 0 || !(r.theta > 0))
        return err_set(err, ERR_INPUT, "%s: rotary dimension %g and base %g",
                       model_config_name(m), dim, r.theta);
    r.dim = (uint64_t)dim;
    r.inv_freq = xcalloc(r.dim / 2, sizeof(*r.inv_freq));
    plain_frequencies(&r, r.theta);
    if (scale(&t, &r, &type) < 0) {
        rotary_clear(&r);
        return -1;
    }
    *out = r;
    return 0;
}

void rotary_clear(struct rope *r)
{
    free(r->inv_freq);
    free(r->long_freq);
    *r = (struct rope){ 0 };
}
