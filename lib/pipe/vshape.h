/* vshape - schedules of V shape from repeated building blocks
 *
 * Qi et al. 2024, "Pipeline Parallelism with Controllable Memory": each rank has one
 * stage on the way down and one on the way up, and a block of one micro-batch's six
 * passes repeats every six steps.  How long a block keeps its activations decides what
 * a rank holds: v-min (p+4)/3 micro-batches of p ranks, v-half (p+2)/2, rounded down,
 * where zb-v holds p. */
#ifndef LIB_PIPE_VSHAPE_H
#define LIB_PIPE_VSHAPE_H

#include "lib/pipe/action.h"

enum vshape { VSHAPE_MIN, VSHAPE_HALF };

/* Fills T, which has two stages on each rank: stage S of the way down and stage
 * t->stages - 1 - S on rank S; sets rank_of. */
void vshape_make(struct action_table *t, enum vshape shape);

#endif
