/* search - an order without bubbles, as far as memory allows
 *
 * Orders with split backward passes, one stage on each rank, follow a rule with two
 * settings a rank: how far forward passes may be ahead of backward passes, and how long
 * to wait for either before weight gradients fill the time.  The
 * settings are searched for the shortest span (Qi et al. 2024, "Zero Bubble Pipeline
 * Parallelism", section 3 has the problem and other heuristics). */
#ifndef LIB_PIPE_SEARCH_H
#define LIB_PIPE_SEARCH_H

#include "lib/pipe/simulate.h"

/* Make the table for RANKS stages, whose activations never exceed CAP micro-batches'
 * (times->freed counts).  The same numbers give the same table.  ERR_NO when CAP is
 * below 1. */
MUST_CHECK int search_make(struct action_table *t, int ranks, int micro_batches,
                           const struct pipe_times *times, double cap, struct err *err);

#endif
