/* fuzz-part - the record of a part that a job of several made */
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/str.h"
#include "lib/reshard/partset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct partset_record r;
    struct str sealed = { 0 };
    struct err err = { 0 };

    /* with its checksum: else nothing behind it would be reached */
    str_addn(&sealed, data, size);
    str_addf(&sealed, "crc32 %08" PRIx32 "\n", hash_crc32(0, data, size));
    if (partset_parse(&r, "fuzz", sealed.s, sealed.len, &err) == 0) {
        if (r.last < r.first || r.last >= r.of || !r.request)
            abort();
        partset_clear(&r);
    } else if (err.kind != ERR_INPUT) {
        abort();
    }
    str_clear(&sealed);
    return 0;
}
