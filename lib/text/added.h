/* added - added tokens, which are found in the text before the model sees it */
#ifndef LIB_TEXT_ADDED_H
#define LIB_TEXT_ADDED_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/text/normalizer.h"
#include "lib/text/vocab.h"

struct added;

struct added_token {
    char *text;
    char *match; /* the string to search for: TEXT, normalized if .normalized */
    size_t len;  /* of match */
    uint32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
};

/* A range of the text: an added token, or the text between two (token NULL). */
struct added_split {
    const struct added_token *token;
    size_t start, end;
};

struct added_splits {
    struct added_split *v;
    size_t n, cap;
};

/* Reads "added_tokens".  PATH is for messages. */
MUST_CHECK int added_open(struct added **out, const char *path, const cJSON *list,
                          const struct normalizer *n, struct err *err);
/* Checks the tokens' ids.  The `tokenizers` library assigns them itself: the id in the
 * vocabulary, or the next id after it.  Any other id is ERR_INPUT, because the library
 * would not use it. */
MUST_CHECK int added_check(const struct added *a, const char *path,
                           const struct vocab *v, struct err *err);
void added_free(struct added *a);
/* Splits TEXT at the added tokens for NORMALIZED or for original text. */
void added_find(const struct added *a, bool normalized, const char *text, size_t len,
                struct added_splits *out);
void added_splits_clear(struct added_splits *s);

const struct added_token *added_by_id(const struct added *a, uint32_t id); /* or NULL */
const struct added_token *added_by_text(const struct added *a, const char *text);
const struct added_token *added_at(const struct added *a, size_t i); /* or NULL */
size_t added_size(const struct added *a); /* largest id + 1 */

#endif
