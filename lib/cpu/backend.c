/* backend - the CPU as a device: memory of the host, a team of threads */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/machine.h"
#include "lib/cpu/room.h"

enum { PIECE = 1 << 21 }; /* bytes that a thread copies at a time: a huge page */

static bool probe(void)
{
    return true;
}

static uint64_t memory(struct device *d)
{
    (void)d;
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int rates(struct device *d, struct device_rates *r, struct err *err)
{
    return machine_measure(cpu_threads(d), r, err);
}

static void *allocate(struct device *d, uint64_t size, const char *what,
                      struct err *err)
{
    (void)d;
    return mem_alloc(size, what, err);
}

static void release(struct device *d, void *memory)
{
    (void)d;
    free(memory);
}

struct copying {
    char *to;
    const char *from;
    size_t bytes;
};

static void copy_piece(void *arg, size_t task, int thread)
{
    const struct copying *c = arg;
    size_t at = task * PIECE, left = c->bytes - at;

    (void)thread;
    memcpy(c->to + at, c->from + at, left < PIECE ? left : PIECE);
}

static int copy(struct device *d, void *to, const void *from, size_t bytes,
                struct err *err)
{
    struct copying c = { to, from, bytes };

    (void)err;
    if (bytes && bytes <= PIECE)
        memcpy(to, from, bytes);
    else if (bytes)
        cpu_parallel(d, (bytes + PIECE - 1) / PIECE, copy_piece, &c);
    return 0;
}

static int wait(struct device *d, struct err *err)
{
    (void)d;
    (void)err;
    return 0;
}

static void room(const struct device *d, const struct program *program,
                 const struct room_limits *limits, struct ledger *list)
{
    (void)d;
    ledger_add(list, "kernels", LEDGER_DEVICE, cpu_room(program, limits));
}

static int reserve(struct device *d, const struct program *program,
                   const struct room_limits *limits, struct err *err)
{
    struct room_limits own = *limits;

    own.threads = cpu_threads(d);
    return cpu_make_room(d, cpu_room(program, &own), err);
}

static void taken(const struct device *d, struct ledger *list, uint64_t *grown)
{
    ledger_add(list, "kernels", LEDGER_DEVICE, cpu_room_bytes(d));
    if (grown)
        *grown = cpu_grown(d);
}

const struct backend backend_cpu = {
    .name = "cpu",
    .host_memory = true,
    .probe = probe,
    .open = cpu_open,
    .close = cpu_close,
    .memory = memory,
    .rates = rates,
    .alloc = allocate,
    .release = release,
    .copy_in = copy,
    .copy_out = copy,
    .copy = copy,
    .wait = wait,
    .room = room,
    .reserve = reserve,
    .taken = taken,
    .kernel = cpu_kernels,
    .limits = cpu_limits,
    .bf16 = cpu_bf16,
    .array = cpu_arrays,
    .round = cpu_round,
};
