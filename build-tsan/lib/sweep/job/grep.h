/* grep - the last number that a regular expression finds */
#ifndef LIB_SWEEP_JOB_GREP_H
#define LIB_SWEEP_JOB_GREP_H

#include <stdbool.h>

#include "lib/base/err.h"

struct grep;

/* REGEX as Perl and Python write them (pcre2pattern(3)), of bytes.  Returns -1 with
 * *err set (ERR_USAGE) when it is none, or too large. */
MUST_CHECK int grep_open(struct grep **out, const char *regex, struct err *err);
void grep_free(struct grep *g);

/* The number that the last match in TEXT is, or its first group if there are groups,
 * in the last line that has one; a match ends with its line.  False without one, and
 * when a match takes more steps or memory than is sensible. */
bool grep_last(double *value, const struct grep *g, const char *text);

#endif
