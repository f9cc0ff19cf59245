/* gradients - sums of gradients: over micro-batches, replicas, ranks and stages
 *
 * A micro-batch's gradients are added by the engine, in device memory.  In order, they
 * are added to the store's, and replicas add up theirs at the end of a step.  In a
 * tree, each micro-batch has gradients of its own, which replicas add up at once; then
 * two neighbours are added, the earlier first, as soon as both are there: LEVELS copies
 * of the sums are kept for that.
 *
 * Where replicas share the updates (struct parameters_owner), each needs only the sum
 * of its own ranges; afterwards they exchange the weights.  From stage 2 on the engine
 * adds to a room, in which a unit of weights has a place while its gradients are made
 * (shards.h); then replicas add them up, and each adds its ranges to its sums. */
#ifndef LIB_TRAIN_GRADIENTS_H
#define LIB_TRAIN_GRADIENTS_H

#include "lib/run/engine.h"
#include "lib/run/link.h"
#include "lib/train/parameters.h"
#include "lib/train/squares.h"

/* The ranks that have the same weights, of dp and sp: those that share them, and, if
 * these are not all, the same rank of all such groups; else NULL. */
struct gradients_replicas {
    struct comm *sharing, *across;
    struct comm *experts; /* the ranks that divide experts, and have all else alike,
                           * too; their tokens differ, as those of dp do.  NULL: one */
};

struct gradients {
    struct parameters *p;
    const struct engine_groups *groups;
    struct gradients_replicas replicas;
    bool scattered; /* a replica has the sums of its own ranges alone */
    struct link link;
    float *
        *into; /* [nweights]: where the engine adds each weight's; NULL: not trained */
    float **level; /* [levels][sums]: level 0 has one micro-batch's, level i the sum of
                    * 2^(i-1); NULL: gradients are added in order */
    int levels;
    uint64_t sums;           /* elements: of all that are trained, or of this rank's */
    struct unit_stays makes; /* of stages 2 and 3 */
    float *made;             /* [makes.room] */
    float *apart;            /* [napart]: of their units that are .apart */
    uint64_t napart;
    float *room; /* [nroom]: what comes from another rank, or one whole tensor */
    uint64_t nroom;
    uint64_t *squares; /* [SQUARES_WORDS] */
    struct gradients_range {
        const float *first;
        uint64_t n;
    } * owned; /* [nowned]: sums of elements whose primary replica is on this rank */
    size_t nowned;
};

/* For the gradients of P, whose ties were found (ties.h); all arguments must outlive
 * *g; the ranks of GROUPS' pipe are the stages.  LEVELS: of a tree over 2^(LEVELS - 1)
 * micro-batches; 0: in order. */
MUST_CHECK int gradients_open(struct gradients *g, struct parameters *p,
                              const struct engine_groups *groups,
                              struct gradients_replicas replicas, int levels,
                              struct err *err);
void gradients_close(struct gradients *g);
/* Adds what it has allocated: "gradients", "gradient_sums", "gradient_exchange" and
 * "staging". */
void gradients_memory(const struct gradients *g, struct ledger *list);

/* A step: begin, for each micro-batch in order begin_micro, the engine's, end_micro,
 * and sum, which makes the store's gradients those of all ranks with the same stage. */
MUST_CHECK int gradients_begin(struct gradients *g, struct err *err);
MUST_CHECK int gradients_begin_micro(struct gradients *g, struct err *err);
MUST_CHECK int gradients_end_micro(struct gradients *g, int micro_batch,
                                   struct err *err);
/* Before the engine begins, and after it has ended, the gradients of a unit. */
MUST_CHECK int gradients_begin_unit(struct gradients *g, const struct unit_stay *s,
                                    struct err *err);
MUST_CHECK int gradients_end_unit(struct gradients *g, const struct unit_stay *s,
                                  struct err *err);
MUST_CHECK int gradients_sum(struct gradients *g, struct err *err);
/* Sends this rank's sums of weight I to STAGE, which has it, too; adds what that sends
 * to them; takes what it sends for them. */
MUST_CHECK int gradients_send(struct gradients *g, int i, int stage, struct err *err);
MUST_CHECK int gradients_receive_term(struct gradients *g, int i, int stage,
                                      struct err *err);
MUST_CHECK int gradients_receive_sum(struct gradients *g, int i, int stage,
                                     struct err *err);
/* Sums the squares of the gradients whose primary replica is on this rank; with
 * .scattered those of its own ranges, which all that share add up to. */
MUST_CHECK int gradients_squares(struct gradients *g, double word[SQUARES_WORDS],
                                 struct err *err);
/* After an update: gives every replica the weights that the others have updated. */
MUST_CHECK int gradients_spread(struct gradients *g, struct err *err);
/* Begins to gather the weights of the unit of S to their place in the store's room, and
 * waits for the first unit that was begun. */
MUST_CHECK int gradients_gather(struct gradients *g, const struct unit_stay *s,
                                struct err *err);
MUST_CHECK int gradients_gathered(struct gradients *g, struct err *err);

#endif
