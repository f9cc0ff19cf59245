/* tokenfile - files of token ids: nanoGPT's, llm.c's and Megatron's
 *
 * PREFIX.bin with PREFIX.idx is Megatron's indexed dataset.  A .bin alone has nanoGPT's
 * 16-bit ids, or begins with llm.c's header; its documents are separated only by end
 * ids: nanoGPT's end a document, llm.c's begin one.  Only the beginnings of documents
 * are kept in memory. */
#ifndef LIB_TRAIN_TOKENFILE_H
#define LIB_TRAIN_TOKENFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum token_type { /* as numbered in Megatron's index */
                  TOKEN_U8 = 1,
                  TOKEN_I8,
                  TOKEN_I16,
                  TOKEN_I32,
                  TOKEN_I64,
                  TOKEN_U16 = 8,
                  TOKEN_U32 /* llm.c's */
};

enum token_documents { DOCUMENTS_INDEXED, DOCUMENTS_CLOSED, DOCUMENTS_BEGUN };

struct tokenfile {
    char *name; /* path of the file with the tokens */
    int fd;
    enum token_type type;
    uint64_t offset, tokens;
    enum token_documents kind;
    uint64_t *start; /* [documents], for DOCUMENTS_INDEXED; no document is empty */
    size_t documents;
};

/* Does PATH have the name of a token file: x.bin or x.idx? */
bool tokenfile_is(const char *path);
/* Opens a dataset by either name. */
MUST_CHECK int tokenfile_open(struct tokenfile *f, const char *path, struct err *err);
void tokenfile_close(struct tokenfile *f);
/* Reads N tokens from FIRST; ids not below VOCAB are ERR_INPUT (0: no limit). */
MUST_CHECK int tokenfile_read(const struct tokenfile *f, uint64_t first, size_t n,
                              uint64_t vocab, int32_t *id, struct err *err);

#endif
