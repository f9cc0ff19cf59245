/* flows - messages between the stages of a pipeline whose ranks have several
 *
 * A stage gets a communicator whose ranks are the stages, to send and receive alone:
 * what one stage sends to another arrives in the order in which it was sent, and is
 * received in the pieces in which it was sent.  Ranks send to each other what several
 * stages say, as it comes; what a rank receives before a stage asks for it is kept, as
 * is what a stage sends to another of the same rank. */
#ifndef LIB_COMM_FLOWS_H
#define LIB_COMM_FLOWS_H

#include "lib/comm/comm.h"

struct flows;

/* For the STAGES stages of ranks RANK_OF[stages] of PIPE, which must outlive *out. */
struct flows *flows_open(struct comm *pipe, const int *rank_of, int stages);
void flows_close(struct flows *f); /* NULL is allowed */
/* The communicator of STAGE, of this rank; F's. */
struct comm *flows_of(struct flows *f, int stage);
/* The most bytes of messages that were kept at a time. */
uint64_t flows_kept(const struct flows *f);

#endif
