/* gpu-steps - steps of a GPU that repeat, while texts come and go
 *
 * Over the emulated kernels and the fake runtime (tests/emu, tests/fake); unit-steps
 * has more steps. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/emu/emu.h"
#include "tests/repeats.h"
#include "tests/tap.h"

int main(void)
{
    static const char *const models[] = { "lfm2" };
    const struct repeats how = {
        .ops = &backend_cuda, .texts = 9, .new = 15, .places = 4, .least = 0.5
    };

    setenv("FAKE_GPUS", "1", 0);
    for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
        struct err err = { .text = "" };

        if (!tap_ok(repeats_run(&how, models[i], &err) == 0,
                    "%s: %.0f of 100 steps are replayed while %zu texts come and go",
                    models[i], how.least * 100, how.texts))
            printf("# %s\n", err.text);
    }
    return tap_done();
}
