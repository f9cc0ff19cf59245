/* training - activations and gradients of a pipeline stage during training
 *
 * The forward pass saves activations of all micro-batches in flight.  The backward pass
 * goes through the units from the last to the first.  At each unit these are live:
 * activations saved by earlier units, its own, recomputed if need be, gradients of
 * activations, and the weight gradients computed so far. */
#ifndef LIB_ESTIMATE_TRAINING_H
#define LIB_ESTIMATE_TRAINING_H

#include "lib/estimate/part.h"

/* Bytes of a unit. */
struct unit_bytes {
    uint64_t saved;     /* saved by the forward pass */
    uint64_t again;     /* recomputed in the backward pass */
    uint64_t working;   /* temporary buffers at the peak of its backward pass */
    uint64_t gradients; /* weight gradients */
    uint64_t made;      /* weight gradients computed by the time of that peak */
};

/* A cache of unit_bytes for a search: layouts that differ only in schedule and stage
 * have the same.  The costmodels must outlive it; options that are not part of a layout
 * must not change. */
enum { TRAINING_CACHE = 64 };
struct training_cache {
    struct training_known {
        const struct unit *unit; /* NULL: unused */
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
    const struct costmodel *a;
    const struct memory_options *o;
    const struct part *part;
    struct unit_bytes *unit; /* [slices of part]: of each unit of the slice */
    uint64_t saved;          /* by all micro-batches in flight; offloaded, in buffers */
    uint64_t away;           /* of these on the host, if layers' are offloaded, */
    uint64_t copied;         /* and what one micro-batch copies there */
    uint64_t again, working; /* largest of any unit */
};

/* Fills *t for stage STAGE with part P; A, O and P must outlive *t. */
void training_open(struct training *t, struct tally *over, const struct costmodel *a,
                   const struct memory_options *o, const struct part *p, int stage);
void training_close(struct training *t);

/* Sets activations, gradients and temporary buffers in PEAK to their bytes at the
 * largest sum of the backward pass.  GRADIENTS is the bytes of all gradients. */
void training_peak(uint64_t peak[MEMORY_CATEGORIES], struct tally *over,
                   const struct training *t, uint64_t gradients);

/* True if gradients exist before the first backward pass: they accumulate over
 * micro-batches, or lie in buffers in which replicas reduce them. */
bool training_has_gradients(const struct memory_options *o);

#endif
