/* pairwise - collectives in which every rank sends each other rank its part */
#include "lib/comm/pairwise.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/comm/collective.h"

enum { FEW = 4096 }; /* numbers that all ranks sum for themselves */

/* Receives, then sends: who posts both late finds room for what comes. */
static int trade(const struct pairwise *p, enum pairwise_channel channel, void *to,
                 size_t in, const void *from, size_t out, int rank, struct err *err)
{
    return p->post(p, false, channel, to, in, rank, err) < 0
               ? -1
               : p->post(p, true, channel, (void *)from, out, rank, err);
}

/* Bytes of rank R's part of a sum that each rank makes for all: as in a
 * reduce-scatter, or about as many numbers for each. */
static size_t sum_part(const struct comm *c, const struct collective *op, int r,
                       size_t *start)
{
    size_t each = (op->n + (size_t)c->size - 1) / (size_t)c->size, first, n;

    if (op->kind == COMM_REDUCE_SCATTER) {
        *start = collective_start(op, &op->part, r);
        return collective_part(op, &op->part, r);
    }
    first = (size_t)r * each < op->n ? (size_t)r * each : op->n;
    n = op->n - first < each ? op->n - first : each;
    *start = first * op->unit;
    return n * op->unit;
}

/* Few numbers: every rank sums all.  Many: each rank sums a part of the numbers, and
 * the sums are gathered, which moves the fewest bytes (Thakur et al. 2005). */
static bool sums_all(const struct collective *op)
{
    return op->kind == COMM_ALL_REDUCE && op->n <= FEW;
}

/* Bytes that this rank sums, and where they begin. */
static size_t own_part(const struct pairwise *p, size_t *start)
{
    *start = 0;
    return sums_all(p->op) ? p->op->n * p->op->unit
                           : sum_part(p->comm, p->op, p->comm->rank, start);
}

/* What this rank sums comes from all others to *p->part. */
static int start_sum(const struct pairwise *p, struct err *err)
{
    size_t start, own = own_part(p, &start);

    *p->part = mem_alloc(own * (size_t)p->comm->size, "a sum", err);
    if (!*p->part)
        return -1;
    for (int r = 0; r < p->comm->size; r++) {
        size_t bytes = sums_all(p->op) ? own : sum_part(p->comm, p->op, r, &start);

        if (r != p->comm->rank &&
            trade(p, PAIRWISE_SUMS, *p->part + (size_t)r * own, own,
                  (const char *)p->op->from + start, bytes, r, err) < 0)
            return -1;
    }
    return 0;
}

int pairwise_sum(const struct pairwise *p, struct err *err)
{
    const struct collective *op = p->op;
    size_t start, own = own_part(p, &start);
    const void **part = xmalloc((size_t)p->comm->size * sizeof(*part));
    char *to = (char *)op->to + (op->kind == COMM_REDUCE_SCATTER ? 0 : start);

    if (own)
        memcpy(*p->part + (size_t)p->comm->rank * own, (const char *)op->from + start,
               own);
    for (int r = 0; r < p->comm->size; r++)
        part[r] = *p->part + (size_t)r * own;
    collective_sum(op, to, part, p->comm->size, own);
    free(part);
    for (int r = 0; r < p->comm->size; r++) {
        size_t bytes;

        if (op->kind == COMM_REDUCE_SCATTER || sums_all(op) || r == p->comm->rank)
            continue;
        bytes = sum_part(p->comm, op, r, &start);
        if (trade(p, PAIRWISE_RESULTS, (char *)op->to + start, bytes, to, own, r, err) <
            0)
            return -1;
    }
    return 0;
}

/* An all-gather or all-to-all: parts go as they are. */
static int start_parts(const struct pairwise *p, struct err *err)
{
    const struct collective *op = p->op;
    bool gather = op->kind == COMM_ALL_GATHER;
    const struct comm_parts *in = gather ? &op->part : &op->in;
    int me = p->comm->rank;

    for (int r = 0; r < p->comm->size; r++) {
        char *to = (char *)op->to + collective_start(op, in, r);
        const char *from = op->from;
        size_t bytes = collective_part(op, &op->part, gather ? me : r);

        if (!gather)
            from += collective_start(op, &op->part, r);
        if (r == me)
            collective_copy(to, from, bytes);
        else if (trade(p, PAIRWISE_PARTS, to, collective_part(op, in, r), from, bytes,
                       r, err) < 0)
            return -1;
    }
    return 0;
}

int pairwise_start(const struct pairwise *p, struct err *err)
{
    return p->op->sum != COMM_SUM_NONE ? start_sum(p, err) : start_parts(p, err);
}
