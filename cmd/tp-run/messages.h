/* messages - chats as prompts: the model's chat template, and the options about it */
#ifndef CMD_TP_RUN_MESSAGES_H
#define CMD_TP_RUN_MESSAGES_H

#include <time.h>

#include "cmd/tp-run/session.h"
#include "lib/base/json.h"
#include "lib/serve/said.h"
#include "lib/text/template/chat.h"

/* Set by options. */
struct messages_options {
    const char *template; /* FILE or NAME; NULL: the model's */
    struct opt_list args; /* KEY=JSON */
    const char *date;     /* YYYY-MM-DD, or with HH:MM:SS; NULL: SOURCE_DATE_EPOCH,
                           * or now */
};

#define MESSAGES_OPTIONS(o)                                                          \
    { OPT_STRING, '\0', "template", &(o).template, "FILE", NULL, NULL, NULL },       \
        { OPT_LIST, '\0', "template-arg", &(o).args, "KEY=JSON", NULL, NULL, NULL }, \
    {                                                                                \
        OPT_STRING, '\0', "date", &(o).date, "DATE", NULL, NULL, NULL                \
    }

struct messages_form {
    const struct session *session;
    struct chat *chat;
    struct chat_argument *argument; /* [n]: of --template-arg */
    struct json_doc *value;         /* [n] */
    size_t n;
    struct tm date;
};

/* A line or file of chats: an object, or its messages alone. */
struct messages {
    const struct json *messages, *tools, *documents; /* as in struct chat_input */
    const struct json *arguments;                    /* an object, or NULL */
    bool prompts;   /* the prompt of the assistant's answer is added */
    bool continues; /* the last message is continued */
};

/* On rank 0.  S must be open and outlive R.  ERR_INPUT for a model without a template
 * or a tokenizer.  Call messages_close also after a failure. */
MUST_CHECK int messages_open(struct messages_form *r, const struct session *s,
                             const struct messages_options *o, struct err *err);
void messages_close(struct messages_form *r);

/* The parts of the JSON value J of DOC: an array of messages; or an object with
 * "messages" and perhaps "tools", "documents", "add_generation_prompt",
 * "continue_final_message" and "chat_template_kwargs".  The result borrows from DOC. */
MUST_CHECK int messages_parse(struct messages *out, const struct json_doc *doc,
                              const struct json *j, struct err *err);
/* How the model says what the chat asks for, by the words of its template; *special:
 * its marks are special tokens.  TEXT is the chat's.  With .calls SAID_NO_CALLS calls
 * of tools are not known. */
struct said_form messages_said(const struct messages_form *r, const struct messages *in,
                               const struct str *text, bool *special);
/* Appends the ids of the chat; *text is what they were made of. */
MUST_CHECK int messages_ids(const struct messages_form *r, const struct messages *in,
                            struct ids *ids, struct str *text, struct err *err);
/* Adds the special token with which the template ends an answer, if it has one, to the
 * ids that end a text. */
MUST_CHECK int messages_stop(const struct messages_form *r, struct ids *stop,
                             struct err *err);

#endif
