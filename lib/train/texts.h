/* texts - files of text or of JSON lines as token ids, document by document
 *
 * A name that ends in .jsonl, .ndjson or .json is a file of JSON lines, an object a
 * document; any other is text.  Either may be compressed by gzip, and ".gz" behind the
 * name.  "-" is standard input, as text. */
#ifndef LIB_TRAIN_TEXTS_H
#define LIB_TRAIN_TEXTS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/text/tokenizer.h"

struct texts_options {
    const struct tokenizer *tokenizer; /* NULL: "ids" alone can be read */
    int32_t end_id;                    /* put behind a text; -1: none */
    uint64_t vocab;                    /* ids are below; 0: any */
    int threads;                       /* that tokenize; 0: one */
    bool strict;                       /* prompts are refused */
};

struct texts_document {
    const int32_t *id;
    size_t n;     /* at least 1 */
    size_t given; /* of them a prompt, which is not learnt */
};

/* Call SEE with each document of the file PATH, in its order whatever the threads.
 * ERR_INPUT says "PATH:LINE: cause". */
MUST_CHECK int texts_read(const char *path, const struct texts_options *options,
                          int (*see)(void *arg, const struct texts_document *document,
                                     struct err *err),
                          void *arg, struct err *err);

#endif
