/* conversation - the messages of one chat, as JSON */
#include "cmd/tp-run/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/chatfile.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"

void conversation_clear(struct conversation *c)
{
    while (c->n)
        conversation_drop(c);
    free(c->message);
    free(c->rest);
    *c = (struct conversation){ 0 };
}

/* Inserts MESSAGE, which is taken over, before message AT. */
static void insert(struct conversation *c, size_t at, char *message)
{
    c->message = xgrow(c->message, &c->cap, c->n + 1, sizeof(*c->message));
    memmove(c->message + at + 1, c->message + at, (c->n - at) * sizeof(*c->message));
    c->message[at] = message;
    c->n++;
}

static char *message_dup(const char *role, const char *text, size_t len)
{
    struct str s = { 0 };

    str_add(&s, "{\"role\":");
    str_add_json(&s, role);
    str_add(&s, ",\"content\":");
    str_add_jsonn(&s, text, len);
    str_addc(&s, '}');
    return str_steal(&s);
}

void conversation_add(struct conversation *c, const char *role, const char *text,
                      size_t len)
{
    insert(c, c->n, message_dup(role, text, len));
}

void conversation_drop(struct conversation *c)
{
    free(c->message[--c->n]);
    c->system &= c->n > 0;
}

void conversation_set_system(struct conversation *c, const char *text)
{
    if (c->system) {
        free(c->message[0]);
        memmove(c->message, c->message + 1, --c->n * sizeof(*c->message));
    }
    c->system = text != NULL;
    if (text)
        insert(c, 0, message_dup("system", text, strlen(text)));
}

void conversation_reset(struct conversation *c)
{
    while (c->n > c->system)
        conversation_drop(c);
}

/* ---- looking into messages ---- */

/* Parses message AT; the caller clears *doc if it is true. */
static bool look(struct json_doc *doc, const struct conversation *c, size_t at)
{
    return at < c->n && json_parse(doc, "message", c->message[at],
                                   strlen(c->message[at]), NULL) == 0;
}

static bool has_role(const struct json *message, const char *role)
{
    const char *own = json_string(json_get(message, "role"));

    return own && !strcmp(own, role);
}

bool conversation_waits(const struct conversation *c)
{
    struct json_doc doc;
    bool waits = false;

    if (look(&doc, c, c->n - 1)) {
        waits = has_role(doc.root, "user");
        json_clear(&doc);
    }
    return waits;
}

bool conversation_system(const struct conversation *c, struct str *out)
{
    struct json_doc doc;
    const char *text;

    if (!c->system || !look(&doc, c, 0))
        return false;
    text = json_string(json_get(doc.root, "content"));
    str_add(out, text ? text : c->message[0]); /* it may be a list of parts */
    json_clear(&doc);
    return true;
}

/* ---- files ---- */

struct loading {
    struct conversation c;
    bool found;
};

static int load(void *arg, const struct chatfile_chat *chat, struct err *err)
{
    struct loading *l = arg;
    struct messages m;
    struct str text = { 0 };

    if (!chat->chat) {
        *err = chat->err;
        return -1;
    }
    if (l->found)
        return err_set(err, ERR_INPUT, "%s: a second chat, where one is expected",
                       chat->name);
    if (messages_parse(&m, chat->doc, chat->chat, err) < 0)
        return -1;
    l->found = true;
    for (const struct json *one = m.messages->first; one; one = one->next) {
        str_reset(&text);
        json_print(&text, one);
        insert(&l->c, l->c.n, str_steal(&text));
    }
    l->c.system = has_role(m.messages->first, "system");
    for (const struct json *j = chat->chat->first; j && chat->chat->type == JSON_OBJECT;
         j = j->next) {
        if (j == m.messages)
            continue;
        str_addc(&text, ',');
        str_add_json(&text, j->key);
        str_addc(&text, ':');
        json_print(&text, j);
    }
    l->c.rest = text.len ? str_steal(&text) : NULL;
    str_clear(&text);
    return 0;
}

int conversation_load(struct conversation *c, const char *path, struct err *err)
{
    struct loading l = { 0 };

    if (chatfile_read(path, load, &l, err) < 0) {
        conversation_clear(&l.c);
        return -1;
    }
    conversation_clear(c);
    *c = l.c;
    return 0;
}

static void print(struct str *out, const struct conversation *c)
{
    str_add(out, "{\"messages\":[");
    for (size_t i = 0; i < c->n; i++)
        str_addf(out, "%s%s", i ? "," : "", c->message[i]);
    str_addf(out, "]%s}\n", c->rest ? c->rest : "");
}

int conversation_save(const struct conversation *c, const char *path, struct err *err)
{
    struct str text = { 0 };
    int ret;

    print(&text, c);
    ret = output_write(path, text.s, text.len, true, err);
    str_clear(&text);
    return ret;
}

int conversation_ids(const struct conversation *c, const struct messages_form *form,
                     struct ids *ids, struct err *err)
{
    struct str text = { 0 }, rendered = { 0 };
    struct messages m;
    struct json_doc doc;
    int ret;

    print(&text, c);
    ret = json_parse(&doc, "conversation", text.s, text.len, err);
    if (ret == 0) {
        ret = messages_parse(&m, &doc, doc.root, err);
        m.prompts = true; /* whatever a loaded file says of its own last message */
        m.continues = false;
        if (ret == 0)
            ret = messages_ids(form, &m, ids, &rendered, err);
        json_clear(&doc);
    }
    str_clear(&text);
    str_clear(&rendered);
    return ret;
}
