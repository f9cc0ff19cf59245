/* optimizers - the table of optimizers: how gradients change weights
 *
 * An optimizer is a row: the arrays that it keeps for each weight (slots), the
 * operation of the backend that makes an update (arrays.h), and the numbers of one.
 * Training allocates the slots, and checkpoints have them, by these names.  Of the
 * optimizers behind OPTIMIZER_TRAINED only the memory is known (lib/estimate/memory.c).
 * Weight decay excludes biases and norms, as in Hugging Face's Trainer. */
#ifndef LIB_DEVICE_OPTIMIZERS_H
#define LIB_DEVICE_OPTIMIZERS_H

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
    OPTIMIZER_LION,
    OPTIMIZER_TRAINED, /* number of those that backends compute */
    OPTIMIZER_ADAM8BIT = OPTIMIZER_TRAINED,
    OPTIMIZER_ADAFACTOR,
    OPTIMIZER_MUON,
    OPTIMIZER_KINDS
};

/* Their names; NULL at the end.  optimizer_choices are those that backends compute. */
extern const char *const optimizer_names[OPTIMIZER_KINDS + 1];
extern const char *const optimizer_choices[OPTIMIZER_TRAINED + 1];

struct optimizer_options {
    enum optimizer_kind kind;
    double beta1, beta2, eps, momentum; /* of those that use them */
    double decay;
    double clip; /* maximum gradient norm; 0: no clipping */
};

/* Which of these an optimizer uses. */
enum { OPTIMIZER_USES_BETAS = 1, OPTIMIZER_USES_EPS = 2, OPTIMIZER_USES_MOMENTUM = 4 };

struct optimizer_info {
    const char *slot[ARRAY_SLOTS + 1]; /* NULL at the end: roles in checkpoints, named
                                        * as PyTorch's state; f32, 0 before the first
                                        * update */
    enum array_op update;
    unsigned uses;
    double beta2; /* when no other is asked for; 0: the option's default */
    /* The numbers of update T, from 1, but for .factor.  DECAY is 0 for weights that do
     * not decay. */
    void (*set)(union update_numbers *by, const struct optimizer_options *o,
                double rate, uint64_t t, double decay);
};

extern const struct optimizer_info optimizer_table[OPTIMIZER_TRAINED];

/* Ranks that have the same weights can share an optimizer (ZeRO, Rajbhandari et al.
 * 2020): of N trained numbers, one weight's after another's, rank RANK of SIZE keeps
 * the state of *COUNT from *FIRST, and updates those.  A range begins at a multiple of
 * OPTIMIZER_BLOCK; that of the last rank is not shorter than another's. */
enum { OPTIMIZER_BLOCK = 64 };
void optimizer_range(uint64_t n, int rank, int size, uint64_t *first, uint64_t *count);

/* Number of slots of KIND, one of OPTIMIZER_TRAINED. */
int optimizer_slots(enum optimizer_kind kind);

#endif
