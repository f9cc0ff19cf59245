/* fuzz-manifest - checkpoint.json */
#include <stdint.h>

#include "lib/ckpt/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct manifest m;
    struct err err = { 0 };

    if (manifest_parse(&m, "fuzz", (const char *)data, size, &err) == 0)
        manifest_clear(&m);
    return 0;
}
