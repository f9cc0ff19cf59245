/* torch - how PyTorch in eager mode runs a family's operations
 *
 * A table says what most models of transformers save for backward.  A family's "torch"
 * member maps an operation's name to an expression; its value is a list of the words
 * below, separated by spaces. */
#ifndef LIB_ESTIMATE_TORCH_H
#define LIB_ESTIMATE_TORCH_H

#include "lib/base/err.h"
#include "lib/model/model.h"
#include "lib/program/op.h"

/* How PyTorch runs the operation in eager mode, one kernel after another. */
struct op_torch {
    bool free;     /* a view, a part of another kernel, or too small to count */
    bool part;     /* one PyTorch operation with its reader, which saves its operands */
    bool upcast;   /* saves its source in f32 even if activations are narrower, and also
                      saves the normalized value that the weight multiplies */
    bool wide;     /* saves that value in f32, too */
    bool centred;  /* a norm saves the difference from the mean, twice, in f32 */
    bool parted;   /* a norm saves that difference once, and the normalized value */
    bool both;     /* saves its source as it is beside the copy in f32 */
    bool narrow;   /* a softmax, or the loss, is made in the type of its source */
    bool spread;   /* keys and values are copied for each query head */
    bool unfused;  /* no kernel makes attention as a whole: scores are saved */
    bool scored;   /* queries and keys are copied in f32 before scores are made */
    bool split;    /* attention's sources are values of their own, not parts of one */
    bool ordered;  /* attention's result needs no copy in another order */
    bool related;  /* attention gathers scores by distance, and saves what it gathers
                      from, with indices and a mask */
    bool strided;  /* each of its products copies queries and keys by itself */
    bool bounded;  /* saves the scores before a lower bound, too */
    bool masked;   /* a fused kernel gets, and saves, a mask for each sequence */
    bool turned;   /* the products that read it, or make its sources, copy a transposed
                      tensor each, if there are several sequences */
    bool chunks;   /* windows are made of overlapping chunks of rows and keys */
    bool blocks;   /* and of blocks, each with itself and both its neighbours */
    int flags;     /* further bytes for each element of the result */
    int copies;    /* further saved activations of the size of the result */
    int gradients; /* f32 gradients of the size of the result alive at once in the
                      backward pass */
    int temporaries; /* as gradients, in the type of the activations */
    int spared;      /* N: selective recomputation saves the result of every N-th such
                        operation; 0: of none */
};

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
/* The same, without the words: for family_check. */
MUST_CHECK int torch_check(const struct model *m, struct err *err);
/* What most models do for INST; and that, modified by W. */
struct op_torch torch_usual(const struct inst *inst);
struct op_torch torch_of(const struct torch_words *w, const struct inst *inst);

#endif
