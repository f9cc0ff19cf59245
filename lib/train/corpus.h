/* corpus - the tokens of several files, concatenated, with document boundaries */
#ifndef LIB_TRAIN_CORPUS_H
#define LIB_TRAIN_CORPUS_H

#include "lib/train/texts.h"
#include "lib/train/tokenfile.h"

struct corpus;

/* Opens the N files at FILE in this order; WIDTH is of the ids of token files without a
 * header. */
MUST_CHECK int corpus_open(struct corpus **out, const char *const *file, size_t n,
                           const struct texts_options *options, enum token_width width,
                           struct err *err);
void corpus_close(struct corpus *c);

uint64_t corpus_tokens(const struct corpus *c);

/* Reads all ids on disk, which are otherwise read, and compared with the vocabulary,
 * when they are needed.  SEE, unless NULL, is told how many of ALL tokens are done. */
MUST_CHECK int corpus_check(struct corpus *c,
                            void (*see)(void *arg, uint64_t done, uint64_t all),
                            void *arg, struct err *err);

enum { CORPUS_BEGINS = 1 /* a document */, CORPUS_GIVEN = 2 /* no target: a prompt */ };

/* Reads the tokens [FIRST, FIRST + N) and their flags.  CORPUS_BEGINS is not set for
 * the first of them. */
MUST_CHECK int corpus_read(struct corpus *c, uint64_t first, size_t n, int32_t *id,
                           uint8_t *flag, struct err *err);

/* Calls SEE for each document with its N tokens from FIRST, of which the first GIVEN
 * are a prompt. */
MUST_CHECK int corpus_documents(struct corpus *c,
                                int (*see)(void *arg, uint64_t first, uint64_t n,
                                           uint64_t given, struct err *err),
                                void *arg, struct err *err);

#endif
