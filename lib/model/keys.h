/* keys - checks every key of a config.json
 *
 * A key is known if the family's expressions read it, if the family's "config" table
 * lists it with the values that it accepts, or if it is in a common list of keys that
 * change no result (dropout rates, names).  A listed key with another value is an
 * error; unknown keys are reported, so that the caller can warn. */
#ifndef LIB_MODEL_KEYS_H
#define LIB_MODEL_KEYS_H

#include <cjson/cJSON.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct model;

/* What the caller needs to be right; each includes the one before. */
enum keys_need {
    KEYS_CUTS,     /* tensors and their shards */
    KEYS_COSTS,    /* also FLOPs and KV caches */
    KEYS_NUMBERS,  /* also every output */
    KEYS_TRAINING, /* also what is computed in training alone */
    KEYS_NOTHING   /* only of a key: any value is accepted, with a warning */
};

/* Checks the config of M.  ERR_INPUT with key, value and default if the value of a key
 * changes what NEED asks for.  Appends to IGNORED, separated by ", ", unknown keys and
 * keys whose value changes only what NEED does not ask for. */
MUST_CHECK int keys_check(const struct model *m, enum keys_need need,
                          struct str *ignored, struct err *err);

/* True if KEY is in the common list. */
bool keys_is_harmless(const char *key);

#endif
