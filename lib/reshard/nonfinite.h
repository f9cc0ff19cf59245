/* nonfinite - finds a stored weight that is NaN or infinite */
#ifndef LIB_RESHARD_NONFINITE_H
#define LIB_RESHARD_NONFINITE_H

#include <stdbool.h>

#include "lib/base/str.h"
#include "lib/reshard/checkpoint.h"

/* Reads the weights of C that its model uses, and appends to OUT where the first number
 * of them is that is NaN or infinite: "FILE: tensor NAME: NaN at [3, 7]".  FILE is a
 * file of a Hugging Face directory, or the directory of a sharded checkpoint.  OUT
 * stays empty if all are finite.  Reads all of them, and keeps a block of one in
 * memory. */
MUST_CHECK int nonfinite_find(struct str *out, struct checkpoint *c, struct err *err);

#endif
