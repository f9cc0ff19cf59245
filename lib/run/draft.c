/* draft - what may follow texts: from what they have had before, or by a smaller model
 */
#include "lib/run/draft.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

/* As many tokens of a text's end are looked for, or fewer, but more than one: of one
 * token alone, what followed it says little. */
enum { LONGEST = 3, SHORTEST = 2 };
/* Tokens of a step of a model. */
enum { CHUNK = 256 };
/* A trial: PLAIN steps without a draft, then TRIED with it, ROUNDS times.  One that
 * pays is repeated after REST steps. */
enum { PLAIN = 8, TRIED = 24, ROUNDS = 2, REST = 512, TRIALS = 2 };

/* A text that a model has read. */
struct reader {
    uint64_t id, salt;
    bool used;
    uint64_t last; /* the call that used it */
    int32_t *ids;  /* [n]: in the cache */
    size_t n, cap;
    struct scheduler_draft *to; /* during a call: of the text; NULL: not in it */
    size_t given;               /* tokens of the step that is being made */
};

/* Steps of one kind. */
struct measured {
    double seconds;
    uint64_t tokens;
};

struct drafter {
    /* of a model; or .texts is 0 */
    struct drafter_model model;
    struct comm *self;
    struct runner runner;
    bool open;
    size_t texts, context;
    uint64_t vocab; /* its own */
    struct reader *reader;
    struct segment *segment; /* [texts] */
    struct draw *draw;       /* [texts] */
    int32_t *row;            /* [texts] */
    uint64_t call;
    /* the trial */
    const struct scheduler *scheduler; /* NULL: there is none */
    unsigned stages, at;            /* at: calls since the trial began, or its rest */
    bool rests, tries;              /* tries: the last step may have a draft */
    double then;                    /* the time of the last call, */
    struct scheduler_counts counts; /* and what had been computed */
    struct measured plain, tried;
    struct drafter_gain gain;
    unsigned losses; /* trials, one after the other */
};

/* ---- looking up ---- */

/* Does IDS[n] have its last G tokens at AT, too? */
static bool is_like(const int32_t *ids, size_t n, size_t at, size_t g)
{
    return !memcmp(ids + at, ids + n - g, g * sizeof(*ids));
}

/* Drafts what followed the last place before the end of V's text that is like its end;
 * past the end of the text, what has been drafted itself. */
static void look_up(struct scheduler_draft *v)
{
    for (size_t g = LONGEST; g >= SHORTEST && !v->ndrafted; g--)
        for (size_t at = v->n > g ? v->n - g : 0; at-- > 0 && !v->ndrafted;) {
            if (!is_like(v->ids, v->n, at, g))
                continue;
            for (size_t k = at + g; v->ndrafted < v->most; k++)
                v->next[v->ndrafted++] = k < v->n ? v->ids[k] : v->next[k - v->n];
        }
}

/* ---- a model ---- */

struct drafter *drafter_lookup(void)
{
    return xcalloc(1, sizeof(struct drafter));
}

static int check_model(const struct drafter *d, struct err *err)
{
    const struct program *p = d->runner.program;
    const char *path = d->model.checkpoint->path,
               *family = d->model.checkpoint->model->family;

    if (!p->causal || p->source)
        return err_set(err, ERR_INPUT, "%s: family %s cannot draft: %s", path, family,
                       p->source ? "it needs a source"
                                 : "it is an encoder and generates no text");
    if (p->dynamic_rope)
        return err_set(
            err, ERR_INPUT,
            "%s: a model with dynamic rotary angles cannot draft: what it has "
            "cached cannot be cut back",
            path);
    if (engine_has_states(d->runner.engine))
        return err_set(err, ERR_INPUT,
                       "%s: family %s cannot draft: its states cannot be cut back",
                       path, family);
    return 0;
}

static int open_model(struct drafter *d, struct err *err)
{
    const struct drafter_model *m = &d->model;
    const int one[MESH_NAXES] = { 0 };
    const struct program_options options = { .tail =
                                                 m->draws ? TAIL_SAMPLE : TAIL_ARGMAX,
                                             .wanted = true,
                                             .deterministic = m->deterministic,
                                             .rounded = m->rounded };
    const uint64_t context = model_context(m->checkpoint->model);
    struct engine_limits limits = { .tokens = CHUNK, .whole = true };
    struct mesh mesh;
    double vocab = 0;

    d->context = m->context;
    if (context && d->context > context)
        d->context = (size_t)context;
    limits.context = d->context;
    limits.running = limits.wanted = limits.segments = limits.sequences = d->texts;
    d->self = comm_self_open();
    if (mesh_set(&mesh, one, NULL, err) < 0 ||
        runner_open(&d->runner, m->checkpoint, &mesh, &m->machine, d->self, &options,
                    &limits, err) < 0)
        return -1;
    d->open = true;
    model_number(m->checkpoint->model, "vocab", &vocab);
    d->vocab = (uint64_t)vocab;
    return check_model(d, err);
}

int drafter_open(struct drafter **out, const struct drafter_model *model,
                 struct err *err)
{
    struct drafter *d = xcalloc(1, sizeof(*d));

    d->model = *model;
    d->texts = model->texts < DRAFTER_TEXTS ? model->texts : DRAFTER_TEXTS;
    d->reader = xcalloc(d->texts + 1, sizeof(*d->reader));
    d->segment = xcalloc(d->texts + 1, sizeof(*d->segment));
    d->draw = xcalloc(d->texts + 1, sizeof(*d->draw));
    d->row = xcalloc(d->texts + 1, sizeof(*d->row));
    if (open_model(d, err) < 0) {
        drafter_close(d);
        return -1;
    }
    *out = d;
    return 0;
}

void drafter_close(struct drafter *d)
{
    if (!d)
        return;
    if (d->open)
        runner_close(&d->runner);
    if (d->self)
        d->self->ops->close(d->self);
    for (size_t i = 0; i < d->texts; i++)
        free(d->reader[i].ids);
    free(d->reader);
    free(d->segment);
    free(d->draw);
    free(d->row);
    free(d);
}

void drafter_memory(const struct drafter *d, struct ledger *list)
{
    static const enum ledger_where places[] = { LEDGER_DEVICE, LEDGER_HOST,
                                                LEDGER_SHARED };
    struct ledger own = { 0 };

    if (d->texts)
        runner_memory(&d->runner, &own);
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        ledger_add(list, "draft", places[i], ledger_sum(&own, places[i]));
}

/* The reader of text ID, or the one that was not used for the longest time. */
static struct reader *reader_of(struct drafter *d, uint64_t id)
{
    struct reader *oldest = d->reader;

    for (size_t i = 0; i < d->texts; i++) {
        struct reader *r = &d->reader[i];

        if (r->used && r->id == id)
            return r;
        if (r->last < oldest->last)
            oldest = r;
    }
    return oldest->last < d->call ? oldest : NULL;
}

/* Do the rotary angles of all tokens change where a text grows from FROM to N? */
static bool rope_changes(const struct drafter *d, size_t from, size_t n)
{
    while (++from <= n)
        if (program_rope_changes(d->runner.program, from))
            return true;
    return false;
}

/* R goes on with what it has in common with V's text, if that is of the same salt
 * (scheduler.h).  Its last token is read in any case. */
static void begin(struct drafter *d, struct reader *r, struct scheduler_draft *v)
{
    const size_t sequence = (size_t)(r - d->reader);
    size_t same = 0;

    r->to = v;
    if (r->salt != v->salt)
        r->n = 0;
    while (same < r->n && same + 1 < v->n && r->ids[same] == v->ids[same])
        same++;
    if (rope_changes(d, r->n < v->n ? r->n : v->n - 1, v->n))
        same = 0;
    if (!same)
        engine_forget(d->runner.engine, sequence);
    else if (same < r->n)
        engine_truncate(d->runner.engine, sequence, same);
    r->n = same;
    r->id = v->id;
    r->salt = v->salt;
    r->used = true;
    r->last = d->call;
}

/* Can the model read V's text, and what it drafts? */
static bool can_read(const struct drafter *d, const struct scheduler_draft *v)
{
    if (v->n + v->most > d->context)
        return false;
    for (size_t i = 0; i < v->n; i++)
        if ((uint64_t)v->ids[i] >= d->vocab)
            return false;
    return true;
}

/* Tokens of R's text and of its draft. */
static size_t known(const struct reader *r)
{
    return r->to->n + r->to->ndrafted;
}

/* Copies what R has not read to its ids; at most ROOM tokens. */
static size_t give(struct reader *r, size_t room)
{
    const size_t n = known(r), left = n - r->n, some = left < room ? left : room;

    r->ids = xgrow(r->ids, &r->cap, n, sizeof(*r->ids));
    for (size_t i = r->n; i < r->n + some; i++)
        r->ids[i] = i < r->to->n ? r->to->ids[i] : r->to->next[i - r->to->n];
    return some;
}

/* How the token after R's text and its draft is drawn. */
static struct draw draw_of(const struct reader *r)
{
    struct draw draw = { .temperature = 0, .top_p = 1 };

    if (r->to->draw)
        draw = *r->to->draw;
    if (r->to->how) {
        const struct processor_setting *v = r->to->how->processors->v;

        draw.temperature = v[PROCESSOR_TEMPERATURE].number;
        draw.top_k = (uint64_t)v[PROCESSOR_TOP_K].number;
        draw.top_p = v[PROCESSOR_TOP_P].number;
    }
    draw.position += known(r);
    return draw;
}

/* Makes the next step: the segments of what texts have not been read, and for those
 * that are, an output row.  Returns their number. */
static size_t make_step(struct drafter *d)
{
    size_t n = 0, room = CHUNK;

    for (size_t i = 0; i < d->texts; i++) {
        struct reader *r = &d->reader[i];

        r->given = 0;
        if (!r->to || r->to->ndrafted == r->to->most || !room)
            continue;
        r->given = give(r, room);
        room -= r->given;
        d->row[n] = (int32_t)r->given - 1;
        d->draw[n] = draw_of(r);
        d->segment[n] = (struct segment){ .input[FEED_IDS] = r->ids + r->n,
                                          .n = r->given,
                                          .start = r->n,
                                          .length = known(r),
                                          .sequence = i,
                                          .wanted = &d->row[n],
                                          .nwanted = r->n + r->given == known(r),
                                          .draw = d->model.draws ? &d->draw[n] : NULL };
        n++;
    }
    return n;
}

/* Takes what the step says of the texts that are read. */
static void take(struct drafter *d, const int32_t *next)
{
    for (size_t i = 0, row = 0; i < d->texts; i++) {
        struct reader *r = &d->reader[i];
        const size_t n = r->to ? known(r) : 0;

        if (!r->given)
            continue;
        r->n += r->given;
        if (r->n < n)
            continue;
        if (next[row] < 0 || (uint64_t)next[row] >= d->model.vocab ||
            (uint64_t)next[row] >= d->vocab || rope_changes(d, n, n + 1))
            r->to->most = r->to->ndrafted; /* it says no more */
        else
            r->to->next[r->to->ndrafted++] = next[row];
        row++;
    }
}

static int run_model(struct drafter *d, struct scheduler_draft *v, size_t n,
                     struct err *err)
{
    const int32_t *next;
    size_t segments, rows;
    const struct runner *beside = d->model.beside;

    if (beside && beside->ops->wait(beside->device, err) < 0)
        return -1;
    d->call++;
    for (size_t i = 0; i < n; i++) {
        struct reader *r = can_read(d, &v[i]) ? reader_of(d, v[i].id) : NULL;

        if (r)
            begin(d, r, &v[i]);
    }
    while ((segments = make_step(d))) {
        if (engine_step(d->runner.engine, d->segment, segments, err) < 0 ||
            engine_ids(d->runner.engine, 0, &next, &rows, err) < 0)
            return -1;
        take(d, next);
    }
    for (size_t i = 0; i < d->texts; i++)
        d->reader[i].to = NULL;
    return 0;
}

/* ---- does it pay? ---- */

void drafter_try(struct drafter *d, const struct scheduler *s, int stages)
{
    d->scheduler = s;
    d->stages = (unsigned)stages;
}

struct drafter_gain drafter_gain(const struct drafter *d)
{
    return d->gain;
}

/* Adds the time since the last call, unless prompts were read in it, or steps of the
 * other kind are still on their way. */
static void measure(struct drafter *d)
{
    const double now = clock_seconds();
    const struct scheduler_counts c = scheduler_counts(d->scheduler);
    const struct scheduler_counts *b = &d->counts;
    const uint64_t grown = c.growing - b->growing, drafted = c.drafted - b->drafted;
    const unsigned at = d->at % (PLAIN + TRIED);
    struct measured *to = d->tries ? &d->tried : &d->plain;

    if (d->at && c.computed - b->computed == grown + drafted &&
        at - (at > PLAIN ? PLAIN : 0) >= d->stages) {
        to->seconds += now - d->then;
        to->tokens += grown + c.accepted - b->accepted;
    }
    d->then = now;
    d->counts = c;
}

/* The trial is over. */
static void judge(struct drafter *d)
{
    if (d->plain.tokens && d->tried.tokens && d->plain.seconds > 0 &&
        d->tried.seconds > 0) {
        d->gain.last = (double)d->tried.tokens / d->tried.seconds * d->plain.seconds /
                       (double)d->plain.tokens;
        d->gain.trials++;
        d->losses = d->gain.last < 1 ? d->losses + 1 : 0;
        d->gain.given_up = d->losses == TRIALS;
        d->rests = !d->losses;
    }
    d->plain = d->tried = (struct measured){ 0, 0 };
    d->at = 0;
}

/* Is the next step to have a draft? */
static bool may_draft(struct drafter *d)
{
    if (!d->scheduler)
        return true;
    if (d->gain.given_up)
        return false;
    if (d->rests) {
        d->rests = ++d->at < REST;
        d->at = d->rests ? d->at : 0;
        return true;
    }
    measure(d);
    if (d->at == (PLAIN + TRIED) * ROUNDS)
        judge(d);
    d->tries = d->at % (PLAIN + TRIED) >= PLAIN;
    d->at++;
    return d->tries;
}

int drafter_draft(struct drafter *d, struct scheduler_draft *v, size_t n,
                  struct err *err)
{
    if (!may_draft(d))
        return 0;
    if (d->texts)
        return run_model(d, v, n, err);
    for (size_t i = 0; i < n; i++)
        look_up(&v[i]);
    return 0;
}
