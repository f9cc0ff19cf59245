/* options - what the commands of tp-shard share */
#include "cmd/tp-shard/tp-shard.h"

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
