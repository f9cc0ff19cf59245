/* blas - large products by cuBLASLt, where it is there
 *
 * y = x W^T and y = x W in f32.  Weights in bf16 are multiplied as they are, by x in
 * two parts that are bf16 each, whose products are added: sixteen bits of x count.
 * Those in f16 are not: x may be beyond what f16 holds. */
#ifndef LIB_GPU_BLAS_H
#define LIB_GPU_BLAS_H

#include "lib/gpu/cuda.h"
#include "lib/gpu/gpu.h"

struct blas;

/* *version as cuBLAS tells it, or 0 without one. */
size_t blas_version(void);
/* NULL when there is no cuBLASLt, or it cannot be used. */
struct blas *blas_open(void);
/* All products have been made. */
void blas_close(struct blas *b);
/* 1: it has been put into the stream; 0: the caller's kernels are to make it; -1 with
 * *err set. */
int blas_product(struct device *d, struct blas *b, const struct products *p,
                 struct err *err);

#endif
