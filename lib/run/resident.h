/* resident - copies of mapped weights in huge pages, made between steps
 *
 * The pages of a mapped file mostly have 4 KiB, and a CPU that reads all weights for
 * each token waits for their translation.  A copy costs what some to hundreds of tokens
 * cost: in a virtual machine, new pages may have to come from its host.  So weights are
 * copied one by one after the first step, as long as the rest of the run is expected to
 * win back the time that the copies before took for each byte, and only where memory is
 * ample.  The bytes, and so the results, are the same. */
#ifndef LIB_RUN_RESIDENT_H
#define LIB_RUN_RESIDENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/device/device.h"

/* Memory mapped from a file. */
struct resident_part {
    const void *data;
    uint64_t bytes;
    void *copy; /* memory for the same bytes; or NULL */
};

struct resident {
    const struct backend *ops;
    struct device *device;
    struct resident_part *part;
    size_t n, cap, next;
    uint64_t bytes;       /* of the memory for copies */
    uint64_t all, each;   /* bytes of all parts; to copy after a step: 0, if no more
                           * copies are made */
    uint64_t steps, done; /* that are expected; that were made */
    double before;        /* when this step began, or 0 */
    double step_seconds, seconds; /* of the last step; of all copies so far, */
    uint64_t copied;              /* and their bytes */
};

/* BYTES at DATA are mapped and read by products. */
void resident_add(struct resident *r, const void *data, uint64_t bytes);
/* Decides whether copies are made: STEPS are expected of this rank, one of RANKS on
 * this machine.  DEVICE, of OPS, must outlive R. */
void resident_plan(struct resident *r, const struct backend *ops, struct device *device,
                   uint64_t steps, int ranks);
/* Copies some parts and directs MATRIX [N] to the copies.  Call it between steps, by
 * the thread that runs them.  Where memory is refused, the rest stays mapped. */
void resident_step(struct resident *r, struct matrix *matrix, int n);
void resident_clear(struct resident *r);

#endif
