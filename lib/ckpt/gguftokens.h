/* gguftokens - the tokenizer in a GGUF file's metadata as a tokenizer.json
 *
 * Keys tokenizer.ggml.*: model "gpt2" is byte-level BPE, whose pre-tokenizer "pre"
 * names among those of llama.cpp (src/llama-vocab.cpp); model "llama" is
 * SentencePiece's BPE, whose merges follow from the scores of the pieces. */
#ifndef LIB_CKPT_GGUFTOKENS_H
#define LIB_CKPT_GGUFTOKENS_H

#include "lib/base/str.h"
#include "lib/base/json.h"
#include "lib/ckpt/gguf.h"
#include "lib/ckpt/ggufwriter.h"

/* Appends the tokenizer.json of G to OUT.  Returns 1; 0 when G has no tokenizer; or -1
 * with ERR_INPUT when it is one that is not known, or is damaged. */
MUST_CHECK int gguf_tokenizer(struct str *out, const struct gguf *g, struct err *err);

/* Sets *text, which the caller frees, to the tokenizer.json of the file PATH; NULL:
 * that is no GGUF file, or has no tokenizer.  Errors as gguf_open and the above. */
MUST_CHECK int gguf_read_tokenizer(char **text, const char *path, struct err *err);

/* The files that a tokenizer is written of: their roots, and NULL for those there are
 * not. */
struct gguftokens {
    const struct json *tokenizer, *settings, *config; /* tokenizer.json,
                                                       * tokenizer_config.json and
                                                       * config.json */
    const char *chat;                                 /* the template, or NULL */
    const char *path;                                 /* of the first, for messages */
};

/* Adds the tokenizer to the metadata; without a tokenizer.json that there is none. ROWS
 * is the number of tokens.  ERR_NO when GGUF cannot represent it. */
MUST_CHECK int gguf_tokens_write(struct ggufwriter *w, const struct gguftokens *t,
                                 uint64_t rows, struct err *err);

#endif
