/* scheduler - continuous batching: chooses the texts of each step */
#include "lib/run/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/run/cache.h"

/* A step that is being assembled or in flight. */
struct step {
    size_t *text; /* [n] */
    size_t n;
    size_t deciding; /* number of texts whose next token it computes */
    size_t *decided; /* [deciding]: these texts */
    int32_t *next;   /* [deciding]: their next tokens */
    size_t end;      /* all texts before this one have been run completely */
};

struct state {
    struct scheduler *s;
    struct segment *segment;               /* [segments] */
    int32_t *wanted;                       /* [segments] */
    struct draw *draw;                     /* [segments] */
    int32_t *next;                         /* [segments] */
    bool *taken;                           /* [sequences] */
    size_t all, source_all;                /* blocks of the cache */
    size_t running, blocks, source_blocks; /* texts with a sequence, and the blocks that
                                            * they use */
    struct step *step;      /* [stages]: ring buffer of steps in flight */
    size_t first, away;     /* its first entry and number of entries */
    size_t front;           /* all texts before this one are over */
    size_t tokens, sources; /* added to the step that is being assembled */
};

static size_t blocks_of(size_t rows)
{
    return cache_blocks(rows, 1, 0);
}

/* ---- room ---- */

static size_t blocks_left(const struct state *st)
{
    return st->all - st->blocks;
}

static size_t find_sequence(const struct state *st)
{
    size_t i = 0;

    while (st->taken[i])
        i++;
    return i;
}

/* Blocks that T needs to begin: for its tokens, or for its full length (dynamic
 * RoPE). */
static size_t blocks_at_first(const struct state *st, const struct scheduler_text *t)
{
    return blocks_of(st->s->grow && st->s->runner->program->dynamic_rope ? t->most
                                                                         : t->n);
}

/* Are there blocks for all tokens of T and one generated token? */
static bool has_room(const struct state *st, const struct scheduler_text *t)
{
    size_t more = st->s->grow && t->n < t->most;

    return st->running < st->s->limits->sequences &&
           blocks_at_first(st, t) <= blocks_left(st) &&
           blocks_of(t->n + more) <= blocks_left(st) &&
           blocks_of(t->nsource) <= st->source_all - st->source_blocks;
}

static void begin(struct state *st, size_t text)
{
    struct scheduler_text *t = &st->s->text[text];

    t->sequence = find_sequence(st);
    t->blocks = blocks_at_first(st, t);
    t->source_blocks = blocks_of(t->nsource);
    t->done = 0;
    t->running = true;
    st->taken[t->sequence] = true;
    st->running++;
    st->blocks += t->blocks;
    st->source_blocks += t->source_blocks;
    if (st->s->begin)
        st->s->begin(st->s->arg, text);
}

/* Frees T's sequence and blocks. */
static void leave(struct state *st, struct scheduler_text *t)
{
    engine_forget(st->s->runner->engine, t->sequence);
    st->taken[t->sequence] = false;
    st->running--;
    st->blocks -= t->blocks;
    st->source_blocks -= t->source_blocks;
    t->blocks = t->source_blocks = t->done = 0;
    t->running = false;
}

/* Gets a block for one more token of text TEXT: a free one, or by preempting the
 * youngest text that is younger than TEXT and not in flight. */
static bool take_block(struct state *st, size_t text)
{
    struct scheduler_text *t = &st->s->text[text];

    for (size_t i = st->s->ntexts; i-- > text + 1 && !blocks_left(st);)
        if (st->s->text[i].running && !st->s->text[i].away)
            leave(st, &st->s->text[i]);
    if (!blocks_left(st))
        return false;
    t->blocks++;
    st->blocks++;
    return true;
}

/* ---- assembling a step ---- */

/* Adds the next N tokens of text TEXT. */
static void add(struct state *st, struct step *step, size_t text, size_t n)
{
    struct scheduler *s = st->s;
    struct scheduler_text *t = &s->text[text];
    struct segment *to = &st->segment[step->n];
    bool last = t->done + n == t->n;

    *to = (struct segment){ .ids = t->ids + t->done,
                            .n = n,
                            .start = t->done,
                            .length = t->n,
                            .sequence = t->sequence,
                            .wanted = &st->wanted[step->n],
                            .nwanted = last };
    if (t->token_types)
        to->token_types = t->token_types + t->done;
    if (t->marks)
        to->marks = t->marks + t->done * MARKS;
    if (t->targets)
        to->targets = t->targets + t->done;
    if (t->done == 0) {
        to->source = t->source;
        to->nsource = t->nsource;
        to->features = t->features;
        to->nframes = t->nframes;
    }
    if (t->draw) {
        st->draw[step->n] = *t->draw;
        st->draw[step->n].position += t->n;
        to->draw = &st->draw[step->n];
    }
    st->wanted[step->n] = (int32_t)n - 1;
    step->text[step->n++] = text;
    if (last && s->grow) {
        step->decided[step->deciding++] = text;
        t->away = true;
    }
    t->done += n;
}

/* Adds the next token of texts in generation, at most one stage's share of these texts;
 * the others belong to the steps of other stages. */
static void add_growing(struct state *st, struct step *step)
{
    struct scheduler *s = st->s;
    size_t stages = (size_t)s->runner->nstages, share;

    share = (st->running + stages - 1) / stages;
    share = share < s->limits->segments ? share : s->limits->segments;
    for (size_t i = st->front; i < s->ntexts && step->n < share; i++) {
        struct scheduler_text *t = &s->text[i];

        if (!t->running || t->away || t->done == 0 || t->done + 1 != t->n)
            continue;
        if (blocks_of(t->n) > t->blocks && !take_block(st, i))
            continue;
        add(st, step, i, 1);
    }
}

/* Tokens of T's next chunk.  Chunk boundaries are the same in every schedule. */
static size_t chunk_of(const struct scheduler *s, const struct scheduler_text *t)
{
    size_t left = t->n - t->done;

    return left < s->runner->chunk ? left : s->runner->chunk;
}

/* Adds chunks of prompts in order, while there is room. */
static void add_read(struct state *st, struct step *step)
{
    struct scheduler *s = st->s;

    for (size_t i = st->front; i < s->ntexts && step->n < s->limits->segments; i++) {
        struct scheduler_text *t = &s->text[i];
        size_t n;

        if (t->over || t->away || (t->running && s->grow && t->done + 1 == t->n))
            continue;
        n = chunk_of(s, t);
        if (st->tokens + n > s->runner->chunk || (!t->running && !has_room(st, t)) ||
            (t->done == 0 && st->sources + t->nsource > s->limits->sources))
            return;
        if (!t->running)
            begin(st, i);
        st->sources += t->done ? 0 : t->nsource;
        st->tokens += n;
        add(st, step, i, n);
        if (t->done < t->n)
            return;
    }
}

/* Frees what texts hold that .settled has ended. */
static void leave_ended(struct state *st)
{
    for (size_t i = st->front; i < st->s->ntexts; i++)
        if (st->s->text[i].over && st->s->text[i].running && !st->s->text[i].away)
            leave(st, &st->s->text[i]);
}

static void put_together(struct state *st, struct step *step)
{
    step->n = step->deciding = 0;
    st->tokens = st->sources = 0;
    if (st->s->grow)
        add_growing(st, step);
    add_read(st, step);
}

/* ---- running a step ---- */

/* The rows of each kind in segment I of the step, and the rows before it. */
static struct scheduler_part part_of(const struct state *st, const struct step *step,
                                     size_t i)
{
    const struct segment *s = &st->segment[i];
    const struct scheduler_text *t = &st->s->text[step->text[i]];
    struct scheduler_part p = { .text = step->text[i],
                                .start = s->start,
                                .n = s->n,
                                .last = s->start + s->n == t->n,
                                .engine = st->s->runner->engine,
                                .alone = step->n == 1 };

    for (size_t k = 0; k < i; k++) {
        p.row[ROWS_TOKENS] += st->segment[k].n;
        p.row[ROWS_WANTED] += st->segment[k].nwanted;
        p.row[ROWS_SOURCE] += st->segment[k].nsource;
        p.row[ROWS_FRAMES] += st->segment[k].nframes;
        p.row[ROWS_HALVES] += (size_t)program_halved(st->segment[k].nframes);
    }
    p.row[ROWS_ONE] = i;
    p.rows[ROWS_TOKENS] = s->n;
    p.rows[ROWS_WANTED] = s->nwanted;
    p.rows[ROWS_SOURCE] = s->nsource;
    p.rows[ROWS_FRAMES] = s->nframes;
    p.rows[ROWS_HALVES] = (size_t)program_halved(s->nframes);
    p.rows[ROWS_ONE] = 1;
    return p;
}

const float *scheduler_rows(const struct scheduler_part *part, enum row_kind kind,
                            const float *x, size_t cols, size_t *rows)
{
    if (part->alone)
        return x;
    *rows = part->rows[kind];
    return x + part->row[kind] * cols;
}

static int run_step(struct state *st, struct step *step, struct err *err)
{
    struct scheduler *s = st->s;

    if (engine_step(s->runner->engine, st->segment, step->n, err) < 0)
        return -1;
    for (size_t i = 0; i < step->n && s->see; i++) {
        struct scheduler_part part = part_of(st, step, i);

        if (s->see(s->arg, &part, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < step->n && !s->grow; i++) {
        struct scheduler_text *t = &s->text[step->text[i]];

        if (t->done < t->n)
            continue;
        leave(st, t);
        t->over = true;
    }
    while (st->front < s->ntexts && s->text[st->front].over)
        st->front++;
    step->end = st->front;
    return 0;
}

/* Broadcasts the next tokens that STEP, the last step run here, has computed. */
static int tell(struct state *st, struct step *step, struct err *err)
{
    struct runner *r = st->s->runner;
    const float *x;
    size_t rows;

    if (!step->deciding || !runner_is_last(r))
        return 0;
    if (engine_output(r->engine, 0, &x, &rows, err) < 0)
        return -1;
    for (size_t i = 0; i < step->deciding; i++)
        step->next[i] = (int32_t)x[i];
    return runner_broadcast(r, step->next, step->deciding * sizeof(*step->next), err);
}

/* Takes the results of the oldest step in flight. */
static int settle(struct state *st, struct err *err)
{
    struct scheduler *s = st->s;
    struct step *step = &st->step[st->first];
    size_t stages = (size_t)s->runner->nstages;

    st->first = (st->first + 1) % stages;
    st->away--;
    if (step->deciding &&
        runner_receive_broadcast(s->runner, step->next,
                                 step->deciding * sizeof(*step->next), err) < 0)
        return -1;
    for (size_t i = 0; i < step->deciding; i++) {
        struct scheduler_text *t = &s->text[step->decided[i]];

        t->away = false;
        if (s->gain(s->arg, step->decided[i], step->next[i], err) < 0)
            return -1;
        if (t->over || program_rope_changes(s->runner->program, t->n))
            leave(st, t); /* the second: recompute from the beginning */
    }
    return s->settled ? s->settled(s->arg, step->end, err) : 0;
}

/* ---- all steps ---- */

enum { STEP, AWAY }; /* indices of any[]: is there a step to run; is a step in flight */

static void open_state(struct state *st, struct scheduler *s)
{
    size_t stages = (size_t)s->runner->nstages;

    *st = (struct state){ .s = s };
    st->all =
        s->runner->program->nslots
            ? cache_blocks(s->limits->context, s->limits->sequences, s->limits->cache)
            : SIZE_MAX / 2;
    st->source_all =
        cache_blocks(s->limits->source, s->limits->sequences, s->limits->cache);
    st->segment = xcalloc(s->limits->segments + 1, sizeof(*st->segment));
    st->wanted = xcalloc(s->limits->segments + 1, sizeof(*st->wanted));
    st->draw = xcalloc(s->limits->segments + 1, sizeof(*st->draw));
    st->taken = xcalloc(s->limits->sequences + 1, sizeof(*st->taken));
    st->step = xcalloc(stages + 1, sizeof(*st->step));
    for (size_t i = 0; i < stages; i++) {
        st->step[i].text = xcalloc(s->limits->segments + 1, sizeof(*st->step[i].text));
        st->step[i].decided =
            xcalloc(s->limits->segments + 1, sizeof(*st->step[i].decided));
        st->step[i].next = xcalloc(s->limits->segments + 1, sizeof(*st->step[i].next));
    }
}

static void close_state(struct state *st)
{
    for (int i = 0; i < st->s->runner->nstages; i++) {
        free(st->step[i].text);
        free(st->step[i].decided);
        free(st->step[i].next);
    }
    free(st->step);
    free(st->taken);
    free(st->draw);
    free(st->wanted);
    free(st->segment);
}

int scheduler_run(struct scheduler *s, struct err *err)
{
    size_t stages = (size_t)s->runner->nstages;
    struct state st;
    int ret = 0;

    open_state(&st, s);
    while (ret == 0) {
        struct step *step = &st.step[(st.first + st.away) % stages];
        bool any[2];

        leave_ended(&st);
        while (st.front < s->ntexts && s->text[st.front].over)
            st.front++;
        put_together(&st, step);
        any[STEP] = step->n > 0;
        any[AWAY] = st.away > 0;
        ret = runner_agree(s->runner, any, 2, err);
        if (ret < 0 || (!any[STEP] && !any[AWAY]))
            break;
        if (any[STEP]) { /* may have no texts, if only other replicas have some */
            ret = run_step(&st, step, err) < 0 ? -1 : tell(&st, step, err);
            st.away++;
        }
        if (ret == 0 && st.away && (!any[STEP] || st.away == stages))
            ret = settle(&st, err);
    }
    if (ret == 0 && st.front < s->ntexts)
        ret = err_set(err, ERR_SYSTEM, "the cache has no room for a text of %zu tokens",
                      s->text[st.front].n);
    close_state(&st);
    return ret;
}
