/* nomaster - updates of weights that are kept in bf16 alone
 *
 * Without an f32 master a weight is widened, updated in f32 and rounded to bf16 at
 * random (rounding.h), a piece at a time: small updates move it in the mean.  The
 * random numbers depend on the seed, the update, the tensor and the place in it, so all
 * layouts round alike. */
#ifndef LIB_TRAIN_NOMASTER_H
#define LIB_TRAIN_NOMASTER_H

#include "lib/train/parameters.h"

/* Makes update C, which is OP of the backend, its .x, .slot and numbers of what this
 * rank updates of weight I of P; T counts updates from 1.  Then the moving average, if
 * P keeps it, gets nearer by BY. */
MUST_CHECK int nomaster_update(struct parameters *p, int i, enum array_op op,
                               const struct array_call *c, uint64_t seed, uint64_t t,
                               double by, struct err *err);

#endif
