/* comm - how the ranks of a group exchange values
 *
 * Every rank of the group calls the same collective operations in the same order.  Sums
 * are made in rank order, so they do not depend on who arrives first.  Messages between
 * two ranks stand beside them: they arrive in the order in which they were sent.  When
 * a rank is gone the others' waits end with ERR_SYSTEM. */
#ifndef LIB_COMM_COMM_H
#define LIB_COMM_COMM_H

#include <stddef.h>

#include "lib/base/err.h"

struct comm {
    const struct comm_ops *ops;
    int rank, size;
};

struct comm_ops {
    const char *name;
    /* x[n] = the sum of all ranks' x */
    int (*sum_f32)(struct comm *c, float *x, size_t n, struct err *err);
    int (*sum_f64)(struct comm *c, double *x, size_t n, struct err *err);
    /* all[rank][bytes] = each rank's mine[bytes] */
    int (*gather)(struct comm *c, const void *mine, void *all, size_t bytes,
                  struct err *err);
    /* buf[bytes] of rank ROOT, to all */
    int (*broadcast)(struct comm *c, void *buf, size_t bytes, int root,
                     struct err *err);
    /* Send buf[bytes] to rank TO (another).  BUF may be used again at once; nobody
     * waits for the receiver.  What TO has not room for yet goes on its way whenever
     * this rank calls an operation of any group. */
    int (*send)(struct comm *c, const void *buf, size_t bytes, int to, struct err *err);
    /* Receive into buf[bytes] what rank FROM (another) sends; messages may be taken in
     * other pieces than they were sent in. */
    int (*receive)(struct comm *c, void *buf, size_t bytes, int from, struct err *err);
    /* A group of the N ranks MEMBER of C, ascending, this one among them; its ranks are
     * numbered in that order.  All ranks of C call it, each with its own group's
     * members; the groups are disjoint.  *out is the caller's and is closed before C.
     */
    int (*group)(struct comm *c, const int *member, int n, struct comm **out,
                 struct err *err);
    /* Wait until all that this rank has sent, in whatever group, is with its receivers
     * or in their reach. */
    int (*flush)(struct comm *c, struct err *err);
    /* Release; what has not been flushed is lost. */
    void (*close)(struct comm *c);
};

/* A group of one rank; there is nothing to exchange. */
struct comm *comm_self_open(void);

/* Memory for a group of NRANKS processes on this machine: anonymous and shared, so it
 * must be made before they are forked, and nothing is left when they are gone. */
struct shm;
int shm_open_group(struct shm **out, int nranks, struct err *err);
void shm_close_group(struct shm *s);
/* End all waits of all ranks. */
void shm_abort(struct shm *s);
/* Rank RANK's end; in its process. */
struct comm *comm_shm_open(struct shm *s, int rank);

#endif
