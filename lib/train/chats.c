/* chats - a chat as tokens to learn: which of them the assistant wrote */
#include "lib/train/chats.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

/* What strftime_now of a template prints: a fixed day, so that the tokens of a run are
 * the same whenever it is resumed. */
static const struct tm DAY = { .tm_year = 124, .tm_mday = 1, .tm_wday = 1 };

struct chat_line {
    const struct chats_options *o;
    const struct json *messages, *tools;
    struct chat_text text; /* of all messages */
    struct tokens *ids;
    size_t first;   /* of the chat's in IDS */
    uint8_t *learn; /* [ids->n] */
};

/* ---- rendering ---- */

/* Renders the first N messages. */
static int render(const struct chat_line *c, size_t n, bool prompt,
                  struct chat_text *out, struct err *err)
{
    struct json all = *c->messages;
    struct json *some = xcalloc(n + 1, sizeof(*some));
    const struct chat_input in = { .messages = &all,
                                   .tools = c->tools,
                                   .add_generation_prompt = prompt,
                                   .date = DAY };
    const struct json *m = c->messages->first;
    int ret;

    for (size_t i = 0; i < n; i++, m = m->next) {
        some[i] = *m;
        some[i].next = i + 1 < n ? &some[i + 1] : NULL;
    }
    all.first = some;
    all.n = (uint32_t)n;
    ret = chat_render(c->o->chat, &in, out, err);
    free(some);
    return ret;
}

/* Is ONE the beginning of ALL? */
static bool begins(const struct chat_text *one, const struct chat_text *all)
{
    return one->text.len <= all->text.len &&
           !memcmp(str_text(&one->text), str_text(&all->text), one->text.len);
}

/* ---- tokens ---- */

/* The tokens that end before byte AT: those of the text up to there, as far as they are
 * those of all of it.  *spans: another token has bytes on both sides. */
static int tokens_before(const struct chat_line *c, size_t at, size_t *n, bool *spans,
                         struct err *err)
{
    struct chat_text part = c->text;
    struct tokens ids = { 0 };
    size_t most = c->ids->n - c->first;
    int ret;

    part.text.len = at;
    ret = chat_encode(c->o->chat, c->o->tokenizer, &part, &ids, err);
    *n = 0;
    while (ret == 0 && *n < ids.n && *n < most &&
           ids.id[*n] == c->ids->id[c->first + *n])
        ++*n;
    *spans = *n < ids.n;
    tokens_clear(&ids);
    return ret;
}

/* Learns the tokens that have any of the bytes [from, to). */
static int learn_bytes(struct chat_line *c, size_t from, size_t to, struct err *err)
{
    size_t first, end;
    bool spans;

    if (from >= to)
        return 0;
    if (tokens_before(c, from, &first, &spans, err) < 0 ||
        tokens_before(c, to, &end, &spans, err) < 0)
        return -1;
    end += spans;
    for (size_t i = first; i < end && c->first + i < c->ids->n; i++)
        c->learn[c->first + i] = 1;
    return 0;
}

/* ---- answers ---- */

static bool is_answer(const struct json *message)
{
    const char *role = json_string(json_get(message, "role"));

    return role && !strcmp(role, "assistant");
}

/* Learns message I, an answer, of which all the text before is rendered alike. */
static int learn_message(struct chat_line *c, size_t i, bool last, struct err *err)
{
    struct chat_text before = { 0 }, with = { 0 };
    int ret = -1;

    if (!i) {
        err_set(err, ERR_INPUT, "the chat begins with the assistant");
        goto out;
    }
    if (render(c, i, true, &before, err) < 0 || render(c, i + 1, false, &with, err) < 0)
        goto out;
    if (!begins(&before, last ? &c->text : &with) ||
        (!last && !begins(&with, &c->text))) {
        err_set(err, ERR_INPUT,
                "the chat template renders the %zu messages up to an answer otherwise "
                "than within the chat%s",
                i + 1,
                last ? "" : ": with --last-answer only the last answer is learned");
        goto out;
    }
    ret = learn_bytes(c, before.text.len, last ? c->text.text.len : with.text.len, err);
out:
    chat_text_clear(&before);
    chat_text_clear(&with);
    return ret;
}

static int learn_answers(struct chat_line *c, struct err *err)
{
    size_t i = 0, last = SIZE_MAX;

    for (const struct json *m = c->messages->first; m; m = m->next, i++) {
        if (!is_answer(m))
            continue;
        if (!c->o->last_answer && learn_message(c, i, false, err) < 0)
            return -1;
        last = i;
    }
    if (!c->o->last_answer || last == SIZE_MAX)
        return 0;
    return last + 1 == i ? learn_message(c, last, true, err)
                         : err_set(err, ERR_INPUT,
                                   "the last message is no answer, which --last-answer "
                                   "asks for");
}

static int learn_marked(struct chat_line *c, struct err *err)
{
    size_t from, to = 0;

    while (chat_text_span(&c->text, CHAT_GENERATED, &from, &to))
        if (learn_bytes(c, from, to, err) < 0)
            return -1;
    return 0;
}

int chats_encode(const struct chats_options *o, const struct json *line,
                 struct tokens *ids, uint8_t **learn, struct err *err)
{
    const struct json *tools = json_get(line, "tools");
    struct chat_line c = { .o = o,
                           .messages = json_get(line, "messages"),
                           .tools = tools && tools->type != JSON_NULL ? tools : NULL,
                           .ids = ids,
                           .first = ids->n };
    int ret = -1;

    if (!c.messages || c.messages->type != JSON_ARRAY || !c.messages->first)
        return err_set(err, ERR_INPUT, "'messages' is no list of messages");
    for (const struct json *m = c.messages->first; m; m = m->next)
        if (m->type != JSON_OBJECT)
            return err_set(err, ERR_INPUT, "'messages' holds what is no message");
    if (render(&c, c.messages->n, false, &c.text, err) < 0 ||
        chat_encode(o->chat, o->tokenizer, &c.text, ids, err) < 0)
        goto out;
    c.learn = xcalloc(ids->n + 1, 1);
    ret = c.text.has_generation ? learn_marked(&c, err) : learn_answers(&c, err);
out:
    chat_text_clear(&c.text);
    if (ret < 0) {
        free(c.learn);
        c.learn = NULL;
    }
    *learn = c.learn;
    return ret;
}
