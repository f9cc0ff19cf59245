/* answer - an answer of OpenAI's interface while the model makes it */
#include "lib/serve/answer.h"

#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/serve/sse.h"

struct choice {
    struct str text; /* of an answer that is not streamed */
    enum job_end end;
    bool begun;
};

struct answer {
    struct http_exchange *exchange;
    struct job *job;
    const struct openai_request *request;
    struct openai_head head;
    struct openai_usage usage;
    struct choice *choice; /* [n] */
    size_t n;
    struct job_taken first; /* of a stream: what .look has found */
    bool streams;
};

static const char *finish_of(enum job_end end)
{
    return end == JOB_STOP ? "stop" : end == JOB_LENGTH ? "length" : NULL;
}

/* A failure of the model's thread, for the client. */
static void explain(struct openai_error *e, const struct err *err)
{
    openai_fail(e, err->kind == ERR_INPUT || err->kind == ERR_USAGE ? 400 : 500, NULL,
                NULL, "%s", err->text);
}

static void fail(struct http_reply *reply, const struct err *err)
{
    struct openai_error e;

    explain(&e, err);
    reply->status = e.status;
    reply->type = "application/json";
    openai_add_error(&reply->body, &e);
}

/* ---- an answer at once ---- */

static void collect(struct answer *a, const struct job_taken *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct job_piece *p = &t->piece[i];
        struct choice *c = &a->choice[p->choice];

        a->usage.completion += p->ntokens;
        str_addn(&c->text, p->text, p->len);
        c->end = p->end;
    }
}

static void put_together(struct answer *a, struct http_reply *reply)
{
    struct openai_choice *all = xcalloc(a->n, sizeof(*all));

    for (size_t i = 0; i < a->n; i++)
        all[i] = (struct openai_choice){ .index = (int)i,
                                         .text = str_text(&a->choice[i].text),
                                         .len = a->choice[i].text.len,
                                         .finish = finish_of(a->choice[i].end) };
    reply->status = 200;
    reply->type = "application/json";
    openai_add_answer(&reply->body, &a->head, all, a->n, &a->usage);
    free(all);
}

static enum http_turn look(void *state, struct http_reply *reply)
{
    struct answer *a = state;
    struct job_taken t;
    enum http_turn turn = HTTP_WAITS;

    job_take(a->job, &t);
    a->usage.cached = t.cached;
    if (t.over && t.err.kind) {
        fail(reply, &t.err);
        turn = HTTP_WHOLE;
    } else if (a->request->stream && (t.n || t.over)) {
        a->first = t;
        a->streams = true;
        reply->status = 200;
        reply->type = SSE_TYPE;
        return HTTP_STREAMS;
    } else {
        collect(a, &t);
        if (t.over) {
            put_together(a, reply);
            turn = HTTP_WHOLE;
        }
    }
    job_taken_clear(&t);
    return turn;
}

/* ---- a stream ---- */

static void add_event(struct answer *a, struct str *out, const struct openai_choice *c,
                      bool first, const struct openai_usage *usage)
{
    struct str json = { 0 };

    openai_add_chunk(&json, &a->head, c, first, a->request->include_usage, usage);
    sse_add(out, str_text(&json));
    str_clear(&json);
}

/* The role comes first, the reason of the end last, each in a chunk of its own. */
static void add_piece(struct answer *a, struct str *out, const struct job_piece *p)
{
    struct openai_choice c = { .index = p->choice };
    bool first = !a->choice[p->choice].begun;

    a->usage.completion += p->ntokens;
    a->choice[p->choice].begun = true;
    if (first && a->head.kind == OPENAI_CHAT)
        add_event(a, out, &c, true, NULL);
    if (p->len) {
        c.text = p->text;
        c.len = p->len;
        add_event(a, out, &c, false, NULL);
        c.len = 0;
    }
    if (p->end) {
        c.finish = finish_of(p->end);
        add_event(a, out, &c, false, NULL);
    }
}

static void add_error(struct str *out, const struct err *err)
{
    struct openai_error e;
    struct str json = { 0 };

    explain(&e, err);
    openai_add_error(&json, &e);
    sse_add(out, str_text(&json));
    str_clear(&json);
}

static enum http_turn more(void *state, struct str *out)
{
    struct answer *a = state;
    struct job_taken t = a->first;
    size_t before = out->len;
    bool over;

    if (a->streams)
        a->streams = false;
    else
        job_take(a->job, &t);
    a->first = (struct job_taken){ 0 };
    for (size_t i = 0; i < t.n; i++)
        add_piece(a, out, &t.piece[i]);
    over = t.over;
    if (over) {
        a->usage.cached = t.cached;
        if (t.err.kind)
            add_error(out, &t.err);
        else if (a->request->include_usage)
            add_event(a, out, NULL, false, &a->usage);
        sse_end(out);
    }
    job_taken_clear(&t);
    return over ? HTTP_ENDS : out->len > before ? HTTP_STREAMS : HTTP_WAITS;
}

/* ---- */

static void end(void *state, bool left)
{
    struct answer *a = state;
    struct str note = { 0 };

    str_addf(&note, ",\"prompt_tokens\":%zu,\"completion_tokens\":%zu", a->usage.prompt,
             a->usage.completion);
    http_note(a->exchange, str_text(&note));
    str_clear(&note);
    (void)left; /* whatever the model still makes of it, nobody reads it */
    job_cancel(a->job);
    job_taken_clear(&a->first);
    for (size_t i = 0; i < a->n; i++)
        str_clear(&a->choice[i].text);
    free(a->choice);
    job_drop(a->job);
    free(a);
}

static void wake(void *arg)
{
    http_wake(arg);
}

static void release(void *arg)
{
    http_drop(arg);
}

void answer_prepare(struct http_exchange *x, struct job *j)
{
    http_hold(x);
    j->wake = wake;
    j->release_wake = release;
    j->wake_arg = x;
}

void answer_later(struct http_exchange *x, struct job *j,
                  const struct openai_request *request, const char *model,
                  size_t nchoices, size_t prompt)
{
    static const struct http_later later = { .look = look, .more = more, .end = end };
    struct answer *a = xcalloc(1, sizeof(*a));

    a->exchange = x;
    a->job = j;
    a->request = request;
    a->n = nchoices;
    a->choice = xcalloc(nchoices, sizeof(*a->choice));
    a->usage.prompt = prompt;
    openai_head_init(&a->head, request->kind, model);
    http_answer_later(x, &later, a);
}
