/* tokenwriter - Megatron's indexed dataset, PREFIX.bin and PREFIX.idx
 *
 * Both appear when all is written, and nothing is left of what was not finished. */
#ifndef LIB_TRAIN_TOKENWRITER_H
#define LIB_TRAIN_TOKENWRITER_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

struct tokenwriter;

/* Ids are below VOCAB: below 65500 they have 16 bits, as Megatron has them, else 32. */
MUST_CHECK int tokenwriter_open(struct tokenwriter **out, const char *prefix,
                                uint64_t vocab, struct err *err);
void tokenwriter_close(struct tokenwriter *w);
/* A document: a sequence of N ids. */
MUST_CHECK int tokenwriter_add(struct tokenwriter *w, const int32_t *id, size_t n,
                               struct err *err);
MUST_CHECK int tokenwriter_finish(struct tokenwriter *w, struct err *err);

uint64_t tokenwriter_tokens(const struct tokenwriter *w);
uint64_t tokenwriter_documents(const struct tokenwriter *w);
uint64_t tokenwriter_bytes(const struct tokenwriter *w); /* of PREFIX.bin */

#endif
