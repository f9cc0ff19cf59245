/* shm - what ranks of one machine share: counters to wait for, slots, rings of bytes */
#define _GNU_SOURCE
#include "lib/comm/shm.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/base/spin.h"

enum {
    LOOKS = 2000,         /* before giving up the processor */
    YIELDS = 50,          /* turns given to others before sleeping */
    RING_LEAST = 1 << 18, /* bytes */
    RING_MOST = 1 << 24,
    RINGS_ALL = 1 << 28, /* of all rings, where they may be above the least */
    SLEEP_NS = 50000000, /* a sleeper looks for an abort this often */
    NAP_NS = 500000,     /* and one with bytes to send moves them on this often */
};

/* Bytes on their way from one rank to another. */
struct ring {
    struct post news; /* raised after bytes have been written */
    _Alignas(128) _Atomic uint64_t written;
    _Alignas(128) _Atomic uint64_t read;
};

/* The mapping: this, post[SHM_BOARDS][nranks], ring[nranks][nranks] by sender and
 * receiver, the slots [SHM_BOARDS][nranks][SHM_DEPTH][SHM_SLOT], the rings' bytes.
 * Memory that is never used is never there. */
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

static bool layout(struct shm *s, int nranks)
{
    size_t n = (size_t)nranks,
           bytes = sizeof(*s) + SHM_BOARDS * n * sizeof(struct post);

    s->ring_bytes = RINGS_ALL / n / n;
    s->ring_bytes = s->ring_bytes > RING_MOST    ? RING_MOST
                    : s->ring_bytes < RING_LEAST ? RING_LEAST
                                                 : s->ring_bytes / 4096 * 4096;
    s->rings = bytes;
    bytes += n * n * sizeof(struct ring);
    s->slots = bytes = (bytes + 4095) / 4096 * 4096;
    bytes += SHM_BOARDS * n * SHM_DEPTH * SHM_SLOT;
    s->data = bytes;
    s->nranks = nranks;
    return mem_mul(&s->bytes, n * n, s->ring_bytes) &&
           mem_add(&s->bytes, s->bytes, bytes);
}

int shm_map_group(struct shm **out, int fd, bool first, int nranks, struct err *err)
{
    struct shm plan = { 0 }, *s;
    int how = MAP_SHARED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);

    if (!layout(&plan, nranks))
        return err_set(err, ERR_SYSTEM, "shared memory for %d ranks overflows", nranks);
    if (fd >= 0 && first && ftruncate(fd, (off_t)plan.bytes) < 0)
        return err_errno(err, "shared memory for %d ranks", nranks);
    s = mmap(NULL, plan.bytes, PROT_READ | PROT_WRITE, how, fd, 0);
    if (s == MAP_FAILED)
        return err_errno(err, "shared memory for %d ranks", nranks);
    if (first)
        *s = plan;
    *out = s;
    return 0;
}

int shm_open_group(struct shm **out, int nranks, struct err *err)
{
    return shm_map_group(out, -1, true, nranks, err);
}

void shm_close_group(struct shm *s)
{
    if (s)
        munmap(s, s->bytes);
}

struct post *shm_post(struct shm *s, int board, int rank)
{
    return &s->post[(size_t)board * (size_t)s->nranks + (size_t)rank];
}

char *shm_slots(struct shm *s, int board, int rank)
{
    size_t at = (size_t)board * (size_t)s->nranks + (size_t)rank;

    return (char *)s + s->slots + at * SHM_DEPTH * SHM_SLOT;
}

uint64_t shm_bytes(const struct shm *s)
{
    return s->bytes;
}

uint64_t shm_ring_bytes(const struct shm *s)
{
    return s->ring_bytes;
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

void shm_raise(struct post *p, uint32_t count)
{
    atomic_store(&p->count, count);
    if (atomic_load(&p->sleepers))
        wake(&p->count);
}

bool shm_is_aborted(const struct shm *s)
{
    return atomic_load(&s->aborted);
}

void shm_abort(struct shm *s)
{
    atomic_store(&s->aborted, 1);
    for (int r = 0; r < s->nranks; r++) {
        for (int b = 0; b < SHM_BOARDS; b++)
            wake(&shm_post(s, b, r)->count);
        for (int to = 0; to < s->nranks; to++)
            wake(&ring_of(s, r, to)->news.count);
    }
}

/* ---- sent bytes for which the ring had no room yet ---- */

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
    shm_raise(&r->news, r->news.count + 1);
    return n;
}

/* Move parcels on; a receiver's later ones wait for its first. */
void shm_push(struct end *e)
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

static void move_on(struct end *e)
{
    shm_push(e);
    if (e->under_way)
        e->advance(e);
}

int shm_wait(struct end *e, struct post *p, bool (*ready)(const void *arg),
             const void *arg, struct err *err)
{
    if (spin_until(LOOKS, YIELDS, ready, arg))
        return 0;
    while (!ready(arg)) {
        uint32_t seen = atomic_load(&p->count);
        struct timespec nap = { .tv_nsec = SLEEP_NS };

        if (atomic_load(&e->shm->aborted))
            return err_set(err, ERR_SYSTEM, "rank %d: another rank is gone", e->rank);
        move_on(e);
        if (e->parcels || e->under_way)
            nap.tv_nsec = NAP_NS;
        atomic_fetch_add(&p->sleepers, 1);
        if (!ready(arg))
            syscall(SYS_futex, &p->count, FUTEX_WAIT, seen, &nap, NULL, 0);
        atomic_fetch_sub(&p->sleepers, 1);
    }
    return 0;
}

/* ---- messages ---- */

int shm_send(struct end *e, const void *buf, size_t bytes, int to, struct err *err)
{
    struct parcel **link = &e->parcels, *p;
    size_t done = 0;

    shm_push(e);
    if (!e->parcels)
        done = put(e, to, buf, bytes);
    if (done == bytes)
        return 0;
    p = mem_alloc(sizeof(*p) + bytes - done, "a message", err);
    if (!p)
        return -1;
    *p = (struct parcel){ .to = to, .bytes = bytes - done };
    memcpy(p->data, (const char *)buf + done, bytes - done);
    while (*link)
        link = &(*link)->next;
    *link = p;
    shm_push(e);
    return 0;
}

static bool has_bytes(const void *arg)
{
    const struct ring *r = arg;

    return atomic_load_explicit(&r->written, memory_order_acquire) !=
           atomic_load_explicit(&r->read, memory_order_relaxed);
}

int shm_receive(struct end *e, void *buf, size_t bytes, int from, struct err *err)
{
    struct shm *s = e->shm;
    struct ring *r = ring_of(s, from, e->rank);
    const char *data =
        (char *)s + s->data +
        ((size_t)from * (size_t)s->nranks + (size_t)e->rank) * s->ring_bytes;

    shm_push(e);
    for (size_t done = 0; done < bytes;) {
        uint64_t at = atomic_load_explicit(&r->read, memory_order_relaxed);
        size_t there, n, start = (size_t)(at % s->ring_bytes), first;

        if (shm_wait(e, &r->news, has_bytes, r, err) < 0)
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

int shm_flush(struct end *e, struct err *err)
{
    struct timespec nap = { .tv_nsec = NAP_NS };

    for (move_on(e); e->parcels; move_on(e)) {
        if (atomic_load(&e->shm->aborted))
            return err_set(err, ERR_SYSTEM, "rank %d: another rank is gone", e->rank);
        nanosleep(&nap, NULL);
    }
    return 0;
}

/* ---- a process's end ---- */

struct end *shm_open_end(struct shm *s, int rank)
{
    struct end *e = xcalloc(1, sizeof(*e));

    *e = (struct end){ .shm = s, .rank = rank, .nranks = s->nranks };
    return e;
}

void shm_close_end(struct end *e)
{
    while (e->parcels) {
        struct parcel *p = e->parcels;

        e->parcels = p->next;
        free(p);
    }
    free(e);
}
