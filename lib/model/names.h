/* names - how other frameworks store a family's tensors
 *
 * A family file may say, by dialect ("megatron", "meta"), under which name another
 * framework stores a tensor and which rows of it: those of one projection in a fused
 * matrix, or rows in another order (shardutils-family(5)).  A name from which a capture
 * is left out is that of a stack: all layers, or experts, along a first axis. */
#ifndef LIB_MODEL_NAMES_H
#define LIB_MODEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/model/model.h"

enum { NAMES_MOST_DIGITS = 8 };

/* A digit of the row's number: COUNT values, STRIDE rows of the stored tensor apart. */
struct names_digit {
    uint64_t count, stride;
};

/* A tensor of the model as rows of a stored one. */
struct names_view {
    char *stored;                                /* its name; the caller frees it */
    int nlead;                                   /* leading axes of a stack */
    uint64_t lead[2];                            /* the index along each */
    int ndigits;                                 /* 0: all rows, in order */
    struct names_digit digit[NAMES_MOST_DIGITS]; /* outermost first */
    uint64_t first;                              /* row of the first */
    bool transposed; /* of two axes, they are stored the other way round */
    bool padded;     /* more rows may be stored, which are padding */
    uint64_t plus;   /* of a vector of f32: what is stored is so much larger */
    bool unwritten;  /* is read, but not written */
};

/* Has M's family names of DIALECT? */
bool names_has(const struct model *m, const char *dialect);
/* Does DIALECT say that the stored tensor NAME is of no use? */
bool names_ignores(const struct model *m, const char *dialect, const char *name);
/* Sets *out to the WAY-th way in which DIALECT may store tensor T, if the stored rows
 * are joined of SHARDS tensor-parallel shards: 1, 0 if there is no such way, -1 for a
 * fault in the family. */
MUST_CHECK int names_view(struct names_view *out, const struct model *m,
                          const char *dialect, size_t t, size_t way, uint64_t shards,
                          struct err *err);
/* The same for the way in which DIALECT is written.  Bit K of STACKS: what capture K,
 * layer or expert, counts is stored along a first axis. */
MUST_CHECK int names_written(struct names_view *out, const struct model *m,
                             const char *dialect, size_t t, unsigned stacks,
                             struct err *err);
/* Checks all dialects of M's family: rows are as many as the tensor has, and each row
 * of a fused tensor is a row of one tensor. */
MUST_CHECK int names_check(const struct model *m, struct err *err);

#endif
