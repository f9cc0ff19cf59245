/* runner - one rank ready to run: its program, weights and engine
 *
 * Inputs are dealt over the replicas of the mesh (dp x ep); the ranks of a replica run
 * the same steps, stage after stage, and replicas that share out experts (ep) take as
 * many steps as each other.  What comes out is on the tensor group of one stage:
 * from there it can be told to the replica's other stages, and sent to rank 0 of all,
 * the front, which speaks with the user. */
#ifndef LIB_RUN_RUNNER_H
#define LIB_RUN_RUNNER_H

#include "lib/run/engine.h"
#include "lib/run/weights.h"

/* What a rank works with. */
struct runner_machine {
    const struct backend *ops; /* NULL: the best that there is */
    int threads;
    int local;  /* number of this rank on its machine, from 1; 0: all are on one */
    int across; /* ranks of those that share a sequence that exchange heads; 0: all */
    enum dtype kept; /* of the cache; 0: f32 */
    struct wires_setup wires;
};

struct runner {
    const struct backend *ops;
    struct device *device;
    struct program *program;
    struct weights weights;
    struct engine *engine;
    size_t chunk;       /* most tokens of a step, but for running texts */
    struct comm *world; /* all ranks; borrowed */
    struct engine_groups groups;
    struct wires wires;
    int stage, nstages;     /* of the pipeline */
    int replica, nreplicas; /* over dp and ep */
};

/* The group of WORLD's ranks that differ from the one at COORD of MESH along AXIS only;
 * all of them call it. */
MUST_CHECK int runner_group(struct comm **out, struct comm *world,
                            const struct mesh *mesh, const int coord[MESH_NAXES],
                            enum mesh_axis axis, struct err *err);
/* Make rank WORLD->rank of MESH ready to run C.  C and WORLD must outlive it. */
MUST_CHECK int runner_open(struct runner *r, struct checkpoint *c,
                           const struct mesh *mesh,
                           const struct runner_machine *machine, struct comm *world,
                           const struct program_options *options,
                           const struct engine_limits *limits, struct err *err);
/* RET of all that R had to do: where that is 0 all ranks end together. */
MUST_CHECK int runner_finish(struct runner *r, int ret, struct err *err);
void runner_close(struct runner *r);

/* Do its replicas wait for each other in each step?  Then nobody waits for what another
 * replica gives before all steps are done. */
bool runner_keeps_step(const struct runner *r);
/* any[i] of N: is it true on any of the ranks that share out the experts? */
MUST_CHECK int runner_agree(struct runner *r, bool *any, size_t n, struct err *err);

bool runner_is_last(const struct runner *r); /* stage */
/* The last stage of a replica tells the others buf[bytes]: tell does nothing but there,
 * hear nothing but elsewhere. */
MUST_CHECK int runner_tell(struct runner *r, const void *buf, size_t bytes,
                           struct err *err);
MUST_CHECK int runner_hear(struct runner *r, void *buf, size_t bytes, struct err *err);
/* buf[bytes] of STAGE of REPLICA, of the first rank of its tensor and its sequence
 * group, to the front: give does nothing but there, take nothing but at the front, and
 * neither where both are one rank. */
MUST_CHECK int runner_give(struct runner *r, int stage, const void *buf, size_t bytes,
                           struct err *err);
MUST_CHECK int runner_take(struct runner *r, int replica, int stage, void *buf,
                           size_t bytes, struct err *err);

#endif
