/* responses - OpenAI's newer interface, /v1/responses, without what a server remembers
 *
 * A request is rewritten as that of a chat, which it then is.  An answer is a list of
 * items, made as they come: reasoning, a message, calls of functions. */
#ifndef LIB_SERVE_RESPONSES_H
#define LIB_SERVE_RESPONSES_H

#include "lib/serve/openai.h"

/* Appends the request ROOT, an object, as that of a chat: "input" and "instructions" as
 * "messages", "max_output_tokens" as "max_tokens", tools in a chat's form; the rest as
 * it is.  Status 400: a value is wrong, or asks for what has been stored. */
MUST_CHECK int responses_rewrite(struct str *out, const struct json *root,
                                 struct openai_error *e);

enum response_item { RESPONSE_NOTHING, RESPONSE_REASONING, RESPONSE_MESSAGE };

struct response {
    const struct openai_head *head;
    const struct openai_request *request;
    /* private */
    size_t sequence;  /* events so far */
    struct str items; /* those that are over */
    size_t nitems;
    enum response_item open; /* and the one that is not, */
    struct str id, text;     /* its id, and its text so far */
};

/* The pointers must outlive R. */
void response_init(struct response *r, const struct openai_head *head,
                   const struct openai_request *request);
void response_clear(struct response *r);
/* Each appends its events to OUT: of the beginning, of what is new of the answer, of
 * its end because of FINISH, and of a failure. */
void response_begin(struct response *r, struct str *out);
void response_add(struct response *r, const struct openai_choice *c, struct str *out);
void response_end(struct response *r, const char *finish,
                  const struct openai_usage *usage, struct str *out);
void response_fail(struct response *r, const char *text, struct str *out);
/* The whole answer C, as one object. */
void response_add_whole(struct response *r, const struct openai_choice *c,
                        const struct openai_usage *usage, struct str *out);

#endif
