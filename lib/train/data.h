/* data - the samples that a model is trained on
 *
 * The documents of some files, packed into samples.  Which sample comes when depends on
 * the seed and on the sample's index alone, never on how many ranks there are: any rank
 * can ask for any of them.  Files of text are tokenized when they are opened, and their
 * ids lie in memory; token files are read as samples are asked for, by pread, so a
 * process that forks shares one data with its children. */
#ifndef LIB_TRAIN_DATA_H
#define LIB_TRAIN_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/text/tokenizer.h"

/* Some tokens to learn: TARGET[i] is the token after ID[i], -1 where it does not count.
 * A token sees those of its own document alone. */
struct sample {
    const int32_t *id, *target; /* [n] */
    size_t n;
    const size_t *start; /* [documents]: first token of each document; start[0] is 0 */
    size_t documents;    /* 0: one document, and no START */
};

enum data_pack {
    DATA_PACK_DOCUMENTS, /* joined, and cut at every SEQ tokens; none is left out */
    DATA_PACK_NONE       /* a document is a sample, cut at SEQ tokens */
};
extern const char *const data_pack_names[];

enum data_order { DATA_ORDER_SHUFFLED, DATA_ORDER_SEQUENTIAL };
extern const char *const data_order_names[];

struct data_options {
    const char *const *file;
    size_t nfiles;
    size_t seq; /* most tokens of a sample */
    enum data_pack pack;
    enum data_order order;
    uint64_t seed;
    const struct tokenizer *tokenizer; /* NULL: files of ids alone can be read */
    int32_t end_id; /* ends a document; -1: documents have no end id */
    uint64_t vocab; /* ids are below; 0: any */
    double held;    /* part of the samples that is held out, the last ones; 0: none */
    int threads;    /* that tokenize; 0: one */
};

struct data;

/* ERR_INPUT names file and line.  OPTIONS' files and tokenizer are not read later. */
MUST_CHECK int data_open(struct data **out, const struct data_options *options,
                         struct err *err);
void data_close(struct data *d);

uint64_t data_samples(const struct data *d); /* of one epoch; at least 1 */
uint64_t data_tokens(const struct data *d);  /* in all files, end ids included */

/* Samples FIRST to FIRST + N - 1 of the endless run; each epoch has an order of its
 * own. What they point to is valid until the next call on D. */
MUST_CHECK int data_fill(struct data *d, uint64_t first, size_t n, struct sample *out,
                         struct err *err);
/* Which of the epoch's samples, counted as the files have them, is number INDEX. */
uint64_t data_sample_id(const struct data *d, uint64_t index);

/* The samples that are held out, and FIRST to FIRST + N - 1 of them, as data_fill. */
uint64_t data_held(const struct data *d);
MUST_CHECK int data_fill_held(struct data *d, uint64_t first, size_t n,
                              struct sample *out, struct err *err);

#endif
