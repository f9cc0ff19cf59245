/* labelled - texts with labels, in memory */
#include "lib/train/labelled.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

struct labelled {
    size_t seq;
    int32_t *id, *target; /* [tokens] */
    size_t tokens, cap, target_cap;
    size_t *start; /* [samples + 1] */
    struct pair {
        size_t second;
        double reference[2];
    } * pair; /* [samples] */
    size_t samples, start_cap, pair_cap;
    uint64_t cut, left; /* samples that were too long; their tokens that are not here */
    bool counts;        /* a label is one, not -1 */
};

/* The token after token K of a pair, if it belongs to an answer. */
static int32_t next_of(const struct texts_document *d, size_t k)
{
    const bool later = k >= d->second;
    const size_t end = later ? d->n : d->second;
    const size_t learnt = later ? d->second + d->second_given : d->given;

    return k + 1 < end && k + 1 >= learnt ? d->id[k + 1] : -1;
}

static int add_sample(void *arg, const struct texts_document *d, struct err *err)
{
    struct labelled *l = arg;
    size_t n = d->n < l->seq ? d->n : l->seq, at = l->tokens;

    if (d->second && d->n > l->seq)
        return err_set(err, ERR_INPUT,
                       "a pair of %zu tokens in all, more than --seq %zu", d->n,
                       l->seq);
    l->id = xgrow(l->id, &l->cap, at + n, sizeof(*l->id));
    l->target = xgrow(l->target, &l->target_cap, at + n, sizeof(*l->target));
    l->start = xgrow(l->start, &l->start_cap, l->samples + 2, sizeof(*l->start));
    l->pair = xgrow(l->pair, &l->pair_cap, l->samples + 1, sizeof(*l->pair));
    l->pair[l->samples] =
        (struct pair){ d->second, { d->reference[0], d->reference[1] } };
    memcpy(l->id + at, d->id, n * sizeof(*l->id));
    for (size_t k = 0; k < n; k++)
        l->target[at + k] = d->second                              ? next_of(d, k)
                            : d->nlabels == d->n && d->nlabels > 1 ? d->label[k]
                                                                   : -1;
    if (n < d->n) {
        l->id[at + n - 1] = d->id[d->n - 1];
        if (d->nlabels == d->n)
            l->target[at + n - 1] = d->label[d->n - 1];
        l->cut++;
        l->left += d->n - n;
    }
    if (d->nlabels == 1)
        l->target[at + n - 1] = d->label[0];
    for (size_t k = 0; k < n; k++)
        l->counts |= l->target[at + k] >= 0;
    l->start[l->samples] = at;
    l->tokens += n;
    l->start[++l->samples] = l->tokens;
    return 0;
}

int labelled_open(struct labelled **out, const char *const *file, size_t n,
                  const struct texts_options *options, size_t seq, struct err *err)
{
    struct labelled *l = xcalloc(1, sizeof(*l));

    l->seq = seq;
    for (size_t i = 0; i < n; i++)
        if (texts_read(file[i], options, add_sample, l, err) < 0) {
            labelled_close(l);
            return -1;
        }
    *out = l;
    return 0;
}

void labelled_close(struct labelled *l)
{
    if (!l)
        return;
    free(l->id);
    free(l->target);
    free(l->start);
    free(l->pair);
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

size_t labelled_get(const struct labelled *l, uint64_t i, int32_t *id, int32_t *target,
                    size_t *second, double reference[2])
{
    size_t at = l->start[i], n = l->start[i + 1] - at;

    memcpy(id, l->id + at, n * sizeof(*id));
    memcpy(target, l->target + at, n * sizeof(*target));
    *second = l->pair[i].second;
    memcpy(reference, l->pair[i].reference, sizeof(l->pair[i].reference));
    return n;
}
