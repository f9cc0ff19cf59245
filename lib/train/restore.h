/* restore - reads the training state of a checkpoint
 *
 * It may be of any layout, and of any division of the state among replicas. */
#ifndef LIB_TRAIN_RESTORE_H
#define LIB_TRAIN_RESTORE_H

#include "lib/train/trainer.h"

/* Loads f32 values of T's weights from C's training state, where C has them.  WHOLE:
 * also the moments, which must be there. */
MUST_CHECK int restore_state(struct trainer *t, struct checkpoint *c, bool whole,
                             struct err *err);

#endif
