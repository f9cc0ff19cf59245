/* pairwise - collectives in which every rank sends each other rank its part
 *
 * What moves the parts is the backend's: it posts receives and sends that do not block,
 * and that arrive, between two ranks and in one channel, in their order. */
#ifndef LIB_COMM_PAIRWISE_H
#define LIB_COMM_PAIRWISE_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/comm/comm.h"

enum pairwise_channel {
    PAIRWISE_SUMS,    /* terms of sums */
    PAIRWISE_RESULTS, /* sums */
    PAIRWISE_PARTS,   /* of the other collectives */
};

struct pairwise {
    struct comm *comm;
    const struct collective *op;
    char **part; /* [size] by sender: what this rank sums; the caller frees it */
    /* Starts to send the BYTES at AT to RANK, or to receive them from it there. */
    int (*post)(const struct pairwise *p, bool sends, enum pairwise_channel channel,
                void *at, size_t bytes, int rank, struct err *err);
    void *flight; /* the backend's */
};

/* Starts an operation other than a broadcast, in a group of several ranks. */
MUST_CHECK int pairwise_start(const struct pairwise *p, struct err *err);
/* When all that pairwise_start has posted for a sum has arrived: sums by the tree over
 * the ranks, and sends the result to ranks that need it. */
MUST_CHECK int pairwise_sum(const struct pairwise *p, struct err *err);

#endif
