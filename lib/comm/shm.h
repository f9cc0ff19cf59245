/* shm - what ranks of one machine share: counters to wait for, slots, rings of bytes
 *
 * Private to comm-shm.  A board is what one group's collectives need: a counter and
 * SHM_DEPTH slots for each rank.  Messages: between any two ranks lies a ring of bytes
 * for each direction, with counters of the bytes ever written and read.  What a ring
 * has no room for waits in the sender's memory, and is moved on whenever the sender
 * calls an operation. */
#ifndef LIB_COMM_SHM_H
#define LIB_COMM_SHM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/comm/comm.h"

enum {
    SHM_BOARDS = 8,     /* groups that a rank can be a member of, all ranks' included */
    SHM_DEPTH = 4,      /* slots of a rank on a board; a power of two */
    SHM_SLOT = 1 << 17, /* bytes */
};

/* A counter that ranks wait for, on a cache line of its own. */
struct post {
    _Alignas(128) _Atomic uint32_t count;
    _Atomic uint32_t sleepers;
};

/* A process's end: what its groups share. */
struct end {
    struct shm *shm;
    int rank, nranks;
    int boards;             /* in use */
    struct parcel *parcels; /* messages that wait for room, oldest first */
    /* Collectives under way, but for the one that is waited for; and what moves on
     * those of all groups, without waiting. */
    size_t under_way;
    void (*advance)(struct end *e);
    struct shm_comm *groups;
};

/* Maps the memory of a group from FD, or anonymous memory if FD is -1; FIRST: and
 * initialises it. */
MUST_CHECK int shm_map_group(struct shm **out, int fd, bool first, int nranks,
                             struct err *err);

/* The counter of rank RANK (of the end's numbering, as everywhere here) on BOARD. */
struct post *shm_post(struct shm *s, int board, int rank);
/* Its slots, char[SHM_DEPTH][SHM_SLOT]. */
char *shm_slots(struct shm *s, int board, int rank);
/* Bytes of the mapping, and of one ring. */
uint64_t shm_bytes(const struct shm *s);
uint64_t shm_ring_bytes(const struct shm *s);
/* Set P, and wake who waits for it. */
void shm_raise(struct post *p, uint32_t count);
/* Wait until READY(ARG), which changes after P has been raised.  Messages and
 * collectives under way are moved on meanwhile, as others may wait for them. */
MUST_CHECK int shm_wait(struct end *e, struct post *p, bool (*ready)(const void *arg),
                        const void *arg, struct err *err);

struct end *shm_open_end(struct shm *s, int rank);
void shm_close_end(struct end *e); /* what has not been flushed is lost */
MUST_CHECK int shm_send(struct end *e, const void *buf, size_t bytes, int to,
                        struct err *err);
MUST_CHECK int shm_receive(struct end *e, void *buf, size_t bytes, int from,
                           struct err *err);
MUST_CHECK int shm_flush(struct end *e, struct err *err);
/* Move on messages that wait for room. */
void shm_push(struct end *e);

#endif
