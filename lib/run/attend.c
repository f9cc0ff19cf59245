/* attend - the KV cache of one rank, and attention over it */
#include "lib/run/attend.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* Steps with few tokens are not divided over the ring: each set of neighbours in turn
 * caches TURN tokens. */
enum { TURN = 64 };
/* most_keys is rounded up to a multiple of this, so that consecutive steps share a
 * shape. */
enum { KEYS_STEP = 256 };
enum { SCRATCHES = 16 }; /* buffers for rows that are exchanged */

/* A range of rows that are contiguous in the cache and in the sequence. */
struct piece {
    size_t start, count;
};

/* The part of a sequence that one rank of the ring caches. */
struct pieces {
    struct piece *v;
    size_t n, cap, rows;
};

/* Ranges of the current step, in device memory. */
struct set {
    size_t at, n; /* at: offset in the upload */
    size_t most_rows, most_keys;
    const struct range *v;
};

struct attend {
    const struct program *p;
    struct sequence *s, *from; /* sharing of the text's tokens, and of the encoder's */
    struct link *link;
    struct cache cache;
    size_t *source;        /* [sequences]: rows of the encoder input */
    struct pieces *pieces; /* [sequences][ring]; only with a ring */
    float *q, *y;          /* [gathered][columns] of this rank's heads */
    float *k, *v;          /* not cached: [gathered]; and blocks received in the ring */
    float *kept;           /* rows to append to the cache */
    float *partial;        /* like y, for one piece */
    float *lse, *partial_lse, *all_lse; /* [gathered][heads] */
    float *all;                         /* like y */
    float *back;  /* of the reverse: the gradients of this rank's heads, [gathered] */
    float *side;  /* one of them, of these heads, and */
    float *whole; /* of all, [count] */
    float *keys;  /* with a ring: the gradients of the keys and values that are here, */
    float *d;     /* and that of the result, like y */
    struct scratch { /* where these are set, and their bytes */
        float **to;
        uint64_t bytes;
    } scratch[SCRATCHES];
    int nscratch;
    size_t most_pieces; /* of a rank's part of a sequence, in the largest step */
    /* the current step */
    size_t sequence;
    struct set *group;                 /* [cache.ngroups]: queries and cached keys */
    struct set kept_source;            /* appended rows of encoder inputs */
    struct set self, source_self;      /* over the step's own rows */
    struct set across;                 /* of its rows, over those of the encoder */
    struct set none;                   /* over no keys */
    struct set *ring_kept, *ring_self; /* [ring]: a range for each piece; in training
                                        * ring_self is [ring][ROWS_RUNS] */
    size_t room;                       /* as in attend_begin */
    size_t token_at[2];       /* offsets of step_view.token of the gathered rows, and */
    const uint64_t *token[2]; /* these, of the text and the source; in training */
    size_t most_rows[2];      /* most such rows */
    struct step_view view;    /* of the gathered rows */
    size_t rows_at; /* offset of two counts for each of S and FROM: this rank's rows,
                     * and gathered rows */
    uint64_t context;
};

static bool alone(const struct attend *a)
{
    return a->s->comm->size == 1;
}

/* ---- opening ---- */

/* Query heads per KV head. */
static uint64_t per_of(const struct inst *inst)
{
    return inst->attention.kv_heads ? inst->attention.heads / inst->attention.kv_heads
                                    : 0;
}

/* The heads of this rank in the queries (side 0), keys (1) or values (2) of INST. */
static struct head_part heads_of(const struct attend *a, const struct inst *inst,
                                 int side)
{
    uint64_t per = per_of(inst);

    return sequence_heads(a->s, inst->attention.kv_heads, per, side ? 1 : per,
                          side == 2 ? inst->attention.value_cols
                                    : inst->attention.head_dim);
}

/* The heads of INST's result; a head has value_dim columns. */
static struct head_part result_of(const struct attend *a, const struct inst *inst)
{
    struct head_part h = heads_of(a, inst, 0);

    h.dim = inst->attention.value_dim;
    return h;
}

/* How the rows of value V are shared. */
static struct sequence *shared_as(const struct attend *a, int v)
{
    return a->p->value[v].rows == ROWS_SOURCE ? a->from : a->s;
}

/* The maximum number of rows of a sequence that a rank caches.  A divided step gives a
 * rank at most one row more than the mean; other steps go to the ranks in turn. */
static size_t capacity_of(const struct attend *a, const struct cache_limits *l)
{
    size_t ring = (size_t)a->s->ring, most;

    if (ring == 1)
        return l->context;
    most = l->context / ring +
           (l->context / (l->tokens + !l->tokens) + 2) * (size_t)a->s->across + TURN +
           (size_t)a->s->comm->size;
    return most < l->context ? most : l->context;
}

/* The attention that reads the cached value KEPT, and as which side; or NULL. */
static const struct inst *reader_of(const struct program *p, int kept, int *side)
{
    for (int i = 0; i < p->ninsts; i++)
        for (*side = 1; op_table[p->inst[i].op].role == ROLE_ATTENDS && *side < 3;
             ++*side)
            if (p->inst[i].src[*side] == kept)
                return &p->inst[i];
    return NULL;
}

static int check_sharing(const struct attend *a, struct err *err)
{
    const struct program *p = a->p;

    for (int i = 0; i < p->ninsts && !alone(a); i++) {
        const struct inst *inst = &p->inst[i];
        enum op_role role = op_table[inst->op].role;

        if (role == ROLE_TEXT || role == ROLE_STATE ||
            (role == ROLE_ATTENDS && inst->op != OP_ATTENTION))
            return err_set(err, ERR_NO, "ranks cannot share the sequences of family %s",
                           p->model->family);
        if (inst->op != OP_ATTENTION)
            continue;
        if ((p->source || inst->attention.block) && a->s->ring > 1)
            return err_set(err, ERR_NO,
                           "a ring of ranks cannot share the sequences of family %s: "
                           "--sp-mode ulysses",
                           p->model->family);
        if ((uint64_t)a->s->across > inst->attention.heads)
            return err_set(
                err, ERR_NO,
                "%d ranks that share a sequence cannot exchange the %llu heads "
                "of a rank%s",
                a->s->across, (unsigned long long)inst->attention.heads,
                p->source ? "" : ": a ring can be longer");
    }
    return 0;
}

/* For each slot, the columns of a row on this rank and the columns of one head. */
static void find_cols(const struct attend *a, uint64_t *cols, uint64_t *width)
{
    for (int i = 0; i < a->p->nslots; i++) {
        int side, v = a->p->slot_value[i];
        const struct inst *inst = reader_of(a->p, v, &side);

        cols[i] = width[i] = a->p->value[v].cols;
        if (inst && !alone(a)) {
            struct head_part h = heads_of(a, inst, side);

            cols[i] = heads_cols(&h);
        }
        if (inst)
            width[i] =
                side == 2 ? inst->attention.value_cols : inst->attention.head_dim;
        if (!width[i] || cols[i] % width[i])
            width[i] = cols[i] + !cols[i];
    }
}

/* *out will be N rows of COLS floats, unless COLS is 0. */
static int plan_rows(struct attend *a, float **out, size_t n, uint64_t cols,
                     struct err *err)
{
    uint64_t bytes;

    if (!cols)
        return 0;
    if (!mem_mul(&bytes, n, cols) || !mem_mul(&bytes, bytes, sizeof(float)))
        return err_set(err, ERR_SYSTEM, "the size of the exchange buffers overflows");
    a->scratch[a->nscratch++] = (struct scratch){ out, bytes };
    return 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The gradients that OP_ATTENTION_BACK makes side by side: of q, k and v, and of what
 * is added to the scores. */
enum { BACK_PARTS = 4 };

struct back_part {
    struct head_part heads;
    uint64_t here, cols; /* columns of this rank's heads, and of all, */
    uint64_t first;      /* from this one of the result on */
    bool alike;          /* each rank has a term of all columns */
};

/* The parts of INST's result; returns their number. */
static int back_parts(const struct attend *a, const struct inst *inst,
                      struct back_part part[BACK_PARTS])
{
    const int from = inst->attention.gradients == GRADIENTS_KEYS;
    const int end = inst->attention.gradients == GRADIENTS_QUERIES ? 1 : 3;
    uint64_t left = a->p->value[inst->dst].cols;
    int n = 0;

    for (int side = from; side < end; side++, n++) {
        part[n] = (struct back_part){ .heads = heads_of(a, inst, side) };
        part[n].cols = part[n].heads.groups * part[n].heads.within * part[n].heads.dim;
        part[n].here = heads_cols(&part[n].heads);
        part[n].first = a->p->value[inst->dst].cols - left;
        left -= part[n].cols;
    }
    if (!left)
        return n;
    part[n] = (struct back_part){ .heads = heads_of(a, inst, 0),
                                  .cols = left,
                                  .first = a->p->value[inst->dst].cols - left,
                                  .alike = !inst->attention.sinks };
    part[n].heads.dim = 1;
    if (part[n].alike)
        part[n].heads = (struct head_part){ .groups = 1,
                                            .within = left,
                                            .dim = 1,
                                            .group_count = 1,
                                            .within_count = left };
    part[n].here = heads_cols(&part[n].heads);
    return n + 1;
}

/* The heads that neighbours exchange in the largest step. */
static void plan_exchange(struct attend *a, const struct cache_limits *l)
{
    for (int i = 0; i < a->p->ninsts; i++) {
        const struct inst *inst = &a->p->inst[i];

        for (int side = 0; side < 4 && inst->op == OP_ATTENTION; side++) {
            bool source =
                a->p->value[side < 3 ? inst->src[side] : inst->dst].rows == ROWS_SOURCE;
            struct head_part h =
                side < 3 ? heads_of(a, inst, side) : result_of(a, inst);

            sequence_plan(source ? a->from : a->s, &h, per_of(inst),
                          source ? l->source : l->tokens);
        }
        if (inst->op == OP_ATTENTION_BACK) {
            struct back_part part[BACK_PARTS];
            int n = back_parts(a, inst, part);

            for (int k = 0; k < n; k++)
                sequence_plan_sum(shared_as(a, inst->dst), &part[k].heads, per_of(inst),
                                  part[k].alike,
                                  shared_as(a, inst->dst) == a->from ? l->source
                                                                     : l->tokens);
        }
    }
}

/* The room of OP_ATTENTION_BACK, of which a rank has at most ROWS. */
static int plan_back(struct attend *a, size_t rows, struct err *err)
{
    uint64_t all = 0, side = 0, whole = 0, keys = 0, d = 0;
    const bool around = a->s->ring > 1;

    for (int i = a->p->nforward; i < a->p->ninsts; i++) {
        const struct inst *inst = &a->p->inst[i];
        struct back_part part[BACK_PARTS];
        uint64_t cols = 0;
        int n;

        if (inst->op != OP_ATTENTION_BACK)
            continue;
        n = back_parts(a, inst, part);
        if (around) {
            const struct head_part h = result_of(a, inst);

            d = larger(d, heads_cols(&h));
            keys = larger(keys, part[1].here + part[2].here);
        }
        for (int k = 0; k < n; k++) {
            cols += part[k].here;
            side = larger(side, part[k].here);
            whole = larger(whole, part[k].cols);
        }
        all = larger(all, cols);
    }
    return plan_rows(a, &a->back, rows, all, err) < 0 ||
                   plan_rows(a, &a->side, rows, side, err) < 0 ||
                   plan_rows(a, &a->whole, rows, whole, err) < 0 ||
                   plan_rows(a, &a->keys, rows, keys, err) < 0 ||
                   plan_rows(a, &a->d, rows, d, err) < 0
               ? -1
               : 0;
}

static int plan_scratch(struct attend *a, const struct cache_limits *l, size_t capacity,
                        struct err *err)
{
    size_t rows = larger(sequence_gathered_most(a->s, l->tokens),
                         sequence_gathered_most(a->from, l->source));
    size_t keys = rows;
    uint64_t most[3] = { 0 }, kept = 0, result = 0, heads = 0;
    bool around = a->s->ring > 1;

    if (alone(a))
        return 0;
    plan_exchange(a, l);
    if (around && capacity > keys)
        keys = capacity;
    for (int i = 0; i < a->p->ninsts; i++) {
        const struct inst *inst = &a->p->inst[i];
        struct head_part h;

        if (inst->op != OP_ATTENTION)
            continue;
        for (int side = 0; side < 3; side++) {
            bool is_kept = side && a->p->value[inst->src[side]].kept;

            h = heads_of(a, inst, side);
            if (!is_kept || around)
                most[side] = larger(most[side], heads_cols(&h));
            if (is_kept)
                kept = larger(kept, heads_cols(&h));
        }
        h = result_of(a, inst);
        result = larger(result, heads_cols(&h));
        heads = larger(heads, h.group_count * h.within_count);
    }
    return plan_back(a, rows, err) < 0 || plan_rows(a, &a->q, rows, most[0], err) < 0 ||
                   plan_rows(a, &a->k, keys, most[1], err) < 0 ||
                   plan_rows(a, &a->v, keys, most[2], err) < 0 ||
                   plan_rows(a, &a->kept, rows, kept, err) < 0 ||
                   plan_rows(a, &a->y, rows, result, err) < 0 ||
                   plan_rows(a, &a->partial, rows, around ? result : 0, err) < 0 ||
                   plan_rows(a, &a->all, rows, around ? result : 0, err) < 0 ||
                   plan_rows(a, &a->lse, rows, around ? heads : 0, err) < 0 ||
                   plan_rows(a, &a->partial_lse, rows, around ? heads : 0, err) < 0 ||
                   plan_rows(a, &a->all_lse, rows, around ? heads : 0, err) < 0
               ? -1
               : 0;
}

/* Pieces of a sequence that a rank of the ring caches: one for each step that is
 * divided, which are as long as they can be but for the last of a prompt, and one for
 * each TURN. */
static size_t pieces_most(const struct cache_limits *l)
{
    size_t most = l->context / (l->tokens + !l->tokens) + l->context / TURN + 4;

    return most < l->context ? most : l->context;
}

int attend_plan(struct attend **out, const struct program *p, struct sequence *s,
                struct sequence *from, struct link *link,
                const struct cache_limits *limits, struct err *err)
{
    struct attend *a = xcalloc(1, sizeof(*a));
    struct cache_limits own = *limits;
    size_t ring = (size_t)s->ring;
    uint64_t *cols = xcalloc((size_t)p->nslots + 1, sizeof(*cols));
    uint64_t *width = xcalloc((size_t)p->nslots + 1, sizeof(*width));
    int ret = -1;

    a->p = p;
    a->s = s;
    a->from = from;
    a->link = link;
    own.context = capacity_of(a, limits);
    own.windows = alone(a) && !limits->whole;
    if (ring > 1)
        own.rows = 0; /* a rank caches only a part of each sequence */
    a->source = xcalloc(own.sequences + 1, sizeof(*a->source));
    a->pieces = xcalloc(own.sequences * ring + 1, sizeof(*a->pieces));
    a->ring_kept = xcalloc(ring + 1, sizeof(*a->ring_kept));
    a->ring_self = xcalloc(ring * ROWS_RUNS + 1, sizeof(*a->ring_self));
    if (check_sharing(a, err) < 0)
        goto out;
    find_cols(a, cols, width);
    a->most_pieces = pieces_most(limits);
    a->most_rows[0] = sequence_gathered_most(s, limits->tokens);
    a->most_rows[1] = sequence_gathered_most(from, limits->source);
    if (cache_plan(&a->cache, p, link->ops, cols, width, &own, err) < 0 ||
        plan_scratch(a, limits, own.context, err) < 0)
        goto out;
    a->group = xcalloc((size_t)a->cache.ngroups + 1, sizeof(*a->group));
    ret = 0;
out:
    free(cols);
    free(width);
    if (ret < 0)
        attend_free(a);
    else
        *out = a;
    return ret;
}

int attend_open(struct attend *a, struct err *err)
{
    const struct backend *ops = a->link->ops;

    if (cache_open(&a->cache, a->link->device, err) < 0 ||
        sequence_open(a->s, err) < 0 || sequence_open(a->from, err) < 0)
        return -1;
    for (int i = 0; i < a->nscratch; i++) {
        struct scratch *one = &a->scratch[i];

        *one->to = ops->alloc(a->link->device, one->bytes, "the exchange buffers", err);
        if (!*one->to)
            return -1;
    }
    return 0;
}

void attend_free(struct attend *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->cache.sequences * (size_t)a->s->ring; i++)
        free(a->pieces[i].v);
    for (int i = 0; i < a->nscratch; i++)
        if (*a->scratch[i].to)
            a->link->ops->release(a->link->device, *a->scratch[i].to);
    if (a->cache.program)
        cache_close(&a->cache);
    free(a->pieces);
    free(a->source);
    free(a->group);
    free(a->ring_kept);
    free(a->ring_self);
    free(a);
}

uint64_t attend_cache_bytes(const struct attend *a)
{
    return a->cache.bytes;
}

uint64_t attend_scratch_bytes(const struct attend *a)
{
    uint64_t bytes = a->s->most + a->from->most;

    for (int i = 0; i < a->nscratch; i++)
        bytes += a->scratch[i].bytes;
    return bytes;
}

uint64_t attend_sent_bytes(const struct attend *a)
{
    uint64_t most = larger(a->s->most, a->from->most);

    for (int i = 0; i < a->nscratch; i++)
        most = larger(most, a->scratch[i].bytes);
    return most;
}

size_t attend_keys_most(const struct attend *a)
{
    size_t most = 0;

    for (int g = 0; g < a->cache.ngroups; g++)
        most = larger(most, a->cache.group[g].most * CACHE_BLOCK);
    return most;
}

uint64_t attend_tables_bytes(const struct attend *a)
{
    return cache_tables_bytes(&a->cache);
}

size_t attend_padded(size_t keys)
{
    return (keys + KEYS_STEP - 1) / KEYS_STEP * KEYS_STEP;
}

/* ---- ranges of a step ---- */

/* The part of the current sequence that rank RING of the ring caches. */
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

/* The rows of a step that rank RING of the ring caches. */
static struct piece added_by(const struct attend *a, int ring, size_t start)
{
    struct piece p = { 0 };

    if (!a->s->shared)
        sequence_place(a->s, ring, &p.start, &p.count);
    else if (start / TURN % (size_t)a->s->ring == (size_t)ring)
        p.count = a->s->n;
    p.start += start;
    return p;
}

/* Keys that a step is launched for which repeats: a power of two, at most as many as
 * the largest step has. */
static size_t repeated_keys(const struct attend *a, size_t keys)
{
    size_t most = attend_padded(attend_keys_most(a)), n = KEYS_STEP;

    while (n < keys)
        n *= 2;
    return n < most ? n : most;
}

/* After the N ranges come empty ones, up to a->room. */
static void add_set(const struct attend *a, struct set *set, struct upload *u,
                    const struct range *v, size_t n)
{
    size_t room = a->room > n ? a->room : n;

    *set = (struct set){ .n = room };
    for (size_t i = 0; i < n; i++) {
        set->most_rows = larger(set->most_rows, (uint64_t)v[i].rows);
        set->most_keys = larger(set->most_keys, (uint64_t)v[i].keys);
    }
    set->most_keys =
        a->room ? repeated_keys(a, set->most_keys) : attend_padded(set->most_keys);
    set->at = upload_add(u, NULL, room, sizeof(*v));
    if (n)
        memcpy(upload_host(u, set->at), v, n * sizeof(*v));
}

static int32_t table_of(const struct attend *a, int group, size_t sequence)
{
    return cache_table(&a->cache, group, sequence);
}

/* The ranges of queries that are the segments' rows, or those of their SOURCES, over
 * keys that are as well (SOURCE_KEYS). */
static void add_uncached(const struct attend *a, struct set *set,
                         const struct attend_segment *s, size_t n, bool sources,
                         bool source_keys, struct upload *u)
{
    struct range *v = xcalloc(n + 1, sizeof(*v));

    for (size_t i = 0; i < n; i++)
        v[i] = (struct range){
            .row = (int32_t)(sources ? s[i].source_row : s[i].row),
            .rows = (int32_t)(sources ? s[i].nsource : s[i].n),
            .start = sources ? 0 : (int32_t)s[i].start,
            .keys = (int32_t)(source_keys ? s[i].nsource : s[i].n),
            .first_key = source_keys ? 0 : (int32_t)s[i].start,
            .key_row = (int32_t)(source_keys ? s[i].source_row : s[i].row),
            .block = -1,
        };
    add_set(a, set, u, v, n);
    free(v);
}

/* The ranges of a step without sequence parallelism. */
static void add_own_sets(struct attend *a, const struct attend_segment *s, size_t n,
                         struct upload *u)
{
    struct range *v = xcalloc(n + 1, sizeof(*v));

    for (int g = 0; g < a->cache.ngroups; g++) {
        const struct cache_group *group = &a->cache.group[g];

        for (size_t i = 0; i < n; i++) {
            size_t first = group->table[s[i].sequence].first;
            size_t end = group->source ? a->source[s[i].sequence] : s[i].start + s[i].n;

            v[i] = (struct range){ .row = (int32_t)s[i].row,
                                   .rows = (int32_t)s[i].n,
                                   .start = (int32_t)s[i].start,
                                   .keys = (int32_t)(end - first),
                                   .first_key = (int32_t)first,
                                   .write_row = (int32_t)(s[i].start - first),
                                   .block = table_of(a, g, s[i].sequence) };
        }
        add_set(a, &a->group[g], u, v, n);
        for (size_t i = 0; i < n && group->source; i++) {
            v[i].row = (int32_t)s[i].source_row;
            v[i].rows = (int32_t)s[i].nsource;
            v[i].write_row = 0;
        }
        if (group->source)
            add_set(a, &a->kept_source, u, v, n);
    }
    add_uncached(a, &a->self, s, n, false, false, u);
    add_uncached(a, &a->source_self, s, n, true, true, u);
    add_uncached(a, &a->across, s, n, false, true, u);
    free(v);
}

/* Adds a range of the gathered queries for each piece of P.  The pieces' rows are
 * consecutive from 0 on, in the blocks at BLOCK or in a buffer. */
static void add_ring_set(struct attend *a, struct set *set, const struct pieces *p,
                         size_t start, int32_t block, struct upload *u)
{
    struct range *v = xcalloc(p->n + 1, sizeof(*v));
    size_t row = 0;

    for (size_t i = 0; i < p->n; i++) {
        v[i] = (struct range){ .rows = (int32_t)a->s->gathered,
                               .start = (int32_t)(start + a->s->begin),
                               .keys = (int32_t)p->v[i].count,
                               .first_key = (int32_t)p->v[i].start,
                               .key_row = (int32_t)row,
                               .block = block };
        row += p->v[i].count;
    }
    add_set(a, set, u, v, p->n);
    free(v);
}

/* The ranges of the single segment S with sequence parallelism. */
static void add_shared_sets(struct attend *a, const struct attend_segment *s,
                            size_t written, struct upload *u)
{
    struct range r = { .rows = (int32_t)a->s->gathered,
                       .start = (int32_t)(s->start + a->s->begin),
                       .keys = (int32_t)s->n,
                       .first_key = (int32_t)s->start,
                       .block = -1 };

    add_set(a, &a->self, u, &r, 1);
    r.keys = 0;
    add_set(a, &a->none, u, &r, 1);
    r = (struct range){ .rows = (int32_t)a->from->gathered,
                        .start = (int32_t)a->from->begin,
                        .keys = (int32_t)s->nsource,
                        .block = -1 };
    add_set(a, &a->source_self, u, &r, 1);
    r.rows = (int32_t)a->s->gathered;
    r.start = (int32_t)(s->start + a->s->begin);
    add_set(a, &a->across, u, &r, 1);
    for (int g = 0; g < a->cache.ngroups; g++) {
        if (a->cache.group[g].source) {
            r = (struct range){ .rows = (int32_t)a->from->gathered,
                                .keys = (int32_t)a->source[s->sequence],
                                .write_row = (int32_t)a->from->begin,
                                .block = table_of(a, g, s->sequence) };
            add_set(a, &a->kept_source, u, &r, 1);
            r.rows = (int32_t)a->s->gathered;
            r.start = (int32_t)(s->start + a->s->begin);
            add_set(a, &a->group[g], u, &r, 1);
            continue;
        }
        r = (struct range){ .rows = (int32_t)a->s->gathered,
                            .start = (int32_t)(s->start + a->s->begin),
                            .keys = (int32_t)(s->start + s->n),
                            .write_row = (int32_t)(s->start + a->s->begin),
                            .block = table_of(a, g, s->sequence) };
        if (a->s->ring > 1) { /* this rank appends its own part and attends to all that
                               * it caches */
            struct piece own = added_by(a, own_place(a), s->start);

            r.rows = (int32_t)own.count;
            r.write_row = (int32_t)written;
            r.keys = (int32_t)pieces_of(a, own_place(a))->rows;
        }
        add_set(a, &a->group[g], u, &r, 1);
    }
    for (int i = 0; i < a->s->ring && a->s->ring > 1; i++) {
        struct piece piece = { s->start, s->n };
        struct pieces own = { .v = &piece, .n = 1 };

        if (!a->s->shared)
            piece = added_by(a, i, s->start);
        add_ring_set(a, &a->ring_kept[i], pieces_of(a, i), s->start,
                     i == own_place(a) && a->cache.ngroups ? table_of(a, 0, s->sequence)
                                                           : -1,
                     u);
        add_ring_set(a, &a->ring_self[i], &own, s->start, -1, u);
    }
}

/* The tokens of the gathered rows, or (SOURCE) of those of the encoder, for dropout. */
static void add_tokens(struct attend *a, int source, const struct attend_segment *s,
                       size_t n, struct upload *u)
{
    const struct sequence *rows = source ? a->from : a->s;
    struct rows_run run[ROWS_RUNS];
    size_t at = upload_add(u, NULL, rows->gathered, sizeof(uint64_t)), before = 0;
    uint64_t *token = upload_host(u, at);

    sequence_runs(rows, own_place(a), run);
    for (int r = 0; r < ROWS_RUNS; before += run[r++].count)
        for (size_t i = 0; i < n; i++) {
            size_t place, first;
            size_t some =
                rows_run_meet(&run[r], before, source ? s[i].source_row : s[i].row,
                              source ? s[i].nsource : s[i].n, &place, &first);

            for (size_t k = 0; k < some; k++)
                token[place + k] = s[i].token + first + k;
        }
    a->token_at[source] = at;
}

/* The ranges of the gathered queries over the keys of run K of place RING: each query
 * is in one of them, which may have no keys. */
static void add_round(struct attend *a, struct set *set, const struct attend_segment *s,
                      size_t n, int ring, int k, struct upload *u)
{
    struct range *v = xcalloc(ROWS_RUNS * n + 1, sizeof(*v));
    struct rows_run own[ROWS_RUNS], keys[ROWS_RUNS];
    size_t before = 0, made = 0;

    sequence_runs(a->s, own_place(a), own);
    sequence_runs(a->s, ring, keys);
    for (int q = 0; q < ROWS_RUNS; before += own[q++].count)
        for (size_t i = 0; i < n; i++) {
            size_t row, start, key_row, first_key, some;
            size_t rows =
                rows_run_meet(&own[q], before, s[i].row, s[i].n, &row, &start);

            if (!rows)
                continue;
            some = rows_run_meet(&keys[k], k ? keys[0].count : 0, s[i].row, s[i].n,
                                 &key_row, &first_key);
            v[made] = (struct range){ .row = (int32_t)row,
                                      .rows = (int32_t)rows,
                                      .start = (int32_t)start,
                                      .keys = (int32_t)some,
                                      .block = -1 };
            if (some) {
                v[made].first_key = (int32_t)first_key;
                v[made].key_row = (int32_t)key_row;
            }
            made++;
        }
    add_set(a, set, u, v, made);
    free(v);
}

/* The ranges of a step of training, which has whole sequences. */
static void add_divided_sets(struct attend *a, const struct attend_segment *s, size_t n,
                             struct upload *u)
{
    struct range r = { .block = -1 };

    add_uncached(a, &a->self, s, n, false, false, u);
    add_uncached(a, &a->source_self, s, n, true, true, u);
    add_uncached(a, &a->across, s, n, false, true, u);
    r.rows = (int32_t)a->s->gathered;
    add_set(a, &a->none, u, &r, 1);
    add_tokens(a, 0, s, n, u);
    add_tokens(a, 1, s, n, u);
    for (int i = 0; i < a->s->ring && a->s->ring > 1; i++)
        for (int k = 0; k < ROWS_RUNS; k++)
            add_round(a, &a->ring_self[i * ROWS_RUNS + k], s, n, i, k, u);
}

/* Makes room in the cache for segment S; *written is the number of rows cached
 * before. */
static int extend(struct attend *a, const struct attend_segment *s, size_t *written,
                  struct err *err)
{
    size_t start = s->start, n = s->n;

    a->sequence = s->sequence;
    if (s->start == 0) {
        cache_reset(&a->cache, s->sequence);
        a->source[s->sequence] = s->nsource;
    }
    for (int r = 0; r < a->s->ring && a->s->ring > 1; r++) {
        struct pieces *p = pieces_of(a, r);
        struct piece more = added_by(a, r, s->start);

        if (s->start == 0)
            p->n = p->rows = 0;
        if (r == own_place(a)) {
            start = *written = p->rows;
            n = more.count;
        }
        if (more.count)
            add_piece(p, more.start, more.count);
    }
    for (int g = 0; g < a->cache.ngroups; g++)
        if (cache_extend(
                &a->cache, g, s->sequence, a->cache.group[g].source ? 0 : start,
                a->cache.group[g].source ? a->source[s->sequence] : n, err) < 0)
            return -1;
    return 0;
}

void attend_forget(struct attend *a, size_t sequence)
{
    cache_reset(&a->cache, sequence);
}

/* Does P read inputs of the family's own? */
static bool reads_more(const struct program *p)
{
    for (int i = FEED_OWN; i < p->ninputs; i++)
        if (p->input[i].used)
            return true;
    return false;
}

/* A ring's rank has other rows than another; what an encoder or later tokens have to do
 * with a row, its own tokens do not tell. */
bool attend_can_share(const struct attend *a, size_t *window)
{
    *window = cache_window(&a->cache);
    if (a->s->ring > 1 || a->p->source || reads_more(a->p) || a->p->dynamic_rope)
        return false;
    for (int i = 0; i < a->p->nropes; i++)
        if (a->p->rope[i].long_freq)
            return false;
    for (int i = 0; i < a->p->ninsts; i++)
        if (op_table[a->p->inst[i].op].role == ROLE_ATTENDS &&
            !a->p->inst[i].attention.causal)
            return false;
    return true;
}

void attend_truncate(struct attend *a, size_t sequence, size_t n)
{
    cache_truncate(&a->cache, sequence, n);
}

bool attend_can_fork(const struct attend *a)
{
    return a->s->ring == 1;
}

int attend_share(struct attend *a, size_t to, size_t from, size_t n, struct err *err)
{
    a->source[to] = a->source[from];
    return cache_share(&a->cache, to, from, n, err);
}

size_t attend_held(const struct attend *a)
{
    return cache_held(&a->cache);
}

int attend_begin(struct attend *a, const struct attend_segment *segment, size_t n,
                 size_t room, struct upload *u, struct err *err)
{
    int32_t rows[4] = { (int32_t)a->s->count, (int32_t)a->s->gathered,
                        (int32_t)a->from->count, (int32_t)a->from->gathered };
    size_t written = 0;

    a->room = room;
    for (size_t i = 0; i < n && !a->s->trains; i++)
        if (extend(a, &segment[i], &written, err) < 0)
            return -1;
    a->rows_at = upload_add(u, rows, 4, sizeof(*rows));
    for (int g = 0; g < a->cache.ngroups; g++)
        for (size_t i = 0; i < n; i++)
            if (cache_sync(&a->cache, g, segment[i].sequence, err) < 0)
                return -1;
    if (alone(a))
        add_own_sets(a, segment, n, u);
    else if (a->s->trains)
        add_divided_sets(a, segment, n, u);
    else
        add_shared_sets(a, segment, written, u);
    return 0;
}

void attend_begin_most(const struct attend *a, size_t n, struct upload *u)
{
    size_t of_set = sizeof(struct range);

    upload_add(u, NULL, 4, sizeof(int32_t));
    for (int g = 0; g < a->cache.ngroups; g++) {
        upload_add(u, NULL, n, of_set); /* group, kept_source */
        upload_add(u, NULL, n, of_set);
    }
    for (int i = 0; i < 4; i++) /* self, source_self, across, none */
        upload_add(u, NULL, n, of_set);
    for (int i = 0; i < a->s->ring && a->s->ring > 1; i++) {
        upload_add(u, NULL, a->most_pieces, of_set);
        upload_add(u, NULL, 1, of_set);
    }
    for (int i = 0; i < 2 && a->s->trains; i++)
        upload_add(u, NULL, a->most_rows[i], sizeof(uint64_t));
    for (int i = 0; i < ROWS_RUNS * a->s->ring && a->s->trains && a->s->ring > 1; i++)
        upload_add(u, NULL, ROWS_RUNS * n, of_set);
}

static void set_ready(struct set *s, const struct upload *u)
{
    s->v = upload_at(u, s->at);
}

void attend_ready(struct attend *a, const struct upload *u)
{
    a->s->rows = upload_at(u, a->rows_at);
    a->from->rows = a->s->rows + 2;
    for (int g = 0; g < a->cache.ngroups; g++)
        set_ready(&a->group[g], u);
    set_ready(&a->kept_source, u);
    set_ready(&a->self, u);
    set_ready(&a->source_self, u);
    set_ready(&a->across, u);
    set_ready(&a->none, u);
    for (int i = 0; i < 2 && a->s->trains; i++)
        a->token[i] = upload_at(u, a->token_at[i]);
    for (int i = 0; i < a->s->ring * (a->s->trains ? ROWS_RUNS : 1); i++)
        set_ready(&a->ring_self[i], u);
    for (int i = 0; i < a->s->ring; i++)
        set_ready(&a->ring_kept[i], u);
}

static void set_shape(const struct set *s, struct shape *shape)
{
    shape_add(shape, s, sizeof(*s));
}

void attend_shape(const struct attend *a, struct shape *shape)
{
    shape_add(shape, &a->s->rows, sizeof(a->s->rows));
    for (int g = 0; g < a->cache.ngroups; g++)
        set_shape(&a->group[g], shape);
    set_shape(&a->kept_source, shape);
    set_shape(&a->self, shape);
    set_shape(&a->source_self, shape);
    set_shape(&a->across, shape);
}

static struct ranges ranges_of(const struct attend *a, const struct set *s)
{
    return (struct ranges){ .v = s->v,
                            .n = s->n,
                            .block = a->cache.tables,
                            .block_rows = CACHE_BLOCK,
                            .most_rows = s->most_rows,
                            .most_keys = s->most_keys };
}

/* ---- kernels ---- */

static int run(struct attend *a, enum op op, struct call *call, struct err *err)
{
    return a->link->ops->kernel[op](a->link->device, call, err);
}

/* A buffer of the gathered rows of S with COLS columns at X. */
static struct buffer gathered_of(const struct sequence *s, void *x, uint64_t cols)
{
    return (struct buffer){ x, s->rows + 1, s->gathered, cols, FORMAT_F32, 0 };
}

/* The same for the rows of the text. */
static struct buffer gathered(const struct attend *a, void *x, uint64_t cols)
{
    return gathered_of(a->s, x, cols);
}

/* The cache memory of side SIDE of attention INST. */
static struct buffer pool_of(const struct attend *a, const struct inst *inst, int side)
{
    const struct value *v = &a->p->value[inst->src[side]];
    int slot = a->p->inst[v->first].keep.slot;

    return (struct buffer){ .data = a->cache.memory[slot],
                            .most = a->cache.group[a->cache.group_of[slot]].rows,
                            .cols = a->cache.cols[slot],
                            .format = a->cache.format,
                            .width = a->cache.width[slot] };
}

void attend_aim(const struct attend *a, struct call *call)
{
    int slot = call->inst->keep.slot, group = a->cache.group_of[slot];

    call->y.data = a->cache.memory[slot];
    call->y.format = a->cache.format;
    call->y.width = a->cache.width[slot];
    if (group >= 0)
        call->range = ranges_of(a, a->cache.group[group].source ? &a->kept_source
                                                                : &a->group[group]);
}

int attend_keep(struct attend *a, struct call *call, struct err *err)
{
    int slot = call->inst->keep.slot, group = a->cache.group_of[slot], side;
    const struct inst *reader;
    struct sequence *s = shared_as(a, call->inst->dst);
    struct head_part h;

    if (group < 0)
        return 0;
    attend_aim(a, call);
    if (alone(a))
        return run(a, OP_KEEP, call, err);
    if (!call->range.most_rows)
        return 0; /* another rank's turn */
    reader = reader_of(a->p, call->inst->dst, &side);
    h = heads_of(a, reader, side);
    if (sequence_to_heads(s, &h, per_of(reader), a->kept, call->x[0].data, err) < 0)
        return -1;
    call->x[0] = gathered_of(s, a->kept, heads_cols(&h));
    return run(a, OP_KEEP, call, err);
}

/* INST restricted to this rank's heads. */
static struct inst part_inst(const struct attend *a, const struct inst *inst)
{
    struct head_part h = heads_of(a, inst, 0);
    struct inst part = *inst;

    part.attention.heads = h.group_count * h.within_count;
    part.attention.kv_heads = h.group_count;
    part.attention.group_start += h.group_start;
    part.attention.groups = h.group_count;
    part.attention.within_start += h.within_start;
    part.attention.within = h.within_count;
    part.attention.bias_first += h.group_start;
    part.attention.sink_group += h.group_start;
    part.attention.sink_within += h.within_start;
    return part;
}

/* ---- around the ring ---- */

/* Merges attention results: Y and LSE become the result over the keys of both (Y, LSE)
 * and (Z, MORE). */
static int merge(struct attend *a, const struct inst *part, float *y, float *lse,
                 float *z, float *more, struct err *err)
{
    uint64_t heads = part->attention.heads, cols = heads * part->attention.value_dim;
    struct inst inst = { .op = OP_MERGE, .nsrc = 3, .weight = -1, .weight2 = -1 };
    struct call call = { .inst = &inst };

    call.y = gathered(a, y, cols);
    call.x[0] = gathered(a, lse, heads);
    call.x[1] = gathered(a, z, cols);
    call.x[2] = gathered(a, more, heads);
    return run(a, OP_MERGE, &call, err);
}

/* Computes attention over range FIRST of SET into Y and LSE.  Sinks are added only in
 * the range without keys, into which the other results are merged. */
static int attend_to(struct attend *a, struct call *call, const struct set *set,
                     size_t first, float *y, float *lse, struct err *err)
{
    const struct matrix *w = call->w;
    int ret;

    call->range = ranges_of(a, set);
    call->range.v += first;
    call->range.n = 1;
    call->y.data = y;
    call->lse = lse;
    if (call->inst->attention.sinks && set != &a->none)
        call->w = NULL;
    ret = run(a, OP_ATTENTION, call, err);
    call->w = w;
    return ret;
}

/* Computes attention over one piece after another and merges them into a->y. */
static int attend_pieces(struct attend *a, struct call *call, const struct set *set,
                         struct err *err)
{
    for (size_t i = 0; i < set->n; i++)
        if (attend_to(a, call, set, i, a->partial, a->partial_lse, err) < 0 ||
            merge(a, call->inst, a->y, a->lse, a->partial, a->partial_lse, err) < 0)
            return -1;
    return 0;
}

/* Sends N floats at X to the next rank of the ring. */
static int pass_on(struct attend *a, const float *x, size_t n, struct err *err)
{
    struct comm *c = a->s->comm;

    a->s->moved += n * sizeof(*x);
    return link_send(a->link, c, x, n * sizeof(*x), (c->rank + a->s->across) % c->size,
                     err);
}

static int take_over(struct attend *a, float *x, size_t n, struct err *err)
{
    struct comm *c = a->s->comm;

    return link_receive(a->link, c, x, n * sizeof(*x),
                        (c->rank + c->size - a->s->across) % c->size, err);
}

/* Copies what this rank caches of side SIDE to TO. */
static int read_kept(struct attend *a, const struct inst *inst, int side, float *to,
                     struct err *err)
{
    int group = cache_side(&a->cache, inst, side);
    struct inst own = { .op = OP_CACHE_READ, .nsrc = 1, .weight = -1, .weight2 = -1 };
    struct call read = { .inst = &own };

    read.range = ranges_of(a, &a->group[group]);
    read.x[0] = pool_of(a, inst, side);
    read.y = gathered(a, to, read.x[0].cols);
    return run(a, OP_CACHE_READ, &read, err);
}

/* Number of rows of ring rank RING's pieces. */
static size_t ring_rows(const struct attend *a, int ring, bool kept)
{
    struct piece p = { 0 };

    if (kept)
        return pieces_of(a, ring)->rows;
    sequence_place(a->s, ring, &p.start, &p.count);
    return p.count;
}

/* Ring attention: keys and values of all ranks go around the ring; this rank's come
 * first.  INST is CALL's instruction with all heads. */
static int attend_around(struct attend *a, struct call *call, const struct inst *inst,
                         bool kept, struct err *err)
{
    struct set *set = kept ? a->ring_kept : a->ring_self;
    int ring = a->s->ring, at = own_place(a);
    const float *k = call->x[1].data, *v = call->x[2].data;

    if (kept &&
        (read_kept(a, inst, 1, a->k, err) < 0 || read_kept(a, inst, 2, a->v, err) < 0))
        return -1;
    if (kept) {
        k = a->k;
        v = a->v;
    }
    for (int i = 0; i < ring; i++) {
        size_t rows = ring_rows(a, at, kept);

        if (i < ring - 1 && (pass_on(a, k, rows * call->x[1].cols, err) < 0 ||
                             pass_on(a, v, rows * call->x[2].cols, err) < 0))
            return -1;
        if (attend_pieces(a, call, &set[at], err) < 0)
            return -1;
        at = (at + ring - 1) % ring;
        rows = ring_rows(a, at, kept);
        if (i < ring - 1 && (take_over(a, a->k, rows * call->x[1].cols, err) < 0 ||
                             take_over(a, a->v, rows * call->x[2].cols, err) < 0))
            return -1;
        call->x[1].data = a->k;
        call->x[2].data = a->v;
        call->x[1].format = call->x[2].format = FORMAT_F32;
        k = a->k;
        v = a->v;
    }
    return 0;
}

/* Sends the N buffers X, whose rows have COLS columns and are those of place AT, to the
 * next rank, and receives those of the place before. */
static int turn(struct attend *a, float *const *x, const uint64_t *cols, int n, int at,
                struct err *err)
{
    const int before = (at + a->s->ring - 1) % a->s->ring;

    for (int i = 0; i < n; i++)
        if (pass_on(a, x[i], ring_rows(a, at, false) * cols[i], err) < 0)
            return -1;
    for (int i = 0; i < n; i++)
        if (take_over(a, x[i], ring_rows(a, before, false) * cols[i], err) < 0)
            return -1;
    return 0;
}

/* The same in training, where each place has two runs of rows, over the keys of one
 * after another, from a->k and a->v. */
static int attend_rounds(struct attend *a, struct call *call, struct err *err)
{
    float *const room[] = { a->k, a->v };
    const uint64_t cols[] = { call->x[1].cols, call->x[2].cols };
    const struct matrix *w = call->w;
    const int ring = a->s->ring;
    int at = own_place(a), ret = 0;

    for (int i = 0; i < ring && ret == 0; i++, at = (at + ring - 1) % ring) {
        for (int k = 0; k < ROWS_RUNS && ret == 0; k++) {
            call->range = ranges_of(a, &a->ring_self[at * ROWS_RUNS + k]);
            call->y.data = a->partial;
            call->lse = a->partial_lse;
            if (call->inst->attention.sinks)
                call->w = NULL;
            ret = run(a, OP_ATTENTION, call, err);
            call->w = w;
            if (ret == 0)
                ret =
                    merge(a, call->inst, a->y, a->lse, a->partial, a->partial_lse, err);
        }
        if (ret == 0 && i < ring - 1)
            ret = turn(a, room, cols, 2, at, err);
    }
    return ret;
}

/* All ranks of the ring have all queries.  Each attends to what it caches; the results
 * are merged in the order of the ring, so they are identical on all ranks. */
static int attend_shared(struct attend *a, struct call *call, struct err *err)
{
    struct comm *c = a->s->comm;
    const struct inst *part = call->inst;
    size_t n = a->s->n * part->attention.heads, dim = part->attention.value_dim;
    int ring = a->s->ring, own = own_place(a);

    if (attend_pieces(a, call, &a->ring_kept[own], err) < 0)
        return -1;
    for (int i = 1; i < ring; i++) {
        int to = (c->rank + i * a->s->across) % c->size;

        a->s->moved += n * (dim + 1) * sizeof(float);
        if (link_send(a->link, c, a->y, n * dim * sizeof(float), to, err) < 0 ||
            link_send(a->link, c, a->lse, n * sizeof(float), to, err) < 0)
            return -1;
    }
    if (attend_to(a, call, &a->none, 0, a->all, a->all_lse, err) < 0)
        return -1;
    for (int i = 0; i < ring; i++) {
        int from = c->rank % a->s->across + i * a->s->across;
        float *y = i == own ? a->y : a->partial;
        float *more = i == own ? a->lse : a->partial_lse;

        if (i != own &&
            (link_receive(a->link, c, y, n * dim * sizeof(float), from, err) < 0 ||
             link_receive(a->link, c, more, n * sizeof(float), from, err) < 0))
            return -1;
        if (merge(a, part, a->all, a->all_lse, y, more, err) < 0)
            return -1;
    }
    return a->link->ops->copy(a->link->device, a->y, a->all, n * dim * sizeof(float),
                              err);
}

/* Attention with a ring, from a->q to a->y; INST is CALL's instruction with all
 * heads. */
static int attend_ring(struct attend *a, struct call *call, const struct inst *inst,
                       bool kept, struct err *err)
{
    const struct matrix *w = call->w;
    int ret;

    if (a->s->shared && kept) /* attend_shared merges results of several ranks, and
                               * sinks must be counted once */
        call->w = NULL;
    ret = attend_to(a, call, &a->none, 0, a->y, a->lse, err);
    call->w = w;
    if (ret < 0)
        return -1;
    if (a->s->trains)
        return attend_rounds(a, call, err);
    if (!a->s->shared)
        return attend_around(a, call, inst, kept, err);
    return kept ? attend_shared(a, call, err)
                : attend_pieces(a, call, &a->ring_self[own_place(a)], err);
}

/* ---- attention ---- */

/* Gathers this rank's heads of CALL's keys (side 1) or values (2), which are not
 * cached. */
static int take_side(struct attend *a, struct call *call, const struct inst *inst,
                     int side, float *room, struct err *err)
{
    struct sequence *s = shared_as(a, inst->src[side]);
    struct head_part h = heads_of(a, inst, side);

    if (sequence_to_heads(s, &h, per_of(inst), room, call->x[side].data, err) < 0)
        return -1;
    call->x[side] = gathered_of(s, room, heads_cols(&h));
    return 0;
}

/* The ranges of the queries Q over the keys K, which are not cached. */
static const struct set *uncached(const struct attend *a, int q, int k)
{
    if (a->p->value[q].rows == ROWS_SOURCE)
        return &a->source_self;
    return a->p->value[k].rows == ROWS_SOURCE ? &a->across : &a->self;
}

/* CALL's rows are the gathered ones. */
static void see_gathered(struct attend *a, struct call *call)
{
    a->view = *call->step;
    a->view.token[ROWS_TOKENS] = a->token[0];
    a->view.token[ROWS_SOURCE] = a->token[1];
    call->step = &a->view;
}

int attend_run(struct attend *a, struct call *call, struct err *err)
{
    const struct inst *inst = call->inst;
    int group = cache_side(&a->cache, inst, 1);
    struct sequence *s = shared_as(a, inst->dst);
    float *y = call->y.data;
    struct head_part h;
    struct inst part;

    for (int side = 1; side < 3; side++)
        if (a->p->value[inst->src[side]].kept)
            call->x[side] = pool_of(a, inst, side);
        else if (!alone(a) &&
                 take_side(a, call, inst, side, side == 1 ? a->k : a->v, err) < 0)
            return -1;
    call->range = ranges_of(a, group >= 0 ? &a->group[group]
                                          : uncached(a, inst->src[0], inst->src[1]));
    if (alone(a))
        return run(a, inst->op, call, err);
    part = part_inst(a, inst);
    h = heads_of(a, inst, 0);
    if (sequence_to_heads(s, &h, per_of(inst), a->q, call->x[0].data, err) < 0)
        return -1;
    call->inst = &part;
    if (a->s->trains)
        see_gathered(a, call);
    call->x[0] = gathered_of(s, a->q, heads_cols(&h));
    h = result_of(a, inst);
    call->y = gathered_of(s, a->y, heads_cols(&h));
    if (a->s->ring == 1 ? run(a, OP_ATTENTION, call, err) < 0
                        : attend_ring(a, call, inst, group >= 0, err) < 0)
        return -1;
    return sequence_to_rows(s, &h, per_of(inst), y, a->y, err);
}

/* Gathers this rank's heads H of CALL's operand K into ROOM. */
static int take_operand(struct attend *a, struct call *call, int k,
                        const struct head_part *h, float *room, struct err *err)
{
    const struct inst *inst = call->inst;
    struct sequence *s = shared_as(a, inst->src[k]);

    if (sequence_to_heads(s, h, per_of(inst), room, call->x[k].data, err) < 0)
        return -1;
    call->x[k] = gathered_of(s, room, heads_cols(h));
    return 0;
}

/* Copies [FIRST, FIRST + COLS) of the columns of each row of WHOLE, of S, to the rows
 * of PART, or BACK. */
static int copy_columns(struct attend *a, const int32_t *rows, size_t most,
                        float *whole, uint64_t width, float *part, uint64_t first,
                        uint64_t cols, bool back, struct err *err)
{
    const enum op op = back ? OP_HEADS_UNPACK : OP_HEADS_PACK;
    struct inst inst = { .op = op,
                         .nsrc = 1,
                         .weight = -1,
                         .weight2 = -1,
                         .heads = { .groups = 1,
                                    .within = width,
                                    .dim = 1,
                                    .group_count = 1,
                                    .within_start = first,
                                    .within_count = cols } };
    const struct buffer all = { whole, rows, most, width, FORMAT_F32, 0 };
    const struct buffer some = { part, rows, most, cols, FORMAT_F32, 0 };
    struct call call = { .inst = &inst, .y = back ? all : some };

    call.x[0] = back ? some : all;
    return run(a, op, &call, err);
}

/* Gives the gradients PART[N] of this rank's heads, side by side at FROM, to the ranks
 * that have their rows: Y has all columns of INST's result. */
static int give_back(struct attend *a, const struct inst *inst, float *y, float *from,
                     const struct back_part *part, int n, struct err *err)
{
    struct sequence *s = shared_as(a, inst->dst);
    uint64_t width = 0, at = 0;

    for (int k = 0; k < n; k++)
        width += part[k].here;
    for (int k = 0; k < n; at += part[k++].here)
        if (copy_columns(a, s->rows + 1, s->gathered, from, width, a->side, at,
                         part[k].here, false, err) < 0 ||
            sequence_sum_rows(s, &part[k].heads, per_of(inst), part[k].alike, a->whole,
                              a->side, err) < 0 ||
            copy_columns(a, s->rows, s->count, y, a->p->value[inst->dst].cols, a->whole,
                         part[k].first, part[k].cols, true, err) < 0)
            return -1;
    return 0;
}

static int zero(struct attend *a, float *y, uint64_t n, struct err *err)
{
    const struct array_call c = { .n = n, .y = y };

    return n ? a->link->ops->array[ARRAY_ZERO](a->link->device, &c, err) : 0;
}

/* Adds the gradients WHICH, over the keys of place AT, to Y, which has COLS columns. */
static int back_rounds(struct attend *a, const struct call *like, int at,
                       enum attention_gradients which, float *y, uint64_t cols,
                       struct err *err)
{
    struct inst part = *like->inst;
    struct call call = *like;

    part.attention.gradients = which;
    call.inst = &part;
    call.y = gathered(a, y, cols);
    for (int k = 0; k < ROWS_RUNS; k++) {
        call.range = ranges_of(a, &a->ring_self[at * ROWS_RUNS + k]);
        if (run(a, OP_ATTENTION_BACK, &call, err) < 0)
            return -1;
    }
    return 0;
}

/* The reverse of attend_ring, of the part CALL of INST: the attention is made again;
 * then keys and values go around with their gradients, which come home in one more
 * turn.  The gradients of q and what is added to the scores become a->back, of COLS
 * columns; those of k and v a->keys. */
static int back_around(struct attend *a, struct call *call, uint64_t cols,
                       struct err *err)
{
    const struct inst *part = call->inst;
    const uint64_t width[] = { call->x[2].cols, call->x[3].cols,
                               call->x[2].cols + call->x[3].cols };
    float *const room[] = { a->k, a->v, a->keys };
    struct call again = *call;
    struct inst forward = *part;
    const int ring = a->s->ring;
    int at = own_place(a);

    forward.op = OP_ATTENTION;
    forward.nsrc = 3;
    memcpy(forward.src, part->src + 1, 3 * sizeof(*forward.src));
    again.inst = &forward;
    memcpy(again.x, call->x + 1, 3 * sizeof(*again.x));
    again.y = gathered(a, a->y, part->attention.heads * part->attention.value_dim);
    if (attend_to(a, &again, &a->none, 0, a->y, a->lse, err) < 0 ||
        attend_rounds(a, &again, err) < 0 ||
        turn(a, room, width, 2, (at + 1) % ring, err) < 0 ||
        zero(a, a->back, a->s->gathered * cols, err) < 0 ||
        zero(a, a->keys, a->s->gathered * width[2], err) < 0)
        return -1;
    call->lse = a->lse;
    call->x[4] = again.y;
    call->x[4].data = a->y;
    for (int i = 0; i < ring; i++, at = (at + ring - 1) % ring)
        if (back_rounds(a, call, at, GRADIENTS_QUERIES, a->back, cols, err) < 0 ||
            back_rounds(a, call, at, GRADIENTS_KEYS, a->keys, width[2], err) < 0 ||
            (i < ring - 1 ? turn(a, room, width, 3, at, err)
                          : turn(a, room + 2, width + 2, 1, at, err)) < 0)
            return -1;
    return 0;
}

int attend_back(struct attend *a, struct call *call, struct err *err)
{
    const struct inst *inst = call->inst;
    float *const room[] = { a->q, a->k, a->v }, *y = call->y.data;
    struct back_part own[BACK_PARTS];
    struct head_part h = result_of(a, inst);
    struct inst part;
    uint64_t cols = 0;
    int n;

    call->range = ranges_of(a, uncached(a, inst->src[1], inst->src[2]));
    if (alone(a))
        return run(a, OP_ATTENTION_BACK, call, err);
    if (take_operand(a, call, 0, &h, a->s->ring > 1 ? a->d : a->y, err) < 0)
        return -1;
    for (int side = 0; side < 3; side++) {
        h = heads_of(a, inst, side);
        if (take_operand(a, call, 1 + side, &h, room[side], err) < 0)
            return -1;
    }
    n = back_parts(a, inst, own);
    for (int k = 0; k < n; k++)
        cols += own[k].here;
    part = part_inst(a, inst);
    call->inst = &part;
    see_gathered(a, call);
    call->y = gathered_of(shared_as(a, inst->dst), a->back, cols);
    if (a->s->ring == 1)
        return run(a, OP_ATTENTION_BACK, call, err) < 0
                   ? -1
                   : give_back(a, inst, y, a->back, own, n, err);
    if (back_around(a, call, cols - own[1].here - own[2].here, err) < 0 ||
        give_back(a, inst, y, a->keys, own + 1, 2, err) < 0)
        return -1;
    own[1] = own[3]; /* what is added to the scores, if anything */
    return give_back(a, inst, y, a->back, own, n - 2, err);
}
