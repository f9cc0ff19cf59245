/* check - checks of a family file */
#ifndef LIB_PROGRAM_CHECK_H
#define LIB_PROGRAM_CHECK_H

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/model/family.h"
#include "lib/model/model.h"

/* Opens family F on its example configuration and builds the program of every rank at
 * tp 1 and tp 2.  Fails if a line has no type, no line reads a tensor, or a name stands
 * for two things.  ALSO checks what this layer
 * does not read.  Appends to REPORT one line per tensor: its axes, its shape, and what
 * each of two ranks stores.  Takes ownership of F. */
MUST_CHECK int family_check(struct str *report, struct family *f,
                            int (*also)(const struct model *m, struct err *err),
                            struct err *err);

/* Builds M's program on one rank, to see that every line has a type.  ERR_INPUT names
 * file, line and column. */
MUST_CHECK int model_check_lines(const struct model *m, struct err *err);

#endif
