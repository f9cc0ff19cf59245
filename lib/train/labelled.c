/* labelled - texts with labels, in memory */
#include "lib/train/labelled.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

struct labelled {
    size_t seq;
    struct labelled_shift shift;
    int32_t *id, *target, *source; /* [tokens], and [sources] */
    int32_t *type;                 /* [tokens], or NULL */
    size_t *start;                 /* [starts]: of the documents of a sample */
    double *value;                 /* [values] */
    size_t values, value_cap;
    size_t tokens, cap, target_cap, sources, source_cap, type_cap, starts, start_cap;
    struct entry {
        size_t at, n, source, nsource;
        size_t start, documents; /* its first in .start; 1 or more */
        double reference[2];
        size_t value, nvalues;
        bool typed; /* it has types */
        struct squad_text *quoted;
    } * entry; /* [samples] */
    size_t samples, entry_cap, source_most, documents_most;
    uint64_t cut, left; /* samples that were too long; their tokens that are not here */
    bool counts;        /* a label is one, not -1 */
};

/* The targets of document P of D: the tokens after those given. */
static void add_next(struct labelled *l, const struct texts_document *d, size_t p)
{
    const size_t start = p ? d->part[p].start : 0;
    const size_t end = p + 1 < d->parts ? d->part[p + 1].start : d->n;
    const size_t given = d->parts ? d->part[p].given : d->given;
    int32_t *target = l->target + l->tokens;

    for (size_t k = start; k < end; k++)
        target[k] = k + 1 < end && k + 1 >= start + given ? d->id[k + 1] : -1;
}

/* Where the documents of D begin. */
static void add_starts(struct labelled *l, const struct texts_document *d,
                       struct entry *e)
{
    e->start = l->starts;
    e->documents = d->parts ? d->parts : 1;
    if (e->documents > l->documents_most)
        l->documents_most = e->documents;
    l->start =
        xgrow(l->start, &l->start_cap, l->starts + e->documents, sizeof(*l->start));
    for (size_t p = 0; p < e->documents; p++)
        l->start[l->starts++] = p ? d->part[p].start : 0;
}

/* What a decoder is to make is what it reads, one token later; the labels of a line
 * without a source are those that they are, and its ids are the source. */
static void add_source(struct labelled *l, const struct texts_document *d,
                       struct entry *e)
{
    int32_t *id = l->id + e->at;
    const int32_t last = id[e->n - 1];
    const int32_t *from = d->nsource ? d->source : id;

    e->source = l->sources;
    e->nsource = d->nsource ? d->nsource : e->n;
    l->source =
        xgrow(l->source, &l->source_cap, l->sources + e->nsource, sizeof(*l->source));
    memcpy(l->source + e->source, from, e->nsource * sizeof(*l->source));
    l->sources += e->nsource;
    if (e->nsource > l->source_most)
        l->source_most = e->nsource;
    if (d->nsource)
        memcpy(l->target + e->at, id, e->n * sizeof(*id));
    memmove(id + 1, id, (e->n - 1) * sizeof(*id));
    id[0] = l->shift.wraps ? last : l->shift.start;
}

/* Numbers are the labels of a text, which counts at its last token, or of its tokens or
 * documents. */
static void add_values(struct labelled *l, const struct texts_document *d,
                       struct entry *e)
{
    if (!d->nvalues)
        return;
    e->value = l->values;
    e->nvalues = d->nvalues;
    l->value =
        xgrow(l->value, &l->value_cap, l->values + d->nvalues, sizeof(*l->value));
    memcpy(l->value + l->values, d->value, d->nvalues * sizeof(*l->value));
    l->values += d->nvalues;
    l->counts = true;
    if (!d->continues && !d->parts)
        l->target[e->at + e->n - 1] = 0;
}

static int add_sample(void *arg, const struct texts_document *d, struct err *err)
{
    struct labelled *l = arg;
    size_t n = d->n < l->seq ? d->n : l->seq, at = l->tokens;

    if ((d->parts || d->continues) && d->n > l->seq)
        return err_set(err, ERR_INPUT, "%s of %zu tokens in all, more than --seq %zu",
                       d->parts == 2 ? "a pair" : "a sample", d->n, l->seq);
    l->id = xgrow(l->id, &l->cap, at + n, sizeof(*l->id));
    l->target = xgrow(l->target, &l->target_cap, at + n, sizeof(*l->target));
    l->entry = xgrow(l->entry, &l->entry_cap, l->samples + 1, sizeof(*l->entry));
    l->entry[l->samples] = (struct entry){
        .at = at, .n = n, .reference = { d->reference[0], d->reference[1] }
    };
    memcpy(l->id + at, d->id, n * sizeof(*l->id));
    for (size_t k = 0; k < n; k++)
        l->target[at + k] = d->nlabels == d->n && d->nlabels > 1 ? d->label[k] : -1;
    for (size_t p = 0; d->continues && p < (d->parts ? d->parts : 1); p++)
        add_next(l, d, p);
    add_starts(l, d, &l->entry[l->samples]);
    l->entry[l->samples].typed = d->types;
    l->entry[l->samples].quoted = squad_text_dup(d->quoted);
    if (d->types) {
        l->type = xgrow(l->type, &l->type_cap, at + n, sizeof(*l->type));
        memcpy(l->type + at, d->types, n * sizeof(*l->type));
        l->type[at + n - 1] = d->types[d->n - 1];
    }
    if (n < d->n) {
        l->id[at + n - 1] = d->id[d->n - 1];
        if (d->nlabels == d->n)
            l->target[at + n - 1] = d->label[d->n - 1];
        l->cut++;
        l->left += d->n - n;
    }
    if (d->nlabels == 1)
        l->target[at + n - 1] = d->label[0];
    add_values(l, d, &l->entry[l->samples]);
    if (l->shift.is)
        add_source(l, d, &l->entry[l->samples]);
    for (size_t k = 0; k < n; k++)
        l->counts |= l->target[at + k] >= 0;
    l->tokens += n;
    l->samples++;
    return 0;
}

/* Tells the questions whether some have no answer; and which tokens are left. */
static void end_quoted(struct labelled *l)
{
    bool may = false;

    for (size_t i = 0; i < l->samples; i++)
        may |= l->entry[i].quoted && !l->entry[i].quoted->answers;
    for (size_t i = 0; i < l->samples; i++) {
        struct squad_text *t = l->entry[i].quoted;
        const size_t n = l->entry[i].n;

        if (!t)
            continue;
        t->may_none = may;
        if (n < t->n) { /* the last one is another's */
            double *place = l->value + l->entry[i].value;

            t->high = t->high < n ? t->high : n - 1;
            for (size_t k = 0; t->answers && k < l->entry[i].nvalues; k++)
                if (place[k] >= (double)(n - 1))
                    place[k] = -1;
        }
        t->low = t->low < t->high ? t->low : t->high;
    }
}

int labelled_open(struct labelled **out, const char *const *file, size_t n,
                  const struct texts_options *options,
                  const struct labelled_shift *shift, size_t seq, struct err *err)
{
    struct labelled *l = xcalloc(1, sizeof(*l));

    l->seq = seq;
    l->shift = *shift;
    for (size_t i = 0; i < n; i++)
        if (texts_read(file[i], options, add_sample, l, err) < 0) {
            labelled_close(l);
            return -1;
        }
    end_quoted(l);
    *out = l;
    return 0;
}

void labelled_close(struct labelled *l)
{
    if (!l)
        return;
    free(l->id);
    free(l->target);
    free(l->source);
    free(l->type);
    free(l->start);
    free(l->value);
    for (size_t i = 0; i < l->samples; i++)
        squad_text_free(l->entry[i].quoted);
    free(l->entry);
    free(l);
}

uint64_t labelled_samples(const struct labelled *l)
{
    return l->samples;
}

uint64_t labelled_tokens(const struct labelled *l)
{
    return l->tokens;
}

bool labelled_counts(const struct labelled *l)
{
    return l->counts;
}

void labelled_cut(const struct labelled *l, uint64_t *samples, uint64_t *tokens)
{
    *samples = l->cut;
    *tokens = l->left;
}

size_t labelled_documents_most(const struct labelled *l)
{
    return l->documents_most;
}

size_t labelled_source_most(const struct labelled *l)
{
    return l->source_most;
}

struct labelled_sample labelled_get(const struct labelled *l, uint64_t i)
{
    const struct entry *e = &l->entry[i];

    return (struct labelled_sample){ .id = l->id + e->at,
                                     .target = l->target + e->at,
                                     .n = e->n,
                                     .source =
                                         e->nsource ? l->source + e->source : NULL,
                                     .nsource = e->nsource,
                                     .type = e->typed ? l->type + e->at : NULL,
                                     .start = l->start + e->start,
                                     .documents = e->documents,
                                     .reference = { e->reference[0], e->reference[1] },
                                     .value = e->nvalues ? l->value + e->value : NULL,
                                     .nvalues = e->nvalues,
                                     .quoted = e->quoted };
}
