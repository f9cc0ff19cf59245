/* unit-device - a backend whose memory none but its kernels and copies may touch
 *
 * Its kernels are the CPU's, on pages that are unreadable before and after each: an
 * engine that reads or writes a value dies.  Every model runs on every axis, and what
 * comes out is what comes out on the CPU, bit for bit. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/cpu/cpu.h"
#include "tests/device-training.h"

/* ---- the backend ---- */

enum { PAGE = 4096, POOL = 1 << 28, PARTS = 1 << 12 };

static char *pool;      /* [POOL] */
static size_t pool_end; /* bytes that have been given out; all at once come back */
static struct {
    void *memory;
    uint64_t bytes;
} part[PARTS];
static size_t nparts;
static uint64_t pool_asked; /* bytes that have not been released */
static size_t kernels, copies;

static void allow(int what)
{
    if (pool_end && mprotect(pool, pool_end, what) < 0)
        abort();
}

static bool probe(void)
{
    return true;
}

static uint64_t memory(struct device *d)
{
    (void)d;
    return POOL;
}

static void *allocate(struct device *d, uint64_t size, const char *what,
                      struct err *err)
{
    char *memory = pool + pool_end;

    (void)d;
    if (size > POOL - PAGE - pool_end || nparts == PARTS) {
        err_set(err, ERR_SYSTEM, "no memory for %s", what);
        return NULL;
    }
    pool_asked += size;
    part[nparts].memory = memory;
    part[nparts++].bytes = size;
    pool_end += (size + PAGE) / PAGE * PAGE;
    allow(PROT_READ | PROT_WRITE);
    memset(memory, 0xff, pool_end - (size_t)(memory - pool)); /* NaN */
    allow(PROT_NONE);
    return memory;
}

static void release(struct device *d, void *memory)
{
    (void)d;
    for (size_t i = nparts; memory && i-- > 0;)
        if (part[i].memory == memory) {
            pool_asked -= part[i].bytes;
            part[i] = part[--nparts];
            break;
        }
}

static int copy(struct device *d, void *to, const void *from, size_t bytes,
                struct err *err)
{
    (void)d;
    (void)err;
    copies++;
    allow(PROT_READ | PROT_WRITE);
    if (bytes)
        memcpy(to, from, bytes);
    allow(PROT_NONE);
    return 0;
}

static int wait(struct device *d, struct err *err)
{
    (void)d;
    (void)err;
    return 0;
}

static int run_kernel(struct device *d, const struct call *c, struct err *err)
{
    int ret;

    kernels++;
    allow(PROT_READ | PROT_WRITE);
    ret = cpu_kernels[c->inst->op](d, c, err);
    allow(PROT_NONE);
    return ret;
}

static kernel *all_kernels[OP_COUNT];

#define ROW(id, word)                                                   \
    static int run_##word(struct device *d, const struct array_call *c, \
                          struct err *err)                              \
    {                                                                   \
        int ret;                                                        \
                                                                        \
        allow(PROT_READ | PROT_WRITE);                                  \
        ret = cpu_arrays[ARRAY_##id](d, c, err);                        \
        allow(PROT_NONE);                                               \
        return ret;                                                     \
    }
ARRAY_OPS(ROW)
#undef ROW
#define ROW(id, word) [ARRAY_##id] = run_##word,
static array_kernel *const all_arrays[ARRAY_COUNT] = { ARRAY_OPS(ROW) };
#undef ROW

static void room(const struct device *d, const struct program *program,
                 const struct room_limits *limits, struct ledger *list)
{
    backend_cpu.room(d, program, limits, list);
}

static int reserve(struct device *d, const struct program *program,
                   const struct room_limits *limits, struct err *err)
{
    return backend_cpu.reserve(d, program, limits, err);
}

static void taken(const struct device *d, struct ledger *list, uint64_t *grown)
{
    backend_cpu.taken(d, list, grown);
}

/* ---- what is allocated on the host ---- */

enum { BLOCKS = 4096 };

static struct {
    void *p;
    uint64_t bytes;
} block[BLOCKS];
static size_t nblocks;
static uint64_t block_bytes, block_times;

void *__real_mem_alloc(uint64_t size, const char *what, struct err *err);
void __real_free(void *p);
void *__wrap_mem_alloc(uint64_t size, const char *what, struct err *err);
void __wrap_free(void *p);

/* In place of mem_alloc: the linker's --wrap.  What the threads and messages between
 * ranks take is not a rank's own. */
void *__wrap_mem_alloc(uint64_t size, const char *what, struct err *err)
{
    void *p = __real_mem_alloc(size, what, err);

    if (!p || !strcmp(what, "the threads") || !strcmp(what, "a message"))
        return p;
    if (nblocks == BLOCKS)
        abort();
    block[nblocks].p = p;
    block[nblocks++].bytes = size;
    block_bytes += size;
    block_times++;
    return p;
}

void __wrap_free(void *p)
{
    for (size_t i = nblocks; p && i-- > 0;)
        if (block[i].p == p) {
            block_bytes -= block[i].bytes;
            block[i] = block[--nblocks];
            break;
        }
    __real_free(p);
}

/* On the CPU that is all; of the guarded backend it is what is beside its memory. */
static void count(const char *backend, uint64_t *bytes, uint64_t *times)
{
    *bytes = block_bytes;
    *times = block_times;
    if (strcmp(backend, "cpu") != 0)
        *bytes += pool_asked;
}

static const struct backend guarded = {
    .name = "guarded",
    .host_memory = false,
    .probe = probe,
    .open = cpu_open,
    .close = cpu_close,
    .memory = memory,
    .alloc = allocate,
    .release = release,
    .copy_in = copy,
    .copy_out = copy,
    .copy = copy,
    .wait = wait,
    .room = room,
    .reserve = reserve,
    .taken = taken,
    .kernel = all_kernels,
    .limits = cpu_limits,
    .array = all_arrays,
};

static void begin(void)
{
    pool_end = nparts = 0;
    pool_asked = 0;
}

static bool has_run(void)
{
    return kernels && copies;
}

int main(void)
{
    const struct device_models models = { .ops = &guarded,
                                          .begin = begin,
                                          .has_run = has_run,
                                          .coded = true,
                                          .count = count,
                                          .counts_host = true,
                                          .claim =
                                              "no value is touched but by kernels" };

    pool =
        mmap(NULL, POOL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int op = 0; op < OP_COUNT; op++)
        all_kernels[op] = cpu_kernels[op] ? run_kernel : NULL;
    device_training(&models);
    device_store(&models);
    return device_models(&models);
}
