/* surroundings - what lies in a model's directory beside the weights that are read */
#ifndef LIB_RESHARD_SURROUNDINGS_H
#define LIB_RESHARD_SURROUNDINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"
#include "lib/reshard/inspection.h"

/* Adds to OUT what is noteworthy in DIR and the directories in it, down to one level;
 * the N weight files WEIGHTS of DIR are those that are read.  WHOLE: a model should be
 * there, and not what a training framework left. */
MUST_CHECK int surroundings_inspect(struct inspection *out, const char *dir,
                                    char *const *weights, size_t n, bool whole,
                                    struct err *err);

#endif
