/* sequence - how the ranks of a sequence group share the tokens of a step */
#include "lib/run/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/deal.h"

void sequence_init(struct sequence *s, struct comm *comm, int across)
{
    *s = (struct sequence){ .comm = comm,
                            .across = across,
                            .ring = comm->size / across };
}

/* ---- rows ---- */

static struct share rows_of(const struct sequence *s, int rank)
{
    return deal_units(s->n, 1, s->comm->size, rank);
}

/* The first of this rank's neighbours. */
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

/* The part of rank PART of the neighbours. */
static struct heads part_of(const struct sequence *s, const struct heads *all,
                            uint64_t per, int part)
{
    struct heads h = *all;
    struct share group, within;

    deal_groups(h.groups, per, s->across, part, &group, &within);
    h.group_start = group.start;
    h.group_count = group.count;
    h.within_start = h.within == per ? within.start : 0;
    h.within_count = h.within == per ? within.count : h.within;
    return h;
}

struct heads sequence_heads(const struct sequence *s, uint64_t groups, uint64_t per,
                            uint64_t within, uint64_t dim)
{
    struct heads all = { .groups = groups, .within = within, .dim = dim };

    return part_of(s, &all, per, s->comm->rank % s->across);
}

uint64_t heads_cols(const struct heads *h)
{
    return h->group_count * h->within_count * h->dim;
}

/* Copy the part H of ROWS whole rows to PACKED, or from there when UNPACK. */
static void copy_part(const struct heads *h, float *whole, float *packed, size_t rows,
                      bool unpack)
{
    size_t cols = h->groups * h->within * h->dim, run = h->within_count * h->dim;

    for (size_t i = 0; i < rows; i++)
        for (uint64_t g = 0; g < h->group_count; g++) {
            float *at = whole + i * cols +
                        ((h->group_start + g) * h->within + h->within_start) * h->dim;

            memcpy(unpack ? at : packed, unpack ? packed : at, run * sizeof(*at));
            packed += run;
        }
}

/* ---- exchanges ---- */

static int send(struct sequence *s, const float *x, size_t n, int to, struct err *err)
{
    s->moved += n * sizeof(*x);
    return s->comm->ops->send(s->comm, x, n * sizeof(*x), to, err);
}

static int receive(struct sequence *s, float *x, size_t n, int from, struct err *err)
{
    return s->comm->ops->receive(s->comm, x, n * sizeof(*x), from, err);
}

int sequence_to_heads(struct sequence *s, const struct heads *h, uint64_t per, float *y,
                      const float *x, struct err *err)
{
    int base = neighbour(s), me = s->comm->rank - base, ret = -1;
    float *whole = (float *)(uintptr_t)x, *packed;
    uint64_t bytes;

    if (s->shared || s->across == 1) {
        copy_part(h, whole, y, s->count, false);
        return 0;
    }
    if (!mem_mul(&bytes, s->count, h->groups * h->within * h->dim * sizeof(*x)))
        return err_set(err, ERR_SYSTEM, "an exchange of heads overflows");
    packed = mem_alloc(bytes, "an exchange of heads", err);
    if (!packed)
        return -1;
    for (int i = 1; i < s->across; i++) {
        int to = (me + i) % s->across;
        struct heads part = part_of(s, h, per, to);

        copy_part(&part, whole, packed, s->count, false);
        if (send(s, packed, s->count * heads_cols(&part), base + to, err) < 0)
            goto out;
    }
    for (int i = 0; i < s->across; i++) {
        struct share rows = rows_of(s, base + i);
        float *at = y + (rows.start - s->begin) * heads_cols(h);

        if (i == me)
            copy_part(h, whole, at, s->count, false);
        else if (receive(s, at, rows.count * heads_cols(h), base + i, err) < 0)
            goto out;
    }
    ret = 0;
out:
    free(packed);
    return ret;
}

int sequence_to_rows(struct sequence *s, const struct heads *h, uint64_t per, float *y,
                     const float *x, struct err *err)
{
    int base = neighbour(s), me = s->comm->rank - base, ret = -1;
    size_t cols = heads_cols(h), most = 0;
    float *packed;

    if (s->across == 1) {
        copy_part(h, y, (float *)(uintptr_t)x, s->count, true);
        return 0;
    }
    for (int i = 0; i < s->across; i++) {
        struct heads part = part_of(s, h, per, i);

        most = heads_cols(&part) > most ? heads_cols(&part) : most;
    }
    packed = mem_alloc(s->count * most * sizeof(*x) + 1, "an exchange of rows", err);
    if (!packed)
        return -1;
    for (int i = 1; i < s->across; i++) {
        int to = (me + i) % s->across;
        struct share rows = rows_of(s, base + to);
        size_t first = s->shared ? 0 : rows.start - s->begin;
        size_t count = s->shared ? s->count : rows.count;

        if (send(s, x + first * cols, count * cols, base + to, err) < 0)
            goto out;
    }
    for (int i = 0; i < s->across; i++) {
        struct heads part = part_of(s, h, per, i);
        const float *own = x + (s->first - s->begin) * cols;

        if (i == me)
            memcpy(packed, own, s->count * cols * sizeof(*own));
        else if (receive(s, packed, s->count * heads_cols(&part), base + i, err) < 0)
            goto out;
        copy_part(&part, y, packed, s->count, true);
    }
    ret = 0;
out:
    free(packed);
    return ret;
}

int sequence_collect(struct sequence *s, float *y, const float *x, size_t cols,
                     struct err *err)
{
    if (s->comm->rank > 0)
        return s->comm->ops->send(s->comm, x, s->count * cols * sizeof(*x), 0, err);
    memcpy(y, x, s->count * cols * sizeof(*x));
    for (int r = 1; r < s->comm->size; r++) {
        struct share rows = rows_of(s, r);

        if (receive(s, y + rows.start * cols, rows.count * cols, r, err) < 0)
            return -1;
    }
    return 0;
}
