/* data - training samples */
#include "lib/train/data.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/train/blend.h"
#include "lib/train/corpus.h"
#include "lib/train/labelled.h"

const char *const data_pack_names[] = { "documents", "none", NULL };
const char *const data_order_names[] = { "shuffled", "sequential", NULL };

/* A document that is a sample (DATA_PACK_NONE). */
struct document {
    uint64_t first;
    size_t n; /* tokens including targets: at most seq + 1 */
};

struct data {
    size_t seq;
    enum data_pack pack;
    enum data_order order;
    uint64_t seed;
    struct corpus *corpus;
    struct labelled *labelled; /* instead, with labels */
    struct masking mask;       /* probability 0: nothing is masked */
    struct document *document; /* [all], for DATA_PACK_NONE */
    size_t cap;
    uint64_t all, held; /* number of samples, and of those held out */
    struct data_left left;
    struct data **source; /* [blend.n]: of a mixture; else NULL */
    struct blend blend;
    /* buffers of the last call */
    int32_t *id, *target; /* [room][seq + 1] */
    uint8_t *flag;        /* [seq + 1] */
    size_t *start;        /* [room][seq] */
    size_t room;
};

/* ---- opening ---- */

/* Skips a document without any target. */
static int add_document(void *arg, uint64_t first, uint64_t n, uint64_t given,
                        struct err *err)
{
    struct data *d = arg;
    uint64_t most = (uint64_t)d->seq + 1, over = n > most ? n - most : 0;

    (void)err;
    n -= over;
    d->left.documents++;
    if (n < 2 || given >= n) {
        d->left.empty++;
        return 0;
    }
    d->left.cut += over > 0;
    d->left.tokens += over;
    d->document = xgrow(d->document, &d->cap, (size_t)d->all + 1, sizeof(*d->document));
    d->document[d->all++] = (struct document){ first, (size_t)n };
    return 0;
}

static int count_samples(struct data *d, const struct data_options *o, struct err *err)
{
    uint64_t tokens = d->labelled ? 0 : corpus_tokens(d->corpus);

    if (d->labelled) {
        d->all = d->left.documents = labelled_samples(d->labelled);
        labelled_cut(d->labelled, &d->left.cut, &d->left.tokens);
        d->left.keeps_last = true;
    } else if (d->pack == DATA_PACK_NONE) {
        if (corpus_documents(d->corpus, add_document, d, err) < 0)
            return -1;
    } else if (tokens > 1) {
        d->all = (tokens - 1 + d->seq - 1) / d->seq;
    }
    if (!d->all)
        return err_set(err, ERR_INPUT, "%s%s: no sample%s", o->file[0],
                       o->nfiles > 1 ? " and the others" : "",
                       d->labelled ? "" : " of two tokens");
    if (d->labelled && !labelled_counts(d->labelled))
        return err_set(err, ERR_INPUT, "%s%s: no sample has a label that counts",
                       o->file[0], o->nfiles > 1 ? " and the others" : "");
    if (o->held > 0)
        d->held = (uint64_t)(o->held * (double)d->all);
    if (o->held > 0 && !d->held)
        d->held = 1;
    if (d->held >= d->all)
        return err_set(
            err, ERR_INPUT, "%s: of %llu samples %llu would be held out; none is left",
            o->file[0], (unsigned long long)d->all, (unsigned long long)d->held);
    return 0;
}

static int open_mixture(struct data *d, const struct data_options *o, struct err *err)
{
    if (o->nfiles > BLEND_MOST)
        return err_set(err, ERR_USAGE, "a mixture has %d sources at most", BLEND_MOST);
    blend_init(&d->blend, o->weight, o->nfiles);
    d->source = xcalloc(o->nfiles, sizeof(*d->source));
    for (size_t s = 0; s < o->nfiles; s++) {
        struct data_options one = *o;

        one.file = &o->file[s];
        one.nfiles = 1;
        one.weight = NULL;
        if (data_open(&d->source[s], &one, err) < 0)
            return -1;
        d->all += d->source[s]->all;
        d->held += d->source[s]->held;
        d->left.documents += d->source[s]->left.documents;
        d->left.empty += d->source[s]->left.empty;
        d->left.cut += d->source[s]->left.cut;
        d->left.tokens += d->source[s]->left.tokens;
        d->left.keeps_last = d->source[s]->left.keeps_last;
    }
    return 0;
}

/* What JSON lines must have for samples with these labels. */
static enum texts_labels texts_labels_of(enum loss_labels labels)
{
    switch (labels) {
    case LABELS_TEXT:
        return TEXTS_LABEL;
    case LABELS_TOKENS:
        return TEXTS_LABELS;
    case LABELS_PAIR:
        return TEXTS_PAIRS;
    case LABELS_TARGET:
        return TEXTS_TARGETS;
    case LABELS_TEXTS:
        return TEXTS_ANSWERS;
    case LABELS_VALUE:
        return TEXTS_VALUE;
    case LABELS_VALUES:
        return TEXTS_VALUES;
    case LABELS_SPAN:
        return TEXTS_SPAN;
    case LABELS_CHOICES:
        return TEXTS_CHOICES;
    case LABELS_JUDGED:
        return TEXTS_JUDGED;
    case LABELS_DRAWN:
        return TEXTS_DRAWN;
    case LABELS_TAUGHT:
        return TEXTS_TAUGHT;
    case LABELS_NEXT:
    case LABELS_MASKED:
        break;
    }
    return TEXTS_NO_LABELS;
}

static int open_files(struct data *d, const struct data_options *o,
                      const struct texts_options *texts, struct err *err)
{
    if (texts->labels != TEXTS_NO_LABELS)
        return labelled_open(&d->labelled, o->file, o->nfiles, texts, &o->shift, o->seq,
                             err);
    return corpus_open(&d->corpus, o->file, o->nfiles, texts, o->width, err);
}

/* Keeps a copy of what is special. */
static void keep_mask(struct data *d, const struct masking *mask)
{
    d->mask = *mask;
    if (!mask->special)
        return;
    d->mask.special = xmalloc((size_t)mask->vocab + 1);
    memcpy(d->mask.special, mask->special, (size_t)mask->vocab);
}

int data_open(struct data **out, const struct data_options *options, struct err *err)
{
    const struct texts_options texts = { .tokenizer = options->tokenizer,
                                         .chat = options->chat,
                                         .no_chat = options->no_chat,
                                         .last_answer = options->last_answer,
                                         .end_id = options->end_id,
                                         .vocab = options->vocab,
                                         .source_vocab = options->source_vocab,
                                         .source_most = options->source_most,
                                         .threads = options->threads,
                                         .labels = texts_labels_of(options->labels),
                                         .unscaled = options->unscaled,
                                         .references = options->references,
                                         .types = options->types,
                                         .class_name = options->class_name,
                                         .classes = options->classes };
    struct data *d = xcalloc(1, sizeof(*d));

    d->seq = options->seq;
    d->pack = options->pack;
    d->order = options->order;
    d->seed = options->seed;
    if (options->labels == LABELS_MASKED)
        keep_mask(d, &options->mask);
    if (options->weight ? open_mixture(d, options, err) < 0
                        : open_files(d, options, &texts, err) < 0 ||
                              count_samples(d, options, err) < 0) {
        data_close(d);
        return -1;
    }
    *out = d;
    return 0;
}

void data_close(struct data *d)
{
    if (!d)
        return;
    for (size_t s = 0; d->source && s < d->blend.n; s++)
        data_close(d->source[s]);
    free(d->source);
    if (d->corpus)
        corpus_close(d->corpus);
    labelled_close(d->labelled);
    free(d->mask.special);
    free(d->document);
    free(d->id);
    free(d->target);
    free(d->flag);
    free(d->start);
    free(d);
}

struct data_left data_left(const struct data *d)
{
    return d->left;
}

int data_check(struct data *d, void (*see)(void *arg, uint64_t done, uint64_t all),
               void *arg, struct err *err)
{
    if (!d->source)
        return d->labelled ? 0 : corpus_check(d->corpus, see, arg, err);
    for (size_t s = 0; s < d->blend.n; s++)
        if (data_check(d->source[s], see, arg, err) < 0)
            return -1;
    return 0;
}

uint64_t data_samples(const struct data *d)
{
    return d->all - d->held;
}

uint64_t data_held(const struct data *d)
{
    return d->held;
}

uint64_t data_tokens(const struct data *d)
{
    uint64_t tokens = 0;

    if (!d->source)
        return d->labelled ? labelled_tokens(d->labelled) : corpus_tokens(d->corpus);
    for (size_t s = 0; s < d->blend.n; s++)
        tokens += data_tokens(d->source[s]);
    return tokens;
}

size_t data_source_most(const struct data *d)
{
    size_t most = 0;

    if (!d->source)
        return d->labelled ? labelled_source_most(d->labelled) : 0;
    for (size_t s = 0; s < d->blend.n; s++) {
        const size_t one = data_source_most(d->source[s]);

        most = one > most ? one : most;
    }
    return most;
}

size_t data_documents_most(const struct data *d)
{
    size_t most = d->labelled ? labelled_documents_most(d->labelled) : 0;

    for (size_t s = 0; d->source && s < d->blend.n; s++) {
        const size_t one = data_documents_most(d->source[s]);

        most = one > most ? one : most;
    }
    return most;
}

size_t data_sources(const struct data *d)
{
    return d->source ? d->blend.n : 0;
}

void data_cursors(struct data *d, uint64_t index, struct data_cursor *out)
{
    uint64_t had[BLEND_MOST];

    blend_counts(&d->blend, index, had);
    for (size_t s = 0; s < d->blend.n; s++) {
        uint64_t n = data_samples(d->source[s]);

        out[s] = (struct data_cursor){ had[s] / n, had[s] % n };
    }
}

/* ---- the order ---- */

/* A 64-bit hash (Stafford's variant 13 of MurmurHash3's finalizer, as in
 * SplitMix64). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

/* Position of X in a pseudo-random permutation of [0, n): a Feistel network over the
 * next even number of bits, repeated until the result is below N (cycle walking; Black
 * and Rogaway 2002). */
static uint64_t permute(uint64_t x, uint64_t n, uint64_t seed, uint64_t epoch)
{
    enum { ROUNDS = 8 };
    uint64_t key[ROUNDS], mask;
    struct rng rng;
    int half = 1;

    rng_init(&rng, seed, epoch);
    for (int r = 0; r < ROUNDS; r++)
        key[r] = rng_u64(&rng);
    while (half < 32 && n > UINT64_C(1) << (2 * half))
        half++;
    mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = x >> half, right = x & mask;

        for (int r = 0; r < ROUNDS; r++) {
            uint64_t next = left ^ (mix(right ^ key[r]) & mask);

            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}

/* The place in the files of sample INDEX of the endless sequence, of one source. */
static uint64_t place_of(const struct data *d, uint64_t index)
{
    uint64_t n = data_samples(d);

    return d->order == DATA_ORDER_SEQUENTIAL
               ? index % n
               : permute(index % n, n, d->seed, index / n);
}

/* The source of sample INDEX, and its place in that. */
static const struct data *source_of(struct data *d, uint64_t index, size_t *source,
                                    uint64_t *place)
{
    const struct data *from = d;

    *source = 0;
    if (d->source) {
        *source = blend_source(&d->blend, index, &index);
        from = d->source[*source];
    }
    *place = place_of(from, index);
    return from;
}

uint64_t data_sample_id(struct data *d, uint64_t index, size_t *source)
{
    uint64_t place;

    (void)source_of(d, index, source, &place);
    return place;
}

/* A mixture has no epoch that could end. */
size_t data_batch(const struct data *d, uint64_t first, size_t most)
{
    uint64_t left = data_samples(d) - first % data_samples(d);

    return left < most && !d->source ? (size_t)left : most;
}

/* ---- samples ---- */

static int make_room(struct data *d, size_t n, struct err *err)
{
    uint64_t room = (uint64_t)n * (d->seq + 1);

    if (n <= d->room)
        return 0;
    free(d->id);
    free(d->target);
    free(d->start);
    free(d->flag);
    d->room = 0;
    d->id = mem_alloc(room * sizeof(*d->id), "samples", err);
    d->target = mem_alloc(room * sizeof(*d->target), "samples", err);
    d->start = mem_alloc(room * sizeof(*d->start), "samples", err);
    d->flag = mem_alloc(d->seq + 1, "samples", err);
    if (!d->id || !d->target || !d->start || !d->flag)
        return -1;
    d->room = n;
    return 0;
}

/* Builds sample ID of FROM, D or a source of it, in entry I of D's buffers.  Its tokens
 * are masked as INDEX says. */
static int make_sample(struct data *d, const struct data *from, uint64_t id,
                       uint64_t index, size_t i, struct sample *out, struct err *err)
{
    uint64_t first = id * d->seq;
    uint64_t tokens = from->labelled ? 0 : corpus_tokens(from->corpus);
    int32_t *ids = d->id + i * (d->seq + 1), *targets = d->target + i * (d->seq + 1);
    size_t *start = d->start + i * (d->seq + 1), n = d->seq + 1, documents = 1;
    const bool masked = d->mask.probability > 0;

    if (from->labelled) {
        const struct labelled_sample s = labelled_get(from->labelled, id);

        *out = (struct sample){ .id = s.id,
                                .target = s.target,
                                .n = s.n,
                                .start = s.start,
                                .documents = s.documents,
                                .source = s.source,
                                .nsource = s.nsource,
                                .type = s.type,
                                .value = s.value,
                                .nvalues = s.nvalues,
                                .quoted = s.quoted,
                                .reference = { s.reference[0], s.reference[1] } };
        return 0;
    }
    if (d->pack == DATA_PACK_NONE) {
        first = from->document[id].first;
        n = from->document[id].n;
    } else if (tokens - first < n) {
        n = (size_t)(tokens - first);
    }
    if (masked && n > d->seq)
        n = d->seq;
    if (corpus_read(from->corpus, first, n, ids, d->flag, err) < 0)
        return -1;
    n -= !masked;
    start[0] = 0;
    for (size_t k = 0; k < n; k++) {
        if (!masked)
            targets[k] = d->flag[k + 1] ? -1 : ids[k + 1];
        if (k && (d->flag[k] & CORPUS_BEGINS))
            start[documents++] = k;
    }
    if (masked)
        masking_apply(&d->mask, index, ids, targets, n);
    *out = (struct sample){
        .id = ids, .target = targets, .n = n, .start = start, .documents = documents
    };
    return 0;
}

int data_fill(struct data *d, uint64_t first, size_t n, struct sample *out,
              struct err *err)
{
    if (make_room(d, n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        uint64_t place;
        size_t source;
        const struct data *from = source_of(d, first + i, &source, &place);

        if (make_sample(d, from, place, first + i, i, &out[i], err) < 0)
            return -1;
    }
    return 0;
}

int data_fill_held(struct data *d, uint64_t first, size_t n, struct sample *out,
                   struct err *err)
{
    if (make_room(d, n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        uint64_t at = first + i;
        const struct data *from;
        size_t s = 0;

        for (; d->source && at >= d->source[s]->held; s++)
            at -= d->source[s]->held;
        from = d->source ? d->source[s] : d;
        if (make_sample(d, from, data_samples(from) + at, UINT64_MAX - (first + i), i,
                        &out[i], err) < 0)
            return -1;
    }
    return 0;
}
