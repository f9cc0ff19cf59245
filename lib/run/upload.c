/* upload - copies a step's host arrays to device memory in one transfer */
#include "lib/run/upload.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum { ALIGN = 16 };

void upload_init(struct upload *u, const struct backend *ops, struct device *device)
{
    *u = (struct upload){ .ops = ops, .device = device };
}

void upload_clear(struct upload *u)
{
    if (u->memory)
        u->ops->release(u->device, u->memory);
    free(u->host);
    *u = (struct upload){ 0 };
}

void upload_plan(struct upload *u)
{
    u->plans = true;
    u->n = 0;
}

uint64_t upload_bytes(const struct upload *u)
{
    return u->plans ? u->n + 1 : u->most;
}

int upload_open(struct upload *u, struct err *err)
{
    u->most = u->n + 1; /* what follows the last array has an address, too */
    u->plans = false;
    u->host = mem_alloc(u->most, "a step", err);
    u->memory = u->host ? u->ops->alloc(u->device, u->most, "a step", err) : NULL;
    if (!u->memory)
        return -1;
    u->cap = u->room = u->most;
    return 0;
}

void upload_begin(struct upload *u)
{
    u->n = 0;
}

size_t upload_add(struct upload *u, const void *v, size_t n, size_t size)
{
    size_t at = (u->n + ALIGN - 1) / ALIGN * ALIGN;

    u->n = at + n * size;
    if (u->plans)
        return at;
    u->grown += u->n + 1 > u->cap;
    u->host = xgrow(u->host, &u->cap, u->n + 1, 1);
    if (v && n)
        memcpy(u->host + at, v, n * size);
    else
        memset(u->host + at, 0, n * size);
    return at;
}

void *upload_host(struct upload *u, size_t offset)
{
    return u->host + offset;
}

int upload_send(struct upload *u, struct err *err)
{
    if (u->n > u->room || !u->memory) {
        if (u->memory)
            u->ops->release(u->device, u->memory);
        u->room = 0;
        u->grown++;
        u->memory = u->ops->alloc(u->device, u->n + u->n / 2, "a step", err);
        if (!u->memory)
            return -1;
        u->room = u->n + u->n / 2;
    }
    return u->ops->copy_in(u->device, u->memory, u->host, u->n, err);
}

const void *upload_at(const struct upload *u, size_t offset)
{
    return u->memory + offset;
}
