/* weighttype - how weights may be held in memory
 *
 * Plain types hold every tensor.  Quantised ones hold matrices in blocks and leave the
 * rest in the model's own type: "linear" ones the matrices of layers only, ggml's every
 * matrix, the embedding and the head among them. */
#ifndef LIB_ESTIMATE_WEIGHTTYPE_H
#define LIB_ESTIMATE_WEIGHTTYPE_H

#include <stdint.h>

#include "lib/base/dtype.h"

enum weight_scope { SCOPE_ALL, SCOPE_LINEAR, SCOPE_MATRICES };

struct weight_type {
    const char *name;
    enum weight_scope scope;
    uint64_t block, block_bytes; /* elements, and the bytes that they take */
    uint64_t row_bytes;          /* besides, for each row of a matrix */
};

/* The type called NAME ("q4_0", "bf16", PyTorch's "bfloat16"), or NULL. */
const struct weight_type *weight_type_find(const char *name);
/* Names with commas between, for messages.  The caller frees it. */
char *weight_type_names_dup(void);
/* The plain type that is DTYPE. */
const struct weight_type *weight_type_of(enum dtype t);
/* Bytes of ELEMENTS in ROWS rows of TYPE. */
uint64_t weight_type_bytes(const struct weight_type *t, uint64_t elements,
                           uint64_t rows);

#endif
