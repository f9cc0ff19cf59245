/* tcp-address - where ranks listen, and where others find them */
#ifndef LIB_COMM_TCP_ADDRESS_H
#define LIB_COMM_TCP_ADDRESS_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "lib/base/err.h"

/* A rank's address as rank 0 reports it; numbers in network order. */
struct tcp_place {
    uint32_t family; /* 4 or 6; 0: on rank 0's machine */
    uint32_t port;
    unsigned char address[16];
};

/* Where the peer of FD is, without its port. */
struct tcp_place tcp_peer_place(int fd);
/* P as an address to connect to, by who is connected to rank 0 by FRONT.  Returns its
 * length; 0 with errno set if there is none. */
socklen_t tcp_place_address(struct sockaddr_storage *out, const struct tcp_place *p,
                            int front);

enum { TCP_LISTENERS = 8 }; /* addresses of a name */

struct tcp_listeners {
    int fd[TCP_LISTENERS], n;
};

/* Is HOST a number, not a name? */
bool tcp_is_number(const char *host);
/* Listen on PORT of all addresses of this machine that are HOST's.  If there are none,
 * or if HOST is a name for this machine alone (a loopback address), other machines have
 * another address for it: then on all addresses. */
MUST_CHECK int tcp_listen_at(struct tcp_listeners *l, const char *host, int port,
                             int backlog, struct err *err);
/* Listen on a free *PORT of the address from which FD is connected to HOST, by the same
 * rule. */
MUST_CHECK int tcp_listen_beside(struct tcp_listeners *l, int fd, const char *host,
                                 int *port, int backlog, struct err *err);
void tcp_unlisten(struct tcp_listeners *l);

#endif
