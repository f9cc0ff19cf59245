/* tcp - ranks on several machines, connected by TCP
 *
 * The processes of another launcher find each other at an address of rank 0 and then
 * form a group of ranks (comm.h) in which each two have a connection.  Sums are made by
 * the same tree as elsewhere, so that results are those of ranks on one machine, to
 * the bit.
 *
 * A rank is admitted if it knows the job's name and its secret (hello.h); other
 * connections are closed after at most TCP_HELLO bytes and a few seconds, and disturb
 * nobody.  Nothing is encrypted: the network that carries the data is trusted, as by
 * NCCL and MPI. */
#ifndef LIB_COMM_TCP_H
#define LIB_COMM_TCP_H

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/comm/comm.h"
#include "lib/comm/hello.h"

enum {
    TCP_JOB = HELLO_JOB, /* bytes of a job's name, with its zero */
    /* bytes that a rank says before it is admitted */
    TCP_HELLO = sizeof(struct hello) + sizeof(struct hello_proof),
};

struct tcp_meeting {
    const char *host;   /* an address of rank 0's machine */
    int port;           /* on which rank 0 listens */
    const char *job;    /* less than TCP_JOB bytes, equal on all ranks */
    const char *secret; /* the same; NULL: none */
    int rank, nranks;   /* at least 2 */
    int limit_s;        /* seconds to wait for other ranks; 0: no limit */
};

/* Waits for all ranks.  *world is closed by its ops. */
MUST_CHECK int tcp_meet(struct comm **world, const struct tcp_meeting *m,
                        struct err *err);
/* Ends all waits of all ranks: tells them that this one has failed and reports why. */
void tcp_abort(struct comm *world);
/* Has another rank called tcp_abort? */
bool tcp_is_aborted(struct comm *world);

/* ---- for tcp-meet ---- */

/* Makes the group's world of connections fd[nranks], ready and without data on their
 * way; fd[rank] is -1.  Takes ownership of the descriptors. */
struct comm *tcp_open(int rank, int nranks, const int *fd);

#endif
