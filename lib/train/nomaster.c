/* nomaster - updates of weights that are kept in bf16 alone */
#include "lib/train/nomaster.h"

#include <stdlib.h>

#include "lib/base/mem.h"

/* Rows of COLS numbers that are contiguous here, from HERE on, and STRIDE apart in the
 * whole tensor, from WHOLE on. */
struct block {
    uint64_t here, whole, cols, stride, rows;
};

struct blocks {
    struct block *v;
    size_t n, cap;
};

/* Adds N numbers to the last block, if they are its next row or go on with its only
 * one, or as another. */
static void add_run(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    struct blocks *b = arg;
    struct block *last = b->n ? &b->v[b->n - 1] : NULL;

    (void)owned;
    if (last && last->rows == 1 && last->whole + last->cols == whole) {
        last->cols += n;
        return;
    }
    if (last && last->cols == n && last->rows == 1 && whole > last->whole)
        last->stride = whole - last->whole;
    if (last && last->cols == n && last->whole + last->rows * last->stride == whole) {
        last->rows++;
        return;
    }
    b->v = xgrow(b->v, &b->cap, b->n + 1, sizeof(*b->v));
    b->v[b->n++] = (struct block){ here, whole, n, n, 1 };
}

struct update {
    struct parameters *p;
    int i;
    struct blocks blocks;
    struct rounding round;
};

/* Rounds N numbers of the room, elements from AT of the weight, to their place. */
static int round_piece(const struct update *u, uint64_t at, uint64_t n, struct err *err)
{
    struct parameters *p = u->p;
    const struct parameter *row = &p->row[u->i];
    const uint64_t end = at + n;

    for (size_t k = 0; k < u->blocks.n; k++) {
        const struct block *b = &u->blocks.v[k];
        const uint64_t stop = b->here + b->rows * b->cols;
        const uint64_t from = b->here > at ? b->here : at, to = stop < end ? stop : end;
        struct rounding r = u->round;

        if (from >= to)
            continue;
        r.n = to - from;
        r.y = row->own_bf16 + (from - row->first);
        r.x = p->room + (from - at);
        r.first = b->whole;
        r.cols = b->cols;
        r.stride = b->stride;
        r.skip = from - b->here;
        if (p->ops->round(p->device, &r, err) < 0)
            return -1;
    }
    return 0;
}

/* Fills the room with N numbers from AT of what this rank updates. */
static int widen(const struct update *u, uint64_t at, uint64_t n, struct err *err)
{
    const struct array_call c = { .n = n,
                                  .y = u->p->room,
                                  .x = u->p->row[u->i].own_bf16 + at,
                                  .y_format = FORMAT_F32,
                                  .x_format = FORMAT_BF16 };

    return parameters_run(u->p, ARRAY_CAST, &c, err);
}

static int update_piece(const struct update *u, enum array_op op,
                        const struct array_call *c, uint64_t at, uint64_t n, double by,
                        struct err *err)
{
    struct parameters *p = u->p;
    const struct parameter *row = &p->row[u->i];
    struct array_call piece = *c;

    piece.n = n;
    piece.y = p->room;
    piece.x = (const float *)c->x + at;
    for (int k = 0; k < ARRAY_SLOTS; k++)
        piece.slot[k] = c->slot[k] ? c->slot[k] + at : NULL;
    if (widen(u, at, n, err) < 0 || parameters_update(p, op, &piece, err) < 0 ||
        round_piece(u, row->first + at, n, err) < 0)
        return -1;
    if (p->average < 0)
        return 0;
    return widen(u, at, n, err) < 0
               ? -1
               : parameters_average(p, row, p->room, at, n, by, err);
}

int nomaster_update(struct parameters *p, int i, enum array_op op,
                    const struct array_call *c, uint64_t seed, uint64_t t, double by,
                    struct err *err)
{
    /* dropout's random numbers have the seed itself */
    enum { KEY = 0x5ca1ab1e };
    struct update u = { .p = p,
                        .i = i,
                        .round = { .stream = (uint32_t)p->program->weight[i].tensor,
                                   .step = (uint32_t)t,
                                   .key = seed ^ (uint64_t)KEY << 32 } };
    const uint64_t count = p->row[i].count;
    int ret = 0;

    parameters_runs(p, i, add_run, &u.blocks);
    for (uint64_t at = 0, n; at < count && ret == 0; at += n) {
        n = count - at < p->nroom ? count - at : p->nroom;
        ret = update_piece(&u, op, c, at, n, by, err);
    }
    free(u.blocks.v);
    return ret;
}
