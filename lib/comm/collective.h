/* collective - what the backends of comm.h have in common */
#ifndef LIB_COMM_COLLECTIVE_H
#define LIB_COMM_COLLECTIVE_H

#include <stddef.h>

#include "lib/comm/comm.h"

/* What *op is in a group of one rank: at most a copy. */
void collective_alone(const struct collective *op);
/* Bytes of part R of P, which is op->part or op->in; and bytes before it. */
size_t collective_part(const struct collective *op, const struct comm_parts *p, int r);
size_t collective_start(const struct collective *op, const struct comm_parts *p, int r);
/* to[bytes] = a[bytes] + b[bytes], numbers as *op sums; TO may be A. */
void collective_add(const struct collective *op, void *to, const void *a, const void *b,
                    size_t bytes);
/* to[bytes] = the sum of PART[0] to PART[N - 1], N at least 2, by a tree: the left half
 * is the first P ranks, P the largest power of two below N, the right half the others;
 * each half is summed in the same way.  TO overlaps none of the parts. */
void collective_sum(const struct collective *op, void *to, const void *const *part,
                    int n, size_t bytes);
/* to[bytes] = from[bytes], where the two may be one. */
void collective_copy(void *to, const void *from, size_t bytes);

#endif
