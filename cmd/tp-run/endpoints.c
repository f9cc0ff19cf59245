/* endpoints - what tp-run serve answers, by path */
#include "cmd/tp-run/endpoints.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "cmd/tp-run/grammars.h"
#include "cmd/tp-run/jobs.h"
#include "cmd/tp-run/page.h"
#include "config.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/run/adapter.h"
#include "lib/serve/answer.h"

enum { RETRY_S = 1, SLOW_READER = 1 << 20 /* bytes */ };

static const char json_type[] = "application/json";

static void reply_error(struct http_reply *reply, const struct openai_error *e)
{
    reply->status = e->status;
    reply->type = json_type;
    openai_add_error(&reply->body, e);
}

/* ---- generation ---- */

static int bad_prompt(struct openai_error *error, const struct err *err,
                      const char *param)
{
    return openai_fail(error, err->kind == ERR_SYSTEM ? 500 : 400, param,
                       "invalid_value", "%s", err->text);
}

/* Rows that a request's own lists replace. */
static void clear_row(struct sampling *how, enum processor row)
{
    static const struct processors neutral = PROCESSORS_NEUTRAL;

    processors_take(&how->how, &neutral, row);
}

/* How the request's numbers and lists change the logits. */
static int settle_processors(const struct endpoints *e, struct serve_request *r,
                             struct openai_error *error)
{
    static const enum processor row[OPENAI_NUMBERS] = {
        [OPENAI_TEMPERATURE] = PROCESSOR_TEMPERATURE,
        [OPENAI_TOP_K] = PROCESSOR_TOP_K,
        [OPENAI_TOP_P] = PROCESSOR_TOP_P,
        [OPENAI_MIN_P] = PROCESSOR_MIN_P,
        [OPENAI_TYPICAL_P] = PROCESSOR_TYPICAL_P,
        [OPENAI_PRESENCE_PENALTY] = PROCESSOR_PRESENCE,
        [OPENAI_FREQUENCY_PENALTY] = PROCESSOR_FREQUENCY,
        [OPENAI_REPETITION_PENALTY] = PROCESSOR_REPETITION,
        [OPENAI_MIN_TOKENS] = PROCESSOR_MIN_TOKENS,
    };
    const struct openai_request *asked = &r->asked;
    struct err err = { 0 };

    for (size_t i = 0; i < OPENAI_NUMBERS; i++)
        if (asked->given.number[i])
            r->how.how.v[row[i]].number = asked->number[i];
    if (asked->nbias)
        clear_row(&r->how, PROCESSOR_LOGIT_BIAS);
    for (size_t i = 0; i < asked->nbias; i++) {
        const struct openai_bias *b = &asked->bias[i];

        if ((uint64_t)b->id >= sampling_vocab(e->session))
            return openai_fail(error, 400, "logit_bias", "invalid_value",
                               "logit_bias: the model has no token %d", (int)b->id);
        processors_add(&r->how.how, PROCESSOR_LOGIT_BIAS, &b->id, 1, b->bias);
    }
    if (asked->nbad_words)
        clear_row(&r->how, PROCESSOR_BAD_WORDS);
    for (size_t i = 0; i < asked->nbad_words; i++)
        if (sampling_add_bad_word(&r->how.how, e->session, asked->bad_word[i], &err) <
            0)
            return bad_prompt(error, &err, "bad_words");
    return 0;
}

/* What the answer has to be: a call, or what a parameter says, in place of which there
 * may be a call where there are tools; after thoughts. */
static int settle_grammar(const struct endpoints *e, struct serve_request *r,
                          struct openai_error *error)
{
    const struct openai_request *asked = &r->asked;
    const char *param = asked->must_call ? "tool_choice" : asked->grammar_from;
    struct grammar_frame frame = { .thinks = r->said.in_thoughts,
                                   .may_think = r->said.thoughts };
    struct str schema = { 0 };
    struct grammar *g = NULL;
    struct err err = { 0 };
    int ret;

    if (!asked->must_call && !asked->grammar)
        return sampling_check_end(&r->how, "--grammar", &err) < 0
                   ? bad_prompt(error, &err, "ignore_eos")
                   : 0;
    if (asked->must_call || (asked->tools && r->said.calls != SAID_NO_CALLS))
        said_forced(r->said.calls, json_get(asked->doc.root, "tools"), asked->called,
                    &schema, &frame.before, &frame.after);
    if (!asked->must_call && schema.len)
        frame.other = str_text(&schema);
    ret = grammars_take(e->session->grammars, &g,
                        asked->must_call ? str_text(&schema) : asked->grammar, &frame,
                        &err);
    str_clear(&schema);
    if (ret == 0) {
        processors_set_grammar(&r->how.how, g);
        ret = sampling_check_end(&r->how, param, &err);
    } else
        err_prefix(&err, "%s", param);
    return ret < 0 ? bad_prompt(error, &err, param) : 0;
}

/* The settings of a request: its own, else those of the server.  As for OpenAI's
 * models the temperature is 1 unless somebody says another. */
static int settle(const struct endpoints *e, struct serve_request *r,
                  struct openai_error *error)
{
    const struct openai_request *asked = &r->asked;
    enum { OPENAI_TOKENS = 16 }; /* of a completion */

    sampling_copy(&r->how, e->sampling);
    if (asked->given.max_tokens) {
        r->how.max_tokens = asked->max_tokens;
        r->how.max_length = 0;
    } else if (asked->kind == OPENAI_COMPLETION && !r->how.given.n) {
        r->how.max_tokens = OPENAI_TOKENS;
        r->how.max_length = 0;
    }
    r->how.likely = asked->likely;
    if (asked->best_of > asked->n && asked->likely < 0)
        r->how.likely = 0;
    if (asked->given.seed)
        r->how.seed = asked->seed;
    else
        (void)!getrandom(&r->how.seed, sizeof(r->how.seed), 0);
    if (asked->nstop)
        stops_clear(&r->how.stops);
    for (size_t i = 0; i < asked->nstop; i++)
        stops_add(&r->how.stops, asked->stop[i]);
    r->how.ignore_eos |= asked->ignore_eos;
    for (size_t i = 0; i < asked->nstop_ids; i++)
        ids_add(&r->how.ends, asked->stop_ids[i]);
    sampling_begin(&r->how, e->session,
                   openai_is_chat(asked->kind) ? &e->chat_stop : &e->session->stop);
    return settle_processors(e, r, error) < 0 ? -1 : settle_grammar(e, r, error);
}

/* The name of the model with adapter I, or of the model itself; NULL: there is none. */
static const char *name_of(const struct endpoints *e, int i)
{
    return i ? adapter_name(e->session->checkpoint->adapter, i) : e->name;
}

/* Sets *adapter to the one that is called MODEL, or to 0 for the model itself. */
static int find_model(const struct endpoints *e, int *adapter, const char *model,
                      struct openai_error *error)
{
    *adapter = 0;
    if (!model || !strcmp(model, e->name))
        return 0;
    *adapter = adapter_find(e->session->checkpoint->adapter, model);
    return *adapter
               ? 0
               : openai_fail(error, 404, "model", "model_not_found",
                             "the model '%.200s' does not exist; this server has "
                             "'%s'%s",
                             model, e->name, name_of(e, 1) ? " and its adapters" : "");
}

/* Is there room for the prompt, and for all tokens that are asked for? */
static int check_room(const struct endpoints *e, const struct serve_request *r,
                      struct openai_error *error)
{
    const char *param = openai_is_chat(r->asked.kind) ? "messages" : "prompt";

    for (size_t i = 0; i < r->nprompts; i++) {
        size_t n = r->prompt[i].n;

        if (!n)
            return openai_fail(error, 400, param, "invalid_value",
                               "the prompt is empty");
        if (n >= e->context)
            return openai_fail(error, 400, param, "context_length_exceeded",
                               "this model's maximum context length is %" PRIu64
                               " tokens, and the prompt has %zu",
                               e->context, n);
        if (r->asked.given.max_tokens && r->asked.max_tokens > e->context - n)
            return openai_fail(error, 400, "max_tokens", "context_length_exceeded",
                               "this model's maximum context length is %" PRIu64
                               " tokens, and %zu of the prompt and %" PRIu64
                               " of max_tokens are more",
                               e->context, n, r->asked.max_tokens);
    }
    return 0;
}

static int add_prompt(const struct endpoints *e, struct ids *out,
                      const struct openai_prompt *p, struct openai_error *error)
{
    struct err err = { 0 };
    struct tokens tokens = { 0 };
    uint64_t id;
    int ret = 0;

    for (const struct json *j = p->ids ? p->ids->first : NULL; j; j = j->next)
        if (json_u64(j, &id))
            tokens_add(&tokens, (uint32_t)id);
    if (p->ids)
        ret = session_add_tokens(e->session, out, &tokens, &err);
    else
        ret = session_encode(e->session, out, p->text, p->len, &err);
    tokens_clear(&tokens);
    return ret < 0 ? bad_prompt(error, &err, "prompt") : 0;
}

static int add_chat(const struct endpoints *e, struct ids *out,
                    const struct openai_request *asked, struct serve_request *r,
                    struct openai_error *error)
{
    struct err err = { 0 };
    struct messages messages;
    struct str text = { 0 };
    int ret = -1;

    if (!e->form)
        return openai_fail(error, 400, "messages", NULL, "%s", e->no_form.text);
    if (messages_parse(&messages, &asked->doc, asked->doc.root, &err) == 0) {
        if (asked->kind != OPENAI_TOKENIZE && !asked->tools)
            messages.tools = NULL; /* none, or tool_choice says so */
        ret = messages_ids(e->form, &messages, out, &text, &err);
    }
    if (ret == 0 && r) {
        r->said = messages_said(e->form, &messages, &text, &r->shows_special);
        r->said.one = asked->one_call;
    }
    str_clear(&text);
    if (ret < 0)
        return bad_prompt(error, &err, "messages");
    return r && asked->tools && r->said.calls == SAID_NO_CALLS
               ? openai_fail(error, 400, "tools", "unsupported_value",
                             "the chat template has no form of calls that this server "
                             "reads: Hermes', Llama 3's or Mistral's")
               : 0;
}

/* Adds a text, and PAIR (or NULL) as the second one of a pair. */
static int add_input(const struct endpoints *e, struct serve_request *r,
                     const struct openai_prompt *text, const struct openai_prompt *pair,
                     const char *param, struct openai_error *error)
{
    struct inputs *in = &r->inputs;
    struct err err = { 0 };
    struct input one = { 0 };
    char name[48];
    int ret;

    snprintf(name, sizeof(name), "%s %zu", param, in->n);
    if (text->ids) {
        one.name = xstrdup(name);
        ret = add_prompt(e, &one.ids, text, error);
        if (inputs_add(in, &one, ret) < 0)
            return -1;
    } else {
        ret = pair ? inputs_add_pair(in, e->session, name, text->text, pair->text, &err)
                   : inputs_add_text(in, e->session, name, text->text, text->len, &err);
        if (ret < 0)
            return bad_prompt(error, &err, param);
    }
    if (!in->v[in->n - 1].ids.n)
        return openai_fail(error, 400, param, "invalid_value", "%s has no tokens",
                           name);
    if (in->v[in->n - 1].ids.n > e->context)
        return openai_fail(error, 400, param, "context_length_exceeded",
                           "this model's maximum context length is %" PRIu64
                           " tokens, and %s has %zu",
                           e->context, name, in->v[in->n - 1].ids.n);
    return 0;
}

/* What vectors are made of: texts; or pairs of the query with each document, or each of
 * them alone. */
static int make_inputs(const struct endpoints *e, struct serve_request *r,
                       struct openai_error *error)
{
    const struct openai_request *asked = &r->asked;
    const bool pairs = e->task == TASK_RERANK;
    struct err err = { 0 };

    for (size_t i = 0; i < asked->nprompts; i++)
        if (add_input(e, r, &asked->prompt[i], NULL, "input", error) < 0)
            return -1;
    if (asked->kind == OPENAI_RERANK && !pairs &&
        add_input(e, r, &asked->query, NULL, "query", error) < 0)
        return -1;
    for (size_t i = 0; i < asked->ndocuments; i++)
        if (add_input(e, r, pairs ? &asked->query : &asked->document[i],
                      pairs ? &asked->document[i] : NULL, "documents", error) < 0)
            return -1;
    return inputs_use(&r->inputs, e->session, INPUT_GIVEN, &err) < 0
               ? bad_prompt(error, &err, NULL)
               : 0;
}

static int make_prompts(const struct endpoints *e, struct serve_request *r,
                        struct openai_error *error)
{
    const struct openai_request *asked = &r->asked;

    r->nprompts = openai_is_chat(asked->kind) ? 1 : asked->nprompts;
    r->prompt = xcalloc(r->nprompts, sizeof(*r->prompt));
    if (openai_is_chat(asked->kind))
        return add_chat(e, &r->prompt[0], asked, r, error);
    for (size_t i = 0; i < r->nprompts; i++)
        if (add_prompt(e, &r->prompt[i], &asked->prompt[i], error) < 0)
            return -1;
    return 0;
}

static bool decode(const void *arg, int32_t id, struct str *out)
{
    const struct endpoints *e = arg;
    const uint32_t one = (uint32_t)id;
    const size_t before = out->len;
    struct str shown = { 0 };
    bool is_shown;

    tokenizer_decode(e->session->tokenizer, &one, 1, false, out);
    tokenizer_decode(e->session->tokenizer, &one, 1, true, &shown);
    is_shown = shown.len || out->len == before;
    str_clear(&shown);
    return is_shown;
}

/* Appends the text of IDS, special tokens included. */
static void add_text_of(const struct endpoints *e, const struct json *ids,
                        struct str *out)
{
    struct tokens tokens = { 0 };
    uint64_t id;

    for (const struct json *j = ids->first; j; j = j->next)
        if (json_u64(j, &id))
            tokens_add(&tokens, (uint32_t)id);
    tokenizer_decode(e->session->tokenizer, tokens.id, tokens.n, false, out);
    tokens_clear(&tokens);
}

/* The texts of prompts, for answers that begin with them. */
static void make_echo(const struct endpoints *e, struct serve_request *r)
{
    r->echo = xcalloc(r->nprompts, sizeof(*r->echo));
    for (size_t i = 0; i < r->nprompts; i++) {
        const struct openai_prompt *p = &r->asked.prompt[i];

        if (p->text)
            str_addn(&r->echo[i], p->text, p->len);
        else
            add_text_of(e, p->ids, &r->echo[i]);
    }
}

static int push(const struct endpoints *e, struct http_exchange *x, struct job *j,
                struct openai_error *error)
{
    const struct serve_request *r = j->request;
    struct answer_form form = { .request = &r->asked,
                                .model = name_of(e, r->adapter),
                                .decode = decode,
                                .arg = e,
                                .nchoices = serve_choices(r),
                                .said = r->said,
                                .echo = r->echo };

    answer_prepare(x, j);
    j->came = clock_seconds();
    j->whole = !r->asked.stream;
    switch (queue_push(e->queue, j)) {
    case QUEUE_FULL:
        return openai_fail(error, 429, NULL, "queue_full",
                           "too many requests are waiting");
    case QUEUE_CLOSED:
        return openai_fail(error, 503, NULL, NULL, "the server is being ended");
    case QUEUE_TAKEN:
        break;
    }
    form.prompt = serve_tokens(r);
    answer_later(x, j, &form);
    return 0;
}

/* Does the model do what is asked for? */
static int check_task(const struct endpoints *e, enum openai_kind kind,
                      struct openai_error *error)
{
    const char *does = e->task == TASK_GENERATE ? "generates text"
                       : e->task == TASK_EMBED  ? "makes embeddings"
                                                : "ranks texts";
    const bool can = kind == OPENAI_RERANK      ? e->task != TASK_GENERATE
                     : kind == OPENAI_EMBEDDING ? e->task == TASK_EMBED
                                                : e->task == TASK_GENERATE;

    return can ? 0
               : openai_fail(error, 400, NULL, "unsupported_task",
                             "this server %s; another one, with another model or "
                             "--task, does what is asked for",
                             does);
}

static int make(const struct endpoints *e, struct serve_request *r,
                struct openai_error *error)
{
    if (e->task != TASK_GENERATE)
        return make_inputs(e, r, error);
    return make_prompts(e, r, error) < 0 || check_room(e, r, error) < 0
               ? -1
               : settle(e, r, error);
}

static void generate(const struct endpoints *e, enum openai_kind kind,
                     const struct http_request *in, struct http_exchange *x,
                     struct http_reply *reply)
{
    struct serve_request *r = xcalloc(1, sizeof(*r));
    struct job *j = job_new();
    struct openai_error error = { 0 };

    j->request = r;
    j->free_request = serve_request_free;
    j->most = SLOW_READER;
    if (check_task(e, kind, &error) == 0 &&
        openai_parse(&r->asked, kind, in->body, in->nbody, &error) == 0 &&
        find_model(e, &r->adapter, r->asked.model, &error) == 0 &&
        make(e, r, &error) == 0) {
        if (r->asked.echo)
            make_echo(e, r);
        if (push(e, x, j, &error) == 0)
            return;
    }
    job_drop(j);
    reply_error(reply, &error);
    if (error.status == 429 || error.status == 503)
        reply->retry_after_s = RETRY_S;
}

static void complete(struct endpoints *e, const struct http_request *r,
                     struct http_exchange *x, struct http_reply *reply)
{
    generate(e, OPENAI_COMPLETION, r, x, reply);
}

static void chat(struct endpoints *e, const struct http_request *r,
                 struct http_exchange *x, struct http_reply *reply)
{
    generate(e, OPENAI_CHAT, r, x, reply);
}

static void respond(struct endpoints *e, const struct http_request *r,
                    struct http_exchange *x, struct http_reply *reply)
{
    generate(e, OPENAI_RESPONSE, r, x, reply);
}

static void embeddings(struct endpoints *e, const struct http_request *r,
                       struct http_exchange *x, struct http_reply *reply)
{
    generate(e, OPENAI_EMBEDDING, r, x, reply);
}

static void rerank(struct endpoints *e, const struct http_request *r,
                   struct http_exchange *x, struct http_reply *reply)
{
    generate(e, OPENAI_RERANK, r, x, reply);
}

/* ---- tokens ---- */

static void tokenize(struct endpoints *e, const struct http_request *in,
                     struct http_exchange *x, struct http_reply *reply)
{
    struct openai_request r;
    struct openai_error error = { 0 };
    struct ids ids = { 0 };
    int ret = openai_parse(&r, OPENAI_TOKENIZE, in->body, in->nbody, &error);
    int adapter;

    (void)x;
    if (ret == 0)
        ret = find_model(e, &adapter, r.model, &error);
    if (ret == 0)
        ret = r.prompt ? add_prompt(e, &ids, r.prompt, &error)
                       : add_chat(e, &ids, &r, NULL, &error);
    if (ret < 0) {
        reply_error(reply, &error);
    } else {
        reply->status = 200;
        reply->type = json_type;
        str_addf(&reply->body,
                 "{\"count\":%zu,\"max_model_len\":%" PRIu64 ",\"tokens\":", ids.n,
                 e->context);
        ids_print_json(&reply->body, &ids);
        str_addc(&reply->body, '}');
    }
    ids_clear(&ids);
    openai_clear(&r);
}

static void detokenize(struct endpoints *e, const struct http_request *in,
                       struct http_exchange *x, struct http_reply *reply)
{
    struct openai_request r;
    struct openai_error error = { 0 };
    struct str text = { 0 };
    int adapter;

    (void)x;
    if (openai_parse(&r, OPENAI_DETOKENIZE, in->body, in->nbody, &error) < 0 ||
        find_model(e, &adapter, r.model, &error) < 0) {
        reply_error(reply, &error);
    } else {
        add_text_of(e, r.tokens, &text);
        reply->status = 200;
        reply->type = json_type;
        str_add(&reply->body, "{\"prompt\":");
        str_add_jsonn(&reply->body, str_text(&text), text.len);
        str_addc(&reply->body, '}');
    }
    str_clear(&text);
    openai_clear(&r);
}

/* ---- what the server is ---- */

static void add_model(const struct endpoints *e, int adapter, struct str *out)
{
    str_add(out, "{\"id\":");
    str_add_json(out, name_of(e, adapter));
    str_addf(out,
             ",\"object\":\"model\",\"created\":%" PRId64
             ",\"owned_by\":\"shardutils\",\"max_model_len\":%" PRIu64,
             e->created, e->context);
    if (adapter) {
        str_add(out, ",\"parent\":");
        str_add_json(out, e->name);
    }
    str_addc(out, '}');
}

static void models(struct endpoints *e, const struct http_request *r,
                   struct http_exchange *x, struct http_reply *reply)
{
    (void)r;
    (void)x;
    reply->status = 200;
    reply->type = json_type;
    str_add(&reply->body, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; name_of(e, i); i++) {
        str_add(&reply->body, i ? "," : "");
        add_model(e, i, &reply->body);
    }
    str_add(&reply->body, "]}");
}

static void model(struct endpoints *e, const struct http_request *r,
                  struct http_exchange *x, struct http_reply *reply)
{
    struct openai_error error;
    int adapter;

    (void)x;
    if (find_model(e, &adapter, r->path + strlen("/v1/models/"), &error) < 0) {
        reply_error(reply, &error);
        return;
    }
    reply->status = 200;
    reply->type = json_type;
    add_model(e, adapter, &reply->body);
}

static void health(struct endpoints *e, const struct http_request *r,
                   struct http_exchange *x, struct http_reply *reply)
{
    (void)r;
    (void)x;
    reply->status = queue_is_closed(e->queue) ? 503 : 200;
}

static void version(struct endpoints *e, const struct http_request *r,
                    struct http_exchange *x, struct http_reply *reply)
{
    (void)r;
    (void)x;
    reply->status = 200;
    reply->type = json_type;
    str_add(&reply->body, "{\"version\":\"" PACKAGE_VERSION "\",\"server\":\"tp-run\","
                          "\"model\":");
    str_add_json(&reply->body, e->name);
    str_add(&reply->body, ",\"layout\":");
    str_add_json(&reply->body, e->layout);
    str_addc(&reply->body, '}');
}

static void page(struct endpoints *e, const struct http_request *r,
                 struct http_exchange *x, struct http_reply *reply)
{
    (void)e;
    (void)r;
    (void)x;
    reply->status = 200;
    reply->type = "text/html; charset=utf-8";
    str_add(&reply->body, page_html);
}

static void metrics(struct endpoints *e, const struct http_request *r,
                    struct http_exchange *x, struct http_reply *reply)
{
    (void)r;
    (void)x;
    reply->status = 200;
    reply->type = METRICS_TYPE;
    metrics_print(e->metrics, e->name, &reply->body);
}

/* ---- routes ---- */

struct route {
    const char *method, *path; /* one that ends in '/' has a name after it */
    void (*run)(struct endpoints *e, const struct http_request *r,
                struct http_exchange *x, struct http_reply *reply);
};

static const struct route routes[] = {
    { "GET", "/", page },
    { "GET", "/health", health },
    { "GET", "/metrics", metrics },
    { "GET", "/v1/models", models },
    { "GET", "/v1/models/", model },
    { "POST", "/v1/chat/completions", chat },
    { "POST", "/v1/completions", complete },
    { "POST", "/v1/responses", respond },
    { "POST", "/v1/embeddings", embeddings },
    { "POST", "/v1/rerank", rerank },
    { "POST", "/v2/rerank", rerank },
    { "POST", "/rerank", rerank },
    { "POST", "/tokenize", tokenize },
    { "POST", "/detokenize", detokenize },
    { "GET", "/version", version },
};

static bool has_path(const struct route *route, const char *path)
{
    size_t n = strlen(route->path);

    return route->path[n - 1] == '/' && n > 1
               ? !strncmp(path, route->path, n) && path[n]
               : !strcmp(path, route->path);
}

static bool has_method(const struct route *route, const char *method)
{
    return !strcmp(route->method, method) ||
           (!strcmp(route->method, "GET") && !strcmp(method, "HEAD"));
}

static const struct route *find(const struct http_request *r, struct http_reply *reply)
{
    const struct route *other = NULL;
    struct openai_error error;

    for (size_t i = 0; i < sizeof(routes) / sizeof(*routes); i++) {
        if (!has_path(&routes[i], r->path))
            continue;
        if (has_method(&routes[i], r->method))
            return &routes[i];
        other = &routes[i];
    }
    if (other) {
        openai_fail(&error, 405, NULL, NULL, "%s is for %s", other->path,
                    other->method);
        reply->allow = other->method;
    } else {
        openai_fail(&error, 404, NULL, NULL, "%.200s: there is nothing", r->path);
    }
    reply_error(reply, &error);
    return NULL;
}

/* A page of another site must not ask in the name of who looks at it: its requests have
 * an origin (Fetch Standard, section 3.2), which is not this server. */
static bool is_foreign(const struct http_request *r)
{
    const char *host = r->origin ? strstr(r->origin, "://") : NULL;

    return r->origin && (!host || !r->host || strcmp(host + 3, r->host) != 0);
}

static void admit(void *arg, const struct http_request *r, struct http_reply *reply)
{
    const struct endpoints *e = arg;
    struct openai_error error = { 0 };

    if (!strcmp(r->path, "/health"))
        (void)find(r, reply);
    else if (is_foreign(r))
        openai_fail(&error, 403, NULL, NULL, "a page of another site asks");
    else if (e->at && !address_is_named(e->at, r->host))
        openai_fail(&error, 403, NULL, NULL,
                    "Host: %.200s: without an API key this server answers those who "
                    "call it by the address it listens at",
                    r->host ? r->host : "");
    else if (e->keys && !apikeys_allow(e->keys, r->authorization))
        openai_fail(&error, 401, NULL, "invalid_api_key",
                    r->authorization
                        ? "this API key is not valid"
                        : "an API key is needed: Authorization: Bearer KEY");
    else
        (void)find(r, reply);
    if (error.status)
        reply_error(reply, &error);
}

static void answer(void *arg, const struct http_request *r, struct http_exchange *x,
                   struct http_reply *reply)
{
    const struct route *route = find(r, reply);

    if (route)
        route->run(arg, r, x, reply);
}

static void refuse(void *arg, int status, const char *why, struct http_reply *reply)
{
    struct openai_error error;

    (void)arg;
    openai_fail(&error, status, NULL, NULL, "%s", why);
    reply_error(reply, &error);
}

static void log_request(void *arg, const struct http_request *r,
                        const struct http_record *record)
{
    struct endpoints *e = arg;
    struct str line = { 0 };
    struct timespec now;

    if (!e->log)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    str_addf(&line, "{\"type\":\"request\",\"time\":%lld.%03ld,\"client\":",
             (long long)now.tv_sec, now.tv_nsec / 1000000);
    str_add_json(&line, record->client);
    str_add(&line, ",\"method\":");
    str_add_json(&line, r->method);
    str_add(&line, ",\"path\":");
    str_add_json(&line, r->path);
    str_addf(&line, ",\"status\":%d,\"left\":%s,\"seconds\":%.6f%s}\n", record->status,
             record->left ? "true" : "false", record->seconds, record->notes);
    accesslog_add(e->log, &line);
    str_clear(&line);
}

struct http_handler endpoints_handler(struct endpoints *e)
{
    return (struct http_handler){
        .admit = admit, .answer = answer, .refuse = refuse, .log = log_request, .arg = e
    };
}
