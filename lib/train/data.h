/* data - training samples
 *
 * Packs the documents of the files into samples.  Which sample has a given index
 * depends only on the seed and the index, not on the number of ranks; any rank can
 * request any sample.  Text files are tokenized when they are opened and their ids stay
 * in memory.  Token files are read on demand with pread, so a process may share an
 * opened data with forked children. */
#ifndef LIB_TRAIN_DATA_H
#define LIB_TRAIN_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/text/tokenizer.h"
#include "lib/train/chats.h"
#include "lib/train/labelled.h"
#include "lib/train/losses.h"
#include "lib/train/masking.h"
#include "lib/train/tokenfile.h"

/* A training sample.  TARGET[i] is the token after ID[i], or the label of ID[i], or -1
 * where no loss is computed.  A token attends only to its own document. */
struct sample {
    const int32_t *id, *target; /* [n] */
    size_t n;
    const size_t *start;   /* [documents]: first token of each; start[0] is 0 */
    size_t documents;      /* 0: one document, without START */
    const int32_t *source; /* [nsource]: what an encoder reads; or NULL */
    size_t nsource;
    const int32_t *type; /* [n]: token types; or NULL: 0 */
    const double *value; /* [nvalues]: labels that are numbers; or NULL */
    size_t nvalues;
    double reference[2]; /* of a pair, which has two: their negative log-likelihoods by
                          * the model at the beginning */
    const struct squad_text *quoted; /* of a question; or NULL */
};

enum data_pack {
    DATA_PACK_DOCUMENTS, /* concatenated, then split every SEQ tokens; no token is
                          * dropped */
    DATA_PACK_NONE       /* one document per sample, truncated to SEQ tokens */
};
extern const char *const data_pack_names[];

enum data_order { DATA_ORDER_SHUFFLED, DATA_ORDER_SEQUENTIAL };
extern const char *const data_order_names[];

struct data_options {
    const char *const *file;
    size_t nfiles;
    const double *weight; /* [nfiles]: each file is a source, with its own epochs, whose
                           * samples are mixed in these proportions (blend.h).  NULL:
                           * the files are one after another */
    size_t seq;           /* most tokens of a sample */
    enum data_pack pack;
    enum data_order order;
    uint64_t seed;
    const struct tokenizer *tokenizer; /* NULL: only files of ids can be read */
    const struct chat *chat;           /* its template of chats; or NULL, */
    const char *no_chat;               /* because of this, or NULL */
    bool last_answer;                  /* as in chats_options */
    int32_t end_id;                    /* appended to each document; -1: no end id */
    uint64_t vocab;                    /* ids are smaller; 0: no limit */
    enum token_width width;            /* of the ids of token files without a header */
    double held; /* fraction of the samples to hold out, from the end; 0: none */
    int threads; /* threads of the tokenization; 0: one */
    enum loss_labels labels;       /* those that a sample has */
    struct masking mask;           /* with LABELS_MASKED; its special ids are not used
                                    * after the call */
    struct labelled_shift shift;   /* of a decoder that reads a source, */
    uint64_t source_vocab;         /* whose ids are smaller; 0: no limit; */
    size_t source_most;            /* and which is at most so long; 0: any length */
    bool unscaled, references;     /* with LABELS_DRAWN: as in texts_options, */
    uint32_t types;                /* too */
    const char *const *class_name; /* [classes]: with LABELS_TEXT and LABELS_TOKENS */
    size_t classes;
};

struct data;

/* Opens the files; ERR_INPUT names file and line.  OPTIONS' files and tokenizer are not
 * used after the call. */
MUST_CHECK int data_open(struct data **out, const struct data_options *options,
                         struct err *err);
void data_close(struct data *d);

/* What DATA_PACK_NONE has left out. */
struct data_left {
    uint64_t documents;   /* of these in all, */
    uint64_t empty;       /* so many have no target, and are no samples; */
    uint64_t cut, tokens; /* of so many, so many last tokens are left out, */
    bool keeps_last;      /* or, with labels, those before the last */
};
struct data_left data_left(const struct data *d);
/* Reads all ids on disk: ERR_INPUT names the first that is not in the vocabulary.  SEE,
 * unless NULL, is told how many of ALL tokens are done. */
MUST_CHECK int data_check(struct data *d,
                          void (*see)(void *arg, uint64_t done, uint64_t all),
                          void *arg, struct err *err);

uint64_t data_samples(const struct data *d);      /* per epoch; at least 1 */
uint64_t data_tokens(const struct data *d);       /* in all files, including end ids */
size_t data_source_most(const struct data *d);    /* tokens of the longest source */
size_t data_documents_most(const struct data *d); /* of a sample with labels; or 0 */

/* Fills OUT with the samples [FIRST, FIRST + N) of the endless sequence of epochs; each
 * epoch has its own order.  Of a mixture, epochs are those of each source, and what
 * data_samples tells is the number of samples of all.  The samples' arrays are valid
 * until the next call on D. */
MUST_CHECK int data_fill(struct data *d, uint64_t first, size_t n, struct sample *out,
                         struct err *err);
/* Number of samples from index FIRST to the end of its epoch, but at most MOST. */
size_t data_batch(const struct data *d, uint64_t first, size_t most);
/* The position in the files (0 based) of the sample with index INDEX, of a mixture in
 * the file of its source, which is *SOURCE. */
uint64_t data_sample_id(struct data *d, uint64_t index, size_t *source);
/* The number of sources of a mixture; 0: it is none. */
size_t data_sources(const struct data *d);
/* The epoch of each source, and the next sample in it, before index INDEX. */
struct data_cursor {
    uint64_t epoch, sample;
};
void data_cursors(struct data *d, uint64_t index, struct data_cursor *out);

/* The number of held-out samples; samples [FIRST, FIRST + N) of them, as data_fill. */
uint64_t data_held(const struct data *d);
MUST_CHECK int data_fill_held(struct data *d, uint64_t first, size_t n,
                              struct sample *out, struct err *err);

#endif
