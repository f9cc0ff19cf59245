/* setting - members of a stage's object in a tokenizer.json */
#ifndef LIB_TEXT_SETTING_H
#define LIB_TEXT_SETTING_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "lib/base/err.h"

bool setting_absent(const cJSON *j);      /* missing, or null */
const char *setting_type(const cJSON *j); /* "?" when there is none */
bool setting_flag(const cJSON *j, const char *name, bool otherwise);
const char *setting_string(const cJSON *j, const char *name); /* or NULL */
/* An exact integer from 0 to MOST; false when it is anything else. */
bool setting_id(const cJSON *j, long *out);

/* A Metaspace, as a pre-tokenizer or a decoder. */
struct metaspace {
    const char *space; /* stands for a space; borrowed */
    bool never, first; /* one is put before nothing, or before the first piece alone */
};
MUST_CHECK int setting_metaspace(struct metaspace *out, const char *where,
                                 const cJSON *j, struct err *err);

#endif
