/* chatfile - a file of chats: JSON lines, or one JSON document
 *
 * A line is an array of messages, or an object that has them (messages_parse).  A file
 * whose first line is not JSON by itself is one document: such a chat, or an array of
 * them. */
#ifndef CMD_TP_RUN_CHATFILE_H
#define CMD_TP_RUN_CHATFILE_H

#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/json.h"

/* A chat of a file. */
struct chatfile_chat {
    const char *name; /* FILE:LINE, or FILE:INDEX in an array */
    size_t line;      /* that number, from 1 */
    const struct json_doc *doc;
    const struct json *chat; /* NULL: it is no JSON, because of */
    struct err err;          /* this */
};

/* Calls EACH for every chat of the file PATH ("-": standard input) until it fails.  A
 * byte order mark and empty lines are skipped.  ERR_INPUT for a file without a chat. */
MUST_CHECK int chatfile_read(const char *path,
                             int (*each)(void *arg, const struct chatfile_chat *chat,
                                         struct err *err),
                             void *arg, struct err *err);

#endif
