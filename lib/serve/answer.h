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
/* Answers X by what J, which has been pushed, makes: NCHOICES choices to a request that
 * is valid as long as J; PROMPT is the number of tokens of its prompts.  Takes the
 * caller's place as a user of J.  MODEL stays valid. */
void answer_later(struct http_exchange *x, struct job *j,
                  const struct openai_request *request, const char *model,
                  size_t nchoices, size_t prompt);

#endif
