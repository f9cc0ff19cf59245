/* tcp-peers - bytes between this process and the others, by TCP */
#define _GNU_SOURCE
#include "lib/comm/tcp-peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

enum {
    PIECE = 1 << 20,  /* bytes of a frame */
    FRAME = 64,       /* bytes that a frame takes besides its own */
    WINDOW = 8 << 20, /* bytes of a channel on their way or not taken */
    AT_ONCE = 256,    /* frames of a peer that are read before the others' */
    LIVE_S = 10,      /* seconds without a word after which TCP asks the peer */
    GONE_MS = 60000,  /* without an answer: the peer is gone */
    LAST_MS = 10000,  /* for what was sent last to arrive */
    ABORT_MS = 500,   /* for the others to hear of a failure */
};

/* What a head says in place of a channel. */
enum {
    BYE = TCP_CHANNELS, /* the rank has ended without an error */
    ABORT,              /* or with one, which it reports */
    ROOM,               /* and on: as many bytes of channel 0 and on have been taken */
};

enum {
    /* What a peer may send in groups that this rank does not have, as it is late */
    EARLY_LANES = (TCP_GROUPS + 1) * TCP_CHANNELS,
    EARLY_BYTES = (TCP_GROUPS + 1) * WINDOW,
};

/* In network order. */
struct head {
    uint32_t group, channel, bytes;
};

/* A frame: to send, or received. */
struct frame {
    struct frame *next;
    size_t at, n; /* done; in all */
    char data[];
};

struct frames {
    struct frame *first, **last;
};

/* A channel between this rank and a peer. */
struct lane {
    uint32_t group, channel;
    struct frames in;  /* received and not taken */
    size_t held;       /* bytes received whose taking the peer has not been told */
    size_t taken;      /* of them */
    struct frames out; /* that the peer has no room for yet */
    size_t room;       /* bytes that it has room for */
};

struct peer {
    int fd; /* -1: closed */
    bool ended, gone;
    int why; /* errno of what ended it */
    struct frames out;
    struct head head; /* of the frame that is being received */
    size_t head_have;
    struct frame *in; /* NULL: its head is not whole */
    struct lane **lane;
    size_t nlanes, cap;
};

struct joined {
    uint32_t group;
    const int *member; /* [n] */
    int n;
};

struct tcp_peers {
    int rank, nranks;
    struct peer *peer; /* [nranks] */
    struct pollfd *poll;
    struct joined *joined;
    size_t njoined, cap;
    bool aborted;
};

/* ---- frames ---- */

static void frames_init(struct frames *f)
{
    f->first = NULL;
    f->last = &f->first;
}

static void frames_add(struct frames *f, struct frame *one)
{
    one->next = NULL;
    *f->last = one;
    f->last = &one->next;
}

static void frames_drop(struct frames *f)
{
    struct frame *one = f->first;

    f->first = one->next;
    if (!f->first)
        f->last = &f->first;
    free(one);
}

static void frames_clear(struct frames *f)
{
    while (f->first)
        frames_drop(f);
}

static struct frame *frame_new(size_t bytes, struct err *err)
{
    struct frame *f = mem_alloc(sizeof(*f) + bytes, "a message", err);

    if (f)
        *f = (struct frame){ .n = bytes };
    return f;
}

/* ---- lanes ---- */

static struct lane *lane_find(const struct peer *p, uint32_t group, uint32_t channel)
{
    for (size_t i = 0; i < p->nlanes; i++)
        if (p->lane[i]->group == group && p->lane[i]->channel == channel)
            return p->lane[i];
    return NULL;
}

/* The lane of a channel of a group that this rank has. */
static struct lane *lane_of(struct peer *p, uint32_t group, uint32_t channel)
{
    struct lane *l = lane_find(p, group, channel);

    if (l)
        return l;
    l = xcalloc(1, sizeof(*l));
    l->group = group;
    l->channel = channel;
    l->room = WINDOW;
    frames_init(&l->in);
    frames_init(&l->out);
    p->lane = xgrow(p->lane, &p->cap, p->nlanes + 1, sizeof(*p->lane));
    return p->lane[p->nlanes++] = l;
}

static void lane_free(struct lane *l)
{
    frames_clear(&l->in);
    frames_clear(&l->out);
    free(l);
}

/* Is rank RANK, with this one, in group GROUP? */
static bool shares_group(const struct tcp_peers *p, uint32_t group, int rank)
{
    for (size_t i = 0; i < p->njoined; i++)
        for (int m = 0; p->joined[i].group == group && m < p->joined[i].n; m++)
            if (p->joined[i].member[m] == rank)
                return true;
    return false;
}

/* Has rank RANK sent all that it may in groups that this one does not have? */
static bool is_too_early(const struct tcp_peers *p, int rank)
{
    const struct peer *peer = &p->peer[rank];
    size_t lanes = 0, bytes = 0;

    for (size_t i = 0; i < peer->nlanes; i++)
        if (!shares_group(p, peer->lane[i]->group, rank)) {
            lanes++;
            bytes += peer->lane[i]->held;
        }
    return lanes > EARLY_LANES || bytes > EARLY_BYTES;
}

/* ---- moving bytes ---- */

static void lose(struct peer *p, int why)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    p->gone = !p->ended;
    p->why = why;
    frames_clear(&p->out);
    for (size_t i = 0; i < p->nlanes; i++)
        frames_clear(&p->lane[i]->out);
    free(p->in);
    p->in = NULL;
}

static void push(struct peer *p)
{
    while (p->fd >= 0 && p->out.first) {
        struct frame *f = p->out.first;
        ssize_t n = send(p->fd, f->data + f->at, f->n - f->at, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            /* what it has sent before is read first */
            if (errno != EAGAIN && errno != EPIPE && errno != ECONNRESET)
                lose(p, errno);
            else if (errno != EAGAIN)
                frames_clear(&p->out);
            return;
        }
        f->at += (size_t)n;
        if (f->at < f->n)
            return;
        frames_drop(&p->out);
    }
}

/* Moves what P has room for to the frames that go out. */
static void release(struct peer *p, struct lane *l)
{
    while (l->out.first) {
        struct frame *f = l->out.first;
        size_t cost = f->n - sizeof(struct head) + FRAME;

        if (cost > l->room)
            return;
        l->room -= cost;
        l->out.first = f->next;
        if (!f->next)
            l->out.last = &l->out.first;
        frames_add(&p->out, f);
    }
}

/* P has taken BYTES of a channel.  One of a group that has been closed is of no more
 * interest. */
static void widen(struct peer *p, uint32_t group, uint32_t channel, size_t bytes)
{
    struct lane *l = lane_find(p, group, channel);

    if (!l)
        return;
    if (bytes > WINDOW - l->room) {
        lose(p, EPROTO);
        return;
    }
    l->room += bytes;
    release(p, l);
    push(p);
}

/* Tells P what has been taken of L, when it is enough to be worth a frame. */
static void report(struct peer *p, struct lane *l)
{
    struct frame *f;
    struct head head = { htonl(l->group), htonl(ROOM + l->channel),
                         htonl((uint32_t)l->taken) };

    if (l->taken < WINDOW / 4 || p->fd < 0)
        return;
    f = xmalloc(sizeof(*f) + sizeof(head));
    *f = (struct frame){ .n = sizeof(head) };
    memcpy(f->data, &head, sizeof(head));
    frames_add(&p->out, f);
    l->held -= l->taken;
    l->taken = 0;
    push(p);
}

/* The frame that rank RANK has sent is whole. */
static void file_frame(struct tcp_peers *process, int rank)
{
    struct peer *p = &process->peer[rank];
    uint32_t group = ntohl(p->head.group), channel = ntohl(p->head.channel);
    struct frame *f = p->in;
    struct lane *l;

    p->head_have = 0;
    p->in = NULL;
    if (channel >= TCP_CHANNELS) {
        p->ended |= channel == BYE;
        process->aborted |= channel == ABORT;
        free(f);
        return;
    }
    l = lane_of(p, group, channel);
    l->held += f->n + FRAME;
    f->at = 0;
    frames_add(&l->in, f);
    if (l->held > WINDOW ||
        (!shares_group(process, group, rank) && is_too_early(process, rank)))
        lose(p, EPROTO);
}

/* Takes N bytes more of P into *have of TOTAL at TO; false if there are none now, or P
 * is lost. */
static bool take(struct peer *p, void *to, size_t *have, size_t total)
{
    while (*have < total) {
        ssize_t n = recv(p->fd, (char *)to + *have, total - *have, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n <= 0) {
            lose(p, n ? errno : 0);
            return false;
        }
        *have += (size_t)n;
    }
    return true;
}

/* Can H be the head of a frame? */
static bool is_head(const struct head *h)
{
    uint32_t channel = ntohl(h->channel), bytes = ntohl(h->bytes);

    if (channel < TCP_CHANNELS)
        return bytes > 0 && bytes <= PIECE;
    return channel < ROOM ? bytes == 0 : channel < ROOM + TCP_CHANNELS && bytes > 0;
}

/* Reads what rank RANK has sent, up to so much that others have their turn. */
static int pull(struct tcp_peers *process, int rank, struct err *err)
{
    struct peer *p = &process->peer[rank];

    for (int i = 0; i < AT_ONCE && p->fd >= 0; i++) {
        if (!p->in) {
            if (!take(p, &p->head, &p->head_have, sizeof(p->head)))
                return 0;
            if (!is_head(&p->head)) {
                lose(p, EPROTO);
                return 0;
            }
            if (ntohl(p->head.channel) >= ROOM) {
                p->head_have = 0;
                widen(p, ntohl(p->head.group), ntohl(p->head.channel) - ROOM,
                      ntohl(p->head.bytes));
                continue;
            }
            p->in = frame_new(ntohl(p->head.bytes), err);
            if (!p->in)
                return -1;
        }
        if (!take(p, p->in->data, &p->in->at, p->in->n))
            return 0;
        file_frame(process, rank);
    }
    return 0;
}

int tcp_peers_move(struct tcp_peers *p, int ms, struct err *err)
{
    for (int r = 0; r < p->nranks; r++) {
        push(&p->peer[r]);
        p->poll[r] = (struct pollfd){
            .fd = p->peer[r].fd,
            .events = (short)(POLLIN | (p->peer[r].out.first ? POLLOUT : 0))
        };
    }
    if (poll(p->poll, (nfds_t)p->nranks, ms) <= 0)
        return 0;
    for (int r = 0; r < p->nranks; r++) {
        if (p->poll[r].revents & ~POLLOUT && pull(p, r, err) < 0)
            return -1;
        if (p->poll[r].revents & POLLOUT)
            push(&p->peer[r]);
    }
    return 0;
}

int tcp_peers_check(const struct tcp_peers *p, struct err *err)
{
    if (p->aborted)
        return err_set(err, ERR_SYSTEM, "rank %d: another rank has failed", p->rank);
    for (int r = 0; r < p->nranks; r++)
        if (p->peer[r].gone)
            return err_set(err, ERR_SYSTEM, "rank %d is gone: %s", r,
                           p->peer[r].why ? strerror(p->peer[r].why)
                                          : "its connection was closed");
    return 0;
}

int tcp_peers_expect(const struct tcp_peers *p, int rank, struct err *err)
{
    if (tcp_peers_check(p, err) < 0)
        return -1;
    return p->peer[rank].fd >= 0 ? 0
                                 : err_set(err, ERR_SYSTEM, "rank %d has ended", rank);
}

/* As tcp_peers_post, but CHANNEL may also be BYE or ABORT, without bytes. */
static int post(struct tcp_peers *p, int rank, uint32_t group, uint32_t channel,
                const void *buf, size_t bytes, struct err *err)
{
    struct peer *to = &p->peer[rank];
    struct lane *l = channel < TCP_CHANNELS ? lane_of(to, group, channel) : NULL;

    if (to->fd < 0)
        return tcp_peers_expect(p, rank, err);
    for (size_t at = 0, n; at < bytes || (!bytes && !at); at += n + !n) {
        struct frame *f;
        struct head head;

        n = bytes - at < PIECE ? bytes - at : PIECE;
        head = (struct head){ htonl(group), htonl(channel), htonl((uint32_t)n) };
        f = frame_new(sizeof(head) + n, err);
        if (!f)
            return -1;
        memcpy(f->data, &head, sizeof(head));
        if (n)
            memcpy(f->data + sizeof(head), (const char *)buf + at, n);
        frames_add(l ? &l->out : &to->out, f);
    }
    if (l)
        release(to, l);
    push(to);
    return 0;
}

int tcp_peers_post(struct tcp_peers *p, int rank, uint32_t group, uint32_t channel,
                   const void *buf, size_t bytes, struct err *err)
{
    return post(p, rank, group, channel, buf, bytes, err);
}

void tcp_peers_fetch(struct tcp_peers *p, int rank, uint32_t group, uint32_t channel,
                     char *to, size_t *at, size_t bytes)
{
    struct peer *from = &p->peer[rank];
    struct lane *l = lane_of(from, group, channel);
    struct frames *f = &l->in;

    while (f->first && *at < bytes) {
        struct frame *one = f->first;
        size_t n = one->n - one->at < bytes - *at ? one->n - one->at : bytes - *at;

        memcpy(to + *at, one->data + one->at, n);
        one->at += n;
        *at += n;
        if (one->at == one->n) {
            l->taken += one->n + FRAME;
            frames_drop(f);
        }
    }
    report(from, l);
}

bool tcp_peers_has(const struct tcp_peers *p, int rank)
{
    return p->peer[rank].fd >= 0;
}

/* Does something wait for room at a peer? */
static bool has_held(const struct tcp_peers *p)
{
    for (int r = 0; r < p->nranks; r++)
        for (size_t i = 0; i < p->peer[r].nlanes; i++)
            if (p->peer[r].lane[i]->out.first)
                return true;
    return false;
}

bool tcp_peers_unsent(const struct tcp_peers *p)
{
    for (int r = 0; r < p->nranks; r++)
        if (p->peer[r].out.first)
            return true;
    return has_held(p);
}

/* ---- the end ---- */

/* Has some peer's machine yet to confirm bytes?  A connection that is closed before
 * loses them if the peer sends something more. */
static bool has_unconfirmed(const struct tcp_peers *p)
{
    for (int r = 0; r < p->nranks; r++) {
        int n = 0;

        if (p->peer[r].fd >= 0 && ioctl(p->peer[r].fd, SIOCOUTQ, &n) == 0 && n)
            return true;
    }
    return false;
}

/* Tells all others; the last that this rank says. */
static void tell_all(struct tcp_peers *p, uint32_t what, int ms)
{
    double end = clock_seconds() + ms / 1e3;
    struct err ignored;

    while (what == BYE && has_held(p) && clock_seconds() < end &&
           tcp_peers_move(p, 1, &ignored) == 0)
        ;
    for (int r = 0; r < p->nranks; r++)
        if (p->peer[r].fd >= 0 && post(p, r, 0, what, NULL, 0, &ignored) < 0)
            return;
    while ((tcp_peers_unsent(p) || has_unconfirmed(p)) && clock_seconds() < end &&
           tcp_peers_move(p, 1, &ignored) == 0)
        ;
}

void tcp_peers_abort(struct tcp_peers *p)
{
    tell_all(p, ABORT, ABORT_MS);
}

bool tcp_peers_aborted(struct tcp_peers *p)
{
    struct err ignored;

    return tcp_peers_move(p, 0, &ignored) == 0 && p->aborted;
}

void tcp_peers_close(struct tcp_peers *p)
{
    tell_all(p, BYE, LAST_MS);
    for (int r = 0; r < p->nranks; r++) {
        struct peer *peer = &p->peer[r];

        lose(peer, 0);
        for (size_t i = 0; i < peer->nlanes; i++)
            lane_free(peer->lane[i]);
        free(peer->lane);
    }
    free(p->joined);
    free(p->peer);
    free(p->poll);
    free(p);
}

/* ---- groups ---- */

void tcp_peers_join(struct tcp_peers *p, uint32_t group, const int *member, int n)
{
    p->joined = xgrow(p->joined, &p->cap, p->njoined + 1, sizeof(*p->joined));
    p->joined[p->njoined++] = (struct joined){ group, member, n };
}

/* Forgets the lanes of a group, but for what is still to be sent. */
static void close_lanes(struct peer *p, uint32_t group)
{
    for (size_t i = p->nlanes; i-- > 0;)
        if (p->lane[i]->group == group && !p->lane[i]->out.first) {
            lane_free(p->lane[i]);
            p->lane[i] = p->lane[--p->nlanes];
        }
}

void tcp_peers_leave(struct tcp_peers *p, uint32_t group)
{
    for (int r = 0; r < p->nranks; r++)
        close_lanes(&p->peer[r], group);
    for (size_t i = p->njoined; i-- > 0;)
        if (p->joined[i].group == group)
            p->joined[i] = p->joined[--p->njoined];
}

/* ---- opening ---- */

/* Options of a connection: no delay, and an end if the peer's machine goes. */
static void prepare(int fd)
{
    const int on = 1, idle = LIVE_S, most = GONE_MS;
    int flags = fcntl(fd, F_GETFL);

    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof(most));
}

struct tcp_peers *tcp_peers_open(int rank, int nranks, const int *fd)
{
    struct tcp_peers *p = xcalloc(1, sizeof(*p));

    *p = (struct tcp_peers){ .rank = rank, .nranks = nranks };
    p->peer = xcalloc((size_t)nranks, sizeof(*p->peer));
    p->poll = xcalloc((size_t)nranks, sizeof(*p->poll));
    for (int r = 0; r < nranks; r++) {
        p->peer[r].fd = fd[r];
        p->peer[r].ended = r == rank;
        frames_init(&p->peer[r].out);
        if (fd[r] >= 0)
            prepare(fd[r]);
    }
    return p;
}
