/* keys - what becomes of each key of a config.json
 *
 * A family reads the keys that its expressions name.  Its "config" table lists keys
 * that it does not read and the values they may have; another value of theirs is
 * refused.  A common list holds keys that change no result, such as dropouts.  What
 * is left is reported, so that the caller can warn. */
#ifndef LIB_MODEL_KEYS_H
#define LIB_MODEL_KEYS_H

#include <cjson/cJSON.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct model;

/* What the caller needs to be right; each includes the one before. */
enum keys_need {
    KEYS_CUTS,   /* tensors and where they are cut */
    KEYS_COSTS,  /* also FLOPs and caches */
    KEYS_NUMBERS /* also every output of the model */
};

/* Check the config that M was made from.  A key whose value changes what NEED names is
 * ERR_INPUT with key, value and default.  Appended to IGNORED, with ", " between: keys
 * that nobody knows, and those whose values change only what NEED leaves out. */
MUST_CHECK int keys_check(const struct model *m, enum keys_need need,
                          struct str *ignored, struct err *err);

/* Does the common list hold KEY? */
bool keys_is_harmless(const char *key);

#endif
