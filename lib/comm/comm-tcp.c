/* comm-tcp - ranks that are connected by TCP
 *
 * A group's messages and collectives are bytes of its channels (tcp-peers), which carry
 * the parts of its collectives in the order of the operations.  Collectives move on as
 * those of comm-mpi do. */
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/comm/collective.h"
#include "lib/comm/pairwise.h"
#include "lib/comm/tcp-peers.h"
#include "lib/comm/tcp.h"

enum channel {
    MESSAGES,
    COLLECTIVES,                               /* from here on those of pairwise.h */
    BROADCASTS = COLLECTIVES + PAIRWISE_PARTS, /* in their order beside them */
};

_Static_assert((int)BROADCASTS < (int)TCP_CHANNELS, "channels of a group");

/* What the groups of this process share. */
struct process {
    int rank;
    struct tcp_peers *peers;
    struct tcp_comm *groups;
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

/* ---- collectives: every rank sends each other rank its part ---- */

static int give(struct tcp_comm *c, enum channel channel, const void *buf, size_t bytes,
                int rank, struct err *err)
{
    return bytes ? tcp_peers_post(c->process->peers, c->member[rank], c->id, channel,
                                  buf, bytes, err)
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

            tcp_peers_fetch(c->process->peers, from, c->id, w->channel, w->to, &w->at,
                            w->n);
            if (w->at < w->n)
                return tcp_peers_has(c->process->peers, from)
                           ? 0
                           : tcp_peers_expect(c->process->peers, from, err);
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
    if (tcp_peers_move(p->peers, ms, err) < 0)
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

    if (tcp_peers_check(c->process->peers, err) < 0)
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
            (!f->done && tcp_peers_check(c->process->peers, err) < 0))
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
        tcp_peers_fetch(c->process->peers, rank, c->id, MESSAGES, buf, &done, bytes);
        if (done < bytes && (tcp_peers_expect(c->process->peers, rank, err) < 0 ||
                             move_on(c->process, ms, err) < 0))
            return -1;
    }
    return 0;
}

static int flush(struct comm *comm, struct err *err)
{
    struct process *p = ((struct tcp_comm *)comm)->process;

    while (tcp_peers_unsent(p->peers))
        if (tcp_peers_check(p->peers, err) < 0 || move_on(p, WAIT_MS, err) < 0)
            return -1;
    return 0;
}

/* ---- the end ---- */

void tcp_abort(struct comm *world)
{
    tcp_peers_abort(((struct tcp_comm *)world)->process->peers);
}

bool tcp_is_aborted(struct comm *world)
{
    return tcp_peers_aborted(((struct tcp_comm *)world)->process->peers);
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
    if (c->id != 0) {
        tcp_peers_leave(c->process->peers, c->id);
    } else {
        tcp_peers_close(c->process->peers);
        free(c->process);
    }
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
    tcp_peers_join(p->peers, id, member, n);
    return c;
}

/* All ranks of a group make its groups in the same order, so a number names them; those
 * made together are disjoint and share it. */
static int group(struct comm *comm, const int *member, int n, struct comm **out,
                 struct err *err)
{
    struct tcp_comm *c = (struct tcp_comm *)comm;
    int *own;

    if (c->made == TCP_GROUPS || c->id > UINT32_MAX / (TCP_GROUPS + 1) - 1)
        return err_set(err, ERR_SYSTEM, "a group has more than %d groups", TCP_GROUPS);
    own = xmalloc((size_t)n * sizeof(*own));
    for (int i = 0; i < n; i++)
        own[i] = c->member[member[i]];
    c->made++;
    *out = &open_comm(c->process, c->id * (TCP_GROUPS + 1) + (uint32_t)c->made, own, n)
                ->comm;
    return 0;
}

struct comm *tcp_open(int rank, int nranks, const int *fd)
{
    struct process *p = xcalloc(1, sizeof(*p));
    int *all = xmalloc((size_t)nranks * sizeof(*all));

    for (int r = 0; r < nranks; r++)
        all[r] = r;
    *p = (struct process){ .rank = rank, .peers = tcp_peers_open(rank, nranks, fd) };
    return &open_comm(p, 0, all, nranks)->comm;
}
