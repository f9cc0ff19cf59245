/* unit-types - values in bf16 change no result by a bit
 *
 * With rows rounded for products (--compute bf16), every model, on every axis, gives to
 * the bit what it gives where all values are f32.  And what the pass types chooses. */
#include <stdlib.h>
#include <string.h>

#include "lib/cpu/cpu.h"
#include "lib/cpu/room.h"
#include "tests/device-models.h"

static bool has_run(void)
{
    return true;
}

int main(void)
{
    static const char *const some[] = { "deepseek-v2", "gpt-oss-odd", "llama-yarn",
                                        "mixtral",     "neox",        "qwen2-moe",
                                        NULL };
    static struct backend wide;
    const struct device_models models = { .ops = &backend_cpu,
                                          .beside = &wide,
                                          .held = some,
                                          .coded = true,
                                          .has_run = has_run,
                                          .claim = "values in bf16 change no bit",
                                          .some = some };

    wide = backend_cpu;
    wide.bf16 = NULL;
    return device_models(&models);
}
