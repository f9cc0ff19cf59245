/* decoder - converts tokens to text: the decoders of a tokenizer.json */
#ifndef LIB_TEXT_DECODER_H
#define LIB_TEXT_DECODER_H

#include <cjson/cJSON.h>

#include "lib/base/err.h"
#include "lib/text/pieces.h"

struct decoder;

/* Reads "decoder"; null joins tokens with spaces.  PATH is for messages. */
MUST_CHECK int decoder_open(struct decoder **out, const char *path, const cJSON *j,
                            struct err *err);
void decoder_free(struct decoder *d);
/* Appends the text of TOKENS, which are modified. */
void decoder_run(const struct decoder *d, struct pieces *tokens, struct str *out);
/* True when further tokens may change the end of a text that ends with TOKEN: a byte
 * token, or a decoder that looks at several tokens.  (Incomplete UTF-8 is the caller's
 * concern.) */
bool decoder_is_partial(const struct decoder *d, const char *token, size_t len);

/* Appends the bytes that TOKEN adds within a text, if they do not depend on the tokens
 * after it. */
void decoder_bytes(const struct decoder *d, const char *token, size_t len,
                   struct str *out);
bool decoder_has_bytes(const struct decoder *d);

/* Appends TEXT with U+FFFD in place of each ill-formed part. */
void decoder_clean(struct str *out, const char *text, size_t len);

#endif
