/* npy - an array of floats as a file of NumPy */
#ifndef LIB_CKPT_NPY_H
#define LIB_CKPT_NPY_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

/* Does the name PATH end in .npy?  False for NULL. */
bool npy_is(const char *path);
/* Writes X[shape[0]][shape[1]] to PATH in NumPy's format 1.0, as little-endian f32. */
MUST_CHECK int npy_write(const char *path, const uint64_t shape[2], const float *x,
                         struct err *err);

#endif
