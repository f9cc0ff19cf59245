/* scheduler - continuous batching: a queue of texts, and the steps that serve them */
#include "lib/run/scheduler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/run/cache.h"
#include "lib/run/plan.h"
#include "lib/run/replica.h"

/* So many tokens of another text's prompt are worth a step's waiting: about what the
 * reading of the weights costs. */
enum { WORTH = 64 };
/* So many texts of the queue are looked at for what one of them begins with. */
enum { LOOKS = 32 };
/* So many tokens of a text are drafted at first, two more after drafts that were right,
 * and one less after others. */
enum { EAGER = 4, MORE = 2 };

/* So many steps a replica that could read prompts waits for the others, so that they
 * read in the same step, for which all of them wait. */
enum { GATHER = 8 };

/* What a step computes of the tokens of a text. */
struct answer {
    struct text *deciding; /* whose next token it computes; or NULL */
    uint64_t id, tag;
    size_t first, ntold; /* tokens of it that are told */
    size_t n;            /* these, and those that are chosen */
    size_t each;         /* of struct likely of one */
    size_t nothers;      /* of struct likely after these: what is drawn beside the one
                          * that is chosen */
};

/* A replica's part of a step in flight. */
struct flight {
    struct scheduler_part *part; /* [n] */
    struct answer *answer;       /* [nanswers] */
    struct likely *told;         /* [ntold]: of all of them */
    size_t n, nanswers, ntold, cap_told;
};

struct scheduler {
    struct runner *runner;
    struct scheduler_options o;
    int nreplicas;
    struct replica_facts facts;
    size_t source_all; /* blocks of a replica's cache for encoder inputs */
    bool shares;       /* texts that begin alike share blocks */
    bool forks;        /* a text can begin with all that another one has */
    uint64_t step;     /* steps that were assembled */
    struct scheduler_counts counts;
    struct replica *replica; /* [nreplicas]; on other ranks its own alone */
    struct text *queue;      /* by id */
    struct text **end;       /* of the queue: where the next one goes */
    size_t nwaiting;
    uint64_t nids;
    unsigned gathered;     /* steps since a replica could read prompts, and did not */
    struct text *gaining;  /* during .gain */
    struct text **growing; /* [ngrowing]: texts in generation that are in this step, */
    struct scheduler_draft *draft; /* [ngrowing]: and what is drafted of them */
    size_t ngrowing;
    struct flight *flight;  /* [stages][nreplicas]: ring buffer of steps */
    size_t first, nflights; /* its first entry and number of entries */
    int32_t *next; /* the backend's choices in the step that this rank has run */
    size_t cap_next;
    struct likely *told; /* [ntold]: of that step */
    size_t ntold, cap_told;
    struct edits edits; /* of one token */
    struct picker *picker;
    int logits; /* the output of the program, or -1 */
};

/* ---- opening and closing ---- */

static void open_flight(struct flight *f, size_t segments)
{
    f->part = xcalloc(segments + 1, sizeof(*f->part));
    f->answer = xcalloc(segments + 1, sizeof(*f->answer));
}

/* What a rank's engine says of its sequences. */
struct facts {
    uint64_t shares, forks; /* as in struct scheduler */
    uint64_t window, states, cached;
};

/* Takes what an engine says into account. */
static void add_facts(struct scheduler *s, const struct facts *f, bool *cached)
{
    s->shares &= f->shares != 0;
    s->forks &= f->forks != 0;
    s->facts.states |= f->states != 0;
    *cached |= f->cached != 0;
    if (f->window && (!s->facts.window || f->window < s->facts.window))
        s->facts.window = f->window;
}

/* On rank 0: asks the first rank of each stage.  *CACHED: some have a KV cache. */
static int ask_engines(struct scheduler *s, bool *cached, struct err *err)
{
    struct runner *r = s->runner;
    size_t window;
    struct facts own = { .shares = engine_can_share(r->engine, &window),
                         .forks = engine_can_fork(r->engine),
                         .states = engine_has_states(r->engine),
                         .cached = r->program->nslots > 0 };

    own.window = window;
    s->forks = true;
    s->shares = s->o.grow && !s->o.no_sharing;
    *cached = false;
    add_facts(s, &own, cached);
    if (runner_send(r, r->stage, &own, sizeof(own), err) < 0)
        return -1;
    for (int i = 0; i < r->nreplicas && r->world->rank == 0; i++)
        for (int k = 0; k < r->nstages; k++) {
            if (runner_receive(r, i, k, &own, sizeof(own), err) < 0)
                return -1;
            add_facts(s, &own, cached);
        }
    return 0;
}

/* The output with the logits beside the next tokens; -1: there is none. */
static int find_logits(const struct program *p)
{
    for (int i = 1; i < p->noutputs; i++)
        if (!strcmp(p->output[i].name, "logits"))
            return i;
    return -1;
}

int scheduler_open(struct scheduler **out, struct runner *r,
                   const struct scheduler_options *options, struct err *err)
{
    const struct engine_limits *l = options->limits;
    struct scheduler *s = xcalloc(1, sizeof(*s));
    size_t flights;
    bool cached;
    int ret;

    s->runner = r;
    s->o = *options;
    s->nreplicas = r->world->rank == 0 ? r->nreplicas : 1;
    s->source_all =
        cache_blocks(l->source, l->texts ? l->texts : l->sequences, l->cache);
    s->facts.sequences = l->sequences;
    s->facts.snapshots = l->snapshots;
    s->facts.drafts = options->draft ? l->drafts : 0;
    assert(s->facts.drafts <= DRAFTS_MOST);
    ret = ask_engines(s, &cached, err);
    s->replica = xcalloc((size_t)s->nreplicas, sizeof(*s->replica));
    for (int i = 0; i < s->nreplicas; i++) /* without a cache only sequences count */
        replica_init(&s->replica[i], &s->facts,
                     cache_blocks(l->context, l->sequences, cached ? l->cache : 0));
    flights = (size_t)r->nstages * (size_t)s->nreplicas;
    s->flight = xcalloc(flights, sizeof(*s->flight));
    s->growing = xcalloc(l->segments * (size_t)s->nreplicas + 1, sizeof(*s->growing));
    s->draft = xcalloc(l->segments * (size_t)s->nreplicas + 1, sizeof(*s->draft));
    for (size_t i = 0; i < flights; i++)
        open_flight(&s->flight[i], l->segments);
    s->picker = picker_new();
    s->logits = find_logits(r->program);
    s->end = &s->queue;
    *out = s;
    return ret;
}

/* Tells the other ranks that there are no more steps.  What the machine has failed in,
 * they find out by themselves. */
static int send_end(struct scheduler *s, int ret, struct err *err)
{
    for (int i = 0; i < s->nreplicas; i++) {
        struct plan *p = &s->replica[i].plan;

        replica_evict_all(&s->replica[i]);
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
        else if (c->kind == PLAN_RESTORE
                     ? engine_restore(e, (size_t)c->sequence, (size_t)c->from, err) < 0
                     : engine_share(e, (size_t)c->sequence, (size_t)c->from,
                                    (size_t)c->n, err) < 0)
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
        text_free(t);
    }
    for (int i = 0; i < s->nreplicas; i++)
        replica_clear(&s->replica[i]);
    for (int i = 0; i < s->runner->nstages * s->nreplicas; i++) {
        free(s->flight[i].part);
        free(s->flight[i].answer);
        free(s->flight[i].told);
    }
    free(s->replica);
    free(s->flight);
    free(s->growing);
    free(s->draft);
    free(s->next);
    free(s->told);
    edits_clear(&s->edits);
    picker_free(s->picker);
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

/* Rows of a step beside those that decide. */
static size_t told_room(const struct scheduler *s)
{
    const struct engine_limits *l = s->o.limits;
    const size_t decide = l->segments + l->drafted;

    return l->wanted > decide ? l->wanted - decide : 0;
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
    if (most > l->context || replica_blocks(most) > s->replica[0].pool.n ||
        replica_blocks(source) > s->source_all || source > sources)
        return err_set(err, ERR_INPUT, "the cache has no room for a text of %zu tokens",
                       most > source ? most : source);
    if (text->tells && (!s->o.told || !told_room(s)))
        return err_set(err, ERR_INPUT,
                       "log-probabilities of prompts are not computed here");
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
    t->eager = EAGER;
    t->ids = text->ids;
    set_draw(t, text->draw);
    t->shares = s->shares && !t->nsource && !text->tells;
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

/* Blocks that T needs to begin: for its tokens, or for its full length (dynamic
 * RoPE). */
static size_t blocks_at_first(const struct scheduler *s, const struct text *t)
{
    return replica_blocks(s->o.grow && s->runner->program->dynamic_rope ? t->in.most
                                                                        : t->n);
}

/* Are there blocks for all tokens of T and one generated token? */
static bool has_room(const struct scheduler *s, const struct replica *r,
                     const struct text *t, const struct start *how)
{
    size_t more = s->o.grow && t->n < t->in.most;
    size_t all = replica_room(r) + replica_has(r, how);

    return r->nrunning < s->o.limits->sequences && blocks_at_first(s, t) <= all &&
           replica_blocks(t->n + more) <= all &&
           replica_blocks(t->nsource) <= s->source_all - r->source_blocks;
}

/* Begins T, which has left the queue. */
static void begin(struct scheduler *s, const struct start *how, struct text *t)
{
    struct replica *r = &s->replica[how->replica];

    replica_begin(r, t, how);
    replica_add_blocks(r, t, blocks_at_first(s, t));
    replica_join(r, t, how->n);
    t->replica = how->replica;
    if (!t->usage.begun)
        t->usage.shared = how->n;
    t->usage.begun = true;
    s->counts.shared += how->n;
    s->counts.asked += t->shares ? t->n : 0;
}

/* T will be computed again from its beginning. */
static void begin_again(struct scheduler *s, struct text *t)
{
    replica_leave(&s->replica[t->replica], t);
    enqueue(s, t);
}

static void preempt(struct scheduler *s, struct text *t)
{
    t->usage.preempted++;
    s->counts.preempted++;
    begin_again(s, t);
}

/* Gets a block for one more token of T: a free one, or by preempting the youngest text
 * that is younger than T and not in flight. */
static bool take_block(struct scheduler *s, struct text *t)
{
    struct replica *r = &s->replica[t->replica];

    for (size_t i = r->nrunning; i-- > 0 && !replica_room(r);)
        if (r->running[i]->id > t->id && !r->running[i]->away)
            preempt(s, r->running[i]);
    if (!replica_room(r))
        return false;
    replica_add_blocks(r, t, t->blocks + 1);
    return true;
}

void scheduler_cancel(struct scheduler *s, uint64_t id)
{
    for (struct text **at = &s->queue; *at; at = &(*at)->next)
        if ((*at)->id == id) {
            text_free(dequeue(s, at));
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
                replica_end(&s->replica[t->replica], t);
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
           blocks_of_fork(s, t) <= replica_room(r);
}

/* F, of whom everything else is T's, begins with its rows. */
static void begin_fork(struct scheduler *s, struct text *f, const struct text *t)
{
    struct replica *r = &s->replica[t->replica];

    replica_fork(r, f, t, blocks_of_fork(s, t));
    replica_add_blocks(r, f, blocks_at_first(s, f));
    replica_join(r, f, t->done);
    f->replica = t->replica;
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
    f->eager = t->eager;
    f->told = t->told;
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

/* Where the last full block ends that T and a text of the queue have in common, if that
 * is within the next N tokens of T; 0: nowhere. */
static size_t shared_end(const struct scheduler *s, const struct text *t, size_t n)
{
    size_t most = 0, looks = 0;

    for (const struct text *q = s->queue; q && looks < LOOKS; q = q->next, looks++) {
        size_t alike;

        if (!q->shares || !text_may_share(q, t))
            continue;
        alike = text_common(t, q, q->n - 1 < t->n ? q->n - 1 : t->n);
        alike = alike / CACHE_BLOCK * CACHE_BLOCK;
        if (alike > t->done && alike <= t->done + n && alike > most)
            most = alike;
    }
    return most;
}

/* How the token after T's first N is chosen, at output row ROW. */
static size_t choose(struct scheduler *s, struct text *t, size_t n, size_t row)
{
    const bool edits = s->o.grow && t->in.how;
    struct plan_pick pick = {
        .row = (int32_t)row,
        .known = -1,
        .pick = { .draw = t->draw, .typical_p = 1, .only = -1, .likely = -1 }
    };

    pick.pick.draw.position += n;
    if (edits)
        processors_apply(t->in.how, t->ids, n, &t->cursor, &s->edits, &pick.pick);
    plan_pick(&s->replica[t->replica].plan, &pick,
              edits ? &s->edits.made : &(struct pick_edits){ 0 });
    return pick_told(&pick.pick);
}

/* The same of the token after T's first N, which is told. */
static void tell(struct scheduler *s, const struct text *t, size_t n)
{
    const struct plan_pick pick = {
        .row = (int32_t)(n - 1 - t->done),
        .known = t->ids[n],
        .pick = { .typical_p = 1, .only = -1, .likely = t->in.how->likely }
    };

    plan_pick(&s->replica[t->replica].plan, &pick, &(struct pick_edits){ 0 });
}

/* How many of the next N tokens of T tell the token after them: those of its prompt but
 * the last.  So they are at the end of the N, with the one that decides. */
static size_t tells(const struct text *t, size_t n)
{
    const size_t first = t->done > t->told ? t->done : t->told;
    const size_t end =
        t->done + n < t->usage.prompt ? t->done + n : t->usage.prompt - 1;

    return t->in.tells && end > first ? end - first : 0;
}

/* Tokens that are drawn beside the next one of T. */
static size_t others_of(const struct text *t)
{
    return t->in.how && t->in.how->draws > 1 && t->n == t->in.how->prompt
               ? (size_t)t->in.how->draws - 1
               : 0;
}

/* Adds NTOLD output rows of T that are told, and if its LAST token is in the step,
 * those after which tokens are chosen; and what the step is to say of T. */
static void add_answer(struct scheduler *s, struct flight *f, struct text *t,
                       size_t ntold, bool last)
{
    const size_t rows = last ? 1 + t->ndrafted : 0, chosen = s->o.grow ? rows : 0;
    size_t each = ntold ? pick_told(&(struct pick){ .likely = t->in.how->likely }) : 1;
    size_t first = t->done > t->told ? t->done : t->told;
    const size_t others = chosen ? others_of(t) : 0;

    for (size_t i = 0; i < ntold; i++)
        tell(s, t, first + i + 1);
    for (size_t i = 0; i < rows; i++)
        each = choose(s, t, t->n + i, t->n + i - 1 - t->done) - others;
    if (!ntold && !chosen)
        return;
    f->answer[f->nanswers++] = (struct answer){ .deciding = chosen ? t : NULL,
                                                .id = t->id,
                                                .tag = t->in.tag,
                                                .first = t->told + 1,
                                                .ntold = ntold,
                                                .n = ntold + chosen,
                                                .each = each,
                                                .nothers = others };
    f->ntold += (ntold + chosen) * each + others;
    t->told += ntold;
    t->away |= chosen > 0;
}

/* Appends to the ids of T what is drafted, which the step reads. */
static void append_drafted(struct text *t)
{
    t->own = xgrow(t->own, &t->cap, t->n + t->ndrafted, sizeof(*t->own));
    memcpy(t->own + t->n, t->draft, t->ndrafted * sizeof(*t->own));
    t->ids = t->own;
}

/* Adds the next N tokens of T to its replica's part of the step, and what is drafted
 * after them. */
static void add(struct scheduler *s, struct text *t, size_t n)
{
    struct flight *f = flight_of(s, s->nflights, t->replica);
    struct replica *r = &s->replica[t->replica];
    const bool last = t->done + n == t->n;
    struct plan_part part = { .id = t->id,
                              .tag = t->in.tag,
                              .last = last,
                              .decides = last && s->o.grow,
                              .draws = t->in.draw != NULL };
    struct segment to = { .n = n + t->ndrafted,
                          .start = t->done,
                          .length = t->n + t->ndrafted,
                          .sequence = t->sequence,
                          .adapter = t->in.adapter };

    if (t->ndrafted) {
        append_drafted(t);
        part.nsaves = replica_save_drafted(r, t, t->ndrafted, part.save);
    } else if (s->facts.states && t->shares && t->done < t->usage.prompt)
        part.nsaves = replica_save(r, t, n, shared_end(s, t, n), part.save);
    add_answer(s, f, t, tells(t, n), last);
    t->in.input[FEED_IDS] = t->ids;
    segment_cut(&to, s->runner->program, t->in.input, t->in.rows, t->done);
    if (t->in.targets)
        to.targets = t->in.targets + t->done;
    plan_add(&r->plan, &part, &to);
    t->before = t->done;
    t->step = s->step;
    s->counts.computed += to.n;
    s->counts.drafted += t->ndrafted;
    f->part[f->n++] = (struct scheduler_part){ .id = t->id,
                                               .tag = t->in.tag,
                                               .replica = t->replica,
                                               .start = t->done,
                                               .n = n,
                                               .last = last };
    t->done += n;
}

/* Is T in generation, with one token to compute? */
static bool is_growing(const struct scheduler *s, const struct text *t)
{
    return s->o.grow && t->done > 0 && t->done + 1 == t->n;
}

/* Finds the texts in generation whose next token is in the step, at most one stage's
 * share of these texts; the others belong to the steps of other stages. */
static void find_growing(struct scheduler *s, struct replica *r)
{
    size_t stages = (size_t)s->runner->nstages, share, n = 0;

    share = (r->nrunning + stages - 1) / stages;
    share = share < s->o.limits->segments ? share : s->o.limits->segments;
    for (size_t i = 0; i < r->nrunning && n < share; i++) {
        struct text *t = r->running[i];

        if (t->away || !is_growing(s, t))
            continue;
        if (replica_blocks(t->n) > t->blocks && !take_block(s, t))
            continue;
        t->away = true;
        s->growing[s->ngrowing++] = t;
        n++;
    }
}

/* How many tokens may be drafted of T: no more than it may have, and none at whose
 * length rotary angles change. */
static size_t most_drafted(const struct scheduler *s, const struct text *t)
{
    const size_t most = s->facts.drafts < t->eager ? s->facts.drafts : t->eager;
    size_t n = 0;

    if (s->runner->program->dynamic_rope || t->done < t->usage.prompt ||
        (t->in.how && t->in.how->of == PICK_SCORES)) /* a search waits after each */
        return 0;
    while (n < most && t->n + n < t->in.most &&
           !program_rope_changes(s->runner->program, t->n + n + 1))
        n++;
    return n;
}

/* Blocks for the N drafted tokens of T: none that another text could use now.  Returns
 * for how many there is room. */
static size_t room_for_drafted(struct scheduler *s, struct text *t, size_t n)
{
    struct replica *r = &s->replica[t->replica];

    while (replica_blocks(t->n + n) > t->blocks && !s->nwaiting && replica_room(r))
        replica_add_blocks(r, t, t->blocks + 1);
    while (n && replica_blocks(t->n + n) > t->blocks)
        n--;
    return n;
}

/* T takes what D has drafted, as far as its replica's step has room. */
static void take_drafted(struct scheduler *s, struct text *t,
                         const struct scheduler_draft *d)
{
    struct replica *r = &s->replica[t->replica];
    const size_t room = s->o.limits->drafted - r->drafted;

    assert(d->ndrafted <= d->most);
    t->ndrafted = d->ndrafted < room ? d->ndrafted : room;
    if (t->in.how)
        t->ndrafted = processors_take_drafted(t->in.how, t->ids, t->n, &t->cursor,
                                              t->draft, t->ndrafted);
    r->drafted += t->ndrafted;
}

/* Asks what follows the growing texts. */
static int draft(struct scheduler *s, struct err *err)
{
    size_t n = 0;

    if (!s->facts.drafts)
        return 0;
    for (size_t i = 0; i < s->ngrowing; i++) {
        struct text *t = s->growing[i];
        const size_t most = room_for_drafted(s, t, most_drafted(s, t));

        t->ndrafted = t->accepted = 0;
        if (most)
            s->draft[n++] =
                (struct scheduler_draft){ .id = t->id,
                                          .tag = t->in.tag,
                                          .salt = t->in.salt,
                                          .ids = t->ids,
                                          .n = t->n,
                                          .draw = t->in.draw ? &t->draw : NULL,
                                          .how = t->in.how,
                                          .most = most,
                                          .next = t->draft };
    }
    if (n && s->o.draft(s->o.arg, s->draft, n, err) < 0)
        return -1;
    for (size_t i = 0, k = 0; i < s->ngrowing && k < n; i++)
        if (s->growing[i]->draft == s->draft[k].next)
            take_drafted(s, s->growing[i], &s->draft[k++]);
    return 0;
}

/* Adds the next token of texts in generation, and drafted ones. */
static int add_growing(struct scheduler *s, struct err *err)
{
    s->ngrowing = 0;
    for (int i = 0; i < s->nreplicas; i++)
        find_growing(s, &s->replica[i]);
    if (draft(s, err) < 0)
        return -1;
    s->counts.growing += s->ngrowing;
    for (size_t i = 0; i < s->ngrowing; i++)
        add(s, s->growing[i], 1);
    return 0;
}

/* Tokens of T's next chunk.  Chunk boundaries are the same in every schedule. */
static size_t chunk_of(const struct scheduler *s, const struct text *t)
{
    size_t left = t->n - t->done, most = s->runner->chunk;

    if (t->in.tells && most > told_room(s))
        most = told_room(s);
    return left < most ? left : most;
}

/* Does the step have room for T's next chunk? */
static bool takes_chunk(const struct scheduler *s, const struct replica *r,
                        const struct text *t)
{
    return r->plan.n < s->o.limits->segments &&
           r->tokens + chunk_of(s, t) <= s->runner->chunk &&
           r->told + tells(t, chunk_of(s, t)) <= told_room(s) &&
           (t->done > 0 || r->sources + t->nsource <= s->o.limits->sources);
}

static void add_chunk(struct scheduler *s, struct replica *r, struct text *t)
{
    const size_t n = chunk_of(s, t);

    r->sources += t->done ? 0 : t->nsource;
    r->tokens += n;
    r->told += tells(t, n);
    add(s, t, n);
}

/* Blocks for tokens of T that came several at a time. */
static bool take_blocks(struct scheduler *s, struct text *t)
{
    while (replica_blocks(t->n) > t->blocks)
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
        replica_consider(r, how, t, r->running[i], false);
    for (size_t i = 0; i < r->nkept && t->shares; i++)
        replica_consider(r, how, t, r->kept[i], true);
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

/* Does R have a text that is not read, or room for one that waits? */
static bool may_read(const struct scheduler *s, const struct replica *r)
{
    bool may = s->nwaiting && r->nrunning < s->o.limits->sequences;

    for (size_t i = 0; i < r->nrunning && !may; i++) {
        const struct text *t = r->running[i];

        may = !t->away && t->done < t->n && !is_growing(s, t);
    }
    return may;
}

/* Is the step to have prompts?  Replicas end their steps together (settle), and a step
 * with a prompt takes much longer than others: of the replicas that have texts, all
 * read or none, but none waits for long, or with nothing to do. */
static bool reads(struct scheduler *s)
{
    int may = 0, busy = 0;
    bool idle = false;

    for (int i = 0; i < s->nreplicas; i++) {
        const struct replica *r = &s->replica[i];
        const bool own = may_read(s, r);

        may += own;
        busy += own || r->plan.n;
        idle |= own && !r->plan.n;
    }
    s->gathered = may && may < busy && !idle ? s->gathered + 1 : 0;
    if (s->gathered && s->gathered <= GATHER)
        return false;
    s->gathered = 0;
    return true;
}

/* *ANY: whether the step has any text. */
static int assemble(struct scheduler *s, bool *any, struct err *err)
{
    *any = false;
    s->step++;
    for (int i = 0; i < s->nreplicas; i++) {
        struct replica *r = &s->replica[i];
        struct flight *f = flight_of(s, s->nflights, i);

        f->n = f->nanswers = f->ntold = 0;
        r->step = s->step;
        r->tokens = r->sources = r->told = r->drafted = 0;
    }
    if (s->o.grow && add_growing(s, err) < 0)
        return -1;
    if (reads(s)) {
        for (int i = 0; i < s->nreplicas; i++)
            add_read(s, &s->replica[i]);
        add_waiting(s);
    }
    for (int i = 0; i < s->nreplicas; i++)
        *any |= s->replica[i].plan.n > 0;
    return 0;
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

/* How many of struct likely pick I of PART is to fill. */
static size_t told_by(const struct plan *p, const struct plan_part *part, size_t i)
{
    const struct plan_pick *pick = &p->pick[part->first + i];

    return pick->known >= 0 || part->decides ? pick_told(&pick->pick) : 0;
}

/* The logits of the step's rows, if one of its tokens is chosen or told by them
 * here. */
static int read_logits(struct scheduler *s, const struct plan *p, const float **logits,
                       size_t *vocab, struct err *err)
{
    const struct program *program = s->runner->program;
    bool needed = false;
    size_t rows;

    *logits = NULL;
    *vocab = 0;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->part[i].npicks; k++)
            needed |= told_by(p, &p->part[i], k) &&
                      pick_needs_logits(&p->pick[p->part[i].first + k].pick);
    if (!needed)
        return 0;
    assert(s->logits >= 0);
    *vocab = program->value[program->output[s->logits].value].whole_cols;
    return engine_output(s->runner->engine, s->logits, logits, &rows, err);
}

/* Chooses the next tokens of the step and sends them to rank 0, from the last stage. */
static int send_next(struct scheduler *s, const struct plan *p, struct err *err)
{
    struct runner *r = s->runner;
    size_t rows, n = 0, at = 0, vocab;
    const float *logits;
    const int32_t *ids;

    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->part[i].npicks; k++)
            n += told_by(p, &p->part[i], k);
    if (!n || !runner_is_last(r))
        return 0;
    s->told = xgrow(s->told, &s->cap_told, n, sizeof(*s->told));
    s->ntold = n;
    if (engine_ids(r->engine, 0, &ids, &rows, err) < 0)
        return -1;
    /* of a device they stay until the next output is read */
    s->next = xgrow(s->next, &s->cap_next, rows + 1, sizeof(*s->next));
    memcpy(s->next, ids, rows * sizeof(*s->next));
    if (read_logits(s, p, &logits, &vocab, err) < 0)
        return -1;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->part[i].npicks; k++) {
            const size_t row = p->part[i].first + k, told = told_by(p, &p->part[i], k);
            const struct plan_pick *pick = &p->pick[row];
            const struct pick_edits edits = plan_edits(p, pick);
            const float *own = logits ? logits + row * vocab : NULL;

            if (told && pick->known >= 0)
                pick_tell(own, vocab, pick->known, told - 1, s->told + at);
            else if (told)
                pick_token(s->picker, own, vocab, &pick->pick, &edits, s->next[row],
                           s->told + at);
            at += told;
        }
    return runner_send(r, r->stage, s->told, s->ntold * sizeof(*s->told), err);
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
            replica_end(r, r->running[i]);
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
    for (int i = 0; i < s->nreplicas; i++) {
        struct flight *f = flight_of(s, s->nflights, i);

        f->told = xgrow(f->told, &f->cap_told, f->ntold + 1, sizeof(*f->told));
    }
    if (own->ntold && runner_is_last(s->runner))
        memcpy(own->told, s->told, own->ntold * sizeof(*own->told));
    for (int i = 0; i < s->nreplicas; i++) {
        if (all || s->replica[i].plan.n)
            plan_reset(&s->replica[i].plan);
        leave_read(s, &s->replica[i]);
    }
    s->nflights++;
    return 0;
}

/* T gains a token, TOLD with NLIKELY others, and NOTHERS that are drawn beside it.
 * *ON: it goes on with the one that was drafted, whose row has been computed. */
static int gain_one(struct scheduler *s, struct text *t, const struct likely *told,
                    size_t nlikely, size_t nothers, bool *on, struct err *err)
{
    const struct scheduler_gain gain = { .id = t->id,
                                         .tag = t->in.tag,
                                         .next = told->id,
                                         .likely = told,
                                         .nlikely = nlikely,
                                         .others = told + 1 + nlikely,
                                         .nothers = nothers };
    const size_t before = t->n;

    s->gaining = t;
    if (s->o.gain(s->o.arg, &gain, err) < 0)
        return -1;
    s->gaining = NULL;
    *on = !t->over && !t->holds && t->n == before + 1 && t->accepted < t->ndrafted &&
          t->ids[before] == t->draft[t->accepted];
    return 0;
}

/* More tokens of T are drafted after drafts that were right, and fewer after others. */
static void learn(struct text *t)
{
    if (t->ndrafted && t->accepted == t->ndrafted)
        t->eager += MORE;
    else if (t->ndrafted && t->eager > 1)
        t->eager--;
    if (t->eager > DRAFTS_MOST)
        t->eager = DRAFTS_MOST;
}

/* T gains the tokens of a step, each TOLD with NLIKELY others. */
static int gain(struct scheduler *s, struct text *t, const struct likely *told,
                size_t nlikely, size_t nothers, struct err *err)
{
    size_t before = t->n;
    bool on = !t->over;

    t->away = false;
    for (; on; told += 1 + nlikely) {
        before = t->n;
        if (gain_one(s, t, told, nlikely, nothers, &on, err) < 0)
            return -1;
        t->accepted += on;
        t->done += on;
        s->counts.accepted += on;
    }
    learn(t);
    replica_undo_drafted(&s->replica[t->replica], t);
    if (t->over || (t->n == before && !t->holds))
        replica_end(&s->replica[t->replica], t);
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

/* A text that does not wait for its caller, or NULL: all others do. */
static const struct text *next_text(const struct scheduler *s)
{
    const struct text *t = s->queue;

    while (t && t->holds)
        t = t->next;
    for (int i = 0; i < s->nreplicas && !t; i++)
        for (size_t k = 0; k < s->replica[i].nrunning && !t; k++)
            if (!s->replica[i].running[k]->holds)
                t = s->replica[i].running[k];
    return t;
}

/* No text can go on: preempts the youngest of those that wait for their caller.  False:
 * there is none. */
static bool make_way(struct scheduler *s)
{
    struct text *youngest = NULL;

    for (int i = 0; i < s->nreplicas; i++)
        for (size_t k = 0; k < s->replica[i].nrunning; k++) {
            struct text *t = s->replica[i].running[k];

            if (t->holds && (!youngest || t->id > youngest->id))
                youngest = t;
        }
    if (youngest)
        preempt(s, youngest);
    return youngest;
}

/* Gives what a step has told of a text to those who asked for it, unless it was
 * cancelled meanwhile. */
static int take_told(struct scheduler *s, const struct answer *a,
                     const struct likely *told, struct err *err)
{
    const struct text *t = a->ntold ? text_of(s, a->id) : NULL;
    const struct scheduler_told of = { .id = a->id,
                                       .tag = a->tag,
                                       .first = a->first,
                                       .n = a->ntold,
                                       .likely = told,
                                       .nlikely = a->each - 1 };

    return t && !t->over ? s->o.told(s->o.arg, &of, err) : 0;
}

static int take_answer(struct scheduler *s, const struct answer *a,
                       const struct likely *told, struct err *err)
{
    if (take_told(s, a, told, err) < 0)
        return -1;
    return a->deciding ? gain(s, a->deciding, told + a->ntold * a->each, a->each - 1,
                              a->nothers, err)
                       : 0;
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
        if (f->ntold &&
            runner_receive(r, i, last, f->told, f->ntold * sizeof(*f->told), err) < 0)
            return -1;
    }
    s->nflights--;
    for (int i = 0; i < s->nreplicas; i++) {
        struct flight *f = flight_of(s, 0, i);

        for (size_t k = 0, at = 0; k < f->nanswers; k++) {
            const struct answer *a = &f->answer[k];

            if (take_answer(s, a, f->told + at, err) < 0)
                return -1;
            at += a->n * a->each + a->nothers;
        }
    }
    s->first = (s->first + 1) % (size_t)r->nstages;
    return 0;
}

int scheduler_step(struct scheduler *s, struct err *err)
{
    const struct text *next;
    bool any;

    if (assemble(s, &any, err) < 0 || (any && run_step(s, err) < 0))
        return -1;
    if (!any && !s->nflights) {
        next = next_text(s);
        if (next && make_way(s))
            return 1;
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
