/* bubble - what a pipeline's order costs, simulated once for each shape
 *
 * A step of many micro-batches repeats itself: after a few rounds every further round
 * of as many micro-batches as there are stages takes a rank as long as the one before,
 * and no more of them are in flight.  So a long step is simulated for two lengths that
 * differ by a round, and the rest is counted in rounds. */
#ifndef LIB_ESTIMATE_BUBBLE_H
#define LIB_ESTIMATE_BUBBLE_H

#include "lib/pipe/order.h"
#include "lib/pipe/simulate.h"

/* Tables that were made, with what follows from them alone. */
struct bubbles {
    struct bubble_table *table;
    size_t n, cap;
    size_t *slot; /* [nslots]: 1 + index of a table, by hash; 0: free */
    size_t nslots;
};

/* Micro-batches in flight on each of RANKS ranks, in thousandths of a rank's stages;
 * NULL when ORDER cannot be made of these numbers.  Borrowed until *b is cleared. */
const uint64_t *bubbles_inflight(struct bubbles *b, enum order order, int ranks,
                                 int micro_batches, int chunks);
/* The longest time from a rank's first start to its last end, which is when it may
 * begin its next step; negative when ORDER cannot be made of these numbers. */
double bubbles_span(struct bubbles *b, enum order order, int ranks, int micro_batches,
                    int chunks, const struct pipe_times *times);
void bubbles_clear(struct bubbles *b);

#endif
