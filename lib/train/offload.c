/* offload - what an optimizer keeps for weights, in memory of the host */
#include "lib/train/offload.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum { PIECE = 1 << 18 }; /* elements that are on the host at a time */

struct offloading {
    const struct backend *ops;
    struct device *device;
    struct device *cpu; /* makes the updates; NULL: DEVICE does, in its own memory */
    float *y, *x;       /* [PIECE], if .cpu */
};

int offload_open(struct offloading **out, const struct backend *ops,
                 struct device *device, int threads, struct err *err)
{
    struct offloading *o = xcalloc(1, sizeof(*o));

    *o = (struct offloading){ .ops = ops, .device = device };
    if (!ops->host_memory) {
        o->y = mem_alloc(PIECE * sizeof(*o->y), "an update", err);
        o->x = o->y ? mem_alloc(PIECE * sizeof(*o->x), "an update", err) : NULL;
        if (!o->x || backend_cpu.open(&o->cpu, threads, 0, err) < 0) {
            offload_close(o);
            return -1;
        }
    }
    *out = o;
    return 0;
}

void offload_close(struct offloading *o)
{
    if (!o)
        return;
    if (o->cpu)
        backend_cpu.close(o->cpu);
    free(o->y);
    free(o->x);
    free(o);
}

struct device *offload_device(const struct offloading *o)
{
    return o->cpu;
}

float *offload_slot_new(uint64_t n, struct err *err)
{
    float *x = mem_alloc(n * sizeof(*x), "the optimizer", err);

    if (x)
        memset(x, 0, (size_t)n * sizeof(*x));
    return x;
}

/* Elements [AT, AT + N) of C, whose y is on the host, too, if KEPT. */
static int run_piece(struct offloading *o, enum array_op op, const struct array_call *c,
                     uint64_t at, uint64_t n, bool kept, struct err *err)
{
    const size_t bytes = (size_t)n * sizeof(float);
    struct array_call part = *c;
    float *y = (float *)c->y + at;

    part.n = n;
    part.y = kept ? y : o->y;
    part.x = o->x;
    for (int k = 0; k < ARRAY_SLOTS; k++)
        part.slot[k] = c->slot[k] ? c->slot[k] + at : NULL;
    if ((!kept && o->ops->copy_out(o->device, o->y, y, bytes, err) < 0) ||
        o->ops->copy_out(o->device, o->x, (const float *)c->x + at, bytes, err) < 0 ||
        backend_cpu.array[op](o->cpu, &part, err) < 0)
        return -1;
    return kept ? 0 : o->ops->copy_in(o->device, y, o->y, bytes, err);
}

int offload_run(struct offloading *o, enum array_op op, const struct array_call *c,
                bool kept, struct err *err)
{
    if (!o->cpu)
        return o->ops->array[op](o->device, c, err);
    for (uint64_t at = 0; at < c->n; at += PIECE)
        if (run_piece(o, op, c, at, c->n - at < PIECE ? c->n - at : PIECE, kept, err) <
            0)
            return -1;
    return 0;
}

void offload_memory(const struct offloading *o, struct ledger *list)
{
    ledger_add(list, "offload", LEDGER_HOST, o->cpu ? 2 * PIECE * sizeof(float) : 0);
}
