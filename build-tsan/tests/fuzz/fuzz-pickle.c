/* fuzz-pickle - files of torch.save: zip archives and streams */
#include <stdint.h>

#include "lib/ckpt/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pickle p;
    struct err err = { 0 };

    if (pickle_parse(&p, "fuzz", data, size, &err) == 0)
        pickle_clear(&p);
    return 0;
}
