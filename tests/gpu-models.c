/* gpu-models - every model on the CUDA backend gives what it gives on the CPU
 *
 * The kernels are compiled by g++ and run on the CPU (tests/emu), over a runtime whose
 * memory the host cannot touch and whose streams run when they are waited for
 * (tests/fake). */
#include <stdlib.h>

#include "tests/device-models.h"
#include "tests/emu/emu.h"
#include "tests/fake/cudart.h"

static bool has_run(void)
{
    return emu_blocks() > 0;
}

int main(void)
{
    static const char *const some[] = { "deepseek-v2",   "gemma3",  "gpt-oss-odd",
                                        "llama-awkward", "mixtral", "neox",
                                        "olmo2",         NULL };
    const struct device_models models = { .ops = &backend_cuda,
                                          .bound = 1e-5,
                                          /* attention (cores.cu) and products of more
                                           * than 8 rows in two bf16 parts */
                                          .narrow = 6e-5,
                                          .begin = fake_forget,
                                          .has_run = has_run,
                                          .claim =
                                              "CUDA's kernels give what the CPU's do",
                                          .some = some };

    setenv("FAKE_GPUS", "3", 0);

    return device_models(&models);
}
