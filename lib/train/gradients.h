/* gradients - sums of gradients: over micro-batches, replicas, ranks and stages
 *
 * A micro-batch's gradients are added by the engine, in device memory.  In order, they
 * are added to the store's; in a tree, each micro-batch has gradients of its own, and
 * two neighbours are added, the earlier first, as soon as both are there: LEVELS copies
 * of the gradients are kept for that.
 *
 * Where replicas share the updates (struct parameters_owner), each needs only the sum
 * of its own range; afterwards they exchange the weights. */
#ifndef LIB_TRAIN_GRADIENTS_H
#define LIB_TRAIN_GRADIENTS_H

#include "lib/run/engine.h"
#include "lib/run/link.h"
#include "lib/train/parameters.h"
#include "lib/train/squares.h"

struct gradients {
    struct parameters *p;
    const struct engine_groups *groups;
    struct comm *data; /* replicas */
    bool scattered;    /* a replica has the sum of its own range alone */
    struct link link;
    float *
        *into; /* [nweights]: where the engine adds each weight's; NULL: not trained */
    float **level; /* [levels][trained]: level 0 has one micro-batch's, level i the sum
                    * of 2^(i-1); NULL: gradients are added in order */
    int levels;
    float *room; /* [nroom]: what comes from another rank, or one whole tensor */
    uint64_t nroom;
    uint64_t *squares; /* [SQUARES_WORDS] */
    struct gradients_range {
        uint64_t first, n;
    } * owned; /* [nowned]: elements whose primary replica is on this rank */
    size_t nowned;
};

/* For the gradients of P, whose parameters_find_shared was called; all arguments must
 * outlive *g.  LEVELS: of a tree over 2^(LEVELS - 1) micro-batches; 0: in order. */
MUST_CHECK int gradients_open(struct gradients *g, struct parameters *p,
                              const struct engine_groups *groups, struct comm *data,
                              int levels, struct err *err);
void gradients_close(struct gradients *g);
/* Adds what it has allocated: "gradient_sums", "gradient_exchange" and "staging". */
void gradients_memory(const struct gradients *g, struct ledger *list);

/* A step: begin, for each micro-batch in order begin_micro, the engine's, end_micro,
 * and sum, which makes the store's gradients those of all ranks. */
MUST_CHECK int gradients_begin(struct gradients *g, struct err *err);
MUST_CHECK int gradients_begin_micro(struct gradients *g, struct err *err);
MUST_CHECK int gradients_end_micro(struct gradients *g, int micro_batch,
                                   struct err *err);
MUST_CHECK int gradients_sum(struct gradients *g, struct err *err);
/* Sums the squares of the gradients whose primary replica is on this rank; with
 * .scattered those of its own range, which all replicas add up to. */
MUST_CHECK int gradients_squares(struct gradients *g, double word[SQUARES_WORDS],
                                 struct err *err);
/* After an update: gives every replica the weights that the others have updated. */
MUST_CHECK int gradients_spread(struct gradients *g, struct err *err);

#endif
