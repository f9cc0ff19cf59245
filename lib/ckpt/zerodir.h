/* zerodir - reads checkpoints of DeepSpeed's ZeRO, stages 0 to 3
 *
 * A directory has the file latest, which names a tag, and the directory of that tag:
 * model states (names, shapes, buffers, frozen parameters) and, for stages 1 to 3, each
 * rank's optimizer states with its part of the flat vectors of f32 masters.  Facts:
 * DeepSpeed 0.19, deepspeed/utils/zero_to_fp32.py and runtime/zero/.
 *
 * Stages 1 and 2: the vector of a parameter group is the ranks' parts joined; its
 * parameters follow one another in the order of param_shapes, each with its padding.
 * Stage 3: every rank has ceil(n / ranks) elements of each parameter, in that order.
 * The universal form, which DeepSpeed converts to, has a directory zero with a file of
 * each parameter.
 * Trained parameters are the f32 masters; frozen ones, buffers, and all of stage 0 have
 * the type that they were trained in. */
#ifndef LIB_CKPT_ZERODIR_H
#define LIB_CKPT_ZERODIR_H

#include "lib/ckpt/form.h"

extern const struct source_ops zerodir_ops;

#endif
