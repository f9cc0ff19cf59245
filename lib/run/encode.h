/* encode - the weights of products as codes, made at load or kept
 *
 * A matrix that only products read (program/packable) is replaced by codes
 * (base/codes.h), with a row for each output.  On every mesh the codes and scales are
 * those of the whole matrix: ranks that share the inputs of an output agree on its
 * scale of 8 bits, and a layout that divides a block of 4 bits is refused. */
#ifndef LIB_RUN_ENCODE_H
#define LIB_RUN_ENCODE_H

#include "lib/comm/comm.h"
#include "lib/device/device.h"
#include "lib/model/model.h"
#include "lib/program/program.h"
#include "lib/run/held.h"

struct encoder {
    const struct held *held; /* [program.nweights] */
    const struct program *program;
    const struct backend *ops;
    struct device *device;
    struct comm *tensor; /* ranks that share inputs */
    int threads;         /* that make codes */
    bool decoded;        /* the checkpoint has the weights as codes of this form */
};

/* *OUT = the codes of weight I, which is held coded and stored as M in host memory; of
 * its tensor this rank has SLICE.  *BYTES is what they take.  OUT->data and OUT->scale
 * are allocated with the backend.  Collective over the ranks that share inputs.
 * ERR_INPUT: numbers that are not finite; ERR_NO: the layout divides a block. */
MUST_CHECK int encode_weight(const struct encoder *e, int i, const struct matrix *m,
                             const struct slice *slice, struct matrix *out,
                             uint64_t *bytes, struct err *err);

/* OUT[n] = weights I to I + n - 1, slices of one tensor or one that is whole, whose
 * codes are kept as L reads them; memory, *BYTES, and errors as above.  Not collective.
 */
MUST_CHECK int encode_keep(const struct encoder *e, int i, size_t n, struct loader *l,
                           const struct checkpoint *c, struct matrix *out,
                           uint64_t *bytes, struct err *err);

/* Bytes per element of M, its scales included. */
double encode_width(const struct matrix *m);

#endif
