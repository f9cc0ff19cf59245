/* benchcomm - how fast the ranks of each axis exchange values */
#ifndef CMD_TP_RUN_BENCHCOMM_H
#define CMD_TP_RUN_BENCHCOMM_H

#include <stdbool.h>

#include "lib/run/runner.h"

/* The largest of each of the N numbers at X over all ranks of C, on all of them. */
MUST_CHECK int bench_largest(struct comm *c, double *x, size_t n, struct err *err);
/* Time all-reduces and all-gathers of R's groups, the least of REPEAT times, and print
 * them on the first rank. */
MUST_CHECK int bench_collectives(struct runner *r, int repeat, bool json,
                                 struct err *err);

#endif
