/* benchcomm - measures the collectives of each mesh axis */
#ifndef CMD_TP_RUN_BENCHCOMM_H
#define CMD_TP_RUN_BENCHCOMM_H

#include <stdbool.h>

#include "lib/run/runner.h"

/* x[N] = the maximum over all ranks of C; on all ranks. */
MUST_CHECK int bench_largest(struct comm *c, double *x, size_t n, struct err *err);
/* Times all-reduces and all-gathers of R's groups, taking the minimum of REPEAT times,
 * and prints them on rank 0. */
MUST_CHECK int bench_collectives(struct runner *r, int repeat, bool json,
                                 struct err *err);

#endif
