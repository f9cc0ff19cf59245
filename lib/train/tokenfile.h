/* tokenfile - files of token ids: nanoGPT's, llm.c's and Megatron's
 *
 * PREFIX.bin with PREFIX.idx is Megatron's indexed dataset.  A .bin alone has nanoGPT's
 * 16-bit ids, or begins with llm.c's header; its documents are separated only by end
 * ids: nanoGPT's end a document, llm.c's begin one.  Only the beginnings of documents
 * are kept in memory.
 *
 * A .bin without a header does not say what it is.  One that seems to be something else
 * than 16-bit ids is refused, unless the reader is told the width. */
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

/* What the ids of a file without a header are: AUTO are 16-bit ids. */
enum token_width { TOKEN_WIDTH_AUTO, TOKEN_WIDTH_U16, TOKEN_WIDTH_U32, TOKEN_WIDTHS };
extern const char *const token_width_names[TOKEN_WIDTHS + 1];

struct tokenfile_options {
    uint64_t vocab; /* ids are smaller; 0: not known */
    enum token_width width;
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
/* Opens a dataset by either name.  ERR_INPUT also for a file that seems to have ids of
 * another width. */
MUST_CHECK int tokenfile_open(struct tokenfile *f, const char *path,
                              const struct tokenfile_options *options, struct err *err);
void tokenfile_close(struct tokenfile *f);
/* Reads N tokens from FIRST; ids not below VOCAB are ERR_INPUT (0: no limit). */
MUST_CHECK int tokenfile_read(const struct tokenfile *f, uint64_t first, size_t n,
                              uint64_t vocab, int32_t *id, struct err *err);
/* Reads the N tokens from FIRST, as fast as the file is read: ERR_INPUT as
 * tokenfile_read. */
MUST_CHECK int tokenfile_check(const struct tokenfile *f, uint64_t first, uint64_t n,
                               uint64_t vocab, struct err *err);

#endif
