/* added - tokens that are found in the text before the model sees it */
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
    char *match; /* what is looked for: the text, normalized where it is so */
    size_t len;  /* of match */
    uint32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
};

/* A stretch of text: a token, or what lies between them (NULL). */
struct added_split {
    const struct added_token *token;
    size_t start, end;
};

struct added_splits {
    struct added_split *v;
    size_t n, cap;
};

/* From "added_tokens".  PATH is for messages. */
MUST_CHECK int added_open(struct added **out, const char *path, const cJSON *list,
                          const struct normalizer *n, struct err *err);
/* The `tokenizers` library numbers the tokens itself: as in the vocabulary, else behind
 * it in order.  Refused are others, of which nobody knows what the model was trained
 * with. */
MUST_CHECK int added_check(const struct added *a, const char *path,
                           const struct vocab *v, struct err *err);
void added_free(struct added *a);
/* Split TEXT, which is NORMALIZED or not, at the tokens of that kind. */
void added_find(const struct added *a, bool normalized, const char *text, size_t len,
                struct added_splits *out);
void added_splits_clear(struct added_splits *s);

const struct added_token *added_by_id(const struct added *a, uint32_t id); /* or NULL */
const struct added_token *added_by_text(const struct added *a, const char *text);
size_t added_size(const struct added *a); /* one more than the largest id */

#endif
