/* oldfiles - older tokenizer formats: vocab.txt, SentencePiece models, vocab.json with
 * merges.txt
 *
 * Each is converted to the tokenizer.json that transformers would make of it. */
#ifndef LIB_TEXT_OLDFILES_H
#define LIB_TEXT_OLDFILES_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "lib/base/str.h"
#include "lib/text/tokenizer.h"

/* Opens the tokenizer of the directory DIR.  Tries vocab.txt (WordPiece); then
 * spiece.model, spm.model and sentencepiece.bpe.model, for MODEL_TYPE "albert",
 * "camembert", "deberta-v2" or "xlm-roberta", and tokenizer.model: any of these is read
 * whatever the type if it is a BPE (Llama 1 and 2, Mistral, Gemma); then tekken.json;
 * then vocab.json with merges.txt, for a GPT-2 or RoBERTa tokenizer according to
 * tokenizer_config.json or MODEL_TYPE.  Another type, or NULL, is ERR_INPUT.  *out is
 * NULL if DIR has none of these files. */
MUST_CHECK int oldfiles_open(struct tokenizer **out, const char *dir,
                             const char *model_type, struct err *err);
/* Opens PATH if its name is tekken.json or ends in .model, a SentencePiece BPE; *out is
 * NULL if it is another. */
MUST_CHECK int oldfiles_open_file(struct tokenizer **out, const char *path,
                                  struct err *err);
/* Converts the N bytes of a SentencePiece model (sentencepiece_model.proto) to a
 * tokenizer.json.  CONFIG is tokenizer_config.json, or NULL. */
MUST_CHECK int oldfiles_sentencepiece(struct str *out, const char *path,
                                      const void *model, size_t n,
                                      const char *model_type, const cJSON *config,
                                      struct err *err);

#endif
