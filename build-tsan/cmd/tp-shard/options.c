/* options - what the commands of tp-shard share */
#include "cmd/tp-shard/tp-shard.h"

#include <string.h>

int dtype_from_option(const enum dtype **out, enum dtype *value, const char *text,
                      struct err *err)
{
    *out = NULL;
    if (!text)
        return 0;
    if (!dtype_parse(value, text) ||
        (*value != DTYPE_F32 && *value != DTYPE_F16 && *value != DTYPE_BF16))
        return err_set(err, ERR_USAGE, "--dtype: '%s' is none of f32, f16, bf16", text);
    *out = value;
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
