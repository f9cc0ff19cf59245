/* all-ranks - what every rank of a group does to try its exchanges
 *
 * Returns 0, or -1 with what was wrong in *err.  For groups of at most 8 ranks. */
#ifndef TESTS_ALL_RANKS_H
#define TESTS_ALL_RANKS_H

#include "lib/comm/comm.h"

/* Sums, parts, broadcasts and messages, one after another, also in groups. */
int exchange_all(struct comm *c, struct err *err);
/* Collectives of all kinds and of sizes drawn from SEED, several under way, in C and in
 * its halves, against what one rank computes. */
int overlap_all(struct comm *c, unsigned seed, struct err *err);
/* Starts wait for nobody, and what is started goes on while this rank waits for
 * something else. */
int wait_otherwise(struct comm *c, struct err *err);

#endif
