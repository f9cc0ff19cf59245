/* gpu-training - steps of training on the CUDA backend give what they give on the CPU
 *
 * Over the fakes, as gpu-models; GPU_REAL: on a GPU, on one rank.  `make check` runs
 * those that are .often; with LONG in the environment all of them are. */
#include <stdlib.h>
#include <string.h>

#include "tests/device-training.h"

#ifdef GPU_REAL
static bool has_run(void)
{
    return true;
}
#else
#include "tests/emu/emu.h"
#include "tests/fake/cudart.h"

static bool has_run(void)
{
    return emu_blocks() > 0;
}

static void count(const char *backend, uint64_t *bytes, uint64_t *times)
{
    size_t used = 0, so_often = 0;

    if (!strcmp(backend, "cuda"))
        fake_memory(&used, &so_often);
    *bytes = used;
    *times = so_often;
}
#endif

static const struct device_gradients all[] = {
    { .model = "llama-gqa", .name = "", .bound = 1e-5 },
    { .model = "llama-awkward", .name = "", .bound = 1e-5 },
    { .model = "mistral-window", .name = "a window", .often = true, .bound = 1e-5 },
    { .model = "qwen3", .name = "", .bound = 1e-5 },
    { .model = "gpt2-hub", .name = "", .often = true, .bound = 1e-5 },
    { .model = "gemma2", .name = "caps", .often = true, .bound = 1e-5 },
    { .model = "llama-gqa",
      .name = "bf16",
      .bound = 3e-2,
      .compute = FORMAT_BF16,
      .length = 40 },
    { .model = "mistral-window",
      .name = "bf16",
      .often = true,
      .bound = 3e-2,
      .compute = FORMAT_BF16,
      .length = 40 },
    { .model = "gemma2",
      .name = "bf16 and caps",
      .bound = 3e-2,
      .compute = FORMAT_BF16,
      .length = 40 },
    { .model = "llama-awkward", .name = "bf16", .bound = 3e-2, .compute = FORMAT_BF16 },
    { .model = "llama-gqa", .name = "tp 2", .bound = 1e-5, .tp = 2 },
    { .model = "gemma3", .name = "tp 2", .bound = 1e-5, .tp = 2 },
    { .model = "llama-gqa",
      .name = "dp 2, and weights shared",
      .often = true,
      .bound = 1e-5,
      .dp = 2,
      .zero = 3 },
    { .model = "llama-gqa", .name = "pp 2", .bound = 1e-5, .pp = 2 },
    { .model = "neox",
      .name = "pp 2, and tp 2",
      .often = true,
      .bound = 1e-5,
      .pp = 2,
      .tp = 2 },
    /* biases of keys, and weights of a softmax that are nearly equal, cancel: one
     * weight of each is beyond 1e-5, by 4e-7 and 1e-7 of gradients up to 0.3 and 0.5 */
    { .model = "gpt-oss", .name = "sinks and experts", .often = true, .bound = 1.5e-5 },
    { .model = "mixtral", .name = "experts", .bound = 1e-5 },
    { .model = "deepseek-v2", .name = "latent attention", .bound = 1.5e-5 },
    { .model = "mixtral", .name = "experts on tp 2", .bound = 1e-5, .tp = 2 },
    { .model = "qwen3",
      .name = "all computed again",
      .often = true,
      .bound = 1e-5,
      .recompute = { .kind = RECOMPUTE_FULL } },
    { .model = "bloom", .name = "slopes", .often = true, .bound = 1e-5 },
    /* the gradients of keys' biases are 0, but for rounding: 5e-8 of the largest of
     * all; those of all other weights are within 1e-5 */
    { .model = "opt", .name = "", .often = true, .bound = 1e-5, .floor = 1e-2 },
};

int main(int argc, char **argv)
{
#ifdef GPU_REAL
    const struct device_models models = {
        .ops = &backend_cuda, .bound = 10, .alone = true, .has_run = has_run
    };
#else
    const struct device_models models = {
        .ops = &backend_cuda, .begin = fake_forget, .has_run = has_run, .count = count
    };

    setenv("FAKE_GPUS", "4", 0);
#endif
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (argc < 2 ? models.alone || getenv("LONG") || all[i].often
                     : !strcmp(argv[1], all[i].model))
            device_gradients(&models, &all[i], 1);
    return device_done();
}
