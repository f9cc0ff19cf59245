/* tcp-meet - processes on several machines find and connect to each other
 *
 * Rank 0 listens on the job's port.  Each other rank connects to it, proves that it is
 * of the job (hello.h), and gets the addresses of all once they are there.  Then each
 * connects to the ranks below it and waits for those above it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/comm/hello.h"
#include "lib/comm/tcp-address.h"
#include "lib/comm/tcp.h"

enum {
    NAP_MS = 50,
    STRANGERS = 32, /* connections from elsewhere that have not said who they are */
    AT_ONCE = 16,   /* accepted before those that are there are heard */
    HELLO_S = 5,    /* seconds in which they must */
    CONNECT_MS = 5000,
};

struct meeting {
    const struct tcp_meeting *m;
    struct hello_job job;
    double end; /* deadline by clock_seconds; 0: none */
    struct tcp_listeners listeners;
    int port;                /* of another rank than 0 */
    int *fd;                 /* [nranks] */
    struct tcp_place *place; /* [nranks] */
    char refused[128];       /* the last process of this job that was refused */
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

/* Has the process at the other end gone, and said nothing that has not been read? */
static bool is_gone(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
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

static int draw_nonce(unsigned char nonce[HELLO_NONCE], struct err *err)
{
    return getrandom(nonce, HELLO_NONCE, 0) == HELLO_NONCE
               ? 0
               : err_errno(err, "random numbers");
}

/* ---- who listens ---- */

/* A connection that has not proven who it is. */
struct stranger {
    int fd;
    double end;
    bool named; /* it has named the job */
    struct hello_guest guest;
};

struct strangers {
    struct stranger *v; /* [most] */
    int n, most;
};

static void drop(struct strangers *s, int i)
{
    close(s->v[i].fd);
    s->v[i] = s->v[--s->n];
}

/* The one that makes room: the oldest that has not named the job, else the oldest. */
static int least_likely(const struct strangers *s)
{
    int best = 0;

    for (int i = 1; i < s->n; i++) {
        const struct stranger *a = &s->v[i], *b = &s->v[best];

        if (a->named != b->named ? b->named : a->end < b->end)
            best = i;
    }
    return best;
}

/* Sends a few bytes, without waiting: to a peer that has read what came before. */
static bool tell(int fd, const void *p, size_t n)
{
    return send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

/* S is of the job: can it be its rank?  LEAST: the first that is waited for. */
static enum hello_verdict judge(struct meeting *g, const struct stranger *s, int least)
{
    uint32_t rank = ntohl(s->guest.hello.rank), nranks = ntohl(s->guest.hello.nranks);
    enum hello_verdict verdict = HELLO_ADMITTED;

    if (nranks != (uint32_t)g->m->nranks)
        verdict = HELLO_OTHER_SIZE;
    else if (rank < (uint32_t)least || rank >= nranks)
        verdict = HELLO_NO_RANK;
    else if (g->fd[rank] >= 0 && !is_gone(g->fd[rank]))
        verdict = HELLO_TAKEN;
    if (verdict != HELLO_ADMITTED)
        snprintf(g->refused, sizeof(g->refused),
                 "; a process that connected as rank %u of %u was refused%s",
                 (unsigned)rank, (unsigned)nranks,
                 verdict == HELLO_TAKEN ? ": that rank had connected" : "");
    return verdict;
}

/* Acts on what stranger I has said, which is STEP.  Returns 1 if it was admitted as a
 * rank that was missing. */
static int respond(struct meeting *g, struct strangers *s, int i, enum hello_step step,
                   int least)
{
    struct stranger *one = &s->v[i];
    enum hello_verdict verdict = HELLO_UNPROVEN;
    uint32_t rank = ntohl(one->guest.hello.rank);
    struct hello_answer answer;
    bool missing;

    if (step == HELLO_ASKED || step == HELLO_FOREIGN) {
        one->named = step == HELLO_ASKED;
        if (!tell(one->fd, &one->guest.challenge, sizeof(one->guest.challenge)) ||
            step == HELLO_FOREIGN)
            drop(s, i);
        return 0;
    }
    if (step == HELLO_PROVEN)
        verdict = judge(g, one, least);
    else
        snprintf(g->refused, sizeof(g->refused),
                 "; a process that does not have the job's secret was refused");
    hello_reply(&answer, &g->job, &one->guest, verdict, g->m->nranks);
    if (!tell(one->fd, &answer, sizeof(answer)) || verdict != HELLO_ADMITTED) {
        drop(s, i);
        return 0;
    }
    missing = g->fd[rank] < 0;
    if (!missing) /* its process has gone, and this one takes its place */
        close(g->fd[rank]);
    g->fd[rank] = one->fd;
    g->place[rank] = tcp_peer_place(one->fd);
    g->place[rank].port = one->guest.hello.port;
    s->v[i] = s->v[--s->n];
    return missing;
}

/* Reads what stranger I has sent, without waiting.  Returns as `respond`. */
static int hear(struct meeting *g, struct strangers *s, int i, int least)
{
    for (;;) {
        enum hello_step step;
        void *to;
        size_t room = hello_room(&s->v[i].guest, &to);
        ssize_t got = recv(s->v[i].fd, to, room, MSG_DONTWAIT);

        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        step =
            got > 0 ? hello_took(&s->v[i].guest, &g->job, (size_t)got) : HELLO_STRANGER;
        if (step == HELLO_STRANGER) { /* rubbish goes at once */
            drop(s, i);
            return 0;
        }
        if (step != HELLO_MORE)
            return respond(g, s, i, step, least);
    }
}

/* Accepts a few; the others wait until these have been heard. */
static int accept_some(struct strangers *s, int listener, struct err *err)
{
    for (int i = 0; i < AT_ONCE; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        unsigned char nonce[HELLO_NONCE];

        if (fd < 0) {
            if ((errno == EMFILE || errno == ENFILE) && s->n)
                drop(s, least_likely(s));
            return 0;
        }
        if (draw_nonce(nonce, err) < 0) {
            close(fd);
            return -1;
        }
        if (s->n == s->most)
            drop(s, least_likely(s));
        s->v[s->n] = (struct stranger){ .fd = fd, .end = clock_seconds() + HELLO_S };
        hello_expect(&s->v[s->n++].guest, nonce);
    }
    return 0;
}

/* Hears those that are there, then accepts more.  Returns the number of ranks that were
 * admitted, or -1. */
static int collect_some(struct meeting *g, struct strangers *s, struct pollfd *p,
                        int least, struct err *err)
{
    int nl = g->listeners.n, m = s->n, got = 0;
    double now;

    for (int i = 0; i < nl; i++)
        p[i] = (struct pollfd){ .fd = g->listeners.fd[i], .events = POLLIN };
    for (int i = 0; i < m; i++)
        p[nl + i] = (struct pollfd){ .fd = s->v[i].fd, .events = POLLIN };
    poll(p, (nfds_t)(nl + m), NAP_MS);
    for (int i = m - 1; i >= 0; i--) /* the last first: they move */
        if (p[nl + i].revents)
            got += hear(g, s, i, least);
    now = clock_seconds();
    for (int i = s->n - 1; i >= 0; i--)
        if (now > s->v[i].end)
            drop(s, i);
    for (int i = 0; i < nl; i++)
        if (p[i].revents && accept_some(s, p[i].fd, err) < 0)
            return -1;
    return got;
}

/* Frees the places of processes that have gone since, which others may take.  Returns
 * their number. */
static int free_places(struct meeting *g, int least)
{
    int n = 0;

    for (int r = least; r < g->m->nranks; r++)
        if (g->fd[r] >= 0 && is_gone(g->fd[r])) {
            close(g->fd[r]);
            g->fd[r] = -1;
            n++;
            snprintf(g->refused, sizeof(g->refused),
                     "; a process that was rank %d has gone", r);
        }
    return n;
}

/* Waits for the connections of the ranks from LEAST on. */
static int collect(struct meeting *g, int least, struct err *err)
{
    struct strangers s = { .most = g->m->nranks + STRANGERS };
    struct pollfd *p = xcalloc((size_t)s.most + TCP_LISTENERS, sizeof(*p));
    int left = g->m->nranks - least, ret = -1;

    s.v = xcalloc((size_t)s.most, sizeof(*s.v));
    while (left > 0) {
        int got = collect_some(g, &s, p, least, err);

        if (got < 0)
            goto out;
        left -= got;
        if (!left && !g->m->rank) /* nobody has been told where the others are */
            left = free_places(g, least);
        if (left && g->m->rank && is_gone(g->fd[0])) {
            err_set(err, ERR_SYSTEM, "rank 0 has gone while the ranks met");
            goto out;
        }
        if (left && is_late(g)) {
            int rank = least;

            while (g->fd[rank] >= 0)
                rank++;
            err_set(err, ERR_SYSTEM, "rank %d has not connected (--rank-timeout)%s",
                    rank, g->refused);
            goto out;
        }
    }
    ret = 0;
out:
    while (s.n)
        drop(&s, s.n - 1);
    free(s.v);
    free(p);
    return ret;
}

/* ---- who connects ---- */

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

/* Why rank RANK, at WHERE, does not admit this one. */
static int is_refused(const struct meeting *g, enum hello_verdict verdict, int rank,
                      const char *where, unsigned nranks, struct err *err)
{
    switch (verdict) {
    case HELLO_UNPROVEN:
        return err_set(err, ERR_INPUT,
                       "rank %d, at %s, has another secret than rank %d "
                       "(SHARDUTILS_JOB_SECRET)",
                       rank, where, g->m->rank);
    case HELLO_OTHER_SIZE:
        return err_set(err, ERR_INPUT,
                       "this process is rank %d of %d, but rank %d is one of %u",
                       g->m->rank, g->m->nranks, rank, nranks);
    case HELLO_TAKEN:
    case HELLO_NO_RANK:
        return err_set(err, ERR_INPUT,
                       "another process is rank %d already: rank %d does not wait for "
                       "it",
                       g->m->rank, rank);
    case HELLO_ADMITTED:
        break;
    }
    return err_set(err, ERR_INPUT, "%s does not answer as a rank of this job does",
                   where);
}

/* Proves to rank RANK, at WHERE, that this rank is of the job.  Returns 1; 0 if the
 * connection was lost, so that another may do; or -1 with *err set. */
static int greet(const struct meeting *g, int fd, int rank, const char *where,
                 struct err *err)
{
    unsigned char nonce[HELLO_NONCE];
    struct hello_challenge challenge;
    struct hello_answer answer;
    struct hello_proof proof;
    struct hello hello;
    enum hello_verdict verdict;

    if (draw_nonce(nonce, err) < 0)
        return -1;
    hello_make(&hello, &g->job, g->m->rank, g->m->nranks, g->port, nonce);
    if (!give(g, fd, &hello, sizeof(hello)) ||
        !take(g, fd, &challenge, sizeof(challenge)))
        return 0;
    if (hello_is_foreign(&challenge))
        return err_set(err, ERR_SYSTEM, "another job uses %s", where);
    if (!hello_prove(&proof, &g->job, &hello, &challenge))
        return is_refused(g, 0, rank, where, 0, err);
    if (!give(g, fd, &proof, sizeof(proof)) || !take(g, fd, &answer, sizeof(answer)))
        return 0;
    verdict = hello_read(&answer, &g->job, &hello, &challenge);
    if (verdict == HELLO_ADMITTED)
        return 1;
    return is_refused(g, verdict, rank, where, (unsigned)ntohl(answer.nranks), err);
}

/* Connects to rank 0 by one of its addresses and listens beside that connection.
 * Returns its descriptor; -1 if nobody is there yet, -2 with *err set. */
static int try_front(struct meeting *g, const struct addrinfo *all, const char *where,
                     struct err *err)
{
    for (const struct addrinfo *a = all; a; a = a->ai_next) {
        int fd = connect_to(g, a->ai_addr, a->ai_addrlen), greeted;

        if (fd < 0)
            continue;
        tcp_unlisten(&g->listeners);
        greeted = tcp_listen_beside(&g->listeners, fd, g->m->host, &g->port,
                                    g->m->nranks + STRANGERS, err);
        if (greeted == 0)
            greeted = greet(g, fd, 0, where, err);
        if (greeted > 0)
            return fd;
        close(fd);
        if (greeted < 0)
            return -2;
    }
    return -1;
}

/* The addresses of rank 0; name servers may come later than this process. */
static int resolve(const struct meeting *g, struct addrinfo **all, struct err *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    char port[16];
    int why;

    snprintf(port, sizeof(port), "%d", g->m->port);
    while ((why = getaddrinfo(g->m->host, port, &hints, all)) == EAI_AGAIN &&
           !is_late(g))
        poll(NULL, 0, NAP_MS);
    return why ? err_set(err, ERR_SYSTEM, "%s: %s", g->m->host, gai_strerror(why)) : 0;
}

/* Finds rank 0 and gets the places of all ranks. */
static int find_front(struct meeting *g, struct err *err)
{
    size_t bytes = (size_t)g->m->nranks * sizeof(*g->place);
    struct addrinfo *all;
    char where[300];

    if (resolve(g, &all, err) < 0)
        return -1;
    snprintf(where, sizeof(where), "port %d of %.255s", g->m->port, g->m->host);
    while ((g->fd[0] = try_front(g, all, where, err)) == -1 && !is_late(g))
        poll(NULL, 0, NAP_MS);
    freeaddrinfo(all);
    if (g->fd[0] == -2)
        return -1;
    if (g->fd[0] == -1)
        return err_set(err, ERR_SYSTEM,
                       "rank 0 has not answered rank %d at %s port %d (--rank-timeout)",
                       g->m->rank, g->m->host, g->m->port);
    return take(g, g->fd[0], g->place, bytes)
               ? 0
               : err_set(err, ERR_SYSTEM, "rank 0 has gone while the ranks met");
}

/* Connects to rank RANK, which listens already, though others may have taken the room
 * of those that it has not heard. */
static int find_rank(struct meeting *g, int rank, struct err *err)
{
    struct sockaddr_storage a;
    socklen_t len = tcp_place_address(&a, &g->place[rank], g->fd[0]);
    char where[32];
    int greeted = 0, why = 0;

    if (!len)
        return err_errno(err, "rank %d has no address", rank);
    snprintf(where, sizeof(where), "its port %u", (unsigned)ntohl(g->place[rank].port));
    for (;;) {
        int fd = connect_to(g, (struct sockaddr *)&a, len);

        why = fd < 0 ? errno : ECONNRESET;
        greeted = fd < 0 ? 0 : greet(g, fd, rank, where, err);
        if (greeted > 0)
            g->fd[rank] = fd;
        else if (fd >= 0)
            close(fd);
        if (greeted)
            return greeted > 0 ? 0 : -1;
        if (is_gone(g->fd[0]))
            return err_set(err, ERR_SYSTEM, "rank 0 has gone while the ranks met");
        if (is_late(g))
            return err_set(err, ERR_SYSTEM,
                           "rank %d cannot connect to rank %d: %s (--rank-timeout)",
                           g->m->rank, rank, strerror(why));
        poll(NULL, 0, NAP_MS);
    }
}

/* ---- meeting ---- */

static int meet_front(struct meeting *g, struct err *err)
{
    size_t bytes = (size_t)g->m->nranks * sizeof(*g->place);

    if (tcp_listen_at(&g->listeners, g->m->host, g->m->port, g->m->nranks + STRANGERS,
                      err) < 0 ||
        collect(g, 1, err) < 0)
        return -1;
    for (int r = 1; r < g->m->nranks; r++)
        if (!give(g, g->fd[r], g->place, bytes))
            return err_set(err, ERR_SYSTEM, "rank %d has gone while the ranks met", r);
    return 0;
}

static int meet_others(struct meeting *g, struct err *err)
{
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
                         .job = { m->job, m->secret },
                         .end = m->limit_s ? clock_seconds() + m->limit_s : 0 };
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
    tcp_unlisten(&g.listeners);
    free(g.fd);
    free(g.place);
    return ret;
}
