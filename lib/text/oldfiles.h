/* oldfiles - tokenizers that are not a tokenizer.json: vocab.txt, SentencePiece models,
 * vocab.json with merges.txt
 *
 * Each is made the tokenizer.json that transformers would make of it, and opened. */
#ifndef LIB_TEXT_OLDFILES_H
#define LIB_TEXT_OLDFILES_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "lib/base/str.h"
#include "lib/text/tokenizer.h"

/* Open what the directory DIR has: vocab.txt (WordPiece), or spiece.model, spm.model or
 * sentencepiece.bpe.model of a model of type MODEL_TYPE ("albert", "camembert",
 * "deberta-v2" or "xlm-roberta"; another, or NULL, is refused), or vocab.json and
 * merges.txt of GPT-2's kind or RoBERTa's, which tokenizer_config.json or MODEL_TYPE
 * names.  *out is NULL where there is none. */
MUST_CHECK int oldfiles_open(struct tokenizer **out, const char *dir,
                             const char *model_type, struct err *err);
/* Converts the N bytes of a SentencePiece model (sentencepiece_model.proto) to a
 * tokenizer.json.  CONFIG is tokenizer_config.json, or NULL. */
MUST_CHECK int oldfiles_sentencepiece(struct str *out, const char *path,
                                      const void *model, size_t n,
                                      const char *model_type, const cJSON *config,
                                      struct err *err);

#endif
