/* check - is a family sound? */
#ifndef LIB_PROGRAM_CHECK_H
#define LIB_PROGRAM_CHECK_H

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/model/family.h"

/* Bind F to its example configuration, build its program for every rank at tp 1 and 2,
 * and append to REPORT one line for each tensor of the family: its shape and what each
 * rank of two stores.  Checks what a shape's size alone cannot show: that every line
 * types, that every tensor is read, and that a name means one thing. */
MUST_CHECK int family_check(struct str *report, const struct family *f,
                            struct err *err);

#endif
