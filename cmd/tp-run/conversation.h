/* conversation - the messages of one chat, as JSON */
#ifndef CMD_TP_RUN_CONVERSATION_H
#define CMD_TP_RUN_CONVERSATION_H

#include "cmd/tp-run/messages.h"

/* `struct conversation c = { 0 }` is empty. */
struct conversation {
    char **message; /* [n]: JSON objects, owned */
    size_t n, cap;
    bool system; /* the first one has the role "system" */
    char *rest;  /* the other members of its object, such as "tools": ',"KEY":VALUE'
                  * each;  or NULL */
};

void conversation_clear(struct conversation *c);
/* Reads the file PATH, which must have one chat. */
MUST_CHECK int conversation_load(struct conversation *c, const char *path,
                                 struct err *err);
/* Writes a line that conversation_load reads. */
MUST_CHECK int conversation_save(const struct conversation *c, const char *path,
                                 struct err *err);
/* Appends a message of ROLE that says TEXT[len], which is UTF-8. */
void conversation_add(struct conversation *c, const char *role, const char *text,
                      size_t len);
/* Takes the last message back. */
void conversation_drop(struct conversation *c);
/* Sets, replaces or (NULL) removes the first message's text, of the system. */
void conversation_set_system(struct conversation *c, const char *text);
/* Removes all messages but the system's. */
void conversation_reset(struct conversation *c);
/* Is the last message one of the user, which waits for an answer? */
bool conversation_waits(const struct conversation *c);
/* Appends the text of the system's message to OUT; false: there is none. */
bool conversation_system(const struct conversation *c, struct str *out);
/* The ids of the whole conversation, up to where the answer begins. */
MUST_CHECK int conversation_ids(const struct conversation *c,
                                const struct messages_form *form, struct ids *ids,
                                struct err *err);

#endif
