/* exchange - how rows reach the ranks of their experts, and come back
 *
 * Ranks that share out the experts (ep) have rows of their own.  Each sorts them by
 * expert, tells the others how many there are for each of theirs, and sends them; what
 * has come is sorted by expert, and in it by rank.  Every rank takes part, also one
 * that has no rows. */
#ifndef LIB_RUN_EXCHANGE_H
#define LIB_RUN_EXCHANGE_H

#include "lib/run/link.h"

struct exchange {
    struct link *link; /* borrowed */
    struct comm *comm; /* of the ranks that share out experts; borrowed */
    int32_t *sent, *came;
    void *room[2]; /* rows on their way; those of a device that is not the host */
    size_t cap[2];
};

/* Room for the rows that P may send and receive where a step has at most MOST rows of
 * each kind. */
MUST_CHECK int exchange_open(struct exchange *x, const struct program *p,
                             struct link *link, struct comm *comm,
                             const uint64_t most[ROWS_KINDS], struct err *err);
void exchange_close(struct exchange *x);
uint64_t exchange_bytes(const struct exchange *x);
/* Run INST, an all-to-all of mixture M (enum exchange_what), on device memory: Y from
 * X. SENT and CAME are the mixture's numbers.  *chosen is set to the rows that come. */
MUST_CHECK int exchange_run(struct exchange *x, const struct inst *inst,
                            const struct mixture *m, void *y, const void *from,
                            uint64_t cols, const void *sent, const void *came,
                            size_t *chosen, struct err *err);

#endif
