/* cuda - a GPU as a device: memory, copies, waiting */
#include "lib/gpu/cuda.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/gpu/blas.h"
#include "lib/gpu/nccl.h"
#include "lib/gpu/room.h"

int cuda_fail(const struct device *d, cudaError_t e, const char *what, struct err *err)
{
    return err_set(err, ERR_SYSTEM, "GPU %d: %s: %s (%s)", d->number, what,
                   cudaGetErrorString(e), cudaGetErrorName(e));
}

#ifndef GPU_CODE /* the tests' fakes have kernels of their own */
#define GPU_CODE CUDA_CODE
#endif

/* Returns true if this build has code for GPU P: machine code for its generation, not
 * newer than P, or PTX, which is that of the last in the list. */
static bool has_code(const struct cudaDeviceProp *p)
{
    long own = 10L * p->major + p->minor, cc = 0;
    char *end;

    for (const char *at = GPU_CODE; *at; at = end) {
        cc = strtol(at, &end, 10);
        if (end == at)
            break;
        if (cc / 10 == p->major && cc <= own)
            return true;
    }
    return cc > 0 && cc <= own;
}

/* Why *P cannot be used, in TEXT of SIZE bytes. */
static void say_no_code(char *text, size_t size, const struct cudaDeviceProp *p)
{
    snprintf(text, size,
             "this build has no code for compute %d.%d: ./configure "
             "--with-cuda-arch=%d%d",
             p->major, p->minor, p->major, p->minor);
}

static bool any_served(void)
{
    struct cudaDeviceProp p;
    int n = 0;

    if (cudaGetDeviceCount(&n) != cudaSuccess)
        return false;
    for (int i = 0; i < n; i++)
        if (cudaGetDeviceProperties(&p, i) == cudaSuccess && has_code(&p))
            return true;
    return false;
}

/* Returns true if there is a GPU that this build serves.  A child process looks,
 * because a process that has used CUDA cannot use it in children that it forks later,
 * and ranks are such children. */
static bool probe(void)
{
    pid_t pid = fork();
    int status;

    if (pid < 0)
        return false;
    if (pid == 0)
        _exit(any_served() ? 0 : 1);
    while (waitpid(pid, &status, 0) != pid)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool look_at(struct device_facts *f, int number, int n)
{
    struct cudaDeviceProp p;
    size_t left = 0, total = 0;

    if (cudaSetDevice(number) != cudaSuccess ||
        cudaGetDeviceProperties(&p, number) != cudaSuccess ||
        cudaMemGetInfo(&left, &total) != cudaSuccess ||
        cudaDeviceGetPCIBusId(f->bus, sizeof(f->bus), number) != cudaSuccess)
        return false;
    memcpy(f->name, p.name, sizeof(f->name) - 1);
    f->major = p.major;
    f->minor = p.minor;
    f->multiprocessors = p.multiProcessorCount;
    if (!has_code(&p))
        say_no_code(f->trouble, sizeof(f->trouble), &p);
    f->bytes = total;
    f->free_bytes = left;
    for (int i = 0; i < n; i++) {
        int can = 0;

        if (i != number && cudaDeviceCanAccessPeer(&can, number, i) == cudaSuccess &&
            can)
            f->peers |= (uint64_t)1 << i;
    }
    return true;
}

static void look(struct device_report *r)
{
    enum { MOST = sizeof(r->device) / sizeof(*r->device) };
    cudaError_t e;
    int n = 0;

    *r = (struct device_report){ 0 };
    cudaDriverGetVersion(&r->driver);
    cudaRuntimeGetVersion(&r->runtime);
    r->blas = (int)blas_version();
    r->nccl = nccl_version();
    e = cudaGetDeviceCount(&n);
    if (e == cudaErrorInsufficientDriver && r->driver)
        snprintf(r->trouble, sizeof(r->trouble),
                 "the driver is for CUDA %d.%d, and %d.%d or newer is needed",
                 r->driver / 1000, r->driver % 1000 / 10, r->runtime / 1000,
                 r->runtime % 1000 / 10);
    else if (e == cudaErrorInsufficientDriver)
        snprintf(r->trouble, sizeof(r->trouble), "there is no driver");
    else if (e != cudaSuccess || !n)
        snprintf(r->trouble, sizeof(r->trouble), "%s",
                 e == cudaSuccess ? "there is none" : cudaGetErrorString(e));
    for (int i = 0; e == cudaSuccess && i < n && i < MOST; i++)
        if (look_at(&r->device[r->n], i, n < MOST ? n : MOST))
            r->n++;
}

static int count(void)
{
    int n = 0;

    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

static int usable(int *number, int most)
{
    struct cudaDeviceProp p;
    int all = count(), n = 0;

    for (int i = 0; i < all && n < most; i++) /* opening says what fails here */
        if (cudaGetDeviceProperties(&p, i) != cudaSuccess || has_code(&p))
            number[n++] = i;
    return n;
}

static bool place(struct device_place *p, int number)
{
    *p = (struct device_place){ 0 };
    return cudaDeviceGetPCIBusId(p->bus, sizeof(p->bus), number) == cudaSuccess;
}

/* ---- waiting ---- */

void cuda_pause(int turn)
{
    enum { AT_ONCE = 2000, YIELDING = 20000, NAP_NS = 50000 };

    if (turn >= YIELDING)
        nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    else if (turn >= AT_ONCE)
        sched_yield();
}

/* Waits for EVENT, or for the whole stream if NULL.  Checks meanwhile that other ranks
 * are alive, because the event may depend on them. */
static int await(struct device *d, cudaEvent_t event, const char *what, struct err *err)
{
    double start = clock_seconds();
    cudaError_t e;

    if (!d->nccl) {
        CUDA_TRY(d,
                 event ? cudaEventSynchronize(event) : cudaStreamSynchronize(d->stream),
                 what, err);
        return 0;
    }
    for (int turn = 0;; turn++) {
        e = event ? cudaEventQuery(event) : cudaStreamQuery(d->stream);
        if (e != cudaErrorNotReady)
            break;
        if (nccl_watch(d, start, err) < 0)
            return -1;
        cuda_pause(turn);
    }
    if (e != cudaSuccess)
        nccl_abort(d);
    CUDA_TRY(d, e, what, err);
    return 0;
}

static int cuda_wait(struct device *d, struct err *err)
{
    return await(d, NULL, "running a step", err);
}

/* ---- opening ---- */

static int open_ring(struct device *d, struct err *err)
{
    for (int i = 0; i < CUDA_RING; i++) {
        struct cuda_piece *p = &d->ring[i];

        CUDA_TRY(d, cudaMallocHost((void **)&p->memory, CUDA_PIECE),
                 "page-locked memory for copies", err);
        CUDA_TRY(d, cudaEventCreateWithFlags(&p->free, cudaEventDisableTiming),
                 "an event", err);
    }
    return 0;
}

static int start(struct device *d, int number, struct err *err)
{
    struct cudaDeviceProp p;
    char why[128];

    d->number = number;
    CUDA_TRY(d, cudaSetDevice(number), "starting", err);
    CUDA_TRY(d, cudaGetDeviceProperties(&p, number), "starting", err);
    if (!has_code(&p)) {
        say_no_code(why, sizeof(why), &p);
        return err_set(err, ERR_SYSTEM, "GPU %d: %s", number, why);
    }
    d->has_bf16 = p.major >= 8;
    CUDA_TRY(d, cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking),
             "a stream", err);
    if (open_ring(d, err) < 0)
        return -1;
    d->blas = blas_open();
    return 0;
}

static void cuda_close(struct device *d)
{
    if (!d)
        return;
    if (d->stream)
        cudaStreamSynchronize(d->stream);
    nccl_close(d);
    blas_close(d->blas);
    cudaFree(d->room);
    for (int i = 0; i < CUDA_RING; i++) {
        if (d->ring[i].free)
            cudaEventDestroy(d->ring[i].free);
        cudaFreeHost(d->ring[i].memory);
    }
    if (d->stream)
        cudaStreamDestroy(d->stream);
    free(d);
}

static int cuda_open(struct device **out, int threads, int number, struct err *err)
{
    struct device *d = xcalloc(1, sizeof(*d));

    d->threads = threads < 1 ? 1 : threads;
    if (start(d, number, err) < 0) {
        cuda_close(d);
        return -1;
    }
    *out = d;
    return 0;
}

static uint64_t memory_of(struct device *d)
{
    size_t left = 0, total = 0;

    (void)d;
    return cudaMemGetInfo(&left, &total) == cudaSuccess ? total : 0;
}

static int say_full(const struct device *d, uint64_t bytes, const char *what,
                    size_t left, size_t total, struct err *err)
{
    return err_set(err, ERR_SYSTEM,
                   "GPU %d: no memory for %s: %" PRIu64
                   " bytes are needed, %zu of %zu are "
                   "free; 'mem-estimate infer' predicts a layout's memory",
                   d->number, what, bytes, left, total);
}

static int fits(struct device *d, uint64_t bytes, const char *what, struct err *err)
{
    size_t left = 0, total = 0;

    CUDA_TRY(d, cudaMemGetInfo(&left, &total), "looking at its memory", err);
    return bytes <= left ? 0 : say_full(d, bytes, what, left, total, err);
}

static void *allocate(struct device *d, uint64_t size, const char *what,
                      struct err *err)
{
    size_t left = 0, total = 0;
    void *memory = NULL;
    cudaError_t e;

    if (!size)
        size = 1;
    e = size > SIZE_MAX ? cudaErrorMemoryAllocation : cudaMalloc(&memory, size);
    if (e == cudaSuccess)
        return memory;
    if (e == cudaErrorMemoryAllocation && cudaMemGetInfo(&left, &total) == cudaSuccess)
        say_full(d, size, what, left, total, err);
    else
        cuda_fail(d, e, what, err);
    (void)cudaGetLastError();
    return NULL;
}

static void cuda_release(struct device *d, void *memory)
{
    /* cudaFree blocks: wait here first, where other ranks are monitored */
    if (d->nccl && memory && cuda_wait(d, NULL) < 0)
        nccl_abort(d);
    cudaFree(memory);
    blas_forget(d->blas);
}

static int make_room(struct device *d, uint64_t bytes, const char *what,
                     struct err *err)
{
    if (bytes <= d->room_bytes)
        return 0;
    cuda_release(d, d->room);
    d->room_bytes = 0;
    d->rooms++;
    d->room = allocate(d, bytes, what, err);
    if (!d->room)
        return -1;
    d->room_bytes = bytes;
    return 0;
}

void *cuda_room(struct device *d, uint64_t bytes, const char *what, struct err *err)
{
    d->grown += bytes > d->room_bytes;
    return make_room(d, bytes, what, err) < 0 ? NULL : d->room;
}

static struct gpu_room room_of(const struct device *d, const struct program *program,
                               const struct room_limits *limits)
{
    struct gpu_facts all = { .bf16 = true, .blas = true };

    if (d)
        all = (struct gpu_facts){ .bf16 = d->has_bf16, .blas = d->blas != NULL };
    return gpu_room_of(&all, program, limits);
}

static void add_room(struct ledger *list, const struct gpu_room *need)
{
    gpu_room_add(list, need);
    ledger_add(list, "copies", LEDGER_HOST, (uint64_t)CUDA_RING * CUDA_PIECE);
}

static void room(const struct device *d, const struct program *program,
                 const struct room_limits *limits, struct ledger *list)
{
    const struct gpu_room need = room_of(d, program, limits);

    add_room(list, &need);
}

static int reserve(struct device *d, const struct program *program,
                   const struct room_limits *limits, struct err *err)
{
    const struct gpu_room need = room_of(d, program, limits);

    return make_room(d, need.room, "attention", err) < 0
               ? -1
               : blas_reserve(d, d->blas, need.workspace, need.parts, err);
}

static void taken(const struct device *d, struct ledger *list, uint64_t *grown)
{
    struct gpu_room need = { .room = d->room_bytes };

    blas_taken(d->blas, &need.workspace, need.parts);
    add_room(list, &need);
    if (grown)
        *grown = d->grown;
}

/* Copies N bytes to a buffer.  A single thread is slower than the way to the GPU, the
 * more so if FROM is a mapped file whose pages it has to find. */
static void fill(const struct device *d, char *to, const char *from, size_t n)
{
    enum { EACH = 256 << 10 };
    size_t parts = (n + EACH - 1) / EACH;
    int threads = (size_t)d->threads < parts ? d->threads : (int)parts;

#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (size_t i = 0; i < parts; i++)
        memcpy(to + i * EACH, from + i * EACH, i + 1 < parts ? EACH : n - i * EACH);
}

static int copy_in(struct device *d, void *to, const void *from, size_t bytes,
                   struct err *err)
{
    blas_forget(d->blas);
    for (size_t at = 0; at < bytes; at += CUDA_PIECE) {
        size_t n = bytes - at < CUDA_PIECE ? bytes - at : CUDA_PIECE;
        struct cuda_piece *p = &d->ring[d->next];

        d->next = (d->next + 1) % CUDA_RING;
        if (await(d, p->free, "a copy to it", err) < 0)
            return -1;
        fill(d, p->memory, (const char *)from + at, n);
        CUDA_TRY(d,
                 cudaMemcpyAsync((char *)to + at, p->memory, n, cudaMemcpyHostToDevice,
                                 d->stream),
                 "a copy to it", err);
        CUDA_TRY(d, cudaEventRecord(p->free, d->stream), "a copy to it", err);
    }
    return 0;
}

static int copy_out(struct device *d, void *to, const void *from, size_t bytes,
                    struct err *err)
{
    /* a copy to pageable memory blocks: wait here first, where other ranks are
     * monitored */
    if (d->nccl && cuda_wait(d, err) < 0)
        return -1;
    if (bytes)
        CUDA_TRY(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, d->stream),
                 "a copy from it", err);
    return cuda_wait(d, err);
}

static int copy_within(struct device *d, void *to, const void *from, size_t bytes,
                       struct err *err)
{
    blas_forget(d->blas);
    if (bytes)
        CUDA_TRY(d,
                 cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, d->stream),
                 "a copy", err);
    return 0;
}

/* ---- recording ---- */

struct recording {
    cudaGraphExec_t exec; /* NULL: dropped */
    int rooms; /* d->rooms at the time of recording: kernels contain the addresses */
    struct recording *next;
};

/* True if the driver cannot record at all, or not these calls; then steps are launched
 * without recording. */
static bool is_unrecordable(cudaError_t e)
{
    return e >= cudaErrorStreamCaptureUnsupported &&
           e <= cudaErrorStreamCaptureWrongThread;
}

static int record(struct device *d, struct err *err)
{
    cudaError_t e;

    if (d->records_not)
        return 0;
    blas_forget(d->blas);
    e = cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);
    d->records_not = is_unrecordable(e);
    if (d->records_not) {
        (void)cudaGetLastError();
        return 0;
    }
    CUDA_TRY(d, e, "recording a step", err);
    d->records = true;
    return 1;
}

static int recorded(struct device *d, struct recording **out, struct err *err)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t e;

    *out = NULL;
    blas_forget(d->blas);
    if (!d->records) /* cuda_drop_graphs */
        return err_set(err, ERR_SYSTEM, "GPU %d: recording a step was broken off",
                       d->number);
    d->records = false;
    e = cudaStreamEndCapture(d->stream, &graph);
    if (e == cudaSuccess)
        e = cudaGraphInstantiate(&exec, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    d->records_not = is_unrecordable(e);
    if (d->records_not) {
        (void)cudaGetLastError();
        return 0;
    }
    CUDA_TRY(d, e, "recording a step", err);
    *out = xcalloc(1, sizeof(**out));
    **out = (struct recording){ exec, d->rooms, d->recordings };
    d->recordings = *out;
    return 0;
}

static bool is_current(const struct device *d, const struct recording *r)
{
    return r->exec && r->rooms == d->rooms;
}

static int replay(struct device *d, const struct recording *r, struct err *err)
{
    blas_forget(d->blas);
    CUDA_TRY(d, cudaGraphLaunch(r->exec, d->stream), "running a step", err);
    return 0;
}

static void drop(struct recording *r)
{
    if (r->exec)
        cudaGraphExecDestroy(r->exec);
    r->exec = NULL;
}

static void forget(struct device *d, struct recording *r)
{
    struct recording **link = &d->recordings;

    if (!r)
        return;
    while (*link != r)
        link = &(*link)->next;
    *link = r->next;
    drop(r);
    free(r);
}

void cuda_drop_graphs(struct device *d)
{
    cudaGraph_t graph = NULL;

    for (struct recording *r = d->recordings; r; r = r->next)
        drop(r);
    blas_forget(d->blas);
    if (d->records && cudaStreamEndCapture(d->stream, &graph) == cudaSuccess && graph)
        cudaGraphDestroy(graph);
    d->records = false;
}

const struct backend backend_cuda = {
    .name = "cuda",
    .host_memory = false,
    .probe = probe,
    .look = look,
    .count = count,
    .place = place,
    .usable = usable,
    .open = cuda_open,
    .close = cuda_close,
    .memory = memory_of,
    .alloc = allocate,
    .release = cuda_release,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy = copy_within,
    .wait = cuda_wait,
    .room = room,
    .reserve = reserve,
    .taken = taken,
    .fits = fits,
    .record = record,
    .recorded = recorded,
    .is_current = is_current,
    .replay = replay,
    .forget = forget,
    .kernel = cuda_kernels,
    .limits = cuda_limits,
    .bf16 = gpu_bf16,
    .array = cuda_arrays,
    .round = cuda_round,
    .collectives = &nccl_collectives,
};
