/* labelled - texts with labels, in memory
 *
 * Each object of the JSON lines is one sample: "ids" or "text", and "label", the class
 * of the text, or "labels", that of each token; or a prompt with two answers, "chosen"
 * and "rejected", and their log-likelihoods by the model at the beginning; or "source"
 * and "target". */
#ifndef LIB_TRAIN_LABELLED_H
#define LIB_TRAIN_LABELLED_H

#include "lib/train/texts.h"

struct labelled;

/* How the tokens that a decoder reads follow from what it is to make: they begin with
 * an id, or with the last of them. */
struct labelled_shift {
    bool is; /* it reads a source: if lines have none, their ids are */
    bool wraps;
    int32_t start;
};

/* Reads the N files at FILE in this order; OPTIONS.labels says which labels they have.
 * Of a text of more than SEQ tokens the last one, which its tokenizer may have added,
 * comes after the first SEQ - 1. */
MUST_CHECK int labelled_open(struct labelled **out, const char *const *file, size_t n,
                             const struct texts_options *options,
                             const struct labelled_shift *shift, size_t seq,
                             struct err *err);
void labelled_close(struct labelled *l);

uint64_t labelled_samples(const struct labelled *l);
uint64_t labelled_tokens(const struct labelled *l);
/* Has any sample a label, or a pair an answer? */
bool labelled_counts(const struct labelled *l);
/* Samples that were too long, and the tokens that were left out of them. */
void labelled_cut(const struct labelled *l, uint64_t *samples, uint64_t *tokens);
/* The most documents of a sample. */
size_t labelled_documents_most(const struct labelled *l);
/* The longest source of a sample. */
size_t labelled_source_most(const struct labelled *l);

struct labelled_sample {
    const int32_t *id, *target; /* [n]: the label of each token, or -1; that of a text
                                 * is at its last token */
    size_t n;
    const int32_t *type;   /* [n]: token types; or NULL */
    const int32_t *source; /* [nsource]: what an encoder reads */
    size_t nsource;
    const size_t *start; /* [documents] */
    size_t documents;
    double reference[2]; /* of a pair: their negative log-likelihoods */
    const double *value; /* [nvalues]: labels that are numbers; or NULL */
    size_t nvalues;
    const struct squad_text *quoted; /* of a question; or NULL */
};
/* Sample I, valid as long as L. */
struct labelled_sample labelled_get(const struct labelled *l, uint64_t i);

#endif
