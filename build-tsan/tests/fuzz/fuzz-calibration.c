/* fuzz-calibration - files of measured times */
#include <stdint.h>

#include "lib/pipe/calibration.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    struct calibration c;
    struct str text = { 0 };

    if (calibration_parse(&c, "fuzz", (const char *)data, size, &err) < 0)
        return 0;
    calibration_print(&text, &c);
    calibration_clear(&c);
    str_clear(&text);
    return 0;
}
