/* jobs - the requests of a web server as texts of a scheduler */
#define _GNU_SOURCE
#include "cmd/tp-run/jobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/named.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"

enum { IDLE_MS = 100 }; /* so often an idle server looks for a signal */

/* A continuation in generation. */
struct text {
    struct active *of;
    int choice;
    uint64_t id, number; /* its tag, of an input: it may be over while a step has it */
    size_t prompt, n;    /* tokens: of the prompt, and of the text so far */
    bool over;
    struct token_stream *stream;
    struct str said;
    size_t shown; /* bytes of SAID that the client has been given */
    double last;  /* time of its last token */
    struct choosing choosing;
};

/* A job whose texts have been submitted. */
struct active {
    struct job *job;
    const struct serve_request *r;
    struct text *text; /* [n] */
    size_t n, left;    /* texts, and those that are not over */
    size_t cached;     /* tokens of prompts that were not computed for it */
    size_t gained;     /* tokens */
    enum job_end end;  /* of the last text */
    double begun, first_token;
    struct active *prev, *next;
};

struct jobs {
    const struct session *session;
    struct queue *queue;
    struct metrics *metrics;
    struct scheduler *scheduler;
    struct drafter *drafter; /* or NULL */
    uint64_t context;
    struct active *first;
    double drain_until; /* 0: it is not asked to end */
    uint64_t computed;  /* tokens, as of the last step */
    uint64_t numbers;   /* so many inputs there have been */
};

void serve_request_free(void *request)
{
    struct serve_request *r = request;

    for (size_t i = 0; i < r->nprompts; i++)
        ids_clear(&r->prompt[i]);
    for (size_t i = 0; r->echo && i < r->nprompts; i++)
        str_clear(&r->echo[i]);
    free(r->prompt);
    free(r->echo);
    inputs_clear(&r->inputs);
    openai_clear(&r->asked);
    sampling_clear(&r->how);
    free(r);
}

size_t serve_choices(const struct serve_request *r)
{
    return r->inputs.n ? r->inputs.n : r->nprompts * (size_t)r->asked.best_of;
}

size_t serve_tokens(const struct serve_request *r)
{
    size_t tokens = 0;

    for (size_t i = 0; i < r->nprompts; i++)
        tokens += r->prompt[i].n;
    for (size_t i = 0; i < r->inputs.n; i++)
        tokens += r->inputs.v[i].ids.n;
    return tokens;
}

struct jobs *jobs_new(const struct session *session, struct queue *q, struct metrics *m,
                      uint64_t context)
{
    struct jobs *s = xcalloc(1, sizeof(*s));

    s->session = session;
    s->queue = q;
    s->metrics = m;
    s->context = context;
    return s;
}

/* ---- jobs ---- */

static void release(struct jobs *s, struct active *a)
{
    if (a->prev)
        a->prev->next = a->next;
    else
        s->first = a->next;
    if (a->next)
        a->next->prev = a->prev;
    for (size_t i = 0; i < a->n; i++) {
        token_stream_free(a->text[i].stream);
        str_clear(&a->text[i].said);
    }
    free(a->text);
    job_drop(a->job);
    free(a);
}

static void note_end(const struct jobs *s, const struct active *a,
                     const struct err *err)
{
    const double now = clock_seconds();
    bool aborted = err || job_is_cancelled(a->job);

    metrics_add(s->metrics,
                aborted              ? METRIC_SUCCESS_ABORT
                : a->end == JOB_STOP ? METRIC_SUCCESS_STOP
                                     : METRIC_SUCCESS_LENGTH,
                1);
    if (aborted)
        return;
    metrics_observe(s->metrics, METRIC_LATENCY, now - a->job->came);
    if (!a->gained)
        return;
    metrics_observe(s->metrics, METRIC_DECODE_TIME, now - a->first_token);
    metrics_observe(s->metrics, METRIC_REQUEST_TOKENS, (double)a->gained);
}

/* Ends the job, and what of it still runs, because of ERR (NULL: it is done). */
static void finish(struct jobs *s, struct active *a, const struct err *err)
{
    struct err slow = { 0 };

    if (!err && job_is_cancelled(a->job)) /* or nobody reads it */
        err_set(&slow, ERR_SYSTEM, "the client reads too slowly");
    for (size_t i = 0; i < a->n; i++)
        if (!a->text[i].over)
            scheduler_cancel(s->scheduler, a->text[i].id);
    note_end(s, a, err);
    job_end(s->queue, a->job, a->cached, slow.kind ? &slow : err);
    release(s, a);
}

static int submit_input(struct jobs *s, struct active *a, size_t i, struct err *err)
{
    const struct input *in = &a->r->inputs.v[i];
    struct text *t = &a->text[i];
    struct scheduler_text plan = { .ids = in->ids.v,
                                   .n = in->ids.n,
                                   .adapter = a->r->adapter };

    *t = (struct text){
        .of = a, .choice = (int)i, .prompt = in->ids.n, .number = ++s->numbers
    };
    plan.tag = t->number;
    named_give(in, s->session, 0, plan.input, plan.rows);
    return scheduler_submit(s->scheduler, &plan, &t->id, err);
}

/* Choice I of a prompt draws as the Ith of equal prompts of tp-run generate does. */
static int submit(struct jobs *s, struct active *a, size_t i, struct err *err)
{
    const struct serve_request *r = a->r;
    const size_t each = (size_t)r->asked.best_of;
    const struct ids *prompt = &r->prompt[i / each];
    struct draw draw = { .seed = r->how.seed };
    struct text *t = &a->text[i];
    struct scheduler_text plan = { .ids = prompt->v,
                                   .n = prompt->n,
                                   .most =
                                       sampling_most(&r->how, s->context, prompt->n),
                                   .draw = &draw,
                                   .how = &t->choosing,
                                   .adapter = r->adapter,
                                   .tells = r->asked.echo && r->how.likely >= 0,
                                   .tag = (uint64_t)(uintptr_t)t };

    *t = (struct text){ .of = a,
                        .choice = (int)i,
                        .prompt = prompt->n,
                        .n = prompt->n,
                        .stream = token_stream_new(s->session->tokenizer,
                                                   !r->shows_special) };
    sampling_choose(&r->how, &t->choosing, prompt->n);
    draw.position = (uint64_t)i << 32;
    return scheduler_submit(s->scheduler, &plan, &t->id, err);
}

static void note_begin(const struct jobs *s, struct active *a)
{
    a->begun = clock_seconds();
    metrics_observe(s->metrics, METRIC_QUEUE_TIME, a->begun - a->job->came);
    metrics_observe(s->metrics, METRIC_REQUEST_PROMPT, (double)serve_tokens(a->r));
}

static void begin(struct jobs *s, struct job *j)
{
    const struct serve_request *r = j->request;
    struct active *a = xcalloc(1, sizeof(*a));
    struct err err = { 0 };
    int ret = 0;

    a->job = j;
    a->r = r;
    a->text = xcalloc(serve_choices(r), sizeof(*a->text));
    a->next = s->first;
    if (a->next)
        a->next->prev = a;
    s->first = a;
    for (; a->n < serve_choices(r) && ret == 0; a->n += ret == 0)
        ret = r->inputs.n ? submit_input(s, a, a->n, &err) : submit(s, a, a->n, &err);
    a->left = a->n;
    note_begin(s, a);
    if (ret < 0) {
        token_stream_free(a->text[a->n].stream);
        finish(s, a, &err);
    }
}

/* Jobs stay in the queue, whose length is limited, until their texts can begin. */
static void take_jobs(struct jobs *s)
{
    struct job *j;

    while (scheduler_waiting(s->scheduler) == 0 && (j = queue_take(s->queue))) {
        if (job_is_cancelled(j))
            job_drop(j);
        else
            begin(s, j);
    }
}

static void drop_cancelled(struct jobs *s)
{
    struct active *next;

    for (struct active *a = s->first; a; a = next) {
        next = a->next;
        if (job_is_cancelled(a->job))
            finish(s, a, NULL);
    }
}

static void fail_all(struct jobs *s, const struct err *err)
{
    struct job *j;

    queue_close(s->queue);
    while (s->first) {
        job_end(s->queue, s->first->job, 0, err);
        release(s, s->first);
    }
    while ((j = queue_take(s->queue))) {
        job_end(s->queue, j, 0, err);
        job_drop(j);
    }
    queue_flush(s->queue);
}

void jobs_free(struct jobs *s)
{
    free(s);
}

/* ---- texts ---- */

/* The new token and the likeliest ones, where they are asked for. */
static struct job_told *told_of(const struct text *t, const struct scheduler_gain *gain)
{
    struct job_told *told;

    if (t->choosing.likely < 0)
        return NULL;
    told = xcalloc(1 + gain->nlikely, sizeof(*told));
    for (size_t i = 0; i <= gain->nlikely; i++)
        told[i] = (struct job_told){ gain->likely[i].id, gain->likely[i].logprob };
    return told;
}

/* Decodes the new token, looks for stops, and gives the client what is certain. */
static enum job_end show(struct jobs *s, struct text *t,
                         const struct scheduler_gain *gain, enum job_end end)
{
    const struct stops *stops = &t->of->r->how.stops;
    struct job_piece piece = { .choice = t->choice,
                               .ntokens = 1,
                               .told = told_of(t, gain),
                               .ntold = 1 + gain->nlikely };
    size_t stop, most;

    if (end != JOB_STOP)
        token_stream_feed(t->stream, (uint32_t)gain->next, &t->said);
    if (end)
        token_stream_end(t->stream, &t->said);
    stop = stops_find(stops, str_text(&t->said), t->said.len, t->shown);
    if (stop < t->said.len) {
        str_cut(&t->said, stop);
        end = JOB_STOP;
    }
    most = t->said.len;
    if (!end)
        most -= stops_held(stops, str_text(&t->said), most);
    piece.text = t->said.s ? t->said.s + t->shown : NULL;
    piece.len = most - t->shown;
    piece.end = end;
    t->shown = most;
    job_add(s->queue, t->of->job, &piece);
    free(piece.told);
    return end;
}

/* Adds N told tokens of T's prompt. */
static void add_prompt(struct jobs *s, const struct text *t, struct job_told *told,
                       size_t n, size_t ntold)
{
    const struct job_piece piece = { .choice = t->choice,
                                     .of_prompt = true,
                                     .told = told,
                                     .ntokens = n,
                                     .ntold = ntold };

    job_add(s->queue, t->of->job, &piece);
}

/* The first token of a prompt has no log-probability. */
static void tell_first(struct jobs *s, const struct text *t, size_t ntold)
{
    const size_t prompt = (size_t)t->choice / (size_t)t->of->r->asked.best_of;
    struct job_told *told = xcalloc(ntold, sizeof(*told));

    for (size_t i = 0; i < ntold; i++)
        told[i] = (struct job_told){ i ? -1 : t->of->r->prompt[prompt].v[0], NAN };
    add_prompt(s, t, told, 1, ntold);
    free(told);
}

static void over(struct jobs *s, struct text *t, enum job_end end)
{
    t->over = true;
    t->of->end = end;
    if (--t->of->left == 0)
        finish(s, t->of, NULL);
}

/* The prompt of T is all that is asked for. */
static void end_prompt(struct jobs *s, struct text *t)
{
    const struct job_piece piece = { .choice = t->choice, .end = JOB_LENGTH };

    job_add(s->queue, t->of->job, &piece);
    over(s, t, JOB_LENGTH);
}

/* After N tokens none is chosen, but NEXT.  A NaN is of this text alone; others go on.
 */
static void not_finite(struct jobs *s, struct text *t, int32_t next, size_t n)
{
    struct err err = { 0 };

    if (!sampling_is_stuck(&t->of->r->how, next, n - t->prompt, &err))
        err_set(&err, ERR_SYSTEM, "the logits after %zu tokens are NaN or infinite", n);
    finish(s, t->of, &err);
}

int jobs_told(void *arg, const struct scheduler_told *of, struct err *err)
{
    struct jobs *s = arg;
    struct text *t = (struct text *)(uintptr_t)of->tag;
    const size_t each = 1 + of->nlikely;
    struct job_told *told;

    (void)err;
    for (size_t i = 0; i < of->n; i++)
        if (of->likely[i * each].id < 0) {
            not_finite(s, t, of->likely[i * each].id, of->first + i);
            return 0;
        }
    if (of->first == 1)
        tell_first(s, t, each);
    told = xcalloc(of->n * each, sizeof(*told));
    for (size_t i = 0; i < of->n * each; i++)
        told[i] = (struct job_told){ of->likely[i].id, of->likely[i].logprob };
    add_prompt(s, t, told, of->n, each);
    free(told);
    return 0;
}

/* Counts a token of T, which the scheduler still has. */
static void note_token(const struct jobs *s, struct text *t)
{
    const double now = clock_seconds();
    struct active *a = t->of;
    struct scheduler_usage usage;

    if (t->n > t->prompt) {
        metrics_observe(s->metrics, METRIC_BETWEEN_TOKENS, now - t->last);
    } else {
        metrics_add(s->metrics, METRIC_PROMPT_TOKENS, (double)t->prompt);
        if (scheduler_usage(s->scheduler, t->id, &usage))
            a->cached += usage.shared;
    }
    if (!a->gained) {
        a->first_token = now;
        metrics_observe(s->metrics, METRIC_FIRST_TOKEN, now - a->job->came);
        metrics_observe(s->metrics, METRIC_PREFILL_TIME, now - a->begun);
    }
    t->last = now;
    a->gained++;
    metrics_add(s->metrics, METRIC_GENERATION_TOKENS, 1);
}

void jobs_draft_by(struct jobs *s, struct drafter *d)
{
    s->drafter = d;
}

int jobs_draft(void *arg, struct scheduler_draft *v, size_t n, struct err *err)
{
    struct jobs *s = arg;

    return drafter_draft(s->drafter, v, n, err);
}

int jobs_gain(void *arg, const struct scheduler_gain *gain, struct err *err)
{
    struct jobs *s = arg;
    struct text *t = (struct text *)(uintptr_t)gain->tag;
    int32_t next = gain->next;
    const struct serve_request *r = t->of->r;
    size_t new = t->n - t->prompt;
    enum job_end end = JOB_GOES_ON;

    (void)err;
    if (next < 0) {
        t->over = true; /* ends by itself, since it gains nothing */
        not_finite(s, t, next, t->n);
        return 0;
    }
    if (r->how.likely >= 0 && r->asked.echo && t->prompt == 1 && t->n == 1)
        tell_first(s, t, 1 + gain->nlikely);
    note_token(s, t);
    if (!r->how.max_tokens) {
        end_prompt(s, t);
        return 0;
    }
    t->n++;
    if (sampling_is_stop(&r->how, next))
        end = JOB_STOP;
    else if (sampling_end(&r->how, s->context, t->n, new + 1))
        end = JOB_LENGTH;
    end = show(s, t, gain, end);
    if (end)
        over(s, t, end);
    else
        scheduler_append(s->scheduler, gain->id, &next, 1);
    return 0;
}

/* ---- vectors ---- */

static struct text *find_number(const struct jobs *s, uint64_t number)
{
    for (const struct active *a = s->first; a; a = a->next)
        for (size_t i = 0; i < a->n; i++)
            if (a->text[i].number == number)
                return &a->text[i];
    return NULL;
}

void jobs_vector(struct jobs *s, uint64_t number, const float *x, size_t n)
{
    struct text *t = find_number(s, number);
    struct job_piece piece = { .text = (char *)(uintptr_t)x, .len = n * sizeof(*x) };
    struct err err = { 0 };

    if (!t)
        return;
    for (size_t i = 0; i < n && !err.kind; i++)
        if (!isfinite(x[i]))
            err_set(&err, ERR_SYSTEM, "the vector of text %d is NaN or infinite",
                    t->choice);
    if (err.kind) {
        finish(s, t->of, &err);
        return;
    }
    piece.choice = t->choice;
    piece.end = JOB_STOP;
    job_add(s->queue, t->of->job, &piece);
    metrics_add(s->metrics, METRIC_PROMPT_TOKENS, (double)t->prompt);
    over(s, t, JOB_STOP);
}

/* ---- the loop ---- */

static void note_step(struct jobs *s)
{
    const struct scheduler_counts c = scheduler_counts(s->scheduler);
    struct metrics *m = s->metrics;

    metrics_set(m, METRIC_RUNNING, (double)scheduler_running(s->scheduler));
    metrics_set(m, METRIC_WAITING,
                (double)(scheduler_waiting(s->scheduler) + queue_length(s->queue)));
    metrics_set(m, METRIC_CACHE_USAGE,
                c.blocks ? (double)c.held / (double)c.blocks : 0);
    metrics_set(m, METRIC_PREFIX_QUERIES, (double)c.asked);
    metrics_set(m, METRIC_PREFIX_HITS, (double)c.shared);
    metrics_set(m, METRIC_PREEMPTIONS, (double)c.preempted);
    if (c.computed > s->computed)
        metrics_observe(m, METRIC_STEP_TOKENS, (double)(c.computed - s->computed));
    s->computed = c.computed;
}

/* Ends what is left when the time for it is over. */
static void heed(struct jobs *s, const struct jobs_orders *orders)
{
    struct err err = { 0 };

    orders->heed(orders->arg);
    if (!*orders->end)
        return;
    if (s->drain_until == 0) {
        queue_close(s->queue);
        s->drain_until = clock_seconds() + orders->drain_s;
    }
    if (clock_seconds() < s->drain_until)
        return;
    err_set(&err, ERR_SYSTEM, "the server has been ended");
    while (s->first)
        finish(s, s->first, &err);
    fail_all(s, &err);
}

int jobs_run(struct jobs *s, struct scheduler *scheduler,
             const struct jobs_orders *orders, struct err *err)
{
    int more = 1;

    s->scheduler = scheduler;
    while (more >= 0) {
        heed(s, orders);
        drop_cancelled(s);
        take_jobs(s);
        more = scheduler_step(scheduler, err);
        note_step(s);
        queue_flush(s->queue);
        if (more == 0 && !s->first && s->drain_until > 0 && !queue_length(s->queue))
            return 0;
        if (more == 0)
            queue_wait(s->queue, IDLE_MS);
    }
    fail_all(s, err);
    return -1;
}
