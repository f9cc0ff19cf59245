/* bubble - in-flight micro-batches and duration of pipeline schedules, cached
 *
 * After a few rounds the steps of a schedule repeat: each further round of as many
 * micro-batches as there are stages takes every rank the same time, with the same
 * number of micro-batches in flight.  So a long schedule is simulated for two lengths
 * that differ by one round, and extrapolated. */
#ifndef LIB_ESTIMATE_BUBBLE_H
#define LIB_ESTIMATE_BUBBLE_H

#include "lib/pipe/order.h"
#include "lib/pipe/simulate.h"

/* Schedules made so far. */
struct bubbles {
    struct bubble_table *table;
    size_t n, cap;
    size_t *slot; /* [nslots]: hash table of 1 + index into table; 0: free */
    size_t nslots;
};

/* Peak number of in-flight micro-batches of each rank, in thousandths of the
 * activations of all its chunks: [RANKS].  NULL if ORDER does not exist for these
 * numbers.  Borrowed until *b is cleared. */
const uint64_t *bubbles_inflight(struct bubbles *b, enum order order, int ranks,
                                 int micro_batches, int chunks);
/* Longest time from a rank's first start to its last end: the time after which it may
 * begin the next step.  Negative if ORDER does not exist for these numbers. */
double bubbles_span(struct bubbles *b, enum order order, int ranks, int micro_batches,
                    int chunks, const struct pipe_times *times);
void bubbles_clear(struct bubbles *b);

#endif
