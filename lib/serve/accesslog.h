/* accesslog - a file to which threads add lines
 *
 * Each line is one write at the file's end.  When one fails, the next are tried again,
 * and the caller learns of it once. */
#ifndef LIB_SERVE_ACCESSLOG_H
#define LIB_SERVE_ACCESSLOG_H

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct accesslog;

/* Opens or makes the file PATH; "-" is standard output. */
MUST_CHECK int accesslog_open(struct accesslog **out, const char *path,
                              struct err *err);
void accesslog_close(struct accesslog *l); /* NULL is allowed */
void accesslog_add(struct accesslog *l, const struct str *line);
/* Opens PATH again, which may have been renamed; the old file stays if that fails. */
MUST_CHECK int accesslog_reopen(struct accesslog *l, struct err *err);
/* True, with *err, if a line has been lost since nobody, or this call, has been told of
 * one; false afterwards until lines are written again. */
bool accesslog_failed(struct accesslog *l, struct err *err);

#endif
