/* pytorchgroups - the groups of parameters of another trainer's checkpoint */
#ifndef LIB_RESHARD_PYTORCHGROUPS_H
#define LIB_RESHARD_PYTORCHGROUPS_H

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/model/decay.h"
#include "lib/reshard/checkpoint.h"

/* The groups of C must be AdamW's, and alike in what tp-run's optimizer has once.
 * ERR_NO, or ERR_INPUT for one that has no rate. */
MUST_CHECK int pytorchgroups_check(const struct checkpoint *c, struct err *err);
/* Sets *kind and *decay to those by which the weights of C decay, whose optimizer's
 * states and groups C has; NaN: no group says.  False, if they decay by different
 * numbers or others than a kind can say. */
bool pytorchgroups_decay(enum decay_kind *kind, double *decay,
                         const struct checkpoint *c);

#endif
