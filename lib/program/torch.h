/* torch - how PyTorch runs a family's operations, where it differs from the operation
 * table
 *
 * The table (op.h, column torch) describes what most models of transformers save for
 * backward.  A family's "torch" member maps an operation's name to an expression; its
 * value is a list of the words below, separated by spaces. */
#ifndef LIB_PROGRAM_TORCH_H
#define LIB_PROGRAM_TORCH_H

#include "lib/base/err.h"
#include "lib/model/model.h"
#include "lib/program/op.h"

enum torch_word {
    TORCH_FUSED = 1 << 0,   /* one kernel, which saves only its source */
    TORCH_BY_HAND = 1 << 7, /* saves only its source; its backward runs several
                             * operations */
    TORCH_SPLIT = 1 << 8,   /* attention's q, k and v are separate tensors, even if the
                             * checkpoint stores one fused projection */
    TORCH_ORDERED = 1 << 9, /* attention's result needs no reordering copy, even if
                             * queries are concatenated */
    TORCH_WIDE = 1 << 1,    /* a norm multiplies by its weight in f32; a router's matrix
                             * product is in f32 */
    TORCH_CENTRED = 1 << 2, /* a norm that saves x - mean, twice */
    TORCH_NARROW = 1 << 3,  /* a softmax, or the loss, is computed in the type of its
                             * source */
    TORCH_SPREAD = 1 << 4,  /* keys and values are repeated for each query head */
    TORCH_UNFUSED = 1 << 5, /* attention without a fused kernel: scores are saved */
    TORCH_SCORED = 1 << 6,  /* queries and keys are copied to f32 before the scores are
                             * computed */
    TORCH_PARTED = 1 << 10, /* a norm that saves x - mean and the normalized value */
    TORCH_BOTH = 1 << 11,   /* a norm that saves its source in its own type, too */
    TORCH_OPEN = 1 << 12,   /* unfused, unless it is causal */
    TORCH_STRIDED = 1 << 13, /* each product copies queries and keys by itself */
    TORCH_BOUNDED = 1 << 14, /* scores are saved before a lower bound, too */
    TORCH_MASKED = 1 << 15,  /* a fused kernel of attention saves a mask of its own */
    TORCH_TURNED = 1 << 16,  /* tokens before sequences: each product that reads the
                              * embedding, or makes attention's q, k and v, copies its
                              * source, if there are several sequences */
    TORCH_CHUNKS = 1 << 17,  /* attention with a window of 2 w + 1 keys in overlapping
                              * chunks of 2 w rows; sequences are padded to chunks */
    TORCH_BLOCKS = 1 << 18,  /* or in blocks of w + 1 rows, which see three blocks */
    TORCH_EVERY = 1 << 19    /* every expert computes every token */
};

/* For each operation, a set of the above. */
struct torch_words {
    unsigned of[OP_COUNT];
};

/* Evaluates M's "torch" member for M's config.  ERR_INPUT: an unknown operation or
 * word, with its line. */
MUST_CHECK int torch_read(struct torch_words *out, const struct model *m,
                          struct err *err);
/* The table's torch column for INST, modified by W. */
struct op_torch torch_of(const struct torch_words *w, const struct inst *inst);

#endif
