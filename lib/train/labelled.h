/* labelled - texts with labels, in memory
 *
 * Each object of the JSON lines is one sample: "ids" or "text", and "label", the class
 * of the text, or "labels", that of each token; or a prompt with two answers, "chosen"
 * and "rejected", and their log-likelihoods by the model at the beginning. */
#ifndef LIB_TRAIN_LABELLED_H
#define LIB_TRAIN_LABELLED_H

#include "lib/train/texts.h"

struct labelled;

/* Reads the N files at FILE in this order; OPTIONS.labels says which labels they have.
 * Of a text of more than SEQ tokens the last one, which its tokenizer may have added,
 * comes after the first SEQ - 1. */
MUST_CHECK int labelled_open(struct labelled **out, const char *const *file, size_t n,
                             const struct texts_options *options, size_t seq,
                             struct err *err);
void labelled_close(struct labelled *l);

uint64_t labelled_samples(const struct labelled *l);
uint64_t labelled_tokens(const struct labelled *l);
/* Has any sample a label, or a pair an answer? */
bool labelled_counts(const struct labelled *l);
/* Samples that were too long, and the tokens that were left out of them. */
void labelled_cut(const struct labelled *l, uint64_t *samples, uint64_t *tokens);
/* Copies sample I; returns the number of its tokens.  TARGET[k] is the label of token
 * k, or -1; that of a text is at its last token.  *second is the first token of the
 * second answer, 0 if there is none, and REFERENCE their negative log-likelihoods. */
size_t labelled_get(const struct labelled *l, uint64_t i, int32_t *id, int32_t *target,
                    size_t *second, double reference[2]);

#endif
