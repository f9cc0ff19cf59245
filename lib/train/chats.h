/* chats - a chat as tokens to learn: which of them the assistant wrote
 *
 * Where the model's chat template has {% generation %}, that says so.  Else the answer
 * of a message is what it adds to the text: from the end of the chat before it, with
 * the beginning of an answer, to the end of the chat with it. */
#ifndef LIB_TRAIN_CHATS_H
#define LIB_TRAIN_CHATS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/json.h"
#include "lib/text/template/chat.h"

struct chats_options {
    const struct chat *chat;
    const struct tokenizer *tokenizer;
    bool last_answer; /* without {% generation %}, the last answer alone counts */
};

/* Appends the ids of the chat LINE, an object with "messages" and perhaps "tools", to
 * IDS, and sets *learn, which the caller frees, to [IDS->n]: 1 of tokens of which any
 * character is the assistant's.  ERR_INPUT also where the template does not render a
 * part of the chat as the beginning of all of it, without LAST_ANSWER. */
MUST_CHECK int chats_encode(const struct chats_options *o, const struct json *line,
                            struct tokens *ids, uint8_t **learn, struct err *err);

#endif
