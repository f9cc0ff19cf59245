/* tcp-peers - bytes between this process and the others, by TCP
 *
 * What goes between two ranks is frames: a head and at most a MiB.  A frame belongs to
 * a channel of a group.  Frames are read whenever this rank calls tcp_peers_move, and
 * wait in memory for who wants them.  A channel has room for 8 MiB there; what it has
 * no room for waits with the sender, beside the other channels, until the receiver
 * reports that it has taken some.  So nobody waits for a receiver, and a rank that
 * sends what nobody wants fills no memory.  What is no frame, or has no room, ends the
 * job.
 *
 * Ranks are those of the world. */
#ifndef LIB_COMM_TCP_PEERS_H
#define LIB_COMM_TCP_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum {
    TCP_CHANNELS = 4, /* of a group */
    TCP_GROUPS = 31,  /* that can be made of one group */
};

struct tcp_peers;

/* Takes ownership of the descriptors fd[nranks], of which fd[rank] is -1. */
struct tcp_peers *tcp_peers_open(int rank, int nranks, const int *fd);
/* Tells the others that this rank has ended, and waits a while for what was sent. */
void tcp_peers_close(struct tcp_peers *p);

/* This rank has group GROUP now, with the N ranks MEMBER, which stay; or no longer. */
void tcp_peers_join(struct tcp_peers *p, uint32_t group, const int *member, int n);
void tcp_peers_leave(struct tcp_peers *p, uint32_t group);

/* Sends BYTES, more than 0, in a channel of a group that both ranks have or will have;
 * BUF may be used again at once. */
MUST_CHECK int tcp_peers_post(struct tcp_peers *p, int rank, uint32_t group,
                              uint32_t channel, const void *buf, size_t bytes,
                              struct err *err);
/* Takes what is there of the BYTES of a channel from *at on. */
void tcp_peers_fetch(struct tcp_peers *p, int rank, uint32_t group, uint32_t channel,
                     char *to, size_t *at, size_t bytes);
/* Sends and reads what can be, after waiting for at most MS milliseconds. */
MUST_CHECK int tcp_peers_move(struct tcp_peers *p, int ms, struct err *err);
/* Is there something that has not been sent? */
bool tcp_peers_unsent(const struct tcp_peers *p);

/* Fails if some rank has failed. */
MUST_CHECK int tcp_peers_check(const struct tcp_peers *p, struct err *err);
/* Fails also if what RANK has yet to send will never come. */
MUST_CHECK int tcp_peers_expect(const struct tcp_peers *p, int rank, struct err *err);
/* Is there a connection to RANK, by which more may come? */
bool tcp_peers_has(const struct tcp_peers *p, int rank);
/* Tells the others that this rank has failed.  Has another one? */
void tcp_peers_abort(struct tcp_peers *p);
bool tcp_peers_aborted(struct tcp_peers *p);

#endif
