/* optimizers - the table of optimizers: how gradients change weights
 *
 * An optimizer is a row: the arrays that it keeps for each weight (slots), the
 * operation of the backend that makes an update (arrays.h), and the numbers of one.
 * Training allocates the slots, and checkpoints have them, by these names.  Some
 * optimizers update matrices as a whole.
 * Weight decay excludes biases and norms, as in Hugging Face's Trainer. */
#ifndef LIB_DEVICE_OPTIMIZERS_H
#define LIB_DEVICE_OPTIMIZERS_H

#include <stdbool.h>
#include <stdint.h>

#include <stddef.h>

#include "lib/device/arrays.h"
#include "lib/program/program.h"
#include "lib/program/units.h"

enum slot_form {
    SLOT_NONE,    /* the slot has nothing of such weights */
    SLOT_LIKE,    /* one number for each of the weight's */
    SLOT_ROWS,    /* one for each row */
    SLOT_COLUMNS, /* one for each column */
    SLOT_CODES,   /* as SLOT_LIKE, in codes of 8 bits and a scale for each block
                   * (codes8.h); checkpoints have the numbers */
    SLOT_SQUARES  /* the same of numbers that are not negative */
};

/* What an optimizer keeps of matrices, and of other weights. */
struct optimizer_slot {
    const char *role; /* in checkpoints, named as PyTorch's state; f32, 0 before the
                       * first update */
    enum slot_form matrix, other;
};

/* Which weights an optimizer takes as matrices: the numbers of one depend on each
 * other. */
enum optimizer_matrices {
    MATRICES_NONE,   /* none: any range of numbers is updated by itself */
    MATRICES_ALL,    /* those with two axes, */
    MATRICES_LARGE,  /* of at least OPTIMIZER_LARGE numbers, */
    MATRICES_HIDDEN, /* of layers, which products read: not embeddings and heads */
};
enum { OPTIMIZER_LARGE = 4096 };

enum optimizer_kind {
    /* for equal gradients, moments equal PyTorch's (foreach and fused off) to the bit;
     * weights do too, where PyTorch's square root is correctly rounded: MKL's is
     * sometimes off by one unit in the last place, which changes about one weight in
     * some hundred */
    OPTIMIZER_ADAMW,
    OPTIMIZER_SGD,
    OPTIMIZER_MOMENTUM,
    OPTIMIZER_LION,
    OPTIMIZER_ADAM8BIT,
    OPTIMIZER_ADAFACTOR,
    OPTIMIZER_MUON,
    OPTIMIZER_KINDS
};

/* Their names; NULL at the end. */
extern const char *const optimizer_names[OPTIMIZER_KINDS + 1];

/* Whether weights that are narrower in products have f32 numbers, too, which are what
 * is updated: words of --master, by enum; NULL at the end. */
enum { MASTER_F32, MASTER_NONE };
extern const char *const optimizer_masters[];

struct optimizer_options {
    enum optimizer_kind kind;
    double beta1, beta2, eps, momentum; /* of those that use them */
    double decay;
    double others; /* Muon: what multiplies the rate for weights that are no matrices */
    int adjust;    /* Muon: enum muon_adjust */
    /* Adafactor: the rate is multiplied by 1/sqrt(t), 0.01 at most (.warms: 1e-6 t at
     * most); it is multiplied by the root mean square of a weight; that of an update is
     * at most THRESHOLD; beta2 of update t is 1 - t^POWER */
    bool relative, warms, scaled;
    double threshold, power;
    double clip; /* maximum gradient norm; 0: no clipping */
};

/* How Muon's rate depends on the shape of a matrix, as torch.optim.Muon's
 * adjust_lr_fn. */
enum muon_adjust { MUON_ORIGINAL, MUON_MATCH_RMS_ADAMW, MUON_ADJUSTS };
extern const char *const muon_adjusts[MUON_ADJUSTS + 1]; /* names; NULL at the end */

/* Which of these an optimizer uses. */
enum {
    OPTIMIZER_USES_BETAS = 1,
    OPTIMIZER_USES_EPS = 2,
    OPTIMIZER_USES_MOMENTUM = 4,
    OPTIMIZER_USES_FACTORS = 8, /* Adafactor's */
    OPTIMIZER_USES_SHAPES = 16  /* Muon's */
};

enum { OPTIMIZER_SLOTS = 3 };

struct optimizer_info {
    struct optimizer_slot slot[OPTIMIZER_SLOTS + 1]; /* NULL role at the end */
    enum array_op update; /* of a range of numbers of weights that are no matrices, with
                           * the slots that have something of these */
    enum optimizer_matrices matrices; /* how these are updated: train/wholes.h */
    unsigned uses;
    double beta2, momentum; /* when no other is asked for; 0: the option's default */
    /* The numbers of update T, from 1, but for .factor.  DECAY is 0 for weights that do
     * not decay. */
    void (*set)(union update_numbers *by, const struct optimizer_options *o,
                double rate, uint64_t t, double decay);
};

extern const struct optimizer_info optimizer_table[OPTIMIZER_KINDS];

/* Ranks that have the same weights can share an optimizer (ZeRO, Rajbhandari et al.
 * 2020): of N trained numbers, one weight's after another's, rank RANK of SIZE keeps
 * the state of *COUNT from *FIRST, and updates those.  A range begins at a multiple of
 * OPTIMIZER_BLOCK; that of the last rank is not shorter than another's. */
enum { OPTIMIZER_BLOCK = 64 };
/* Numbers of a weight without an f32 master that are updated at a time, at most. */
enum { OPTIMIZER_WITHOUT = 1 << 16 };
void optimizer_range(uint64_t n, int rank, int size, uint64_t *first, uint64_t *count);

/* What each rank of SIZE keeps of unit U of UNITS, N elements of P, SHARE[size] in the
 * order of ranks: ranges as above; or whole weights, where the optimizer has matrices.
 * All ranks of a tensor group deal alike, and all stages a weight that they share. */
void optimizer_deal(enum optimizer_kind kind, const struct program *p,
                    const struct units *units, int u, int size, size_t *share);

/* Which weights of P are matrices to KIND: [nweights], which the caller frees. */
bool *optimizer_matrices_new(enum optimizer_kind kind, const struct program *p);
/* Number of slots of KIND. */
int optimizer_slots(enum optimizer_kind kind);
/* What a slot in FORM has of weight I of P, COUNT elements of which the rank updates:
 * f32 numbers, or as much memory.  All of it or nothing, but for SLOT_LIKE. */
uint64_t optimizer_slot_size(enum slot_form form, const struct program *p, int i,
                             uint64_t count);
/* Numbers of weight I that checkpoints have in FORM, of a rank. */
uint64_t optimizer_slot_stored(enum slot_form form, const struct program *p, int i);

/* The blocks of SLOT_CODES: parts of a row of at most OPTIMIZER_CODES columns that
 * begin at its multiples, counted in the whole matrix.  A rank that has not all columns
 * may have a part of a block, which is one.  ENDS[n]: where each of a row ends here;
 * the caller frees it. */
enum { OPTIMIZER_CODES = 256 };
uint64_t optimizer_blocks(const struct program *p, int i, uint64_t **ends);
/* Has another rank a part of one of them? */
bool optimizer_divides(const struct program *p, int i);

/* Floats that the update of matrix I takes beside its numbers, of a backend that shares
 * the host's memory. */
uint64_t optimizer_room(enum optimizer_kind kind, const struct program *p, int i);

#endif
