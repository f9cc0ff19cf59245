/* corpus - the tokens of some files as one row, with the documents' beginnings */
#ifndef LIB_TRAIN_CORPUS_H
#define LIB_TRAIN_CORPUS_H

#include "lib/train/texts.h"

struct corpus;

/* Open the N files at FILE, in this order. */
MUST_CHECK int corpus_open(struct corpus **out, const char *const *file, size_t n,
                           const struct texts_options *options, struct err *err);
void corpus_close(struct corpus *c);

uint64_t corpus_tokens(const struct corpus *c);

enum { CORPUS_BEGINS = 1 /* a document */, CORPUS_GIVEN = 2 /* no target: a prompt */ };

/* Tokens FIRST to FIRST + N - 1, and of each whether it begins a document or is given.
 * Whether the first of them begins one is not told. */
MUST_CHECK int corpus_read(struct corpus *c, uint64_t first, size_t n, int32_t *id,
                           uint8_t *flag, struct err *err);

/* Call SEE with each document's tokens: N from FIRST, of which GIVEN are a prompt. */
MUST_CHECK int corpus_documents(struct corpus *c,
                                int (*see)(void *arg, uint64_t first, uint64_t n,
                                           uint64_t given, struct err *err),
                                void *arg, struct err *err);

#endif
