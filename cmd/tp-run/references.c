/* references - lines of training data, to which a model's likelihoods are added */
#include "cmd/tp-run/references.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/train/texts.h"

const char *const reference_kinds[] = {
    "none", "dpo", "kto", "policy", "distill", NULL
};

/* What is added; lines that have it already lose what they have. */
static const char *const added[][4] = {
    [REFERENCES_NONE] = { NULL },
    [REFERENCES_DPO] = { "ref_chosen_logps", "ref_rejected_logps", NULL },
    [REFERENCES_KTO] = { "reference_logps", "reference_KL_logps", NULL },
    [REFERENCES_POLICY] = { "ref_logprobs", NULL },
    [REFERENCES_DISTIL] = { "ids", "teacher_ids", "teacher_logprobs", NULL }
};

void references_clear(struct references *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->line[i]);
    free(r->line);
}

/* ---- reading ---- */

struct reading {
    struct references *r;
    struct inputs *in;
    const char *file;
    size_t first;     /* line of R */
    const char *last; /* the line of the last sample, */
    uint32_t number;  /* and its number */
};

static void keep_line(struct references *r, const char *text, size_t length)
{
    r->line = xgrow(r->line, &r->cap, r->n + 1, sizeof(*r->line));
    r->line[r->n++] = xstrndup(text, length);
}

/* Adds the texts of sample D, of the line that was kept last. */
static int add_texts(const struct reading *g, const struct texts_document *d, bool more,
                     struct err *err)
{
    struct inputs *in = g->in;
    const size_t parts = d->parts ? d->parts : 1;
    size_t first = in->n;

    for (size_t p = 0; p < parts; p++) {
        const size_t from = d->parts ? d->part[p].start : 0;
        const size_t to = p + 1 < parts ? d->part[p + 1].start : d->n;
        struct input one = { .name = str_dupf("%s:%u", g->file, d->number),
                             .line = g->r->n };

        for (size_t k = from; k < to; k++)
            ids_add(&one.ids, d->id[k]);
        one.pair[0] = d->parts ? d->part[p].given : d->given;
        one.pair[1] = one.ids.n;
        if (inputs_add(in, &one, 0) < 0)
            return -1;
    }
    while (more && first > 0 && !in->v[first].choices)
        first--;
    in->v[first].choices += parts;
    (void)err;
    return 0;
}

static int see_sample(void *arg, const struct texts_document *d, struct err *err)
{
    struct reading *g = arg;
    const bool more = g->last == d->line && g->number == d->number;

    if (!more)
        keep_line(g->r, d->line, d->length);
    if (add_texts(g, d, more, err) < 0)
        return -1;
    g->last = d->line;
    g->number = d->number;
    return 0;
}

static int see_line(void *arg, const struct texts_document *d, struct err *err)
{
    struct reading *g = arg;

    (void)err;
    keep_line(g->r, d->line, d->length);
    return 0;
}

/* Has a line of KTO's without one an answer of another prompt: the completion of the
 * line before, and the first that of the last. */
static int add_others(struct reading *g, const struct texts_options *o, struct err *err)
{
    struct references *r = g->r;
    const size_t all = r->n;
    char **line = r->line, *before = NULL;
    int ret = 0;

    r->line = NULL;
    r->n = r->cap = 0;
    for (size_t i = 0; i <= all && ret == 0; i++) {
        const size_t at = (i + all - 1) % all; /* the last one first */
        struct json_doc doc = { 0 };
        struct str text = { 0 }, own = { 0 };

        ret = json_parse(&doc, g->file, line[at], strlen(line[at]), err);
        if (ret < 0)
            break;
        json_print(&own, json_get(doc.root, "completion"));
        str_addn(&text, line[at], strrchr(line[at], '}') - line[at]);
        if (!json_get(doc.root, "KL_completion"))
            str_addf(&text, ",\"KL_completion\":%s", before);
        str_addc(&text, '}');
        if (i)
            ret = texts_read_line(o, g->file, (uint32_t)i, str_text(&text), text.len,
                                  see_sample, g, err);
        free(before);
        before = xstrdup(str_text(&own));
        g->last = NULL;
        str_clear(&own);
        str_clear(&text);
        json_clear(&doc);
    }
    free(before);
    for (size_t i = 0; i < all; i++)
        free(line[i]);
    free(line);
    return ret;
}

int references_read(struct references *r, struct inputs *in, const struct session *s,
                    const char *file, struct err *err)
{
    static const enum texts_labels labels[] = {
        [REFERENCES_DPO] = TEXTS_PAIRS,
        [REFERENCES_KTO] = TEXTS_JUDGED,
        [REFERENCES_POLICY] = TEXTS_DRAWN,
        [REFERENCES_DISTIL] = TEXTS_TAUGHT,
    };
    struct texts_options o = { .tokenizer = s->tokenizer,
                               .end_id = s->stop.n ? s->stop.v[0] : -1,
                               .threads = s->machine.threads * s->local_ranks,
                               .format = TEXTS_JSON,
                               .labels = labels[r->kind],
                               .unscored = true };
    struct reading g = { .r = r,
                         .in = in,
                         .file = strcmp(file, "-") ? file : "standard input",
                         .first = r->n };
    double vocab;

    if (model_number(s->checkpoint->model, "vocab", &vocab))
        o.vocab = (uint64_t)vocab;
    if (texts_read(file, &o, r->kind == REFERENCES_KTO ? see_line : see_sample, &g,
                   err) < 0)
        return -1;
    if (r->n == g.first)
        return err_set(err, ERR_INPUT, "%s: no line", g.file);
    return r->kind == REFERENCES_KTO ? add_others(&g, &o, err) : 0;
}

/* ---- a teacher ---- */

void references_find_top(const struct references *r, const float *x, size_t cols,
                         float *out)
{
    const double t = r->temperature;
    double most = -INFINITY, sum = 0;
    size_t n = 0;

    for (size_t i = 0; i < cols; i++) {
        size_t k = n;

        if (n == r->top && x[i] <= out[2 * n - 1])
            continue;
        n += n < r->top;
        k = k < n ? k : n - 1;
        for (; k > 0 && out[2 * k - 1] < x[i]; k--)
            memcpy(out + 2 * k, out + 2 * k - 2, 2 * sizeof(*out));
        out[2 * k] = (float)i;
        out[2 * k + 1] = x[i];
    }
    for (size_t i = 0; i < cols; i++)
        most = fmax(most, (double)x[i]);
    for (size_t i = 0; i < cols; i++)
        sum += exp(((double)x[i] - most) / t);
    for (size_t k = 0; k < n; k++)
        out[2 * k + 1] = (float)(((double)out[2 * k + 1] - most) / t - log(sum));
}

/* ---- printing ---- */

static bool is_added(const struct references *r, const struct json *root,
                     const char *key)
{
    const char *const *of = added[r->kind];

    if (r->kind == REFERENCES_DISTIL && json_get(root, "ids"))
        of++; /* they stay */
    for (; *of; of++)
        if (!strcmp(*of, key))
            return true;
    return false;
}

/* The likelihoods of the tokens of IN that count, or their sum. */
static void add_each(struct str *out, const struct input *in, const float *nll)
{
    for (size_t k = in->pair[0]; k < in->ids.n; k++) {
        str_addc(out, k > in->pair[0] ? ',' : '[');
        str_addf(out, "%.9g", -(double)nll[k]);
    }
    str_addc(out, ']');
}

static void add_sum(struct str *out, const char *key, const struct input *in,
                    const float *nll)
{
    double sum = 0;

    for (size_t k = in->pair[0]; k < in->ids.n; k++)
        sum -= (double)nll[k];
    str_addf(out, ",\"%s\":%.9g", key, sum);
}

/* Column AT of the pairs in ROWS, of the tokens of IN that count. */
static void add_top(struct str *out, const struct references *r, const char *key,
                    const struct input *in, const float *rows, size_t at)
{
    str_addf(out, ",\"%s\":[", key);
    for (size_t k = in->pair[0]; k < in->ids.n; k++) {
        str_add(out, k > in->pair[0] ? ",[" : "[");
        for (size_t i = 0; i < r->top; i++)
            str_addf(out, "%s%.9g", i ? "," : "",
                     (double)rows[2 * (k * r->top + i) + at]);
        str_addc(out, ']');
    }
    str_addc(out, ']');
}

void references_add(struct str *out, const struct references *r, size_t line,
                    const struct input *in, size_t n, float *const *nll,
                    float *const *rows)
{
    const char *const *key = added[r->kind];
    struct json_doc doc = { 0 };
    struct err none;
    const char *join = "{";

    if (json_parse(&doc, "", r->line[line], strlen(r->line[line]), &none) < 0)
        return; /* it was read before */
    for (const struct json *j = doc.root->first; j; j = j->next) {
        if (is_added(r, doc.root, j->key))
            continue;
        str_add(out, join);
        str_add_json(out, j->key);
        str_addc(out, ':');
        json_print(out, j);
        join = ",";
    }
    if (r->kind == REFERENCES_POLICY) {
        const bool choices = json_get(doc.root, "choices");

        str_addf(out, ",\"%s\":%s", key[0], choices ? "[" : "");
        for (size_t k = 0; k < n; k++) {
            str_add(out, k ? "," : "");
            add_each(out, &in[k], nll[k]);
        }
        str_add(out, choices ? "]" : "");
    } else if (r->kind == REFERENCES_DISTIL) {
        if (!json_get(doc.root, "ids")) {
            str_add(out, ",\"ids\":");
            ids_print_json(out, &in->ids);
        }
        add_top(out, r, key[1], in, rows[0], 0);
        add_top(out, r, key[2], in, rows[0], 1);
    } else {
        for (size_t k = 0; k < n; k++)
            add_sum(out, key[k], &in[k], nll[k]);
    }
    str_add(out, "}\n");
    json_clear(&doc);
}
