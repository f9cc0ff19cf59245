/* attend - the cache of one rank, and attention over it */
#include "lib/run/attend.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* Tokens that are added few at a time go to one set of neighbours after the other, so
 * many to each. */
enum { TURN = 64 };

/* Rows of a sequence that lie together in the cache, and in the sequence. */
struct piece {
    size_t start, count;
};

/* What one rank of the ring keeps of a sequence. */
struct pieces {
    struct piece *v;
    size_t n, cap, rows;
};

struct slot {
    struct heads heads;
    uint64_t per;  /* heads of a group of the queries */
    float *rows;   /* [sequences][capacity][part's columns]; NULL: never read */
    bool read;     /* by some attention */
    size_t window; /* 0, or as many of the last rows are read at most */
    size_t *base;  /* [sequences]: position of the first row; NULL: 0 */
};

struct attend {
    const struct program *p;
    struct sequence *s;
    const struct backend *ops;
    struct device *device;
    size_t capacity, sequences; /* rows of a sequence */
    size_t step_most;           /* of a step */
    size_t source_most;         /* and of its source */
    size_t *source;             /* [sequences]: rows that it has */
    struct slot *slot;          /* [p->nslots] */
    struct pieces *pieces;      /* [sequences][ring]; used when there is a ring */
    size_t sequence, start;     /* of the present step */
    int32_t *position;          /* [gathered] */
    float *q, *y;               /* [gathered][columns], of the part */
    float *k, *v;               /* not kept: [gathered]; and what comes round */
    float *partial;             /* like y, of one piece */
    float *lse, *partial_lse;   /* [gathered][heads] */
    uint64_t cache_bytes, scratch_bytes;
};

static bool alone(const struct attend *a)
{
    return a->s->comm->size == 1;
}

/* ---- opening ---- */

/* Heads of a group of the queries. */
static uint64_t per_of(const struct inst *inst)
{
    return inst->attention.kv_heads ? inst->attention.heads / inst->attention.kv_heads
                                    : 0;
}

/* What the attention INST makes of queries (side 0), keys (1) and values (2). */
static struct heads heads_of(const struct attend *a, const struct inst *inst, int side)
{
    uint64_t per = per_of(inst);

    return sequence_heads(a->s, inst->attention.kv_heads, per, side ? 1 : per,
                          side == 2 ? inst->attention.value_cols
                                    : inst->attention.head_dim);
}

/* Its result: the queries' heads with the values' columns. */
static struct heads result_of(const struct attend *a, const struct inst *inst)
{
    struct heads h = heads_of(a, inst, 0);

    h.dim = inst->attention.value_dim;
    return h;
}

/* Rows that a rank may have to keep of a sequence.  A step that is dealt adds at most
 * one row a rank above the mean; steps that are not go round by turns. */
static size_t capacity_of(const struct attend *a, const struct attend_limits *l)
{
    size_t ring = (size_t)a->s->ring, most;

    if (ring == 1)
        return l->context;
    most = l->context / ring +
           (l->context / (l->tokens + !l->tokens) + 2) * (size_t)a->s->across + TURN +
           (size_t)a->s->comm->size;
    return most < l->context ? most : l->context;
}

/* The slot that side SIDE of INST is kept in, or NULL. */
static struct slot *slot_of(const struct attend *a, const struct inst *inst, int side)
{
    const struct value *v = &a->p->value[inst->src[side]];

    return v->kept ? &a->slot[a->p->inst[v->first].keep.slot] : NULL;
}

/* The heads of what each slot keeps are known to the attention that reads it. */
static int find_slots(struct attend *a, struct err *err)
{
    const struct program *p = a->p;

    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];

        if (inst->op != OP_ATTENTION)
            continue;
        if (!alone(a) && (p->source || inst->weight >= 0))
            return err_set(err, ERR_NO, "ranks cannot share the sequences of family %s",
                           p->model->family);
        if (!alone(a) && (uint64_t)a->s->across > inst->attention.heads)
            return err_set(
                err, ERR_NO,
                "%d ranks that share a sequence cannot exchange the %llu heads "
                "of a rank: a ring can be longer",
                a->s->across, (unsigned long long)inst->attention.heads);
        for (int side = 1; side < 3; side++) {
            struct slot *s = slot_of(a, inst, side);

            if (!s)
                continue;
            s->heads = heads_of(a, inst, side);
            s->per = per_of(inst);
        }
    }
    return 0;
}

/* Which slots are read through a window alone, the same for keys and values. */
static void find_windows(struct attend *a)
{
    bool changed = true;

    for (int i = 0; i < a->p->ninsts; i++) {
        const struct inst *inst = &a->p->inst[i];
        bool slides = inst->op == OP_ATTENTION && alone(a) && inst->attention.causal;

        for (int side = 1; inst->op == OP_ATTENTION && side < 3; side++) {
            struct slot *s = slot_of(a, inst, side);
            size_t window = slides ? inst->attention.window : 0;

            if (!s)
                continue;
            if (!s->read || !window || (s->window && window > s->window))
                s->window = window;
            s->read = true;
        }
    }
    while (changed) {
        changed = false;
        for (int i = 0; i < a->p->ninsts; i++) {
            const struct inst *inst = &a->p->inst[i];
            struct slot *k, *v;

            if (inst->op != OP_ATTENTION)
                continue;
            k = slot_of(a, inst, 1);
            v = slot_of(a, inst, 2);
            if ((k ? k->window : 0) == (v ? v->window : 0))
                continue;
            if (k)
                k->window = 0;
            if (v)
                v->window = 0;
            changed = true;
        }
    }
}

/* Rows that slot SLOT has room for, of each sequence: where a window slides what the
 * first row of a step sees and the step, or as many short ones that rows are seldom
 * moved. */
static size_t slot_rows(const struct attend *a, int slot)
{
    size_t window = a->slot[slot].window, more = window / 8 + 1;

    if (a->p->value[a->p->slot_value[slot]].rows == ROWS_SOURCE)
        return a->source_most;
    more = more > a->step_most ? more : a->step_most;
    return window && more < a->capacity && window - 1 < a->capacity - more
               ? window - 1 + more
               : a->capacity;
}

/* Columns of a row that slot SLOT keeps. */
static uint64_t slot_cols(const struct attend *a, int slot)
{
    return alone(a) ? a->p->value[a->p->slot_value[slot]].cols
                    : heads_cols(&a->slot[slot].heads);
}

static int open_cache(struct attend *a, struct err *err)
{
    const struct program *p = a->p;

    for (int i = 0; i < p->nslots; i++) {
        uint64_t bytes;

        if (p->value[p->slot_value[i]].first < 0)
            continue;
        if (!mem_mul(&bytes, slot_rows(a, i), slot_cols(a, i)) ||
            !mem_mul(&bytes, bytes, sizeof(float)) ||
            !mem_mul(&bytes, bytes, a->sequences))
            return err_set(err, ERR_SYSTEM, "the cache overflows");
        a->slot[i].rows = mem_alloc(bytes, "the cache", err);
        if (!a->slot[i].rows)
            return -1;
        if (a->slot[i].window)
            a->slot[i].base = xcalloc(a->sequences + 1, sizeof(*a->slot[i].base));
        a->cache_bytes += bytes;
    }
    return 0;
}

/* N rows of COLS floats for *OUT, unless COLS is 0. */
static int open_rows(struct attend *a, float **out, size_t n, uint64_t cols,
                     struct err *err)
{
    uint64_t bytes;

    if (!cols)
        return 0;
    if (!mem_mul(&bytes, n, cols) || !mem_mul(&bytes, bytes, sizeof(float)))
        return err_set(err, ERR_SYSTEM, "the exchange of rows overflows");
    *out = mem_alloc(bytes, "the exchange of rows", err);
    a->scratch_bytes += bytes;
    return *out ? 0 : -1;
}

static int open_scratch(struct attend *a, const struct attend_limits *l,
                        struct err *err)
{
    size_t rows = sequence_gathered_most(a->s, l->tokens), keys = rows;
    size_t positions = rows > l->source ? rows : l->source;
    uint64_t most[3] = { 0 }, result = 0, heads = 0;
    bool around = a->s->ring > 1;

    if (around && a->capacity > keys)
        keys = a->capacity;
    for (int i = 0; i < a->p->ninsts; i++) {
        const struct inst *inst = &a->p->inst[i];

        if (inst->op != OP_ATTENTION)
            continue;
        for (int side = 0; side < 3; side++) {
            struct heads h = heads_of(a, inst, side);
            bool kept = side && a->p->value[inst->src[side]].kept;

            if (!alone(a) && (!kept || around) && heads_cols(&h) > most[side])
                most[side] = heads_cols(&h);
        }
        if (!alone(a)) {
            struct heads h = result_of(a, inst);

            result = heads_cols(&h) > result ? heads_cols(&h) : result;
            heads = h.group_count * h.within_count > heads
                        ? h.group_count * h.within_count
                        : heads;
        }
    }
    a->position = xcalloc(positions + 1, sizeof(*a->position));
    return open_rows(a, &a->q, rows, most[0], err) < 0 ||
                   open_rows(a, &a->k, keys, most[1], err) < 0 ||
                   open_rows(a, &a->v, keys, most[2], err) < 0 ||
                   open_rows(a, &a->y, rows, result, err) < 0 ||
                   open_rows(a, &a->partial, rows, around ? result : 0, err) < 0 ||
                   open_rows(a, &a->lse, rows, around ? heads : 0, err) < 0 ||
                   open_rows(a, &a->partial_lse, rows, around ? heads : 0, err) < 0
               ? -1
               : 0;
}

int attend_open(struct attend **out, const struct program *p, struct sequence *s,
                const struct backend *ops, struct device *device,
                const struct attend_limits *limits, struct err *err)
{
    struct attend *a = xcalloc(1, sizeof(*a));

    a->p = p;
    a->s = s;
    a->ops = ops;
    a->device = device;
    a->sequences = limits->sequences;
    a->capacity = capacity_of(a, limits);
    a->step_most = limits->tokens;
    a->source_most = limits->source;
    a->source = xcalloc(a->sequences + 1, sizeof(*a->source));
    a->slot = xcalloc((size_t)p->nslots + 1, sizeof(*a->slot));
    a->pieces = xcalloc(a->sequences * (size_t)s->ring + 1, sizeof(*a->pieces));
    find_windows(a);
    if (find_slots(a, err) < 0 || open_cache(a, err) < 0 ||
        open_scratch(a, limits, err) < 0) {
        attend_free(a);
        return -1;
    }
    *out = a;
    return 0;
}

void attend_free(struct attend *a)
{
    if (!a)
        return;
    for (int i = 0; i < a->p->nslots; i++) {
        free(a->slot[i].rows);
        free(a->slot[i].base);
    }
    for (size_t i = 0; i < a->sequences * (size_t)a->s->ring; i++)
        free(a->pieces[i].v);
    free(a->slot);
    free(a->pieces);
    free(a->source);
    free(a->position);
    free(a->q);
    free(a->y);
    free(a->k);
    free(a->v);
    free(a->partial);
    free(a->lse);
    free(a->partial_lse);
    free(a);
}

uint64_t attend_cache_bytes(const struct attend *a)
{
    return a->cache_bytes;
}

uint64_t attend_scratch_bytes(const struct attend *a)
{
    return a->scratch_bytes;
}

/* ---- the cache ---- */

/* What rank RING of the ring keeps of the present sequence. */
static struct pieces *pieces_of(const struct attend *a, int ring)
{
    return &a->pieces[a->sequence * (size_t)a->s->ring + (size_t)ring];
}

static int own_place(const struct attend *a)
{
    return a->s->comm->rank / a->s->across;
}

static void add_piece(struct pieces *p, size_t start, size_t count)
{
    struct piece *last = p->n ? &p->v[p->n - 1] : NULL;

    p->rows += count;
    if (last && last->start + last->count == start) {
        last->count += count;
        return;
    }
    p->v = xgrow(p->v, &p->cap, p->n + 1, sizeof(*p->v));
    p->v[p->n++] = (struct piece){ start, count };
}

void attend_begin(struct attend *a, size_t sequence, size_t start, size_t source)
{
    const struct sequence *s = a->s;

    if (start == 0)
        a->source[sequence] = source;
    a->sequence = sequence;
    a->start = start;
    for (int r = 0; r < s->ring && s->ring > 1; r++) {
        struct pieces *p = pieces_of(a, r);

        if (start == 0)
            p->n = p->rows = 0;
        if (s->shared && start / TURN % (size_t)s->ring == (size_t)r) {
            add_piece(p, start, s->n);
        } else if (!s->shared) {
            size_t first, count;

            sequence_place(s, r, &first, &count);
            add_piece(p, start + first, count);
        }
    }
}

/* The rows that slot SLOT keeps of the present sequence. */
static float *kept_rows(const struct attend *a, int slot)
{
    return a->slot[slot].rows + a->sequence * slot_rows(a, slot) * slot_cols(a, slot);
}

/* Make room for the step in slot SLOT, of whose rows ROWS the oldest are not seen any
 * more. */
static void slide(struct attend *a, int slot, float *rows)
{
    const struct slot *s = &a->slot[slot];
    size_t *base = &s->base[a->sequence], room = slot_rows(a, slot);
    size_t cols = slot_cols(a, slot), seen = s->window - 1;

    if (a->start == 0)
        *base = 0;
    assert(a->start >= *base && a->start <= *base + room); /* steps follow each other */
    if (a->start + a->s->n <= *base + room)
        return;
    memmove(rows, rows + (a->start - seen - *base) * cols, seen * cols * sizeof(*rows));
    *base = a->start - seen;
}

int attend_keep(struct attend *a, const struct inst *inst, const float *x,
                struct err *err)
{
    const struct slot *slot = &a->slot[inst->keep.slot];
    size_t cols = a->p->value[inst->dst].cols, row = a->start + a->s->begin;
    float *rows = kept_rows(a, inst->keep.slot);

    if (a->p->value[inst->dst].rows == ROWS_SOURCE) {
        memcpy(rows, x, a->source[a->sequence] * cols * sizeof(*x));
        return 0;
    }
    if (slot->base) {
        slide(a, inst->keep.slot, rows);
        row -= slot->base[a->sequence];
    }
    if (alone(a)) {
        memcpy(rows + row * cols, x, a->s->n * cols * sizeof(*x));
        return 0;
    }
    if (a->s->ring > 1) {
        if (a->s->shared &&
            a->start / TURN % (size_t)a->s->ring != (size_t)own_place(a))
            return 0;
        row = pieces_of(a, own_place(a))->rows - a->s->gathered;
    }
    return sequence_to_heads(a->s, &slot->heads, slot->per,
                             rows + row * heads_cols(&slot->heads), x, err);
}

/* ---- attention ---- */

/* INST for the part of the heads. */
static struct inst part_inst(const struct attend *a, const struct inst *inst)
{
    struct heads h = heads_of(a, inst, 0);
    struct inst part = *inst;

    part.attention.heads = h.group_count * h.within_count;
    part.attention.kv_heads = h.group_count;
    part.attention.group_start += h.group_start;
    part.attention.groups = h.group_count;
    part.attention.within_start += h.within_start;
    part.attention.within = h.within_count;
    return part;
}

/* y, lse = those over the keys of both (y, lse) and (z, more): each is a mean weighted
 * by the exponentials that lse is the logarithm of the sum of. */
static void merge(float *y, float *lse, const float *z, const float *more, size_t heads,
                  size_t dim)
{
    for (size_t i = 0; i < heads; i++) {
        float most = lse[i] > more[i] ? lse[i] : more[i], f, g;

        if (more[i] == -INFINITY)
            continue;
        f = expf(lse[i] - most);
        g = expf(more[i] - most);
        for (size_t k = 0; k < dim; k++)
            y[i * dim + k] = (f * y[i * dim + k] + g * z[i * dim + k]) / (f + g);
        lse[i] = most + logf(f + g);
    }
}

/* Attention of the queries to one piece after the other, merged into a->y. */
static int attend_pieces(struct attend *a, const struct inst *part,
                         const struct pieces *p, const float *k, const float *v,
                         struct err *err)
{
    size_t heads = part->attention.heads, dim = part->attention.value_dim;
    size_t k_cols = part->attention.kv_heads * part->attention.head_dim;
    size_t v_cols = part->attention.kv_heads * part->attention.value_cols, row = 0;

    for (size_t i = 0; i < p->n; i++) {
        struct attention_step step = { .rows = a->s->gathered,
                                       .keys = p->v[i].count,
                                       .first_key = p->v[i].start,
                                       .position = a->position,
                                       .k = k + row * k_cols,
                                       .v = v + row * v_cols,
                                       .lse = a->partial_lse };

        if (a->ops->attention(a->device, a->partial, a->q, part, &step, err) < 0)
            return -1;
        merge(a->y, a->lse, a->partial, a->partial_lse, step.rows * heads, dim);
        row += p->v[i].count;
    }
    return 0;
}

/* N floats at X to the next rank of the ring. */
static int pass_on(struct attend *a, const float *x, size_t n, struct err *err)
{
    struct comm *c = a->s->comm;

    a->s->moved += n * sizeof(*x);
    return c->ops->send(c, x, n * sizeof(*x), (c->rank + a->s->across) % c->size, err);
}

static int take_over(struct attend *a, float *x, size_t n, struct err *err)
{
    struct comm *c = a->s->comm;

    return c->ops->receive(c, x, n * sizeof(*x),
                           (c->rank + c->size - a->s->across) % c->size, err);
}

/* The keys and values of all ranks of the ring come round, this one's first. */
static int attend_around(struct attend *a, const struct inst *part,
                         const struct pieces *all, const float *k, const float *v,
                         struct err *err)
{
    size_t k_cols = part->attention.kv_heads * part->attention.head_dim;
    size_t v_cols = part->attention.kv_heads * part->attention.value_cols;
    int ring = a->s->ring, at = own_place(a);

    for (int i = 0; i < ring; i++) {
        const struct pieces *now = &all[at];

        if (i < ring - 1 && (pass_on(a, k, now->rows * k_cols, err) < 0 ||
                             pass_on(a, v, now->rows * v_cols, err) < 0))
            return -1;
        if (attend_pieces(a, part, now, k, v, err) < 0)
            return -1;
        at = (at + ring - 1) % ring;
        if (i < ring - 1 && (take_over(a, a->k, all[at].rows * k_cols, err) < 0 ||
                             take_over(a, a->v, all[at].rows * v_cols, err) < 0))
            return -1;
        k = a->k;
        v = a->v;
    }
    return 0;
}

/* All ranks of the ring have the queries: each attends to what it keeps, and the
 * results are merged in the order of the ring, the same on every rank. */
static int attend_shared(struct attend *a, const struct inst *part,
                         const struct pieces *all, const float *k, const float *v,
                         struct err *err)
{
    struct comm *c = a->s->comm;
    size_t n = a->s->n * part->attention.heads, dim = part->attention.value_dim;
    int ring = a->s->ring, own = own_place(a);
    float *result, *lse;

    if (attend_pieces(a, part, &all[own], k, v, err) < 0)
        return -1;
    for (int i = 1; i < ring; i++) {
        int to = (c->rank + i * a->s->across) % c->size;

        a->s->moved += n * (dim + 1) * sizeof(float);
        if (c->ops->send(c, a->y, n * dim * sizeof(float), to, err) < 0 ||
            c->ops->send(c, a->lse, n * sizeof(float), to, err) < 0)
            return -1;
    }
    result = xcalloc(n * (dim + 1) + 1, sizeof(*result));
    lse = result + n * dim;
    for (size_t i = 0; i < n; i++)
        lse[i] = -INFINITY;
    for (int i = 0; i < ring; i++) {
        int from = c->rank % a->s->across + i * a->s->across;
        float *y = i == own ? a->y : a->partial;
        float *more = i == own ? a->lse : a->partial_lse;

        if (i != own &&
            (c->ops->receive(c, y, n * dim * sizeof(float), from, err) < 0 ||
             c->ops->receive(c, more, n * sizeof(float), from, err) < 0)) {
            free(result);
            return -1;
        }
        merge(result, lse, y, more, n, dim);
    }
    memcpy(a->y, result, n * dim * sizeof(float));
    free(result);
    return 0;
}

/* Over the ring: from a->q to a->y. */
static int attend_ring(struct attend *a, const struct inst *part, const float *k,
                       const float *v, bool kept, struct err *err)
{
    size_t n = a->s->gathered * part->attention.heads;
    int ring = a->s->ring, own = own_place(a), ret;
    struct pieces *own_rows = NULL;
    struct piece *piece = NULL;

    memset(a->y, 0, n * part->attention.value_dim * sizeof(*a->y));
    for (size_t i = 0; i < n; i++)
        a->lse[i] = -INFINITY;
    if (kept)
        return a->s->shared ? attend_shared(a, part, pieces_of(a, 0), k, v, err)
                            : attend_around(a, part, pieces_of(a, 0), k, v, err);
    own_rows = xcalloc((size_t)ring, sizeof(*own_rows));
    piece = xcalloc((size_t)ring, sizeof(*piece));
    for (int r = 0; r < ring; r++) {
        if (a->s->shared)
            piece[r] = (struct piece){ 0, a->s->n };
        else
            sequence_place(a->s, r, &piece[r].start, &piece[r].count);
        own_rows[r] = (struct pieces){ .v = &piece[r], .n = 1, .rows = piece[r].count };
    }
    ret = a->s->shared ? attend_pieces(a, part, &own_rows[own], k, v, err)
                       : attend_around(a, part, own_rows, k, v, err);
    free(own_rows);
    free(piece);
    return ret;
}

/* This rank's part of the keys (side 1) or values (2) of INST: what is kept, or X
 * exchanged. */
static int take_side(struct attend *a, const struct inst *inst, int side,
                     const float *x, float *room, const float **out, struct err *err)
{
    const struct slot *slot = slot_of(a, inst, side);
    struct heads h;

    if (slot) {
        *out = kept_rows(a, (int)(slot - a->slot));
        return 0;
    }
    *out = alone(a) ? x : room;
    if (alone(a))
        return 0;
    h = heads_of(a, inst, side);
    return sequence_to_heads(a->s, &h, per_of(inst), room, x, err);
}

/* Rows of queries and keys: of tokens or of the source. */
static struct attention_step step_of(struct attend *a, const struct inst *inst)
{
    const struct value *q = &a->p->value[inst->src[0]], *k = &a->p->value[inst->src[1]];
    size_t source = a->source[a->sequence], first = a->start + a->s->begin;
    const struct slot *keys = slot_of(a, inst, 1);
    size_t base = keys && keys->base ? keys->base[a->sequence] : 0;
    struct attention_step step = {
        .rows = q->rows == ROWS_SOURCE ? source : a->s->gathered,
        .keys = k->rows == ROWS_SOURCE ? source
                : k->kept              ? a->start + a->s->n - base
                                       : a->s->n,
        .first_key = base,
        .position = a->position,
    };

    for (size_t i = 0; i < step.rows; i++)
        a->position[i] = (int32_t)(i + (q->rows == ROWS_SOURCE ? 0 : first));
    return step;
}

int attend_run(struct attend *a, const struct inst *inst, const struct matrix *bias,
               float *y, const float *q, const float *k, const float *v,
               struct err *err)
{
    bool kept = a->p->value[inst->src[1]].kept;
    struct attention_step step = step_of(a, inst);
    struct inst part;
    struct heads h;

    if (take_side(a, inst, 1, k, a->k, &step.k, err) < 0 ||
        take_side(a, inst, 2, v, a->v, &step.v, err) < 0)
        return -1;
    step.bias = bias;
    if (alone(a))
        return a->ops->attention(a->device, y, q, inst, &step, err);
    part = part_inst(a, inst);
    h = heads_of(a, inst, 0);
    if (sequence_to_heads(a->s, &h, per_of(inst), a->q, q, err) < 0)
        return -1;
    if (a->s->ring == 1
            ? a->ops->attention(a->device, a->y, a->q, &part, &step, err) < 0
            : attend_ring(a, &part, step.k, step.v, kept, err) < 0)
        return -1;
    h = result_of(a, inst);
    return sequence_to_rows(a->s, &h, per_of(inst), y, a->y, err);
}
