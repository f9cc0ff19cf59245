/* settings - "name:key=value,key=value", what a sampler or pruner is told
 *
 * Each sampler and pruner lists its settings; their values are doubles, in the
 * order of the list. */
#ifndef LIB_SWEEP_SPACE_SETTINGS_H
#define LIB_SWEEP_SPACE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

enum { SETTINGS_MAX = 8 };

struct setting {
    const char *name; /* NULL ends a list */
    double fallback;
    double min, max;
    bool integer;
    const char *const *words; /* the value is the index of one of these; else NULL */
    const char *help;
};

/* Read TEXT, what follows the colon ("" or NULL: nothing), into VALUES, the rest from
 * the list's defaults.  A number setting whose default is NaN may be left out or given
 * as "auto".  ERR_USAGE names WHAT, the key and the cause. */
MUST_CHECK int settings_parse(double values[SETTINGS_MAX], const struct setting *list,
                              const char *what, const char *text, struct err *err);

#endif
