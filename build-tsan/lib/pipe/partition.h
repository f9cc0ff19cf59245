/* partition - layers over pipeline stages, contiguous and balanced */
#ifndef LIB_PIPE_PARTITION_H
#define LIB_PIPE_PARTITION_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

/* Cut N layers into PARTS contiguous stages so that the largest cost is as small as
 * possible; among these the sum of squares as small as possible; among these the first
 * stage as light as possible, then the second, and so on.  COST[i] is of layer i, FIRST
 * of what stands before all layers, LAST of what comes after them; costs are below
 * 2^60 / (N + 2).  A stage has a layer at least, unless EMPTY.  COUNT[PARTS] becomes
 * the layers of each.  ERR_NO when there are too few layers. */
MUST_CHECK int partition_balance(int *count, const uint64_t *cost, int n,
                                 uint64_t first, uint64_t last, int parts, bool empty,
                                 struct err *err);

enum remainder { REMAINDER_FIRST, REMAINDER_MIDDLE, REMAINDER_LAST };

/* Deal N layers evenly; the stages that WHERE names take one of the rest each.  The
 * first is DeepSpeed's rule, the middle ColossalAI's. */
void partition_deal(int *count, int n, int parts, enum remainder where);

#endif
