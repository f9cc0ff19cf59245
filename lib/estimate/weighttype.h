/* weighttype - types of weights in memory
 *
 * Plain types apply to every tensor.  Quantized types apply to matrices, in blocks:
 * "linear" types to matrices of layers only, ggml's types to every matrix, with the
 * embedding and the head.  Other tensors keep the model's own type. */
#ifndef LIB_ESTIMATE_WEIGHTTYPE_H
#define LIB_ESTIMATE_WEIGHTTYPE_H

#include <stdint.h>

#include "lib/base/dtype.h"

enum weight_scope { SCOPE_ALL, SCOPE_LINEAR, SCOPE_MATRICES };

struct weight_type {
    const char *name;
    enum weight_scope scope;
    uint64_t block, block_bytes; /* elements of a block, and its bytes */
    uint64_t row_bytes;          /* further bytes per row of a matrix */
};

/* The type called NAME ("q4_0", "bf16", PyTorch's "bfloat16"), or NULL. */
const struct weight_type *weight_type_find(const char *name);
/* All names, separated by commas, for messages.  The caller frees it. */
char *weight_type_names_dup(void);
/* The plain type for T, or NULL. */
const struct weight_type *weight_type_of(enum dtype t);
/* Bytes of ELEMENTS elements in ROWS rows. */
uint64_t weight_type_bytes(const struct weight_type *t, uint64_t elements,
                           uint64_t rows);

#endif
