/* nccl - collectives and messages between GPUs of several ranks, by NCCL */
#define _GNU_SOURCE
#include "lib/gpu/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/gpu/blas.h"
#include "lib/gpu/cuda.h"
#include "lib/gpu/library.h"
#include "lib/gpu/ncclapi.h"

struct nccl {
    void *library;
    int limit_s;
#define FUNCTION(name, arguments) int(*name) arguments;
    NCCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
    const char *(*ncclGetErrorString)(int result);
    struct device_group *groups;
};

struct device_group {
    struct device *device;
    struct device_group *next;
    void *comm; /* NULL: aborted */
    int rank, size;
    bool many; /* between begin and end */
};

static void *load(void)
{
    static const char *const names[] = { "libnccl.so.2", "libnccl.so", NULL };

    return library_open(names);
}

int nccl_version(void)
{
    void *library = load();
    int (*get)(int *version) = NULL, version = 0;

    if (!library)
        return 0;
    *(void **)&get = dlsym(library, "ncclGetVersion");
    if (!get || get(&version) != NCCL_SUCCESS)
        version = 0;
    dlclose(library);
    return version;
}

/* NCCL refuses ranks that share a GPU.  As if they were on different machines, it lets
 * them communicate through the loopback interface; 2.30 and newer have a switch for it.
 * Values that the user has set stay. */
static void allow_sharing(void)
{
    char host[64];
    const char *const set[][2] = {
        { "NCCL_HOSTID", host },
        { "NCCL_NET", "Socket" },
        { "NCCL_SOCKET_IFNAME", "lo" },
        { "NCCL_IB_DISABLE", "1" },
        { "NCCL_MNNVL_ENABLE", "0" },
        { "NCCL_MAX_NCHANNELS", "1" },
        { "NCCL_MULTI_RANK_GPU_ENABLE", "1" },
    };

    snprintf(host, sizeof(host), "shardutils-%ld", (long)getpid());
    for (size_t i = 0; i < sizeof(set) / sizeof(*set); i++)
        setenv(set[i][0], set[i][1], 0);
}

static bool probe(struct device *d, bool shared, int limit_s)
{
    void *library = load();
    struct nccl *n;
    bool all = true;
    int version = 0;

    if (!library)
        return false;
    if (shared)
        allow_sharing();
    n = xcalloc(1, sizeof(*n));
    n->library = library;
    n->limit_s = limit_s;
#define FUNCTION(name, arguments)               \
    *(void **)&n->name = dlsym(library, #name); \
    all = all && n->name;
    NCCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
    *(void **)&n->ncclGetErrorString = dlsym(library, "ncclGetErrorString");
    d->nccl = n;
    if (all && n->ncclGetErrorString && n->ncclGetVersion(&version) == NCCL_SUCCESS &&
        version >= NCCL_OLDEST)
        return true;
    nccl_close(d);
    return false;
}

void nccl_close(struct device *d)
{
    if (!d->nccl)
        return;
    dlclose(d->nccl->library);
    free(d->nccl);
    d->nccl = NULL;
}

/* ---- failures ---- */

void nccl_abort(struct device *d)
{
    if (!d->nccl)
        return;
    cuda_drop_graphs(d);
    for (struct device_group *g = d->nccl->groups; g; g = g->next) {
        if (g->comm)
            d->nccl->ncclCommAbort(g->comm);
        g->comm = NULL;
    }
}

static int fail(struct device *d, int result, const char *what, struct err *err)
{
    err_set(err, ERR_SYSTEM, "GPU %d: NCCL: %s: %s", d->number, what,
            d->nccl->ncclGetErrorString(result));
    nccl_abort(d);
    return -1;
}

/* Fails if the limit has passed since START. */
static int check_time(struct device *d, double start, struct err *err)
{
    int limit_s = d->nccl->limit_s;

    if (!limit_s || clock_seconds() - start < limit_s)
        return 0;
    err_set(err, ERR_SYSTEM,
            "GPU %d: another rank has not answered for %d s (--rank-timeout)",
            d->number, limit_s);
    nccl_abort(d);
    return -1;
}

int nccl_watch(struct device *d, double start, struct err *err)
{
    int result, ret;

    for (struct device_group *g = d->nccl ? d->nccl->groups : NULL; g; g = g->next) {
        if (!g->comm)
            return err_set(err, ERR_SYSTEM, "GPU %d: its communicators were aborted",
                           d->number);
        ret = d->nccl->ncclCommGetAsyncError(g->comm, &result);
        result = ret == NCCL_SUCCESS ? result : ret;
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
            /* let the rank that knows the cause report first */
            nanosleep(&(struct timespec){ .tv_nsec = 500000000 }, NULL);
            return fail(d, result, "waiting for other ranks", err);
        }
    }
    return d->nccl && d->nccl->groups ? check_time(d, start, err) : 0;
}

/* Waits until NCCL has enqueued the operation WHAT, whose call returned RESULT. */
static int settle(struct device_group *g, int result, const char *what, struct err *err)
{
    struct device *d = g->device;
    double start = clock_seconds();

    for (int turn = 0; result == NCCL_IN_PROGRESS; turn++) {
        int ret = d->nccl->ncclCommGetAsyncError(g->comm, &result);

        if (ret != NCCL_SUCCESS)
            result = ret;
        if (result == NCCL_IN_PROGRESS && check_time(d, start, err) < 0)
            return -1;
        if (result == NCCL_IN_PROGRESS)
            cuda_pause(turn);
    }
    return result == NCCL_SUCCESS ? 0 : fail(d, result, what, err);
}

/* Begins an operation, which may write device memory; fails after an abort. */
static int check_group(const struct device_group *g, struct err *err)
{
    blas_forget(g->device->blas);
    return g->comm ? 0
                   : err_set(err, ERR_SYSTEM, "GPU %d: its communicators were aborted",
                             g->device->number);
}

/* ---- groups ---- */

static int make_id(struct device *d, char id[DEVICE_GROUP_ID], struct err *err)
{
    struct nccl_id its = { { 0 } };
    int result = d->nccl->ncclGetUniqueId(&its);

    memcpy(id, its.internal, DEVICE_GROUP_ID);
    return result == NCCL_SUCCESS ? 0 : fail(d, result, "making a group's id", err);
}

static void leave(struct device_group *g)
{
    struct device_group **link;

    if (!g)
        return;
    cuda_drop_graphs(g->device);
    if (g->comm)
        g->device->nccl->ncclCommAbort(g->comm);
    for (link = &g->device->nccl->groups; *link != g; link = &(*link)->next)
        ;
    *link = g->next;
    free(g);
}

static int join(struct device_group **out, struct device *d,
                const char id[DEVICE_GROUP_ID], int rank, int size, struct err *err)
{
    struct nccl_config config = { .size = sizeof(config),
                                  .magic = NCCL_MAGIC,
                                  .version = NCCL_OLDEST,
                                  .cluster = NCCL_UNDEFINED,
                                  .least_blocks = NCCL_UNDEFINED,
                                  .most_blocks = NCCL_UNDEFINED,
                                  .split_share = NCCL_UNDEFINED };
    struct device_group *g = xcalloc(1, sizeof(*g));
    struct nccl_id its;
    int result;

    memcpy(its.internal, id, sizeof(its.internal));
    g->device = d;
    g->rank = rank;
    g->size = size;
    result = d->nccl->ncclCommInitRankConfig(&g->comm, size, its, rank, &config);
    g->next = d->nccl->groups;
    d->nccl->groups = g;
    if (settle(g, result, "joining a group", err) < 0) {
        leave(g);
        return -1;
    }
    *out = g;
    return 0;
}

static int finish(struct device_group *g, struct err *err)
{
    struct nccl *n = g->device->nccl;
    int result;

    cuda_drop_graphs(g->device);
    if (check_group(g, err) < 0 ||
        settle(g, n->ncclCommFinalize(g->comm), "leaving a group", err) < 0)
        return -1;
    result = n->ncclCommDestroy(g->comm);
    g->comm = NULL;
    return result == NCCL_SUCCESS ? 0 : fail(g->device, result, "leaving a group", err);
}

/* ---- operations ---- */

/* Checks a call between begin and end, where NCCL only collects operations. */
static int check_part(struct device_group *g, int result, const char *what,
                      struct err *err)
{
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS
               ? 0
               : fail(g->device, result, what, err);
}

static int all_reduce(struct device_group *g, const void *x, void *y, size_t n,
                      enum dtype dtype, struct err *err)
{
    if (check_group(g, err) < 0)
        return -1;
    return settle(g,
                  g->device->nccl->ncclAllReduce(
                      x, y, n, dtype == DTYPE_F64 ? NCCL_FLOAT64 : NCCL_FLOAT32,
                      NCCL_SUM, g->comm, g->device->stream),
                  "an all-reduce", err);
}

static int begin(struct device_group *g, struct err *err)
{
    int result;

    if (check_group(g, err) < 0)
        return -1;
    result = g->device->nccl->ncclGroupStart();
    if (result != NCCL_SUCCESS)
        return fail(g->device, result, "exchanging", err);
    g->many = true;
    return 0;
}

static int end(struct device_group *g, struct err *err)
{
    g->many = false;
    blas_forget(g->device->blas);
    return settle(g, g->device->nccl->ncclGroupEnd(), "exchanging", err);
}

static int gather_parts(struct device_group *g, const void *mine, void *all,
                        const size_t *bytes, struct err *err)
{
    struct nccl *n = g->device->nccl;
    char *at = all;

    if (begin(g, err) < 0)
        return -1;
    for (int r = 0; r < g->size; at += bytes[r++])
        if (bytes[r] &&
            check_part(g,
                       n->ncclBroadcast(r == g->rank ? mine : at, at, bytes[r],
                                        NCCL_INT8, r, g->comm, g->device->stream),
                       "an all-gather", err) < 0)
            return -1;
    return end(g, err);
}

static int all_gather(struct device_group *g, const void *mine, void *all,
                      const size_t *bytes, struct err *err)
{
    bool equal = true;

    if (check_group(g, err) < 0)
        return -1;
    for (int r = 1; r < g->size; r++)
        equal &= bytes[r] == bytes[0];
    if (!equal)
        return gather_parts(g, mine, all, bytes, err);
    return settle(g,
                  g->device->nccl->ncclAllGather(mine, all, bytes[0], NCCL_INT8,
                                                 g->comm, g->device->stream),
                  "an all-gather", err);
}

static int send(struct device_group *g, const void *x, size_t bytes, int to,
                struct err *err)
{
    int result;

    if (check_group(g, err) < 0)
        return -1;
    result =
        g->device->nccl->ncclSend(x, bytes, NCCL_INT8, to, g->comm, g->device->stream);
    return g->many ? check_part(g, result, "sending", err)
                   : settle(g, result, "sending", err);
}

static int receive(struct device_group *g, void *x, size_t bytes, int from,
                   struct err *err)
{
    int result;

    if (check_group(g, err) < 0)
        return -1;
    result = g->device->nccl->ncclRecv(x, bytes, NCCL_INT8, from, g->comm,
                                       g->device->stream);
    return g->many ? check_part(g, result, "receiving", err)
                   : settle(g, result, "receiving", err);
}

const struct device_collectives nccl_collectives = {
    .name = "NCCL",
    .probe = probe,
    .make_id = make_id,
    .join = join,
    .finish = finish,
    .leave = leave,
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .begin = begin,
    .send = send,
    .receive = receive,
    .end = end,
};
