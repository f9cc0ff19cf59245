/* vectors - answers of OpenAI's interface that are vectors, or made of them */
#include "lib/serve/vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/base64.h"
#include "lib/base/mem.h"

static size_t numbers_of(const struct openai_choice *v)
{
    return v->len / sizeof(float);
}

/* The number at I of V, whose bytes are not aligned. */
static double number_at(const struct openai_choice *v, size_t i)
{
    float x;

    memcpy(&x, v->text + i * sizeof(x), sizeof(x));
    return (double)x;
}

/* A . B of the first N numbers. */
static double product(const struct openai_choice *a, const struct openai_choice *b,
                      size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += number_at(a, i) * number_at(b, i);
    return sum;
}

/* ---- embeddings ---- */

/* What the first N numbers of V are divided by. */
static double scale_of(const struct openai_choice *v, size_t n)
{
    const double whole = product(v, v, numbers_of(v)), part = product(v, v, n);

    return n < numbers_of(v) && fabs(whole - 1) < 1e-4 && part > 0 ? sqrt(part) : 1;
}

static void add_base64(struct str *out, const struct openai_choice *v, size_t n,
                       double scale)
{
    unsigned char *bytes = xmalloc(n * sizeof(float) + 1);

    for (size_t i = 0; i < n; i++) {
        const float x = (float)(number_at(v, i) / scale);
        uint32_t bits;

        memcpy(&bits, &x, sizeof(bits));
        for (int k = 0; k < 4; k++) /* little-endian */
            bytes[4 * i + (size_t)k] = (unsigned char)(bits >> 8 * k);
    }
    str_addc(out, '"');
    base64_encode(bytes, n * sizeof(float), out);
    str_addc(out, '"');
    free(bytes);
}

static void add_list(struct str *out, const struct openai_choice *v, size_t n,
                     double scale)
{
    str_addc(out, '[');
    for (size_t i = 0; i < n; i++)
        str_addf(out, "%s%.9g", i ? "," : "", number_at(v, i) / scale);
    str_addc(out, ']');
}

int vectors_add_embeddings(struct str *out, const struct openai_head *h,
                           const struct openai_request *r,
                           const struct openai_choice *v, size_t n,
                           const struct openai_usage *usage, struct openai_error *e)
{
    for (size_t i = 0; i < n; i++)
        if (r->dimensions > numbers_of(&v[i]))
            return openai_fail(e, 400, "dimensions", "invalid_value",
                               "dimensions: the model's vectors have %zu numbers",
                               numbers_of(&v[i]));
    str_add(out, "{\"object\":\"list\",\"model\":");
    str_add_json(out, h->model);
    str_addf(out, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu},\"data\":[",
             usage->prompt, usage->prompt);
    for (size_t i = 0; i < n; i++) {
        const size_t numbers =
            r->dimensions ? (size_t)r->dimensions : numbers_of(&v[i]);
        const double scale = scale_of(&v[i], numbers);

        str_addf(out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":",
                 i ? "," : "", i);
        if (r->base64)
            add_base64(out, &v[i], numbers, scale);
        else
            add_list(out, &v[i], numbers, scale);
        str_addc(out, '}');
    }
    str_add(out, "]}");
    return 0;
}

/* ---- ranks ---- */

struct ranked {
    size_t index;
    double score;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    return x->score != y->score ? (x->score < y->score ? 1 : -1)
                                : (x->index > y->index) - (x->index < y->index);
}

static double cosine(const struct openai_choice *a, const struct openai_choice *b)
{
    const size_t n = numbers_of(a);
    const double lengths = sqrt(product(a, a, n) * product(b, b, n));

    return lengths > 0 ? product(a, b, n) / lengths : 0;
}

static void add_rank(struct str *out, const struct openai_request *r,
                     const struct ranked *one)
{
    const struct openai_prompt *d = &r->document[one->index];

    str_addf(out, "{\"index\":%zu", one->index);
    if (!r->leaves_texts) {
        str_add(out, ",\"document\":{\"text\":");
        str_add_jsonn(out, d->text, d->len);
        str_addc(out, '}');
    }
    str_addf(out, ",\"relevance_score\":%.9g}", one->score);
}

void vectors_add_ranks(struct str *out, const struct openai_head *h,
                       const struct openai_request *r, const struct openai_choice *v,
                       size_t n, const struct openai_usage *usage)
{
    const size_t ndocuments = r->ndocuments, before = n - ndocuments;
    const size_t top =
        r->top_n && r->top_n < ndocuments ? (size_t)r->top_n : ndocuments;
    struct ranked *all = xcalloc(ndocuments + 1, sizeof(*all));

    for (size_t i = 0; i < ndocuments; i++)
        all[i] = (struct ranked){ i, before ? cosine(&v[0], &v[i + 1])
                                            : 1 / (1 + exp(-number_at(&v[i], 0))) };
    qsort(all, ndocuments, sizeof(*all), by_score);
    str_addf(out, "{\"id\":\"%s\",\"model\":", h->id);
    str_add_json(out, h->model);
    str_addf(out,
             ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu},\"results\":[",
             usage->prompt, usage->prompt);
    for (size_t i = 0; i < top; i++) {
        str_add(out, i ? "," : "");
        add_rank(out, r, &all[i]);
    }
    str_add(out, "]}");
    free(all);
}
