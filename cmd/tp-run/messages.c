/* messages - chats as prompts: the model's chat template, and the options about it */
#define _GNU_SOURCE
#include "cmd/tp-run/messages.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

/* ---- options ---- */

/* A calendar date and perhaps a time; mktime and timegm fill the day of the week. */
static int parse_date(struct tm *out, const char *text, struct err *err)
{
    static const char *const forms[] = { "%Y-%m-%d", "%Y-%m-%d %H:%M:%S",
                                         "%Y-%m-%dT%H:%M:%S" };

    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        struct tm tm = { .tm_isdst = -1 }, same;
        const char *end = strptime(text, forms[i], &tm);

        if (!end || *end)
            continue;
        same = tm;
        /* February 30 is March 2 */
        if (mktime(&same) == -1 || same.tm_mday != tm.tm_mday)
            break;
        *out = same;
        return 0;
    }
    return err_set(err, ERR_USAGE,
                   "--date: expected YYYY-MM-DD, and perhaps HH:MM:SS, not '%s'", text);
}

static int find_date(struct tm *out, const char *option, struct err *err)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t now = time(NULL);
    uint64_t seconds;

    if (option)
        return parse_date(out, option, err);
    if (!epoch)
        return localtime_r(&now, out) ? 0 : err_errno(err, "the date");
    if (!str_u64(epoch, &seconds) || seconds > INT64_MAX)
        return err_set(err, ERR_USAGE, "SOURCE_DATE_EPOCH is '%.40s', not a number",
                       epoch);
    now = (time_t)seconds; /* reproducible.org: it is read as UTC */
    return gmtime_r(&now, out)
               ? 0
               : err_set(err, ERR_USAGE,
                         "SOURCE_DATE_EPOCH is '%.40s', which is no date", epoch);
}

/* "enable_thinking=false" */
static int add_argument(struct messages_form *r, const char *text, struct err *err)
{
    const char *equals = strchr(text, '=');
    struct chat_argument *a = &r->argument[r->n];

    if (!equals || equals == text)
        return err_set(err, ERR_USAGE, "--template-arg: expected KEY=JSON, not '%s'",
                       text);
    if (json_parse(&r->value[r->n], "--template-arg", equals + 1, strlen(equals + 1),
                   err) < 0) {
        struct err cause = *err;

        return err_set(err, ERR_USAGE, "%s: '%s' is not JSON (a text needs quotes)",
                       cause.text, equals + 1);
    }
    a->name = xstrndup(text, (size_t)(equals - text));
    a->value = r->value[r->n].root;
    r->n++;
    return 0;
}

int messages_open(struct messages_form *r, const struct session *s,
                  const struct messages_options *o, struct err *err)
{
    const char *dir = s->checkpoint->path;

    *r = (struct messages_form){ .session = s };
    r->argument = xcalloc(o->args.n + 1, sizeof(*r->argument));
    r->value = xcalloc(o->args.n + 1, sizeof(*r->value));
    for (size_t i = 0; i < o->args.n; i++)
        if (add_argument(r, o->args.v[i], err) < 0)
            return -1;
    if (find_date(&r->date, o->date, err) < 0)
        return -1;
    if (!s->tokenizer && s->no_tokenizer.kind)
        return err_set(err, s->no_tokenizer.kind, "%s", s->no_tokenizer.text);
    if (!s->tokenizer)
        return err_set(err, ERR_INPUT, "%s: no tokenizer.json, which messages need",
                       dir);
    if (chat_open(&r->chat, dir,
                  source_made(&s->checkpoint->source, "tokenizer_config.json"),
                  o->template, err) < 0)
        return -1;
    return r->chat
               ? 0
               : err_set(err, ERR_INPUT,
                         "%s: no chat template: neither chat_template.jinja nor "
                         "\"chat_template\" in tokenizer_config.json; --template FILE "
                         "gives one",
                         dir);
}

void messages_close(struct messages_form *r)
{
    chat_free(r->chat);
    for (size_t i = 0; i < r->n; i++) {
        free((char *)r->argument[i].name);
        json_clear(&r->value[i]);
    }
    free(r->argument);
    free(r->value);
    *r = (struct messages_form){ 0 };
}

/* ---- a chat ---- */

/* Member KEY of J; ERR_INPUT unless it has the type TYPE, is null or missing. */
static int take(const struct json **out, const struct json_doc *doc,
                const struct json *j, const char *key, enum json_type type,
                struct err *err)
{
    static const char *const names[] = {
        [JSON_ARRAY] = "a list", [JSON_OBJECT] = "an object"
    };
    const struct json *found = json_get(j, key);

    *out = found && found->type != JSON_NULL ? found : NULL;
    if (*out && (*out)->type != type)
        return json_error(doc, *out, err, "\"%s\" is not %s", key, names[type]);
    return 0;
}

static int take_flag(bool *out, const struct json_doc *doc, const struct json *j,
                     const char *key, struct err *err)
{
    const struct json *found = json_get(j, key);

    if (!found)
        return 0;
    if (found->type != JSON_TRUE && found->type != JSON_FALSE)
        return json_error(doc, found, err, "\"%s\" is neither true nor false", key);
    *out = found->type == JSON_TRUE;
    return 0;
}

static int check_elements(const struct json_doc *doc, const struct json *list,
                          const char *what, struct err *err)
{
    for (const struct json *one = list ? list->first : NULL; one; one = one->next)
        if (one->type != JSON_OBJECT)
            return json_error(doc, one, err, "%s is not an object", what);
    return 0;
}

int messages_parse(struct messages *out, const struct json_doc *doc,
                   const struct json *j, struct err *err)
{
    struct messages c = { 0 };

    if (j->type == JSON_ARRAY)
        c.messages = j;
    else if (j->type != JSON_OBJECT)
        return json_error(doc, j, err,
                          "neither a list of messages nor an object with \"messages\"");
    else if (take(&c.messages, doc, j, "messages", JSON_ARRAY, err) < 0 ||
             take(&c.tools, doc, j, "tools", JSON_ARRAY, err) < 0 ||
             take(&c.documents, doc, j, "documents", JSON_ARRAY, err) < 0 ||
             take(&c.arguments, doc, j, "chat_template_kwargs", JSON_OBJECT, err) < 0 ||
             take_flag(&c.continues, doc, j, "continue_final_message", err) < 0)
        return -1;
    if (!c.messages)
        return json_error(doc, j, err, "no \"messages\"");
    if (!c.messages->first)
        return json_error(doc, c.messages, err, "no message");
    c.prompts = !c.continues;
    if (j->type == JSON_OBJECT &&
        take_flag(&c.prompts, doc, j, "add_generation_prompt", err) < 0)
        return -1;
    if (c.prompts && c.continues)
        return json_error(doc, j, err,
                          "\"add_generation_prompt\" and \"continue_final_message\" "
                          "exclude each other");
    if (check_elements(doc, c.messages, "a message", err) < 0 ||
        check_elements(doc, c.tools, "a tool", err) < 0 ||
        check_elements(doc, c.documents, "a document", err) < 0)
        return -1;
    for (const struct json *m = c.messages->first; m; m = m->next)
        if (!json_string(json_get(m, "role")))
            return json_error(doc, m, err, "a message without a \"role\"");
    *out = c;
    return 0;
}

/* Arguments of the chat, and those of options, which come last and so win. */
static struct chat_argument *arguments_of(const struct messages_form *r,
                                          const struct messages *in, size_t *n)
{
    size_t own = in->arguments ? in->arguments->n : 0;
    struct chat_argument *all = xcalloc(own + r->n + 1, sizeof(*all));

    *n = 0;
    for (const struct json *j = own ? in->arguments->first : NULL; j; j = j->next)
        all[(*n)++] = (struct chat_argument){ j->key, j };
    for (size_t i = 0; i < r->n; i++)
        all[(*n)++] = r->argument[i];
    return all;
}

static int render(const struct messages_form *r, const struct messages *in,
                  struct chat_text *out, struct err *err)
{
    struct chat_input input = { .messages = in->messages,
                                .tools = in->tools,
                                .documents = in->documents,
                                .add_generation_prompt = in->prompts,
                                .continue_final = in->continues,
                                .date = r->date };
    struct chat_argument *all = arguments_of(r, in, &input.n_arguments);
    int ret;

    input.argument = all;
    ret = chat_render(r->chat, &input, out, err);
    free(all);
    return ret;
}

int messages_ids(const struct messages_form *r, const struct messages *in,
                 struct ids *ids, struct str *text, struct err *err)
{
    struct chat_text rendered = { 0 };
    struct tokens tokens = { 0 };
    int ret = render(r, in, &rendered, err);

    if (ret == 0)
        ret = chat_encode(r->chat, r->session->tokenizer, &rendered, &tokens, err);
    if (ret == 0)
        ret = session_add_tokens(r->session, ids, &tokens, err);
    if (ret == 0) {
        str_reset(text);
        str_addn(text, rendered.text.s, rendered.text.len);
    }
    tokens_clear(&tokens);
    chat_text_clear(&rendered);
    return ret;
}

/* ---- the end of an answer ---- */

/* Is ID a special token, whose text an answer does not have? */
static bool is_special(const struct tokenizer *t, uint32_t id)
{
    struct str all = { 0 }, plain = { 0 };
    bool special;

    tokenizer_decode(t, &id, 1, false, &all);
    tokenizer_decode(t, &id, 1, true, &plain);
    special = all.len && !plain.len;
    str_clear(&all);
    str_clear(&plain);
    return special;
}

int messages_stop(const struct messages_form *r, struct ids *stop, struct err *err)
{
    static const char answer[] = "An answer.",
                      chat[] = "[{\"role\":\"user\",\"content\":\"A question.\"},"
                               "{\"role\":\"assistant\",\"content\":\"An answer.\"}]";
    struct chat_text text = { 0 };
    struct messages in;
    struct tokens tokens = { 0 };
    struct json_doc doc;
    struct err unused = { 0 };
    const char *end = NULL;
    int ret = 0;

    if (json_parse(&doc, "chat", chat, strlen(chat), err) < 0)
        return -1;
    /* a template that wants other messages has no such end to be found */
    if (messages_parse(&in, &doc, doc.root, &unused) == 0) {
        in.prompts = false;
        if (render(r, &in, &text, &unused) == 0)
            for (const char *p = str_text(&text.text); (p = strstr(p, answer)); p = end)
                end = p + strlen(answer);
    }
    while (end && isspace((unsigned char)*end))
        end++;
    if (end && *end)
        ret = tokenizer_encode(r->session->tokenizer, end, strlen(end), false, &tokens,
                               err);
    if (ret == 0 && tokens.n && is_special(r->session->tokenizer, tokens.id[0])) {
        tokens.n = 1;
        ret = session_add_tokens(r->session, stop, &tokens, err);
    }
    tokens_clear(&tokens);
    chat_text_clear(&text);
    json_clear(&doc);
    return ret;
}

/* ---- what an answer is made of ---- */

static bool is_marked(const struct messages_form *r, const char *mark)
{
    struct tokens tokens = { 0 };
    struct err unused = { 0 };
    bool special;

    special = tokenizer_encode(r->session->tokenizer, mark, strlen(mark), false,
                               &tokens, &unused) == 0 &&
              tokens.n == 1 && is_special(r->session->tokenizer, tokens.id[0]);
    tokens_clear(&tokens);
    return special;
}

static enum said_calls calls_of(const struct messages_form *r)
{
    static const struct {
        const char *word;
        enum said_calls form;
    } words[] = { { "[TOOL_CALLS]", SAID_MISTRAL },
                  { "<function=", SAID_NO_CALLS }, /* Qwen3-Coder's, which is no JSON */
                  { "<tool_call>", SAID_HERMES },
                  { "{\"name\": function name, \"parameters\"", SAID_LLAMA } };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (chat_contains(r->chat, true, words[i].word))
            return words[i].form;
    return SAID_NO_CALLS;
}

/* Does TEXT end with WORD, but for white space? */
static bool ends_with(const struct str *text, const char *word)
{
    size_t n = text->len;

    while (n && isspace((unsigned char)text->s[n - 1]))
        n--;
    return n >= strlen(word) && !memcmp(text->s + n - strlen(word), word, strlen(word));
}

struct said_form messages_said(const struct messages_form *r, const struct messages *in,
                               const struct str *text, bool *special)
{
    const bool thinks = chat_contains(r->chat, in->tools, "</think>");
    struct said_form form = { .thoughts = thinks,
                              .in_thoughts = thinks && ends_with(text, "<think>") };

    *special = thinks && is_marked(r, "</think>");
    if (!in->tools)
        return form;
    form.calls = calls_of(r);
    for (const char *const *mark = said_marks(form.calls); *mark; mark++)
        *special |= is_marked(r, *mark);
    return form;
}
