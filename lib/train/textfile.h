/* textfile - reads a text file, compressed or not, in pieces of whole lines */
#ifndef LIB_TRAIN_TEXTFILE_H
#define LIB_TRAIN_TEXTFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

struct decompress;

struct textfile {
    const char *name; /* for messages */
    struct decompress *bytes;
    char *buf; /* [cap]: bytes [at, have) are not returned yet */
    size_t at, have, cap;
    size_t from; /* where the last lines that were returned begin */
    bool begun, end;
};

/* Open PATH ("-": standard input). */
MUST_CHECK int textfile_open(struct textfile *t, const char *path, struct err *err);
void textfile_close(struct textfile *t);
/* Returns the next whole lines: at least MOST bytes unless the file ends, 0 bytes at
 * its end; valid until the next call.  A byte order mark at the beginning is left out.
 *  ERR_INPUT when a line needs more memory than
 * mem_allowance of the file's bytes. */
MUST_CHECK int textfile_next(struct textfile *t, size_t most, const char **text,
                             size_t *n, struct err *err);
/* Returns the lines of the last call again, with all that follows. */
MUST_CHECK int textfile_rest(struct textfile *t, const char **text, size_t *n,
                             struct err *err);

#endif
