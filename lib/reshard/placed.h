/* placed - the tensors of a checkpoint as another framework stores them
 *
 * The inverse of renamed.h: the family's names (names.h) say which rows of which stored
 * tensor each tensor of the model is. */
#ifndef LIB_RESHARD_PLACED_H
#define LIB_RESHARD_PLACED_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/model/names.h"
#include "lib/reshard/checkpoint.h"

/* A stored tensor. */
struct placed_tensor {
    char *name;
    int ndim;
    uint64_t shape[MODEL_MAX_DIMS + 2];
    uint64_t rows, elements; /* rows of one member of a stack; elements of all */
    size_t first;            /* its first part, a weight of the checkpoint */
    size_t nparts;
    bool plus; /* its numbers are changed (names_view.plus) */
};

/* A weight of the checkpoint that is a part of a stored tensor. */
struct placed_part {
    size_t from, to; /* index of the weight, and of the stored tensor */
    uint64_t lead;   /* its index in a stack */
    struct names_view view;
};

struct placed {
    struct placed_tensor *tensor; /* in the order of their first parts */
    size_t n;
    struct placed_part *part; /* in the order of the checkpoint's weights */
    size_t nparts;
};

/* Places the weights of C as DIALECT has them; STACKS as in names_written.  Tensors
 * that no program uses, and second copies of tied ones, are left out.  ERR_NO when the
 * family lacks a name, or parts do not make a whole.  On failure *p needs no clearing.
 */
MUST_CHECK int placed_make(struct placed *p, const struct checkpoint *c,
                           const char *dialect, unsigned stacks, struct err *err);
void placed_clear(struct placed *p);
/* Do the rows of its only part lie in the order of the model's? */
bool placed_is_plain(const struct placed *p, size_t i);

#endif
