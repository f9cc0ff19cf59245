/* setting - reads options of a stage in a tokenizer.json */
#ifndef LIB_TEXT_SETTING_H
#define LIB_TEXT_SETTING_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "lib/base/err.h"

bool setting_absent(const cJSON *j);      /* missing or null */
const char *setting_type(const cJSON *j); /* "?" when missing */
bool setting_flag(const cJSON *j, const char *name, bool otherwise);
const char *setting_string(const cJSON *j, const char *name); /* or NULL */
/* Reads an exact integer from 0 to 2^24; false when J is anything else. */
bool setting_id(const cJSON *j, long *out);

/* The options of Metaspace, a pre-tokenizer and decoder. */
struct metaspace {
    const char *space; /* replaces a space; borrowed */
    bool never, first; /* prepend scheme: never, or only before the first piece; else
                        * always */
};
MUST_CHECK int setting_metaspace(struct metaspace *out, const char *where,
                                 const cJSON *j, struct err *err);

#endif
