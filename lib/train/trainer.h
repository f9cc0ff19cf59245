/* trainer - one rank that trains: micro-batches to a global batch, to an update
 *
 * A global batch is dealt over the replicas of the mesh (dp), in order; a replica runs
 * its share in micro-batches, whose gradients are added in order, by a pipeline's table
 * of actions.  The loss is the mean over all tokens of the global batch that count.
 * The micro-batches that a stage has in flight each have an engine, that is an arena.
 * A sample's documents are segments of a step, so they do not see one another.
 *
 * Where sums are to be the same for any dp, the gradients of micro-batches are added in
 * a binary tree over their numbers in the global batch. */
#ifndef LIB_TRAIN_TRAINER_H
#define LIB_TRAIN_TRAINER_H

#include "lib/pipe/order.h"
#include "lib/run/runner.h"
#include "lib/train/data.h"
#include "lib/train/optimizer.h"

struct trainer_options {
    size_t length;           /* most tokens of a sample */
    int micro_batch, global; /* samples; global = micro_batch * their number * dp */
    enum order order;        /* ORDER_GPIPE or ORDER_1F1B */
    const struct action_table *table; /* instead, which outlives the call; or NULL */
    bool deterministic;               /* the same sums for any dp */
    double dropout;                   /* as program_options.dropout has it */
    uint64_t seed;                    /* of it */
    struct adamw adamw;
    double clip;
};

struct trainer_result {
    double loss, norm; /* before the update, and before clipping */
    uint64_t counted;  /* targets */
    bool skipped;      /* no update was made */
};

struct trainer {
    struct trainer_options options;
    const struct backend *ops;
    struct device *device;
    struct program *program;
    struct parameters parameters;
    struct optimizer optimizer;
    struct engine_groups groups;
    struct comm *data; /* the replicas of this rank */
    struct action_table table;
    uint64_t first;         /* number of the next step's first sample, for dropout */
    struct program *scored; /* without dropout, for evaluation; NULL: as trained */
    struct engine *scorer;  /* which runs it; NULL: not yet */
    double most_norm;       /* an update of a larger norm is skipped; 0: none is */
    struct engine **engine; /* [in_flight] */
    int *holds;             /* [in_flight]: micro-batch, -1: none */
    int in_flight;
    size_t segments; /* of a micro-batch, at most */
    double *loss;    /* [micro-batches of the global batch]: sums */
    float **partial; /* [levels + 1]: of the tree of gradients, the first that of one
                        micro-batch; NULL: gradients are added in order */
    int levels;
};

/* ERR_NO for a model that has nothing to learn from the token that follows. */
MUST_CHECK int trainer_check(const struct program *p, struct err *err);
/* Make rank WORLD->rank of MESH ready to train C; both must outlive it. */
MUST_CHECK int trainer_open(struct trainer *t, struct checkpoint *c,
                            const struct mesh *mesh,
                            const struct runner_machine *machine, struct comm *world,
                            const struct trainer_options *options, struct err *err);
void trainer_close(struct trainer *t);
/* One update at the rate RATE from the global batch at SAMPLE, the same on all ranks,
 * as is *result.  None is made where the norm or the loss is no number, or the norm is
 * above .most_norm. */
MUST_CHECK int trainer_step(struct trainer *t, const struct sample *sample, double rate,
                            struct trainer_result *result, struct err *err);
/* Add to *SUM the likelihoods of the targets of the N samples at SAMPLE, and to
 * *COUNTED how many they are; the same on all ranks. */
MUST_CHECK int trainer_evaluate(struct trainer *t, const struct sample *sample,
                                size_t n, double *sum, uint64_t *counted,
                                struct err *err);
/* Bytes of a micro-batch in flight: TOKENS of SEGMENTS documents, without the cache. */
uint64_t trainer_arena(const struct program *p, size_t tokens, size_t segments);
/* Bytes that this rank has for weights, gradients, the optimizer and activations. */
uint64_t trainer_bytes(const struct trainer *t);

#endif
