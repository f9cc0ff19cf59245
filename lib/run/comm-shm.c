/* comm-shm - ranks on one machine, through shared memory
 *
 * Each rank has two slots and a counter of the operations it has posted.  An operation
 * of at most a slot's size is: copy into the own slot, raise the own counter, wait
 * until all counters have come as far, read all slots.  The two slots alternate: who
 * posts operation n+2 into the slot of n has waited for all to post n+1, hence all have
 * read n.  Larger operations are cut into slots. */
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
#include "lib/run/comm.h"

enum {
    SLOT = 1 << 18,      /* bytes */
    SPINS = 2000,        /* looks before giving up the processor */
    YIELDS = 50,         /* turns given to others before sleeping */
    SLEEP_NS = 50000000, /* a sleeper looks for an abort this often */
};

/* One rank's counter, on a cache line of its own. */
struct post {
    _Alignas(128) _Atomic uint32_t count;
    _Atomic uint32_t sleepers;
};

struct shm {
    _Alignas(128) _Atomic int aborted;
    int nranks;
    size_t bytes; /* of the whole mapping */
    size_t slots; /* offset of the first slot */
    struct post post[];
};

struct shm_comm {
    struct comm comm;
    struct shm *shm;
    uint32_t done; /* operations posted */
};

int shm_open_group(struct shm **out, int nranks, struct err *err)
{
    size_t head = sizeof(struct shm) + (size_t)nranks * sizeof(struct post);
    size_t slots = (head + 4095) / 4096 * 4096;
    size_t bytes = slots + (size_t)nranks * 2 * SLOT;
    struct shm *s =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (s == MAP_FAILED)
        return err_errno(err, "shared memory for %d ranks", nranks);
    s->nranks = nranks;
    s->bytes = bytes;
    s->slots = slots;
    *out = s;
    return 0;
}

void shm_close_group(struct shm *s)
{
    if (s)
        munmap(s, s->bytes);
}

static void wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void shm_abort(struct shm *s)
{
    atomic_store(&s->aborted, 1);
    for (int r = 0; r < s->nranks; r++)
        wake(&s->post[r].count);
}

static char *slot(const struct shm_comm *c, int rank)
{
    return (char *)c->shm + c->shm->slots + ((size_t)rank * 2 + c->done % 2) * SLOT;
}

static bool has_come(const struct post *p, uint32_t count)
{
    return (int32_t)(atomic_load_explicit(&p->count, memory_order_acquire) - count) >=
           0;
}

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Wait until rank R has posted COUNT operations. */
static int wait_for(struct shm_comm *c, int r, uint32_t count, struct err *err)
{
    struct post *p = &c->shm->post[r];
    struct timespec nap = { .tv_nsec = SLEEP_NS };

    for (int i = 0; i < SPINS; i++) {
        if (has_come(p, count))
            return 0;
        pause_briefly();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (has_come(p, count))
            return 0;
        sched_yield();
    }
    while (!has_come(p, count)) {
        uint32_t seen = atomic_load(&p->count);

        if (atomic_load(&c->shm->aborted))
            return err_set(err, ERR_SYSTEM, "rank %d: another rank is gone",
                           c->comm.rank);
        if ((int32_t)(seen - count) >= 0)
            break;
        atomic_fetch_add(&p->sleepers, 1);
        syscall(SYS_futex, &p->count, FUTEX_WAIT, seen, &nap, NULL, 0);
        atomic_fetch_sub(&p->sleepers, 1);
    }
    return 0;
}

/* Post what the own slot holds and wait for all; the slots may be read until the next
 * post. */
static int exchange(struct shm_comm *c, struct err *err)
{
    struct post *mine = &c->shm->post[c->comm.rank];
    uint32_t count = c->done + 1;

    atomic_store(&mine->count, count);
    if (atomic_load(&mine->sleepers))
        wake(&mine->count);
    for (int r = 0; r < c->comm.size; r++)
        if (r != c->comm.rank && wait_for(c, r, count, err) < 0)
            return -1;
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

static void shm_comm_close(struct comm *c)
{
    free(c);
}

static const struct comm_ops comm_shm = {
    .name = "shm",
    .sum_f32 = shm_sum_f32,
    .sum_f64 = shm_sum_f64,
    .gather = shm_gather,
    .broadcast = shm_broadcast,
    .close = shm_comm_close,
};

struct comm *comm_shm_open(struct shm *s, int rank)
{
    struct shm_comm *c = xcalloc(1, sizeof(*c));

    c->comm = (struct comm){ .ops = &comm_shm, .rank = rank, .size = s->nranks };
    c->shm = s;
    return &c->comm;
}
