/* normalizer - rewrites text before it is split: the normalizers of a tokenizer.json */
#ifndef LIB_TEXT_NORMALIZER_H
#define LIB_TEXT_NORMALIZER_H

#include <cjson/cJSON.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/text/origins.h"

struct normalizer;

/* Reads "normalizer"; null changes nothing.  PATH is for messages. */
MUST_CHECK int normalizer_open(struct normalizer **out, const char *path,
                               const cJSON *j, struct err *err);
void normalizer_free(struct normalizer *n);
/* Appends the normalized LEN bytes at TEXT.  *kept: the first character was not
 * removed.  ORIGINS, or NULL: those of TEXT become those of the result. */
MUST_CHECK int normalizer_run(const struct normalizer *n, const char *text, size_t len,
                              struct str *out, bool *kept, struct origins *origins,
                              struct err *err);

#endif
