/* data - training samples */
#include "lib/train/data.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/train/corpus.h"

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
    struct document *document; /* [all], for DATA_PACK_NONE */
    size_t cap;
    uint64_t all, held; /* number of samples, and of those held out */
    struct data_left left;
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
    uint64_t tokens = corpus_tokens(d->corpus);

    if (d->pack == DATA_PACK_NONE) {
        if (corpus_documents(d->corpus, add_document, d, err) < 0)
            return -1;
    } else if (tokens > 1) {
        d->all = (tokens - 1 + d->seq - 1) / d->seq;
    }
    if (!d->all)
        return err_set(err, ERR_INPUT, "%s%s: no sample of two tokens", o->file[0],
                       o->nfiles > 1 ? " and the others" : "");
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

int data_open(struct data **out, const struct data_options *options, struct err *err)
{
    const struct texts_options texts = { .tokenizer = options->tokenizer,
                                         .chat = options->chat,
                                         .no_chat = options->no_chat,
                                         .last_answer = options->last_answer,
                                         .end_id = options->end_id,
                                         .vocab = options->vocab,
                                         .threads = options->threads };
    struct data *d = xcalloc(1, sizeof(*d));

    d->seq = options->seq;
    d->pack = options->pack;
    d->order = options->order;
    d->seed = options->seed;
    if (corpus_open(&d->corpus, options->file, options->nfiles, &texts, options->width,
                    err) < 0 ||
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
    corpus_close(d->corpus);
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
    return corpus_check(d->corpus, see, arg, err);
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
    return corpus_tokens(d->corpus);
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

uint64_t data_sample_id(const struct data *d, uint64_t index)
{
    uint64_t n = data_samples(d);

    return d->order == DATA_ORDER_SEQUENTIAL
               ? index % n
               : permute(index % n, n, d->seed, index / n);
}

size_t data_batch(const struct data *d, uint64_t first, size_t most)
{
    uint64_t left = data_samples(d) - first % data_samples(d);

    return left < most ? (size_t)left : most;
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

/* Builds sample ID in entry I of the buffers. */
static int make_sample(struct data *d, uint64_t id, size_t i, struct sample *out,
                       struct err *err)
{
    uint64_t first = id * d->seq, tokens = corpus_tokens(d->corpus);
    int32_t *ids = d->id + i * (d->seq + 1), *targets = d->target + i * (d->seq + 1);
    size_t *start = d->start + i * (d->seq + 1), n = d->seq + 1, documents = 1;

    if (d->pack == DATA_PACK_NONE) {
        first = d->document[id].first;
        n = d->document[id].n;
    } else if (tokens - first < n) {
        n = (size_t)(tokens - first);
    }
    if (corpus_read(d->corpus, first, n--, ids, d->flag, err) < 0)
        return -1;
    start[0] = 0;
    for (size_t k = 0; k < n; k++) {
        targets[k] = d->flag[k + 1] ? -1 : ids[k + 1];
        if (k && (d->flag[k] & CORPUS_BEGINS))
            start[documents++] = k;
    }
    *out = (struct sample){ ids, targets, n, start, documents };
    return 0;
}

int data_fill(struct data *d, uint64_t first, size_t n, struct sample *out,
              struct err *err)
{
    if (make_room(d, n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (make_sample(d, data_sample_id(d, first + i), i, &out[i], err) < 0)
            return -1;
    return 0;
}

int data_fill_held(struct data *d, uint64_t first, size_t n, struct sample *out,
                   struct err *err)
{
    if (make_room(d, n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (make_sample(d, data_samples(d) + first + i, i, &out[i], err) < 0)
            return -1;
    return 0;
}
