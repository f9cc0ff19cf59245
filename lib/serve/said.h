/* said - what a model says in a chat, apart: its thoughts, its answer, its calls of
 * tools
 *
 * Models mark thoughts by <think> and </think>.  A call is an object of JSON with the
 * tool's name and arguments, which models mark in one of three forms:
 *
 *     Hermes    <tool_call>{"name": ..., "arguments": {...}}</tool_call>, each by
 * itself Llama 3   {"name": ..., "parameters": {...}} and nothing else; several with
 * ';' Mistral   [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], the newer ones
 *               [TOOL_CALLS]NAME[ARGS]{...} each
 *
 * What looks like a call and is none is a part of the answer.  The text comes in
 * pieces; how it is cut changes nothing. */
#ifndef LIB_SERVE_SAID_H
#define LIB_SERVE_SAID_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/json.h"
#include "lib/base/str.h"

enum said_calls { SAID_NO_CALLS, SAID_HERMES, SAID_LLAMA, SAID_MISTRAL };

struct said_form {
    enum said_calls calls;
    bool thoughts;    /* they are marked */
    bool in_thoughts; /* the prompt has begun them already */
    bool one;         /* the first call alone is taken */
};

struct said_call {
    char *name;
    char *arguments; /* an object of JSON */
};

struct said {
    /* what is new since the last said_read */
    struct str thought, answer;
    struct said_call *call; /* [ncalls] */
    size_t ncalls;
    size_t before; /* calls before them */
    /* private */
    struct said_form form;
    int state;
    struct str held; /* not decided yet */
    bool trims;      /* white space that follows is left out */
    size_t cap_calls;
};

void said_init(struct said *s, const struct said_form *form);
void said_clear(struct said *s);
/* Reads TEXT[n], which follows; END: nothing more does. */
void said_read(struct said *s, const char *text, size_t n, bool end);

/* What a model says that calls NAME (NULL: any) of the list TOOLS, once: *SCHEMA
 * becomes a JSON schema, before and after which stand *BEFORE and *AFTER (NULL:
 * nothing). */
void said_forced(enum said_calls calls, const struct json *tools, const char *name,
                 struct str *schema, const char **before, const char **after);

/* The marks of a form, which a tokenizer must not leave out: NULL-terminated. */
const char *const *said_marks(enum said_calls calls);

#endif
