/* bpe - byte-pair encoding: a piece's symbols merged by rank (Sennrich et al. 2016) */
#ifndef LIB_TEXT_BPE_H
#define LIB_TEXT_BPE_H

#include <cjson/cJSON.h>

#include "lib/text/tokenizer.h"

struct bpe;

/* From the "model" of a tokenizer.json; PATH is for messages. */
int bpe_open(struct bpe **out, const char *path, const cJSON *model, struct err *err);
void bpe_free(struct bpe *b);
/* Append the ids of the piece of LEN bytes, already mapped to the vocabulary's
 * alphabet.  A symbol that is not in the vocabulary is ERR_INPUT. */
int bpe_encode(const struct bpe *b, const char *piece, size_t len, struct tokens *out,
               struct err *err);
long bpe_id(const struct bpe *b, const char *text, size_t len);
const char *bpe_text(const struct bpe *b, uint32_t id); /* NULL when there is none */
size_t bpe_size(const struct bpe *b); /* one more than the largest id */

#endif
