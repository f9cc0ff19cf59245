/* openai - requests and answers of OpenAI's HTTP interface, as JSON */
#include "lib/serve/openai.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "lib/base/mem.h"
#include "lib/serve/responses.h"

/* ---- errors ---- */

int openai_fail(struct openai_error *e, int status, const char *param, const char *code,
                const char *fmt, ...)
{
    va_list ap;

    *e = (struct openai_error){ .status = status, .param = param, .code = code };
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof(e->text), fmt, ap);
    va_end(ap);
    return -1;
}

static const char *type_of(int status)
{
    return status == 401   ? "authentication_error"
           : status == 429 ? "rate_limit_error"
           : status >= 500 ? "server_error"
                           : "invalid_request_error";
}

static void add_string_or_null(struct str *out, const char *text)
{
    if (text)
        str_add_json(out, text);
    else
        str_add(out, "null");
}

void openai_add_error(struct str *out, const struct openai_error *e)
{
    str_add(out, "{\"error\":{\"message\":");
    str_add_json(out, e->text);
    str_addf(out, ",\"type\":\"%s\",\"param\":", type_of(e->status));
    add_string_or_null(out, e->param);
    str_add(out, ",\"code\":");
    add_string_or_null(out, e->code);
    str_add(out, "}}");
}

/* ---- parameters ---- */

struct param {
    const char *name;
    unsigned kinds; /* bits of enum openai_kind */
    /* J is neither missing nor null. */
    int (*take)(struct openai_request *r, const struct json *j, const char *name,
                struct openai_error *e);
};

static int bad(struct openai_error *e, const char *name, const char *what)
{
    return openai_fail(e, 400, name, "invalid_value", "%s: expected %s", name, what);
}

static int take_flag(bool *out, const struct json *j, const char *name,
                     struct openai_error *e)
{
    if (j->type != JSON_TRUE && j->type != JSON_FALSE)
        return bad(e, name, "true or false");
    *out = j->type == JSON_TRUE;
    return 0;
}

static int take_count(uint64_t *out, const struct json *j, uint64_t least,
                      uint64_t most, const char *name, struct openai_error *e)
{
    uint64_t n = 0;

    if (!json_u64(j, &n) || n < least || n > most)
        return openai_fail(e, 400, name, "invalid_value",
                           "%s: expected a whole number of %llu to %llu", name,
                           (unsigned long long)least, (unsigned long long)most);
    *out = n;
    return 0;
}

static int take_model(struct openai_request *r, const struct json *j, const char *name,
                      struct openai_error *e)
{
    r->model = json_string(j);
    return r->model ? 0 : bad(e, name, "a text");
}

static int take_max_tokens(struct openai_request *r, const struct json *j,
                           const char *name, struct openai_error *e)
{
    r->given.max_tokens = true;
    return take_count(&r->max_tokens, j, r->kind == OPENAI_COMPLETION ? 0 : 1,
                      INT32_MAX, name, e);
}

/* What a number may be.  Those of the penalties are OpenAI's and vLLM's; vLLM's -1 of
 * top_k is no limit. */
static const struct {
    double least, most;
    bool whole, above; /* above: the least is not allowed itself */
    const char *what;
} numbers[OPENAI_NUMBERS] = {
    [OPENAI_TEMPERATURE] = { 0, 1e9, false, false, "a number of at least 0" },
    [OPENAI_TOP_K] = { -1, 1e9, true, false, "a whole number of at least -1" },
    [OPENAI_TOP_P] = { 0, 1, false, true, "a number above 0, and at most 1" },
    [OPENAI_MIN_P] = { 0, 1, false, false, "a number of 0 to 1" },
    [OPENAI_TYPICAL_P] = { 0, 1, false, true, "a number above 0, and at most 1" },
    [OPENAI_PRESENCE_PENALTY] = { -2, 2, false, false, "a number of -2 to 2" },
    [OPENAI_FREQUENCY_PENALTY] = { -2, 2, false, false, "a number of -2 to 2" },
    [OPENAI_REPETITION_PENALTY] = { 1e-6, 1e6, false, false,
                                    "a number of 0.000001 to 1000000" },
    [OPENAI_MIN_TOKENS] = { 0, 1e9, true, false, "a whole number of at least 0" },
};

static int take_number(struct openai_request *r, enum openai_number i,
                       const struct json *j, const char *name, struct openai_error *e)
{
    double x;
    int64_t whole;

    if (!json_double(j, &x) || x < numbers[i].least || x > numbers[i].most ||
        (numbers[i].above && x == numbers[i].least) ||
        (numbers[i].whole && !json_i64(j, &whole)))
        return bad(e, name, numbers[i].what);
    r->given.number[i] = true;
    r->number[i] = x;
    return 0;
}

#define NUMBER(NAME, name)                                                 \
    static int take_##name(struct openai_request *r, const struct json *j, \
                           const char *key, struct openai_error *e)        \
    {                                                                      \
        return take_number(r, OPENAI_##NAME, j, key, e);                   \
    }
NUMBER(TEMPERATURE, temperature)
NUMBER(TOP_P, top_p)
NUMBER(MIN_P, min_p)
NUMBER(TYPICAL_P, typical_p)
NUMBER(PRESENCE_PENALTY, presence_penalty)
NUMBER(FREQUENCY_PENALTY, frequency_penalty)
NUMBER(REPETITION_PENALTY, repetition_penalty)
NUMBER(MIN_TOKENS, min_tokens)
#undef NUMBER

static int take_top_k(struct openai_request *r, const struct json *j, const char *name,
                      struct openai_error *e)
{
    if (take_number(r, OPENAI_TOP_K, j, name, e) < 0)
        return -1;
    if (r->number[OPENAI_TOP_K] < 0)
        r->number[OPENAI_TOP_K] = 0;
    return 0;
}

/* {"ID": BIAS} */
static int take_logit_bias(struct openai_request *r, const struct json *j,
                           const char *name, struct openai_error *e)
{
    if (j->type != JSON_OBJECT || j->n > OPENAI_MOST_BIASES)
        return openai_fail(e, 400, name, "invalid_value",
                           "%s: expected an object of at most %d token ids and biases",
                           name, OPENAI_MOST_BIASES);
    r->bias = xcalloc((size_t)j->n + 1, sizeof(*r->bias));
    for (j = j->first; j; j = j->next) {
        struct openai_bias *b = &r->bias[r->nbias++];
        uint64_t id;

        if (!str_u64(j->key, &id) || id > INT32_MAX || !json_double(j, &b->bias) ||
            b->bias < -100 || b->bias > 100)
            return bad(e, name, "token ids, each with a number of -100 to 100");
        b->id = (int32_t)id;
    }
    return 0;
}

static int take_bad_words(struct openai_request *r, const struct json *j,
                          const char *name, struct openai_error *e)
{
    if (j->type != JSON_ARRAY || j->n > OPENAI_MOST_BAD_WORDS)
        return openai_fail(e, 400, name, "invalid_value",
                           "%s: expected a list of at most %d texts", name,
                           OPENAI_MOST_BAD_WORDS);
    r->bad_word = xcalloc((size_t)j->n + 1, sizeof(*r->bad_word));
    for (j = j->first; j; j = j->next) {
        const char *text = json_string(j);

        if (!text || !*text || strlen(text) < j->n)
            return bad(e, name, "a list of texts that are not empty");
        r->bad_word[r->nbad_words++] = text;
    }
    return 0;
}

/* A chat says whether, and apart from that how many; a completion how many. */
static int take_logprobs(struct openai_request *r, const struct json *j,
                         const char *name, struct openai_error *e)
{
    uint64_t n = 0;
    bool wanted = true;

    if (j->type == JSON_FALSE)
        return 0;
    if (r->kind == OPENAI_CHAT ? take_flag(&wanted, j, name, e) < 0
                               : take_count(&n, j, 0, OPENAI_MOST_LIKELY, name, e) < 0)
        return -1;
    r->likely = (int)n;
    return 0;
}

static int take_top_logprobs(struct openai_request *r, const struct json *j,
                             const char *name, struct openai_error *e)
{
    uint64_t n = 0;

    if (take_count(&n, j, 0, OPENAI_MOST_LIKELY, name, e) < 0)
        return -1;
    if (r->likely < 0 && n)
        return openai_fail(e, 400, name, "invalid_value", "%s: needs logprobs", name);
    if (r->likely >= 0)
        r->likely = (int)n;
    return 0;
}

static int take_seed(struct openai_request *r, const struct json *j, const char *name,
                     struct openai_error *e)
{
    int64_t s;

    r->given.seed = true;
    if (json_u64(j, &r->seed))
        return 0;
    if (!json_i64(j, &s))
        return bad(e, name, "a whole number");
    r->seed = (uint64_t)s;
    return 0;
}

static int take_n(struct openai_request *r, const struct json *j, const char *name,
                  struct openai_error *e)
{
    uint64_t n = 0;

    if (take_count(&n, j, 1, OPENAI_MOST_CHOICES, name, e) < 0)
        return -1;
    r->n = (int)n;
    return 0;
}

static int take_best_of(struct openai_request *r, const struct json *j,
                        const char *name, struct openai_error *e)
{
    uint64_t n = 0;

    if (take_count(&n, j, 1, OPENAI_MOST_CHOICES, name, e) < 0)
        return -1;
    r->best_of = (int)n;
    return 0;
}

static int take_stream(struct openai_request *r, const struct json *j, const char *name,
                       struct openai_error *e)
{
    return take_flag(&r->stream, j, name, e);
}

static int take_stream_options(struct openai_request *r, const struct json *j,
                               const char *name, struct openai_error *e)
{
    const struct json *usage = json_get(j, "include_usage");

    if (j->type != JSON_OBJECT)
        return bad(e, name, "an object");
    return usage && usage->type != JSON_NULL
               ? take_flag(&r->include_usage, usage, name, e)
               : 0;
}

static int take_ignore_eos(struct openai_request *r, const struct json *j,
                           const char *name, struct openai_error *e)
{
    return take_flag(&r->ignore_eos, j, name, e);
}

static int take_echo(struct openai_request *r, const struct json *j, const char *name,
                     struct openai_error *e)
{
    return take_flag(&r->echo, j, name, e);
}

static int add_stop(struct openai_request *r, const struct json *j, const char *name,
                    struct openai_error *e)
{
    const char *text = json_string(j);

    if (!text || !*text || strlen(text) < j->n)
        return bad(e, name, "a text that is not empty, or a list of such texts");
    if (r->nstop == OPENAI_MOST_STOPS)
        return openai_fail(e, 400, name, "invalid_value", "%s: at most %d texts", name,
                           OPENAI_MOST_STOPS);
    r->stop = xrealloc(r->stop, (r->nstop + 1) * sizeof(*r->stop));
    r->stop[r->nstop++] = text;
    return 0;
}

static int take_stop(struct openai_request *r, const struct json *j, const char *name,
                     struct openai_error *e)
{
    if (j->type != JSON_ARRAY)
        return add_stop(r, j, name, e);
    for (j = j->first; j; j = j->next)
        if (add_stop(r, j, name, e) < 0)
            return -1;
    return 0;
}

static int take_stop_ids(struct openai_request *r, const struct json *j,
                         const char *name, struct openai_error *e)
{
    uint64_t id = 0;

    if (j->type != JSON_ARRAY)
        return bad(e, name, "a list of token ids");
    if (j->n > OPENAI_MOST_STOP_IDS)
        return openai_fail(e, 400, name, "invalid_value", "%s: at most %d ids", name,
                           OPENAI_MOST_STOP_IDS);
    r->stop_ids = xcalloc((size_t)j->n + 1, sizeof(*r->stop_ids));
    for (j = j->first; j; j = j->next) {
        if (take_count(&id, j, 0, INT32_MAX, name, e) < 0)
            return -1;
        r->stop_ids[r->nstop_ids++] = (int32_t)id;
    }
    return 0;
}

/* ---- prompts ---- */

static bool is_ids(const struct json *j)
{
    uint64_t id = 0;

    if (j->type != JSON_ARRAY || !j->first)
        return false;
    for (j = j->first; j; j = j->next)
        if (!json_u64(j, &id) || id > INT32_MAX)
            return false;
    return true;
}

static int add_prompt(struct openai_request *r, const struct json *j, const char *name,
                      struct openai_error *e)
{
    struct openai_prompt *p = &r->prompt[r->nprompts++];

    p->text = json_string(j);
    p->len = p->text ? j->n : 0;
    p->ids = is_ids(j) ? j : NULL;
    return p->text || p->ids ? 0
                             : bad(e, name,
                                   "a text, a list of token ids, or a list of these "
                                   "that is not empty");
}

static int take_prompt(struct openai_request *r, const struct json *j, const char *name,
                       struct openai_error *e)
{
    const bool many = j->type == JSON_ARRAY && !is_ids(j);
    const unsigned most =
        r->kind == OPENAI_EMBEDDING ? OPENAI_MOST_TEXTS : OPENAI_MOST_CHOICES;

    if (many && (!j->first || j->n > most))
        return openai_fail(e, 400, name, "invalid_value",
                           "%s: expected 1 to %u of them", name, most);
    r->prompt = xcalloc(many ? j->n : 1, sizeof(*r->prompt));
    if (!many)
        return add_prompt(r, j, name, e);
    for (j = j->first; j; j = j->next)
        if (add_prompt(r, j, name, e) < 0)
            return -1;
    return 0;
}

static int take_tokens(struct openai_request *r, const struct json *j, const char *name,
                       struct openai_error *e)
{
    r->tokens = j;
    return is_ids(j) || (j->type == JSON_ARRAY && !j->first)
               ? 0
               : bad(e, name, "a list of token ids");
}

/* ---- tools ---- */

static int take_tools(struct openai_request *r, const struct json *j, const char *name,
                      struct openai_error *e)
{
    if (j->type != JSON_ARRAY)
        return bad(e, name, "a list of tools");
    r->tools = j->first != NULL;
    for (j = j->first; j; j = j->next) {
        const char *type = json_string(json_get(j, "type"));
        const char *called = json_string(json_get(json_get(j, "function"), "name"));

        if (!type || strcmp(type, "function") != 0 || !called || !*called)
            return bad(e, name,
                       "{\"type\":\"function\",\"function\":{\"name\",...}} each");
    }
    return 0;
}

static bool has_tool(const struct openai_request *r, const char *name)
{
    const struct json *j = json_get(r->doc.root, "tools");

    for (j = j ? j->first : NULL; j; j = j->next)
        if (!strcmp(json_string(json_get(json_get(j, "function"), "name")), name))
            return true;
    return false;
}

static int take_tool_choice(struct openai_request *r, const struct json *j,
                            const char *name, struct openai_error *e)
{
    const char *text = json_string(j), *type = json_string(json_get(j, "type"));

    if (text && !strcmp(text, "none"))
        r->tools = false;
    if (text && (!strcmp(text, "none") || !strcmp(text, "auto")))
        return 0;
    r->must_call = true;
    r->called = json_string(json_get(json_get(j, "function"), "name"));
    if (text ? strcmp(text, "required") != 0
             : !type || strcmp(type, "function") != 0 || !r->called)
        return openai_fail(e, 400, name, "unsupported_value",
                           "%s: this server knows \"auto\", \"none\", \"required\" and "
                           "a function",
                           name);
    if (!r->tools)
        return openai_fail(e, 400, name, "invalid_value", "%s: there are no tools",
                           name);
    return !r->called || has_tool(r, r->called)
               ? 0
               : openai_fail(e, 400, name, "invalid_value",
                             "%s: there is no tool of that name", name);
}

/* ---- what the answer has to be ---- */

/* GRAMMAR becomes what it is. */
static int set_grammar(struct openai_request *r, struct str *grammar, const char *name,
                       struct openai_error *e)
{
    if (r->grammar) {
        str_clear(grammar);
        return openai_fail(e, 400, name, "invalid_value", "%s: not beside %s", name,
                           r->grammar_from);
    }
    r->grammar = str_steal(grammar);
    r->grammar_from = name;
    return 0;
}

/* A schema, or the text of one. */
static int take_guided_json(struct openai_request *r, const struct json *j,
                            const char *name, struct openai_error *e)
{
    struct str grammar = { 0 };
    struct json_doc doc;
    struct err err = { 0 };

    if (!json_string(j))
        json_print(&grammar, j);
    else if (json_parse(&doc, name, j->text, j->n, &err) < 0)
        return openai_fail(e, 400, name, "invalid_value", "%s", err.text);
    else {
        json_print(&grammar, doc.root);
        json_clear(&doc);
    }
    return set_grammar(r, &grammar, name, e);
}

static int take_guided_regex(struct openai_request *r, const struct json *j,
                             const char *name, struct openai_error *e)
{
    struct str grammar = { 0 };

    if (!json_string(j) || strlen(j->text) < j->n)
        return bad(e, name, "a regular expression");
    str_addf(&grammar, "regex:%s", j->text);
    return set_grammar(r, &grammar, name, e);
}

static int take_guided_choice(struct openai_request *r, const struct json *j,
                              const char *name, struct openai_error *e)
{
    struct str grammar = { 0 };

    if (j->type != JSON_ARRAY || !j->first)
        return bad(e, name, "a list of texts");
    str_add(&grammar, "regex:");
    for (const struct json *k = j->first; k; k = k->next) {
        if (!json_string(k) || strlen(k->text) < k->n) {
            str_clear(&grammar);
            return bad(e, name, "a list of texts");
        }
        for (const char *p = k->text; *p; p++) {
            if (strchr("\\^$.|?*+()[]{}", *p))
                str_addc(&grammar, '\\');
            str_addc(&grammar, *p);
        }
        str_add(&grammar, k->next ? "|" : "");
    }
    return set_grammar(r, &grammar, name, e);
}

static int take_response_format(struct openai_request *r, const struct json *j,
                                const char *name, struct openai_error *e)
{
    const char *type = json_string(json_get(j, "type"));
    const struct json *schema = json_get(json_get(j, "json_schema"), "schema");
    struct str grammar = { 0 };

    name = r->kind == OPENAI_RESPONSE ? "text" : name; /* where it comes from there */
    if (type && !strcmp(type, "text"))
        return 0;
    if (type && !strcmp(type, "json_object"))
        str_add(&grammar, "json");
    else if (!type || strcmp(type, "json_schema") != 0)
        return openai_fail(e, 400, name, "unsupported_value",
                           "%s: this server knows the types \"text\", \"json_object\" "
                           "and \"json_schema\"",
                           name);
    else if (!schema || schema->type != JSON_OBJECT)
        return bad(e, name, "a json_schema with a schema");
    else
        json_print(&grammar, schema);
    return set_grammar(r, &grammar, name, e);
}

/* vLLM's newer form of guided_...: one of them in an object. */
static int take_structured(struct openai_request *r, const struct json *j,
                           const char *name, struct openai_error *e)
{
    if (j->type != JSON_OBJECT)
        return bad(e, name, "an object");
    for (const struct json *k = j->first; k; k = k->next) {
        int ret = 0;

        if (k->type == JSON_NULL || k->type == JSON_FALSE)
            continue;
        if (!strcmp(k->key, "json"))
            ret = take_guided_json(r, k, name, e);
        else if (!strcmp(k->key, "regex"))
            ret = take_guided_regex(r, k, name, e);
        else if (!strcmp(k->key, "choice"))
            ret = take_guided_choice(r, k, name, e);
        else if (!strcmp(k->key, "json_object") && k->type == JSON_TRUE) {
            struct str grammar = { 0 };

            str_add(&grammar, "json");
            ret = set_grammar(r, &grammar, name, e);
        } else
            ret = openai_fail(e, 400, name, "unsupported_parameter",
                              "%s: '%.40s' is not supported by this server", name,
                              k->key);
        if (ret < 0)
            return -1;
    }
    return 0;
}

static int take_parallel(struct openai_request *r, const struct json *j,
                         const char *name, struct openai_error *e)
{
    bool many = true;

    if (take_flag(&many, j, name, e) < 0)
        return -1;
    r->one_call = !many;
    return 0;
}

/* ---- vectors ---- */

static int take_encoding(struct openai_request *r, const struct json *j,
                         const char *name, struct openai_error *e)
{
    const char *text = json_string(j);

    r->base64 = text && !strcmp(text, "base64");
    return r->base64 || (text && !strcmp(text, "float"))
               ? 0
               : bad(e, name, "\"float\" or \"base64\"");
}

static int take_dimensions(struct openai_request *r, const struct json *j,
                           const char *name, struct openai_error *e)
{
    return take_count(&r->dimensions, j, 1, INT32_MAX, name, e);
}

/* A text, or {"text": TEXT}. */
static int take_text(struct openai_prompt *out, const struct json *j, const char *name,
                     struct openai_error *e)
{
    const struct json *text = j->type == JSON_OBJECT ? json_get(j, "text") : j;

    out->text = json_string(text);
    if (!out->text || strlen(out->text) < text->n)
        return bad(e, name, "a text, or an object with \"text\", without U+0000");
    out->len = text->n;
    return 0;
}

static int take_query(struct openai_request *r, const struct json *j, const char *name,
                      struct openai_error *e)
{
    return take_text(&r->query, j, name, e);
}

static int take_documents(struct openai_request *r, const struct json *j,
                          const char *name, struct openai_error *e)
{
    if (j->type != JSON_ARRAY || !j->first || j->n > OPENAI_MOST_TEXTS)
        return openai_fail(e, 400, name, "invalid_value",
                           "%s: expected a list of 1 to %d texts", name,
                           OPENAI_MOST_TEXTS);
    r->document = xcalloc((size_t)j->n, sizeof(*r->document));
    for (j = j->first; j; j = j->next)
        if (take_text(&r->document[r->ndocuments++], j, name, e) < 0)
            return -1;
    return 0;
}

static int take_top_n(struct openai_request *r, const struct json *j, const char *name,
                      struct openai_error *e)
{
    return take_count(&r->top_n, j, 1, INT32_MAX, name, e);
}

static int take_return_documents(struct openai_request *r, const struct json *j,
                                 const char *name, struct openai_error *e)
{
    bool wanted = true;

    if (take_flag(&wanted, j, name, e) < 0)
        return -1;
    r->leaves_texts = !wanted;
    return 0;
}

/* ---- what is not supported ---- */

static int unsupported(const char *name, struct openai_error *e)
{
    return openai_fail(e, 400, name, "unsupported_parameter",
                       "%s is not supported by this server", name);
}

static int refuse(struct openai_request *r, const struct json *j, const char *name,
                  struct openai_error *e)
{
    (void)r;
    (void)j;
    return unsupported(name, e);
}

/* Values that ask for nothing. */
static int want_zero(struct openai_request *r, const struct json *j, const char *name,
                     struct openai_error *e)
{
    double x;

    (void)r;
    return (json_double(j, &x) && x == 0) || j->type == JSON_FALSE
               ? 0
               : unsupported(name, e);
}

static int want_one(struct openai_request *r, const struct json *j, const char *name,
                    struct openai_error *e)
{
    double x;

    (void)r;
    return json_double(j, &x) && x == 1 ? 0 : unsupported(name, e);
}

static int want_true(struct openai_request *r, const struct json *j, const char *name,
                     struct openai_error *e)
{
    (void)r;
    return j->type == JSON_TRUE ? 0 : unsupported(name, e);
}

static int want_empty(struct openai_request *r, const struct json *j, const char *name,
                      struct openai_error *e)
{
    (void)r;
    return j->type != JSON_NUMBER && j->type != JSON_TRUE && j->n == 0
               ? 0
               : unsupported(name, e);
}

static int want_text(struct openai_request *r, const struct json *j, const char *name,
                     struct openai_error *e)
{
    const struct json *form = j->type == JSON_ARRAY ? j->first : json_get(j, "type");
    const char *word =
        form && (j->type != JSON_ARRAY || j->n == 1) ? json_string(form) : NULL;

    (void)r;
    return word && !strcmp(word, "text") ? 0 : unsupported(name, e);
}

static int want_none(struct openai_request *r, const struct json *j, const char *name,
                     struct openai_error *e)
{
    (void)r;
    return json_string(j) && !strcmp(json_string(j), "none") ? 0 : unsupported(name, e);
}

enum {
    COMPLETION = 1 << OPENAI_COMPLETION,
    CHAT = 1 << OPENAI_CHAT,
    RESPONSE = 1 << OPENAI_RESPONSE,
    TALK = CHAT | RESPONSE,
    BOTH = COMPLETION | TALK,
    CHOICES = COMPLETION | CHAT,
    EMBEDDING = 1 << OPENAI_EMBEDDING,
    RERANK = 1 << OPENAI_RERANK,
    TOKENIZE = 1 << OPENAI_TOKENIZE,
    DETOKENIZE = 1 << OPENAI_DETOKENIZE,
    ALL = BOTH | EMBEDDING | RERANK | TOKENIZE | DETOKENIZE
};

static const struct param params[] = {
    { "model", ALL, take_model },
    { "prompt", COMPLETION | TOKENIZE, take_prompt },
    { "input", EMBEDDING, take_prompt },
    { "encoding_format", EMBEDDING, take_encoding },
    { "dimensions", EMBEDDING, take_dimensions },
    { "query", RERANK, take_query },
    { "documents", RERANK, take_documents },
    { "top_n", RERANK, take_top_n },
    { "return_documents", RERANK, take_return_documents },
    { "tokens", DETOKENIZE, take_tokens },
    { "max_tokens", BOTH, take_max_tokens },
    { "max_completion_tokens", CHAT, take_max_tokens },
    { "temperature", BOTH, take_temperature },
    { "top_p", BOTH, take_top_p },
    { "top_k", BOTH, take_top_k },
    { "min_p", BOTH, take_min_p },
    { "typical_p", BOTH, take_typical_p },
    { "presence_penalty", BOTH, take_presence_penalty },
    { "frequency_penalty", BOTH, take_frequency_penalty },
    { "repetition_penalty", BOTH, take_repetition_penalty },
    { "min_tokens", BOTH, take_min_tokens },
    { "logit_bias", BOTH, take_logit_bias },
    { "bad_words", BOTH, take_bad_words },
    { "logprobs", CHOICES, take_logprobs },
    { "top_logprobs", CHAT, take_top_logprobs },
    { "echo", COMPLETION, take_echo },
    { "seed", BOTH, take_seed },
    { "n", CHOICES, take_n },
    { "best_of", COMPLETION, take_best_of },
    { "stop", BOTH, take_stop },
    { "stop_token_ids", BOTH, take_stop_ids },
    { "ignore_eos", BOTH, take_ignore_eos },
    { "stream", BOTH, take_stream },
    { "stream_options", CHOICES, take_stream_options },
    { "tools", TALK, take_tools },
    { "tool_choice", TALK, take_tool_choice }, /* after it */
    { "parallel_tool_calls", TALK, take_parallel },
    /* change the answer, and are not supported */
    { "add_special_tokens", COMPLETION | TOKENIZE, want_true },
    { "audio", CHAT, want_empty },
    { "function_call", CHAT, want_none },
    { "functions", CHAT, want_empty },
    { "guided_choice", BOTH, take_guided_choice },
    { "guided_grammar", BOTH, want_empty },
    { "guided_json", BOTH, take_guided_json },
    { "guided_regex", BOTH, take_guided_regex },
    { "structured_outputs", BOTH, take_structured },
    { "length_penalty", BOTH, want_one },
    { "modalities", CHAT, want_text },
    { "prediction", CHAT, want_empty },
    { "prompt_logprobs", CHOICES, want_empty },
    { "n", RESPONSE, want_one },
    { "top_logprobs", RESPONSE, want_zero },
    { "reasoning_effort", CHAT, refuse },
    { "response_format", BOTH, take_response_format },
    { "suffix", COMPLETION, want_empty },
    { "truncate_prompt_tokens", EMBEDDING | RERANK, refuse },
    { "use_beam_search", BOTH, want_zero },
    { "verbosity", CHAT, refuse },
    { "web_search_options", CHAT, want_empty },
};

static int take_params(struct openai_request *r, struct openai_error *e)
{
    for (size_t i = 0; i < sizeof(params) / sizeof(*params); i++) {
        const struct param *p = &params[i];
        const struct json *j = json_get(r->doc.root, p->name);

        if (j && j->type != JSON_NULL && (p->kinds >> r->kind & 1) &&
            p->take(r, j, p->name, e) < 0)
            return -1;
    }
    return 0;
}

bool openai_is_chat(enum openai_kind kind)
{
    return TALK >> kind & 1;
}

/* ---- messages of several parts ---- */

static bool is_list(const struct json *j)
{
    return j && j->type == JSON_ARRAY;
}

static bool has_parts(const struct json *messages)
{
    for (const struct json *m = messages ? messages->first : NULL; m; m = m->next)
        if (is_list(json_get(m, "content")) || is_list(json_get(m, "tool_calls")))
            return true;
    return false;
}

/* OpenAI's arguments of a call are a text, and those of templates an object. */
static void print_arguments(struct str *out, const struct json *j)
{
    struct json_doc doc;
    struct err err = { 0 };
    bool object = false;

    if (json_string(j) && json_parse(&doc, "arguments", j->text, j->n, &err) == 0) {
        object = doc.root->type == JSON_OBJECT;
        if (object)
            json_print(out, doc.root);
        json_clear(&doc);
    }
    if (!object)
        json_print(out, j);
}

/* J again, with arguments as objects in it. */
static void print_calls(struct str *out, const struct json *j)
{
    const bool object = j->type == JSON_OBJECT;

    if (!object && j->type != JSON_ARRAY) {
        json_print(out, j);
        return;
    }
    str_addc(out, object ? '{' : '[');
    for (const struct json *m = j->first; m; m = m->next) {
        if (object) {
            str_add_json(out, m->key);
            str_addc(out, ':');
        }
        if (object && !strcmp(m->key, "arguments"))
            print_arguments(out, m);
        else
            print_calls(out, m);
        str_add(out, m->next ? "," : "");
    }
    str_addc(out, object ? '}' : ']');
}

/* Parts of text are one text of lines, as vLLM gives them to templates; others, such as
 * images, are not for a model of text. */
static int join_parts(struct str *out, const struct json *parts, struct openai_error *e)
{
    struct str text = { 0 };

    for (const struct json *p = parts->first; p; p = p->next) {
        const struct json *said = p->type == JSON_STRING ? p : json_get(p, "text");

        if (!json_string(said)) {
            const char *type = json_string(json_get(p, "type"));

            str_clear(&text);
            return openai_fail(e, 400, "messages", "unsupported_value",
                               "a part of a message of type '%.40s' is not supported",
                               type ? type : "");
        }
        if (p != parts->first)
            str_addc(&text, '\n');
        str_addn(&text, said->text, said->n);
    }
    str_add_jsonn(out, str_text(&text), text.len);
    str_clear(&text);
    return 0;
}

static int print_joined(struct str *out, const struct json *message,
                        struct openai_error *e)
{
    if (message->type != JSON_OBJECT) {
        json_print(out, message);
        return 0;
    }
    str_addc(out, '{');
    for (const struct json *j = message->first; j; j = j->next) {
        str_add_json(out, j->key);
        str_addc(out, ':');
        if (!strcmp(j->key, "content") && j->type == JSON_ARRAY) {
            if (join_parts(out, j, e) < 0)
                return -1;
        } else if (!strcmp(j->key, "tool_calls")) {
            print_calls(out, j);
        } else {
            json_print(out, j);
        }
        str_addc(out, j->next ? ',' : '}');
    }
    if (!message->first)
        str_addc(out, '}');
    return 0;
}

/* TEXT becomes the document. */
static int replace(struct openai_request *r, const struct str *text,
                   struct openai_error *e)
{
    struct json_doc doc;
    struct err err = { 0 };

    if (json_parse(&doc, "body", str_text(text), text->len, &err) < 0)
        return openai_fail(e, 400, NULL, "invalid_json", "%s", err.text);
    json_clear(&r->doc);
    r->doc = doc;
    return 0;
}

/* The document again, with a text in each message. */
static int join_messages(struct openai_request *r, struct openai_error *e)
{
    struct str out = { 0 };
    int ret = 0;

    str_addc(&out, '{');
    for (const struct json *j = r->doc.root->first; j && ret == 0; j = j->next) {
        str_add_json(&out, j->key);
        str_addc(&out, ':');
        if (!strcmp(j->key, "messages") && j->type == JSON_ARRAY) {
            str_addc(&out, '[');
            for (const struct json *m = j->first; m && ret == 0; m = m->next) {
                ret = print_joined(&out, m, e);
                str_add(&out, m->next ? "," : "]");
            }
        } else {
            json_print(&out, j);
        }
        str_addc(&out, j->next ? ',' : '}');
    }
    if (ret == 0)
        ret = replace(r, &out, e);
    str_clear(&out);
    return ret;
}

static int rewrite_response(struct openai_request *r, struct openai_error *e)
{
    struct str out = { 0 };
    int ret = responses_rewrite(&out, r->doc.root, e);

    if (ret == 0)
        ret = replace(r, &out, e);
    str_clear(&out);
    return ret;
}

int openai_parse(struct openai_request *r, enum openai_kind kind, const char *body,
                 size_t n, struct openai_error *e)
{
    struct err err = { 0 };

    *r = (struct openai_request){ .kind = kind, .n = 1, .likely = -1 };
    if (json_parse(&r->doc, "body", body, n, &err) < 0) {
        r->doc = (struct json_doc){ 0 };
        return openai_fail(e, 400, NULL, "invalid_json", "%s", err.text);
    }
    if (r->doc.root->type != JSON_OBJECT)
        return openai_fail(e, 400, NULL, "invalid_json", "the body is not an object");
    if (kind == OPENAI_RESPONSE && rewrite_response(r, e) < 0)
        return -1;
    if ((TALK | TOKENIZE) >> kind & 1 && has_parts(json_get(r->doc.root, "messages")) &&
        join_messages(r, e) < 0)
        return -1;
    if (take_params(r, e) < 0)
        return -1;
    if (r->given.max_tokens && r->number[OPENAI_MIN_TOKENS] > (double)r->max_tokens)
        return openai_fail(e, 400, "min_tokens", "invalid_value",
                           "min_tokens: more than max_tokens");
    if (r->given.max_tokens && !r->max_tokens && !r->echo)
        return openai_fail(e, 400, "max_tokens", "invalid_value",
                           "max_tokens: no token, and no echo of the prompt");
    if (kind == OPENAI_COMPLETION && !r->prompt)
        return openai_fail(e, 400, "prompt", "missing_parameter", "no \"prompt\"");
    if (kind == OPENAI_EMBEDDING && !r->prompt)
        return openai_fail(e, 400, "input", "missing_parameter", "no \"input\"");
    if (kind == OPENAI_RERANK && (!r->query.text || !r->document))
        return openai_fail(e, 400, r->query.text ? "documents" : "query",
                           "missing_parameter", "no \"%s\"",
                           r->query.text ? "documents" : "query");
    if (kind == OPENAI_DETOKENIZE && !r->tokens)
        return openai_fail(e, 400, "tokens", "missing_parameter", "no \"tokens\"");
    if (kind == OPENAI_TOKENIZE && (r->nprompts > 1 || (r->prompt && r->prompt->ids)))
        return openai_fail(e, 400, "prompt", "invalid_value",
                           "prompt: expected a text");
    if (r->best_of && r->best_of < r->n)
        return openai_fail(e, 400, "best_of", "invalid_value", "best_of: less than n");
    if (r->best_of > r->n && r->stream)
        return openai_fail(e, 400, "best_of", "invalid_value",
                           "best_of: what is best is not known in a stream");
    if (!r->best_of)
        r->best_of = r->n;
    if (kind == OPENAI_COMPLETION &&
        r->nprompts * (size_t)r->best_of > OPENAI_MOST_CHOICES)
        return openai_fail(e, 400, "n", "invalid_value",
                           "n: %zu prompts have at most %d choices in all", r->nprompts,
                           OPENAI_MOST_CHOICES);
    return 0;
}

void openai_clear(struct openai_request *r)
{
    free(r->grammar);
    free(r->prompt);
    free(r->document);
    free(r->stop);
    free(r->stop_ids);
    free(r->bias);
    free(r->bad_word);
    json_clear(&r->doc);
    *r = (struct openai_request){ 0 };
}

/* ---- answers ---- */

void openai_head_init(struct openai_head *h, enum openai_kind kind, const char *model)
{
    unsigned char bytes[12] = { 0 };
    int n = snprintf(h->id, sizeof(h->id), "%s-",
                     kind == OPENAI_CHAT       ? "chatcmpl"
                     : kind == OPENAI_RESPONSE ? "resp"
                     : kind == OPENAI_RERANK   ? "rerank"
                                               : "cmpl");

    (void)!getrandom(bytes, sizeof(bytes), 0);
    for (size_t i = 0; i < sizeof(bytes); i++)
        n += snprintf(h->id + n, sizeof(h->id) - (size_t)n, "%02x", bytes[i]);
    h->kind = kind;
    h->model = model;
    h->created = (int64_t)time(NULL);
}

static void add_head(struct str *out, const struct openai_head *h, const char *object)
{
    str_addf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", h->id,
             object, (long long)h->created);
    str_add_json(out, h->model);
    str_add(out, ",\"choices\":[");
}

static void add_finish(struct str *out, const char *finish)
{
    str_add(out, ",\"finish_reason\":");
    add_string_or_null(out, finish);
    str_addc(out, '}');
}

static void add_usage(struct str *out, const struct openai_usage *u)
{
    str_addf(out,
             ",\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,"
             "\"total_tokens\":%zu,\"prompt_tokens_details\":{\"cached_tokens\":%zu}}",
             u->prompt, u->completion, u->prompt + u->completion, u->cached);
}

/* ---- log-probabilities ---- */

/* JSON has no infinity: as OpenAI does, the least that is told is -9999. */
static void add_logprob(struct str *out, double logprob)
{
    if (isnan(logprob))
        str_add(out, "null");
    else
        str_addf(out, "%.9g", logprob > -9999 ? logprob : -9999);
}

static void add_token(struct str *out, const struct openai_token *t)
{
    str_add(out, "{\"token\":");
    str_add_jsonn(out, t->text, t->len);
    str_add(out, ",\"logprob\":");
    add_logprob(out, t->logprob);
    str_add(out, ",\"bytes\":[");
    for (size_t i = 0; i < t->len; i++)
        str_addf(out, "%s%d", i ? "," : "", (unsigned char)t->text[i]);
    str_addc(out, ']');
}

static void add_chat_logprobs(struct str *out, const struct openai_choice *c)
{
    str_add(out, "{\"content\":[");
    for (size_t i = 0; i < c->ntokens; i++) {
        const struct openai_token *t = c->token + i * (1 + c->nlikely);

        str_add(out, i ? "," : "");
        add_token(out, t);
        str_add(out, ",\"top_logprobs\":[");
        for (size_t k = 1; k <= c->nlikely && t[k].text; k++) {
            str_add(out, k > 1 ? "," : "");
            add_token(out, &t[k]);
            str_addc(out, '}');
        }
        str_add(out, "]}");
    }
    str_add(out, "],\"refusal\":null}");
}

/* Of tokens whose text is the same, such as those that are parts of characters, an
 * object has the likeliest. */
static bool is_repeated(const struct openai_token *t, size_t k)
{
    for (size_t i = 1; i < k; i++)
        if (t[i].len == t[k].len && !memcmp(t[i].text, t[k].text, t[k].len))
            return true;
    return false;
}

/* The likeliest, and the token itself if it is not among them. */
static void add_likeliest(struct str *out, const struct openai_token *t, size_t n)
{
    bool has = false;

    str_addc(out, '{');
    for (size_t k = 1; k <= n && t[k].text; k++) {
        if (is_repeated(t, k))
            continue;
        has |= t[k].len == t->len && !memcmp(t[k].text, t->text, t->len);
        str_add(out, k > 1 ? "," : "");
        str_add_jsonn(out, t[k].text, t[k].len);
        str_addc(out, ':');
        add_logprob(out, t[k].logprob);
    }
    if (!has) {
        str_add(out, n && t[1].text ? "," : "");
        str_add_jsonn(out, t->text, t->len);
        str_addc(out, ':');
        add_logprob(out, t->logprob);
    }
    str_addc(out, '}');
}

/* What a token adds to the text. */
static size_t count_characters(const struct openai_token *t)
{
    size_t characters = 0;

    for (size_t i = 0; i < t->len && !t->hidden; i++)
        characters += ((unsigned char)t->text[i] & 0xc0) != 0x80;
    return characters;
}

static void add_completion_logprobs(struct str *out, const struct openai_choice *c)
{
    const size_t each = 1 + c->nlikely;
    size_t at = c->offset;

    str_add(out, "{\"tokens\":[");
    for (size_t i = 0; i < c->ntokens; i++) {
        str_add(out, i ? "," : "");
        str_add_jsonn(out, c->token[i * each].text, c->token[i * each].len);
    }
    str_add(out, "],\"token_logprobs\":[");
    for (size_t i = 0; i < c->ntokens; i++) {
        str_add(out, i ? "," : "");
        add_logprob(out, c->token[i * each].logprob);
    }
    str_add(out, "],\"top_logprobs\":[");
    for (size_t i = 0; i < c->ntokens; i++) {
        str_add(out, i ? "," : "");
        if (isnan(c->token[i * each].logprob))
            str_add(out, "null");
        else
            add_likeliest(out, c->token + i * each, c->nlikely);
    }
    str_add(out, "],\"text_offset\":[");
    for (size_t i = 0; i < c->ntokens; i++) {
        str_addf(out, "%s%zu", i ? "," : "", at);
        at += count_characters(&c->token[i * each]);
    }
    str_add(out, "]}");
}

size_t openai_characters(const struct openai_choice *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->ntokens; i++)
        n += count_characters(&c->token[i * (1 + c->nlikely)]);
    return n;
}

static void add_logprobs(struct str *out, enum openai_kind kind,
                         const struct openai_choice *c)
{
    str_add(out, ",\"logprobs\":");
    if (!c->token)
        str_add(out, "null");
    else if (kind == OPENAI_CHAT)
        add_chat_logprobs(out, c);
    else
        add_completion_logprobs(out, c);
}

/* ---- thoughts and calls ---- */

/* Appends ,"NAME":TEXT. */
static void add_member(struct str *out, const char *name, const char *text, size_t n)
{
    str_addf(out, ",\"%s\":", name);
    str_add_jsonn(out, text, n);
}

/* A call's id, as short as Mistral's templates want it. */
static void add_call_id(struct str *out)
{
    unsigned char bytes[9] = { 0 };

    (void)!getrandom(bytes, sizeof(bytes), 0);
    str_addc(out, '"');
    for (size_t i = 0; i < sizeof(bytes); i++)
        str_addc(out, "0123456789abcdefghijklmnopqrstuv"[bytes[i] % 32]);
    str_addc(out, '"');
}

/* Appends ,"tool_calls":[...]; INDEXED: as deltas have it. */
static void add_calls(struct str *out, const struct openai_choice *c, bool indexed)
{
    for (size_t i = 0; i < c->ncalls; i++) {
        const struct said_call *call = &c->call[i];

        str_add(out, i ? ",{" : ",\"tool_calls\":[{");
        if (indexed)
            str_addf(out, "\"index\":%zu,", c->first_call + i);
        str_add(out, "\"id\":");
        add_call_id(out);
        str_add(out, ",\"type\":\"function\",\"function\":{\"name\":");
        str_add_json(out, call->name);
        add_member(out, "arguments", call->arguments, strlen(call->arguments));
        str_add(out, "}}");
    }
    if (c->ncalls)
        str_addc(out, ']');
}

/* ---- choices ---- */

static void add_choice(struct str *out, enum openai_kind kind,
                       const struct openai_choice *c)
{
    str_addf(out, "{\"index\":%d,", c->index);
    str_add(out, kind == OPENAI_CHAT
                     ? "\"message\":{\"role\":\"assistant\",\"content\":"
                     : "\"text\":");
    if (c->ncalls && !c->len)
        str_add(out, "null");
    else
        str_add_jsonn(out, c->text, c->len);
    if (c->nthought)
        add_member(out, "reasoning_content", c->thought, c->nthought);
    add_calls(out, c, false);
    if (kind == OPENAI_CHAT)
        str_addc(out, '}');
    add_logprobs(out, kind, c);
    add_finish(out, c->finish);
}

void openai_add_answer(struct str *out, const struct openai_head *h,
                       const struct openai_choice *choice, size_t n,
                       const struct openai_usage *usage)
{
    add_head(out, h, h->kind == OPENAI_CHAT ? "chat.completion" : "text_completion");
    for (size_t i = 0; i < n; i++) {
        if (i)
            str_addc(out, ',');
        add_choice(out, h->kind, &choice[i]);
    }
    str_addc(out, ']');
    add_usage(out, usage);
    str_addc(out, '}');
}

static void add_delta(struct str *out, const struct openai_choice *c, bool first)
{
    struct str members = { 0 };

    if (first)
        str_add(&members, ",\"role\":\"assistant\"");
    if (first || c->len)
        add_member(&members, "content", c->len ? c->text : "", c->len);
    if (c->nthought)
        add_member(&members, "reasoning_content", c->thought, c->nthought);
    add_calls(&members, c, true);
    str_add(out, "\"delta\":{");
    if (members.len)
        str_addn(out, members.s + 1, members.len - 1);
    str_addc(out, '}');
    str_clear(&members);
}

void openai_add_chunk(struct str *out, const struct openai_head *h,
                      const struct openai_choice *c, bool first, bool counts,
                      const struct openai_usage *usage)
{
    add_head(out, h,
             h->kind == OPENAI_CHAT ? "chat.completion.chunk" : "text_completion");
    if (c) {
        str_addf(out, "{\"index\":%d,", c->index);
        if (h->kind == OPENAI_CHAT) {
            add_delta(out, c, first);
        } else {
            str_add(out, "\"text\":");
            str_add_jsonn(out, c->len ? c->text : "", c->len);
        }
        add_logprobs(out, h->kind, c);
        add_finish(out, c->finish);
    }
    str_addc(out, ']');
    if (usage)
        add_usage(out, usage);
    else if (counts)
        str_add(out, ",\"usage\":null");
    str_addc(out, '}');
}
