/* compare - comparing two checkpoints tensor by tensor
 *
 * Either may be a directory, a cut checkpoint or a single file.  Tensors are read a few
 * MiB at a time from both. */
#ifndef LIB_RESHARD_COMPARE_H
#define LIB_RESHARD_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/reshard/checkpoint.h"

enum compare_kind {
    COMPARE_SAME,
    COMPARE_ONLY_A, /* the other one has no tensor of that name */
    COMPARE_ONLY_B,
    COMPARE_SHAPE,
    COMPARE_VALUES, /* of one shape, and perhaps another type */
};

struct compare_tensor {
    const char *name;
    enum compare_kind kind;
    const struct tensor *a, *b; /* NULL where missing */
    bool exact;                 /* every byte is the same, and the type */
    uint64_t different;         /* elements whose values differ; NaN equals NaN */
    double max_abs;             /* largest |a - b| */
    double max_rel;             /* largest |a - b| / max(|a|, |b|) */
    uint64_t first;             /* row-major index of the first that differs */
};

/* Call TELL for each tensor of A in order, then for those only B has.  Elements that
 * differ by no more than TOLERANCE times the larger of the two count as equal.  A type
 * without values (F4, C64) is compared by its bytes. */
MUST_CHECK int
compare_checkpoints(struct checkpoint *a, struct checkpoint *b, double tolerance,
                    void (*tell)(void *arg, const struct compare_tensor *d), void *arg,
                    struct err *err);

#endif
