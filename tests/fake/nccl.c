/* nccl - what lib/gpu uses of NCCL, between processes of this machine (cudart.h)
 *
 * The ranks of a communicator share memory that is an open file of the one that made
 * the id, so nothing is left behind whoever dies.  Work is in the stream once a call's
 * result has been asked for until it was no longer "in progress": who does not ask gets
 * wrong numbers.  What is captured is numbered: when ranks play graphs of different
 * captures, or one of them none, or a communicator goes before a graph that has its
 * operations, the program ends.  A send among receives is done when it has been
 * received; as nothing here runs by itself, one that is alone is in progress until it
 * has gone, with all before it.  A receive of another size ends the program, and nobody
 * is told that a peer is gone.  In place of the library it is "loaded" unless the
 * environment has FAKE_NCCL=0. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/gpu/ncclapi.h"
#include "tests/fake/cudart.h"

enum { MOST = 8, PIECE = 1 << 18, INVALID = 4, UNHANDLED = 1, REMOTE = 6 };

/* Bytes from one rank to another. */
struct pipe {
    atomic_size_t written, read;
    char data[PIECE];
};

struct shared {
    atomic_int joined, finalized;
    struct pipe pipe[MOST][MOST]; /* from, to */
};

struct communicator {
    struct shared *shared;
    int rank, size, refs, own_fd;
    int graphs;      /* jobs in graphs */
    size_t captured; /* operations */
    bool left;
    struct job *job; /* not in its stream yet */
    void *stream;    /* of its last job */
    enum { READY, JOINING, STARTING, SENDING, LEAVING } state;
};

struct flow {
    bool sends, begun;
    int peer;
    char *data;
    size_t bytes, at;
};

/* What goes before the bytes of a flow. */
struct head {
    size_t bytes, captured;
};

struct job {
    struct communicator *comm;
    void *stream;
    size_t captured; /* its number; 0: it was not */
    bool in_graph;
    struct flow *flow;
    int nflows, cap;
    float *sum_f32; /* of an all-reduce: what all others gave lies behind each other */
    double *sum_f64;
    const void *own; /* what this rank gives */
    char *parts;
    size_t n;
};

static int depth;           /* of groups */
static struct job *grouped; /* that is being made */

/* ---- jobs ---- */

static void release(struct communicator *c)
{
    if (--c->refs)
        return;
    munmap(c->shared, sizeof(*c->shared));
    if (c->own_fd >= 0)
        close(c->own_fd);
    free(c);
}

static void free_job(struct job *j)
{
    j->comm->graphs -= j->in_graph;
    release(j->comm);
    free(j->flow);
    free(j->parts);
    free(j);
}

/* Move what can be moved of F; is all of it gone, or here? */
static bool flow_on(const struct job *j, struct flow *f)
{
    struct communicator *c = j->comm;
    struct pipe *p = f->sends ? &c->shared->pipe[c->rank][f->peer]
                              : &c->shared->pipe[f->peer][c->rank];
    size_t written = atomic_load(&p->written), read = atomic_load(&p->read);

    if (!f->begun) {
        size_t room = f->sends ? PIECE - (written - read) : written - read;
        struct head head = { f->bytes, j->captured };

        if (room < sizeof(head))
            return false;
        for (size_t i = 0; i < sizeof(head); i++)
            if (f->sends)
                p->data[written++ % PIECE] = ((char *)&head)[i];
            else
                ((char *)&head)[i] = p->data[read++ % PIECE];
        if (head.bytes != f->bytes) {
            fprintf(stderr, "fake NCCL: %zu bytes for a receive of %zu\n", head.bytes,
                    f->bytes);
            _exit(99);
        }
        if (head.captured != j->captured) {
            fprintf(stderr, "fake NCCL: captured operation %zu meets %zu\n",
                    head.captured, j->captured);
            _exit(99);
        }
        f->begun = true;
    }
    for (; f->at < f->bytes && (f->sends ? written - read < PIECE : read < written);
         f->at++)
        if (f->sends)
            p->data[written++ % PIECE] = f->data[f->at];
        else
            f->data[f->at] = p->data[read++ % PIECE];
    if (f->sends)
        atomic_store(&p->written, written);
    else
        atomic_store(&p->read, read);
    return f->at == f->bytes;
}

/* Does an earlier flow of J go the same way as flow I, and is not done? */
static bool has_before(const struct job *j, int i)
{
    for (int k = 0; k < i; k++)
        if (j->flow[k].peer == j->flow[i].peer &&
            j->flow[k].sends == j->flow[i].sends &&
            (!j->flow[k].begun || j->flow[k].at < j->flow[k].bytes))
            return true;
    return false;
}

/* In the order of the ranks. */
static void sum_up(struct job *j)
{
    for (size_t i = 0; i < j->n; i++) {
        double f64 = 0;
        float f32 = 0;

        for (int r = 0, other = 0; r < j->comm->size; r++) {
            size_t at = (size_t)other * j->n + i;

            if (j->sum_f32)
                f32 += r == j->comm->rank ? ((const float *)j->own)[i]
                                          : ((float *)j->parts)[at];
            else
                f64 += r == j->comm->rank ? ((const double *)j->own)[i]
                                          : ((double *)j->parts)[at];
            other += r != j->comm->rank;
        }
        if (j->sum_f32)
            j->sum_f32[i] = f32;
        else
            j->sum_f64[i] = f64;
    }
}

static bool sends_only(const struct job *j)
{
    for (int i = 0; i < j->nflows; i++)
        if (!j->flow[i].sends)
            return false;
    return true;
}

static bool try_job(void *arg)
{
    struct job *j = arg;
    bool done = true, alone = sends_only(j);

    for (int i = 0; i < j->nflows && !j->comm->left; i++) {
        struct flow *f = &j->flow[i];
        struct pipe *p = &j->comm->shared->pipe[j->comm->rank][f->peer];

        if (f->begun && f->at == f->bytes)
            done &=
                !f->sends || alone || atomic_load(&p->written) == atomic_load(&p->read);
        else
            done &= !has_before(j, i) && flow_on(j, f) && (!f->sends || alone);
    }
    if (!done && !j->comm->left)
        return false;
    if (j->parts && !j->comm->left)
        sum_up(j);
    free_job(j);
    return true;
}

/* Parts lie behind each other, and some flows fill them. */
static void *copy_job(const void *job, bool for_graph)
{
    const struct job *from = job;
    struct job *j = malloc(sizeof(*j));
    size_t bytes = (size_t)from->comm->size * from->n * (from->sum_f64 ? 8 : 4);

    *j = *from;
    j->in_graph = for_graph;
    j->comm->graphs += for_graph;
    j->comm->refs++;
    j->cap = j->nflows;
    j->flow = malloc((size_t)j->nflows * sizeof(*j->flow));
    memcpy(j->flow, from->flow, (size_t)j->nflows * sizeof(*j->flow));
    j->parts = from->parts ? malloc(bytes) : NULL;
    for (int i = 0; i < j->nflows && j->parts; i++)
        if (!j->flow[i].sends)
            j->flow[i].data = j->parts + (from->flow[i].data - from->parts);
    return j;
}

static void drop_job(void *job)
{
    free_job(job);
}

static const struct fake_job how_jobs_go = { try_job, copy_job, drop_job };

static struct job *job_of(struct communicator *c, void *stream)
{
    struct job *j = grouped;

    if (!j) {
        j = calloc(1, sizeof(*j));
        j->comm = c;
        j->stream = stream;
        c->refs++;
    }
    if (depth)
        grouped = j;
    return j;
}

static void add_flow(struct job *j, bool sends, int peer, const void *data, size_t n)
{
    if (j->nflows == j->cap)
        j->flow =
            realloc(j->flow, (size_t)(j->cap = 2 * j->cap + 4) * sizeof(*j->flow));
    j->flow[j->nflows++] = (struct flow){
        .sends = sends, .peer = peer, .data = (char *)(uintptr_t)data, .bytes = n
    };
}

static int submit(struct job *j)
{
    if (depth)
        return NCCL_SUCCESS;
    fake_count_exchange();
    j->comm->job = j;
    j->comm->state = STARTING;
    return NCCL_IN_PROGRESS;
}

static bool refuses(const struct communicator *c)
{
    if (c->left || c->state != READY || (grouped && grouped->comm != c)) {
        fprintf(stderr, "fake NCCL: a call before the last one was done\n");
        _exit(99);
    }
    return fake_fails();
}

/* ---- functions ---- */

static int get_version(int *version)
{
    *version = 23203;
    return NCCL_SUCCESS;
}

static int get_id(struct nccl_id *id)
{
    int fd;

    if (fake_fails())
        return 2;
    fd = memfd_create("fake-nccl", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) < 0)
        return 2;
    snprintf(id->internal, sizeof(id->internal), "/proc/%ld/fd/%d", (long)getpid(), fd);
    return NCCL_SUCCESS;
}

static int init(void **comm, int size, struct nccl_id id, int rank,
                struct nccl_config *config)
{
    struct communicator *c;
    void *p;
    int fd;
    long pid;

    if (fake_fails())
        return 2;
    if (config->size != sizeof(*config) || config->magic != NCCL_MAGIC ||
        config->blocking != 0 || size > MOST || rank >= size)
        return INVALID;
    fd = open(id.internal, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return 2;
    p = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return 2;
    c = calloc(1, sizeof(*c));
    c->shared = p;
    c->rank = rank;
    c->size = size;
    c->refs = 1;
    c->own_fd =
        sscanf(id.internal, "/proc/%ld/fd/%d", &pid, &fd) == 2 && pid == (long)getpid()
            ? fd
            : -1;
    c->state = JOINING;
    atomic_fetch_add(&c->shared->joined, 1);
    fake_live(1);
    *comm = c;
    return NCCL_IN_PROGRESS;
}

static int get_async(void *comm, int *result)
{
    struct communicator *c = comm;
    bool done = true;

    if (fake_poll_fails(FAKE_POLL_NCCL)) {
        *result = REMOTE;
        return NCCL_SUCCESS;
    }
    if (c->state == STARTING) {
        c->stream = c->job->stream;
        done = fake_captures(c->stream) || !sends_only(c->job);
        c->state = SENDING;
        if (fake_captures(c->stream)) {
            c->job->captured = ++c->captured;
            c->job->in_graph = true;
            c->graphs++;
        }
        fake_enqueue_job(c->stream, &how_jobs_go, c->job);
        c->job = NULL;
    } else if (c->state == SENDING) {
        done = fake_advance(c->stream);
    } else if (c->state == JOINING) {
        done = atomic_load(&c->shared->joined) == c->size;
    } else if (c->state == LEAVING) {
        done = atomic_load(&c->shared->finalized) == c->size;
    }
    if (!done || c->state == READY)
        fake_poll_waits(FAKE_POLL_NCCL);
    if (done)
        c->state = READY;
    *result = done ? NCCL_SUCCESS : NCCL_IN_PROGRESS;
    return NCCL_SUCCESS;
}

static int finalize(void *comm)
{
    struct communicator *c = comm;

    if (refuses(c))
        return UNHANDLED;
    atomic_fetch_add(&c->shared->finalized, 1);
    c->state = LEAVING;
    return NCCL_IN_PROGRESS;
}

static int leave(void *comm)
{
    struct communicator *c = comm;

    if (c->graphs) { /* NCCL would wait until they are destroyed */
        fprintf(stderr, "fake NCCL: a graph outlives its communicator\n");
        _exit(99);
    }
    c->left = true;
    if (c->job)
        free_job(c->job);
    if (grouped) {
        free_job(grouped);
        grouped = NULL;
        depth = 0;
    }
    fake_live(-1);
    release(c);
    return NCCL_SUCCESS;
}

static int destroy(void *comm)
{
    int fails = fake_fails();

    leave(comm);
    return fails ? UNHANDLED : NCCL_SUCCESS;
}

static int group_start(void)
{
    if (fake_fails())
        return UNHANDLED;
    depth++;
    return NCCL_SUCCESS;
}

static int group_end(void)
{
    struct job *j = grouped;

    if (fake_fails())
        return UNHANDLED;
    depth--;
    grouped = NULL;
    return j ? submit(j) : NCCL_SUCCESS;
}

static int all_reduce(const void *from, void *to, size_t n, int type, int how,
                      void *comm, void *stream)
{
    size_t unit = type == NCCL_FLOAT64 ? 8 : 4;
    struct communicator *c = comm;
    struct job *j;

    if (refuses(c))
        return UNHANDLED;
    if (how != NCCL_SUM || (type != NCCL_FLOAT64 && type != NCCL_FLOAT32))
        return INVALID;
    j = job_of(c, stream);
    j->n = n;
    j->own = from;
    j->parts = malloc((size_t)c->size * n * unit);
    if (type == NCCL_FLOAT64)
        j->sum_f64 = to;
    else
        j->sum_f32 = to;
    for (int r = 0, other = 0; r < c->size; r++)
        if (r != c->rank) {
            add_flow(j, true, r, from, n * unit);
            add_flow(j, false, r, j->parts + (size_t)other++ * n * unit, n * unit);
        }
    return submit(j);
}

static int all_gather(const void *from, void *to, size_t n, int type, void *comm,
                      void *stream)
{
    struct communicator *c = comm;
    struct job *j;

    if (refuses(c))
        return UNHANDLED;
    if (type != NCCL_INT8)
        return INVALID;
    j = job_of(c, stream);
    for (int r = 0; r < c->size; r++) {
        add_flow(j, true, r, from, n);
        add_flow(j, false, r, (char *)to + (size_t)r * n, n);
    }
    return submit(j);
}

static int broadcast(const void *from, void *to, size_t n, int type, int root,
                     void *comm, void *stream)
{
    struct communicator *c = comm;
    struct job *j;

    if (refuses(c))
        return UNHANDLED;
    if (type != NCCL_INT8)
        return INVALID;
    j = job_of(c, stream);
    for (int r = 0; r < c->size && c->rank == root; r++)
        add_flow(j, true, r, from, n);
    add_flow(j, false, root, to, n);
    return submit(j);
}

static int one_way(bool sends, const void *data, size_t n, int type, int peer,
                   struct communicator *c, void *stream)
{
    struct job *j;

    if (refuses(c))
        return UNHANDLED;
    if (type != NCCL_INT8 || peer < 0 || peer >= c->size)
        return INVALID;
    j = job_of(c, stream);
    add_flow(j, sends, peer, data, n);
    return submit(j);
}

static int send(const void *from, size_t n, int type, int peer, void *comm,
                void *stream)
{
    return one_way(true, from, n, type, peer, comm, stream);
}

static int receive(void *to, size_t n, int type, int peer, void *comm, void *stream)
{
    return one_way(false, to, n, type, peer, comm, stream);
}

static const char *error_string(int result)
{
    return result == REMOTE    ? "remote process exited or there was a network error"
           : result == INVALID ? "invalid argument"
                               : "unhandled system error";
}

/* ---- loading ---- */

void *fake_nccl_library(const char *name)
{
    static char library;
    const char *on = getenv("FAKE_NCCL");

    return !strcmp(name, "libnccl.so.2") && (!on || strcmp(on, "0") != 0) ? &library
                                                                          : NULL;
}

void *fake_nccl_function(const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } all[] = {
        { "ncclGetVersion", (void *)get_version },
        { "ncclGetUniqueId", (void *)get_id },
        { "ncclCommInitRankConfig", (void *)init },
        { "ncclCommGetAsyncError", (void *)get_async },
        { "ncclCommFinalize", (void *)finalize },
        { "ncclCommDestroy", (void *)destroy },
        { "ncclCommAbort", (void *)leave },
        { "ncclGroupStart", (void *)group_start },
        { "ncclGroupEnd", (void *)group_end },
        { "ncclAllReduce", (void *)all_reduce },
        { "ncclAllGather", (void *)all_gather },
        { "ncclBroadcast", (void *)broadcast },
        { "ncclSend", (void *)send },
        { "ncclRecv", (void *)receive },
        { "ncclGetErrorString", (void *)error_string },
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (!strcmp(all[i].name, name))
            return all[i].function;
    return NULL;
}
