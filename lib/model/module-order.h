/* module-order - the numbers that an optimizer of PyTorch gives a model's parameters
 *
 * PyTorch numbers parameters in the order in which modules define them.  A family's
 * "order" lists the keys of its tensors so; neighbours in that list that belong to one
 * repeated section follow one another in each layer of it, and in each expert. */
#ifndef LIB_MODEL_MODULE_ORDER_H
#define LIB_MODEL_MODULE_ORDER_H

#include <stddef.h>

#include "lib/base/err.h"
#include "lib/model/model.h"

/* Sets *out, which the caller frees, to the *n tensors of the bound M that an optimizer
 * may have, in that order: those that are stored, are tied to no other and are trained
 * at all.  ERR_NO when the family does not say the order of one. */
MUST_CHECK int order_new(size_t **out, size_t *n, const struct model *m,
                         struct err *err);

#endif
