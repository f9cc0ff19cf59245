/* tcp-meet - processes on several machines find and connect to each other
 *
 * Rank 0 listens on the job's port.  Each other rank connects to it, says who it is and
 * where it listens itself, and gets the addresses of all once they are there.  Then
 * each connects to the ranks below it and waits for those above it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/comm/tcp.h"

enum {
    NAP_MS = 50,
    STRANGERS = 32, /* connections that have not said who they are */
    HELLO_S = 5,    /* seconds in which they must */
    CONNECT_MS = 5000,
};

/* A rank's first message; numbers in network order, as everywhere here. */
struct hello {
    char magic[8];
    uint32_t rank, nranks, port;
    char rest[12];
    char job[TCP_JOB];
};

/* Rank 0's answer, and a rank's place, of which it has one for each rank. */
struct answer {
    char magic[8];
    uint32_t admitted, nranks;
};

struct place {
    uint32_t family; /* 4 or 6; 0: on rank 0's machine */
    uint32_t port;
    unsigned char address[16];
};

static const char magic[8] = { 's', 'h', 'a', 'r', 'd', 't', 'c', '1' };

struct meeting {
    const struct tcp_meeting *m;
    double end; /* deadline by clock_seconds; 0: none */
    int listener, port;
    int *fd;             /* [nranks] */
    struct place *place; /* [nranks] */
};

static bool is_late(const struct meeting *g)
{
    return g->end > 0 && clock_seconds() > g->end;
}

/* Waits until FD is ready for EVENTS; false after the deadline or MS milliseconds. */
static bool await(const struct meeting *g, int fd, short events, int ms)
{
    double end = clock_seconds() + ms / 1e3;
    struct pollfd p = { .fd = fd, .events = events };

    do
        if (poll(&p, 1, NAP_MS) > 0)
            return true;
    while (!is_late(g) && (!ms || clock_seconds() < end));
    return false;
}

/* Receives exactly BYTES. */
static bool take(const struct meeting *g, int fd, void *to, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n;

        if (!await(g, fd, POLLIN, 0))
            return false;
        n = recv(fd, (char *)to + at, bytes - at, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool give(const struct meeting *g, int fd, const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = send(fd, (const char *)from + at, bytes - at, MSG_NOSIGNAL);

        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        at += n > 0 ? (size_t)n : 0;
        if (n < 0 && !await(g, fd, POLLOUT, 0))
            return false;
    }
    return true;
}

/* ---- addresses ---- */

/* The port that FD listens on; 0: unknown. */
static int own_port(int fd)
{
    struct sockaddr_storage a = { 0 };
    socklen_t n = sizeof(a);

    if (getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

/* Where the peer of FD is; on this machine: family 0. */
static struct place peer_place(int fd)
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
    struct sockaddr_storage a = { 0 };
    struct place p = { 0 };
    socklen_t n = sizeof(a);

    if (getpeername(fd, (struct sockaddr *)&a, &n) < 0)
        return p;
    if (a.ss_family == AF_INET) {
        memcpy(p.address, &((struct sockaddr_in *)&a)->sin_addr, 4);
        p.family = 4;
    } else if (a.ss_family == AF_INET6) {
        memcpy(p.address, &((struct sockaddr_in6 *)&a)->sin6_addr, 16);
        p.family = 6;
        if (!memcmp(p.address, mapped, sizeof(mapped))) {
            memmove(p.address, p.address + 12, 4);
            p.family = 4;
        }
    }
    if ((p.family == 4 && p.address[0] == 127) ||
        (p.family == 6 && IN6_IS_ADDR_LOOPBACK((struct in6_addr *)p.address)))
        p.family = 0;
    p.family = htonl(p.family);
    return p;
}

static socklen_t address_of(const struct place *p, struct sockaddr_storage *out)
{
    *out = (struct sockaddr_storage){ 0 };
    if (ntohl(p->family) == 4) {
        struct sockaddr_in *a = (struct sockaddr_in *)out;

        a->sin_family = AF_INET;
        a->sin_port = htons((uint16_t)ntohl(p->port));
        memcpy(&a->sin_addr, p->address, 4);
        return sizeof(*a);
    }
    if (ntohl(p->family) == 6) {
        struct sockaddr_in6 *a = (struct sockaddr_in6 *)out;

        a->sin6_family = AF_INET6;
        a->sin6_port = htons((uint16_t)ntohl(p->port));
        memcpy(&a->sin6_addr, p->address, 16);
        return sizeof(*a);
    }
    return 0;
}

/* ---- listening ---- */

/* A socket that listens on PORT of all addresses, or on any port if it is 0; -1 with
 * errno set. */
static int listen_on(int port, int backlog)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6,
                                .sin6_port = htons((uint16_t)port) };
    struct sockaddr_in four = { .sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port) };

    for (int i = 0; i < 2; i++) { /* both families by one socket; else IPv4 */
        int fd = socket(i ? AF_INET : AF_INET6,
                        SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int on = 1, off = 0, why;

        if (fd < 0)
            continue;
        if (!i)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        /* a port whose last connections are in TIME_WAIT */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, i ? (struct sockaddr *)&four : (struct sockaddr *)&six,
                 i ? sizeof(four) : sizeof(six)) == 0 &&
            listen(fd, backlog) == 0)
            return fd;
        why = errno;
        close(fd);
        errno = why;
        if (why == EADDRINUSE)
            return -1;
    }
    return -1;
}

/* A connection that has not said who it is. */
struct stranger {
    int fd;
    double end;
    size_t have;
    struct hello hello;
};

static void drop(struct stranger *s, int *n, int i)
{
    close(s[i].fd);
    s[i] = s[--*n];
}

/* The hello of FD is whole: admit the rank.  Returns 1; 0 if it is not of this job; -1
 * with *err set if the job contradicts itself. */
static int admit(struct meeting *g, int fd, const struct hello *h, int least,
                 struct err *err)
{
    uint32_t rank = ntohl(h->rank), nranks = ntohl(h->nranks);
    struct answer no = { .nranks = htonl((uint32_t)g->m->nranks) };
    bool here;

    if (memcmp(h->magic, magic, sizeof(magic)) != 0)
        return 0;
    memcpy(no.magic, magic, sizeof(magic));
    if (memchr(h->job, 0, TCP_JOB) == NULL || strcmp(h->job, g->m->job) != 0) {
        (void)give(g, fd, &no, sizeof(no)); /* another job: it need not wait */
        return 0;
    }
    here = rank < (uint32_t)g->m->nranks && g->fd[rank] >= 0;
    if (nranks != (uint32_t)g->m->nranks || rank < (uint32_t)least ||
        rank >= (uint32_t)g->m->nranks || here)
        return err_set(err, ERR_INPUT,
                       "a process connects as rank %u of %u, but there are %d ranks%s",
                       (unsigned)rank, (unsigned)nranks, g->m->nranks,
                       here ? " and that rank has connected" : "");
    g->fd[rank] = fd;
    g->place[rank] = peer_place(fd);
    g->place[rank].port = h->port;
    return 1;
}

/* Reads what stranger I has sent.  Returns 1 if it was admitted, 0, or -1. */
static int hear(struct meeting *g, struct stranger *s, int *n, int i, int least,
                struct err *err)
{
    ssize_t got = recv(s[i].fd, (char *)&s[i].hello + s[i].have,
                       sizeof(s[i].hello) - s[i].have, 0);
    int ret;

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    s[i].have += got > 0 ? (size_t)got : 0;
    /* rubbish goes at once */
    if (got <= 0 ||
        memcmp(&s[i].hello, magic,
               s[i].have < sizeof(magic) ? s[i].have : sizeof(magic)) != 0) {
        drop(s, n, i);
        return 0;
    }
    if (s[i].have < sizeof(s[i].hello))
        return 0;
    ret = admit(g, s[i].fd, &s[i].hello, least, err);
    if (ret > 0)
        s[i] = s[--*n];
    else
        drop(s, n, i);
    return ret;
}

static int accept_one(struct meeting *g, struct stranger *s, int *n)
{
    int fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return -1;
    if (*n == STRANGERS) /* the oldest makes room */
        drop(s, n, 0);
    s[*n] = (struct stranger){ .fd = fd, .end = clock_seconds() + HELLO_S };
    ++*n;
    return 0;
}

/* Waits for the connections of the ranks from LEAST on. */
static int collect(struct meeting *g, int least, struct err *err)
{
    struct stranger s[STRANGERS];
    struct pollfd p[STRANGERS + 1];
    int n = 0, left = g->m->nranks - least, ret = -1;

    while (left > 0) {
        int m = n;

        p[0] = (struct pollfd){ .fd = g->listener, .events = POLLIN };
        for (int i = 0; i < n; i++)
            p[i + 1] = (struct pollfd){ .fd = s[i].fd, .events = POLLIN };
        poll(p, (nfds_t)n + 1, NAP_MS);
        for (int i = m - 1; i >= 0; i--) { /* the last first: they move */
            int got = p[i + 1].revents ? hear(g, s, &n, i, least, err) : 0;

            if (got < 0)
                goto out;
            left -= got;
        }
        for (int i = n - 1; i >= 0; i--)
            if (clock_seconds() > s[i].end)
                drop(s, &n, i);
        while (p[0].revents && accept_one(g, s, &n) == 0)
            ;
        if (left && is_late(g)) {
            int rank = least;

            while (g->fd[rank] >= 0)
                rank++;
            err_set(err, ERR_SYSTEM, "rank %d has not connected (--rank-timeout)",
                    rank);
            goto out;
        }
    }
    ret = 0;
out:
    while (n)
        drop(s, &n, n - 1);
    return ret;
}

/* ---- connecting ---- */

/* A connection to the address; -1 with errno set. */
static int connect_to(const struct meeting *g, const struct sockaddr *a, socklen_t len)
{
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
        why = 0;
    socklen_t n = sizeof(why);

    if (fd < 0)
        return -1;
    if (connect(fd, a, len) < 0) {
        why = errno;
        if (why == EINPROGRESS) {
            why = ETIMEDOUT;
            if (await(g, fd, POLLOUT, CONNECT_MS))
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n);
        }
    }
    if (!why)
        return fd;
    close(fd);
    errno = why;
    return -1;
}

static bool greet(const struct meeting *g, int fd)
{
    struct hello h = { .rank = htonl((uint32_t)g->m->rank),
                       .nranks = htonl((uint32_t)g->m->nranks),
                       .port = htonl((uint32_t)g->port) };

    _Static_assert(sizeof(h) == TCP_HELLO, "bytes of a hello");
    memcpy(h.magic, magic, sizeof(magic));
    snprintf(h.job, sizeof(h.job), "%s", g->m->job);
    return give(g, fd, &h, sizeof(h));
}

/* Connects to rank 0 by any of its addresses; -1 if nobody is there yet. */
static int try_front(const struct meeting *g, const struct addrinfo *all)
{
    for (const struct addrinfo *a = all; a; a = a->ai_next) {
        int fd = connect_to(g, a->ai_addr, a->ai_addrlen);

        if (fd >= 0 && greet(g, fd))
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

/* Finds rank 0 and gets the places of all ranks. */
static int find_front(struct meeting *g, struct err *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all = NULL;
    size_t bytes = (size_t)g->m->nranks * sizeof(*g->place);
    struct answer a = { .nranks = 0 };
    char port[16];
    int fd = -1, why, ret = -1;

    snprintf(port, sizeof(port), "%d", g->m->port);
    why = getaddrinfo(g->m->host, port, &hints, &all);
    if (why)
        return err_set(err, ERR_SYSTEM, "%s: %s", g->m->host, gai_strerror(why));
    do {
        fd = try_front(g, all);
        if (fd >= 0 && take(g, fd, &a, sizeof(a)))
            break;
        if (fd >= 0)
            close(fd);
        fd = -1;
        poll(NULL, 0, NAP_MS);
    } while (!is_late(g));
    freeaddrinfo(all);
    if (fd < 0)
        return err_set(err, ERR_SYSTEM,
                       "rank 0 has not answered rank %d at %s port %d (--rank-timeout)",
                       g->m->rank, g->m->host, g->m->port);
    g->fd[0] = fd;
    if (memcmp(a.magic, magic, sizeof(magic)) != 0)
        return err_set(err, ERR_SYSTEM, "port %d of %s does not answer as a rank does",
                       g->m->port, g->m->host);
    if (!ntohl(a.admitted) || ntohl(a.nranks) != (uint32_t)g->m->nranks)
        return err_set(err, ERR_SYSTEM, "another job uses port %d of %s", g->m->port,
                       g->m->host);
    if (take(g, fd, g->place, bytes))
        ret = 0;
    else
        err_set(err, ERR_SYSTEM, "rank 0 has gone while the ranks met");
    return ret;
}

/* Connects to rank RANK, which listens already. */
static int find_rank(struct meeting *g, int rank, struct err *err)
{
    struct place p = g->place[rank];
    struct sockaddr_storage a;
    socklen_t len;

    if (!p.family) { /* on rank 0's machine, or all are on one */
        struct sockaddr_storage front;
        socklen_t n = sizeof(front);
        uint32_t port = p.port;

        if (getpeername(g->fd[0], (struct sockaddr *)&front, &n) < 0)
            return err_errno(err, "the address of rank 0");
        p = (struct place){ .port = port };
        if (front.ss_family == AF_INET) {
            p.family = htonl(4);
            memcpy(p.address, &((struct sockaddr_in *)&front)->sin_addr, 4);
        } else {
            p.family = htonl(6);
            memcpy(p.address, &((struct sockaddr_in6 *)&front)->sin6_addr, 16);
        }
    }
    len = address_of(&p, &a);
    g->fd[rank] = len ? connect_to(g, (struct sockaddr *)&a, len) : -1;
    if (g->fd[rank] < 0 || !greet(g, g->fd[rank]))
        return err_errno(err, "rank %d cannot connect to rank %d", g->m->rank, rank);
    return 0;
}

/* ---- meeting ---- */

static int meet_front(struct meeting *g, struct err *err)
{
    struct answer a = { .admitted = htonl(1), .nranks = htonl((uint32_t)g->m->nranks) };

    memcpy(a.magic, magic, sizeof(magic));
    g->listener = listen_on(g->m->port, g->m->nranks + STRANGERS);
    if (g->listener < 0)
        return errno == EADDRINUSE ? err_set(err, ERR_SYSTEM,
                                             "another program uses port %d", g->m->port)
                                   : err_errno(err, "listening on port %d", g->m->port);
    if (collect(g, 1, err) < 0)
        return -1;
    for (int r = 1; r < g->m->nranks; r++)
        if (!give(g, g->fd[r], &a, sizeof(a)) ||
            !give(g, g->fd[r], g->place, (size_t)g->m->nranks * sizeof(*g->place)))
            return err_set(err, ERR_SYSTEM, "rank %d has gone while the ranks met", r);
    return 0;
}

static int meet_others(struct meeting *g, struct err *err)
{
    g->listener = listen_on(0, g->m->nranks + STRANGERS);
    if (g->listener < 0)
        return err_errno(err, "listening");
    g->port = own_port(g->listener);
    if (find_front(g, err) < 0)
        return -1;
    for (int r = 1; r < g->m->rank; r++)
        if (find_rank(g, r, err) < 0)
            return -1;
    return g->m->rank + 1 < g->m->nranks ? collect(g, g->m->rank + 1, err) : 0;
}

int tcp_meet(struct comm **world, const struct tcp_meeting *m, struct err *err)
{
    struct meeting g = { .m = m,
                         .end = m->limit_s ? clock_seconds() + m->limit_s : 0,
                         .listener = -1 };
    int ret;

    g.fd = xmalloc((size_t)m->nranks * sizeof(*g.fd));
    g.place = xcalloc((size_t)m->nranks, sizeof(*g.place));
    for (int r = 0; r < m->nranks; r++)
        g.fd[r] = -1;
    ret = m->rank ? meet_others(&g, err) : meet_front(&g, err);
    if (ret == 0)
        *world = tcp_open(m->rank, m->nranks, g.fd);
    for (int r = 0; r < m->nranks && ret < 0; r++)
        if (g.fd[r] >= 0)
            close(g.fd[r]);
    if (g.listener >= 0)
        close(g.listener);
    free(g.fd);
    free(g.place);
    return ret;
}
