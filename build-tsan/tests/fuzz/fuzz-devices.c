/* fuzz-devices - lists of GPUs, and the mask they are dealt under
 *
 * The first line is the list, what is below it the inherited mask. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/job/devices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const char *list, int per, const char *mask)
{
    struct err err = { 0 };
    struct devices d;

    if (devices_deal(&d, list, per, mask, &err) < 0)
        return;
    for (int i = 0; i < d.nslots; i++) {
        int commas = 0;

        for (const char *p = d.masks[i]; *p; p++)
            commas += *p == ',';
        if (commas != per - 1)
            abort();
    }
    devices_clear(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *list = xstrndup((const char *)data, size);
    char *mask = strchr(list, '\n');

    if (mask)
        *mask++ = '\0';
    for (int per = 1; per < 4; per++)
        use(list, per, mask);
    free(list);
    return 0;
}
