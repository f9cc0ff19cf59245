/* fuzz-pooling - modules.json, and below its first zero byte the config of a pooling */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/pooling.h"
#include "lib/base/fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data,
               *config = size ? memchr(data, 0, size) : NULL;
    size_t n = config ? (size_t)(config - text) : size;
    struct pooling p = { .kind = POOL_MEAN };
    struct err err = { 0 };
    char *where;

    if (pooling_parse_modules(&p, &where, "m", text, n, &err) == 0 && where &&
        !fs_is_plain_name(where))
        abort();
    free(where);
    if (config && pooling_parse_config(&p, "c", config + 1, size - n - 1, &err) == 0 &&
        (p.kind < POOL_MEAN || p.kind > POOL_LAST))
        abort();
    return 0;
}
