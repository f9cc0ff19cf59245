/* cudart - a CUDA runtime in the host's memory, for tests (cudart.h) */
#define _GNU_SOURCE
#include "tests/fake/cudart.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "tests/emu/emu.h"

enum { PAGE = 4096, ALIGN = 256 };

struct work {
    void (*run)(void *);
    const struct fake_job *how; /* where it may have to be tried again: with JOB */
    void *job;
    struct work *next;
    size_t size;
    max_align_t arg[];
};

struct queue {
    struct work *first, **last;
};

struct CUgraph_st {
    struct queue queue;
};

struct CUgraphExec_st {
    struct queue queue;
};

struct CUstream_st {
    struct queue queue;
    struct CUstream_st *next;
    cudaGraph_t capture; /* where work goes instead; or NULL */
    bool invalid;        /* the capture has met what cannot be captured */
};

struct CUevent_st {
    cudaStream_t stream;
};

/* Memory of a device, or page-locked. */
struct memory {
    char *start; /* of its pages */
    char *data;  /* right before their end */
    size_t size, room;
    bool host;
    bool open;   /* something that runs has touched it */
    bool weight; /* filled by the host before a kernel ran, and by nobody since */
    struct memory *next;
};

static struct memory *memory;
static struct CUstream_st *streams;
static size_t used, live; /* bytes; things that are not released */
static size_t times;      /* that device memory was allocated */
static bool ran;          /* a kernel, since device memory was allocated first */
static long calls, products, exchanges, graphs;
static int current = -1; /* device */
static pid_t process;    /* that uses it */
static cudaError_t last;

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

/* Is what the environment asks for meant for this process? */
static bool is_meant(void)
{
    return number("FAKE_ON", current) == current;
}

static bool waits[FAKE_POLLS];

int fake_poll_fails(enum fake_poll which)
{
    bool other = waits[!which];
    int fails = waits[which] ? 0 : fake_fails();

    waits[!which] |= other;
    return fails;
}

void fake_poll_waits(enum fake_poll which)
{
    waits[which] = true;
}

int fake_fails(void)
{
    memset(waits, 0, sizeof(waits));
    calls++;
    if (calls == number("FAKE_DIE", 0) && is_meant())
        raise(SIGKILL);
    while (calls == number("FAKE_HANG", 0) && is_meant())
        pause();
    return calls == number("FAKE_FAIL", 0) && is_meant();
}

int fake_device(void)
{
    return current;
}

void fake_count_exchange(void)
{
    exchanges++;
}

void fake_live(int more)
{
    live += (size_t)more;
}

void fake_count_product(void)
{
    products++;
}

void fake_forget(void)
{
    process = 0;
}

/* A call begins: may it go on? */
static bool fails_by(int (*injects)(void), cudaError_t *e, cudaError_t injected)
{
    *e = cudaSuccess;
    if (!number("FAKE_DRIVER", 13000) || number("FAKE_DRIVER", 13000) < 13000)
        *e = cudaErrorInsufficientDriver;
    else if (!number("FAKE_GPUS", 2))
        *e = cudaErrorNoDevice;
    else if (process && process != getpid())
        *e = cudaErrorInitializationError;
    else if (injects())
        *e = injected;
    if (*e == cudaSuccess)
        process = getpid();
    else
        last = *e;
    return *e != cudaSuccess;
}

static bool fails(cudaError_t *e, cudaError_t injected)
{
    return fails_by(fake_fails, e, injected);
}

/* What may not be while a stream is captured: then that fails, too. */
static bool breaks_capture(cudaError_t *e)
{
    bool some = false;

    for (cudaStream_t s = streams; s; s = s->next)
        if (s->capture)
            some = s->invalid = true;
    if (some)
        *e = last = cudaErrorStreamCaptureUnsupported;
    return some;
}

static int stream_poll_fails(void)
{
    return fake_poll_fails(FAKE_POLL_STREAM);
}

/* ---- memory ---- */

/* What runs on a device opens the memory that it touches, by a fault; to open all of it
 * for each kernel took most of a test's time. */
static bool opening;
static struct sigaction before;

static struct memory *find(const void *p)
{
    for (struct memory *m = memory; m; m = m->next)
        if ((const char *)p >= m->start && (const char *)p < m->start + m->room)
            return m;
    return NULL;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    struct memory *m = opening ? find(info->si_addr) : NULL;

    (void)context;
    if (!m || m->host || m->open ||
        mprotect(m->start, m->room, PROT_READ | PROT_WRITE) < 0)
        sigaction(sig, &before, NULL); /* where the fault comes again */
    else
        m->open = true;
}

static void open_by_faults(void)
{
    struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
    static bool installed;

    if (!installed && sigaction(SIGSEGV, &a, &before) < 0)
        abort();
    installed = true;
    opening = true;
}

static void close_all(void)
{
    opening = false;
    for (struct memory *m = memory; m; m = m->next)
        if (m->open) {
            if (mprotect(m->start, m->room, PROT_NONE) < 0)
                abort();
            m->open = false;
        }
}

/* FAKE_EARLY: all but weights can be read and written only if not SHUT. */
static void shut_all(bool shut)
{
    for (struct memory *m = memory; m; m = m->next) {
        int left = m->weight ? PROT_READ : PROT_NONE;

        if (!m->host &&
            mprotect(m->start, m->room, shut ? left : PROT_READ | PROT_WRITE) < 0)
            abort();
        m->open = !m->host;
    }
}

static cudaError_t add_memory(void **p, size_t size, bool host)
{
    struct memory *m;
    cudaError_t e;

    if (fails(&e, cudaErrorMemoryAllocation) || breaks_capture(&e))
        return e;
    if (!host && size > (size_t)number("FAKE_MEMORY", 1L << 30) - used)
        return last = cudaErrorMemoryAllocation;
    m = calloc(1, sizeof(*m));
    m->size = size;
    m->host = host;
    m->room = (size + ALIGN + PAGE - 1) / PAGE * PAGE;
    m->start =
        mmap(NULL, m->room + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->start == MAP_FAILED || mprotect(m->start, m->room, PROT_READ | PROT_WRITE))
        abort();
    memset(m->start, 0xff, m->room); /* NaN */
    m->data = m->start + (m->room - size) / ALIGN * ALIGN;
    if (!host && mprotect(m->start, m->room, PROT_NONE))
        abort();
    m->next = memory;
    memory = m;
    ran = ran && (host || used);
    used += host ? 0 : size;
    times += !host;
    live++;
    *p = m->data;
    return cudaSuccess;
}

void fake_memory(size_t *bytes, size_t *so_often)
{
    *bytes = used;
    *so_often = times;
}

cudaError_t cudaMalloc(void **p, size_t size)
{
    return add_memory(p, size, false);
}

cudaError_t cudaMallocHost(void **p, size_t size)
{
    return add_memory(p, size, true);
}

/* ---- streams ---- */

static struct work *add_work(struct queue *q, void (*run)(void *), const void *arg,
                             size_t size)
{
    struct work *w = malloc(sizeof(*w) + size);

    *w = (struct work){ .run = run, .size = size };
    if (size)
        memcpy(w->arg, arg, size);
    *q->last = w;
    q->last = &w->next;
    return w;
}

static void add_job(struct queue *q, const struct fake_job *how, void *job)
{
    struct work *w = add_work(q, NULL, NULL, 0);

    w->how = how;
    w->job = job;
}

/* Adds copies of what is in FROM to Q, of a graph or of a stream. */
static void add_copies(struct queue *q, const struct queue *from, bool graph)
{
    for (const struct work *w = from->first; w; w = w->next)
        if (w->how)
            add_job(q, w->how, w->how->copy(w->job, graph));
        else
            add_work(q, w->run, w->arg, w->size);
}

static void clear_queue(struct queue *q)
{
    while (q->first) {
        struct work *w = q->first;

        q->first = w->next;
        if (w->how)
            w->how->drop(w->job);
        free(w);
    }
    q->last = &q->first;
}

/* Where what is put into S goes. */
static struct queue *queue_of(cudaStream_t s)
{
    return s->capture ? &s->capture->queue : &s->queue;
}

void fake_enqueue(void *stream, void (*run)(void *), const void *arg, size_t size)
{
    add_work(queue_of(stream), run, arg, size);
}

void fake_enqueue_job(void *stream, const struct fake_job *how, void *job)
{
    add_job(queue_of(stream), how, job);
}

bool fake_captures(void *stream)
{
    const struct CUstream_st *s = stream;

    return s->capture != NULL;
}

/* Run what is in S, as far as other ranks let it; is all of it done? */
static bool advance(cudaStream_t s)
{
    struct queue *q = &s->queue;

    if (!q->first)
        return true;
    open_by_faults();
    while (q->first) {
        struct work *w = q->first;

        if (w->how && !w->how->try(w->job))
            break;
        if (w->run)
            w->run(w->arg);
        q->first = w->next;
        free(w);
    }
    close_all();
    if (!q->first)
        q->last = &q->first;
    return !q->first;
}

bool fake_advance(void *stream)
{
    return advance(stream);
}

/* As CUDA does: for as long as it takes. */
static void drain(cudaStream_t s)
{
    while (!advance(s))
        sched_yield();
}

static void drain_all(void)
{
    for (cudaStream_t s = streams; s; s = s->next)
        drain(s);
}

static cudaError_t remove_memory(void *p)
{
    cudaError_t e;

    if (!p)
        return cudaSuccess;
    if ((fails(&e, cudaErrorLaunchFailure) && e != cudaErrorLaunchFailure) ||
        breaks_capture(&e))
        return e;
    drain_all();
    for (struct memory **at = &memory; *at; at = &(*at)->next)
        if ((*at)->data == p) {
            struct memory *m = *at;

            *at = m->next;
            used -= m->host ? 0 : m->size;
            live--;
            munmap(m->start, m->room + PAGE);
            free(m);
            return e;
        }
    return last = cudaErrorInvalidValue;
}

cudaError_t cudaFree(void *p)
{
    return remove_memory(p);
}

cudaError_t cudaFreeHost(void *p)
{
    return remove_memory(p);
}

struct copy {
    void *to;
    const void *from;
    void *own; /* or NULL */
    size_t n;
};

static void run_copy(void *arg)
{
    const struct copy *c = arg;

    memcpy(c->to, c->own ? c->own : c->from, c->n);
    free(c->own);
}

static void check_side(const void *p, size_t n, bool device)
{
    const struct memory *m = find(p);

    if ((m && !m->host) == device && (!m || (const char *)p + n <= m->data + m->size))
        return;
    fprintf(stderr, "fake cudart: a copy of what is not there, or elsewhere\n");
    _exit(99);
}

/* Of memory that is not page-locked CUDA has a copy when it returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n,
                            enum cudaMemcpyKind kind, cudaStream_t s)
{
    const struct memory *m = find(from);
    struct memory *filled = find(to);
    struct copy c = { to, from, NULL, n };
    cudaError_t e;

    if (fails(&e, cudaErrorLaunchFailure) ||
        (kind != cudaMemcpyDeviceToDevice && breaks_capture(&e)))
        return e;
    check_side(to, n, kind != cudaMemcpyDeviceToHost);
    check_side(from, n, kind != cudaMemcpyHostToDevice);
    if (kind == cudaMemcpyHostToDevice && !m && n) {
        c.own = malloc(n);
        memcpy(c.own, from, n);
    }
    if (filled)
        filled->weight = kind == cudaMemcpyHostToDevice && !ran;
    fake_enqueue(s, run_copy, &c, sizeof(c));
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    cudaError_t e;

    (void)flags;
    if (fails(&e, cudaErrorMemoryAllocation))
        return e;
    *s = calloc(1, sizeof(**s));
    (*s)->queue.last = &(*s)->queue.first;
    (*s)->next = streams;
    streams = *s;
    live++;
    return cudaSuccess;
}

/* What the process has used is told when it gives back its last stream. */
static void tell(void)
{
    const char *path = getenv("FAKE_LOG");
    FILE *f = path ? fopen(path, "a") : NULL;

    if (!f)
        return;
    fprintf(f,
            "calls %ld live %zu blocks %lu products %ld exchanges %ld graphs %ld "
            "device %d\n",
            calls, live, emu_blocks(), products, exchanges, graphs, current);
    fclose(f);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    cudaError_t e;

    if (fails(&e, cudaErrorLaunchFailure) && e != cudaErrorLaunchFailure)
        return e;
    drain(s);
    for (cudaStream_t *at = &streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    free(s);
    live--;
    if (!streams)
        tell();
    return e;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    cudaError_t e;

    if (fails(&e, cudaErrorLaunchFailure) || breaks_capture(&e))
        return e;
    drain(s);
    return cudaSuccess;
}

static cudaError_t query(cudaStream_t s)
{
    cudaError_t e;

    if (fails_by(stream_poll_fails, &e, cudaErrorLaunchFailure) || breaks_capture(&e))
        return e;
    if (advance(s))
        return cudaSuccess;
    fake_poll_waits(FAKE_POLL_STREAM);
    return cudaErrorNotReady;
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    return query(s);
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    cudaError_t e;

    (void)flags;
    if (fails(&e, cudaErrorMemoryAllocation))
        return e;
    *event = calloc(1, sizeof(**event));
    live++;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s)
{
    cudaError_t e;

    if (fails(&e, cudaErrorLaunchFailure))
        return e;
    event->stream = s;
    return cudaSuccess;
}

/* That all of the stream is done is more than is asked for, and right. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return event->stream ? query(event->stream) : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t e;

    if (fails(&e, cudaErrorLaunchFailure))
        return e;
    if (event->stream)
        drain(event->stream);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t e;

    if (fails(&e, cudaErrorLaunchFailure) && e != cudaErrorLaunchFailure)
        return e;
    free(event);
    live--;
    return e;
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    cudaError_t e;

    (void)mode;
    if (fails(&e, cudaErrorLaunchFailure))
        return e;
    if ((!number("FAKE_CAPTURE", 1) && is_meant()) || s->capture)
        return last = cudaErrorStreamCaptureUnsupported;
    s->capture = calloc(1, sizeof(*s->capture));
    s->capture->queue.last = &s->capture->queue.first;
    s->invalid = false;
    live++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    cudaError_t e = cudaSuccess;

    *graph = NULL;
    if (!s->capture)
        return last = cudaErrorInvalidValue;
    if (fails(&e, cudaErrorLaunchFailure) || s->invalid) {
        clear_queue(&s->capture->queue);
        free(s->capture);
        live--;
        e = e != cudaSuccess ? e : (last = cudaErrorStreamCaptureInvalidated);
    } else {
        *graph = s->capture;
    }
    s->capture = NULL;
    return e;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags)
{
    cudaError_t e;

    (void)flags;
    if (fails(&e, cudaErrorMemoryAllocation))
        return e;
    *exec = calloc(1, sizeof(**exec));
    (*exec)->queue.last = &(*exec)->queue.first;
    add_copies(&(*exec)->queue, &graph->queue, true);
    live++;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    clear_queue(&graph->queue);
    free(graph);
    live--;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    cudaError_t e;

    if (fails(&e, cudaErrorLaunchFailure))
        return e;
    add_copies(queue_of(s), &exec->queue, false);
    graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    clear_queue(&exec->queue);
    free(exec);
    live--;
    return cudaSuccess;
}

/* ---- launches ---- */

struct launch {
    const char *kernel;
    struct emu_dim grid, block;
    struct emu_how how;
    void (*run)(void *);
    max_align_t closure[256];
};

static unsigned long launches;

unsigned long fake_launches(void)
{
    return launches;
}

static void run_launch(void *arg)
{
    struct launch *l = arg;

    emu_run(l->kernel, l->grid, l->block, l->how, l->run, l->closure);
}

void emu_launch(const char *kernel, void *stream, struct emu_dim grid,
                struct emu_dim block, struct emu_how how, void (*run)(void *),
                const void *closure, size_t size)
{
    struct launch l = { kernel, grid, block, how, run, { { 0 } } };
    cudaError_t e;

    launches++;
    if (fails(&e, cudaErrorLaunchFailure))
        return;
    ran = true;
    emu_shut = number("FAKE_EARLY", 0) ? shut_all : NULL;
    if (size > sizeof(l.closure)) {
        fprintf(stderr, "fake cudart: %s: %zu bytes of arguments\n", kernel, size);
        _exit(99);
    }
    memcpy(l.closure, closure, size);
    fake_enqueue(stream, run_launch, &l, sizeof(l));
}

/* ---- what there is ---- */

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = (int)number("FAKE_DRIVER", 13000);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t e;

    if (fails(&e, cudaErrorInitializationError))
        return e;
    *count = (int)number("FAKE_GPUS", 2);
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t e;

    if (fails(&e, cudaErrorInitializationError))
        return e;
    if (device >= number("FAKE_GPUS", 2))
        return last = cudaErrorInvalidDevice;
    current = device;
    return cudaSuccess;
}

/* Compute capability of DEVICE, times 10. */
static int compute_of(int device)
{
    const char *text = getenv("FAKE_COMPUTE"), *comma;

    for (; text && device > 0 && (comma = strchr(text, ',')); device--)
        text = comma + 1;
    return text && *text ? (int)strtol(text, NULL, 10) : 90;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    cudaError_t e;

    if (fails(&e, cudaErrorInitializationError))
        return e;
    *prop = (struct cudaDeviceProp){
        .name = "Fake GPU",
        .totalGlobalMem = (size_t)number("FAKE_MEMORY", 1L << 30),
        .major = compute_of(device) / 10,
        .minor = compute_of(device) % 10,
        .multiProcessorCount = 4,
    };
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device)
{
    cudaError_t e;

    if (fails(&e, cudaErrorInitializationError))
        return e;
    snprintf(id, (size_t)size, "0000:%02lx:00.0", number("FAKE_BUS", 1) + device);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    cudaError_t e;

    if (fails(&e, cudaErrorInitializationError))
        return e;
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    cudaError_t e;

    if (fails(&e, cudaErrorInitializationError))
        return e;
    *total = (size_t)number("FAKE_MEMORY", 1L << 30);
    *free_bytes = *total - used;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last;

    last = cudaSuccess;
    return e;
}

const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation     ? "cudaErrorMemoryAllocation"
           : e == cudaErrorInsufficientDriver ? "cudaErrorInsufficientDriver"
           : e == cudaErrorNoDevice           ? "cudaErrorNoDevice"
           : e == cudaErrorLaunchFailure      ? "cudaErrorLaunchFailure"
                                              : "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation ? "out of memory"
           : e == cudaErrorInsufficientDriver
               ? "CUDA driver version is insufficient for "
                 "CUDA runtime version"
           : e == cudaErrorNoDevice      ? "no CUDA-capable device is detected"
           : e == cudaErrorLaunchFailure ? "unspecified launch failure"
                                         : "unknown error";
}
