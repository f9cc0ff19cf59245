/* real-models - every model on a GPU, on one rank, gives what it gives on the CPU
 *
 * Several ranks are processes that are forked, which a process that has used a GPU
 * cannot do: they are tests/gpu/run's, by tp-run. */
#include <stddef.h>

#include "tests/device-models.h"

static bool has_run(void)
{
    return true;
}

int main(void)
{
    static const char *const both[] = { "deepseek-v2",  "gemma3", "mistral-window",
                                        "mixtral",      "neox",   "olmo2",
                                        "qwen2-window", NULL };
    static const char *const rounded[] = { "deepseek-v2", "gpt-oss-odd", "llama-yarn",
                                           "mixtral",     "neox",        NULL };
    const struct device_models models = { .ops = &backend_cuda,
                                          .bound = 1e-4,
                                          .narrow = 1e-4,
                                          .unfused = true,
                                          .fused = 1e-5,
                                          .unfused_of = both,
                                          .has_run = has_run,
                                          .claim = "the GPU gives what the CPU does",
                                          .alone = true };
    static struct backend wide;
    const struct device_models held = { .ops = &backend_cuda,
                                        .beside = &wide,
                                        .only = rounded,
                                        .held = rounded,
                                        .coded = true,
                                        .has_run = has_run,
                                        .claim = "values in bf16 change no bit",
                                        .alone = true };

    wide = backend_cuda;
    wide.bf16 = NULL;
    device_models_try(&held);
    return device_models(&models);
}
