/* fuzz-index - model.safetensors.index.json */
#include <stdint.h>

#include "lib/base/fs.h"
#include "lib/ckpt/hubdir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    char **names;
    size_t n;

    if (hubdir_parse_index(&names, &n, "fuzz", (const char *)data, size, &err) == 0)
        fs_list_free(names, n);
    return 0;
}
