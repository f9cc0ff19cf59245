/* training - what a stage has of values and gradients while it trains
 *
 * The forward pass saves values, in the schedule's many micro-batches at once.  The
 * backward pass goes through the units from the last: at each there are the values that
 * those before it saved, its own, made again if need be, gradients of values, and those
 * of the weights so far. */
#ifndef LIB_ESTIMATE_TRAINING_H
#define LIB_ESTIMATE_TRAINING_H

#include "lib/estimate/part.h"

/* Of a unit, in bytes. */
struct unit_bytes {
    uint64_t saved;     /* in the forward pass */
    uint64_t again;     /* made again in the backward pass */
    uint64_t working;   /* and what there is besides at its worst moment; */
    uint64_t gradients; /* of weights, in all, */
    uint64_t made;      /* and until then */
};

/* Units' bytes in layouts of a search that differ in what a unit's do not depend on:
 * the order of the pipeline, the stage.  Their anatomies outlive it, and options that
 * are no part of a layout stay as they are. */
enum { TRAINING_CACHE = 64 };
struct training_cache {
    struct training_known {
        const struct unit *unit; /* NULL: nothing */
        struct mesh mesh;
        uint64_t micro_batch;
        int zero;
        enum recompute recompute;
        bool sequence_parallel;
        bool over;
        struct unit_bytes bytes;
    } known[TRAINING_CACHE];
};

struct training {
    const struct anatomy *a;
    const struct memory_options *o;
    const struct part *part;
    struct unit_bytes *unit; /* [slices of part]: of each unit of it */
    uint64_t saved;          /* of all micro-batches in flight */
    uint64_t again, working; /* the most that a unit makes again, and of gradients of
                                values */
};

/* Fill *T for stage STAGE, whose part is P; A, O and P outlive it. */
void training_open(struct training *t, struct tally *over, const struct anatomy *a,
                   const struct memory_options *o, const struct part *p, int stage);
void training_close(struct training *t);

/* Set activations, gradients (of GRADIENTS bytes in all) and what is working of PEAK to
 * what there is at the worst moment of the backward pass. */
void training_peak(uint64_t peak[MEMORY_CATEGORIES], struct tally *over,
                   const struct training *t, uint64_t gradients);

/* Are there gradients before it?  They outlive a micro-batch, or lie in buffers in
 * which replicas sum them. */
bool training_has_gradients(const struct memory_options *o);

#endif
