/* splitter - cut text into pieces: the pre-tokenizers of a tokenizer.json */
#ifndef LIB_TEXT_SPLITTER_H
#define LIB_TEXT_SPLITTER_H

#include <cjson/cJSON.h>

#include "lib/base/err.h"
#include "lib/text/pieces.h"

struct splitter;

/* From "pre_tokenizer"; null does not split.  PATH is for messages. */
MUST_CHECK int splitter_open(struct splitter **out, const char *path, const cJSON *j,
                             struct err *err);
void splitter_free(struct splitter *s);
/* Cut the LEN bytes at TEXT into *out, an empty list; stages may change what they cut.
 * FIRST: the text begins where the input began. */
MUST_CHECK int splitter_run(const struct splitter *s, const char *text, size_t len,
                            bool first, struct pieces *out, struct err *err);

#endif
