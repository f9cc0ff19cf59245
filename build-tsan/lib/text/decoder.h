/* decoder - the texts of tokens to one text: the decoders of a tokenizer.json */
#ifndef LIB_TEXT_DECODER_H
#define LIB_TEXT_DECODER_H

#include <cjson/cJSON.h>

#include "lib/base/err.h"
#include "lib/text/pieces.h"

struct decoder;

/* From "decoder"; null puts a space between tokens.  PATH is for messages. */
MUST_CHECK int decoder_open(struct decoder **out, const char *path, const cJSON *j,
                            struct err *err);
void decoder_free(struct decoder *d);
/* Append the text of TOKENS, which are changed. */
void decoder_run(const struct decoder *d, struct pieces *tokens, struct str *out);
/* True when the end of a text that ends with TOKEN may change when others follow, but
 * for bytes that are no character yet: a byte by its number, or what spans tokens. */
bool decoder_is_partial(const struct decoder *d, const char *token, size_t len);

/* The text of ill-formed UTF-8: U+FFFD for each part that is none. */
void decoder_clean(struct str *out, const char *text, size_t len);

#endif
