/* experts-back - gradients of experts' rows and of their weights
 *
 * Row i of those sent to experts is token index[i]'s; COUNTS [experts + 1] has how many
 * come before each expert's.  Blocks handle a row each. */
#include "lib/gpu/back.h"
#include "lib/gpu/quads.cuh"

enum { MOST_WARPS = GPU_MOST_THREADS / GPU_WARP };

/* The expert of row I. */
static __device__ int32_t expert_of(const int32_t *counts, int32_t n, int64_t i)
{
    int32_t low = 0, high = n;

    while (high - low > 1) {
        int32_t mid = (low + high) / 2;

        if (counts[mid] <= i)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static __global__ void spread_kernel(float *y, const float *d, const float *r,
                                     struct sent_rows s, struct span rows,
                                     uint64_t cols)
{
    EACH_ROW(i, rows)
    {
        int64_t t = s.index[i];
        float by =
            r[t * (int64_t)s.all + (int64_t)s.first + expert_of(s.counts, s.count, i)];

        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
            y[i * (int64_t)cols + k] = by * d[t * (int64_t)cols + k];
    }
}

extern "C" void gpu_expert_spread(float *y, const float *d, const float *r,
                                  struct sent_rows s, struct span rows, uint64_t cols,
                                  void *stream)
{
    if (rows.most)
        LAUNCH(spread_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, d, r, s,
               rows, cols);
}

static __global__ void __launch_bounds__(GPU_MOST_THREADS)
    expert_dot_kernel(float *y, const float *d, const float *a, struct sent_rows s,
                      struct span rows, uint64_t cols)
{
    SHARED(double, part, MOST_WARPS);

    EACH_ROW(i, rows)
    {
        int64_t t = s.index[i];
        double sum = 0;

        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
            sum += (double)d[t * (int64_t)cols + k] * (double)a[i * (int64_t)cols + k];
        sum = block_sum(sum, part);
        if (threadIdx.x == 0)
            y[t * (int64_t)s.all + (int64_t)s.first + expert_of(s.counts, s.count, i)] =
                (float)sum;
        __syncthreads();
    }
}

extern "C" void gpu_expert_dot(float *y, const float *d, const float *a,
                               struct sent_rows s, struct span rows, uint64_t cols,
                               void *stream)
{
    if (rows.most)
        LAUNCH(expert_dot_kernel, gpu_blocks(rows.most, 1), threads_of_row(cols),
               stream, y, d, a, s, rows, cols);
}

/* The choice is no function of the scores; a chosen one's weight is its score, or its
 * share of those chosen.  y is 0 before; a thread has a row. */
static __global__ void route_back_kernel(float *y, const float *d, const float *x,
                                         const int32_t *choice, struct routing r,
                                         struct span rows, uint64_t cols)
{
    int64_t t = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;

    for (; t < end_row(rows, 0); t += gridDim.x * (int64_t)blockDim.x) {
        const int32_t *own = choice + t * (int64_t)r.top;
        const float *g = d + t * (int64_t)cols, *s = x + t * (int64_t)cols;
        double sum = 1e-20, by = 0, factor = r.scale;

        for (uint64_t i = 0; i < r.top && own[i] >= 0; i++) {
            sum += (double)s[own[i]];
            by += (double)g[own[i]] * (double)s[own[i]];
        }
        if (r.renorm)
            factor /= sum;
        for (uint64_t i = 0; i < r.top && own[i] >= 0; i++)
            y[t * (int64_t)cols + own[i]] =
                (float)(factor * ((double)g[own[i]] - (r.renorm ? by / sum : 0)));
    }
}

extern "C" void gpu_route_back(float *y, const float *d, const float *x,
                               const int32_t *choice, struct routing r,
                               struct span rows, uint64_t cols, void *stream)
{
    if (rows.most && cols)
        LAUNCH(route_back_kernel, gpu_blocks(rows.most, GPU_THREADS), GPU_THREADS,
               stream, y, d, x, choice, r, rows, cols);
}
