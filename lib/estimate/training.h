/* training - what a stage has of values and gradients while it trains
 *
 * The forward pass saves values, in the schedule's many micro-batches at once.  The
 * backward pass goes through the units from the last: at each there are the values that
 * those before it saved, its own, made again if need be, gradients of values, and those
 * of the weights so far. */
#ifndef LIB_ESTIMATE_TRAINING_H
#define LIB_ESTIMATE_TRAINING_H

#include "lib/estimate/part.h"

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
