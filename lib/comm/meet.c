/* meet - shared memory for processes started by another program
 *
 * Rank 0 creates the memory and listens on a Unix socket; the other ranks connect and
 * receive its descriptor.  The socket's name is in the abstract namespace, so a failure
 * leaves no file behind. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/comm/shm.h"

enum { NAP_MS = 20 };

/* A rank's first message. */
struct hello {
    int rank, nranks;
};

struct meeting {
    const char *name;
    int rank, nranks;
    double end; /* deadline by clock_seconds; 0: no deadline */
};

static struct sockaddr_un address_of(const struct meeting *m, socklen_t *len)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "shardutils-%ld-%s",
                     (long)geteuid(), m->name);

    if (n > (int)sizeof(a.sun_path) - 2)
        n = (int)sizeof(a.sun_path) - 2;
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    return a;
}

static bool is_late(const struct meeting *m)
{
    return m->end > 0 && clock_seconds() > m->end;
}

/* Waits until FD is readable; false after the deadline. */
static bool await(const struct meeting *m, int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    while (!is_late(m))
        if (poll(&p, 1, NAP_MS) > 0)
            return true;
    return false;
}

/* Any local user could take the name, so both sides compare the peer's user id. */
static bool is_own_user(int fd)
{
    struct ucred c;
    socklen_t n = sizeof(c);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) == 0 && c.uid == geteuid();
}

/* ---- rank 0 ---- */

static bool give(int to, int memory)
{
    char room[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
    struct iovec v = { &byte, 1 };
    struct msghdr msg = { .msg_iov = &v,
                          .msg_iovlen = 1,
                          .msg_control = room,
                          .msg_controllen = sizeof(room) };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &memory, sizeof(int));
    return sendmsg(to, &msg, MSG_NOSIGNAL) == 1;
}

/* Serves one connection; returns the rank, 0 for a stranger, or -1 with *err set. */
static int serve(const struct meeting *m, int fd, int memory, const bool *here,
                 struct err *err)
{
    struct hello h;

    if (!is_own_user(fd) || !await(m, fd) ||
        recv(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
        return 0;
    if (h.nranks != m->nranks || h.rank < 1 || h.rank >= m->nranks || here[h.rank])
        return err_set(err, ERR_INPUT,
                       "a process connects as rank %d of %d, but there are %d ranks%s",
                       h.rank, h.nranks, m->nranks,
                       h.rank > 0 && h.rank < m->nranks && here[h.rank]
                           ? " and that rank has connected"
                           : "");
    if (!give(fd, memory))
        return err_errno(err, "rank %d has disconnected", h.rank);
    return h.rank;
}

static int listen_at(const struct meeting *m, struct err *err)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    socklen_t len;
    struct sockaddr_un a = address_of(m, &len);

    if (fd < 0)
        return err_errno(err, "the socket of the ranks");
    if (bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, m->nranks) < 0) {
        if (errno == EADDRINUSE)
            err_set(err, ERR_SYSTEM, "another job uses the address %s", m->name);
        else
            err_errno(err, "the socket of the ranks");
        close(fd);
        return -1;
    }
    return fd;
}

static int receive_all(const struct meeting *m, int memory, struct err *err)
{
    bool *here = xcalloc((size_t)m->nranks, sizeof(*here));
    int fd = listen_at(m, err), left = m->nranks - 1, ret = -1;

    while (fd >= 0 && left > 0) {
        int from = await(m, fd) ? accept4(fd, NULL, NULL, SOCK_CLOEXEC) : -1, rank = 0;

        if (from >= 0) {
            rank = serve(m, from, memory, here, err);
            close(from);
        }
        if (rank < 0)
            goto out;
        here[rank] = true;
        left -= rank > 0;
        if (left && is_late(m)) {
            for (rank = 1; here[rank];)
                rank++;
            err_set(err, ERR_SYSTEM, "rank %d has not connected (--rank-timeout)",
                    rank);
            goto out;
        }
    }
    ret = fd < 0 ? -1 : 0;
out:
    if (fd >= 0)
        close(fd);
    free(here);
    return ret;
}

/* ---- other ranks ---- */

static int take(int from)
{
    char room[CMSG_SPACE(sizeof(int))], byte;
    struct iovec v = { &byte, 1 };
    struct msghdr msg = { .msg_iov = &v,
                          .msg_iovlen = 1,
                          .msg_control = room,
                          .msg_controllen = sizeof(room) };
    struct cmsghdr *c;
    int memory;

    if (recvmsg(from, &msg, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    c = CMSG_FIRSTHDR(&msg);
    if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int)))
        return -1;
    memcpy(&memory, CMSG_DATA(c), sizeof(int));
    return memory;
}

/* Receives the memory from rank 0; retries until the deadline. */
static int fetch(const struct meeting *m, struct err *err)
{
    struct hello h = { m->rank, m->nranks };
    socklen_t len;
    struct sockaddr_un a = address_of(m, &len);

    do {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), memory = -1;

        if (fd < 0)
            return err_errno(err, "the socket of the ranks");
        if (connect(fd, (struct sockaddr *)&a, len) == 0 && is_own_user(fd) &&
            send(fd, &h, sizeof(h), MSG_NOSIGNAL) == (ssize_t)sizeof(h) && await(m, fd))
            memory = take(fd);
        close(fd);
        if (memory >= 0)
            return memory;
        poll(NULL, 0, NAP_MS);
    } while (!is_late(m));
    return err_set(err, ERR_SYSTEM, "rank 0 has not answered rank %d (--rank-timeout)",
                   m->rank);
}

int shm_meet(struct shm **out, const char *name, int rank, int nranks, int limit_s,
             struct err *err)
{
    struct meeting m = { .name = name,
                         .rank = rank,
                         .nranks = nranks,
                         .end = limit_s ? clock_seconds() + limit_s : 0 };
    struct shm *s = NULL;
    int fd;

    fd = rank ? fetch(&m, err) : memfd_create("shardutils", MFD_CLOEXEC);
    if (fd < 0)
        return rank ? -1 : err_errno(err, "shared memory");
    if (shm_map_group(&s, fd, rank == 0, nranks, err) < 0 ||
        (rank == 0 && receive_all(&m, fd, err) < 0)) {
        close(fd);
        shm_close_group(s);
        return -1;
    }
    close(fd);
    *out = s;
    return 0;
}
