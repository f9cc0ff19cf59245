/* frame - tokens around a text: the post-processors of a tokenizer.json */
#ifndef LIB_TEXT_FRAME_H
#define LIB_TEXT_FRAME_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

/* In the list of ids, FRAME_TEXT stands for the ids of the text, FRAME_PAIR for those
 * of the second text of a pair. */
enum { FRAME_TEXT = -1, FRAME_PAIR = -2 };

struct frame {
    long *id;
    int *type; /* [n]: token type of each entry */
    size_t n, cap, type_cap;
    bool
        trims; /* spaces at the ends of a token are not part of its place in the text */
    bool prefix; /* but for the one that was put before the text */
};

/* Reads "post_processor"; null adds nothing.  *pair is the frame of two texts; it is
 * empty if the file does not define one.  PATH is for messages. */
MUST_CHECK int frame_open(struct frame *out, struct frame *pair, const char *path,
                          const cJSON *j, struct err *err);
void frame_clear(struct frame *f);

#endif
