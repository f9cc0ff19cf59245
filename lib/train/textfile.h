/* textfile - a text that may be compressed, a piece of whole lines at a time */
#ifndef LIB_TRAIN_TEXTFILE_H
#define LIB_TRAIN_TEXTFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

struct textfile {
    const char *name; /* for messages */
    void *gz;
    char *buf; /* [cap]: [at, have) is still to be given */
    size_t at, have, cap;
    bool end;
};

/* Open PATH ("-": standard input). */
MUST_CHECK int textfile_open(struct textfile *t, const char *path, struct err *err);
void textfile_close(struct textfile *t);
/* The next whole lines, at least MOST bytes of them unless the file ends, and 0 bytes
 * at its end; valid until the next call.  What is held may not be more than
 * mem_allowance of the file's bytes. */
MUST_CHECK int textfile_next(struct textfile *t, size_t most, const char **text,
                             size_t *n, struct err *err);
/* Bytes of the file itself that have been read. */
uint64_t textfile_bytes(const struct textfile *t);

#endif
