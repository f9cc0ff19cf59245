/* rounding - stochastic rounding to bf16
 *
 * y[i] = x[i], up or down by the random bits of its place; a thread has every so many
 * elements. */
#include "lib/device/rounding.h"
#include "lib/gpu/gpuround.h"
#include "lib/gpu/words.cuh"

static __global__ void round_kernel(struct rounding r)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < r.n;
         i += gridDim.x * (uint64_t)blockDim.x) {
        const uint64_t place = rounding_place(&r, i);
        uint32_t word[4];

        rounding_words(word, &r, place / ROUNDING_EACH);
        r.y[i] = rounding_bf16(__float_as_uint(r.x[i]), word, place);
    }
}

extern "C" void gpu_round(struct rounding r, void *stream)
{
    if (r.n)
        LAUNCH(round_kernel, gpu_blocks(r.n, GPU_THREADS), GPU_THREADS, stream, r);
}
