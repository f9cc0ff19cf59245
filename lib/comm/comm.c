/* comm - descriptions of collectives; running, starting, waiting and counting them */
#include "lib/comm/comm.h"

#include <assert.h>

struct collective comm_all_reduce(float *x, size_t n)
{
    return (struct collective){ .kind = COMM_ALL_REDUCE,
                                .sum = COMM_SUM_F32,
                                .unit = sizeof(*x),
                                .from = x,
                                .to = x,
                                .n = n };
}

struct collective comm_all_reduce_f64(double *x, size_t n)
{
    return (struct collective){ .kind = COMM_ALL_REDUCE,
                                .sum = COMM_SUM_F64,
                                .unit = sizeof(*x),
                                .from = x,
                                .to = x,
                                .n = n };
}

struct collective comm_reduce_scatter(const float *x, float *mine, const size_t *count)
{
    return (struct collective){ .kind = COMM_REDUCE_SCATTER,
                                .sum = COMM_SUM_F32,
                                .unit = sizeof(*x),
                                .from = x,
                                .to = mine,
                                .part = { .count = count } };
}

struct collective comm_all_gather(const void *mine, void *all, size_t bytes)
{
    return (struct collective){
        .kind = COMM_ALL_GATHER, .unit = 1, .from = mine, .to = all, .n = bytes
    };
}

struct collective comm_all_gather_parts(const void *mine, void *all,
                                        const size_t *count, size_t unit)
{
    return (struct collective){ .kind = COMM_ALL_GATHER,
                                .unit = unit,
                                .from = mine,
                                .to = all,
                                .part = { .count = count } };
}

struct collective comm_all_to_all(const void *from, struct comm_parts out, void *to,
                                  struct comm_parts in, size_t unit)
{
    return (struct collective){ .kind = COMM_ALL_TO_ALL,
                                .unit = unit,
                                .from = from,
                                .to = to,
                                .part = out,
                                .in = in };
}

struct collective comm_broadcast(void *buf, size_t bytes, int root)
{
    return (struct collective){ .kind = COMM_BROADCAST,
                                .unit = 1,
                                .from = buf,
                                .to = buf,
                                .n = bytes,
                                .root = root };
}

/* Bytes of the whole value. */
static uint64_t whole(const struct comm *c, const struct collective *op)
{
    uint64_t elements = 0;

    if (op->part.count)
        for (int r = 0; r < c->size; r++)
            elements += op->part.count[r];
    else
        elements = op->n * (op->kind == COMM_ALL_GATHER ? (uint64_t)c->size : 1);
    return elements * op->unit;
}

int comm_start(struct comm *c, struct collective op, struct err *err)
{
    if (c->ops->start(c, &op, err) < 0)
        return -1;
    c->under_way++;
    c->tally[op.kind].calls++;
    c->tally[op.kind].bytes += whole(c, &op);
    return 0;
}

static int finish(struct comm *c, struct err *err)
{
    assert(c->under_way);
    c->under_way--;
    return c->ops->wait(c, err);
}

int comm_wait(struct comm *c, struct err *err)
{
    if (c->finished) {
        c->finished--;
        return 0;
    }
    return finish(c, err);
}

int comm_run(struct comm *c, struct collective op, struct err *err)
{
    if (comm_start(c, op, err) < 0)
        return -1;
    for (; c->under_way > 1; c->finished++)
        if (finish(c, err) < 0)
            return -1;
    return finish(c, err);
}

void comm_held(const struct comm *c, struct comm_memory *m)
{
    *m = (struct comm_memory){ 0 };
    if (c->ops->held)
        c->ops->held(c, m);
}

const struct comm_tally *comm_tally(const struct comm *c, enum comm_kind kind)
{
    return &c->tally[kind];
}
