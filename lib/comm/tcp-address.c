/* tcp-address - where ranks listen, and where others find them */
#define _GNU_SOURCE
#include "lib/comm/tcp-address.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* An address of either family. */
union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    struct sockaddr_storage room;
};

static bool is_loopback(const struct sockaddr *any)
{
    const union address *a = (const union address *)any;
    static const unsigned char mapped[13] = { [10] = 0xff, [11] = 0xff, [12] = 127 };

    if (any->sa_family == AF_INET)
        return ntohl(a->four.sin_addr.s_addr) >> 24 == 127;
    return any->sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(&a->six.sin6_addr) ||
            !memcmp(&a->six.sin6_addr, mapped, sizeof(mapped)));
}

static in_port_t *port_of(union address *a)
{
    return a->any.sa_family == AF_INET6 ? &a->six.sin6_port : &a->four.sin_port;
}

static socklen_t length_of(const union address *a)
{
    return a->any.sa_family == AF_INET6 ? sizeof(a->six) : sizeof(a->four);
}

/* ---- places ---- */

struct tcp_place tcp_peer_place(int fd)
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
    union address a = { 0 };
    struct tcp_place p = { 0 };
    socklen_t n = sizeof(a);

    if (getpeername(fd, &a.any, &n) < 0 || is_loopback(&a.any))
        return p;
    if (a.any.sa_family == AF_INET) {
        memcpy(p.address, &a.four.sin_addr, 4);
        p.family = htonl(4);
    } else if (a.any.sa_family == AF_INET6) {
        bool four = !memcmp(&a.six.sin6_addr, mapped, sizeof(mapped));

        memcpy(p.address, (const char *)&a.six.sin6_addr + (four ? 12 : 0),
               four ? 4 : 16);
        p.family = htonl(four ? 4 : 6);
    }
    return p;
}

socklen_t tcp_place_address(struct sockaddr_storage *out, const struct tcp_place *p,
                            int front)
{
    union address a = { 0 };
    socklen_t n = sizeof(a);

    if (!p->family) { /* on rank 0's machine, or all are on one */
        if (getpeername(front, &a.any, &n) < 0)
            return 0;
    } else if (ntohl(p->family) == 4) {
        a.four.sin_family = AF_INET;
        memcpy(&a.four.sin_addr, p->address, 4);
    } else if (ntohl(p->family) == 6) {
        a.six.sin6_family = AF_INET6;
        memcpy(&a.six.sin6_addr, p->address, 16);
    } else {
        errno = EPROTO;
        return 0;
    }
    *port_of(&a) = htons((uint16_t)ntohl(p->port));
    *out = a.room;
    return length_of(&a);
}

/* ---- listening ---- */

/* A socket that listens at A; -1 with errno set. */
static int listen_at(const union address *a, int backlog, bool both_families)
{
    int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, alone = !both_families, why;

    if (fd < 0)
        return -1;
    if (a->any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &alone, sizeof(alone));
    /* a port whose last connections are in TIME_WAIT */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, &a->any, length_of(a)) == 0 && listen(fd, backlog) == 0)
        return fd;
    why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* The same on PORT of all addresses: of both families, else IPv4. */
static int listen_everywhere(int port, int backlog)
{
    union address six = { .six = { .sin6_family = AF_INET6 } };
    union address four = { .four = { .sin_family = AF_INET } };
    int fd;

    six.six.sin6_port = four.four.sin_port = htons((uint16_t)port);
    fd = listen_at(&six, backlog, true);
    return fd >= 0 || errno == EADDRINUSE ? fd : listen_at(&four, backlog, false);
}

static void copy_address(union address *to, const struct addrinfo *from)
{
    *to = (union address){ 0 };
    if (from->ai_addrlen <= sizeof(*to))
        memcpy(to, from->ai_addr, from->ai_addrlen);
}

bool tcp_is_number(const char *host)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST },
                    *all;

    if (getaddrinfo(host, NULL, &hints, &all) != 0)
        return false;
    freeaddrinfo(all);
    return true;
}

int tcp_listen_at(struct tcp_listeners *l, const char *host, int port, int backlog,
                  struct err *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all = NULL;
    bool number = tcp_is_number(host), in_use = false;

    l->n = 0;
    if (getaddrinfo(host, NULL, &hints, &all) != 0)
        all = NULL;
    for (const struct addrinfo *i = all; i && l->n < TCP_LISTENERS; i = i->ai_next) {
        union address a;
        int fd;

        copy_address(&a, i);
        *port_of(&a) = htons((uint16_t)port);
        if (!number && is_loopback(&a.any))
            continue;
        fd = listen_at(&a, backlog, false);
        if (fd >= 0)
            l->fd[l->n++] = fd;
        else
            in_use |= errno == EADDRINUSE;
    }
    if (all)
        freeaddrinfo(all);
    if (!l->n && !in_use) {
        l->fd[0] = listen_everywhere(port, backlog);
        l->n = l->fd[0] >= 0;
        in_use = !l->n && errno == EADDRINUSE;
    }
    if (in_use) {
        tcp_unlisten(l);
        return err_set(err, ERR_SYSTEM, "another program uses port %d", port);
    }
    return l->n ? 0 : err_errno(err, "listening on port %d", port);
}

int tcp_listen_beside(struct tcp_listeners *l, int fd, const char *host, int *port,
                      int backlog, struct err *err)
{
    union address a = { 0 };
    socklen_t n = sizeof(a);

    l->n = 0;
    if (getsockname(fd, &a.any, &n) < 0)
        return err_errno(err, "the address of this machine");
    *port_of(&a) = 0;
    l->fd[0] = is_loopback(&a.any) && !tcp_is_number(host)
                   ? listen_everywhere(0, backlog)
                   : listen_at(&a, backlog, false);
    if (l->fd[0] < 0)
        return err_errno(err, "listening");
    l->n = 1;
    n = sizeof(a);
    if (getsockname(l->fd[0], &a.any, &n) < 0) {
        tcp_unlisten(l);
        return err_errno(err, "the port of this rank");
    }
    *port = ntohs(*port_of(&a));
    return 0;
}

void tcp_unlisten(struct tcp_listeners *l)
{
    while (l->n)
        close(l->fd[--l->n]);
}
