/* comm-shm - ranks on one machine, through shared memory
 *
 * A rank cuts what it gives to a collective into pieces of at most a slot, numbers the
 * pieces of all its collectives, copies piece P into its slot P % SHM_DEPTH, and raises
 * its counter.  When all ranks' counters say that piece P is there, each rank takes
 * from their slots what it wants of it.  All ranks have as many pieces for a
 * collective, some of them empty, so pieces of the same number belong together.  A
 * rank's counter also says how many pieces it has taken: a slot is used again when all
 * have taken what it held.
 *
 * No operation needs a thread of its own: pieces are posted, as far as there is room,
 * by the start, and the rest is moved on whenever this rank waits for anything. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/comm/collective.h"
#include "lib/comm/shm.h"

/* A collective under way. */
struct flight {
    struct collective op;
    size_t bytes;                 /* of what is cut into pieces; the most of any rank */
    size_t pieces, posted, taken; /* the first may still grow when not SIZED */
    bool sized;
    size_t *start; /* all-to-all: [size] where this rank's part of a rank's begins */
    int refused;   /* all-to-all: 1 + a rank that sends another count than expected */
};

struct shm_comm {
    struct comm comm;
    struct shm_comm *next; /* of the end's */
    struct end *end;
    bool owner;        /* of the end: the group of all ranks */
    int *member;       /* [comm.size] ranks of the end's numbering */
    const void **part; /* [comm.size] what is summed */
    int board;
    struct flight *flight; /* [nflights], oldest first */
    size_t nflights, flights_cap;
    size_t posting, taking; /* the flights whose pieces are next */
    uint32_t posted, taken; /* pieces of all flights */
    uint32_t told;          /* what the own counter says */
    uint32_t room;          /* pieces that may be posted without looking */
};

/* ---- counters: pieces posted and taken, 16 bits of each ---- */

static uint32_t counter(uint32_t posted, uint32_t taken)
{
    return posted << 16 | (taken & 0xffff);
}

static struct post *post_of(const struct shm_comm *c, int rank)
{
    return shm_post(c->end->shm, c->board, c->member[rank]);
}

static uint32_t look(const struct post *p)
{
    return atomic_load_explicit(&p->count, memory_order_acquire);
}

/* Publish this rank's counts of posted and taken pieces. */
static void tell(struct shm_comm *c)
{
    c->told = counter(c->posted, c->taken);
    shm_raise(post_of(c, c->comm.rank), c->told);
}

/* A condition to wait for: this number of pieces is posted (SHIFT 16) or taken (0). */
struct arrival {
    const struct post *post;
    int shift;
    uint32_t count;
};

static bool has_come(const void *arg)
{
    const struct arrival *a = arg;

    return (int16_t)((look(a->post) >> a->shift) - a->count) >= 0;
}

/* Rank RANK's slot for its piece NUMBER. */
static char *slot(const struct shm_comm *c, int rank, uint32_t number)
{
    return shm_slots(c->end->shm, c->board, c->member[rank]) +
           (size_t)(number % SHM_DEPTH) * SHM_SLOT;
}

/* Bytes of a piece. */
static size_t low_of(size_t piece)
{
    return piece * SHM_SLOT;
}

static size_t high_of(const struct flight *f, size_t piece)
{
    size_t high = (piece + 1) * SHM_SLOT;

    return high < f->bytes ? high : f->bytes;
}

/* ---- all-to-all: a rank gives all counts, then its parts for the others ---- */

static size_t head_bytes(const struct shm_comm *c)
{
    return (size_t)c->comm.size * sizeof(uint64_t);
}

static size_t stream_bytes(const struct shm_comm *c, const struct collective *op)
{
    size_t bytes = head_bytes(c);

    for (int r = 0; r < c->comm.size; r++)
        if (r != c->comm.rank)
            bytes += collective_part(op, &op->part, r);
    return bytes;
}

/* What of [at, at + n) is in [low, high): how much, *skip bytes after LOW. */
static size_t overlap(size_t at, size_t n, size_t low, size_t high, size_t *skip)
{
    size_t from = at > low ? at : low, to = at + n < high ? at + n : high;

    *skip = from - low;
    return from < to ? to - from : 0;
}

/* Bytes LOW to HIGH of the stream. */
static void fill_stream(const struct shm_comm *c, const struct collective *op, char *to,
                        size_t low, size_t high)
{
    size_t at = head_bytes(c), skip, n;

    if (low == 0)
        for (int r = 0; r < c->comm.size; r++)
            ((uint64_t *)(void *)to)[r] = collective_part(op, &op->part, r);
    for (int r = 0; r < c->comm.size; r++) {
        size_t bytes = r == c->comm.rank ? 0 : collective_part(op, &op->part, r);

        n = overlap(at, bytes, low, high, &skip);
        if (n)
            memcpy(to + skip,
                   (const char *)op->from + collective_start(op, &op->part, r) +
                       (low + skip - at),
                   n);
        at += bytes;
    }
}

/* The first piece of each rank has arrived: it gives the size of that rank's part for
 * this one, and the number of pieces. */
static void read_heads(struct shm_comm *c, struct flight *f)
{
    const struct collective *op = &f->op;
    int size = c->comm.size, me = c->comm.rank;

    f->start = xcalloc((size_t)size, sizeof(*f->start));
    for (int s = 0; s < size; s++) {
        const uint64_t *count = (const void *)slot(c, s, c->taken);
        size_t at = head_bytes(c);

        if (count[me] != collective_part(op, &op->in, s))
            f->refused = 1 + s;
        for (int r = 0; r < size; r++) {
            if (r == me)
                f->start[s] = at;
            at += r == s ? 0 : count[r];
        }
        f->bytes = at > f->bytes ? at : f->bytes;
    }
    f->pieces = (f->bytes + SHM_SLOT - 1) / SHM_SLOT;
    f->sized = true;
    collective_copy((char *)op->to + collective_start(op, &op->in, me),
                    (const char *)op->from + collective_start(op, &op->part, me),
                    collective_part(op, &op->part, me));
}

static void take_stream(struct shm_comm *c, struct flight *f, size_t low, size_t high)
{
    const struct collective *op = &f->op;
    size_t skip, n;

    if (low == 0) {
        read_heads(c, f);
        high = high_of(f, 0);
    }
    for (int s = 0; s < c->comm.size && !f->refused; s++) {
        if (s == c->comm.rank)
            continue;
        n = overlap(f->start[s], collective_part(op, &op->in, s), low, high, &skip);
        if (n)
            memcpy((char *)op->to + collective_start(op, &op->in, s) +
                       (low + skip - f->start[s]),
                   slot(c, s, c->taken) + skip, n);
    }
}

/* ---- the other collectives ---- */

/* Bytes to divide into pieces: the largest count of any rank. */
static size_t bytes_of(const struct shm_comm *c, const struct collective *op)
{
    size_t bytes = op->n * op->unit, part;

    if (op->kind == COMM_ALL_TO_ALL)
        return stream_bytes(c, op);
    for (int r = 0; op->part.count && r < c->comm.size; r++) {
        part = collective_part(op, &op->part, r);
        if (op->kind == COMM_REDUCE_SCATTER)
            bytes += part;
        else
            bytes = part > bytes ? part : bytes;
    }
    return bytes;
}

/* The own next piece, bytes LOW to HIGH of F, to TO. */
static void fill(const struct shm_comm *c, const struct flight *f, char *to, size_t low,
                 size_t high)
{
    const struct collective *op = &f->op;

    if (op->kind == COMM_ALL_TO_ALL) {
        fill_stream(c, op, to, low, high);
        return;
    }
    if (op->kind == COMM_ALL_GATHER) {
        size_t part = collective_part(op, &op->part, c->comm.rank);

        high = part < high ? part : high;
    }
    if (low < high && (op->kind != COMM_BROADCAST || op->root == c->comm.rank))
        memcpy(to, (const char *)op->from + low, high - low);
}

/* to[n] = the sum of all slots' contents after SKIP. */
static void sum(const struct shm_comm *c, const struct collective *op, char *to,
                size_t skip, size_t n)
{
    for (int r = 0; r < c->comm.size; r++)
        c->part[r] = slot(c, r, c->taken) + skip;
    collective_sum(op, to, c->part, c->comm.size, n);
}

/* From all ranks' next piece, bytes LOW to HIGH of F. */
static void take(struct shm_comm *c, struct flight *f, size_t low, size_t high)
{
    const struct collective *op = &f->op;
    char *to = op->to;
    int me = c->comm.rank;
    size_t at = 0, n, skip;

    switch (op->kind) {
    case COMM_ALL_REDUCE:
        sum(c, op, to + low, 0, high - low);
        break;
    case COMM_REDUCE_SCATTER:
        at = collective_start(op, &op->part, me);
        n = overlap(at, collective_part(op, &op->part, me), low, high, &skip);
        if (n)
            sum(c, op, to + (low + skip - at), skip, n);
        break;
    case COMM_ALL_GATHER:
        for (int r = 0; r < c->comm.size; r++) {
            size_t part = collective_part(op, &op->part, r);

            n = part < high ? part : high;
            if (low < n)
                collective_copy(to + at + low,
                                r == me ? (const char *)op->from + low
                                        : slot(c, r, c->taken),
                                n - low);
            at += part;
        }
        break;
    case COMM_ALL_TO_ALL:
        take_stream(c, f, low, high);
        break;
    case COMM_BROADCAST:
        if (op->root != me)
            memcpy(to + low, slot(c, op->root, c->taken), high - low);
        break;
    case COMM_NKINDS:
        break;
    }
}

/* ---- moving on ---- */

/* Pieces that all others have taken may be overwritten. */
static bool has_room(struct shm_comm *c)
{
    if (c->room)
        return true;
    c->room = SHM_DEPTH;
    for (int r = 0; r < c->comm.size; r++) {
        uint32_t taken = r == c->comm.rank ? c->taken : look(post_of(c, r));
        uint32_t room = SHM_DEPTH - (uint16_t)(c->posted - taken);

        c->room = room < c->room ? room : c->room;
    }
    return c->room > 0;
}

/* Post pieces in order while there is room; nothing after an all-to-all whose number of
 * pieces is not known yet. */
static void post_ready(struct shm_comm *c)
{
    for (; c->posting < c->nflights; c->posting++) {
        struct flight *f = &c->flight[c->posting];

        for (; f->posted < f->pieces; f->posted++) {
            if (!has_room(c))
                return;
            fill(c, f, slot(c, c->comm.rank, c->posted), low_of(f->posted),
                 high_of(f, f->posted));
            c->posted++;
            c->room--;
            tell(c);
        }
        if (!f->sized)
            return;
    }
}

/* Take the next piece, if there is one and all have posted it. */
static bool take_ready(struct shm_comm *c)
{
    struct flight *f;

    while (c->taking < c->nflights &&
           c->flight[c->taking].taken == c->flight[c->taking].pieces)
        c->taking++;
    if (c->taking == c->nflights || c->posted == c->taken)
        return false;
    for (int r = 0; r < c->comm.size; r++)
        if (r != c->comm.rank &&
            !has_come(&(struct arrival){ post_of(c, r), 16, c->taken + 1 }))
            return false;
    f = &c->flight[c->taking];
    take(c, f, low_of(f->taken), high_of(f, f->taken));
    f->taken++;
    c->taken++;
    return true;
}

static void advance(struct shm_comm *c)
{
    do
        post_ready(c);
    while (take_ready(c));
}

/* Progress of all groups: other ranks may wait for pieces that this rank has not posted
 * or taken. */
static void advance_all(struct end *e)
{
    for (struct shm_comm *c = e->groups; c; c = c->next)
        if (c->nflights) {
            advance(c);
            if (c->told != counter(c->posted, c->taken))
                tell(c);
        }
}

/* Wait for a counter without which nothing moves. */
static int wait_for_others(struct shm_comm *c, struct err *err)
{
    struct arrival a = { .shift = 16, .count = c->taken + 1 };

    if (c->told != counter(c->posted, c->taken))
        tell(c);
    if (c->posted == c->taken) /* no room: the oldest slot is to be taken */
        a = (struct arrival){ .count = c->posted - SHM_DEPTH + 1 };
    for (int r = 0; r < c->comm.size; r++) {
        a.post = post_of(c, r);
        if (r != c->comm.rank && shm_wait(c->end, post_of(c, r), has_come, &a, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- the table's slots ---- */

static int start(struct comm *comm, const struct collective *op, struct err *err)
{
    struct shm_comm *c = (struct shm_comm *)comm;
    struct flight *f;

    (void)err;
    c->flight = xgrow(c->flight, &c->flights_cap, c->nflights + 1, sizeof(*c->flight));
    f = &c->flight[c->nflights++];
    *f = (struct flight){ .op = *op, .sized = true };
    c->end->under_way++;
    if (comm->size == 1) {
        collective_alone(op);
        return 0;
    }
    f->bytes = bytes_of(c, op);
    f->pieces = (f->bytes + SHM_SLOT - 1) / SHM_SLOT;
    if (op->kind == COMM_ALL_TO_ALL) {
        f->pieces = 1;
        f->sized = false;
    }
    post_ready(c);
    if (c->end->parcels)
        shm_push(c->end);
    return 0;
}

static int wait_oldest(struct comm *comm, struct err *err)
{
    struct shm_comm *c = (struct shm_comm *)comm;
    struct flight *f = &c->flight[0];
    int ret = 0;

    c->end->under_way--;
    while (f->taken < f->pieces && ret == 0) {
        post_ready(c);
        if (!take_ready(c))
            ret = wait_for_others(c, err);
    }
    if (ret == 0 && f->refused)
        ret =
            err_set(err, ERR_SYSTEM,
                    "rank %d: another count of elements is expected than rank %d sends",
                    comm->rank, f->refused - 1);
    free(f->start);
    c->nflights--;
    memmove(c->flight, c->flight + 1, c->nflights * sizeof(*c->flight));
    c->posting -= c->posting > 0;
    c->taking -= c->taking > 0;
    /* who posts little else should not be waited for */
    if ((uint16_t)(c->taken - c->told) >= SHM_DEPTH / 2)
        tell(c);
    return ret;
}

static int send(struct comm *comm, const void *buf, size_t bytes, int to,
                struct err *err)
{
    struct shm_comm *c = (struct shm_comm *)comm;

    return shm_send(c->end, buf, bytes, c->member[to], err);
}

static int receive(struct comm *comm, void *buf, size_t bytes, int from,
                   struct err *err)
{
    struct shm_comm *c = (struct shm_comm *)comm;

    return shm_receive(c->end, buf, bytes, c->member[from], err);
}

static int flush(struct comm *comm, struct err *err)
{
    return shm_flush(((struct shm_comm *)comm)->end, err);
}

static void held(const struct comm *comm, struct comm_memory *m)
{
    const struct end *e = ((const struct shm_comm *)comm)->end;

    m->mapped = shm_bytes(e->shm);
    m->slots = (uint64_t)e->boards * SHM_DEPTH * SHM_SLOT;
    m->rings = (uint64_t)(e->nranks - 1) * shm_ring_bytes(e->shm);
}

static int group(struct comm *comm, const int *member, int n, struct comm **out,
                 struct err *err);

static void close_comm(struct comm *comm)
{
    struct shm_comm *c = (struct shm_comm *)comm, **link = &c->end->groups;

    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    c->end->under_way -= c->nflights;
    for (size_t i = 0; i < c->nflights; i++)
        free(c->flight[i].start);
    if (c->owner)
        shm_close_end(c->end);
    free(c->flight);
    free(c->member);
    free(c->part);
    free(c);
}

static const struct comm_ops comm_shm = {
    .name = "shm",
    .start = start,
    .wait = wait_oldest,
    .send = send,
    .receive = receive,
    .group = group,
    .flush = flush,
    .held = held,
    .close = close_comm,
};

/* ---- groups ---- */

/* The group of the N ranks at MEMBER, which it takes ownership of, on the next board:
 * all ranks make their groups in the same order, so a group's members take the same. */
static struct shm_comm *open_group(struct end *e, int *member, int n)
{
    struct shm_comm *c = xcalloc(1, sizeof(*c));

    c->comm = (struct comm){ .ops = &comm_shm, .size = n };
    c->end = e;
    c->member = member;
    c->part = xcalloc((size_t)n, sizeof(*c->part));
    c->board = e->boards++;
    while (member[c->comm.rank] != e->rank)
        c->comm.rank++;
    c->next = e->groups;
    e->groups = c;
    return c;
}

static int group(struct comm *comm, const int *member, int n, struct comm **out,
                 struct err *err)
{
    struct shm_comm *c = (struct shm_comm *)comm;
    int *own;

    if (c->end->boards == SHM_BOARDS)
        return err_set(err, ERR_SYSTEM, "more than %d groups of ranks", SHM_BOARDS);
    own = xcalloc((size_t)n, sizeof(*own));
    for (int i = 0; i < n; i++)
        own[i] = c->member[member[i]];
    *out = &open_group(c->end, own, n)->comm;
    return 0;
}

struct comm *comm_shm_open(struct shm *s, int rank)
{
    struct end *e = shm_open_end(s, rank);
    int *all = xcalloc((size_t)e->nranks, sizeof(*all));
    struct shm_comm *c;

    for (int i = 0; i < e->nranks; i++)
        all[i] = i;
    e->advance = advance_all;
    c = open_group(e, all, e->nranks);
    c->owner = true;
    return &c->comm;
}
