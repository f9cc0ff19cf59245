/* fuzz-schedule - tables of pipeline actions */
#include <stdint.h>

#include "lib/pipe/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    struct action_table t;

    if (csv_parse(&t, "fuzz", (const char *)data, size, &err) < 0)
        return 0;
    if (t.stages <= 64 && t.micro_batches <= 64)
        (void)action_check(&t, &err);
    action_table_clear(&t);
    return 0;
}
