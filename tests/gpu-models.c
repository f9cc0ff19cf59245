/* gpu-models - every model on the CUDA backend gives what it gives on the CPU
 *
 * The kernels are compiled by g++ and run on the CPU (tests/emu), over a runtime whose
 * memory the host cannot touch and whose streams run when they are waited for
 * (tests/fake). */
#include <stdlib.h>
#include <string.h>

#include "tests/device-training.h"
#include "tests/emu/emu.h"
#include "tests/fake/cudart.h"

static bool has_run(void)
{
    return emu_blocks() > 0;
}

/* What GPUs have given; unit-device looks at the CPU. */
static void count(const char *backend, uint64_t *bytes, uint64_t *times)
{
    size_t used = 0, so_often = 0;

    if (!strcmp(backend, "cuda"))
        fake_memory(&used, &so_often);
    *bytes = used;
    *times = so_often;
}

int main(void)
{
    static const char *const some[] = { "deepseek-v2",   "gemma3",  "gpt-oss-odd",
                                        "llama-awkward", "mixtral", "neox",
                                        "olmo2",         NULL };
    static const char *const both[] = { "deepseek-v2",  "gemma3", "mistral-window",
                                        "mixtral",      "neox",   "olmo2",
                                        "qwen2-window", NULL };
    const struct device_models models = { .ops = &backend_cuda,
                                          .bound = 1e-5,
                                          /* attention (cores.cu) and products of more
                                           * than 8 rows in two bf16 parts */
                                          .narrow = 6e-5,
                                          .unfused = true,
                                          .fused = 1e-6,
                                          .unfused_of = both,
                                          .begin = fake_forget,
                                          .has_run = has_run,
                                          .count = count,
                                          .claim =
                                              "CUDA's kernels give what the CPU's do",
                                          .some = some };

    static const char *const rounded[] = { "deepseek-v2", "gpt-oss-odd", "llama-yarn",
                                           "mixtral",     "neox",        NULL };
    static struct backend wide;
    const struct device_models held = { .ops = &backend_cuda,
                                        .beside = &wide,
                                        .only = rounded,
                                        .held = rounded,
                                        .coded = true,
                                        .begin = fake_forget,
                                        .has_run = has_run,
                                        .count = count,
                                        .claim = "values in bf16 change no bit on CUDA",
                                        .some = rounded };

    setenv("FAKE_GPUS", "3", 0);
    wide = backend_cuda;
    wide.bf16 = NULL;
    device_store(&models);
    device_models_try(&held);
    return device_models(&models);
}
