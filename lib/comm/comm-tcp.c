/* comm-tcp - ranks that are connected by TCP
 *
 * What goes between two ranks is frames: a head and at most PIECE bytes.  A frame
 * belongs to a channel of a group: messages, or parts of its collectives, whose order
 * is that of the operations.  Frames are read whenever this rank calls an operation,
 * and wait in memory for who wants them.  A channel has room for WINDOW bytes there;
 * what it has no room for waits with the sender, beside the other channels, until the
 * receiver reports that it has taken some.  So no operation waits for a receiver, and a
 * rank that sends what nobody wants fills no memory.  Collectives move on as those of
 * comm-mpi do. */
#define _GNU_SOURCE
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
#include "lib/comm/collective.h"
#include "lib/comm/pairwise.h"
#include "lib/comm/tcp.h"

enum {
    PIECE = 1 << 20,  /* bytes of a frame */
    GROUPS = 31,      /* that can be made of one group */
    FRAME = 64,       /* bytes that a frame takes besides its own */
    WINDOW = 8 << 20, /* bytes of a channel on their way or not taken */
    AT_ONCE = 256,    /* frames of a peer that are read before the others' */
    LIVE_S = 10,      /* seconds without a word after which TCP asks the peer */
    GONE_MS = 60000,  /* without an answer: the peer is gone */
    LAST_MS = 10000,  /* for what was sent last to arrive */
    ABORT_MS = 500,   /* for the others to hear of a failure */
};

enum channel {
    MESSAGES,
    COLLECTIVES,                               /* from here on those of pairwise.h */
    BROADCASTS = COLLECTIVES + PAIRWISE_PARTS, /* in their order beside them */
    CHANNELS,
    BYE = CHANNELS, /* the rank has ended without an error */
    ABORT,          /* or with one, which it reports */
    ROOM,           /* and on: as many bytes of channel 0 and on have been taken */
};

enum {
    /* What a peer may send in groups that this rank does not have, as it is late */
    EARLY_LANES = (GROUPS + 1) * CHANNELS,
    EARLY_BYTES = (GROUPS + 1) * WINDOW,
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

/* What the groups of this process share. */
struct process {
    int rank, nranks;
    struct peer *peer; /* [nranks] */
    struct pollfd *poll;
    struct tcp_comm *groups;
    bool aborted;
};

/* Bytes that a collective waits for. */
struct wanted {
    int rank;
    enum channel channel;
    char *to;
    size_t at, n;
};

/* A collective under way. */
struct flight {
    struct flight *next; /* a younger one */
    struct collective op;
    struct wanted *wanted;
    size_t nwanted, cap;
    char *part; /* [size] by sender: what this rank sums */
    bool summed, done;
};

struct tcp_comm {
    struct comm comm;
    struct tcp_comm *next; /* of the process's */
    struct process *process;
    struct flight *flights; /* oldest first */
    uint32_t id;
    int made;    /* groups of this one */
    int *member; /* [size] ranks of the world */
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

/* Is rank RANK of the world, with this one, in group GROUP? */
static bool shares_group(const struct process *p, uint32_t group, int rank)
{
    for (const struct tcp_comm *c = p->groups; c; c = c->next)
        for (int i = 0; c->id == group && i < c->comm.size; i++)
            if (c->member[i] == rank)
                return true;
    return false;
}

/* Has rank RANK sent all that it may in groups that this one does not have? */
static bool is_too_early(const struct process *p, int rank)
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
static void file_frame(struct process *process, int rank)
{
    struct peer *p = &process->peer[rank];
    uint32_t group = ntohl(p->head.group), channel = ntohl(p->head.channel);
    struct frame *f = p->in;
    struct lane *l;

    p->head_have = 0;
    p->in = NULL;
    if (channel >= CHANNELS) {
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

    if (channel < CHANNELS)
        return bytes > 0 && bytes <= PIECE;
    return channel < ROOM ? bytes == 0 : channel < ROOM + CHANNELS && bytes > 0;
}

/* Reads what rank RANK has sent, up to so much that others have their turn. */
static int pull(struct process *process, int rank, struct err *err)
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

/* Sends and reads what can be, after waiting for at most MS milliseconds. */
static int move_bytes(struct process *p, int ms, struct err *err)
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

/* Fails if some rank has failed. */
static int check_peers(const struct process *p, struct err *err)
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

/* Fails if what rank RANK of the world has yet to send will never come. */
static int check_sender(const struct process *p, int rank, struct err *err)
{
    if (check_peers(p, err) < 0)
        return -1;
    return p->peer[rank].fd >= 0 ? 0
                                 : err_set(err, ERR_SYSTEM, "rank %d has ended", rank);
}

static int post(struct process *p, int rank, uint32_t group, enum channel channel,
                const void *buf, size_t bytes, struct err *err)
{
    struct peer *to = &p->peer[rank];
    struct lane *l = channel < CHANNELS ? lane_of(to, group, channel) : NULL;

    if (to->fd < 0)
        return check_sender(p, rank, err);
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

/* Takes what is there of the BYTES of a channel from *at on. */
static void fetch(struct peer *from, uint32_t group, enum channel channel, char *to,
                  size_t *at, size_t bytes)
{
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

/* ---- collectives: every rank sends each other rank its part ---- */

static int give(struct tcp_comm *c, enum channel channel, const void *buf, size_t bytes,
                int rank, struct err *err)
{
    return bytes ? post(c->process, c->member[rank], c->id, channel, buf, bytes, err)
                 : 0;
}

static void want(struct flight *f, enum channel channel, void *to, size_t bytes,
                 int rank)
{
    if (!bytes)
        return;
    f->wanted = xgrow(f->wanted, &f->cap, f->nwanted + 1, sizeof(*f->wanted));
    f->wanted[f->nwanted++] = (struct wanted){ rank, channel, to, 0, bytes };
}

static int post_part(const struct pairwise *p, bool sends,
                     enum pairwise_channel channel, void *at, size_t bytes, int rank,
                     struct err *err)
{
    enum channel number = (enum channel)(COLLECTIVES + (int)channel);

    if (sends)
        return give((struct tcp_comm *)p->comm, number, at, bytes, rank, err);
    want(p->flight, number, at, bytes, rank);
    return 0;
}

static struct pairwise pairwise_of(struct tcp_comm *c, struct flight *f)
{
    return (struct pairwise){ &c->comm, &f->op, &f->part, post_part, f };
}

static int start_broadcast(struct tcp_comm *c, struct flight *f, struct err *err)
{
    if (c->comm.rank != f->op.root) {
        want(f, BROADCASTS, f->op.to, f->op.n, f->op.root);
        return 0;
    }
    for (int r = 0; r < c->comm.size; r++)
        if (r != f->op.root && give(c, BROADCASTS, f->op.from, f->op.n, r, err) < 0)
            return -1;
    return 0;
}

/* Takes what is there for F, the oldest of its group that is not done. */
static int step(struct tcp_comm *c, struct flight *f, struct err *err)
{
    struct pairwise pair = pairwise_of(c, f);

    for (;;) {
        for (size_t i = 0; i < f->nwanted; i++) {
            struct wanted *w = &f->wanted[i];
            int from = c->member[w->rank];

            fetch(&c->process->peer[from], c->id, w->channel, w->to, &w->at, w->n);
            if (w->at < w->n)
                return c->process->peer[from].fd < 0
                           ? check_sender(c->process, from, err)
                           : 0;
        }
        f->nwanted = 0;
        f->done = f->summed || !f->part;
        if (f->done)
            return 0;
        f->summed = true;
        if (pairwise_sum(&pair, err) < 0)
            return -1;
    }
}

/* Moves bytes, then the collectives of all groups. */
static int move_on(struct process *p, int ms, struct err *err)
{
    if (move_bytes(p, ms, err) < 0)
        return -1;
    for (struct tcp_comm *c = p->groups; c; c = c->next)
        for (struct flight *f = c->flights; f; f = f->next) {
            if (!f->done && step(c, f, err) < 0)
                return -1;
            if (!f->done)
                break;
        }
    return 0;
}

enum { WAIT_MS = 1000 };

static int start(struct comm *comm, const struct collective *op, struct err *err)
{
    struct tcp_comm *c = (struct tcp_comm *)comm;
    struct flight *f, **link = &c->flights;
    struct pairwise pair;

    if (check_peers(c->process, err) < 0)
        return -1;
    f = xcalloc(1, sizeof(*f));
    f->op = *op;
    while (*link)
        link = &(*link)->next;
    *link = f;
    if (comm->size == 1) {
        collective_alone(op);
        return 0;
    }
    pair = pairwise_of(c, f);
    return op->kind == COMM_BROADCAST ? start_broadcast(c, f, err)
                                      : pairwise_start(&pair, err);
}

static int wait_oldest(struct comm *comm, struct err *err)
{
    struct tcp_comm *c = (struct tcp_comm *)comm;
    struct flight *f = c->flights;
    int ms = 0;

    for (; !f->done; ms = WAIT_MS)
        if (move_on(c->process, ms, err) < 0 ||
            (!f->done && check_peers(c->process, err) < 0))
            return -1;
    c->flights = f->next;
    free(f->wanted);
    free(f->part);
    free(f);
    return 0;
}

/* ---- messages ---- */

static int send_message(struct comm *comm, const void *buf, size_t bytes, int to,
                        struct err *err)
{
    struct tcp_comm *c = (struct tcp_comm *)comm;

    if (move_on(c->process, 0, err) < 0)
        return -1;
    return give(c, MESSAGES, buf, bytes, to, err);
}

static int receive_message(struct comm *comm, void *buf, size_t bytes, int from,
                           struct err *err)
{
    struct tcp_comm *c = (struct tcp_comm *)comm;
    int rank = c->member[from];
    size_t done = 0;
    int ms = 0;

    for (; done < bytes; ms = WAIT_MS) {
        fetch(&c->process->peer[rank], c->id, MESSAGES, buf, &done, bytes);
        if (done < bytes && (check_sender(c->process, rank, err) < 0 ||
                             move_on(c->process, ms, err) < 0))
            return -1;
    }
    return 0;
}

/* Does something wait for room at a peer? */
static bool has_held(const struct process *p)
{
    for (int r = 0; r < p->nranks; r++)
        for (size_t i = 0; i < p->peer[r].nlanes; i++)
            if (p->peer[r].lane[i]->out.first)
                return true;
    return false;
}

static bool has_unsent(const struct process *p)
{
    for (int r = 0; r < p->nranks; r++)
        if (p->peer[r].out.first)
            return true;
    return has_held(p);
}

static int flush(struct comm *comm, struct err *err)
{
    struct process *p = ((struct tcp_comm *)comm)->process;

    while (has_unsent(p))
        if (check_peers(p, err) < 0 || move_on(p, WAIT_MS, err) < 0)
            return -1;
    return 0;
}

/* ---- the end ---- */

/* Has some peer's machine yet to confirm bytes?  A connection that is closed before
 * loses them if the peer sends something more. */
static bool has_unconfirmed(const struct process *p)
{
    for (int r = 0; r < p->nranks; r++) {
        int n = 0;

        if (p->peer[r].fd >= 0 && ioctl(p->peer[r].fd, SIOCOUTQ, &n) == 0 && n)
            return true;
    }
    return false;
}

/* Tells all others; the last that this rank says. */
static void tell_all(struct process *p, enum channel what, int ms)
{
    double end = clock_seconds() + ms / 1e3;
    struct err ignored;

    while (what == BYE && has_held(p) && clock_seconds() < end &&
           move_bytes(p, 1, &ignored) == 0)
        ;
    for (int r = 0; r < p->nranks; r++)
        if (p->peer[r].fd >= 0 && post(p, r, 0, what, NULL, 0, &ignored) < 0)
            return;
    while ((has_unsent(p) || has_unconfirmed(p)) && clock_seconds() < end &&
           move_bytes(p, 1, &ignored) == 0)
        ;
}

void tcp_abort(struct comm *world)
{
    tell_all(((struct tcp_comm *)world)->process, ABORT, ABORT_MS);
}

bool tcp_is_aborted(struct comm *world)
{
    struct process *p = ((struct tcp_comm *)world)->process;
    struct err ignored;

    return move_bytes(p, 0, &ignored) == 0 && p->aborted;
}

static void close_process(struct process *p)
{
    tell_all(p, BYE, LAST_MS);
    for (int r = 0; r < p->nranks; r++) {
        struct peer *peer = &p->peer[r];

        lose(peer, 0);
        for (size_t i = 0; i < peer->nlanes; i++)
            lane_free(peer->lane[i]);
        free(peer->lane);
    }
    free(p->peer);
    free(p->poll);
    free(p);
}

/* Forgets the lanes of a group that is closed, but for what is still to be sent. */
static void close_lanes(const struct tcp_comm *c)
{
    for (int m = 0; m < c->comm.size; m++) {
        struct peer *p = &c->process->peer[c->member[m]];

        for (size_t i = p->nlanes; i-- > 0;)
            if (p->lane[i]->group == c->id && !p->lane[i]->out.first) {
                lane_free(p->lane[i]);
                p->lane[i] = p->lane[--p->nlanes];
            }
    }
}

static void close_comm(struct comm *comm)
{
    struct tcp_comm *c = (struct tcp_comm *)comm, **link = &c->process->groups;

    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    while (c->flights) {
        struct flight *f = c->flights;

        c->flights = f->next;
        free(f->wanted);
        free(f->part);
        free(f);
    }
    if (c->id == 0)
        close_process(c->process);
    else
        close_lanes(c);
    free(c->member);
    free(c);
}

/* ---- groups ---- */

static int group(struct comm *comm, const int *member, int n, struct comm **out,
                 struct err *err);

static const struct comm_ops comm_tcp = {
    .name = "tcp",
    .start = start,
    .wait = wait_oldest,
    .send = send_message,
    .receive = receive_message,
    .group = group,
    .flush = flush,
    .close = close_comm,
};

/* A group of the ranks MEMBER of the world; takes ownership of MEMBER. */
static struct tcp_comm *open_comm(struct process *p, uint32_t id, int *member, int n)
{
    struct tcp_comm *c = xcalloc(1, sizeof(*c));

    c->comm.ops = &comm_tcp;
    c->comm.size = n;
    c->id = id;
    c->member = member;
    c->process = p;
    while (member[c->comm.rank] != p->rank)
        c->comm.rank++;
    c->next = p->groups;
    p->groups = c;
    return c;
}

/* All ranks of a group make its groups in the same order, so a number names them; those
 * made together are disjoint and share it. */
static int group(struct comm *comm, const int *member, int n, struct comm **out,
                 struct err *err)
{
    struct tcp_comm *c = (struct tcp_comm *)comm;
    int *own;

    if (c->made == GROUPS || c->id > UINT32_MAX / (GROUPS + 1) - 1)
        return err_set(err, ERR_SYSTEM, "a group has more than %d groups", GROUPS);
    own = xmalloc((size_t)n * sizeof(*own));
    for (int i = 0; i < n; i++)
        own[i] = c->member[member[i]];
    c->made++;
    *out =
        &open_comm(c->process, c->id * (GROUPS + 1) + (uint32_t)c->made, own, n)->comm;
    return 0;
}

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

struct comm *tcp_open(int rank, int nranks, const int *fd)
{
    struct process *p = xcalloc(1, sizeof(*p));
    int *all = xmalloc((size_t)nranks * sizeof(*all));

    *p = (struct process){ .rank = rank, .nranks = nranks };
    p->peer = xcalloc((size_t)nranks, sizeof(*p->peer));
    p->poll = xcalloc((size_t)nranks, sizeof(*p->poll));
    for (int r = 0; r < nranks; r++) {
        all[r] = r;
        p->peer[r].fd = fd[r];
        p->peer[r].ended = r == rank;
        frames_init(&p->peer[r].out);
        if (fd[r] >= 0)
            prepare(fd[r]);
    }
    return &open_comm(p, 0, all, nranks)->comm;
}
