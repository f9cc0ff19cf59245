/* setting - reads options of a stage in a tokenizer.json */
#include "lib/text/setting.h"

#include <string.h>

enum { MAX_ID = 1 << 24 };

bool setting_absent(const cJSON *j)
{
    return !j || cJSON_IsNull(j);
}

const char *setting_string(const cJSON *j, const char *name)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, name);

    return cJSON_IsString(v) ? v->valuestring : NULL;
}

const char *setting_type(const cJSON *j)
{
    const char *type = setting_string(j, "type");

    return type ? type : "?";
}

bool setting_flag(const cJSON *j, const char *name, bool otherwise)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, name);

    return cJSON_IsBool(v) ? cJSON_IsTrue(v) : otherwise;
}

bool setting_id(const cJSON *j, long *out)
{
    if (!cJSON_IsNumber(j) || j->valuedouble < 0 || j->valuedouble > MAX_ID ||
        j->valuedouble != (double)j->valueint)
        return false;
    *out = j->valueint;
    return true;
}

int setting_metaspace(struct metaspace *out, const char *where, const cJSON *j,
                      struct err *err)
{
    const char *space = setting_string(j, "replacement");
    const char *scheme = setting_string(j, "prepend_scheme");

    if (!scheme)
        scheme = setting_flag(j, "add_prefix_space", true) ? "always" : "never";
    if (!space || !*space)
        return err_set(err, ERR_INPUT, "%s: a Metaspace without a replacement", where);
    *out =
        (struct metaspace){ space, !strcmp(scheme, "never"), !strcmp(scheme, "first") };
    if (!out->never && !out->first && strcmp(scheme, "always"))
        return err_set(err, ERR_INPUT, "%s: prepend_scheme '%s' is not known", where,
                       scheme);
    return 0;
}
