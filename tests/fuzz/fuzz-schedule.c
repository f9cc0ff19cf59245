/* fuzz-schedule - tables of pipeline actions */
#include <stdint.h>

#include "lib/pipe/csv.h"

static volatile int failures; /* as many as there are: any answer will do */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    struct action_table t;

    if (csv_parse(&t, "fuzz", (const char *)data, size, &err) < 0)
        return 0;
    if (t.stages <= 64 && t.micro_batches <= 64)
        failures += action_check(&t, &err) < 0;
    action_table_clear(&t);
    return 0;
}
