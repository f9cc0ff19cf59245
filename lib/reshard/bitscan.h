/* bitscan - what the numbers of a tensor are: NaN, infinite, all zero, all alike
 *
 * Tensors are looked at block by block in any order; blocks of one tensor are joined.
 * Only the bits of numbers are read, at the speed of memory. */
#ifndef LIB_RESHARD_BITSCAN_H
#define LIB_RESHARD_BITSCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"

/* `struct bitscan v = { 0 }` has seen nothing. */
struct bitscan {
    uint64_t seen; /* numbers */
    uint64_t nans, infinities;
    bool other;    /* two of them have different bits */
    bool nonzero;  /* one of them is not 0 or -0 */
    double sample; /* one of them */
    uint64_t bits; /* its bits */
};

/* True for the types whose numbers can be looked at: real floats of 8 bits and more. */
bool bitscan_known(enum dtype t);
/* Adds the numbers of type T in the BYTES bytes at BUF, which are whole numbers. */
void bitscan_add(struct bitscan *v, enum dtype t, const void *buf, size_t bytes);
/* Adds what FROM has seen. */
void bitscan_join(struct bitscan *v, const struct bitscan *from);

#endif
