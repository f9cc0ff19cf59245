/* alltoall - all-to-all of rows between the ranks of an expert-parallel group
 *
 * Each rank of the group (ep) has rows of its own.  It sorts them by expert, sends each
 * rank the number of rows per expert, then the rows.  Received rows are sorted by
 * expert, then by sending rank.  Every rank takes part, also with no rows. */
#ifndef LIB_RUN_ALLTOALL_H
#define LIB_RUN_ALLTOALL_H

#include "lib/run/link.h"

struct alltoall {
    struct link *link; /* borrowed */
    struct comm *comm; /* of the expert-parallel ranks; borrowed */
    int32_t *sent, *came;
    void *room[2]; /* staging for rows; the second only for a device with its own memory
                    */
    size_t cap[2];
    uint64_t most[2]; /* bytes of the largest step */
    uint64_t grown;   /* how often a step had more */
};

/* Finds how many rows P may send and receive when a step has at most MOST rows of each
 * kind; alltoall_open allocates staging for them. */
MUST_CHECK int alltoall_plan(struct alltoall *x, const struct program *p,
                             struct link *link, struct comm *comm,
                             const uint64_t most[ROWS_MOST], struct err *err);
MUST_CHECK int alltoall_open(struct alltoall *x, struct err *err);
void alltoall_close(struct alltoall *x);
uint64_t alltoall_bytes(const struct alltoall *x);
/* Runs INST, an all-to-all of mixture M (enum all_to_all_what), on device memory: Y
 * from X, whose rows have BYTES.  SENT and CAME are the mixture's row counts.  Sets
 * *chosen to the number of received rows. */
MUST_CHECK int alltoall_run(struct alltoall *x, const struct inst *inst,
                            const struct mixture *m, void *y, const void *from,
                            size_t bytes, const void *sent, const void *came,
                            size_t *chosen, struct err *err);

#endif
