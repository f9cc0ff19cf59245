/* packable - the weights that only products read
 *
 * Such a matrix may be held as codes (lib/base/codes.h) of its outputs.  Whatever else
 * reads a weight (embeddings, norms, biases, attention by head) needs its numbers. */
#ifndef LIB_PROGRAM_PACKABLE_H
#define LIB_PROGRAM_PACKABLE_H

#include "lib/base/err.h"
#include "lib/model/model.h"

enum packable {
    PACKABLE_NOT,
    PACKABLE_ROWS, /* y = x W^T: rows are outputs */
    PACKABLE_COLS  /* y = x W: columns are outputs */
};

/* Returns an array, one for each tensor of M, which the caller frees; NULL with *err
 * set if M has no program.  Tied tensors are PACKABLE_NOT: the embedding that is also
 * the head, above all. */
enum packable *packable_new(const struct model *m, struct err *err);

#endif
