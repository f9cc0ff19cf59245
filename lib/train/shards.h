/* shards - weights and gradients that a rank has only while a step needs them
 *
 * Of stage 2 of ZeRO on, gradients of a unit of weights (program/units.h) have memory
 * while they are made; then replicas add them up, and each keeps its part.  In stage 3,
 * the weights of a unit are gathered from all replicas before the first instruction
 * that reads them, while the unit before is computed, in the forward pass and in the
 * reverse, and dropped after the last. */
#ifndef LIB_TRAIN_SHARDS_H
#define LIB_TRAIN_SHARDS_H

#include "lib/train/gradients.h"

struct shards {
    struct gradients *g;
    struct unit_stays reads; /* of the program */
    const struct unit_stays *makes;
    bool *turns; /* [ninsts + 1]: something is due before the instruction */
};

/* For steps of PROGRAM, which has the weights of G's store, and, if it has a reverse,
 * is the program of that.  G must outlive *s. */
void shards_open(struct shards *s, struct gradients *g, const struct program *program);
void shards_close(struct shards *s);
/* E runs PROGRAM; *s must outlive it. */
void shards_follow(struct shards *s, struct engine *e);

#endif
