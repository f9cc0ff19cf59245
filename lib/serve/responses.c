/* responses - OpenAI's newer interface, /v1/responses */
#include "lib/serve/responses.h"

#include <string.h>
#include <sys/random.h>

/* ---- requests ---- */

static bool is_null(const struct json *j)
{
    return !j || j->type == JSON_NULL;
}

static bool is_text(const struct json *j, const char *text)
{
    return json_string(j) && !strcmp(j->text, text);
}

/* Appends "KEY":VALUE and what follows it. */
static void add_pair(struct str *out, const char *key, const struct json *value,
                     const char *then)
{
    str_add_json(out, key);
    str_addc(out, ':');
    json_print(out, value);
    str_add(out, then);
}

static int bad_item(struct openai_error *e, const char *what)
{
    return openai_fail(e, 400, "input", "invalid_value", "input: %s", what);
}

/* {"role", "content"}; a developer is the system. */
static int add_message(struct str *out, const struct json *item, struct openai_error *e)
{
    const struct json *role = json_get(item, "role"),
                      *content = json_get(item, "content");

    if (!json_string(role) || is_null(content))
        return bad_item(e, "a message has a \"role\" and a \"content\"");
    str_add(out, "{\"role\":");
    str_add_json(out, is_text(role, "developer") ? "system" : role->text);
    str_addc(out, ',');
    add_pair(out, "content", content, "}");
    return 0;
}

/* Of calls that follow each other, which are one message: AGAIN, unless it is the first
 * one. */
static int add_call(struct str *out, const struct json *item, bool again,
                    struct openai_error *e)
{
    const struct json *id = json_get(item, "call_id"), *name = json_get(item, "name"),
                      *arguments = json_get(item, "arguments");

    if (!json_string(id) || !json_string(name) || !json_string(arguments))
        return bad_item(e, "a function_call has \"call_id\", \"name\", \"arguments\"");
    str_add(out, again ? ",{"
                       : "{\"role\":\"assistant\",\"content\":\"\","
                         "\"tool_calls\":[{");
    add_pair(out, "id", id, ",\"type\":\"function\",\"function\":{");
    add_pair(out, "name", name, ",");
    add_pair(out, "arguments", arguments, "}}");
    return 0;
}

static int add_output(struct str *out, const struct json *item, struct openai_error *e)
{
    const struct json *id = json_get(item, "call_id"), *made = json_get(item, "output");

    if (!json_string(id) || is_null(made))
        return bad_item(e, "a function_call_output has \"call_id\" and \"output\"");
    str_add(out, "{\"role\":\"tool\",");
    add_pair(out, "tool_call_id", id, ",");
    add_pair(out, "content", made, "}");
    return 0;
}

static int add_item(struct str *out, const struct json *item, bool again,
                    struct openai_error *e)
{
    const struct json *type = json_get(item, "type");

    if (item->type != JSON_OBJECT)
        return bad_item(e, "an item is no object");
    if (is_null(type) || is_text(type, "message"))
        return add_message(out, item, e);
    if (is_text(type, "function_call"))
        return add_call(out, item, again, e);
    if (is_text(type, "function_call_output"))
        return add_output(out, item, e);
    return openai_fail(e, 400, "input", "unsupported_value",
                       "input: an item of type '%.40s' is not supported",
                       json_string(type) ? type->text : "");
}

/* Thoughts of earlier answers are no part of a chat. */
static const struct json *skip_thoughts(const struct json *item)
{
    while (item && is_text(json_get(item, "type"), "reasoning"))
        item = item->next;
    return item;
}

static int add_items(struct str *out, const struct json *input, struct openai_error *e)
{
    const struct json *item = skip_thoughts(input->first), *next;
    bool again = false;

    for (; item; item = next) {
        next = skip_thoughts(item->next);
        if (add_item(out, item, again, e) < 0)
            return -1;
        again = is_text(json_get(item, "type"), "function_call");
        if (again && next && is_text(json_get(next, "type"), "function_call"))
            continue;
        str_add(out, again ? "]}" : "");
        str_add(out, next ? "," : "");
        again = false;
    }
    return 0;
}

static int add_messages(struct str *out, const struct json *root,
                        struct openai_error *e)
{
    const struct json *input = json_get(root, "input"),
                      *system = json_get(root, "instructions");

    if (!is_null(system) && !json_string(system))
        return openai_fail(e, 400, "instructions", "invalid_value",
                           "instructions: expected a text");
    if (!json_string(input) && (is_null(input) || input->type != JSON_ARRAY))
        return bad_item(e, "expected a text or a list of items");
    str_add(out, "\"messages\":[");
    if (!is_null(system)) {
        str_add(out, "{\"role\":\"system\",");
        add_pair(out, "content", system,
                 json_string(input) || skip_thoughts(input->first) ? "}," : "}");
    }
    if (json_string(input)) {
        str_add(out, "{\"role\":\"user\",");
        add_pair(out, "content", input, "}");
    } else if (add_items(out, input, e) < 0) {
        return -1;
    }
    str_addc(out, ']');
    return 0;
}

/* {"type":"function","name",...} becomes {"type":"function","function":{"name",...}} */
static int add_tools(struct str *out, const struct json *tools, struct openai_error *e)
{
    str_add(out, "\"tools\":[");
    for (const struct json *t = tools->first; t; t = t->next) {
        const char *comma = "";

        if (!is_text(json_get(t, "type"), "function"))
            return openai_fail(e, 400, "tools", "unsupported_value",
                               "tools: this server knows functions alone");
        str_add(out, "{\"type\":\"function\",\"function\":{");
        for (const struct json *m = t->first; m; m = m->next)
            if (strcmp(m->key, "type") != 0 && strcmp(m->key, "strict") != 0) {
                str_add(out, comma);
                add_pair(out, m->key, m, "");
                comma = ",";
            }
        str_add(out, t->next ? "}}," : "}}");
    }
    str_addc(out, ']');
    return 0;
}

/* What a server that stores nothing cannot do, and other forms of answers. */
static int check(const struct json *j, struct openai_error *e)
{
    static const char *const stored[] = { "previous_response_id", "conversation",
                                          "prompt", "background", "store" };

    for (size_t i = 0; i < sizeof(stored) / sizeof(*stored); i++)
        if (!strcmp(j->key, stored[i]) && !is_null(j) && j->type != JSON_FALSE)
            return openai_fail(e, 400, stored[i], "unsupported_parameter",
                               "%s: this server stores nothing", stored[i]);
    if (!strcmp(j->key, "text") && !is_null(j)) {
        if (!is_null(json_get(j, "verbosity")))
            return openai_fail(e, 400, "text", "unsupported_parameter",
                               "text.verbosity is not supported by this server");
    }
    if (!strcmp(j->key, "truncation") && !is_null(j) && !is_text(j, "disabled"))
        return openai_fail(e, 400, "truncation", "unsupported_parameter",
                           "truncation is not supported by this server");
    if (!strcmp(j->key, "reasoning") && !is_null(json_get(j, "effort")))
        return openai_fail(e, 400, "reasoning", "unsupported_parameter",
                           "reasoning.effort is not supported by this server");
    return 0;
}

/* {"format":{"type":T,"schema",...}} becomes {"type":T,"json_schema":{"schema",...}} */
static void add_format(struct str *out, const struct json *text)
{
    const struct json *format = json_get(text, "format");

    add_pair(out, "text", text, "");
    if (is_null(format))
        return;
    str_add(out, ",\"response_format\":{");
    if (json_get(format, "type"))
        add_pair(out, "type", json_get(format, "type"), ",");
    str_add(out, "\"json_schema\":{");
    if (json_get(format, "schema"))
        add_pair(out, "schema", json_get(format, "schema"), "");
    str_add(out, "}}");
}

/* {"type":"function","name":N} becomes {"type":"function","function":{"name":N}} */
static void add_choice(struct str *out, const struct json *choice)
{
    if (!is_text(json_get(choice, "type"), "function") || !json_get(choice, "name")) {
        add_pair(out, "tool_choice", choice, "");
        return;
    }
    str_add(out, "\"tool_choice\":{\"type\":\"function\",\"function\":{");
    add_pair(out, "name", json_get(choice, "name"), "}}");
}

int responses_rewrite(struct str *out, const struct json *root, struct openai_error *e)
{
    str_addc(out, '{');
    if (add_messages(out, root, e) < 0)
        return -1;
    for (const struct json *j = root->first; j; j = j->next) {
        if (check(j, e) < 0)
            return -1;
        if (!strcmp(j->key, "input") || !strcmp(j->key, "instructions") ||
            !strcmp(j->key, "messages") || !strcmp(j->key, "max_tokens") ||
            !strcmp(j->key, "response_format"))
            continue;
        str_addc(out, ',');
        if (!strcmp(j->key, "tools") && j->type == JSON_ARRAY) {
            if (add_tools(out, j, e) < 0)
                return -1;
        } else if (!strcmp(j->key, "text")) {
            add_format(out, j);
        } else if (!strcmp(j->key, "tool_choice")) {
            add_choice(out, j);
        } else {
            add_pair(out, strcmp(j->key, "max_output_tokens") ? j->key : "max_tokens",
                     j, "");
        }
    }
    str_addc(out, '}');
    return 0;
}

/* ---- answers ---- */

void response_init(struct response *r, const struct openai_head *head,
                   const struct openai_request *request)
{
    *r = (struct response){ .head = head, .request = request };
}

void response_clear(struct response *r)
{
    str_clear(&r->items);
    str_clear(&r->id);
    str_clear(&r->text);
    *r = (struct response){ 0 };
}

static void add_random(struct str *out, const char *prefix)
{
    unsigned char bytes[12] = { 0 };

    (void)!getrandom(bytes, sizeof(bytes), 0);
    str_add(out, prefix);
    for (size_t i = 0; i < sizeof(bytes); i++)
        str_addf(out, "%02x", bytes[i]);
}

/* The object of the answer as it stands; USAGE: it is over. */
static void add_object(const struct response *r, const char *status, const char *why,
                       const char *error, const struct openai_usage *u, struct str *out)
{
    str_addf(out,
             "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,"
             "\"status\":\"%s\",\"model\":",
             r->head->id, (long long)r->head->created, status);
    str_add_json(out, r->head->model);
    str_add(out, ",\"error\":");
    if (error) {
        str_add(out, "{\"code\":\"server_error\",\"message\":");
        str_add_json(out, error);
        str_addc(out, '}');
    } else {
        str_add(out, "null");
    }
    str_add(out, ",\"incomplete_details\":");
    if (why)
        str_addf(out, "{\"reason\":\"%s\"}", why);
    else
        str_add(out, "null");
    str_addf(out,
             ",\"instructions\":null,\"metadata\":{},\"parallel_tool_calls\":%s,"
             "\"previous_response_id\":null,\"store\":false,\"temperature\":null,"
             "\"top_p\":null,\"tool_choice\":\"%s\",\"tools\":[],"
             "\"text\":{\"format\":",
             r->request->one_call ? "false" : "true",
             r->request->must_call ? "required"
             : r->request->tools   ? "auto"
                                   : "none");
    if (r->request->grammar)
        json_print(out, json_get(json_get(r->request->doc.root, "text"), "format"));
    else
        str_add(out, "{\"type\":\"text\"}");
    str_add(out, "},\"truncation\":\"disabled\",\"output\":[");
    str_addn(out, str_text(&r->items), r->items.len);
    str_add(out, "],\"usage\":");
    if (u)
        str_addf(
            out,
            "{\"input_tokens\":%zu,\"input_tokens_details\":{\"cached_tokens\":%zu},"
            "\"output_tokens\":%zu,\"output_tokens_details\":"
            "{\"reasoning_tokens\":0},\"total_tokens\":%zu}}",
            u->prompt, u->cached, u->completion, u->prompt + u->completion);
    else
        str_add(out, "null}");
}

/* An event, whose further members begin with a comma each. */
static void begin_event(struct response *r, const char *type, struct str *out)
{
    str_addf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%zu", type,
             type, r->sequence++);
}

static void end_event(struct str *out)
{
    str_add(out, "}\n\n");
}

static void add_status(struct response *r, const char *type, const char *status,
                       const char *why, const char *error,
                       const struct openai_usage *usage, struct str *out)
{
    begin_event(r, type, out);
    str_add(out, ",\"response\":");
    add_object(r, status, why, error, usage, out);
    end_event(out);
}

void response_begin(struct response *r, struct str *out)
{
    add_status(r, "response.created", "in_progress", NULL, NULL, NULL, out);
    add_status(r, "response.in_progress", "in_progress", NULL, NULL, NULL, out);
}

/* ---- items ---- */

/* The part of an item that has TEXT[n]. */
static void add_part(const struct response *r, const char *text, size_t n,
                     struct str *out)
{
    str_add(out, r->open == RESPONSE_MESSAGE
                     ? "{\"type\":\"output_text\",\"annotations\":[],\"text\":"
                     : "{\"type\":\"reasoning_text\",\"text\":");
    str_add_jsonn(out, text, n);
    str_addc(out, '}');
}

/* The open item; OVER: with its text. */
static void add_open(const struct response *r, bool over, struct str *out)
{
    str_addf(out, "{\"id\":\"%s\",\"status\":\"%s\",", str_text(&r->id),
             over ? "completed" : "in_progress");
    str_add(out, r->open == RESPONSE_MESSAGE
                     ? "\"type\":\"message\",\"role\":\"assistant\",\"content\":["
                     : "\"type\":\"reasoning\",\"summary\":[],\"content\":[");
    if (over)
        add_part(r, str_text(&r->text), r->text.len, out);
    str_add(out, "]}");
}

/* ,"item_id","output_index","content_index" of the open item's only part */
static void add_place(const struct response *r, struct str *out)
{
    str_addf(out, ",\"item_id\":\"%s\",\"output_index\":%zu,\"content_index\":0",
             str_text(&r->id), r->nitems);
}

static const char *text_event(const struct response *r, bool done)
{
    return r->open == RESPONSE_MESSAGE
               ? (done ? "response.output_text.done" : "response.output_text.delta")
               : (done ? "response.reasoning_text.done"
                       : "response.reasoning_text.delta");
}

static void add_item_event(struct response *r, const char *type, const struct str *item,
                           struct str *out)
{
    begin_event(r, type, out);
    str_addf(out, ",\"output_index\":%zu,\"item\":%s", r->nitems, str_text(item));
    end_event(out);
}

static void add_part_event(struct response *r, const char *type, struct str *out)
{
    begin_event(r, type, out);
    add_place(r, out);
    str_add(out, ",\"part\":");
    add_part(r, str_text(&r->text), r->text.len, out);
    end_event(out);
}

/* ITEM is over, of which there are the events already. */
static void keep(struct response *r, const struct str *item)
{
    str_add(&r->items, r->nitems++ ? "," : "");
    str_addn(&r->items, item->s, item->len);
}

static void close_item(struct response *r, struct str *out)
{
    struct str item = { 0 };

    if (r->open == RESPONSE_NOTHING)
        return;
    begin_event(r, text_event(r, true), out);
    add_place(r, out);
    str_add(out,
            r->open == RESPONSE_MESSAGE ? ",\"logprobs\":[],\"text\":" : ",\"text\":");
    str_add_jsonn(out, str_text(&r->text), r->text.len);
    end_event(out);
    add_part_event(r, "response.content_part.done", out);
    add_open(r, true, &item);
    add_item_event(r, "response.output_item.done", &item, out);
    keep(r, &item);
    str_clear(&item);
    r->open = RESPONSE_NOTHING;
}

static void open_item(struct response *r, enum response_item kind, struct str *out)
{
    struct str item = { 0 };

    if (r->open == kind)
        return;
    close_item(r, out);
    r->open = kind;
    str_reset(&r->text);
    str_reset(&r->id);
    add_random(&r->id, kind == RESPONSE_MESSAGE ? "msg_" : "rs_");
    add_open(r, false, &item);
    add_item_event(r, "response.output_item.added", &item, out);
    add_part_event(r, "response.content_part.added", out);
    str_clear(&item);
}

static void add_text(struct response *r, enum response_item kind, const char *text,
                     size_t n, struct str *out)
{
    if (!n)
        return;
    open_item(r, kind, out);
    str_addn(&r->text, text, n);
    begin_event(r, text_event(r, false), out);
    add_place(r, out);
    str_add(out,
            kind == RESPONSE_MESSAGE ? ",\"logprobs\":[],\"delta\":" : ",\"delta\":");
    str_add_jsonn(out, text, n);
    end_event(out);
}

/* A call, whose events follow one another, because it comes when it is complete. */
static void add_call_item(struct response *r, const struct said_call *call,
                          struct str *out)
{
    struct str id = { 0 }, call_id = { 0 }, item = { 0 };

    close_item(r, out);
    add_random(&id, "fc_");
    add_random(&call_id, "call_");
    for (int over = 0; over < 2; over++) {
        str_reset(&item);
        str_addf(&item,
                 "{\"id\":\"%s\",\"type\":\"function_call\",\"status\":\"%s\","
                 "\"call_id\":\"%s\",\"name\":",
                 str_text(&id), over ? "completed" : "in_progress", str_text(&call_id));
        str_add_json(&item, call->name);
        str_add(&item, ",\"arguments\":");
        str_add_json(&item, over ? call->arguments : "");
        str_addc(&item, '}');
        if (over)
            break;
        add_item_event(r, "response.output_item.added", &item, out);
        for (int done = 0; done < 2; done++) {
            begin_event(r,
                        done ? "response.function_call_arguments.done"
                             : "response.function_call_arguments.delta",
                        out);
            str_addf(out, ",\"item_id\":\"%s\",\"output_index\":%zu,", str_text(&id),
                     r->nitems);
            if (done) {
                str_add(out, "\"name\":");
                str_add_json(out, call->name);
                str_add(out, ",\"arguments\":");
            } else {
                str_add(out, "\"delta\":");
            }
            str_add_json(out, call->arguments);
            end_event(out);
        }
    }
    add_item_event(r, "response.output_item.done", &item, out);
    keep(r, &item);
    str_clear(&id);
    str_clear(&call_id);
    str_clear(&item);
}

void response_add(struct response *r, const struct openai_choice *c, struct str *out)
{
    add_text(r, RESPONSE_REASONING, c->thought, c->nthought, out);
    add_text(r, RESPONSE_MESSAGE, c->text, c->len, out);
    for (size_t i = 0; i < c->ncalls; i++)
        add_call_item(r, &c->call[i], out);
}

/* An answer has at least a message, which may be empty. */
static bool finish(struct response *r, const char *why, struct str *out)
{
    if (!r->nitems && r->open == RESPONSE_NOTHING)
        open_item(r, RESPONSE_MESSAGE, out);
    close_item(r, out);
    return why && !strcmp(why, "length");
}

void response_end(struct response *r, const char *why, const struct openai_usage *usage,
                  struct str *out)
{
    if (finish(r, why, out))
        add_status(r, "response.incomplete", "incomplete", "max_output_tokens", NULL,
                   usage, out);
    else
        add_status(r, "response.completed", "completed", NULL, NULL, usage, out);
}

void response_fail(struct response *r, const char *text, struct str *out)
{
    add_status(r, "response.failed", "failed", NULL, text, NULL, out);
}

void response_add_whole(struct response *r, const struct openai_choice *c,
                        const struct openai_usage *usage, struct str *out)
{
    struct str unread = { 0 };
    bool cut;

    response_add(r, c, &unread);
    cut = finish(r, c->finish, &unread);
    add_object(r, cut ? "incomplete" : "completed", cut ? "max_output_tokens" : NULL,
               NULL, usage, out);
    str_clear(&unread);
}
