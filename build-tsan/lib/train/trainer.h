/* trainer - one rank that trains: micro-batches to a global batch, to an update
 *
 * A global batch is dealt over the replicas of the mesh (dp), in order; a replica runs
 * its share in micro-batches, whose gradients are added in order, by a pipeline's table
 * of actions.  The loss is the mean over all tokens of the global batch that count.
 * The micro-batches that a stage has in flight each have an engine, that is an arena.
 */
#ifndef LIB_TRAIN_TRAINER_H
#define LIB_TRAIN_TRAINER_H

#include "lib/pipe/order.h"
#include "lib/run/runner.h"
#include "lib/train/optimizer.h"

/* A text to learn: TARGET[i] is the token after ID[i], -1 where it does not count. */
struct sample {
    const int32_t *id, *target;
    size_t n;
};

struct trainer_options {
    size_t length;           /* most tokens of a sample */
    int micro_batch, global; /* samples; global = micro_batch * their number * dp */
    enum order order;        /* ORDER_GPIPE or ORDER_1F1B */
    struct adamw adamw;
    double clip;
};

struct trainer_result {
    double loss, norm; /* before the update, and before clipping */
    uint64_t counted;  /* targets */
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
    struct engine **engine; /* [in_flight] */
    int *holds;             /* [in_flight]: micro-batch, -1: none */
    int in_flight;
};

/* Make rank WORLD->rank of MESH ready to train C; both must outlive it. */
MUST_CHECK int trainer_open(struct trainer *t, struct checkpoint *c,
                            const struct mesh *mesh,
                            const struct runner_machine *machine, struct comm *world,
                            const struct trainer_options *options, struct err *err);
void trainer_close(struct trainer *t);
/* One update at the rate RATE from the global batch at SAMPLE, the same on all ranks,
 * as is *result. */
MUST_CHECK int trainer_step(struct trainer *t, const struct sample *sample, double rate,
                            struct trainer_result *result, struct err *err);

#endif
