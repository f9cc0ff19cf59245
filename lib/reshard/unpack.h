/* unpack - the values of quantised weights
 *
 * One table has the forms in which files keep them (model_packing); each makes the
 * same of them: rows of numbers, in the order in which programs have a part's
 * weights. */
#ifndef LIB_RESHARD_UNPACK_H
#define LIB_RESHARD_UNPACK_H

#include "lib/reshard/checkpoint.h"

/* Make the ROWS x COLS values that L's part has of tensor T, as type TO, in OUT.  What
 * is missing or contradicts itself is ERR_INPUT and names the tensor. */
MUST_CHECK int unpack_weight(struct loader *l, const struct checkpoint *c, size_t t,
                             const struct model_packing *p, uint64_t rows,
                             uint64_t cols, enum dtype to, void *out, struct err *err);

#endif
