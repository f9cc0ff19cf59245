/* tokenizer - converts text to token ids and back: Hugging Face's tokenizer.json
 *
 * The stages of the file form a pipeline: added tokens, normalizer, pre-tokenizer,
 * model, post-processor; for the way back, a decoder.  A stage of an unknown type is an
 * error when the file is opened.  Truncation and padding settings are ignored. */
#ifndef LIB_TEXT_TOKENIZER_H
#define LIB_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/text/origins.h"

struct tokenizer;

struct tokens {
    uint32_t *id;
    size_t n, cap;
    bool traced; /* set by the caller: */
    struct origin
        *from; /* [n]: the bytes of the text that each is; special ones 0, 0 */
    size_t cap_from;
};

void tokens_add(struct tokens *t, uint32_t id);
/* The same of what is [START, END) of the piece at hand. */
void tokens_add_part(struct tokens *t, uint32_t id, size_t start, size_t end);
void tokens_clear(struct tokens *t);

/* Opens the file at PATH.  ERR_INPUT names file and cause. */
MUST_CHECK int tokenizer_open(struct tokenizer **out, const char *path,
                              struct err *err);
/* The same from the file's contents TEXT. */
MUST_CHECK int tokenizer_parse(struct tokenizer **out, const char *path,
                               const char *text, struct err *err);
void tokenizer_free(struct tokenizer *t);

/* Appends the ids of the LEN bytes at TEXT to *out; ill-formed UTF-8 becomes U+FFFD.
 * ADD_SPECIAL: apply the post-processor.  Fails when the model needs an unknown token
 * and has none. */
MUST_CHECK int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len,
                                bool add_special, struct tokens *out, struct err *err);
/* The same for two texts, with the post-processor's tokens for a pair.  Appends a token
 * type for each id to *types, and sets RANGE to the range of the second text's ids.
 * OUT and TYPES must have equal lengths at the call. */
MUST_CHECK int tokenizer_encode_pair(const struct tokenizer *t, const char *first,
                                     size_t first_len, const char *second,
                                     size_t second_len, struct tokens *out,
                                     struct tokens *types, size_t range[2],
                                     struct err *err);
/* The same as plain text: no added token is looked for.  This is the model's own
 * encoding of a text such as "<|im_end|>". */
MUST_CHECK int tokenizer_encode_plain(const struct tokenizer *t, const char *text,
                                      size_t len, struct tokens *out, struct err *err);

struct tokenizer_added {
    const char *text; /* borrowed */
    size_t len;
    uint32_t id;
    bool special;
    bool unknown; /* what is not in the vocabulary becomes it, too */
};
/* Fills *out with the added token I (from 0); false when there are no more. */
bool tokenizer_added(const struct tokenizer *t, size_t i, struct tokenizer_added *out);

/* Appends the text of N ids; unknown ids are skipped. */
void tokenizer_decode(const struct tokenizer *t, const uint32_t *id, size_t n,
                      bool skip_special, struct str *out);
/* The token ID as the vocabulary has it, *len bytes; NULL: there is none. */
const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, size_t *len);
/* Appends the bytes that token ID adds within a text, perhaps a part of a character;
 * before those of a special token stands MARK.  False: it has none.  Not for tokenizers
 * of which tokenizer_has_bytes is false: there they depend on the next tokens. */
bool tokenizer_bytes(const struct tokenizer *t, uint32_t id, struct str *out,
                     char mark);
bool tokenizer_has_bytes(const struct tokenizer *t);
/* Largest id + 1. */
size_t tokenizer_size(const struct tokenizer *t);

/* Decodes a text id by id: each feed appends the text that later ids cannot change.
 * The concatenation equals the result of tokenizer_decode. */
struct token_stream;
struct token_stream *token_stream_new(const struct tokenizer *t, bool skip_special);
void token_stream_feed(struct token_stream *s, uint32_t id, struct str *out);
/* Appends the rest of the text. */
void token_stream_end(struct token_stream *s, struct str *out);
void token_stream_free(struct token_stream *s);

#endif
