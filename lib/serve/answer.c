/* answer - an answer of OpenAI's interface while the model makes it */
#include "lib/serve/answer.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/serve/responses.h"
#include "lib/serve/sse.h"
#include "lib/serve/vectors.h"

struct choice {
    struct str text; /* of an answer that is not streamed */
    struct job_told *told;
    size_t ntold, cap;
    double likely;  /* sum of the log-probabilities of its new tokens, */
    size_t counted; /* which are so many */
    enum job_end end;
    bool begun;
    size_t offset; /* characters of the tokens that a stream has had */
    struct said said;
};

struct answer {
    struct http_exchange *exchange;
    struct job *job;
    struct answer_form form;
    const struct openai_request *request;
    struct openai_head head;
    struct openai_usage usage;
    struct response response; /* of a request of its form */
    struct choice *choice;    /* [n] */
    size_t n;
    struct job_taken first; /* of a stream: what .look has found */
    bool streams;
};

static const char *finish_of(const struct choice *c, enum job_end end)
{
    const bool calls = c->said.before + c->said.ncalls > 0;

    return end == JOB_STOP     ? (calls ? "tool_calls" : "stop")
           : end == JOB_LENGTH ? "length"
                               : NULL;
}

/* Takes TEXT[n], the next of choice OF, apart into *c; OVER: nothing follows. */
static void take_apart(const struct answer *a, struct choice *of, const char *text,
                       size_t n, bool over, struct openai_choice *c)
{
    struct said *s = &of->said;

    c->text = text;
    c->len = n;
    if (!openai_is_chat(a->head.kind))
        return;
    said_read(s, text, n, over);
    c->text = str_text(&s->answer);
    c->len = s->answer.len;
    c->thought = str_text(&s->thought);
    c->nthought = s->thought.len;
    c->call = s->call;
    c->ncalls = s->ncalls;
    c->first_call = s->before;
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

/* ---- log-probabilities ---- */

/* Tokens of a choice, and the memory of their texts. */
struct named {
    struct openai_token *v;
    struct str text;
};

/* Sets *c's tokens from TOLD[n], which has 1 + the request's .likely of each token. */
static void name_tokens(const struct answer *a, const struct job_told *told, size_t n,
                        struct openai_choice *c, struct named *t)
{
    size_t *end = xcalloc(n, sizeof(*end));

    c->nlikely = (size_t)a->request->likely;
    c->ntokens = n / (1 + c->nlikely);
    c->token = t->v = xcalloc(n, sizeof(*t->v));
    for (size_t i = 0; i < n; i++) {
        if (told[i].id >= 0)
            t->v[i].hidden = !a->form.decode(a->form.arg, told[i].id, &t->text);
        end[i] = t->text.len;
    }
    for (size_t i = 0; i < n; i++) {
        const size_t begin = i ? end[i - 1] : 0;

        t->v[i].text = told[i].id >= 0 ? str_text(&t->text) + begin : NULL;
        t->v[i].len = end[i] - begin;
        t->v[i].logprob = (double)told[i].logprob;
    }
    free(end);
}

static void tokens_release(struct named *t)
{
    free(t->v);
    str_clear(&t->text);
}

/* ---- an answer at once ---- */

/* What choice I begins with, if it repeats its prompt. */
static const struct str *echo_of(const struct answer *a, size_t i)
{
    return a->form.echo ? &a->form.echo[i / (size_t)a->request->best_of] : NULL;
}

static void collect(struct answer *a, const struct job_taken *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct job_piece *p = &t->piece[i];
        struct choice *c = &a->choice[p->choice];

        const size_t told = p->told ? p->ntokens * p->ntold : 0;

        a->usage.completion += p->of_prompt ? 0 : p->ntokens;
        str_addn(&c->text, p->text, p->len);
        c->told = xgrow(c->told, &c->cap, c->ntold + told, sizeof(*c->told));
        if (told)
            memcpy(c->told + c->ntold, p->told, told * sizeof(*c->told));
        c->ntold += told;
        for (size_t k = 0; k < told && !p->of_prompt; k += p->ntold) {
            c->likely += (double)p->told[k].logprob;
            c->counted++;
        }
        c->end = p->end;
    }
}

static void print(struct answer *a, struct http_reply *reply,
                  const struct openai_choice *all, size_t n)
{
    struct openai_error e;

    switch (a->request->kind) {
    case OPENAI_RERANK:
        vectors_add_ranks(&reply->body, &a->head, a->request, all, n, &a->usage);
        break;
    case OPENAI_EMBEDDING:
        if (vectors_add_embeddings(&reply->body, &a->head, a->request, all, n,
                                   &a->usage, &e) == 0)
            break;
        reply->status = e.status;
        openai_add_error(&reply->body, &e);
        break;
    case OPENAI_RESPONSE:
        response_add_whole(&a->response, &all[0], &a->usage, &reply->body);
        break;
    default:
        openai_add_answer(&reply->body, &a->head, all, n, &a->usage);
    }
}

/* Is choice I better than K: likelier by token, or the earlier one? */
static bool is_better(const struct answer *a, size_t i, size_t k)
{
    const struct choice *x = &a->choice[i], *y = &a->choice[k];
    const double by = x->likely * (double)y->counted - y->likely * (double)x->counted;

    return by > 0 || (by == 0 && i < k);
}

/* PICK[each] becomes the best .n of the choices of prompt P first. */
static void pick_best(const struct answer *a, size_t p, size_t each, size_t *pick)
{
    for (size_t i = 0; i < each; i++) {
        size_t at = i;

        for (; at > 0 && is_better(a, p * each + i, pick[at - 1]); at--)
            pick[at] = pick[at - 1];
        pick[at] = p * each + i;
    }
}

/* Sets *out, number AT of the answer, from choice I. */
static void take_choice(struct answer *a, size_t i, size_t at,
                        struct openai_choice *out, struct named *tokens)
{
    struct choice *c = &a->choice[i];

    out->index = (int)at;
    take_apart(a, c, str_text(&c->text), c->text.len, true, out);
    out->finish = finish_of(c, c->end);
    if (c->told && a->request->likely >= 0)
        name_tokens(a, c->told, c->ntold, out, tokens);
}

static void put_together(struct answer *a, struct http_reply *reply)
{
    const size_t n = (size_t)a->request->n, each = (size_t)a->request->best_of;
    const size_t told = a->n / each * n;
    struct openai_choice *all = xcalloc(told, sizeof(*all));
    struct named *tokens = xcalloc(told, sizeof(*tokens));
    size_t *pick = xcalloc(each, sizeof(*pick));

    for (size_t i = 0; i < told; i++) {
        if (i % n == 0)
            pick_best(a, i / n, each, pick);
        take_choice(a, n < each ? pick[i % n] : i, i, &all[i], &tokens[i]);
    }
    reply->status = 200;
    reply->type = "application/json";
    print(a, reply, all, told);
    for (size_t i = 0; i < told; i++)
        tokens_release(&tokens[i]);
    free(pick);
    free(tokens);
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

/* The one choice of a response. */
static void add_response(struct answer *a, struct str *out, const struct job_piece *p)
{
    struct choice *of = &a->choice[p->choice];
    struct openai_choice c = { 0 };

    a->usage.completion += p->ntokens;
    if (!of->begun)
        response_begin(&a->response, out);
    of->begun = true;
    of->end = p->end;
    take_apart(a, of, p->text, p->len, p->end, &c);
    response_add(&a->response, &c, out);
}

/* The role comes first, the reason of the end last, each in a chunk of its own. */
static void add_piece(struct answer *a, struct str *out, const struct job_piece *p)
{
    struct openai_choice c = { .index = p->choice };
    struct choice *of = &a->choice[p->choice];
    const struct str *echo = echo_of(a, (size_t)p->choice);
    struct named tokens = { 0 };
    const bool tells = p->told && a->request->likely >= 0;
    bool first = !of->begun;

    a->usage.completion += p->of_prompt ? 0 : p->ntokens;
    of->begun = true;
    if (first && a->head.kind == OPENAI_CHAT)
        add_event(a, out, &c, true, NULL);
    if (first && echo) {
        c.text = str_text(echo);
        c.len = echo->len;
        add_event(a, out, &c, false, NULL);
        c.len = 0;
    }
    if (tells) {
        c.offset = of->offset;
        name_tokens(a, p->told, p->ntokens * p->ntold, &c, &tokens);
        of->offset += openai_characters(&c);
    }
    take_apart(a, of, p->text, p->len, p->end, &c);
    if (c.len || c.nthought || c.ncalls || tells)
        add_event(a, out, &c, false, NULL);
    tokens_release(&tokens);
    if (p->end) {
        c = (struct openai_choice){ .index = p->choice };
        c.finish = finish_of(of, p->end);
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

/* The last of a stream. */
static void add_end(struct answer *a, struct str *out, const struct err *err)
{
    if (a->head.kind == OPENAI_RESPONSE && err->kind) {
        response_fail(&a->response, err->text, out);
    } else if (a->head.kind == OPENAI_RESPONSE) {
        response_end(&a->response, finish_of(&a->choice[0], a->choice[0].end),
                     &a->usage, out);
    } else {
        if (err->kind)
            add_error(out, err);
        else if (a->request->include_usage)
            add_event(a, out, NULL, false, &a->usage);
        sse_end(out);
    }
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
        (a->head.kind == OPENAI_RESPONSE ? add_response : add_piece)(a, out,
                                                                     &t.piece[i]);
    over = t.over;
    if (over) {
        a->usage.cached = t.cached;
        add_end(a, out, &t.err);
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
    for (size_t i = 0; i < a->n; i++) {
        str_clear(&a->choice[i].text);
        said_clear(&a->choice[i].said);
        free(a->choice[i].told);
    }
    free(a->choice);
    response_clear(&a->response);
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
                  const struct answer_form *form)
{
    static const struct http_later later = { .look = look, .more = more, .end = end };
    struct answer *a = xcalloc(1, sizeof(*a));

    a->exchange = x;
    a->job = j;
    a->form = *form;
    a->request = form->request;
    a->n = form->nchoices;
    a->choice = xcalloc(a->n, sizeof(*a->choice));
    for (size_t i = 0; i < a->n; i++)
        said_init(&a->choice[i].said, &form->said);
    for (size_t i = 0; i < a->n && form->echo && !a->request->stream; i++)
        str_addn(&a->choice[i].text, str_text(echo_of(a, i)), echo_of(a, i)->len);
    a->usage.prompt = form->prompt;
    openai_head_init(&a->head, a->request->kind, form->model);
    response_init(&a->response, &a->head, a->request);
    http_answer_later(x, &later, a);
}
