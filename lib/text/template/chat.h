/* chat - the chat template of a model: messages as text, and as tokens
 *
 * A template is a program in a subset of Jinja (template.h).  It is run as transformers
 * runs it in apply_chat_template: the same variables, and the same changes to messages
 * before rendering (keys whose value is null are dropped; reasoning has all its names).
 *
 *     struct chat *chat;
 *     struct chat_text text = { 0 };
 *     struct tokens ids = { 0 };
 *
 *     if (chat_open(&chat, dir, NULL, NULL, &err) < 0 ||
 *         chat_render(chat, &input, &text, &err) < 0 ||
 *         chat_encode(chat, tokenizer, &text, &ids, &err) < 0)
 *         ... */
#ifndef LIB_TEXT_TEMPLATE_CHAT_H
#define LIB_TEXT_TEMPLATE_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/str.h"
#include "lib/text/tokenizer.h"

struct chat;

/* Opens the chat templates of the model in the directory DIR: chat_template.jinja and
 * chat_templates/NAME.jinja, or where there are none, "chat_template" of
 * tokenizer_config.json (a text, or a list of named ones).  CONFIG is the text of that
 * file where it is made of something else; NULL: it is read.  CHOICE is one of these
 * names, else the path of a file, which replaces the model's.  Without it (NULL), the
 * one named "tool_use" is used where a chat has tools, else "default".  A template
 * outside the subset is ERR_INPUT "FILE:LINE: cause", also where it is only opened.
 * *out is NULL, and the call succeeds, when the model has no template at all and CHOICE
 * is NULL. */
MUST_CHECK int chat_open(struct chat **out, const char *dir, const char *config,
                         const char *choice, struct err *err);
void chat_free(struct chat *c); /* NULL is fine */

/* Does the own text of the template for chats with or without TOOLS contain WORD? */
bool chat_contains(const struct chat *c, bool tools, const char *word);

/* A variable of the template, such as enable_thinking. */
struct chat_argument {
    const char *name;
    const struct json *value;
};

struct chat_input {
    const struct json *messages;          /* an array of objects, not empty */
    const struct json *tools;             /* an array of objects; or NULL */
    const struct json *documents;         /* an array of objects; or NULL */
    const struct chat_argument *argument; /* [n_arguments]; they override all others */
    size_t n_arguments;
    bool add_generation_prompt; /* the text ends where the assistant's answer begins */
    bool continue_final; /* the text ends within the last message, to be continued */
    struct tm date;      /* what strftime_now prints */
};

/* Where a character of the text comes from: bits. */
enum chat_mark {
    CHAT_FROM_MESSAGE = 1, /* messages, tools, documents and arguments; else the
                            * template and the model's special tokens */
    CHAT_GENERATED = 2     /* within {% generation %}: an answer of the assistant */
};

struct template;

/* `struct chat_text t = { 0 }` is empty. */
struct chat_text {
    struct str text;
    unsigned char *mark; /* [text.len]: bits of enum chat_mark, for each byte */
    bool has_generation; /* the template has {% generation %} */
    const struct template *template; /* private: borrowed from the chat */
};

/* Renders a chat; *out is replaced.  An error of the template or its raise_exception,
 * a construct outside the subset, and a template that takes too many steps, levels or
 * bytes are ERR_INPUT "FILE:LINE: cause". */
MUST_CHECK int chat_render(const struct chat *c, const struct chat_input *in,
                           struct chat_text *out, struct err *err);
void chat_text_clear(struct chat_text *t);

/* The next range [*start, *end) of bytes at or after *end with BIT in T's marks.
 * Begin with *end = 0; false when there is none left. */
bool chat_text_span(const struct chat_text *t, enum chat_mark bit, size_t *start,
                    size_t *end);

/* Appends the ids of the text.  A control token in it that begins or ends in a
 * character from a message is encoded as plain text.  Control tokens are special
 * tokens, those in "chat_control_tokens" of tokenizer_config.json, or without that list
 * the added tokens that the template's own text contains.  These are the ids of
 * transformers' apply_chat_template(..., sanitize_control_tokens=True).  No token is
 * added at the text's start or end.  ERR_INPUT when the tokenizer makes a control token
 * of plain text, or, which transformers lets pass, its normalizer of other text. */
MUST_CHECK int chat_encode(const struct chat *c, const struct tokenizer *t,
                           const struct chat_text *text, struct tokens *out,
                           struct err *err);

#endif
