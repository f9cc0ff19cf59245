/* elementwise-back - gradients element by element, and of softmax
 *
 * y[t][k] = d[t][k] f'(x[t][k]), where d is the gradient of f(x); all have COLS
 * columns. */
#include "lib/gpu/back.h"
#include "lib/gpu/quads.cuh"
#include "lib/program/activation.h"

template <int WHAT>
static __device__ float apply(float d, float x, float number, float least)
{
    float t;

    switch (WHAT) {
    case GPU_SOFTCAP:
        t = tanhf(x / number);
        return d * (1 - t * t);
    case GPU_CLIP: /* it passes at the bounds themselves, as in PyTorch */
        return x > number || x < least ? 0 : d;
    }
    return d * activation_derivative((enum activation)(WHAT - GPU_ACTIVATION), x);
}

template <int WHAT, bool WIDE>
static __global__ void back_kernel(float *y, const float *d, const float *x,
                                   struct span rows, uint64_t cols, float number,
                                   float least)
{
    uint64_t end = (uint64_t)end_row(rows, 0) * cols;
    uint64_t i = (uint64_t)first_row(rows, 0) * cols +
                 4 * (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x);

    for (; i < end; i += 4 * gridDim.x * (uint64_t)blockDim.x) {
        uint32_t left = end - i < 4 ? (uint32_t)(end - i) : 4;
        float4 g = load_quad<WIDE>(d + i, left), v = load_quad<WIDE>(x + i, left);

        store_quad<WIDE>(y + i, left,
                         float4{ apply<WHAT>(g.x, v.x, number, least),
                                 apply<WHAT>(g.y, v.y, number, least),
                                 apply<WHAT>(g.z, v.z, number, least),
                                 apply<WHAT>(g.w, v.w, number, least) });
    }
}

extern "C" void gpu_elementwise_back(int what, float *y, const float *d, const float *x,
                                     struct span rows, uint64_t cols, float number,
                                     float least, void *stream)
{
    bool wide = is_wide(y, cols) && is_wide(d, cols) && is_wide(x, cols);
    unsigned blocks = gpu_blocks(rows.most * cols, 4 * GPU_THREADS);

    if (!rows.most || !cols)
        return;
#define CASE(WHAT)                                                                   \
    case WHAT:                                                                       \
        if (wide)                                                                    \
            LAUNCH((back_kernel<WHAT, true>), blocks, GPU_THREADS, stream, y, d, x,  \
                   rows, cols, number, least);                                       \
        else                                                                         \
            LAUNCH((back_kernel<WHAT, false>), blocks, GPU_THREADS, stream, y, d, x, \
                   rows, cols, number, least);                                       \
        break
#define ROW(id, ...) CASE(GPU_ACTIVATION + ACT_##id);
    switch (what) {
        CASE(GPU_SOFTCAP);
        CASE(GPU_CLIP);
        ACTIVATIONS(ROW)
    }
#undef CASE
#undef ROW
}

/* ---- softmax ---- */

enum { MOST_WARPS = GPU_MOST_THREADS / GPU_WARP };

/* y = p (d - sum of p d), where y is p before; a block handles a row. */
static __global__ void __launch_bounds__(GPU_MOST_THREADS)
    softmax_back_kernel(float *y, const float *d, struct span rows, uint64_t cols)
{
    SHARED(double, part, MOST_WARPS);

    EACH_ROW(t, rows)
    {
        float *p = y + t * (int64_t)cols;
        const float *g = d + t * (int64_t)cols;
        double sum = 0;

        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
            sum += (double)p[k] * (double)g[k];
        sum = block_sum(sum, part);
        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
            p[k] = (float)((double)p[k] * ((double)g[k] - sum));
        __syncthreads();
    }
}

extern "C" void gpu_softmax_back(float *y, const float *d, const float *x,
                                 struct span rows, uint64_t cols, void *stream)
{
    if (!rows.most || !cols)
        return;
    gpu_softmax(y, x, rows, cols, stream);
    LAUNCH(softmax_back_kernel, gpu_blocks(rows.most, 1), threads_of_row(cols), stream,
           y, d, rows, cols);
}
