/* blas - large products by cuBLASLt, if it is installed
 *
 * y = x W^T and y = x W in f32.  For bf16 weights x is split into two bf16 parts, whose
 * products are added: 16 bits of x count; or it is rounded to bf16, as is asked.  For
 * f16 weights the parts are f16, of x times a power of two that brings its largest
 * number close to f16's: 22 bits of that number count, and as many of a row that is up
 * to 2^18 times smaller; or 11 bits of each, as is asked. */
#ifndef LIB_GPU_BLAS_H
#define LIB_GPU_BLAS_H

#include "lib/gpu/back.h"
#include "lib/gpu/cuda.h"
#include "lib/gpu/gpu.h"

struct blas;
enum { BLAS_OPERANDS = 2 /* that may be in parts */ };

/* Version of cuBLAS, as it encodes it; 0 if not installed. */
size_t blas_version(void);
/* NULL if cuBLASLt is not installed or cannot be used. */
struct blas *blas_open(void);
/* All products must be complete. */
void blas_close(struct blas *b);
/* Returns 1 if the product is enqueued, 0 if the caller's own kernel must compute it,
 * -1 with *err set. */
int blas_product(struct device *d, struct blas *b, const struct products *p,
                 struct err *err);
/* The same of y += a^T b, with bf16 operands if O is rounded. */
int blas_outer(struct device *d, struct blas *b, const struct outer *o,
               struct err *err);
/* Allocates WORKSPACE and PARTS bytes of device memory (room.h).  B may be NULL. */
MUST_CHECK int blas_reserve(struct device *d, struct blas *b, uint64_t workspace,
                            const uint64_t parts[BLAS_OPERANDS], struct err *err);
/* What is allocated. */
void blas_taken(const struct blas *b, uint64_t *workspace,
                uint64_t parts[BLAS_OPERANDS]);
/* The parts of x serve the next products of the same x.  Whoever enqueues something
 * that writes device memory says so: BYTES at AT, or any memory.  A recorded graph may
 * write all that it has recorded, and its own parts.  B may be NULL. */
void blas_wrote(struct blas *b, const void *at, uint64_t bytes);
void blas_forget(struct blas *b);

#endif
