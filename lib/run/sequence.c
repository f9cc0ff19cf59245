/* sequence - sequence parallelism: how ranks share the tokens of a step */
#include "lib/run/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/deal.h"

void sequence_init(struct sequence *s, struct comm *comm, struct link *link, int across)
{
    *s = (struct sequence){
        .comm = comm, .link = link, .across = across, .ring = comm->size / across
    };
}

void sequence_clear(struct sequence *s)
{
    if (s->packed)
        s->link->ops->release(s->link->device, s->packed);
    s->packed = NULL;
}

/* ---- rows ---- */

static struct share rows_of(const struct sequence *s, int rank)
{
    return deal_units(s->n, 1, s->comm->size, rank);
}

/* First rank of this rank's set of neighbours. */
static int neighbour(const struct sequence *s)
{
    return s->comm->rank / s->across * s->across;
}

void sequence_place(const struct sequence *s, int place, size_t *first, size_t *count)
{
    struct share begin = rows_of(s, place * s->across);
    struct share end = rows_of(s, (place + 1) * s->across - 1);

    *first = begin.start;
    *count = end.start + end.count - begin.start;
}

void sequence_begin(struct sequence *s, size_t n)
{
    struct share mine;

    s->n = n;
    s->shared = n < (size_t)s->comm->size || s->comm->size == 1;
    s->first = s->begin = 0;
    s->count = s->gathered = n;
    if (s->shared)
        return;
    mine = rows_of(s, s->comm->rank);
    s->first = mine.start;
    s->count = mine.count;
    sequence_place(s, s->comm->rank / s->across, &s->begin, &s->gathered);
}

size_t sequence_rows_most(const struct sequence *s, size_t tokens)
{
    size_t size = (size_t)s->comm->size, rows = (tokens + size - 1) / size;
    size_t shared = size - 1 < tokens ? size - 1 : tokens;

    return rows > shared ? rows : shared;
}

size_t sequence_gathered_most(const struct sequence *s, size_t tokens)
{
    size_t most = sequence_rows_most(s, tokens) * (size_t)s->across;

    return most < tokens ? most : tokens;
}

/* ---- heads ---- */

/* The heads of neighbour PART. */
static struct head_part part_of(const struct sequence *s, const struct head_part *all,
                                uint64_t per, int part)
{
    struct head_part h = *all;
    struct share group, within;

    deal_groups(h.groups, per, s->across, part, &group, &within);
    h.group_start = group.start;
    h.group_count = group.count;
    h.within_start = h.within == per ? within.start : 0;
    h.within_count = h.within == per ? within.count : h.within;
    return h;
}

struct head_part sequence_heads(const struct sequence *s, uint64_t groups, uint64_t per,
                                uint64_t within, uint64_t dim)
{
    struct head_part all = { .groups = groups, .within = within, .dim = dim };

    return part_of(s, &all, per, s->comm->rank % s->across);
}

uint64_t heads_cols(const struct head_part *h)
{
    return h->group_count * h->within_count * h->dim;
}

/* ---- communication ---- */

/* Runs OP on the heads H: this rank's rows of TO from FROM. */
static int copy_part(struct sequence *s, enum op op, const struct head_part *h,
                     float *to, const float *from, struct err *err)
{
    struct inst inst = {
        .op = op, .nsrc = 1, .weight = -1, .weight2 = -1, .heads = *h
    };
    uint64_t part = heads_cols(h), whole = h->groups * h->within * h->dim;
    bool pack = op == OP_HEADS_PACK;
    struct call call = { .inst = &inst };

    call.y =
        (struct buffer){ to, s->rows, s->count, pack ? part : whole, FORMAT_F32, 0 };
    call.x[0] = (struct buffer){ (void *)(uintptr_t)from, s->rows,    s->count,
                                 pack ? whole : part,     FORMAT_F32, 0 };
    return s->link->ops->kernel[op](s->link->device, &call, err);
}

/* Sets *out to device memory for N floats of one rank's part. */
static int room(struct sequence *s, size_t n, float **out, struct err *err)
{
    const struct backend *ops = s->link->ops;

    if (n * sizeof(float) > s->packed_bytes || !s->packed) {
        sequence_clear(s);
        s->packed_bytes = 0;
        s->grown++;
        s->packed =
            ops->alloc(s->link->device, n * sizeof(float), "an exchange of heads", err);
        if (!s->packed)
            return -1;
        s->packed_bytes = n * sizeof(float);
    }
    *out = s->packed;
    return 0;
}

static int send(struct sequence *s, const float *x, size_t n, int to, struct err *err)
{
    s->moved += n * sizeof(*x);
    return link_send(s->link, s->comm, x, n * sizeof(*x), to, err);
}

static int receive(struct sequence *s, float *x, size_t n, int from, struct err *err)
{
    return link_receive(s->link, s->comm, x, n * sizeof(*x), from, err);
}

/* Columns of the neighbour with the most heads. */
static size_t widest(const struct sequence *s, const struct head_part *h, uint64_t per)
{
    size_t most = 0;

    for (int i = 0; i < s->across; i++) {
        struct head_part part = part_of(s, h, per, i);

        most = heads_cols(&part) > most ? heads_cols(&part) : most;
    }
    return most;
}

void sequence_plan(struct sequence *s, const struct head_part *h, uint64_t per,
                   size_t tokens)
{
    uint64_t bytes = sequence_rows_most(s, tokens) * widest(s, h, per) * sizeof(float);

    if (s->across > 1 && bytes > s->most)
        s->most = bytes;
}

int sequence_open(struct sequence *s, struct err *err)
{
    float *packed;
    int ret = s->most ? room(s, s->most / sizeof(*packed), &packed, err) : 0;

    s->grown = 0;
    return ret;
}

int sequence_to_heads(struct sequence *s, const struct head_part *h, uint64_t per,
                      float *y, const float *x, struct err *err)
{
    int base = neighbour(s), me = s->comm->rank - base;
    float *packed;

    if (s->shared || s->across == 1)
        return copy_part(s, OP_HEADS_PACK, h, y, x, err);
    if (room(s, s->count * widest(s, h, per), &packed, err) < 0)
        return -1;
    for (int i = 1; i < s->across; i++) {
        int to = (me + i) % s->across;
        struct head_part part = part_of(s, h, per, to);

        if (copy_part(s, OP_HEADS_PACK, &part, packed, x, err) < 0 ||
            send(s, packed, s->count * heads_cols(&part), base + to, err) < 0)
            return -1;
    }
    for (int i = 0; i < s->across; i++) {
        struct share rows = rows_of(s, base + i);
        float *at = y + (rows.start - s->begin) * heads_cols(h);

        if (i == me ? copy_part(s, OP_HEADS_PACK, h, at, x, err) < 0
                    : receive(s, at, rows.count * heads_cols(h), base + i, err) < 0)
            return -1;
    }
    return 0;
}

int sequence_to_rows(struct sequence *s, const struct head_part *h, uint64_t per,
                     float *y, const float *x, struct err *err)
{
    int base = neighbour(s), me = s->comm->rank - base;
    size_t cols = heads_cols(h);
    float *packed;

    if (s->across == 1)
        return copy_part(s, OP_HEADS_UNPACK, h, y, x, err);
    if (room(s, s->count * widest(s, h, per), &packed, err) < 0)
        return -1;
    for (int i = 1; i < s->across; i++) {
        int to = (me + i) % s->across;
        struct share rows = rows_of(s, base + to);
        size_t first = s->shared ? 0 : rows.start - s->begin;
        size_t count = s->shared ? s->count : rows.count;

        if (send(s, x + first * cols, count * cols, base + to, err) < 0)
            return -1;
    }
    for (int i = 0; i < s->across; i++) {
        struct head_part part = part_of(s, h, per, i);
        const float *own = x + (s->first - s->begin) * cols;

        if (i != me &&
            receive(s, packed, s->count * heads_cols(&part), base + i, err) < 0)
            return -1;
        if (copy_part(s, OP_HEADS_UNPACK, &part, y, i == me ? own : packed, err) < 0)
            return -1;
    }
    return 0;
}

int sequence_collect(struct sequence *s, float *y, const float *x, size_t cols,
                     struct err *err)
{
    if (s->comm->rank > 0)
        return s->comm->ops->send(s->comm, x, s->count * cols * sizeof(*x), 0, err);
    memcpy(y, x, s->count * cols * sizeof(*x));
    for (int r = 1; r < s->comm->size; r++) {
        struct share rows = rows_of(s, r);

        if (s->comm->ops->receive(s->comm, y + rows.start * cols,
                                  rows.count * cols * sizeof(*y), r, err) < 0)
            return -1;
    }
    return 0;
}
