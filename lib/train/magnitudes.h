/* magnitudes - DoRA in training: norms that follow the adapter's matrices */
#ifndef LIB_TRAIN_MAGNITUDES_H
#define LIB_TRAIN_MAGNITUDES_H

#include "lib/run/adapter.h"
#include "lib/train/parameters.h"

/* Makes the norms of P's adapters from their matrices as they are, if they have any
 * (adapternorm.h).  BEGINS: magnitudes that no file has become the norms.  Collective
 * over TENSOR, the tensor group, and SHARING, those that share P. */
MUST_CHECK int magnitudes_follow(struct parameters *p, const struct adapter *begins,
                                 struct comm *tensor, struct comm *sharing, int threads,
                                 struct err *err);

#endif
