/* team - the threads of one rank, and how tasks are distributed to them
 *
 * Each thread has a range of consecutive tasks, so that it reads memory in order, and
 * takes tasks from the others' ranges when its own is empty.  A thread that the system
 * does not schedule takes none and nobody waits for it, so on a busy machine a team is
 * never slower than its caller alone.  A waiting thread spins, then yields, then
 * sleeps. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/base/spin.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/product/autotune.h"

#ifdef _OPENMP
#include <omp.h>
#endif

enum {
    LOOKS = 4000, /* spins before yielding */
    YIELDS = 20,  /* yields before sleeping */
};

/* The tasks of one thread that nobody has taken yet. */
struct queue {
    _Alignas(128) _Atomic size_t next;
    size_t end;
};

/* A job is open while STATE is odd.  A thread that joins a job increments ACTIVE and
 * reads STATE again; the caller closes the job and then waits until ACTIVE is 0, so a
 * job's fields are never written while they are read. */
struct device {
    int n;             /* threads, including the caller */
    pthread_t *helper; /* [n - 1] */
    cpu_task *run;
    void *arg;
    struct queue *queue; /* [n] */
    char *room;          /* of cpu_take: */
    uint64_t room_bytes, taken;
    struct apart *apart; /* what was taken when it was full, the latest first */
    uint64_t grown;      /* how often that was, and how often it has grown */
    struct autotune tuning[STOREDS][ROWS_READ];
    _Alignas(128) _Atomic uint32_t state;
    _Atomic uint32_t sleepers;
    _Atomic int quit;
    _Alignas(128) _Atomic uint32_t active;
};

/* Memory of cpu_take that is not in the room; what is taken follows. */
struct apart {
    _Alignas(128) struct apart *next;
};

struct helper {
    struct device *d;
    int thread;
};

/* Nested products must not start threads of their own. */
static void alone(void)
{
#ifdef _OPENMP
    omp_set_num_threads(1);
#endif
}

struct change {
    _Atomic uint32_t *word;
    uint32_t seen;
};

static bool has_changed(const void *arg)
{
    const struct change *c = arg;

    return atomic_load_explicit(c->word, memory_order_acquire) != c->seen;
}

/* Waits until *word differs from SEEN. */
static void wait_while(_Atomic uint32_t *word, uint32_t seen,
                       _Atomic uint32_t *sleepers)
{
    const struct change change = { word, seen };

    if (spin_until(LOOKS, YIELDS, has_changed, &change))
        return;
    while (atomic_load(word) == seen) {
        if (!sleepers) {
            sched_yield();
            continue;
        }
        atomic_fetch_add(sleepers, 1);
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
        atomic_fetch_sub(sleepers, 1);
    }
}

static void take_tasks(struct device *d, int thread)
{
    for (int i = 0; i < d->n; i++) {
        struct queue *r = &d->queue[(thread + i) % d->n];

        /* looks first, so that empty ranges are not written */
        while (atomic_load_explicit(&r->next, memory_order_relaxed) < r->end) {
            size_t task = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);

            if (task < r->end)
                d->run(d->arg, task, thread);
        }
    }
}

static void *help(void *arg)
{
    struct helper *h = arg;
    struct device *d = h->d;
    int thread = h->thread;
    uint32_t seen = 0;
    char room[1 << 16];
    const stack_t stack = { .ss_sp = room, .ss_size = sizeof(room) };
    stack_t old;

    free(h);
    sigaltstack(&stack, &old); /* oneDNN points the stack pointer elsewhere */
    alone();
    for (;;) {
        wait_while(&d->state, seen, &d->sleepers);
        /* read before quit, which is set before the last change of state */
        seen = atomic_load(&d->state);
        if (atomic_load(&d->quit))
            break;
        if (!(seen & 1))
            continue;
        atomic_fetch_add(&d->active, 1);
        if (atomic_load(&d->state) == seen)
            take_tasks(d, thread);
        atomic_fetch_sub(&d->active, 1);
    }
    sigaltstack(&old, NULL);
    return NULL;
}

static void set_state(struct device *d, uint32_t state)
{
    atomic_store(&d->state, state);
    if ((state & 1) && atomic_load(&d->sleepers))
        syscall(SYS_futex, &d->state, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void cpu_parallel(struct device *d, size_t tasks, cpu_task *run, void *arg)
{
    uint32_t active, state;

    if (d->n == 1 || tasks < 2) {
        for (size_t i = 0; i < tasks; i++)
            run(arg, i, 0);
        return;
    }
    d->run = run;
    d->arg = arg;
    state = atomic_load(&d->state);
    for (size_t i = 0, n = (size_t)d->n; i < n; i++) {
        atomic_store_explicit(&d->queue[i].next, i * (tasks / n) + i * (tasks % n) / n,
                              memory_order_relaxed);
        d->queue[i].end = (i + 1) * (tasks / n) + (i + 1) * (tasks % n) / n;
    }
    set_state(d, state + 1);
    take_tasks(d, 0);
    set_state(d, state + 2);
    while ((active = atomic_load(&d->active)))
        wait_while(&d->active, active, NULL);
}

int cpu_make_room(struct device *d, uint64_t bytes, struct err *err)
{
    if (bytes <= d->room_bytes)
        return 0;
    free(d->room);
    d->room_bytes = 0;
    d->room = mem_alloc(bytes, "the kernels' room", err);
    if (!d->room)
        return -1;
    d->room_bytes = bytes;
    return 0;
}

uint64_t cpu_room_bytes(const struct device *d)
{
    return d->room_bytes;
}

uint64_t cpu_grown(const struct device *d)
{
    return d->grown;
}

/* Takes BYTES from the heap. */
static void *take_apart(struct device *d, uint64_t bytes, const char *what,
                        struct err *err)
{
    struct apart *a;

    d->grown++;
    if (!mem_add(&bytes, bytes, sizeof(*a)))
        bytes = UINT64_MAX; /* which is refused */
    a = mem_alloc(bytes, what, err);
    if (!a)
        return NULL;
    a->next = d->apart;
    d->apart = a;
    return a + 1;
}

void *cpu_take(struct device *d, uint64_t bytes, const char *what, struct err *err)
{
    char *at = d->room + d->taken;

    if (bytes > d->room_bytes || cpu_whole(bytes) > d->room_bytes - d->taken)
        return take_apart(d, bytes, what, err);
    d->taken += cpu_whole(bytes);
    return at;
}

void cpu_give(struct device *d, void *p)
{
    struct apart **a = &d->apart, *its = p;

    if (!p)
        return;
    if (d->room && (char *)p >= d->room && (char *)p < d->room + d->room_bytes) {
        uint64_t at = (uint64_t)((char *)p - d->room);

        d->taken = at < d->taken ? at : d->taken;
        return;
    }
    while (*a != its - 1)
        a = &(*a)->next;
    *a = its[-1].next;
    free(its - 1);
}

struct autotune *cpu_autotune(struct device *d, int kind, int rows)
{
    return &d->tuning[kind][rows];
}

int cpu_threads(const struct device *d)
{
    return d->n;
}

/* Starts a helper.  Blocks all signals except those that a thread gets for what it does
 * itself: SIGBUS when it reads a mapped file that another program has truncated,
 * SIGSEGV when oneDNN gets no memory (cpu_is_dnnl). */
static int start(pthread_t *thread, struct helper *h)
{
    sigset_t all, old;
    int ret;

    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* the kernel kills a thread that blocks them */
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    ret = pthread_create(thread, NULL, help, h);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ret;
}

int cpu_open(struct device **out, int threads, int local, struct err *err)
{
    struct device *d = mem_alloc(sizeof(*d), "the threads", err);

    (void)local;
    if (!d)
        return -1;
    *d = (struct device){ .n = 1 };
    d->helper = xcalloc((size_t)threads, sizeof(*d->helper));
    d->queue = mem_alloc((size_t)threads * sizeof(*d->queue), "the threads", err);
    if (!d->queue) {
        cpu_close(d);
        return -1;
    }
    alone();
    for (; d->n < threads; d->n++) {
        struct helper *h = xmalloc(sizeof(*h));

        *h = (struct helper){ d, d->n };
        if (start(&d->helper[d->n - 1], h) != 0) {
            free(h);
            cpu_close(d);
            return err_set(err, ERR_SYSTEM, "%d threads cannot be started", threads);
        }
    }
    *out = d;
    return 0;
}

void cpu_close(struct device *d)
{
    if (!d)
        return;
    atomic_store(&d->quit, 1);
    atomic_fetch_add(&d->state, 2);
    syscall(SYS_futex, &d->state, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    for (int i = 1; i < d->n; i++)
        pthread_join(d->helper[i - 1], NULL);
    free(d->helper);
    free(d->queue);
    free(d->room);
    free(d);
}
