/* habits - what a framework has in memory besides what the closed forms count
 *
 * The closed forms (memory.c) count what a step has to have.  Frameworks have more,
 * each its own; what stands here follows from their sources, which habits.c names, and
 * no number of it was fitted but one. */
#ifndef LIB_ESTIMATE_HABITS_H
#define LIB_ESTIMATE_HABITS_H

#include "lib/estimate/memory.h"

struct habits {
    /* ZeRO-3 in a pipeline: a stage's weights stay gathered, and its gradients are
     * whole in f32 until the last micro-batch */
    bool keeps_stage;
    bool keeps_gathered; /* products keep their inputs as gathered over tp */
    bool keeps_messages; /* a stage keeps what it sends, and has room for all that it
                            receives in a step */
    bool buffers;        /* gradients lie in buffers from the start, and are exchanged
                            there */
    bool refuses;        /* no ZeRO-2 or 3 in a pipeline */
    uint64_t grad_bytes; /* of a gradient by default; 0: as the weights */
    uint64_t
        grad_state;    /* bytes of an element that the optimizer has of its gradient */
    uint64_t bucket;   /* elements that are exchanged at once; 0: as closed forms */
    uint64_t live;     /* elements of gathered weights that stay; 0: likewise */
    double reserved;   /* share of values and messages that the allocator has reserved
                          besides; 0: as is assumed of all */
    uint64_t of_logit; /* bytes that the loss has of a logit besides itself; 0:
                          likewise */
};

/* Those of O's framework; where none is named and ZeRO-3 meets a pipeline,
 * torchtitan's, for no framework is known to do without. */
struct habits habits_of(const struct memory_options *o);
/* The framework whose they are. */
enum framework habits_framework(const struct memory_options *o);

#endif
