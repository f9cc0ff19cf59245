/* comm-shm - ranks on one machine, through shared memory
 *
 * Collectives: each rank has two slots and a counter of the operations it has posted.
 * An operation of at most a slot's size is: copy into the own slot, raise the own
 * counter, wait until all counters have come as far, read all slots.  The two slots
 * alternate: who posts operation n+2 into the slot of n has waited for all to post n+1,
 * hence all have read n.  Larger operations are cut into slots.  There is such a board
 * of counters and slots for each group that a rank may be a member of.
 *
 * Messages: between any two ranks lies a ring of bytes for each direction, with
 * counters of the bytes ever written and read.  What a ring has no room for waits in
 * the sender's memory, and is moved on whenever the sender calls an operation. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/comm/comm.h"

enum {
    BOARDS = 8,     /* groups that a rank can be a member of, all ranks' included */
    SLOT = 1 << 18, /* bytes */
    RING_LEAST = 1 << 18, /* bytes */
    RING_MOST = 1 << 24,
    RINGS_ALL = 1 << 28, /* of all rings, where they may be above the least */
    SPINS = 2000,        /* looks before giving up the processor */
    YIELDS = 50,         /* turns given to others before sleeping */
    SLEEP_NS = 50000000, /* a sleeper looks for an abort this often */
    NAP_NS = 500000,     /* and one with bytes to send moves them on this often */
};

/* A counter that ranks wait for, on a cache line of its own. */
struct post {
    _Alignas(128) _Atomic uint32_t count;
    _Atomic uint32_t sleepers;
};

/* Bytes on their way from one rank to another. */
struct ring {
    struct post news; /* raised after bytes have been written */
    _Alignas(128) _Atomic uint64_t written;
    _Alignas(128) _Atomic uint64_t read;
};

/* The mapping: this, post[BOARDS][nranks], ring[nranks][nranks] by sender and receiver,
 * the slots [BOARDS][nranks][2][SLOT], the rings' bytes.  Memory that is never used is
 * never there. */
struct shm {
    _Alignas(128) _Atomic int aborted;
    int nranks;
    size_t bytes, rings, slots, data; /* of the whole; where those parts begin */
    size_t ring_bytes;
    struct post post[];
};

/* Bytes that wait for room in the ring to rank TO. */
struct parcel {
    struct parcel *next;
    int to;
    size_t bytes, done;
    char data[];
};

/* A process's end: what its groups share. */
struct end {
    struct shm *shm;
    int rank;
    int boards;             /* in use */
    struct parcel *parcels; /* oldest first */
};

struct shm_comm {
    struct comm comm;
    struct end *end;
    bool owner;  /* of the end: the group of all ranks */
    int *member; /* [comm.size] ranks of the end's numbering */
    int board;
    uint32_t done; /* collective operations posted */
};

static bool layout(struct shm *s, int nranks)
{
    size_t n = (size_t)nranks, bytes = sizeof(*s) + BOARDS * n * sizeof(struct post);

    s->ring_bytes = RINGS_ALL / n / n;
    s->ring_bytes = s->ring_bytes > RING_MOST    ? RING_MOST
                    : s->ring_bytes < RING_LEAST ? RING_LEAST
                                                 : s->ring_bytes / 4096 * 4096;
    s->rings = bytes;
    bytes += n * n * sizeof(struct ring);
    s->slots = bytes = (bytes + 4095) / 4096 * 4096;
    bytes += BOARDS * n * 2 * SLOT;
    s->data = bytes;
    s->nranks = nranks;
    return mem_mul(&s->bytes, n * n, s->ring_bytes) &&
           mem_add(&s->bytes, s->bytes, bytes);
}

int shm_open_group(struct shm **out, int nranks, struct err *err)
{
    struct shm plan = { 0 }, *s;

    if (!layout(&plan, nranks))
        return err_set(err, ERR_SYSTEM, "shared memory for %d ranks overflows", nranks);
    s = mmap(NULL, plan.bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s == MAP_FAILED)
        return err_errno(err, "shared memory for %d ranks", nranks);
    *s = plan;
    *out = s;
    return 0;
}

void shm_close_group(struct shm *s)
{
    if (s)
        munmap(s, s->bytes);
}

static struct post *post_of(struct shm *s, int board, int rank)
{
    return &s->post[(size_t)board * (size_t)s->nranks + (size_t)rank];
}

static struct ring *ring_of(struct shm *s, int from, int to)
{
    struct ring *all = (struct ring *)(void *)((char *)s + s->rings);

    return &all[(size_t)from * (size_t)s->nranks + (size_t)to];
}

static void wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void raise_to(struct post *p, uint32_t count)
{
    atomic_store(&p->count, count);
    if (atomic_load(&p->sleepers))
        wake(&p->count);
}

void shm_abort(struct shm *s)
{
    atomic_store(&s->aborted, 1);
    for (int r = 0; r < s->nranks; r++) {
        for (int b = 0; b < BOARDS; b++)
            wake(&post_of(s, b, r)->count);
        for (int to = 0; to < s->nranks; to++)
            wake(&ring_of(s, r, to)->news.count);
    }
}

/* ---- what has been sent and not yet found room ---- */

/* Copy as much of BUF as the ring to rank TO has room for; how much. */
static size_t put(struct end *e, int to, const char *buf, size_t bytes)
{
    struct shm *s = e->shm;
    struct ring *r = ring_of(s, e->rank, to);
    char *data = (char *)s + s->data +
                 ((size_t)e->rank * (size_t)s->nranks + (size_t)to) * s->ring_bytes;
    uint64_t at = atomic_load_explicit(&r->written, memory_order_relaxed);
    size_t room = s->ring_bytes -
                  (size_t)(at - atomic_load_explicit(&r->read, memory_order_acquire));
    size_t n = bytes < room ? bytes : room, start = (size_t)(at % s->ring_bytes);
    size_t first = n < s->ring_bytes - start ? n : s->ring_bytes - start;

    if (!n)
        return 0;
    memcpy(data + start, buf, first);
    memcpy(data, buf + first, n - first);
    atomic_store_explicit(&r->written, at + n, memory_order_release);
    raise_to(&r->news, r->news.count + 1);
    return n;
}

/* Move parcels on; a receiver's later ones wait for its first. */
static void push(struct end *e)
{
    struct parcel **link = &e->parcels;

    while (*link) {
        struct parcel *p = *link;
        bool blocked = false;

        for (const struct parcel *q = e->parcels; q != p && !blocked; q = q->next)
            blocked = q->to == p->to;
        if (!blocked)
            p->done += put(e, p->to, p->data + p->done, p->bytes - p->done);
        if (p->done < p->bytes) {
            link = &p->next;
            continue;
        }
        *link = p->next;
        free(p);
    }
}

/* ---- waiting ---- */

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Wait until READY(ARG), which changes after P has been raised. */
static int wait_for(struct end *e, struct post *p, bool (*ready)(const void *arg),
                    const void *arg, struct err *err)
{
    for (int i = 0; i < SPINS; i++) {
        if (ready(arg))
            return 0;
        pause_briefly();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (ready(arg))
            return 0;
        sched_yield();
    }
    while (!ready(arg)) {
        uint32_t seen = atomic_load(&p->count);
        struct timespec nap = { .tv_nsec = SLEEP_NS };

        if (atomic_load(&e->shm->aborted))
            return err_set(err, ERR_SYSTEM, "rank %d: another rank is gone", e->rank);
        push(e);
        if (e->parcels)
            nap.tv_nsec = NAP_NS;
        atomic_fetch_add(&p->sleepers, 1);
        if (!ready(arg))
            syscall(SYS_futex, &p->count, FUTEX_WAIT, seen, &nap, NULL, 0);
        atomic_fetch_sub(&p->sleepers, 1);
    }
    return 0;
}

/* ---- collectives ---- */

/* Slot of the group's rank RANK. */
static char *slot(const struct shm_comm *c, int rank)
{
    struct shm *s = c->end->shm;
    size_t at = (size_t)c->board * (size_t)s->nranks + (size_t)c->member[rank];

    return (char *)s + s->slots + (at * 2 + c->done % 2) * SLOT;
}

struct arrival {
    const struct post *post;
    uint32_t count;
};

static bool has_come(const void *arg)
{
    const struct arrival *a = arg;

    return (int32_t)(atomic_load_explicit(&a->post->count, memory_order_acquire) -
                     a->count) >= 0;
}

/* Post what the own slot holds and wait for all; the slots may be read until the next
 * post. */
static int exchange(struct shm_comm *c, struct err *err)
{
    struct end *e = c->end;
    struct arrival a = { .count = c->done + 1 };

    raise_to(post_of(e->shm, c->board, e->rank), a.count);
    if (e->parcels)
        push(e);
    for (int r = 0; r < c->comm.size; r++) {
        struct post *p = post_of(e->shm, c->board, c->member[r]);

        a.post = p;
        if (r != c->comm.rank && wait_for(e, p, has_come, &a, err) < 0)
            return -1;
    }
    return 0;
}

static void add_f32(void *to, const void *from, size_t n)
{
    float *x = to;

    for (size_t i = 0; i < n; i++)
        x[i] += ((const float *)from)[i];
}

static void add_f64(void *to, const void *from, size_t n)
{
    double *x = to;

    for (size_t i = 0; i < n; i++)
        x[i] += ((const double *)from)[i];
}

/* Sum N numbers of SIZE bytes over the ranks, in rank order. */
static int sum(struct shm_comm *c, char *x, size_t n, size_t size,
               void (*add)(void *to, const void *from, size_t n), struct err *err)
{
    for (size_t at = 0; at < n;) {
        size_t count = n - at < SLOT / size ? n - at : SLOT / size;

        memcpy(slot(c, c->comm.rank), x + at * size, count * size);
        if (exchange(c, err) < 0)
            return -1;
        memcpy(x + at * size, slot(c, 0), count * size);
        for (int r = 1; r < c->comm.size; r++)
            add(x + at * size, slot(c, r), count);
        c->done++;
        at += count;
    }
    return 0;
}

static int shm_sum_f32(struct comm *c, float *x, size_t n, struct err *err)
{
    return sum((struct shm_comm *)c, (char *)x, n, sizeof(*x), add_f32, err);
}

static int shm_sum_f64(struct comm *c, double *x, size_t n, struct err *err)
{
    return sum((struct shm_comm *)c, (char *)x, n, sizeof(*x), add_f64, err);
}

static int shm_gather(struct comm *comm, const void *mine, void *all, size_t bytes,
                      struct err *err)
{
    struct shm_comm *c = (struct shm_comm *)comm;

    for (size_t at = 0; at < bytes;) {
        size_t count = bytes - at < SLOT ? bytes - at : SLOT;

        memcpy(slot(c, comm->rank), (const char *)mine + at, count);
        if (exchange(c, err) < 0)
            return -1;
        for (int r = 0; r < comm->size; r++)
            memcpy((char *)all + (size_t)r * bytes + at, slot(c, r), count);
        c->done++;
        at += count;
    }
    return 0;
}

static int shm_broadcast(struct comm *comm, void *buf, size_t bytes, int root,
                         struct err *err)
{
    struct shm_comm *c = (struct shm_comm *)comm;

    for (size_t at = 0; at < bytes;) {
        size_t count = bytes - at < SLOT ? bytes - at : SLOT;

        if (comm->rank == root)
            memcpy(slot(c, root), (char *)buf + at, count);
        if (exchange(c, err) < 0)
            return -1;
        if (comm->rank != root)
            memcpy((char *)buf + at, slot(c, root), count);
        c->done++;
        at += count;
    }
    return 0;
}

/* ---- messages ---- */

static int shm_send(struct comm *comm, const void *buf, size_t bytes, int to,
                    struct err *err)
{
    struct shm_comm *c = (struct shm_comm *)comm;
    struct end *e = c->end;
    struct parcel **link = &e->parcels, *p;
    int target = c->member[to];
    size_t done = 0;

    push(e);
    if (!e->parcels)
        done = put(e, target, buf, bytes);
    if (done == bytes)
        return 0;
    p = mem_alloc(sizeof(*p) + bytes - done, "a message", err);
    if (!p)
        return -1;
    *p = (struct parcel){ .to = target, .bytes = bytes - done };
    memcpy(p->data, (const char *)buf + done, bytes - done);
    while (*link)
        link = &(*link)->next;
    *link = p;
    push(e);
    return 0;
}

static bool has_bytes(const void *arg)
{
    const struct ring *r = arg;

    return atomic_load_explicit(&r->written, memory_order_acquire) !=
           atomic_load_explicit(&r->read, memory_order_relaxed);
}

static int shm_receive(struct comm *comm, void *buf, size_t bytes, int from,
                       struct err *err)
{
    struct shm_comm *c = (struct shm_comm *)comm;
    struct end *e = c->end;
    struct shm *s = e->shm;
    int source = c->member[from];
    struct ring *r = ring_of(s, source, e->rank);
    const char *data =
        (char *)s + s->data +
        ((size_t)source * (size_t)s->nranks + (size_t)e->rank) * s->ring_bytes;

    push(e);
    for (size_t done = 0; done < bytes;) {
        uint64_t at = atomic_load_explicit(&r->read, memory_order_relaxed);
        size_t there, n, start = (size_t)(at % s->ring_bytes), first;

        if (wait_for(e, &r->news, has_bytes, r, err) < 0)
            return -1;
        there = (size_t)(atomic_load_explicit(&r->written, memory_order_acquire) - at);
        n = there < bytes - done ? there : bytes - done;
        first = n < s->ring_bytes - start ? n : s->ring_bytes - start;
        memcpy((char *)buf + done, data + start, first);
        memcpy((char *)buf + done + first, data, n - first);
        atomic_store_explicit(&r->read, at + n, memory_order_release);
        done += n;
    }
    return 0;
}

static int shm_flush(struct comm *comm, struct err *err)
{
    struct end *e = ((struct shm_comm *)comm)->end;
    struct timespec nap = { .tv_nsec = NAP_NS };

    for (push(e); e->parcels; push(e)) {
        if (atomic_load(&e->shm->aborted))
            return err_set(err, ERR_SYSTEM, "rank %d: another rank is gone", e->rank);
        nanosleep(&nap, NULL);
    }
    return 0;
}

/* ---- groups ---- */

static int shm_group(struct comm *comm, const int *member, int n, struct comm **out,
                     struct err *err);

static void shm_comm_close(struct comm *comm)
{
    struct shm_comm *c = (struct shm_comm *)comm;

    while (c->owner && c->end->parcels) {
        struct parcel *p = c->end->parcels;

        c->end->parcels = p->next;
        free(p);
    }
    if (c->owner)
        free(c->end);
    free(c->member);
    free(c);
}

static const struct comm_ops comm_shm = {
    .name = "shm",
    .sum_f32 = shm_sum_f32,
    .sum_f64 = shm_sum_f64,
    .gather = shm_gather,
    .broadcast = shm_broadcast,
    .send = shm_send,
    .receive = shm_receive,
    .group = shm_group,
    .flush = shm_flush,
    .close = shm_comm_close,
};

/* The group of the N ranks at MEMBER, which it takes ownership of, on the next board:
 * all ranks make their groups in the same order, so a group's members take the same. */
static struct shm_comm *open_group(struct end *e, int *member, int n)
{
    struct shm_comm *c = xcalloc(1, sizeof(*c));

    c->comm = (struct comm){ .ops = &comm_shm, .size = n };
    c->end = e;
    c->member = member;
    c->board = e->boards++;
    while (member[c->comm.rank] != e->rank)
        c->comm.rank++;
    return c;
}

static int shm_group(struct comm *comm, const int *member, int n, struct comm **out,
                     struct err *err)
{
    struct shm_comm *c = (struct shm_comm *)comm;
    int *own;

    if (c->end->boards == BOARDS)
        return err_set(err, ERR_SYSTEM, "more than %d groups of ranks", BOARDS);
    own = xcalloc((size_t)n, sizeof(*own));
    for (int i = 0; i < n; i++)
        own[i] = c->member[member[i]];
    *out = &open_group(c->end, own, n)->comm;
    return 0;
}

struct comm *comm_shm_open(struct shm *s, int rank)
{
    struct end *e = xcalloc(1, sizeof(*e));
    int *all = xcalloc((size_t)s->nranks, sizeof(*all));
    struct shm_comm *c;

    *e = (struct end){ .shm = s, .rank = rank };
    for (int i = 0; i < s->nranks; i++)
        all[i] = i;
    c = open_group(e, all, s->nranks);
    c->owner = true;
    return &c->comm;
}
