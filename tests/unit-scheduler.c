/* unit-scheduler - texts that come, stop and are cancelled change no other text
 *
 * Random schedules of texts, in a cache that has room for few of them, beside each text
 * alone.  SCHEDULES: how many for each layout. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/base/str.h"
#include "lib/run/launch.h"
#include "lib/run/scheduler.h"
#include "tests/tap.h"

enum {
    TEXTS = 20,
    PROMPT = 40,
    START = 37, /* most tokens with which texts begin alike */
    NEW = 16,
    MOST = PROMPT + NEW,
    CHUNK = 12,
    TOLD = 7,
    PLACES = 5,
    DRAFTS = 3,
    DRAFTED = 4,
    CACHE = 8 * 16 /* tokens: texts are preempted */
};

struct text {
    int32_t ids[MOST + 1];
    size_t prompt, new; /* tokens; new: at most */
    size_t at_once;     /* tokens that it gains at a time */
    struct draw draw;
    int32_t want[MOST]; /* what it gains alone */
    float want_nll[MOST];
    size_t wanted;
    /* of one schedule */
    int32_t got[MOST];
    float got_nll[MOST];
    size_t n;
    uint64_t id;
    bool submitted, over;
    size_t stop; /* it stops by itself after so many tokens */
    size_t fork; /* another goes on with its first so many tokens; 0: none does */
    size_t hold; /* it waits for its caller with so many tokens; 0: never */
    bool waits;
    float told[MOST], want_told[MOST]; /* of each token of its prompt but the first */
    size_t ntold;
    struct choosing how; /* of a text that tells them */
};

struct job {
    struct checkpoint *c;
    struct mesh mesh;
    int schedules;
    bool grow;
    struct text text[2 * TEXTS]; /* those after TEXTS are forks */
    struct scheduler *scheduler;
    struct runner *runner;
    uint64_t vocab;
    size_t late;     /* tokens of cancelled texts */
    uint64_t shared; /* tokens that texts had from others; none where */
    bool narrow;     /* a window is narrower than a block */
    struct rng guesses;
    uint64_t drafted, accepted;
};

/* ---- how long a step is ---- */

int __real_engine_step(struct engine *e, const struct segment *segment, size_t n,
                       struct err *err);
int __wrap_engine_step(struct engine *e, const struct segment *segment, size_t n,
                       struct err *err);

static size_t longest = CHUNK; /* what the engine of this rank has room for */

/* In place of engine_step: the linker's --wrap.  Of prompts a step has at most LONGEST
 * tokens, besides one or two of each text that grows, and drafted ones. */
int __wrap_engine_step(struct engine *e, const struct segment *segment, size_t n,
                       struct err *err)
{
    size_t tokens = 0;

    for (size_t i = 0; i < n; i++)
        if (segment[i].n > 2 &&
            (segment[i].n > 1 + DRAFTS || segment[i].nwanted < segment[i].n))
            tokens += segment[i].n;
    if (tokens > longest)
        return err_set(err, ERR_INPUT, "a step of %zu tokens of prompts", tokens);
    return __real_engine_step(e, segment, n, err);
}

/* ---- what a text gains ---- */

/* The scheduler counts what T has. */
static int check_usage(struct job *job, const struct text *t,
                       const struct scheduler_gain *by, struct err *err)
{
    struct scheduler_usage u;

    if (!scheduler_usage(job->scheduler, by->id, &u) || u.prompt != t->prompt ||
        u.gained != t->n || u.shared >= u.prompt || !u.begun)
        return err_set(err, ERR_INPUT, "text %d: its tokens are counted wrongly",
                       (int)by->tag);
    return 0;
}

/* T is about to gain a token.  A fork of it gains that, too, and what follows. */
static int fork_text(struct job *job, struct text *t, struct err *err)
{
    struct text *f = t + TEXTS;

    f->n = t->n;
    f->over = false;
    memcpy(f->got, t->got, sizeof(f->got));
    f->submitted = f->waits = true;
    return scheduler_fork(job->scheduler, t->id, &t->draw, (uint64_t)(f - job->text),
                          &f->id, err);
}

/* T has waited, and goes on. */
static void resume(struct job *job, struct text *t)
{
    int32_t more[2];
    size_t n = t >= job->text + TEXTS ? 0 : t->n - t->at_once;

    t->waits = false;
    if (t >= job->text + TEXTS)
        for (n = t->n; t->n < n + t->at_once && t->n < t->new; t->n++)
            t->got[t->n] = (t - TEXTS)->want[t->n];
    memcpy(more, t->got + n, (t->n - n) * sizeof(*more));
    scheduler_append(job->scheduler, t->id, more, t->n - n);
}

static int told(void *arg, const struct scheduler_told *by, struct err *err)
{
    struct job *job = arg;
    struct text *t = &job->text[by->tag];

    if (by->first != t->ntold + 1 || by->n > TOLD || by->first + by->n > t->prompt ||
        by->nlikely)
        return err_set(err, ERR_INPUT, "text %d: tells %zu tokens from %zu on",
                       (int)by->tag, by->n, by->first);
    for (size_t i = 0; i < by->n; i++) {
        if (by->likely[i].id != t->ids[by->first + i] || !(by->likely[i].logprob < 0))
            return err_set(err, ERR_INPUT, "text %d: token %zu is another",
                           (int)by->tag, by->first + i);
        t->told[t->ntold++] = by->likely[i].logprob;
    }
    job->late += t->over || t->id != by->id;
    return 0;
}

static bool tells(const struct job *job, const struct text *t)
{
    return job->grow && (t - job->text) % 3 == 2;
}

static int gain(void *arg, const struct scheduler_gain *by, struct err *err)
{
    struct job *job = arg;
    struct text *t = &job->text[by->tag];
    int32_t more[2] = { by->next,
                        (int32_t)(((uint64_t)by->next * 7 + 3) % job->vocab) };

    if (by->next < 0)
        return err_set(err, ERR_INPUT, "text %d has no next token", (int)by->tag);
    if (t < job->text + TEXTS && tells(job, t) && t->ntold != t->prompt - 1)
        return err_set(err, ERR_INPUT, "text %d: %zu tokens are told", (int)by->tag,
                       t->ntold);
    job->late += t->over || t->id != by->id;
    if (check_usage(job, t, by, err) < 0 ||
        (t->fork == t->n && fork_text(job, t, err) < 0))
        return -1;
    for (size_t i = 0; i < t->at_once && t->n < t->new; i++)
        t->got[t->n++] = more[i];
    if (t->n >= t->new || t->n >= t->stop)
        t->over = true;
    else if (t->n == t->hold)
        t->waits = true;
    if (t->waits)
        scheduler_hold(job->scheduler, by->id);
    else if (!t->over)
        scheduler_append(job->scheduler, by->id, more, t->at_once);
    return 0;
}

/* Drafts what texts gain alone, now and then wrongly. */
static int draft(void *arg, struct scheduler_draft *v, size_t n, struct err *err)
{
    struct job *job = arg;

    (void)err;
    for (size_t i = 0; i < n; i++) {
        const struct text *of = &job->text[v[i].tag % TEXTS];
        const size_t has = v[i].n - of->prompt;
        const size_t some = rng_below(&job->guesses, v[i].most + 1);

        for (; v[i].ndrafted < some && has + v[i].ndrafted < of->wanted;
             v[i].ndrafted++)
            v[i].next[v[i].ndrafted] =
                rng_below(&job->guesses, 4) ? of->want[has + v[i].ndrafted] : 1;
    }
    return 0;
}

/* ---- what a text that does not grow gives: the losses of its tokens ---- */

static int see(void *arg, const struct scheduler_part *part, struct err *err)
{
    struct job *job = arg;
    const float *x;
    size_t rows;

    if (!runner_is_last(job->runner))
        return 0;
    if (engine_output(part->engine, 0, &x, &rows, err) < 0)
        return -1;
    x = scheduler_rows(part, ROWS_TOKENS, x, 1, &rows);
    if (job->runner->world->rank == 0)
        memcpy(job->text[part->tag].got_nll + part->start, x, rows * sizeof(*x));
    return runner_send(job->runner, job->runner->stage, x, rows * sizeof(*x), err);
}

static int collect(void *arg, const struct scheduler_part *part, struct err *err)
{
    struct job *job = arg;
    struct text *t = &job->text[part->tag];

    t->n = part->start + part->n;
    t->over |= part->last;
    return runner_receive(job->runner, part->replica, job->runner->nstages - 1,
                          t->got_nll + part->start, part->n * sizeof(*t->got_nll), err);
}

/* ---- texts that are refused ---- */

/* A text for which there will never be room is refused, and changes nothing. */
static int submit_refused(struct job *job, struct err *err)
{
    const struct scheduler_text longer = { .ids = job->text[0].ids,
                                           .n = 1,
                                           .most = MOST + 1 },
                                empty = { .ids = job->text[0].ids };
    struct err own = { 0 };
    uint64_t id = 7;

    if (scheduler_submit(job->scheduler, &longer, &id, &own) == 0 ||
        own.kind != ERR_INPUT ||
        scheduler_submit(job->scheduler, &empty, &id, &own) == 0 ||
        own.kind != ERR_INPUT || id != 7 || scheduler_waiting(job->scheduler))
        return err_set(err, ERR_INPUT, "a text without room is taken: %s", own.text);
    return 0;
}

/* ---- schedules, on rank 0 ---- */

static void make_texts(struct job *job)
{
    for (size_t i = 0; i < TEXTS; i++) {
        struct text *t = &job->text[i];
        struct rng r;

        rng_init(&r, 7, i);
        t->prompt = 1 + rng_below(&r, PROMPT);
        t->new = 1 + rng_below(&r, NEW);
        t->at_once = 1 + (i % 4 == 3);
        t->draw = (struct draw){ .temperature = i % 3 ? 1.0 : 0.0,
                                 .top_p = i % 2 ? 1 : 0.9,
                                 .top_k = i % 5 == 4 ? 9 : 0,
                                 .seed = i,
                                 .position = i << 32 };
        for (size_t k = 0; k <= t->prompt; k++)
            t->ids[k] = (int32_t)(1 + rng_below(&r, job->vocab - 1));
        for (size_t k = 0; k <= t->prompt && i % 2 && k < START - i % 3 * 9; k++)
            t->ids[k] = (int32_t)(1 + k % (job->vocab - 1));
    }
}

static int submit(struct job *job, size_t i, struct err *err)
{
    struct text *t = &job->text[i];
    const struct scheduler_text text = { .ids = t->ids,
                                         .n = t->prompt,
                                         .most = t->prompt + t->new,
                                         .targets = job->grow ? NULL : t->ids + 1,
                                         .draw = job->grow ? &t->draw : NULL,
                                         .how = tells(job, t) ? &t->how : NULL,
                                         .tells = tells(job, t),
                                         .tag = i };
    static const struct processors neutral = PROCESSORS_NEUTRAL;

    t->how = (struct choosing){ .processors = &neutral, .prompt = t->prompt };
    t->ntold = 0;
    t->submitted = true;
    return scheduler_submit(job->scheduler, &text, &t->id, err);
}

static int run_alone(struct job *job, struct err *err)
{
    for (size_t i = 0; i < TEXTS; i++) {
        struct text *t = &job->text[i];

        t->n = 0;
        t->over = t->waits = false;
        t->stop = MOST;
        t->hold = t->fork = SIZE_MAX;
        if (submit(job, i, err) < 0 || scheduler_run(job->scheduler, err) < 0)
            return -1;
        t->wanted = t->n;
        memcpy(t->want, t->got, sizeof(t->got));
        memcpy(t->want_nll, t->got_nll, sizeof(t->got_nll));
        memcpy(t->want_told, t->told, sizeof(t->told));
    }
    return 0;
}

static int compare(const struct job *job, size_t seed, struct err *err)
{
    for (size_t i = 0; i < 2 * TEXTS; i++) {
        const struct text *t = &job->text[i];
        bool same =
            job->grow
                ? !memcmp(t->got, job->text[i % TEXTS].want, t->n * sizeof(*t->got)) &&
                      !memcmp(t->told, t->want_told, t->ntold * sizeof(*t->told))
                : !memcmp(t->got_nll, t->want_nll, t->n * sizeof(*t->got_nll));

        if (t->submitted && (!t->over || !same))
            return err_set(err, ERR_INPUT, "schedule %zu: text %zu %s", seed, i,
                           t->over ? "is another one than alone" : "is not over");
    }
    return job->late ? err_set(err, ERR_INPUT, "a cancelled text gains tokens") : 0;
}

static int run_schedule(struct job *job, size_t seed, struct err *err)
{
    size_t next = 0;
    uint64_t drafted;
    struct rng r;
    int more = 1;

    if (job->grow && submit_refused(job, err) < 0)
        return -1;
    rng_init(&r, 11, seed);
    for (size_t i = 0; i < TEXTS; i++) {
        struct text *t = &job->text[i];

        t->n = 0;
        t->over = t->submitted = t->waits = false;
        t->stop = rng_below(&r, 4) ? MOST : 1 + rng_below(&r, NEW);
        t->hold = rng_below(&r, 3) ? 0 : 2 * rng_below(&r, NEW / 2);
        t->fork = rng_below(&r, 3) ? 0 : 2 * rng_below(&r, NEW / 2);
        if (!t->fork)
            t->fork = SIZE_MAX;
        t[TEXTS] = *t;
        t[TEXTS].stop = MOST;
        t[TEXTS].fork = SIZE_MAX;
        t[TEXTS].hold = 0;
    }
    while (more > 0 || next < TEXTS) {
        const size_t victim = rng_below(&r, 2 * TEXTS);
        struct text *t = &job->text[victim];

        for (size_t n = rng_below(&r, 6); n > 3 && next < TEXTS; n--)
            if (submit(job, next++, err) < 0)
                return -1;
        if (t->submitted && rng_below(&r, 8) == 0) {
            if (!t->over || rng_below(&r, 2)) /* to cancel what is over does nothing */
                scheduler_cancel(job->scheduler, t->id);
            t->over = true;
        }
        drafted = scheduler_counts(job->scheduler).drafted;
        more = scheduler_step(job->scheduler, err);
        if (more < 0)
            return -1;
        if (scheduler_counts(job->scheduler).drafted - drafted >
            DRAFTED * (uint64_t)job->runner->nreplicas)
            return err_set(err, ERR_INPUT, "a step has too many drafted tokens");
        for (size_t i = 0; i < 2 * TEXTS; i++)
            if (job->text[i].waits && !job->text[i].over &&
                (!more || rng_below(&r, 4) == 0)) {
                resume(job, &job->text[i]);
                more = 1;
            }
    }
    if (scheduler_waiting(job->scheduler) || scheduler_running(job->scheduler))
        return err_set(err, ERR_INPUT, "an idle scheduler has texts");
    return compare(job, seed, err);
}

/* ---- on every rank ---- */

static int run(struct job *job, struct comm *world, struct err *err)
{
    const struct program_options options = { .tail = job->grow ? TAIL_SAMPLE : TAIL_NLL,
                                             .wanted = job->grow,
                                             .keeps_logits = job->grow,
                                             .deterministic = true };
    const struct engine_limits limits = { .tokens = CHUNK,
                                          .running = PLACES + DRAFTED,
                                          .wanted = PLACES + DRAFTED + TOLD,
                                          .drafts = DRAFTS,
                                          .drafted = DRAFTED,
                                          .segments = PLACES,
                                          .sequences = PLACES,
                                          .snapshots = PLACES,
                                          .context = MOST,
                                          .cache = CACHE };
    const struct runner_machine machine = { .threads = 1 };
    const struct scheduler_options how = { .grow = job->grow,
                                           .limits = &limits,
                                           .see = job->grow ? NULL : see,
                                           .collect = job->grow ? NULL : collect,
                                           .gain = gain,
                                           .told = told,
                                           .draft = job->grow ? draft : NULL,
                                           .arg = job };
    double vocab = 0;
    struct scheduler_options alone = how;
    struct runner r;
    int ret = 0;

    alone.no_sharing = true;
    alone.draft = NULL;
    rng_init(&job->guesses, 5, 0);
    if (runner_open(&r, job->c, &job->mesh, &machine, world, &options, &limits, err) <
        0)
        return -1;
    model_number(r.program->model, "vocab", &vocab);
    job->vocab = (uint64_t)vocab;
    job->runner = &r;
    make_texts(job);
    for (int i = 0; i <= job->schedules && ret == 0; i++) {
        ret = scheduler_open(&job->scheduler, &r, i ? &how : &alone, err) < 0 ? -1
              : world->rank ? scheduler_follow(job->scheduler, err)
              : i           ? run_schedule(job, (size_t)i, err)
                            : run_alone(job, err);
        job->shared += scheduler_counts(job->scheduler).shared;
        job->drafted += scheduler_counts(job->scheduler).drafted;
        job->accepted += scheduler_counts(job->scheduler).accepted;
        ret = scheduler_close(job->scheduler, ret, err);
        if (ret == 0 && engine_cached_blocks(r.engine))
            ret = err_set(err, ERR_INPUT, "schedule %d: rank %d has %zu blocks left", i,
                          world->rank, engine_cached_blocks(r.engine));
    }
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    return ret;
}

static int run_rank(void *arg, struct comm *world, struct err *err)
{
    struct job *job = arg;

    for (int grow = 0; grow < 2; grow++) {
        job->grow = grow;
        if (run(job, world, err) < 0)
            return -1;
    }
    if (world->rank == 0 && job->schedules &&
        (job->accepted * 3 < job->drafted || job->accepted == job->drafted))
        return err_set(err, ERR_INPUT, "of %llu drafted tokens %llu are accepted",
                       (unsigned long long)job->drafted,
                       (unsigned long long)job->accepted);
    return world->rank == 0 && !job->shared != job->narrow && job->schedules
               ? err_set(err, ERR_INPUT, "%llu tokens are shared",
                         (unsigned long long)job->shared)
               : 0;
}

/* ---- texts that begin alike ---- */

/* Runs ALIKE texts with LONG tokens in common and one of their own, each gaining one
 * token.  *COUNTS is what was computed. */
enum { ALIKE = 6, LONG = 161, ROOM = 192 };

static int take_one(void *arg, const struct scheduler_gain *by, struct err *err)
{
    struct job *job = arg;

    (void)err;
    job->text[by->tag].got[0] = by->next;
    return 0;
}

static int run_alike(struct job *job, struct runner *r, bool no_sharing, size_t places,
                     uint64_t salts, struct scheduler_counts *counts, struct err *err)
{
    struct engine_limits limits = { .tokens = 64,
                                    .running = ALIKE,
                                    .segments = places,
                                    .sequences = places,
                                    .snapshots = 2,
                                    .context = ROOM };
    const struct scheduler_options how = { .grow = true,
                                           .no_sharing = no_sharing,
                                           .limits = &limits,
                                           .gain = take_one,
                                           .arg = job };
    int32_t ids[LONG + 1];
    int ret = scheduler_open(&job->scheduler, r, &how, err);

    for (int32_t i = 0; i < LONG; i++)
        ids[i] = (int32_t)((uint64_t)(1 + i * i % 100) % job->vocab);
    for (int32_t i = 0; i < ALIKE && ret == 0 && r->world->rank == 0; i++) {
        const struct scheduler_text text = {
            .ids = ids,
            .n = LONG + 1,
            .most = ROOM,
            .tag = (uint64_t)i,
            .salt = (uint64_t)i % salts,
        };
        uint64_t id;

        ids[LONG] = (int32_t)((uint64_t)(200 + i) % job->vocab);
        ret = scheduler_submit(job->scheduler, &text, &id, err);
    }
    if (ret == 0)
        ret = r->world->rank ? scheduler_follow(job->scheduler, err)
                             : scheduler_run(job->scheduler, err);
    *counts = scheduler_counts(job->scheduler);
    return scheduler_close(job->scheduler, ret, err);
}

static int compare_alike(void *arg, struct comm *world, struct err *err)
{
    struct job *job = arg;
    const struct program_options options = { .tail = TAIL_ARGMAX,
                                             .wanted = true,
                                             .deterministic = true };
    const struct engine_limits limits = { .tokens = 64,
                                          .running = ALIKE,
                                          .wanted = ALIKE,
                                          .segments = ALIKE,
                                          .sequences = ALIKE,
                                          .snapshots = 2,
                                          .context = ROOM };
    const struct runner_machine machine = { .threads = 1 };
    /* the last token, and what is no full block, each computes itself */
    const uint64_t full = LONG / 16 * 16, once = full + ALIKE * (LONG + 1 - full);
    struct scheduler_counts counts;
    int32_t want[ALIKE];
    double vocab = 0;
    struct runner r;
    int ret;

    longest = limits.tokens;
    if (runner_open(&r, job->c, &job->mesh, &machine, world, &options, &limits, err) <
        0)
        return -1;
    model_number(r.program->model, "vocab", &vocab);
    job->vocab = (uint64_t)vocab;
    ret = run_alike(job, &r, true, ALIKE, 1, &counts, err);
    for (int i = 0; i < ALIKE; i++)
        want[i] = job->text[i].got[0];
    /* at the same time, and one after another, when each takes over the last one's */
    for (size_t places = ALIKE; places && ret == 0; places = places > 1 ? 1 : 0) {
        ret = run_alike(job, &r, false, places, 1, &counts, err);
        if (ret < 0 || world->rank)
            continue;
        if (counts.computed != once || counts.shared != full * (ALIKE - 1))
            ret = err_set(err, ERR_INPUT, "%zu places: %llu tokens computed, %llu not",
                          places, (unsigned long long)counts.computed,
                          (unsigned long long)counts.shared);
        for (int i = 0; i < ALIKE && ret == 0; i++)
            if (want[i] != job->text[i].got[0])
                ret = err_set(err, ERR_INPUT, "%zu places: text %d is another one",
                              places, i);
    }
    /* texts of two users, each of whom has them computed */
    if (ret == 0)
        ret = run_alike(job, &r, false, ALIKE, 2, &counts, err);
    if (ret == 0 && world->rank == 0 && counts.computed != once + full)
        ret = err_set(err, ERR_INPUT, "two salts: %llu tokens computed",
                      (unsigned long long)counts.computed);
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    return ret;
}

/* ---- replicas that read together ---- */

enum { CROWD = 60, CROWD_PLACES = 4 };

/* What the replicas did in a step. */
struct crowd {
    struct scheduler *scheduler;
    size_t prompt[CROWD], new[CROWD], n[CROWD];
    unsigned worked, read; /* sets of replicas */
    size_t alone, together;
};

static int see_crowd(void *arg, const struct scheduler_part *part, struct err *err)
{
    struct crowd *c = arg;

    (void)err;
    c->worked |= 1U << part->replica;
    if (part->start < c->prompt[part->tag])
        c->read |= 1U << part->replica;
    return 0;
}

static int gain_crowd(void *arg, const struct scheduler_gain *by, struct err *err)
{
    struct crowd *c = arg;

    (void)err;
    if (++c->n[by->tag] < c->new[by->tag])
        scheduler_append(c->scheduler, by->id, &by->next, 1);
    return 0;
}

static int lead_crowd(struct crowd *c, uint64_t vocab, struct err *err)
{
    int32_t ids[CROWD][PROMPT];
    struct rng r;
    int more = 1;

    rng_init(&r, 23, 0);
    for (size_t i = 0; i < CROWD; i++) {
        struct scheduler_text text = { .ids = ids[i], .most = MOST, .tag = i };
        uint64_t id;

        text.n = c->prompt[i] = 2 + rng_below(&r, PROMPT - 2);
        c->new[i] = 1 + rng_below(&r, NEW);
        for (size_t k = 0; k < text.n; k++)
            ids[i][k] = (int32_t)rng_below(&r, vocab);
        if (scheduler_submit(c->scheduler, &text, &id, err) < 0)
            return -1;
    }
    while (more > 0) {
        c->worked = c->read = 0;
        more = scheduler_step(c->scheduler, err);
        c->together += c->worked == 3 && c->read == 3;
        c->alone += c->worked == 3 && (c->read == 1 || c->read == 2);
    }
    for (size_t i = 0; i < CROWD && more == 0; i++)
        if (c->n[i] != c->new[i])
            return err_set(err, ERR_INPUT, "text %zu has %zu tokens", i, c->n[i]);
    return more;
}

static int run_crowd(void *arg, struct comm *world, struct err *err)
{
    struct job *job = arg;
    const struct program_options options = { .tail = TAIL_ARGMAX, .wanted = true };
    const struct engine_limits limits = { .tokens = PROMPT,
                                          .running = CROWD_PLACES,
                                          .wanted = CROWD_PLACES,
                                          .segments = CROWD_PLACES,
                                          .sequences = CROWD_PLACES,
                                          .context = MOST };
    const struct runner_machine machine = { .threads = 1 };
    struct crowd c = { 0 };
    const struct scheduler_options how = { .grow = true,
                                           .limits = &limits,
                                           .collect = see_crowd,
                                           .gain = gain_crowd,
                                           .arg = &c };
    double vocab = 0;
    struct runner r;
    int ret;

    longest = limits.tokens;
    if (runner_open(&r, job->c, &job->mesh, &machine, world, &options, &limits, err) <
        0)
        return -1;
    model_number(r.program->model, "vocab", &vocab);
    ret = scheduler_open(&c.scheduler, &r, &how, err);
    if (ret == 0)
        ret = world->rank ? scheduler_follow(c.scheduler, err)
                          : lead_crowd(&c, (uint64_t)vocab, err);
    ret = scheduler_close(c.scheduler, ret, err);
    if (ret == 0 && world->rank == 0 && c.alone >= c.together)
        ret = err_set(err, ERR_INPUT, "in %zu steps one replica reads, in %zu both do",
                      c.alone, c.together);
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    return ret;
}

/* A rank whose callback fails ends all ranks with its error. */
static int fail(void *arg, const struct scheduler_gain *by, struct err *err)
{
    (void)arg;
    (void)by;
    return err_set(err, ERR_NO, "no more");
}

static int run_failing(void *arg, struct comm *world, struct err *err)
{
    struct job *job = arg;
    const struct program_options options = { .tail = TAIL_ARGMAX, .wanted = true };
    const struct engine_limits limits = {
        .tokens = CHUNK, .wanted = 1, .segments = 1, .sequences = 1, .context = MOST
    };
    const struct runner_machine machine = { .threads = 1 };
    const struct scheduler_options how = {
        .grow = true, .limits = &limits, .gain = fail, .arg = job
    };
    struct err own = { 0 };
    struct runner r;
    int ret;

    if (runner_open(&r, job->c, &job->mesh, &machine, world, &options, &limits, err) <
        0)
        return -1;
    ret = scheduler_open(&job->scheduler, &r, &how, err);
    job->grow = true;
    job->vocab = 64;
    make_texts(job);
    if (ret < 0)
        ret = -1;
    else if (world->rank)
        ret = scheduler_follow(job->scheduler, &own);
    else if (submit(job, 0, err) < 0)
        ret = -1;
    else
        ret = scheduler_run(job->scheduler, &own);
    ret = scheduler_close(job->scheduler, ret, &own);
    if (ret == 0 || own.kind != ERR_NO || strcmp(own.text, "no more") != 0)
        ret = err_set(err, ERR_INPUT, "rank %d ends with %d: %s", world->rank, ret,
                      own.text);
    else
        ret = runner_finish(&r, 0, err);
    runner_close(&r);
    return ret;
}

static const struct {
    const char *name, *model;
    int tp, pp, dp, ep;
} layouts[] = {
    { "one rank", "chat", 1, 1, 1, 1 },
    { "tp 2", "chat", 2, 1, 1, 1 },
    { "pp 2", "chat", 1, 2, 1, 1 },
    { "dp 2", "chat", 1, 1, 2, 1 },
    { "tp 2, pp 2", "chat", 2, 2, 1, 1 },
    { "states and blocks", "models/lfm2", 1, 1, 1, 1 },
    { "states, tp 2, pp 3", "models/lfm2", 2, 3, 1, 1 },
    { "matrices as states, tp 2", "models/qwen3-next", 2, 1, 1, 1 },
    { "windows of 9 tokens", "models/mixtral", 1, 1, 1, 1 },
    { "ep 2, windows of 9 tokens", "models/mixtral", 1, 1, 1, 2 },
};

static void try_layout(size_t i, int schedules)
{
    const struct checkpoint_options options = { 0 };
    char *path = str_dupf("%s/tests/data/%s", getenv("top_srcdir"), layouts[i].model);
    int size[MESH_NAXES] = { [MESH_TP] = layouts[i].tp,
                             [MESH_PP] = layouts[i].pp,
                             [MESH_DP] = layouts[i].dp,
                             [MESH_EP] = layouts[i].ep };
    static struct job job;
    struct err err = { .text = "" };
    int sig;

    job = (struct job){ .schedules = schedules,
                        .narrow = strcmp(layouts[i].model, "models/mixtral") == 0 };
    if (checkpoint_open(&job.c, path, &options, &err) < 0 ||
        mesh_set(&job.mesh, size, NULL, &err) < 0) {
        printf("Bail out! %s\n", err.text);
        exit(99);
    }
    if (!tap_ok(launch_ranks(job.mesh.nranks, run_rank, &job, &sig, &err) == 0,
                "%s: texts that come, stop and are cancelled change no other text, and "
                "leave no block",
                layouts[i].name))
        printf("# %s\n", err.text);
    err = (struct err){ .text = "" };
    if (!tap_ok(launch_ranks(job.mesh.nranks, run_failing, &job, &sig, &err) == 0,
                "%s: all ranks end with the error of rank 0", layouts[i].name))
        printf("# %s\n", err.text);
    err = (struct err){ .text = "" };
    if (!job.narrow && layouts[i].dp == 1 &&
        !tap_ok(launch_ranks(job.mesh.nranks, compare_alike, &job, &sig, &err) == 0,
                "%s: what texts begin with is computed once", layouts[i].name))
        printf("# %s\n", err.text);
    err = (struct err){ .text = "" };
    if (layouts[i].dp == 2 &&
        !tap_ok(launch_ranks(job.mesh.nranks, run_crowd, &job, &sig, &err) == 0,
                "%s: replicas read prompts in the same steps", layouts[i].name))
        printf("# %s\n", err.text);
    checkpoint_close(job.c);
    free(path);
}

int main(void)
{
    const char *asked = getenv("SCHEDULES");
    int schedules = 3;

    if (asked && !str_int(asked, &schedules)) {
        printf("Bail out! SCHEDULES: a number\n");
        return 99;
    }
    for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
        try_layout(i, schedules);
    return tap_done();
}
