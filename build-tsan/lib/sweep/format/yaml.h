/* yaml - YAML read into the tree of json.h, positions kept
 *
 * Scalars follow the core schema of YAML 1.2: 1e-6 is a number, yes is a word.
 * Duplicate keys, keys that are not scalars, tags of other types, several documents
 * and nesting deeper than 64 are refused. */
#ifndef LIB_SWEEP_FORMAT_YAML_H
#define LIB_SWEEP_FORMAT_YAML_H

#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/json.h"

struct yaml {
    struct json_doc doc; /* doc.root: the tree */
    void *blocks;        /* private */
};

/* Parse TEXT[n]; NAME is kept and not copied.  ERR_INPUT "NAME:LINE:COL: cause".  On
 * failure *y needs no yaml_clear. */
MUST_CHECK int yaml_parse(struct yaml *y, const char *name, const char *text, size_t n,
                          struct err *err);
void yaml_clear(struct yaml *y);

#endif
