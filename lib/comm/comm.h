/* comm - how the ranks of a group exchange values
 *
 * A collective operation is described (comm_all_reduce and the others below) and then
 * run, or started and later waited for, so that work may be done meanwhile:
 *
 *     comm_run(c, comm_all_reduce(x, n), err)
 *
 * Every rank of the group runs or starts the same operations in the same order, and
 * waits for them in the order in which they were started; several may be under way.
 * From start to wait the buffers, and the arrays of counts, are the operation's: they
 * are not written, and what it fills is not read.  Buffers are memory of the host.
 * Sums are made by one tree over the ranks (the first, as many as the largest power of
 * two below their number, then the others, then both), so they do not depend on who
 * arrives first, and a number has the same sum in an all-reduce and in a
 * reduce-scatter, to the bit.
 *
 * Messages between two ranks stand beside collectives: they arrive in the order in
 * which they were sent.  When a rank is gone the others' waits end with ERR_SYSTEM.
 * After an error a group is only closed. */
#ifndef LIB_COMM_COMM_H
#define LIB_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum comm_kind {
    COMM_ALL_REDUCE,
    COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER,
    COMM_ALL_TO_ALL,
    COMM_BROADCAST,
    COMM_NKINDS
};

enum comm_sum { COMM_SUM_NONE, COMM_SUM_F32, COMM_SUM_F64 };

/* Where the parts of a buffer are: part R is of rank R, or for it.  An empty part has
 * count 0. */
struct comm_parts {
    const size_t *count;  /* [size] elements */
    const size_t *offset; /* [size] elements before it; NULL: the parts are in order */
};

/* What to do; made by the functions below. */
struct collective {
    enum comm_kind kind;
    enum comm_sum sum;
    size_t unit;      /* bytes of an element */
    const void *from; /* what this rank gives */
    void *to;         /* where its result goes */
    size_t n;         /* elements: the whole, or of each part where all are equal */
    struct comm_parts part; /* of the whole; in an all-to-all those of FROM */
    struct comm_parts in;   /* in an all-to-all those of TO */
    int root;
};

/* x[n] = the sum of all ranks' x */
struct collective comm_all_reduce(float *x, size_t n);
struct collective comm_all_reduce_f64(double *x, size_t n);
/* mine[count[rank]] = this rank's part of the sum of all ranks' x, whose parts COUNT
 * are equal on all ranks.  MINE may be this rank's part of x, not another place in x.
 */
struct collective comm_reduce_scatter(const float *x, float *mine, const size_t *count);
/* all[rank][bytes] = each rank's mine[bytes]; MINE may be its place in ALL. */
struct collective comm_all_gather(const void *mine, void *all, size_t bytes);
/* The same of parts of COUNT elements of UNIT bytes, one after another; COUNT is equal
 * on all ranks. */
struct collective comm_all_gather_parts(const void *mine, void *all,
                                        const size_t *count, size_t unit);
/* Part R of FROM goes to rank R; part R of TO comes from rank R, whose part for this
 * rank has as many elements; of UNIT bytes.  The buffers do not overlap. */
struct collective comm_all_to_all(const void *from, struct comm_parts out, void *to,
                                  struct comm_parts in, size_t unit);
/* buf[bytes] of rank ROOT, to all */
struct collective comm_broadcast(void *buf, size_t bytes, int root);

/* What a group's collectives were.  Bytes are of whole values: an all-reduce's x, a
 * reduce-scatter's x, an all-gather's ALL, all that this rank gives in an all-to-all,
 * a broadcast's buffer; not what travels, which depends on how it is done. */
struct comm_tally {
    uint64_t calls, bytes;
};

struct comm {
    const struct comm_ops *ops;
    int rank, size;
    size_t under_way; /* collectives started and not finished */
    size_t finished;  /* by a later comm_run, and not waited for */
    struct comm_tally tally[COMM_NKINDS];
};

MUST_CHECK int comm_start(struct comm *c, struct collective op, struct err *err);
/* Finish the first of those that have been started and not waited for. */
MUST_CHECK int comm_wait(struct comm *c, struct err *err);
/* Start and wait.  What was started before it finishes too; its own waits then return
 * at once. */
MUST_CHECK int comm_run(struct comm *c, struct collective op, struct err *err);
/* What C has run and started of a kind. */
const struct comm_tally *comm_tally(const struct comm *c, enum comm_kind kind);

/* Memory in bytes that ranks of a machine share to communicate. */
struct comm_memory {
    uint64_t mapped; /* by all of them together; pages come when they are written */
    uint64_t slots;  /* of these: for what this rank gives to collectives, of all of its
                      * groups, */
    uint64_t rings;  /* and for its messages on their way */
};

/* What this rank's groups, of which C is one, hold: at most SLOTS + RINGS bytes are
 * written by it, but for counters.  0 where ranks share nothing; what MPI allocates is
 * not known, and messages that wait for room are not counted. */
void comm_held(const struct comm *c, struct comm_memory *m);

struct comm_ops {
    const char *name;
    /* Begin *op, which is copied; does not wait for other ranks. */
    int (*start)(struct comm *c, const struct collective *op, struct err *err);
    /* Finish the oldest operation under way, of which there is one. */
    int (*wait)(struct comm *c, struct err *err);
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
    /* See comm_held.  NULL: nothing. */
    void (*held)(const struct comm *c, struct comm_memory *m);
    /* Release; what has not been flushed or waited for is lost. */
    void (*close)(struct comm *c);
};

/* A group of one rank; there is nothing to exchange. */
struct comm *comm_self_open(void);

/* Memory for a group of NRANKS processes on this machine: anonymous and shared, so it
 * must be made before they are forked, and nothing is left when they are gone. */
struct shm;
MUST_CHECK int shm_open_group(struct shm **out, int nranks, struct err *err);
/* The same for independent processes of one user: each calls this with its RANK and a
 * common NAME of less than 80 bytes.  Fails after LIMIT_S seconds of waiting for
 * another rank; 0: without limit. */
MUST_CHECK int shm_meet(struct shm **out, const char *name, int rank, int nranks,
                        int limit_s, struct err *err);
void shm_close_group(struct shm *s); /* NULL is allowed */
/* End all waits of all ranks. */
void shm_abort(struct shm *s);
bool shm_is_aborted(const struct shm *s);
/* Rank RANK's end; in its process. */
struct comm *comm_shm_open(struct shm *s, int rank);

#endif
