/* scheduler - continuous batching: a queue of texts, and the steps that serve them */
#include "lib/run/scheduler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/run/cache.h"
#include "lib/run/plan.h"

enum { WAITS = -1 }; /* in place of a replica */
/* So many tokens of another text's prompt are worth a step's waiting: about what the
 * reading of the weights costs. */
enum { WORTH = 64 };

/* A text that is not over, on rank 0. */
struct text {
    struct scheduler_text in;
    uint64_t id;
    struct draw draw;
    const int32_t *ids; /* [n] */
    int32_t *own;       /* the same, if it grows */
    size_t n, cap;
    size_t nsource; /* rows of its source */
    size_t done;    /* tokens that are cached, or computed by a step in flight */
    size_t before;  /* the same before step .step, in which it last was */
    uint64_t step;
    int32_t *block; /* [blocks] */
    size_t blocks, cap_blocks;
    size_t source_blocks, sequence;
    struct scheduler_usage usage;
    int replica;       /* or WAITS */
    bool shares;       /* rows with texts that begin alike */
    bool away;         /* a step in flight computes its next token */
    bool over;         /* cancelled while it was away, or in its .gain */
    bool holds;        /* until tokens are appended to it */
    struct text *next; /* in the queue */
};

/* The texts of a replica and what they use of its cache. */
struct replica {
    struct text **running; /* [nrunning]: by id */
    size_t nrunning;
    struct text **kept; /* [nkept]: texts that are over and hold their sequences, for
                         * others that begin alike; the oldest first */
    size_t nkept;
    bool *taken;        /* [sequences] */
    struct blocks pool; /* what each of its ranks' caches holds at most */
    uint32_t *idle;     /* [blocks]: how many of .kept hold each */
    size_t nidle;       /* blocks that only they hold */
    size_t source_blocks;
    struct plan plan;       /* of the step that is being assembled */
    size_t tokens, sources; /* added to it */
};

/* A replica's part of a step in flight. */
struct flight {
    struct scheduler_part *part; /* [n] */
    struct text **deciding;      /* [ndeciding]: whose next token it computes */
    int32_t *next;               /* [ndeciding]: these tokens, if rank 0 has them */
    size_t n, ndeciding;
};

struct scheduler {
    struct runner *runner;
    struct scheduler_options o;
    int nreplicas;
    size_t source_all; /* blocks of a replica's cache for encoder inputs */
    bool shares;       /* texts that begin alike share blocks */
    bool forks;        /* a text can begin with all that another one has */
    size_t window;     /* of the smallest window of a layer; 0: none */
    uint64_t step;     /* steps that were assembled */
    struct scheduler_counts counts;
    struct replica *replica; /* [nreplicas]; on other ranks its own alone */
    struct text *queue;      /* by id */
    struct text **end;       /* of the queue: where the next one goes */
    size_t nwaiting;
    uint64_t nids;
    struct text *gaining;   /* during .gain */
    struct flight *flight;  /* [stages][nreplicas]: ring buffer of steps */
    size_t first, nflights; /* its first entry and number of entries */
    int32_t *next;          /* [segments]: of the step that this rank has run */
};

static size_t blocks_of(size_t rows)
{
    return cache_blocks(rows, 1, 0);
}

/* ---- opening and closing ---- */

static void open_flight(struct flight *f, size_t segments)
{
    f->part = xcalloc(segments + 1, sizeof(*f->part));
    f->deciding = xcalloc(segments + 1, sizeof(*f->deciding));
    f->next = xcalloc(segments + 1, sizeof(*f->next));
}

/* What a rank's engine says of sequences that begin alike. */
struct facts {
    uint64_t shares, window, forks;
};

/* On rank 0: can all ranks' sequences share what they begin with?  The first rank of
 * each stage tells. */
static int ask_engines(struct scheduler *s, struct err *err)
{
    struct runner *r = s->runner;
    size_t window;
    struct facts own = { .shares = engine_can_share(r->engine, &window),
                         .forks = engine_can_fork(r->engine) };

    own.window = window;
    s->forks = own.forks;
    s->shares = own.shares && s->o.grow && !s->o.no_sharing;
    s->window = window;
    if (runner_send(r, r->stage, &own, sizeof(own), err) < 0)
        return -1;
    for (int i = 0; i < r->nreplicas && r->world->rank == 0; i++)
        for (int k = 0; k < r->nstages; k++) {
            if (runner_receive(r, i, k, &own, sizeof(own), err) < 0)
                return -1;
            s->shares &= own.shares != 0;
            s->forks &= own.forks != 0;
            if (own.window && (!s->window || own.window < s->window))
                s->window = own.window;
        }
    return 0;
}

int scheduler_open(struct scheduler **out, struct runner *r,
                   const struct scheduler_options *options, struct err *err)
{
    const struct engine_limits *l = options->limits;
    struct scheduler *s = xcalloc(1, sizeof(*s));
    /* without a cache nothing but sequences is counted */
    size_t all =
        cache_blocks(l->context, l->sequences, r->program->nslots ? l->cache : 0);
    size_t flights;

    s->runner = r;
    s->o = *options;
    s->nreplicas = r->world->rank == 0 ? r->nreplicas : 1;
    s->source_all = cache_blocks(l->source, l->sequences, l->cache);
    s->replica = xcalloc((size_t)s->nreplicas, sizeof(*s->replica));
    for (int i = 0; i < s->nreplicas; i++) {
        s->replica[i].running = xcalloc(l->sequences + 1, sizeof(*s->replica->running));
        s->replica[i].kept = xcalloc(l->sequences + 1, sizeof(*s->replica->kept));
        s->replica[i].taken = xcalloc(l->sequences + 1, sizeof(*s->replica->taken));
        blocks_init(&s->replica[i].pool, all);
        s->replica[i].idle = xcalloc(all + 1, sizeof(*s->replica->idle));
    }
    flights = (size_t)r->nstages * (size_t)s->nreplicas;
    s->flight = xcalloc(flights, sizeof(*s->flight));
    for (size_t i = 0; i < flights; i++)
        open_flight(&s->flight[i], l->segments);
    s->next = xcalloc(l->segments + 1, sizeof(*s->next));
    s->end = &s->queue;
    *out = s;
    return ask_engines(s, err);
}

static void free_text(struct text *t)
{
    free(t->own);
    free(t->block);
    free(t);
}

static void evict(struct replica *r);

/* Tells the other ranks that there are no more steps.  What the machine has failed in,
 * they find out by themselves. */
static int send_end(struct scheduler *s, int ret, struct err *err)
{
    for (int i = 0; i < s->nreplicas; i++) {
        struct plan *p = &s->replica[i].plan;

        while (s->replica[i].nkept)
            evict(&s->replica[i]);
        p->kind = ret < 0 ? PLAN_FAILED : PLAN_END;
        p->n = 0;
        if (ret < 0)
            p->failure = *err;
        if ((ret == 0 || err->kind != ERR_SYSTEM) &&
            plan_send(p, s->runner, i, ret < 0 ? NULL : err) < 0)
            return -1;
    }
    return ret;
}

static int change(struct scheduler *s, const struct plan *p, struct err *err)
{
    struct engine *e = s->runner->engine;

    for (size_t i = 0; i < p->nchanges; i++) {
        const struct plan_change *c = &p->change[i];

        if (c->kind == PLAN_FORGET)
            engine_forget(e, (size_t)c->sequence);
        else if (c->kind == PLAN_TRUNCATE)
            engine_truncate(e, (size_t)c->sequence, (size_t)c->n);
        else if (engine_share(e, (size_t)c->sequence, (size_t)c->from, (size_t)c->n,
                              err) < 0)
            return -1;
    }
    return 0;
}

int scheduler_close(struct scheduler *s, int ret, struct err *err)
{
    struct text *next;

    if (!s)
        return ret;
    if (s->runner->world->rank == 0)
        ret = send_end(s, ret, err);
    if (ret == 0)
        ret = change(s, &s->replica[0].plan, err);
    for (struct text *t = s->queue; t; t = next) {
        next = t->next;
        free_text(t);
    }
    for (int i = 0; i < s->nreplicas; i++) {
        for (size_t k = 0; k < s->replica[i].nrunning; k++)
            free_text(s->replica[i].running[k]);
        for (size_t k = 0; k < s->replica[i].nkept; k++)
            free_text(s->replica[i].kept[k]);
        free(s->replica[i].running);
        free(s->replica[i].kept);
        free(s->replica[i].taken);
        free(s->replica[i].idle);
        blocks_clear(&s->replica[i].pool);
        plan_clear(&s->replica[i].plan);
    }
    for (int i = 0; i < s->runner->nstages * s->nreplicas; i++) {
        free(s->flight[i].part);
        free(s->flight[i].deciding);
        free(s->flight[i].next);
    }
    free(s->replica);
    free(s->flight);
    free(s->next);
    free(s);
    return ret;
}

/* ---- the queue ---- */

/* Puts T where its id belongs: at the end, unless it has been there before. */
static void enqueue(struct scheduler *s, struct text *t)
{
    struct text **at = !s->queue || t->id + 1 == s->nids ? s->end : &s->queue;

    while (*at && (*at)->id < t->id)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
    if (!t->next)
        s->end = &t->next;
    t->replica = WAITS;
    s->nwaiting++;
}

static struct text *dequeue(struct scheduler *s, struct text **at)
{
    struct text *t = *at;

    *at = t->next;
    if (!t->next)
        s->end = at;
    s->nwaiting--;
    return t;
}

/* ERR_INPUT: no step or cache has room for TEXT, which has ROWS. */
static int check_text(const struct scheduler *s, const struct scheduler_text *text,
                      const size_t rows[ROWS_MOST], struct err *err)
{
    const struct engine_limits *l = s->o.limits;
    const struct row_spaces *spaces = &s->runner->program->rows;
    size_t most = s->o.grow && text->most > text->n ? text->most : text->n;
    size_t source = rows[ROWS_SOURCE], sources = l->sources ? l->sources : l->source;

    if (!text->n)
        return err_set(err, ERR_INPUT, "a text without tokens");
    if (most > l->context || blocks_of(most) > s->replica[0].pool.n ||
        blocks_of(source) > s->source_all || source > sources)
        return err_set(err, ERR_INPUT, "the cache has no room for a text of %zu tokens",
                       most > source ? most : source);
    for (int k = ROWS_OWN; k < spaces->n; k++) {
        size_t each = l->rows[k] ? l->rows[k] / (l->segments + !l->segments) : 1;

        if (spaces->v[k].how == HOW_GIVEN && rows_root(spaces, ROWS_SOURCE) != k &&
            rows[k] > each)
            return err_set(err, ERR_INPUT, "a text has %zu rows of %s, at most %zu",
                           rows[k], spaces->v[k].name, each);
    }
    return 0;
}

static void set_draw(struct text *t, const struct draw *draw)
{
    t->in.draw = draw;
    if (draw)
        t->draw = *draw;
    if (t->draw.temperature <= 0) { /* the likeliest of one */
        t->draw.temperature = 1;
        t->draw.top_k = 1;
    }
}

int scheduler_submit(struct scheduler *s, const struct scheduler_text *text,
                     uint64_t *id, struct err *err)
{
    size_t rows[ROWS_MOST];
    struct text *t;

    memcpy(rows, text->rows, sizeof(rows));
    rows_count(&s->runner->program->rows, rows);
    if (check_text(s, text, rows, err) < 0)
        return -1;
    t = xcalloc(1, sizeof(*t));
    t->in = *text;
    t->nsource = rows[ROWS_SOURCE];
    t->n = t->usage.prompt = text->n;
    t->ids = text->ids;
    set_draw(t, text->draw);
    t->shares = s->shares && !t->nsource;
    for (int i = 0; i < FEEDS_MOST && t->shares; i++)
        t->shares = i == FEED_IDS || !text->input[i];
    if (s->o.grow) {
        t->own = xgrow(t->own, &t->cap, t->n + 1, sizeof(*t->own));
        memcpy(t->own, text->ids, t->n * sizeof(*t->own));
        t->ids = t->own;
    }
    *id = t->id = s->nids++;
    enqueue(s, t);
    return 0;
}

size_t scheduler_waiting(const struct scheduler *s)
{
    return s->nwaiting;
}

size_t scheduler_running(const struct scheduler *s)
{
    size_t n = 0;

    for (int i = 0; i < s->nreplicas; i++)
        n += s->replica[i].nrunning;
    return n;
}

struct scheduler_counts scheduler_counts(const struct scheduler *s)
{
    struct scheduler_counts c = s->counts;

    for (int i = 0; i < s->nreplicas; i++) {
        c.blocks += s->replica[i].pool.n;
        c.held += s->replica[i].pool.used - s->replica[i].nidle;
    }
    return c;
}

static struct text *text_of(const struct scheduler *s, uint64_t id)
{
    for (struct text *t = s->queue; t; t = t->next)
        if (t->id == id)
            return t;
    for (int i = 0; i < s->nreplicas; i++)
        for (size_t k = 0; k < s->replica[i].nrunning; k++)
            if (s->replica[i].running[k]->id == id)
                return s->replica[i].running[k];
    return NULL;
}

bool scheduler_usage(const struct scheduler *s, uint64_t id,
                     struct scheduler_usage *usage)
{
    const struct text *t = text_of(s, id);

    if (!t || t->over)
        return false;
    *usage = t->usage;
    usage->gained = t->n - t->usage.prompt;
    return true;
}

/* ---- room ---- */

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
        blocks_hold(&r->pool, block);
    else if (held < 0)
        blocks_drop(&r->pool, block);
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

/* The sequence of T, whose blocks it drops, is free before the next step. */
static void forget(struct replica *r, struct text *t)
{
    plan_change(&r->plan, (struct plan_change){ .kind = PLAN_FORGET,
                                                .sequence = (int32_t)t->sequence });
    r->taken[t->sequence] = false;
    r->source_blocks -= t->source_blocks;
    drop_blocks(r, t, 0);
    t->source_blocks = t->done = 0;
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
    free_text(t);
}

/* Blocks that are free, or would be without the texts that are over. */
static size_t blocks_to_have(const struct replica *r)
{
    return blocks_left(r) + r->nidle;
}

/* Gives T blocks up to N, which can be had. */
static void add_blocks(struct replica *r, struct text *t, size_t n)
{
    while (t->blocks < n && blocks_to_have(r)) {
        while (!blocks_left(r))
            evict(r);
        append_block(t, blocks_take(&r->pool, 0));
    }
}

static size_t find_sequence(const struct scheduler *s, struct replica *r)
{
    size_t i = 0;

    if (r->nrunning + r->nkept >= s->o.limits->sequences)
        evict(r);
    while (r->taken[i])
        i++;
    return i;
}

/* Blocks that T needs to begin: for its tokens, or for its full length (dynamic
 * RoPE). */
static size_t blocks_at_first(const struct scheduler *s, const struct text *t)
{
    return blocks_of(s->o.grow && s->runner->program->dynamic_rope ? t->in.most : t->n);
}

/* How T may begin in a replica: with the first N rows of another text. */
struct start {
    int replica; /* or WAITS */
    struct text *from;
    size_t n;    /* a multiple of CACHE_BLOCK; 0: alone */
    bool kept;   /* that text is over */
    size_t soon; /* the most that one that is not will have */
};

/* Are there blocks for all tokens of T and one generated token? */
static bool has_room(const struct scheduler *s, const struct replica *r,
                     const struct text *t, const struct start *how)
{
    size_t more = s->o.grow && t->n < t->in.most, all = blocks_to_have(r);

    for (size_t i = 0; i < how->n / CACHE_BLOCK; i++) /* it has these already */
        all += !is_idle(r, how->from->block[i]);
    return r->nrunning < s->o.limits->sequences && blocks_at_first(s, t) <= all &&
           blocks_of(t->n + more) <= all &&
           blocks_of(t->nsource) <= s->source_all - r->source_blocks;
}

/* Rows of T that steps before the next have computed. */
static size_t rows_of(const struct scheduler *s, const struct text *t)
{
    return t->step == s->step ? t->before : t->done;
}

static size_t common(const struct text *a, const struct text *b, size_t most)
{
    size_t n = 0;

    while (n < most && a->ids[n] == b->ids[n])
        n++;
    return n;
}

/* Considers to begin T with what FROM has.  The last token of T is always computed. */
static void consider(const struct scheduler *s, struct start *how, const struct text *t,
                     struct text *from, bool kept)
{
    size_t most = t->n - 1 < from->n ? t->n - 1 : from->n, n;

    /* it has lost rows that have left a window */
    if (!from->shares || from->over || from->in.salt != t->in.salt ||
        (s->window && from->n > s->window) || most <= how->n)
        return;
    most = common(t, from, most) / CACHE_BLOCK * CACHE_BLOCK;
    n = rows_of(s, from) / CACHE_BLOCK * CACHE_BLOCK;
    n = n < most ? n : most;
    if (!kept && most > how->soon)
        how->soon = most;
    if (n <= how->n)
        return;
    how->n = n;
    how->from = from;
    how->kept = kept;
}

/* T takes over what FROM has, which is over. */
static void take_over(struct replica *r, struct text *t, struct text *from, size_t n)
{
    remove_text(r->kept, &r->nkept, from);
    count_idle(r, from, -1);
    free(t->block);
    t->block = from->block;
    t->blocks = from->blocks;
    t->cap_blocks = from->cap_blocks;
    t->sequence = from->sequence;
    drop_blocks(r, t, n / CACHE_BLOCK);
    plan_change(&r->plan, (struct plan_change){ .kind = PLAN_TRUNCATE,
                                                .sequence = (int32_t)t->sequence,
                                                .n = (int32_t)n });
    from->block = NULL;
    free_text(from);
}

/* T shares the first N rows of FROM, which is not over. */
static void share(struct replica *r, struct text *t, const struct text *from, size_t n)
{
    for (size_t i = 0; i < n / CACHE_BLOCK; i++) {
        append_block(t, from->block[i]);
        count_block(r, from->block[i], 1, 0);
    }
    plan_change(&r->plan, (struct plan_change){ .kind = PLAN_SHARE,
                                                .sequence = (int32_t)t->sequence,
                                                .n = (int32_t)n,
                                                .from = (int32_t)from->sequence });
}

/* T, which has its blocks and its sequence, is one of the replica's texts, with DONE
 * rows. */
static void join(struct scheduler *s, struct text *t, int replica, size_t done)
{
    struct replica *r = &s->replica[replica];
    size_t at;

    t->source_blocks = blocks_of(t->nsource);
    t->done = done;
    t->replica = replica;
    r->taken[t->sequence] = true;
    r->source_blocks += t->source_blocks;
    for (at = r->nrunning++; at && r->running[at - 1]->id > t->id; at--)
        r->running[at] = r->running[at - 1];
    r->running[at] = t;
}

/* Begins T, which has left the queue. */
static void begin(struct scheduler *s, const struct start *how, struct text *t)
{
    struct replica *r = &s->replica[how->replica];

    if (how->n && how->kept) {
        take_over(r, t, how->from, how->n);
    } else {
        t->sequence = find_sequence(s, r);
        if (how->n)
            share(r, t, how->from, how->n);
    }
    add_blocks(r, t, blocks_at_first(s, t));
    join(s, t, how->replica, how->n);
    if (!t->usage.begun)
        t->usage.shared = how->n;
    t->usage.begun = true;
    s->counts.shared += how->n;
    s->counts.asked += t->shares ? t->n : 0;
}

/* Frees T's sequence and blocks. */
static void leave(struct scheduler *s, struct text *t)
{
    struct replica *r = &s->replica[t->replica];

    remove_text(r->running, &r->nrunning, t);
    forget(r, t);
}

/* T is over.  It keeps what it holds until somebody needs it. */
static void end(struct scheduler *s, struct text *t)
{
    struct replica *r = &s->replica[t->replica];

    if (!t->shares || t->done < CACHE_BLOCK || (s->window && t->done > s->window)) {
        leave(s, t);
        free_text(t);
        return;
    }
    remove_text(r->running, &r->nrunning, t);
    drop_blocks(r, t, blocks_of(t->done));
    count_idle(r, t, 1);
    t->n = t->done;
    t->over = false;
    r->kept[r->nkept++] = t;
}

/* T will be computed again from its beginning. */
static void begin_again(struct scheduler *s, struct text *t)
{
    leave(s, t);
    enqueue(s, t);
}

/* Gets a block for one more token of T: a free one, or by preempting the youngest text
 * that is younger than T and not in flight. */
static bool take_block(struct scheduler *s, struct text *t)
{
    struct replica *r = &s->replica[t->replica];

    for (size_t i = r->nrunning; i-- > 0 && !blocks_to_have(r);)
        if (r->running[i]->id > t->id && !r->running[i]->away) {
            r->running[i]->usage.preempted++;
            s->counts.preempted++;
            begin_again(s, r->running[i]);
        }
    if (!blocks_to_have(r))
        return false;
    add_blocks(r, t, t->blocks + 1);
    return true;
}

void scheduler_cancel(struct scheduler *s, uint64_t id)
{
    for (struct text **at = &s->queue; *at; at = &(*at)->next)
        if ((*at)->id == id) {
            free_text(dequeue(s, at));
            return;
        }
    for (int i = 0; i < s->nreplicas; i++)
        for (size_t k = 0; k < s->replica[i].nrunning; k++) {
            struct text *t = s->replica[i].running[k];

            if (t->id != id)
                continue;
            if (t->away || t == s->gaining)
                t->over = true;
            else
                end(s, t);
            return;
        }
}

/* ---- forks ---- */

/* Blocks that a text with all rows of T would not share with it. */
static size_t blocks_of_fork(const struct scheduler *s, const struct text *t)
{
    return blocks_at_first(s, t) - t->done / CACHE_BLOCK;
}

/* Is there room for it beside T? */
static bool can_fork(const struct scheduler *s, const struct text *t)
{
    const struct replica *r = t->replica == WAITS ? NULL : &s->replica[t->replica];

    return r && s->forks && t->done && r->nrunning < s->o.limits->sequences &&
           blocks_of_fork(s, t) <= blocks_to_have(r) &&
           t->source_blocks <= s->source_all - r->source_blocks;
}

/* F, of whom everything else is T's, begins with its rows. */
static void begin_fork(struct scheduler *s, struct text *f, const struct text *t)
{
    struct replica *r = &s->replica[t->replica];

    f->sequence = find_sequence(s, r);
    while (blocks_left(r) < blocks_of_fork(s, t)) /* before the rest is copied */
        evict(r);
    share(r, f, t, t->done);
    add_blocks(r, f, blocks_at_first(s, f));
    join(s, f, t->replica, t->done);
}

int scheduler_fork(struct scheduler *s, uint64_t id, const struct draw *draw,
                   uint64_t tag, uint64_t *fork, struct err *err)
{
    struct text *t = text_of(s, id), *f;
    bool direct = can_fork(s, t);

    assert(!t->away && (t == s->gaining || t->holds));
    if (!direct && s->runner->program->dynamic_rope)
        return err_set(err, ERR_SYSTEM,
                       "the cache has no room for another text of %zu tokens", t->n);
    f = xcalloc(1, sizeof(*f));
    f->in = t->in;
    f->in.tag = tag;
    set_draw(f, draw);
    f->n = t->n;
    f->own = xgrow(f->own, &f->cap, f->n + 1, sizeof(*f->own));
    memcpy(f->own, t->ids, f->n * sizeof(*f->own));
    f->ids = f->own;
    f->nsource = t->nsource;
    f->shares = t->shares;
    f->usage = t->usage;
    f->holds = true;
    *fork = f->id = s->nids++;
    if (direct)
        begin_fork(s, f, t);
    else
        enqueue(s, f);
    return 0;
}

void scheduler_hold(struct scheduler *s, uint64_t id)
{
    assert(s->gaining && s->gaining->id == id);
    s->gaining->holds = true;
}

/* ---- assembling a step ---- */

static struct flight *flight_of(struct scheduler *s, size_t step, int replica)
{
    size_t at = (s->first + step) % (size_t)s->runner->nstages;

    return &s->flight[at * (size_t)s->nreplicas + (size_t)replica];
}

/* Adds the next N tokens of T to its replica's part of the step. */
static void add(struct scheduler *s, struct text *t, size_t n)
{
    struct flight *f = flight_of(s, s->nflights, t->replica);
    const bool last = t->done + n == t->n;
    struct plan_part part = { .id = t->id,
                              .tag = t->in.tag,
                              .last = last,
                              .decides = last && s->o.grow,
                              .draws = t->in.draw != NULL,
                              .wanted = (int32_t)n - 1,
                              .draw = t->draw };
    struct segment to = { .n = n,
                          .start = t->done,
                          .length = t->n,
                          .sequence = t->sequence,
                          .nwanted = last };

    part.draw.position += t->n;
    t->in.input[FEED_IDS] = t->ids;
    segment_cut(&to, s->runner->program, t->in.input, t->in.rows, t->done);
    if (t->in.targets)
        to.targets = t->in.targets + t->done;
    plan_add(&s->replica[t->replica].plan, &part, &to);
    t->before = t->done;
    t->step = s->step;
    s->counts.computed += n;
    f->part[f->n++] = (struct scheduler_part){ .id = t->id,
                                               .tag = t->in.tag,
                                               .replica = t->replica,
                                               .start = t->done,
                                               .n = n,
                                               .last = last };
    if (part.decides) {
        f->deciding[f->ndeciding++] = t;
        t->away = true;
    }
    t->done += n;
}

/* Is T in generation, with one token to compute? */
static bool is_growing(const struct scheduler *s, const struct text *t)
{
    return s->o.grow && t->done > 0 && t->done + 1 == t->n;
}

/* Adds the next token of texts in generation, at most one stage's share of these texts;
 * the others belong to the steps of other stages. */
static void add_growing(struct scheduler *s, struct replica *r)
{
    size_t stages = (size_t)s->runner->nstages, share;

    share = (r->nrunning + stages - 1) / stages;
    share = share < s->o.limits->segments ? share : s->o.limits->segments;
    for (size_t i = 0; i < r->nrunning && r->plan.n < share; i++) {
        struct text *t = r->running[i];

        if (t->away || !is_growing(s, t))
            continue;
        if (blocks_of(t->n) > t->blocks && !take_block(s, t))
            continue;
        add(s, t, 1);
    }
}

/* Tokens of T's next chunk.  Chunk boundaries are the same in every schedule. */
static size_t chunk_of(const struct scheduler *s, const struct text *t)
{
    size_t left = t->n - t->done;

    return left < s->runner->chunk ? left : s->runner->chunk;
}

/* Does the step have room for T's next chunk? */
static bool takes_chunk(const struct scheduler *s, const struct replica *r,
                        const struct text *t)
{
    return r->plan.n < s->o.limits->segments &&
           r->tokens + chunk_of(s, t) <= s->runner->chunk &&
           (t->done > 0 || r->sources + t->nsource <= s->o.limits->sources);
}

static void add_chunk(struct scheduler *s, struct replica *r, struct text *t)
{
    const size_t n = chunk_of(s, t);

    r->sources += t->done ? 0 : t->nsource;
    r->tokens += n;
    add(s, t, n);
}

/* Blocks for tokens of T that came several at a time. */
static bool take_blocks(struct scheduler *s, struct text *t)
{
    while (blocks_of(t->n) > t->blocks)
        if (!take_block(s, t))
            return false;
    return true;
}

/* Adds chunks of texts that have begun, in order. */
static void add_read(struct scheduler *s, struct replica *r)
{
    for (size_t i = 0; i < r->nrunning; i++) {
        struct text *t = r->running[i];

        if (t->away || t->done == t->n || is_growing(s, t) || !takes_chunk(s, r, t) ||
            !take_blocks(s, t))
            continue;
        add_chunk(s, r, t);
    }
}

/* How T can begin in replica INDEX now; false: not at all. */
static bool find_start(const struct scheduler *s, struct start *how, int index,
                       struct text *t)
{
    const struct replica *r = &s->replica[index];

    *how = (struct start){ .replica = index };
    if (r->nrunning >= s->o.limits->sequences)
        return false;
    for (size_t i = 0; i < r->nrunning && t->shares; i++)
        consider(s, how, t, r->running[i], false);
    for (size_t i = 0; i < r->nkept && t->shares; i++)
        consider(s, how, t, r->kept[i], true);
    t->done = how->n; /* as it will be */
    return takes_chunk(s, r, t) && has_room(s, r, t, how);
}

/* Begins texts of the queue, in order, each in the replica that has room and the fewest
 * texts. */
static void add_waiting(struct scheduler *s)
{
    for (struct text **at = &s->queue; *at;) {
        struct start how, best = { .replica = WAITS };
        struct text *t = *at;

        if (t->holds) {
            at = &t->next;
            continue;
        }
        for (int i = 0; i < s->nreplicas; i++)
            if (find_start(s, &how, i, t) &&
                (best.replica == WAITS ||
                 s->replica[i].nrunning < s->replica[best.replica].nrunning))
                best = how;
        t->done = 0;
        if (best.replica == WAITS || best.soon >= best.n + WORTH)
            return;
        (void)dequeue(s, at);
        begin(s, &best, t);
        add_chunk(s, &s->replica[best.replica], t);
    }
}

/* Returns whether the step has any text. */
static bool assemble(struct scheduler *s)
{
    bool any = false;

    s->step++;
    for (int i = 0; i < s->nreplicas; i++) {
        struct replica *r = &s->replica[i];
        struct flight *f = flight_of(s, s->nflights, i);

        f->n = f->ndeciding = 0;
        r->tokens = r->sources = 0;
        if (s->o.grow)
            add_growing(s, r);
        add_read(s, r);
    }
    add_waiting(s);
    for (int i = 0; i < s->nreplicas; i++)
        any |= s->replica[i].plan.n > 0;
    return any;
}

/* ---- running a step, on every rank ---- */

/* The rows of each kind in segment I of the step, and the rows before it. */
static struct scheduler_part part_of(const struct scheduler *s, const struct plan *p,
                                     size_t i)
{
    const struct segment *own = &p->segment[i];
    struct scheduler_part part = { .id = p->part[i].id,
                                   .tag = p->part[i].tag,
                                   .replica = s->runner->replica,
                                   .start = own->start,
                                   .n = own->n,
                                   .last = p->part[i].last,
                                   .engine = s->runner->engine,
                                   .alone = p->n == 1 };

    for (size_t k = 0; k <= i; k++) {
        for (int r = 0; r < ROWS_MOST; r++)
            part.row[r] += part.rows[r];
        segment_count(&p->segment[k], s->runner->program, part.rows);
    }
    part.row[ROWS_TABLE] = 0; /* one for all */
    return part;
}

const float *scheduler_rows(const struct scheduler_part *part, int space,
                            const float *x, size_t cols, size_t *rows)
{
    if (part->alone)
        return x;
    *rows = part->rows[space];
    return x + part->row[space] * cols;
}

/* Sends the next tokens of the step to rank 0, from the last stage. */
static int send_next(struct scheduler *s, const struct plan *p, struct err *err)
{
    struct runner *r = s->runner;
    size_t rows, n = 0;
    const int32_t *next;

    for (size_t i = 0; i < p->n; i++)
        n += p->part[i].decides;
    if (!n || !runner_is_last(r))
        return 0;
    if (engine_ids(r->engine, 0, &next, &rows, err) < 0)
        return -1;
    memcpy(s->next, next, n * sizeof(*next));
    return runner_send(r, r->stage, s->next, n * sizeof(*s->next), err);
}

static int run_plan(struct scheduler *s, struct plan *p, struct err *err)
{
    if (change(s, p, err) < 0)
        return -1;
    if (!p->n && !runner_keeps_step(s->runner))
        return 0;
    if (engine_step(s->runner->engine, plan_segments(p), p->n, err) < 0)
        return -1;
    for (size_t i = 0; i < p->n && s->o.see; i++) {
        const struct scheduler_part part = part_of(s, p, i);

        if (s->o.see(s->o.arg, &part, err) < 0)
            return -1;
    }
    return send_next(s, p, err);
}

int scheduler_follow(struct scheduler *s, struct err *err)
{
    struct plan *p = &s->replica[0].plan;

    for (;;) {
        if (plan_receive(p, s->runner, err) < 0)
            return -1;
        if (p->kind == PLAN_FAILED)
            return err_set(err, p->failure.kind, "%s", p->failure.text);
        if (p->kind == PLAN_END)
            return 0;
        if (run_plan(s, p, err) < 0)
            return -1;
    }
}

/* ---- steps, on rank 0 ---- */

/* Texts that do not grow are over with their last token. */
static void leave_read(struct scheduler *s, struct replica *r)
{
    for (size_t i = r->nrunning; i-- > 0 && !s->o.grow;)
        if (r->running[i]->done == r->running[i]->n)
            end(s, r->running[i]);
}

/* Sends the step that has been assembled, and runs rank 0's part of it. */
static int run_step(struct scheduler *s, struct err *err)
{
    struct flight *own = flight_of(s, s->nflights, 0);
    bool all = runner_keeps_step(s->runner);

    for (int i = 0; i < s->nreplicas; i++)
        if ((all || s->replica[i].plan.n) &&
            plan_send(&s->replica[i].plan, s->runner, i, err) < 0)
            return -1;
    if ((all || s->replica[0].plan.n) && run_plan(s, &s->replica[0].plan, err) < 0)
        return -1;
    memcpy(own->next, s->next, own->ndeciding * sizeof(*own->next));
    for (int i = 0; i < s->nreplicas; i++) {
        if (all || s->replica[i].plan.n)
            plan_reset(&s->replica[i].plan);
        leave_read(s, &s->replica[i]);
    }
    s->nflights++;
    return 0;
}

static int gain(struct scheduler *s, struct text *t, int32_t next, struct err *err)
{
    const size_t before = t->n;

    t->away = false;
    if (!t->over) {
        const struct scheduler_gain gain = { t->id, t->in.tag, next };

        s->gaining = t;
        if (s->o.gain(s->o.arg, &gain, err) < 0)
            return -1;
        s->gaining = NULL;
    }
    if (t->over || (t->n == before && !t->holds))
        end(s, t);
    else if (t->n > before && program_rope_changes(s->runner->program, t->n))
        begin_again(s, t);
    return 0;
}

void scheduler_append(struct scheduler *s, uint64_t id, const int32_t *ids, size_t n)
{
    struct text *t = text_of(s, id);

    assert((t == s->gaining || t->holds) && t->n + n <= s->o.limits->context);
    t->own = xgrow(t->own, &t->cap, t->n + n, sizeof(*t->own));
    memcpy(t->own + t->n, ids, n * sizeof(*ids));
    t->ids = t->own;
    t->n += n;
    t->holds = false;
    if (t != s->gaining && t->replica != WAITS &&
        program_rope_changes(s->runner->program, t->n))
        begin_again(s, t);
}

/* The first text of the queue that does not wait for its caller, or NULL. */
static const struct text *next_waiting(const struct scheduler *s)
{
    const struct text *t = s->queue;

    while (t && t->holds)
        t = t->next;
    return t;
}

/* Takes the results of the oldest step in flight. */
static int settle(struct scheduler *s, struct err *err)
{
    struct runner *r = s->runner;
    int last = r->nstages - 1;

    for (int i = 0; i < s->nreplicas; i++) {
        struct flight *f = flight_of(s, 0, i);

        for (size_t k = 0; k < f->n && s->o.collect; k++)
            if (s->o.collect(s->o.arg, &f->part[k], err) < 0)
                return -1;
        if (f->ndeciding && runner_receive(r, i, last, f->next,
                                           f->ndeciding * sizeof(*f->next), err) < 0)
            return -1;
    }
    s->nflights--;
    for (int i = 0; i < s->nreplicas; i++) {
        struct flight *f = flight_of(s, 0, i);

        for (size_t k = 0; k < f->ndeciding; k++)
            if (gain(s, f->deciding[k], f->next[k], err) < 0)
                return -1;
    }
    s->first = (s->first + 1) % (size_t)r->nstages;
    return 0;
}

int scheduler_step(struct scheduler *s, struct err *err)
{
    bool any = assemble(s);
    const struct text *next;

    if (any && run_step(s, err) < 0)
        return -1;
    if (!any && !s->nflights) {
        next = next_waiting(s);
        return next ? err_set(err, ERR_SYSTEM,
                              "the cache has no room for a text of %zu tokens", next->n)
                    : 0;
    }
    if ((!any || s->nflights == (size_t)s->runner->nstages) && settle(s, err) < 0)
        return -1;
    return 1;
}

int scheduler_run(struct scheduler *s, struct err *err)
{
    int ret;

    do
        ret = scheduler_step(s, err);
    while (ret > 0);
    return ret;
}
