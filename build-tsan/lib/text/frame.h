/* frame - tokens around a text: the post-processors of a tokenizer.json */
#ifndef LIB_TEXT_FRAME_H
#define LIB_TEXT_FRAME_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "lib/base/err.h"

/* Ids in order; FRAME_TEXT stands for those of the text. */
enum { FRAME_TEXT = -1 };

struct frame {
    long *id;
    size_t n, cap;
};

/* From "post_processor"; null adds nothing.  PATH is for messages. */
MUST_CHECK int frame_open(struct frame *out, const char *path, const cJSON *j,
                          struct err *err);
void frame_clear(struct frame *f);

#endif
