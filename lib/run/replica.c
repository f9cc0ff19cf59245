/* replica - the texts of one replica, and what they hold of its caches */
#include "lib/run/replica.h"

#include <assert.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/run/cache.h"

void replica_init(struct replica *r, const struct replica_facts *facts, size_t blocks)
{
    *r = (struct replica){ .facts = facts };
    r->running = xcalloc(facts->sequences + 1, sizeof(*r->running));
    r->kept = xcalloc(facts->sequences + 1, sizeof(*r->kept));
    r->taken = xcalloc(facts->sequences + 1, sizeof(*r->taken));
    r->snapshot = xcalloc(facts->snapshots + 1, sizeof(*r->snapshot));
    r->idle = xcalloc(blocks + 1, sizeof(*r->idle));
    blockpool_init(&r->pool, blocks);
}

void replica_clear(struct replica *r)
{
    for (size_t k = 0; k < r->nrunning; k++)
        text_free(r->running[k]);
    for (size_t k = 0; k < r->nkept; k++)
        text_free(r->kept[k]);
    free(r->running);
    free(r->kept);
    free(r->taken);
    free(r->snapshot);
    free(r->idle);
    blockpool_clear(&r->pool);
    plan_clear(&r->plan);
}

void text_free(struct text *t)
{
    free(t->own);
    free(t->block);
    (void)replica_drop_source(t);
    grammar_cursor_clear(&t->cursor);
    free(t);
}

size_t replica_blocks(size_t rows)
{
    return cache_blocks(rows, 1, 0);
}

/* ---- blocks ---- */

static size_t blocks_left(const struct replica *r)
{
    return r->pool.n - r->pool.used;
}

static bool is_idle(const struct replica *r, int32_t block)
{
    return r->pool.ref[block] && r->pool.ref[block] == r->idle[block];
}

/* BLOCK is held (HELD: 1) or dropped (-1), and IDLE more of .kept hold it. */
static void count_block(struct replica *r, int32_t block, int held, int idle)
{
    r->nidle -= is_idle(r, block);
    if (held > 0)
        blockpool_hold(&r->pool, block);
    else if (held < 0)
        blockpool_drop(&r->pool, block);
    r->idle[block] += (uint32_t)idle;
    r->nidle += is_idle(r, block);
}

static void drop_blocks(struct replica *r, struct text *t, size_t n)
{
    while (t->blocks > n)
        count_block(r, t->block[--t->blocks], -1, 0);
}

/* T becomes, or is no more, one of .kept (IDLE: 1 or -1). */
static void count_idle(struct replica *r, const struct text *t, int idle)
{
    for (size_t i = 0; i < t->blocks; i++)
        count_block(r, t->block[i], 0, idle);
}

static void append_block(struct text *t, int32_t block)
{
    t->block = xgrow(t->block, &t->cap_blocks, t->blocks + 1, sizeof(*t->block));
    t->block[t->blocks++] = block;
}

/* ---- snapshots of states ---- */

static void drop_snapshots(struct replica *r, const struct text *t, size_t n)
{
    for (size_t i = 0; i < r->facts->snapshots; i++)
        if (r->snapshot[i].of == t && r->snapshot[i].n > n)
            r->snapshot[i].of = NULL;
}

/* The snapshot of T with the most tokens, at most MOST, which steps before the one that
 * is being assembled have made; or, if SOON, this one, too.  NULL: there is none. */
static struct snapshot *find_snapshot(const struct replica *r, const struct text *t,
                                      size_t most, bool soon)
{
    struct snapshot *best = NULL;

    for (size_t i = 0; i < r->facts->snapshots; i++) {
        struct snapshot *one = &r->snapshot[i];

        if (one->of == t && one->n <= most && (soon || one->made < r->step) &&
            (!best || one->n > best->n))
            best = one;
    }
    return best;
}

/* Is A, which may be NULL, worse to lose than B? */
static bool is_dearer(const struct snapshot *a, const struct snapshot *b)
{
    if (!a || !a->of || !b->of)
        return !a || a->of;
    return a->passing != b->passing ? b->passing : b->used < a->used;
}

/* A record for the state of T after N tokens; -1: there are none to spare. */
static int32_t add_snapshot(struct replica *r, const struct text *t, size_t n,
                            bool passing)
{
    struct snapshot *to = NULL;

    for (size_t i = 0; i < r->facts->snapshots; i++) {
        struct snapshot *one = &r->snapshot[i];

        /* what this step makes is not made in vain */
        if (one->of && one->made == r->step)
            continue;
        if (is_dearer(to, one))
            to = one;
    }
    if (!to || (passing && to->of && !to->passing))
        return -1;
    *to = (struct snapshot){
        .of = t, .n = n, .passing = passing, .made = r->step, .used = r->step
    };
    return (int32_t)(r->facts->sequences + (size_t)(to - r->snapshot));
}

int32_t replica_save(struct replica *r, const struct text *t, size_t n, size_t shared,
                     struct segment_save save[SAVES_MOST])
{
    size_t end = t->done + n, at[2];
    int32_t saves = 0;

    /* the last token of a text that begins alike is its own */
    at[1] = (end < t->n ? end : end - 1) / CACHE_BLOCK * CACHE_BLOCK;
    at[0] = shared < at[1] ? shared : 0;
    for (int i = 0; i < 2; i++) {
        bool passing = i && end < t->n && at[i] != shared;
        int32_t record = at[i] > t->done ? add_snapshot(r, t, at[i], passing) : -1;

        if (record >= 0)
            save[saves++] =
                (struct segment_save){ .row = (int32_t)(at[i] - t->done) - 1,
                                       .record = record };
    }
    return saves;
}

/* The record of the state of T after the step's row AT, if the next one is drafted. */
static size_t drafted_record(const struct replica *r, const struct text *t, size_t at)
{
    return r->facts->sequences + r->facts->snapshots + t->sequence * r->facts->drafts +
           at;
}

int32_t replica_save_drafted(const struct replica *r, const struct text *t, size_t n,
                             struct segment_save save[SAVES_MOST])
{
    if (!r->facts->states)
        return 0;
    for (size_t i = 0; i < n; i++)
        save[i] = (struct segment_save){ (int32_t)i, (int32_t)drafted_record(r, t, i) };
    return (int32_t)n;
}

/* The record with the state of T after .done tokens. */
static size_t record_of(const struct replica *r, const struct text *t)
{
    return t->accepted < t->ndrafted ? drafted_record(r, t, t->accepted) : t->sequence;
}

/* ---- texts that leave ---- */

static void change(struct replica *r, enum plan_change_kind kind, const struct text *t,
                   size_t n, size_t from)
{
    plan_change(&r->plan, (struct plan_change){ .kind = kind,
                                                .sequence = (int32_t)t->sequence,
                                                .n = (int32_t)n,
                                                .from = (int32_t)from });
}

size_t replica_drop_source(struct text *t)
{
    struct source_blocks *source = t->source;
    size_t n = 0;

    t->source = NULL;
    if (source && --source->texts == 0) {
        n = source->n;
        free(source);
    }
    return n;
}

/* The sequence of T, whose blocks and snapshots it drops, is free before the next
 * step. */
static void forget(struct replica *r, struct text *t)
{
    change(r, PLAN_FORGET, t, 0, 0);
    r->taken[t->sequence] = false;
    r->source_blocks -= replica_drop_source(t);
    drop_blocks(r, t, 0);
    drop_snapshots(r, t, 0);
    t->done = 0;
}

static void remove_text(struct text **v, size_t *n, const struct text *t)
{
    size_t at = 0;

    while (v[at] != t)
        at++;
    --*n;
    for (; at < *n; at++)
        v[at] = v[at + 1];
}

/* Gives up what the oldest of the texts that are over still holds. */
static void evict(struct replica *r)
{
    struct text *t = r->kept[0];

    remove_text(r->kept, &r->nkept, t);
    count_idle(r, t, -1);
    forget(r, t);
    text_free(t);
}

void replica_evict_all(struct replica *r)
{
    while (r->nkept)
        evict(r);
}

void replica_leave(struct replica *r, struct text *t)
{
    remove_text(r->running, &r->nrunning, t);
    forget(r, t);
}

void replica_end(struct replica *r, struct text *t)
{
    const size_t window = r->facts->window;

    if (!t->shares || t->done < CACHE_BLOCK || (window && t->done > window)) {
        replica_leave(r, t);
        text_free(t);
        return;
    }
    remove_text(r->running, &r->nrunning, t);
    drop_blocks(r, t, replica_blocks(t->done));
    count_idle(r, t, 1);
    t->n = t->done;
    t->over = t->holds = false;
    r->kept[r->nkept++] = t;
}

/* ---- room ---- */

size_t replica_room(const struct replica *r)
{
    return blocks_left(r) + r->nidle;
}

void replica_add_blocks(struct replica *r, struct text *t, size_t n)
{
    while (t->blocks < n && replica_room(r)) {
        while (!blocks_left(r))
            evict(r);
        append_block(t, blockpool_take(&r->pool, 0));
    }
}

size_t replica_find_sequence(struct replica *r)
{
    size_t i = 0;

    if (r->nrunning + r->nkept >= r->facts->sequences)
        evict(r);
    while (r->taken[i])
        i++;
    return i;
}

/* ---- texts that begin ---- */

bool text_may_share(const struct text *a, const struct text *b)
{
    return a->in.salt == b->in.salt && a->in.adapter == b->in.adapter;
}

size_t text_common(const struct text *a, const struct text *b, size_t most)
{
    size_t n = 0;

    while (n < most && a->ids[n] == b->ids[n])
        n++;
    return n;
}

/* Rows of T that steps before the next have computed. */
static size_t rows_of(const struct replica *r, const struct text *t)
{
    return t->step == r->step ? t->before : t->done;
}

static size_t full_blocks(size_t rows)
{
    return rows / CACHE_BLOCK * CACHE_BLOCK;
}

/* Of the MOST tokens that T's text has in common with FROM, those whose rows and state
 * there are.  *SOON: the same, when FROM has been read. */
static size_t rows_with_state(const struct replica *r, const struct text *from,
                              bool kept, size_t most, int32_t *record, size_t *soon)
{
    const struct snapshot *now = find_snapshot(r, from, most, false),
                          *then = find_snapshot(r, from, most, true);

    *soon = then ? then->n : 0;
    if (!kept && r->facts->snapshots && from->done < full_blocks(most))
        *soon = full_blocks(most);
    *record = -1;
    if (kept && from->done <= most)
        return from->done;
    if (!now)
        return 0;
    *record = (int32_t)(r->facts->sequences + (size_t)(now - r->snapshot));
    return now->n;
}

void replica_consider(const struct replica *r, struct start *how, const struct text *t,
                      struct text *from, bool kept)
{
    size_t most = t->n - 1 < from->n ? t->n - 1 : from->n, n, soon;
    int32_t record = -1;

    /* it has lost rows that have left a window */
    if (!from->shares || from->over || !text_may_share(from, t) ||
        (r->facts->window && from->n > r->facts->window) || most <= how->n)
        return;
    most = text_common(t, from, most);
    if (r->facts->states) {
        n = rows_with_state(r, from, kept, most, &record, &soon);
    } else {
        soon = full_blocks(most);
        n = full_blocks(rows_of(r, from));
        n = n < soon ? n : soon;
    }
    if (!kept && soon > how->soon)
        how->soon = soon;
    if (n <= how->n)
        return;
    how->n = n;
    how->from = from;
    how->record = record;
    how->kept = kept;
}

size_t replica_has(const struct replica *r, const struct start *how)
{
    size_t n = 0;

    for (size_t i = 0; i < how->n / CACHE_BLOCK; i++)
        n += !is_idle(r, how->from->block[i]);
    return n;
}

/* The state of T becomes that of RECORD. */
static void restore(struct replica *r, const struct text *t, size_t record)
{
    if (r->facts->states)
        change(r, PLAN_RESTORE, t, 0, record);
}

/* T takes over what FROM has, which is over. */
static void take_over(struct replica *r, struct text *t, const struct start *how)
{
    struct text *from = how->from;

    remove_text(r->kept, &r->nkept, from);
    count_idle(r, from, -1);
    free(t->block);
    t->block = from->block;
    t->blocks = from->blocks;
    t->cap_blocks = from->cap_blocks;
    t->sequence = from->sequence;
    drop_blocks(r, t, replica_blocks(how->n));
    change(r, PLAN_TRUNCATE, t, how->n, 0);
    if (how->record >= 0)
        restore(r, t, (size_t)how->record);
    drop_snapshots(r, from, how->n);
    for (size_t i = 0; i < r->facts->snapshots; i++)
        if (r->snapshot[i].of == from)
            r->snapshot[i].of = t;
    from->block = NULL;
    text_free(from);
}

/* T shares the first N rows of FROM. */
static void share(struct replica *r, struct text *t, const struct text *from, size_t n)
{
    for (size_t i = 0; i < n / CACHE_BLOCK; i++) {
        append_block(t, from->block[i]);
        count_block(r, from->block[i], 1, 0);
    }
    change(r, PLAN_SHARE, t, n, from->sequence);
}

void replica_begin(struct replica *r, struct text *t, const struct start *how)
{
    if (how->n && how->record >= 0)
        r->snapshot[(size_t)how->record - r->facts->sequences].used = r->step;
    if (how->n && how->kept) {
        take_over(r, t, how);
        return;
    }
    t->sequence = replica_find_sequence(r);
    if (!how->n)
        return;
    share(r, t, how->from, how->n);
    if (how->record >= 0)
        restore(r, t, (size_t)how->record);
}

void replica_fork(struct replica *r, struct text *f, const struct text *t,
                  size_t more_blocks)
{
    f->sequence = replica_find_sequence(r);
    while (blocks_left(r) <
           more_blocks) /* before the rows after the blocks are copied */
        evict(r);
    share(r, f, t, t->done);
    f->source = t->source;
    f->source->texts++;
    restore(r, f, record_of(r, t));
}

void replica_undo_drafted(struct replica *r, struct text *t)
{
    if (t->accepted < t->ndrafted) {
        change(r, PLAN_TRUNCATE, t, t->done, 0);
        restore(r, t, record_of(r, t));
        drop_blocks(r, t, replica_blocks(t->n));
    }
    t->ndrafted = t->accepted = 0;
}

void replica_join(struct replica *r, struct text *t, size_t done)
{
    size_t at;

    if (!t->source) {
        t->source = xmalloc(sizeof(*t->source));
        *t->source =
            (struct source_blocks){ .n = replica_blocks(t->nsource), .texts = 1 };
        r->source_blocks += t->source->n;
    }
    t->done = done;
    r->taken[t->sequence] = true;
    for (at = r->nrunning++; at && r->running[at - 1]->id > t->id; at--)
        r->running[at] = r->running[at - 1];
    r->running[at] = t;
}
