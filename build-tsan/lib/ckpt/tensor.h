/* tensor - what a file says of one stored tensor, and finding tensors by name */
#ifndef LIB_CKPT_TENSOR_H
#define LIB_CKPT_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"

enum { TENSOR_MAX_DIMS = 64 };

struct tensor {
    const char *name;
    const uint64_t *shape; /* [ndim] */
    const uint64_t
        *stride; /* [ndim] in elements; NULL: the bytes are in row-major order */
    enum dtype dtype;
    int ndim;
    int file;        /* index of its file, where there are several */
    uint64_t offset; /* of its first byte in the file */
    uint64_t size;   /* bytes, in row-major order */
};

/* Tensors in the order of their names.  `struct tensor_index x = { 0 }` is empty. */
struct tensor_index {
    const struct tensor *tensor; /* borrowed */
    uint32_t *order;
    size_t n;
};

/* Index the N tensors (fewer than 2^32).  Returns a tensor whose name another one has
 * too, or NULL; *x is made in either case. */
const struct tensor *tensor_index_init(struct tensor_index *x,
                                       const struct tensor *tensor, size_t n);
/* The position of NAME in the tensors, or -1. */
long tensor_index_find(const struct tensor_index *x, const char *name);
void tensor_index_clear(struct tensor_index *x);

#endif
