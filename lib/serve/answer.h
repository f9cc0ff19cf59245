/* answer - an answer of OpenAI's interface while the model makes it
 *
 * It takes the pieces of a job and makes them one JSON object, or the events of a
 * stream. */
#ifndef LIB_SERVE_ANSWER_H
#define LIB_SERVE_ANSWER_H

#include "lib/serve/http.h"
#include "lib/serve/openai.h"
#include "lib/serve/queue.h"

/* J will wake X; call it before J is pushed. */
void answer_prepare(struct http_exchange *x, struct job *j);
/* What an answer is made with. */
struct answer_form {
    const struct openai_request *request; /* valid as long as the job */
    const char *model;                    /* stays valid, as do the next two */
    /* Appends the text of a token alone; false: answers leave it out. */
    bool (*decode)(const void *arg, int32_t id, struct str *out);
    const void *arg;
    size_t nchoices;
    size_t prompt;          /* tokens of the prompts */
    struct said_form said;  /* of a chat */
    const struct str *echo; /* [nchoices / best_of]: texts that choices begin with, as
                             * valid as the job; or NULL */
};

/* Answers X by what J, which has been pushed, makes.  Takes the caller's place as a
 * user of J. */
void answer_later(struct http_exchange *x, struct job *j,
                  const struct answer_form *form);

#endif
