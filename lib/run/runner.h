/* runner - a rank that is ready to run: its program, weights and engine
 *
 * The replicas of the mesh (dp x ep) share out the inputs.  The ranks of a replica run
 * the same steps, stage after stage; expert-parallel replicas all run the same number
 * of steps.  An output is on the tensor group of one stage.  From there it is sent to
 * rank 0 of the world, the driver, which talks to the user and says what the next step
 * is (plan.h). */
#ifndef LIB_RUN_RUNNER_H
#define LIB_RUN_RUNNER_H

#include "lib/run/engine.h"
#include "lib/run/weights.h"

/* The machine that a rank runs on. */
struct runner_machine {
    const struct backend *ops; /* NULL: the best available backend */
    int threads;
    int local;  /* index of this rank on its machine plus 1; 0: all ranks are on one
                 * machine */
    int across; /* ranks of a sequence group that exchange heads; 0: all */
    enum format kept;       /* type of the KV cache */
    enum weights_form form; /* of the weights of products */
    bool unfused;           /* each instruction by itself */
    uint64_t steps;         /* single tokens that are expected of a text; 0: not many */
    int ranks;              /* on its machine; 0: all */
    const int *devices;     /* [ndevices]: the machine's devices to use, in order of its
                             * ranks; NULL: each rank the one of its index */
    int ndevices;
    struct wires_setup wires;
};

struct runner {
    const struct backend *ops;
    struct device *device;
    struct program *program;
    struct weights weights;
    struct engine *engine;
    size_t chunk;       /* most prompt tokens of a step */
    struct comm *world; /* all ranks; borrowed */
    struct engine_groups groups;
    struct wires wires;
    bool shares;            /* ranks use one device, as none of them sees another */
    int stage, nstages;     /* of the pipeline */
    int replica, nreplicas; /* index over dp x ep */
};

/* Creates the group of the ranks in WORLD whose coordinates differ from COORD along
 * AXIS only.  Collective over the group. */
MUST_CHECK int runner_group(struct comm **out, struct comm *world,
                            const struct mesh *mesh, const int coord[MESH_NAXES],
                            enum mesh_axis axis, struct err *err);
/* The same along OUTER and INNER, which varies faster. */
MUST_CHECK int runner_group_over(struct comm **out, struct comm *world,
                                 const struct mesh *mesh, const int coord[MESH_NAXES],
                                 enum mesh_axis outer, enum mesh_axis inner,
                                 struct err *err);
/* Opens the device of rank WORLD->rank: the one of MACHINE's list, or of its machine,
 * with the rank's index among its ranks.  ERR_USAGE: the list is too short;
 * ERR_SYSTEM: there is no such device. */
MUST_CHECK int runner_device(struct device **out, const struct backend *ops,
                             const struct runner_machine *machine,
                             const struct comm *world, struct err *err);
/* Prepares rank WORLD->rank of MESH to run C.  C and WORLD must outlive *r. */
MUST_CHECK int runner_open(struct runner *r, struct checkpoint *c,
                           const struct mesh *mesh,
                           const struct runner_machine *machine, struct comm *world,
                           const struct program_options *options,
                           const struct engine_limits *limits, struct err *err);
/* RET is the status of all work of R.  When it is 0, waits until all ranks are done, so
 * that they end together.  Returns the status. */
MUST_CHECK int runner_finish(struct runner *r, int ret, struct err *err);
void runner_close(struct runner *r);
/* Adds what the rank has allocated, and mapped. */
void runner_memory(const struct runner *r, struct ledger *list);

/* True when replicas wait for each other in each step (expert parallelism): all of them
 * run it, with texts or without. */
bool runner_keeps_step(const struct runner *r);
bool runner_is_last(const struct runner *r); /* is this the last stage? */
/* Messages between the driver and STAGE of REPLICA, which is the first rank of the
 * stage's tensor and sequence groups.  Both functions that send are no-ops on ranks
 * other than the sender, runner_receive on ranks other than the driver; all are where
 * sender and receiver are one rank.  Nobody waits for a receiver. */
MUST_CHECK int runner_send(struct runner *r, int stage, const void *buf, size_t bytes,
                           struct err *err);
MUST_CHECK int runner_receive(struct runner *r, int replica, int stage, void *buf,
                              size_t bytes, struct err *err);
MUST_CHECK int runner_send_down(struct runner *r, int replica, int stage,
                                const void *buf, size_t bytes, struct err *err);

#endif
