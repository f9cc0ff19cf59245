/* tensor - a stored tensor as its file describes it, and lookup by name */
#ifndef LIB_CKPT_TENSOR_H
#define LIB_CKPT_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"

enum { TENSOR_MAX_DIMS = 64 };

struct boxes;
struct ggml_row;

struct tensor {
    const char *name;
    const uint64_t *shape;  /* [ndim] */
    const uint64_t *stride; /* [ndim] in elements; NULL: row-major */
    enum dtype dtype;
    int ndim;
    int file;        /* index of its file among several */
    int input;       /* index of the file that has its bytes, which may be another */
    uint64_t offset; /* of its first byte in that file */
    uint64_t size;   /* bytes, in row-major order */
    const struct boxes *boxes; /* its pieces, instead of .input, .offset and .stride;
                                * NULL: in one place */
    const struct ggml_row *blocks; /* of a dialect: its numbers lie in such blocks
                                    * (base/ggml.h), its type is U8, and its last
                                    * axes are the blocks of a row and the bytes of
                                    * one; NULL: they lie by themselves */
};

/* Tensors sorted by name.  `struct tensor_index x = { 0 }` is empty. */
struct tensor_index {
    const struct tensor *tensor; /* borrowed */
    uint32_t *order;
    size_t n;
};

/* Builds an index of N tensors (fewer than 2^32).  Returns a tensor with a duplicate
 * name, or NULL; *x is valid in both cases. */
const struct tensor *tensor_index_init(struct tensor_index *x,
                                       const struct tensor *tensor, size_t n);
/* Position of NAME in the array of tensors, or -1. */
long tensor_index_find(const struct tensor_index *x, const char *name);
void tensor_index_clear(struct tensor_index *x);

#endif
