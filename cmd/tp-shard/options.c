/* options - what the commands of tp-shard share */
#include "cmd/tp-shard/tp-shard.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

const char *const dtype_words[] = { "f32", "f16", "bf16", NULL };

int dtype_from_option(const enum dtype **out, enum dtype *value,
                      const char *const *words, const char *text, struct err *err)
{
    struct str all = { 0 };

    *out = NULL;
    if (!text)
        return 0;
    if (dtype_parse(value, text) &&
        (*value == DTYPE_F32 || *value == DTYPE_F16 || *value == DTYPE_BF16)) {
        *out = value;
        return 0;
    }
    for (int i = 0; words[i]; i++) {
        if (!strcmp(words[i], text)) {
            str_clear(&all);
            return 0;
        }
        str_addf(&all, "%s%s", i ? ", " : "", words[i]);
    }
    err_set(err, ERR_USAGE, "--dtype: '%s' is none of %s", text, str_text(&all));
    str_clear(&all);
    return -1;
}

int ranks_from_option(struct convert_options *opt, const char *text, struct err *err)
{
    const char *dash = text ? strchr(text, '-') : NULL;
    char *first;
    bool good;

    if (!text)
        return 0;
    first = dash ? xstrndup(text, (size_t)(dash - text)) : xstrdup(text);
    good = str_int(first, &opt->first) && opt->first >= 0 &&
           str_int(dash ? dash + 1 : first, &opt->last) && opt->last >= opt->first;
    free(first);
    if (!good)
        return err_set(err, ERR_USAGE, "--ranks: '%s' is not a range such as 0-3",
                       text);
    opt->some = true;
    return 0;
}

bool output_is_number(const struct cmd *cmd, const char *output)
{
    if (!*output || output[strspn(output, "0123456789")])
        return false;
    cmd_usage(cmd, "the output is called %s; --tp %s is ranks, ./%s a directory",
              output, output, output);
    return true;
}
