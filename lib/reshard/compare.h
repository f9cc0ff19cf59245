/* compare - compares two checkpoints tensor by tensor
 *
 * Each is a Hugging Face directory, a sharded checkpoint or a single file.  Memory is
 * bounded: both are read a few MiB at a time. */
#ifndef LIB_RESHARD_COMPARE_H
#define LIB_RESHARD_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/reshard/checkpoint.h"

enum compare_kind {
    COMPARE_SAME,
    COMPARE_ONLY_A, /* the other checkpoint has no tensor of this name */
    COMPARE_ONLY_B,
    COMPARE_SHAPE,
    COMPARE_VALUES, /* the shapes are equal; types may differ */
};

struct compare_tensor {
    const char *name;
    enum compare_kind kind;
    const struct tensor *a, *b; /* NULL where missing */
    bool exact;                 /* type and all bytes are equal */
    uint64_t different;         /* number of elements whose values differ; NaN equals
                                 * NaN */
    double max_abs;             /* largest |a - b| */
    double max_rel;             /* largest |a - b| / max(|a|, |b|) */
    uint64_t first;             /* row-major index of the first element that differs */
};

/* Calls TELL for each tensor of A in order, then for the tensors that only B has.  Two
 * elements count as equal when they differ by at most TOLERANCE times the larger
 * magnitude. Types without values (F4, C64) are compared by bytes. */
MUST_CHECK int
compare_checkpoints(struct checkpoint *a, struct checkpoint *b, double tolerance,
                    void (*tell)(void *arg, const struct compare_tensor *d), void *arg,
                    struct err *err);

#endif
