/* torch - how a family's models in PyTorch differ from what the table of operations
 * says
 *
 * The table's column says what most models of transformers save of an operation.  A
 * family's "torch" names the operations that its own are written otherwise, each with
 * an expression whose value is words with spaces between. */
#ifndef LIB_PROGRAM_TORCH_H
#define LIB_PROGRAM_TORCH_H

#include "lib/base/err.h"
#include "lib/model/model.h"
#include "lib/program/op.h"

enum torch_word {
    TORCH_FUSED = 1 << 0,   /* one kernel, which saves its source alone */
    TORCH_BY_HAND = 1 << 7, /* saves its source alone; its derivative is several
                               operations */
    TORCH_SPLIT = 1 << 8,   /* attention's sources are values of their own, also where
                               a file stores one projection for them */
    TORCH_ORDERED = 1 << 9, /* attention's result has the order that its reader wants,
                               also where queries are joined */
    TORCH_WIDE = 1 << 1,    /* of a norm: its weight multiplies in f32; of a router: its
                               product is made in f32 */
    TORCH_CENTRED = 1 << 2, /* a norm that saves what differs from the mean, twice */
    TORCH_NARROW = 1 << 3,  /* a softmax, or the loss, in the type of its source */
    TORCH_SPREAD = 1 << 4,  /* attention's keys and values are copied for each head */
    TORCH_UNFUSED = 1 << 5, /* attention without a kernel of its own: scores are made */
    TORCH_SCORED = 1 << 6   /* queries and keys are copied in f32 before scores are made
                               of them */
};

/* Words of each operation: a set of the above. */
struct torch_words {
    unsigned of[OP_COUNT];
};

/* Set *out to what M's family says for M's config.  ERR_INPUT names the place of an
 * operation or word that is not known. */
MUST_CHECK int torch_read(struct torch_words *out, const struct model *m,
                          struct err *err);
/* The column of the table for INST, as W changes it. */
struct op_torch torch_of(const struct torch_words *w, const struct inst *inst);

#endif
