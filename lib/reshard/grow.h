/* grow - a model with more rows of the vocabulary than its files have
 *
 * For tokens that were added to a tokenizer: the rows behind those of the files are the
 * mean of these, as resize_token_embeddings of transformers makes them but for its
 * noise, or zeros, in the type of the tensor. */
#ifndef LIB_RESHARD_GROW_H
#define LIB_RESHARD_GROW_H

#include "lib/reshard/checkpoint.h"

struct grown;

/* Makes C, which is not sharded, a model of ROWS tokens: its config's vocab_size, and
 * the shape of each tensor whose first axis counts tokens.  The caller binds the model
 * to the tensors again.  ERR_USAGE where the model has more tokens than that, ERR_NO
 * where its tensors cannot be grown. */
MUST_CHECK int grow_vocab(struct checkpoint *c, uint64_t rows,
                          const struct checkpoint_options *opt, struct err *err);
/* Afterwards: makes the new rows of all tensors, which reads the others. */
MUST_CHECK int grow_rows(struct checkpoint *c, bool zero, struct err *err);
void grown_free(struct grown *g);
/* How many of the N bytes of tensor I from OFFSET on the files have; G may be NULL. */
size_t grown_stored(const struct grown *g, size_t i, uint64_t offset, size_t n);
/* Fills BUF with N bytes from OFFSET, which the files do not have. */
void grown_fill(const struct grown *g, size_t i, uint64_t offset, void *buf, size_t n);

#endif
