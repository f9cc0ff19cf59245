/* optimizer - how gradients change weights
 *
 * An optimizer is a row: its name, the arrays that it keeps for each weight (slots),
 * and the operation of the backend that makes an update (lib/device/arrays.h).  The
 * store of parameters allocates the slots, and checkpoints have them, by these names.
 * Weight decay excludes biases and norms, as in Hugging Face's Trainer. */
#ifndef LIB_TRAIN_OPTIMIZER_H
#define LIB_TRAIN_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/device/arrays.h"

enum optimizer_kind {
    /* for equal gradients, moments equal PyTorch's (foreach and fused off) to the bit;
     * weights do too, where PyTorch's square root is correctly rounded: MKL's is
     * sometimes off by one unit in the last place, which changes about one weight in
     * some hundred */
    OPTIMIZER_ADAMW,
    OPTIMIZER_SGD,
    OPTIMIZER_MOMENTUM,
    OPTIMIZER_KINDS
};

struct optimizer_options {
    enum optimizer_kind kind;
    double beta1, beta2, eps; /* of adamw */
    double momentum;          /* of momentum */
    double decay;
    double clip; /* maximum gradient norm; 0: no clipping */
};

struct optimizer_info {
    const char *name;
    const char *slot[ARRAY_SLOTS + 1]; /* NULL at the end: roles in checkpoints, named
                                        * as PyTorch's state; f32, 0 before the first
                                        * update */
    enum array_op update;
    /* The numbers of update T, from 1, but for .factor.  DECAY is 0 for weights that do
     * not decay. */
    void (*set)(union update_numbers *by, const struct optimizer_options *o,
                double rate, uint64_t t, double decay);
};

extern const struct optimizer_info optimizer_table[OPTIMIZER_KINDS];
extern const char *const optimizer_choices[OPTIMIZER_KINDS + 1]; /* the names, NULL */

/* Number of slots. */
int optimizer_slots(enum optimizer_kind kind);

struct parameters;

struct optimizer {
    struct optimizer_options options;
    uint64_t t; /* number of updates so far */
};

/* Makes one update of P's weights with learning rate RATE; NORM is the norm of the
 * gradient over all ranks. */
MUST_CHECK int optimizer_step(struct optimizer *o, struct parameters *p, double rate,
                              double norm, struct err *err);

#endif
