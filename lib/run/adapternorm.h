/* adapternorm - by what adapters with magnitudes divide (DoRA)
 *
 * Liu et al. 2024, "DoRA: Weight-Decomposed Low-Rank Adaptation", equation 5: an output
 * of W + s B A is divided by its norm over the inputs.  These norms are a vector of the
 * program, inverted, which is made from W, as it is held, A and B: once for answers,
 * and after each update in training, for which they are constants. */
#ifndef LIB_RUN_ADAPTERNORM_H
#define LIB_RUN_ADAPTERNORM_H

#include "lib/comm/comm.h"
#include "lib/device/device.h"
#include "lib/program/program.h"

/* A rank's weights of PROGRAM. */
struct adapternorm {
    const struct program *program;
    const struct backend *ops;
    struct device *device;
    const struct matrix *matrix; /* [nweights] */
    struct comm *tensor;         /* the tensor group; NULL: this rank alone */
    int threads;
    /* Reads weight I, a matrix of an adapter, to TO [rows][cols].  NULL: it is at
     * MATRIX. */
    int (*read)(void *arg, int i, float *to, struct err *err);
    /* Writes NORM to weight I, magnitudes that are new.  NULL: there are none. */
    int (*begin)(void *arg, int i, const float *norm, struct err *err);
    void *arg;
};

/* Makes all norms of N; collective over the tensor group.  ERR_INPUT: one is 0, or not
 * finite. */
MUST_CHECK int adapternorm_make(const struct adapternorm *n, struct err *err);

#endif
