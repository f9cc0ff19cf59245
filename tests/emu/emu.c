/* emu - CUDA kernels run on the CPU: fibers, barriers and warps (emu.h) */
#define _GNU_SOURCE
#include "tests/emu/emu.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#ifdef EMU_TSAN
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void *__tsan_get_current_fiber(void);
void __tsan_acquire(void *at);
void __tsan_release(void *at);
enum { REUSE = false }; /* one thread's accesses would seem to be before another's */
#else
enum { REUSE = true };
#endif
#ifdef __SANITIZE_ADDRESS__
void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *save, const void **bottom, size_t *size);
#endif

enum { STACK = 1 << 17, COPY = 16, THREADS = 1024, SHARES = 16, COPIES = 64 };
enum waiting { NOT, BARRIER, WARP, OTHERS };

struct fiber {
    ucontext_t context;
    void *sp; /* where it goes on, by our own switch */
    char *stack;
    void *tsan;
    int thread; /* that it runs, or -1 */
};

struct thread {
    struct emu_thread t;
    struct fiber *fiber;
    bool done;
    enum waiting wait;
    unsigned generation;
    const char *where;
    int ncopies; /* that it has started and not waited for */
    bool waited; /* for kernels before its own */
};

/* Lanes that meet bring something each, and take when all have: by then some may have
 * arrived at the next meeting, but not at the one after it. */
struct meeting {
    unsigned arrived, left, mask;
    struct emu_box box[32];
    const char *where;
};

struct warp {
    struct meeting meeting[2];
    unsigned held;       /* meetings that all have arrived at; the next one is open */
    unsigned generation; /* of what lanes wait for */
};

struct emu_thread *emu_now;
struct emu_dim emu_block, emu_block_size, emu_grid;

static struct thread thread[THREADS];
static struct {
    void *to;
    const void *from;
} copy[THREADS][COPIES];
static struct warp warp[THREADS / 32];
static struct fiber fiber[THREADS];
static int nfibers; /* that have a stack */
static int idle[THREADS], nidle;
static unsigned nthreads, barrier_generation, arrived, alive;
static unsigned unready; /* threads that have not called emu_others_ended */
void (*emu_shut)(bool shut);
static struct thread *now;
static struct fiber scheduler;
static void (*body)(void *);
static void *body_arg;
static const char *kernel_name;
static unsigned long blocks;
static struct {
    const void *key;
    void *memory;
} share[SHARES];
static int nshares;
static struct emu_how launch;
#ifdef EMU_TSAN
static char block_token, barrier_token[2];
#endif

static __attribute__((noreturn)) void die(const char *what, const struct thread *t,
                                          const char *where)
{
    fprintf(stderr, "emu: %s: block (%u,%u,%u) thread %u: %s at %s\n", kernel_name,
            emu_block.x, emu_block.y, emu_block.z, t->t.index.x, what, where);
    _Exit(99);
}

/* ---- switching ---- */

#if defined(__x86_64__) && !defined(EMU_TSAN) && !defined(__CET__)
#define OWN_SWITCH 1
void emu_switch(void **save, void *to);
__asm__(".globl emu_switch\n"
        ".type emu_switch, @function\n"
        "emu_switch:\n"
        " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
        ".size emu_switch, .-emu_switch\n");
#else
#define OWN_SWITCH 0
#endif

#ifdef __SANITIZE_ADDRESS__
static const void *scheduler_stack;
static size_t scheduler_size;
#endif

static void switch_to(struct fiber *from, struct fiber *to)
{
#ifdef __SANITIZE_ADDRESS__
    void *fake;

    if (to == &scheduler)
        __sanitizer_start_switch_fiber(&fake, scheduler_stack, scheduler_size);
    else
        __sanitizer_start_switch_fiber(&fake, to->stack, STACK);
#endif
#ifdef EMU_TSAN
    __tsan_switch_to_fiber(to->tsan, 1);
#endif
#if OWN_SWITCH
    emu_switch(&from->sp, to->sp);
#else
    swapcontext(&from->context, &to->context);
#endif
#ifdef __SANITIZE_ADDRESS__
    if (from == &scheduler)
        __sanitizer_finish_switch_fiber(fake, NULL, NULL);
    else
        __sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_size);
#endif
}

static void pause_thread(struct thread *t)
{
    switch_to(t->fiber, &scheduler);
}

/* A fiber runs one thread after another. */
static void fiber_main(void)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, &scheduler_stack, &scheduler_size);
#endif
    for (;;) {
        struct thread *t = now;

#ifdef EMU_TSAN
        __tsan_acquire(&block_token);
#endif
        body(body_arg);
        if (t->ncopies)
            die("copies that the thread never waits for", t, "its end");
#ifdef EMU_TSAN
        __tsan_release(&block_token);
#endif
        if (launch.early && !t->waited)
            die("a thread of an early kernel does not call others_ended", t, "its end");
        t->done = true;
        alive--;
        idle[nidle++] = (int)(t->fiber - fiber);
        pause_thread(t);
    }
}

/* The tops of stacks lie on different lines of a page: at one offset they would all
 * fall into the same few sets of a cache, and each switch would wait for memory. */
static size_t top_offset(const struct fiber *f)
{
    return (size_t)(f - fiber) % 48 * 64;
}

static void start_fiber(struct fiber *f)
{
    if (!f->stack) {
        f->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (f->stack == MAP_FAILED)
            abort();
    }
#if OWN_SWITCH
    {
        void **top = (void **)(void *)(f->stack + STACK - 64 - top_offset(f));

        top[0] = (void *)(uintptr_t)fiber_main;
        f->sp = top - 6;
    }
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK - top_offset(f);
    makecontext(&f->context, fiber_main, 0);
#endif
#ifdef EMU_TSAN
    f->tsan = __tsan_create_fiber(0);
#endif
}

static struct fiber *take_fiber(void)
{
    struct fiber *f;

    if (nidle && REUSE)
        return &fiber[idle[--nidle]];
    f = &fiber[nfibers++];
    start_fiber(f);
    return f;
}

/* ---- what threads do together ---- */

static void copy_bytes(void *to, const void *from, size_t n)
{
#ifndef EMU_TSAN /* which need not see each byte */
    if (n == 4) {
        memcpy(to, from, 4);
        return;
    }
    if (n == COPY) {
        memcpy(to, from, COPY);
        return;
    }
    if (n == sizeof(struct emu_box)) {
        memcpy(to, from, sizeof(struct emu_box));
        return;
    }
#endif
    for (size_t i = 0; i < n; i++)
        ((volatile char *)to)[i] = ((const volatile char *)from)[i];
}

int emu_is_without(const char *where)
{
    static const char *without = "";
    size_t n, end;

    if (without && !*without)
        without = getenv("EMU_WITHOUT");
    if (!without)
        return 0;
    n = strlen(without); /* WHERE may begin with the directory of the sources */
    end = strlen(where);
    return n && end >= n && !strcmp(where + end - n, without) &&
           (end == n || where[end - n - 1] == '/');
}

void emu_barrier(const char *where)
{
    struct thread *t = now;
    unsigned generation = barrier_generation;

    if (emu_is_without(where))
        return;

#ifdef EMU_TSAN
    __tsan_release(&barrier_token[generation & 1]);
#endif
    t->where = where;
    if (++arrived == nthreads) {
        arrived = 0;
        barrier_generation++;
    } else {
        t->wait = BARRIER;
        t->generation = generation;
        pause_thread(t);
    }
#ifdef EMU_TSAN
    __tsan_acquire(&barrier_token[generation & 1]);
#endif
}

static void wait_in_warp(struct thread *t, const struct warp *w, const char *where)
{
    t->wait = WARP;
    t->generation = w->generation;
    t->where = where;
    pause_thread(t);
}

const struct emu_box *emu_meet(unsigned mask, const void *mine, size_t size,
                               unsigned *meeting, const char *where)
{
    struct thread *t = now;
    struct warp *w = &warp[t->t.warp];
    struct meeting *m;
    unsigned number;

    if (!(mask >> t->t.lane & 1))
        die("the lane is not in the mask", t, where);
    while ((m = &w->meeting[w->held % 2])->left) /* some have yet to take */
        wait_in_warp(t, w, where);
    if (m->arrived && (m->mask != mask || m->where != where))
        die("lanes of a warp meet at different places", t, where);
    number = w->held;
    m->mask = mask;
    m->where = where;
    copy_bytes(&m->box[t->t.lane], mine, size);
    m->arrived |= 1u << t->t.lane;
#ifdef EMU_TSAN
    __tsan_release(m);
#endif
    t->where = where;
    if (m->arrived == mask) {
        w->held++;
        w->generation++;
        m->left = mask;
        m->arrived = 0;
    }
    while (w->held == number)
        wait_in_warp(t, w, where);
#ifdef EMU_TSAN
    __tsan_acquire(m);
#endif
    *meeting = number;
    return m->box;
}

void emu_part(unsigned meeting)
{
    struct warp *w = &warp[now->t.warp];
    struct meeting *m = &w->meeting[meeting % 2];

    m->left &= ~(1u << now->t.lane);
    if (!m->left)
        w->generation++;
}

void emu_warp(unsigned mask, const void *mine, size_t size, unsigned from, void *out,
              const char *where)
{
    static const char poison[16] = { -1, -1, -1, -1, -1, -1, -1, -1,
                                     -1, -1, -1, -1, -1, -1, -1, -1 };
    unsigned meeting;
    const struct emu_box *box = emu_meet(mask, mine, size, &meeting, where);

    copy_bytes(out, mask >> from & 1 ? (const void *)&box[from] : poison, size);
    emu_part(meeting);
}

void *emu_shared(const void *key, size_t size)
{
    for (int i = 0; i < nshares; i++)
        if (share[i].key == key) {
#ifdef EMU_TSAN
            __tsan_acquire(&share[i]);
#endif
            return share[i].memory;
        }
    if (nshares == SHARES || posix_memalign(&share[nshares].memory, 16, size + !size))
        abort();
    for (size_t i = 0; i < size; i++)
        ((volatile char *)share[nshares].memory)[i] = (char)0xff;
    share[nshares].key = key;
#ifdef EMU_TSAN
    __tsan_release(&share[nshares]);
#endif
    return share[nshares++].memory;
}

void *emu_shared_at_launch(void)
{
    return emu_shared(&launch, launch.shared);
}

void emu_copy_start(void *to, const void *from)
{
    struct thread *t = now;
    int i = t->ncopies++;

    if (i == COPIES)
        die("more copies than the emulation remembers", t, "copy_start");
    if ((uintptr_t)to % COPY || (uintptr_t)from % COPY)
        die("a copy that is not aligned", t, "copy_start");
    memset(to, 0xff, COPY);
    copy[t - thread][i].to = to;
    copy[t - thread][i].from = from;
}

void emu_copies_wait(void)
{
    struct thread *t = now;

    for (int i = 0; i < t->ncopies; i++)
        copy_bytes(copy[t - thread][i].to, copy[t - thread][i].from, COPY);
    t->ncopies = 0;
}

void emu_others_ended(void)
{
    struct thread *t = now;

    if (t->waited)
        return;
    t->waited = true;
    if (!launch.early || !emu_shut)
        return;
    if (--unready == 0) {
        emu_shut(false);
        return;
    }
    t->wait = OTHERS;
    t->where = "others_ended";
    pause_thread(t);
}

/* ---- blocks ---- */

static unsigned random_below(unsigned n)
{
    static unsigned state = 1;

    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

static bool is_waiting(const struct thread *t)
{
    return (t->wait == OTHERS && unready) ||
           (t->wait == BARRIER && t->generation == barrier_generation) ||
           (t->wait == WARP && t->generation == warp[t->t.warp].generation);
}

/* Each thread that can go on goes on once; how many did. */
static unsigned run_threads(unsigned order, unsigned *permutation)
{
    unsigned ran = 0;

    for (unsigned i = nthreads; order > 3 && i > 1; i--) {
        unsigned k = random_below(i), swap = permutation[i - 1];

        permutation[i - 1] = permutation[k];
        permutation[k] = swap;
    }
    for (unsigned k = 0; k < nthreads; k++) {
        struct thread *t =
            &thread[order % 2 && order < 4 ? nthreads - 1 - k : permutation[k]];

        if (t->done || is_waiting(t))
            continue;
        t->wait = NOT;
        if (!t->fiber)
            t->fiber = take_fiber();
        now = t;
        emu_now = &t->t;
        ran++;
        switch_to(&scheduler, t->fiber);
        if (order == 2 || order == 3) /* its warp goes as far as it can */
            k = order == 2 ? t->t.warp * 32 - 1 : nthreads - t->t.warp * 32 - 33;
    }
    return ran;
}

static void run_block(unsigned order)
{
    static unsigned permutation[THREADS];

    memset(warp, 0, sizeof(warp));
    arrived = 0;
    alive = nthreads;
    for (unsigned i = 0; i < nthreads; i++) {
        thread[i] = (struct thread){
            .t = { .index = { i % emu_block_size.x,
                              i / emu_block_size.x % emu_block_size.y,
                              i / emu_block_size.x / emu_block_size.y },
                   .lane = i % 32,
                   .warp = i / 32 }
        };
        permutation[i] = i;
    }
#ifdef EMU_TSAN
    __tsan_release(&block_token);
#endif
    unready = nthreads;
    if (launch.early && emu_shut)
        emu_shut(true);
    while (alive) {
        if (run_threads(order, permutation))
            continue;
        for (unsigned i = 0; i < nthreads; i++)
            if (!thread[i].done)
                die(thread[i].wait == BARRIER
                        ? "a barrier that other threads never reach"
                        : "a warp operation that other lanes never reach",
                    &thread[i], thread[i].where);
    }
#ifdef EMU_TSAN
    for (int i = 0; i < nfibers; i++)
        __tsan_destroy_fiber(fiber[i].tsan);
    nfibers = 0;
    nidle = 0;
    __tsan_acquire(&block_token);
#endif
    for (int i = 0; i < nshares; i++)
        free(share[i].memory);
    nshares = 0;
    blocks++;
}

void emu_run(const char *kernel, struct emu_dim grid, struct emu_dim size,
             struct emu_how how, void (*run)(void *), void *closure)
{
    const char *text = getenv("EMU_ORDER");
    unsigned order = text ? (unsigned)strtoul(text, NULL, 10) : 0;

    nthreads = size.x * size.y * size.z;
    kernel_name = kernel;
    launch = how;
    emu_block_size = size;
    emu_grid = grid;
    body = run;
    body_arg = closure;
    if (!nthreads || nthreads > THREADS || !grid.x || !grid.y || !grid.z) {
        fprintf(stderr, "emu: %s: a launch of %u x %u x %u blocks of %u threads\n",
                kernel, grid.x, grid.y, grid.z, nthreads);
        _Exit(99);
    }
#ifdef EMU_TSAN
    scheduler.tsan = __tsan_get_current_fiber();
#endif
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                emu_block = (struct emu_dim){ x, y, z };
                run_block(order);
            }
}

unsigned long emu_blocks(void)
{
    return blocks;
}
