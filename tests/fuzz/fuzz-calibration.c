/* fuzz-calibration - files of measured times, and of devices */
#include <stdint.h>

#include "lib/estimate/measured.h"
#include "lib/pipe/calibration.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    struct calibration c;
    struct measured m;
    const char *path = "fuzz";
    struct str text = { 0 };

    if (measured_parse(&m, "fuzz", (const char *)data, size, &err) == 0)
        measured_print(&text, &m);
    if (calibration_parse(&c, "fuzz", (const char *)data, size, &err) < 0)
        goto out;
    calibration_print(&text, &c);
    if (measured_fit(&m, &c, &path, 1, &err) == 0)
        measured_print(&text, &m);
    calibration_clear(&c);
out:
    str_clear(&text);
    return 0;
}
