/* alltoall - all-to-all of rows between the ranks of an expert-parallel group */
#include "lib/run/alltoall.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum { BY_RANK, FOR_DEVICE };

static int grow(struct alltoall *x, int which, uint64_t bytes, struct err *err)
{
    if (bytes <= x->cap[which])
        return 0;
    free(x->room[which]);
    x->cap[which] = 0;
    x->grown++;
    x->room[which] = mem_alloc(bytes, "rows of experts", err);
    if (!x->room[which])
        return -1;
    x->cap[which] = bytes;
    return 0;
}

/* Bytes of value V in the largest step; false on overflow. */
static bool bytes_of(uint64_t *bytes, const struct program *p, int v,
                     const uint64_t most[ROWS_MOST])
{
    const struct value *its = &p->value[v];

    return mem_mul(bytes, program_rows(p, its, most), its->cols) &&
           mem_mul(bytes, *bytes, (uint64_t)dtype_bits(its->dtype) / 8);
}

int alltoall_plan(struct alltoall *x, const struct program *p, struct link *link,
                  struct comm *comm, const uint64_t most[ROWS_MOST], struct err *err)
{
    bool device = !link->ops->host_memory;
    uint64_t experts = 0;

    *x = (struct alltoall){ .link = link, .comm = comm };
    if (comm->size == 1)
        return 0;
    for (int i = 0; i < p->nmixtures; i++)
        experts = p->mixture[i].all > experts ? p->mixture[i].all : experts;
    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];
        bool back = inst->all_to_all == ALL_TO_ALL_BACK;
        bool rows = inst->all_to_all != ALL_TO_ALL_COUNTS;
        uint64_t came, to;

        if (inst->op != OP_ALL_TO_ALL)
            continue;
        if (!bytes_of(&came, p, back ? inst->src[0] : inst->dst, most) ||
            !bytes_of(&to, p, inst->dst, most))
            return err_set(err, ERR_SYSTEM, "rows of experts: too many");
        if (rows && came > x->most[BY_RANK])
            x->most[BY_RANK] = came;
        if (device && to >= x->most[FOR_DEVICE])
            x->most[FOR_DEVICE] = to + 1;
    }
    x->sent = xcalloc((size_t)experts + 1, sizeof(*x->sent));
    x->came =
        xcalloc(((size_t)experts + 1) * ((size_t)comm->size + 1), sizeof(*x->came));
    return 0;
}

int alltoall_open(struct alltoall *x, struct err *err)
{
    for (int i = BY_RANK; i <= FOR_DEVICE; i++)
        if (grow(x, i, x->most[i], err) < 0)
            return -1;
    x->grown = 0;
    return 0;
}

void alltoall_close(struct alltoall *x)
{
    free(x->sent);
    free(x->came);
    free(x->room[BY_RANK]);
    free(x->room[FOR_DEVICE]);
    *x = (struct alltoall){ 0 };
}

uint64_t alltoall_bytes(const struct alltoall *x)
{
    return x->most[BY_RANK] + x->most[FOR_DEVICE];
}

/* A host buffer for BYTES that will be copied to the device's Y (Y itself if the
 * device's memory is host memory). */
static void *open_in(struct alltoall *x, void *y, size_t bytes, struct err *err)
{
    if (x->link->ops->host_memory)
        return y;
    return grow(x, FOR_DEVICE, bytes + 1, err) < 0 ? NULL : x->room[FOR_DEVICE];
}

static int close_in(struct alltoall *x, void *y, const void *host, size_t bytes,
                    struct err *err)
{
    return host == y ? 0 : x->link->ops->copy_in(x->link->device, y, host, bytes, err);
}

/* Copies N numbers at FROM in device memory to the host. */
static int read_numbers(struct alltoall *x, int32_t *to, const void *from, size_t n,
                        struct err *err)
{
    const void *host;

    if (link_read(x->link, from, n * sizeof(*to), &host, err) < 0)
        return -1;
    memcpy(to, host, n * sizeof(*to));
    return 0;
}

/* Y = prefix sums of the rows per own expert over all ranks, their total, then for each
 * rank the rows for each own expert. */
static int alltoall_counts(struct alltoall *x, const struct mixture *m, void *y,
                           const void *from, size_t *chosen, struct err *err)
{
    size_t size = (size_t)x->comm->size, own = (size_t)m->count;
    size_t n = own + 1 + size * own;
    size_t *out = xcalloc(2 * size, sizeof(*out)), *in = out + size;
    int32_t *came = x->came, *table = came + own + 1;
    void *host;
    int ret = -1;

    if (read_numbers(x, x->sent, from, (size_t)m->all + 1, err) < 0)
        goto out;
    for (size_t e = 0; e < m->all; e++)
        x->sent[e] = x->sent[e + 1] - x->sent[e];
    for (size_t r = 0; r < size; r++) {
        out[r] = (size_t)(m->deal[r + 1] - m->deal[r]);
        in[r] = own;
    }
    if (comm_run(x->comm,
                 comm_all_to_all(x->sent, (struct comm_parts){ .count = out }, table,
                                 (struct comm_parts){ .count = in }, sizeof(*table)),
                 err) < 0)
        goto out;
    came[0] = 0;
    for (size_t e = 0; e < own; e++) {
        came[e + 1] = came[e];
        for (size_t r = 0; r < size; r++)
            came[e + 1] += table[r * own + e];
    }
    *chosen = (size_t)came[own];
    host = open_in(x, y, n * sizeof(*came), err);
    if (!host)
        goto out;
    memcpy(host, came, n * sizeof(*came));
    ret = close_in(x, y, host, n * sizeof(*came), err);
out:
    free(out);
    return ret;
}

/* Moves received rows of BYTES each from (rank, expert) order to (expert, rank) order,
 * or BACK. */
static void sort_rows(const struct alltoall *x, const struct mixture *m, char *by_rank,
                      char *by_expert, size_t bytes, bool back)
{
    const int32_t *table = x->came + m->count + 1;

    for (size_t e = 0; e < m->count; e++) {
        char *rank = by_rank;

        for (size_t r = 0; r < (size_t)x->comm->size; r++) {
            const int32_t *its = table + r * m->count;
            size_t n = (size_t)its[e] * bytes;

            for (size_t k = 0; k < m->count; k++) {
                if (k == e && n)
                    memcpy(back ? rank : by_expert, back ? by_expert : rank, n);
                rank += (size_t)its[k] * bytes;
            }
            by_expert += n;
        }
    }
}

/* The same with messages between devices: one message for the rows of each pair of rank
 * and expert, directly to their final place. */
static int alltoall_on_devices(struct alltoall *x, const struct mixture *m, bool back,
                               char *y, const char *from, size_t bytes, struct err *err)
{
    const struct device_collectives *ops = x->link->wires->ops;
    struct device_group *group = wires_of(x->link->wires, x->comm);
    const int32_t *table = x->came + m->count + 1;
    const char *given = back ? y : from; /* by expert, over all ranks: the rows that
                                          * this rank sent out */
    size_t at = 0;
    int ret = 0;

    if (ops->begin(group, err) < 0)
        return -1;
    for (int r = 0; r < x->comm->size; r++)
        for (uint64_t e = m->deal[r]; e < m->deal[r + 1] && ret == 0; e++) {
            size_t n = (size_t)(x->sent[e + 1] - x->sent[e]) * bytes;
            char *place = (char *)(uintptr_t)given + (size_t)x->sent[e] * bytes;

            if (n)
                ret = back ? ops->receive(group, place, n, r, err)
                           : ops->send(group, place, n, r, err);
        }
    for (uint64_t e = 0; e < m->count; e++)
        for (int r = 0; r < x->comm->size && ret == 0; r++) {
            size_t n = (size_t)table[(uint64_t)r * m->count + e] * bytes;

            if (n)
                ret = back ? ops->send(group, from + at, n, r, err)
                           : ops->receive(group, y + at, n, r, err);
            at += n;
        }
    return ret < 0 ? -1 : ops->end(group, err);
}

/* Sends rows of BYTES to their experts, or BACK. */
static int alltoall_rows(struct alltoall *x, const struct mixture *m, bool back,
                         void *y, const void *from, size_t bytes, struct err *err)
{
    size_t size = (size_t)x->comm->size;
    size_t *out = xcalloc(2 * size, sizeof(*out)), *in = out + size;
    size_t rows = (size_t)x->sent[m->all], came = (size_t)x->came[m->count];
    struct comm_parts sent = { .count = out }, taken = { .count = in };
    const void *host;
    void *to;
    int ret = -1;

    for (size_t r = 0; r < size; r++) {
        out[r] = (size_t)(x->sent[m->deal[r + 1]] - x->sent[m->deal[r]]);
        for (size_t e = 0; e < m->count; e++)
            in[r] += (size_t)x->came[m->count + 1 + r * m->count + e];
    }
    if (link_read(x->link, from, (back ? came : rows) * bytes, &host, err) < 0)
        goto out;
    to = open_in(x, y, (back ? rows : came) * bytes, err);
    if (!to)
        goto out;
    if (back)
        sort_rows(x, m, x->room[BY_RANK], (char *)(uintptr_t)host, bytes, true);
    if (comm_run(x->comm,
                 back ? comm_all_to_all(x->room[BY_RANK], taken, to, sent, bytes)
                      : comm_all_to_all(host, sent, x->room[BY_RANK], taken, bytes),
                 err) < 0)
        goto out;
    if (!back)
        sort_rows(x, m, x->room[BY_RANK], to, bytes, false);
    ret = close_in(x, y, to, (back ? rows : came) * bytes, err);
out:
    free(out);
    return ret;
}

int alltoall_run(struct alltoall *x, const struct inst *inst, const struct mixture *m,
                 void *y, const void *from, size_t bytes, const void *sent,
                 const void *came, size_t *chosen, struct err *err)
{
    size_t own = (size_t)m->count;

    if (inst->all_to_all == ALL_TO_ALL_COUNTS)
        return alltoall_counts(x, m, y, from, chosen, err);
    if (read_numbers(x, x->sent, sent, (size_t)m->all + 1, err) < 0 ||
        read_numbers(x, x->came, came, own + 1 + (size_t)x->comm->size * own, err) < 0)
        return -1;
    if (wires_of(x->link->wires, x->comm))
        return alltoall_on_devices(x, m, inst->all_to_all == ALL_TO_ALL_BACK, y, from,
                                   bytes, err);
    return alltoall_rows(x, m, inst->all_to_all == ALL_TO_ALL_BACK, y, from, bytes,
                         err);
}
