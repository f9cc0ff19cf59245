/* fuzz-safetensors - headers of safetensors files */
#include <stdint.h>

#include "lib/ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors st;
    struct err err = { 0 };
    uint64_t n;

    if (size < 8)
        return 0;
    n = safetensors_get_length(data);
    if (n > size - 8)
        n = size - 8;
    if (safetensors_parse(&st, "fuzz", (const char *)data + 8, (size_t)n, size, &err) ==
        0)
        safetensors_clear(&st);
    return 0;
}
