/* numbered - an optimizer's states by number, as states of a model's weights
 *
 * transformers' Trainer has two groups: the parameters that decay (model/decay.h), and
 * the others, each in the order of the model's modules (model/module-order.h); others
 * have one group of all. */
#ifndef LIB_RESHARD_NUMBERED_H
#define LIB_RESHARD_NUMBERED_H

#include "lib/base/err.h"
#include "lib/ckpt/source.h"
#include "lib/model/model.h"

/* Adds the moments of S->progress.parameter, with their groups, to the states of S,
 * which M is bound to.  ERR_INPUT when their number or a shape is another than such a
 * training has, ERR_NO when the family does not say the order. */
MUST_CHECK int numbered_apply(struct source *s, const struct model *m, struct err *err);

#endif
