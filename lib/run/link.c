/* link - collectives and messages on device memory */
#include "lib/run/link.h"

#include <stdlib.h>

#include "lib/base/mem.h"

enum { OUT, IN };

void link_init(struct link *l, const struct backend *ops, struct device *device)
{
    *l = (struct link){ .ops = ops, .device = device };
}

void link_clear(struct link *l)
{
    free(l->host[OUT]);
    free(l->host[IN]);
    *l = (struct link){ 0 };
}

bool link_is_staged(const struct link *l, const struct comm *c)
{
    return !l->ops->host_memory && c && c->size > 1 && !wires_of(l->wires, c);
}

void link_plan(struct link *l, uint64_t bytes)
{
    if (!l->ops->host_memory && bytes > l->most)
        l->most = bytes;
}

int link_open(struct link *l, struct err *err)
{
    for (int side = OUT; side <= IN && l->most; side++) {
        l->host[side] = mem_alloc(l->most, "an exchange", err);
        if (!l->host[side])
            return -1;
        l->cap[side] = (size_t)l->most;
    }
    return 0;
}

uint64_t link_bytes(const struct link *l)
{
    return 2 * l->most;
}

/* A host buffer of at least BYTES for SIDE, or NULL. */
static void *room(struct link *l, int side, size_t bytes, struct err *err)
{
    if (bytes > l->cap[side] || !l->host[side]) {
        free(l->host[side]);
        l->cap[side] = 0;
        l->grown++;
        l->host[side] = mem_alloc(bytes, "an exchange", err);
        if (l->host[side])
            l->cap[side] = bytes;
    }
    return l->host[side];
}

int link_read(struct link *l, const void *x, size_t bytes, const void **out,
              struct err *err)
{
    void *host;

    if (l->ops->host_memory) {
        *out = x;
        return l->ops->wait(l->device, err);
    }
    host = room(l, OUT, bytes, err);
    if (!host || l->ops->copy_out(l->device, host, x, bytes, err) < 0)
        return -1;
    *out = host;
    return 0;
}

/* Sets *out to host memory in which BYTES for X may be written. */
static int open_in(struct link *l, void *x, size_t bytes, void **out, struct err *err)
{
    *out = l->ops->host_memory ? x : room(l, IN, bytes, err);
    return *out || !bytes ? 0 : -1;
}

static int close_in(struct link *l, void *x, const void *host, size_t bytes,
                    struct err *err)
{
    return host == x ? 0 : l->ops->copy_in(l->device, x, host, bytes, err);
}

int link_all_reduce(struct link *l, struct comm *c, const void *x, void *y, size_t n,
                    enum dtype dtype, struct err *err)
{
    struct device_group *group = wires_of(l->wires, c);
    size_t bytes = n * (size_t)dtype_bits(dtype) / 8;
    const void *host;
    void *sum;

    if (group)
        return l->wires->ops->all_reduce(group, x, y, n, dtype, err);
    if (l->ops->host_memory) { /* where the sum is made in place */
        if (x != y && l->ops->copy(l->device, y, x, bytes, err) < 0)
            return -1;
        x = y;
    }
    if (link_read(l, x, bytes, &host, err) < 0)
        return -1;
    sum = (void *)(uintptr_t)host;
    if (comm_run(c,
                 dtype == DTYPE_F64 ? comm_all_reduce_f64(sum, n)
                                    : comm_all_reduce(sum, n),
                 err) < 0)
        return -1;
    return close_in(l, y, sum, bytes, err);
}

int link_reduce_scatter(struct link *l, struct comm *c, float *x, const size_t *count,
                        struct err *err)
{
    size_t n = 0, before = 0;

    for (int r = 0; r < c->size; r++) {
        before += r < c->rank ? count[r] : 0;
        n += count[r];
    }
    if (wires_of(l->wires, c) || !l->ops->host_memory)
        return link_all_reduce(l, c, x, x, n, DTYPE_F32, err);
    if (l->ops->wait(l->device, err) < 0)
        return -1;
    return comm_run(c, comm_reduce_scatter(x, x + before, count), err);
}

/* All-gather from device to device. */
static int gather_on_devices(struct link *l, struct device_group *group, int size,
                             const void *mine, void *all, const size_t *count,
                             size_t unit, struct err *err)
{
    size_t *bytes = xcalloc((size_t)size, sizeof(*bytes));
    int ret;

    for (int r = 0; r < size; r++)
        bytes[r] = count[r] * unit;
    ret = l->wires->ops->all_gather(group, mine, all, bytes, err);
    free(bytes);
    return ret;
}

int link_all_gather(struct link *l, struct comm *c, const void *mine, void *all,
                    const size_t *count, size_t unit, struct err *err)
{
    struct device_group *group = wires_of(l->wires, c);
    const void *from;
    size_t n = 0;
    void *to;

    if (group)
        return gather_on_devices(l, group, c->size, mine, all, count, unit, err);
    for (int r = 0; r < c->size; r++)
        n += count[r];
    if (link_read(l, mine, count[c->rank] * unit, &from, err) < 0 ||
        open_in(l, all, n * unit, &to, err) < 0 ||
        comm_run(c, comm_all_gather_parts(from, to, count, unit), err) < 0)
        return -1;
    return close_in(l, all, to, n * unit, err);
}

int link_send(struct link *l, struct comm *c, const void *x, size_t bytes, int to,
              struct err *err)
{
    struct device_group *group = wires_of(l->wires, c);
    const void *host;

    if (group)
        return l->wires->ops->send(group, x, bytes, to, err);
    if (link_read(l, x, bytes, &host, err) < 0)
        return -1;
    return c->ops->send(c, host, bytes, to, err);
}

int link_receive(struct link *l, struct comm *c, void *x, size_t bytes, int from,
                 struct err *err)
{
    struct device_group *group = wires_of(l->wires, c);
    void *host;

    if (group)
        return l->wires->ops->receive(group, x, bytes, from, err);
    if (open_in(l, x, bytes, &host, err) < 0 ||
        c->ops->receive(c, host, bytes, from, err) < 0)
        return -1;
    return close_in(l, x, host, bytes, err);
}
