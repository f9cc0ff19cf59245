/* sse - server-sent events (WHATWG HTML, section 9.2), of one data field each */
#ifndef LIB_SERVE_SSE_H
#define LIB_SERVE_SSE_H

#include "lib/base/str.h"

#define SSE_TYPE "text/event-stream"

/* Appends the event whose data is DATA, a text of one line such as compact JSON. */
void sse_add(struct str *out, const char *data);
/* Appends the event after which OpenAI's clients read no further. */
void sse_end(struct str *out);

#endif
