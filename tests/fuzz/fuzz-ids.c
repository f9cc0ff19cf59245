/* fuzz-ids - token ids in tokenizer.json, vocab.json, tokenizer_config.json and
 * config.json: the first byte says which */
#include <stdint.h>

#include "lib/reshard/idrange.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct inspection out = { 0 };
    struct err err = { 0 };

    if (size) {
        int ret = idrange_read(&out, "f", "d/f", (const char *)data + 1, size - 1,
                               (enum idrange_form)(data[0] % 4), 100, &err);

        (void)ret;
    }
    inspection_clear(&out);
    return 0;
}
