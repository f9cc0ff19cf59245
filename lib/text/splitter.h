/* splitter - splits text into pieces: the pre-tokenizers of a tokenizer.json */
#ifndef LIB_TEXT_SPLITTER_H
#define LIB_TEXT_SPLITTER_H

#include <cjson/cJSON.h>

#include "lib/base/err.h"
#include "lib/text/pieces.h"

struct splitter;

/* Reads "pre_tokenizer"; null does not split.  PATH is for messages. */
MUST_CHECK int splitter_open(struct splitter **out, const char *path, const cJSON *j,
                             struct err *err);
void splitter_free(struct splitter *s);
/* Splits the LEN bytes at TEXT into *out, an empty list; stages may also rewrite the
 * pieces.  FIRST: TEXT begins at the start of the input.  ORIGINS[LEN], or NULL: those
 * of TEXT, which the pieces then have, too. */
MUST_CHECK int splitter_run(const struct splitter *s, const char *text, size_t len,
                            bool first, const struct origin *origins,
                            struct pieces *out, struct err *err);

#endif
