/* option - what a family says about a tensor that only training reads
 *
 * The options "init" and "padding" of a tensor's definition (shardutils-family(5)). */
#ifndef LIB_MODEL_OPTION_H
#define LIB_MODEL_OPTION_H

#include "lib/model/model.h"

/* The number that option KEY of tensor T of M stands for in the tensor's layer.  *is
 * becomes false where the option is not given, or null. */
MUST_CHECK int option_number(const struct model *m, const struct model_tensor *t,
                             const char *key, bool *is, double *out, struct err *err);
/* The row of the embedding table T of the padding token; *is becomes false where it has
 * none.  That row is 0 at first, and rows that are looked up give it no gradient, as
 * with padding_idx in PyTorch, from which a negative number counts from the end. */
MUST_CHECK int option_padding(const struct model *m, const struct model_tensor *t,
                              bool *is, uint64_t *row, struct err *err);

#endif
