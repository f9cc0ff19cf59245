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
    static const char *const none[] = { NULL };
    const struct device_models models = { .ops = &backend_cuda,
                                          .bound = 1e-4,
                                          .narrow = 1e-4,
                                          .has_run = has_run,
                                          .claim = "the GPU gives what the CPU does",
                                          .some = none };

    return device_models(&models);
}
