/* tokenwriter - writes Megatron's indexed dataset, PREFIX.bin and PREFIX.idx
 *
 * Both files appear when they are complete; an unfinished dataset leaves no file
 * behind. */
#ifndef LIB_TRAIN_TOKENWRITER_H
#define LIB_TRAIN_TOKENWRITER_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

struct tokenwriter;

/* Ids are below VOCAB.  They are stored in 16 bits if VOCAB is below 65500, as Megatron
 * does, else in 32. */
MUST_CHECK int tokenwriter_open(struct tokenwriter **out, const char *prefix,
                                uint64_t vocab, struct err *err);
void tokenwriter_close(struct tokenwriter *w);
/* Appends a document of N ids, as one sequence. */
MUST_CHECK int tokenwriter_add(struct tokenwriter *w, const int32_t *id, size_t n,
                               struct err *err);
MUST_CHECK int tokenwriter_finish(struct tokenwriter *w, struct err *err);

uint64_t tokenwriter_tokens(const struct tokenwriter *w);
uint64_t tokenwriter_documents(const struct tokenwriter *w);
uint64_t tokenwriter_bytes(const struct tokenwriter *w); /* of PREFIX.bin */

#endif
