/* tokenizer - text to ids and back, as a Hugging Face tokenizer.json says
 *
 * The stages of the file are a pipeline: added tokens, normalizer, pre-tokenizer,
 * model, post-processor; and a decoder.  A stage of a type that is not known is refused
 * when the file is opened, never skipped.  Truncation and padding, which the file may
 * ask for, are the caller's. */
#ifndef LIB_TEXT_TOKENIZER_H
#define LIB_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct tokenizer;

struct tokens {
    uint32_t *id;
    size_t n, cap;
};

void tokens_add(struct tokens *t, uint32_t id);
void tokens_clear(struct tokens *t);

/* Open the file at PATH.  ERR_INPUT names file and cause. */
MUST_CHECK int tokenizer_open(struct tokenizer **out, const char *path,
                              struct err *err);
/* The same from TEXT. */
MUST_CHECK int tokenizer_parse(struct tokenizer **out, const char *path,
                               const char *text, struct err *err);
void tokenizer_free(struct tokenizer *t);

/* Append the ids of the LEN bytes at TEXT to *out; ill-formed UTF-8 is read as U+FFFD.
 * With ADD_SPECIAL the post-processor adds its tokens.  Fails when the model needs an
 * unknown token and has none. */
MUST_CHECK int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len,
                                bool add_special, struct tokens *out, struct err *err);
/* The same of two texts with what the post-processor puts around a pair; *types gets as
 * many token types, and RANGE is where the second text's tokens begin and end.  OUT and
 * TYPES have equal lengths before. */
MUST_CHECK int tokenizer_encode_pair(const struct tokenizer *t, const char *first,
                                     size_t first_len, const char *second,
                                     size_t second_len, struct tokens *out,
                                     struct tokens *types, size_t range[2],
                                     struct err *err);
/* Append the text of N ids; ids that are not known are left out. */
void tokenizer_decode(const struct tokenizer *t, const uint32_t *id, size_t n,
                      bool skip_special, struct str *out);
/* One more than the largest id. */
size_t tokenizer_size(const struct tokenizer *t);

/* Text that comes id by id: each feed appends what later ids cannot change.  The whole
 * is what tokenizer_decode gives. */
struct token_stream;
struct token_stream *token_stream_new(const struct tokenizer *t, bool skip_special);
void token_stream_feed(struct token_stream *s, uint32_t id, struct str *out);
/* Append what is held back. */
void token_stream_end(struct token_stream *s, struct str *out);
void token_stream_free(struct token_stream *s);

#endif
