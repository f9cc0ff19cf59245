/* reversed - the memory of tp-run train, from the program that it runs
 *
 * For other frameworks the estimate adds up what a derivative must read.  tp-run's
 * memory is known exactly: its program with the derivative, and the arena of its
 * values. */
#ifndef LIB_ESTIMATE_REVERSED_H
#define LIB_ESTIMATE_REVERSED_H

#include "lib/estimate/work.h"

/* Programs of ranks that were built before, for one mesh; {0} is empty. */
struct reversed_programs {
    struct program *
        *program; /* [RECOMPUTE_KINDS][ranks that differ]; NULL: not built */
    struct own_work *own[RECOMPUTE_KINDS]; /* [pp] of work_own; NULL: not known */
    int size[MESH_NAXES], ranks;
    int layers;    /* of recompute_plan */
    bool split;    /* of memory_options */
    bool *trained; /* [ntensors of the model]: beside adapters */
};
void reversed_clear(struct reversed_programs *known);

/* Elements of f32, or as much memory, that a rank has for its trained weights: OWNED of
 * them it updates; SLOTS are the optimizer's, and ROOM is what an update needs, with
 * LOCAL where the weights are in memory of a device and it is the host that updates
 * them.  COPIES are the bytes of those that products read.  The gradients are without
 * the levels of a tree. */
struct reversed_trained {
    uint64_t weights, gathered, gradients, owned, slots, room, local, copies;
    uint64_t sums; /* of each level of a tree over micro-batches */
};
/* The same of P's TRAINS[i] as train/parameters and train/gradients have them, by the
 * stage of ZeRO of O. */
struct reversed_trained reversed_trained(const struct program *p, const bool *trains,
                                         const struct memory_options *o,
                                         const int coord[MESH_NAXES]);
/* True if O asks for exactly what tp-run train does. */
bool reversed_applies(const struct memory_options *o);
/* The bytes of the rank at COORD for such O; KNOWN keeps its program.  ERR_NO if M
 * cannot be trained; STORED has the types of its checkpoint's tensors, or is NULL. */
MUST_CHECK int reversed_rank(struct rank_memory *out, struct reversed_programs *known,
                             const struct model *m, const enum dtype *stored,
                             const struct memory_options *o,
                             const int coord[MESH_NAXES], struct err *err);
/* Sets COORD[MESH_DP] to that of the ranks that differ in it that has most in memory of
 * its device. */
MUST_CHECK int reversed_largest(struct reversed_programs *known, const struct model *m,
                                const struct memory_options *o, int coord[MESH_NAXES],
                                struct err *err);
/* The reverse of the ranks of tp 0 on each stage under such O; A is the costmodel of
 * one of them.  Borrowed from KNOWN until it is asked for another mesh; NULL
 * with *err set. */
const struct own_work *reversed_own(struct reversed_programs *known,
                                    const struct costmodel *a,
                                    const struct memory_options *o, struct err *err);
/* As memory_estimate, for such O.  ERR_NO if M cannot be trained. */
MUST_CHECK int reversed_estimate(struct memory_estimate *e, const struct model *m,
                                 const enum dtype *stored,
                                 const struct memory_options *o, struct err *err);

#endif
