/* result - reductions over a row of logits: statistics, likelihood, argmax; softmax
 *
 * Statistics of a row [4], f64: the maximum, the sum of exp(x - maximum), the target's
 * value, the index of the maximum; -inf for a maximum or target that the rank lacks. */
#include "lib/gpu/device.cuh"

enum { STATS = 4, WARPS = GPU_THREADS / GPU_WARP };

struct place {
    float value;
    uint64_t index;
};

/* The larger of A and B; the first if they are equal. */
static __device__ struct place larger(struct place a, struct place b)
{
    return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

/* The maximum of a row over a block, returned to all threads; PART as in block_sum. */
static __device__ struct place block_largest(const float *x, uint64_t cols,
                                             struct place *part)
{
    struct place best = { -INFINITY, ~(uint64_t)0 };

    for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
        if (x[k] > best.value)
            best = { x[k], k };
    for (int bits = GPU_WARP / 2; bits; bits /= 2)
        best = larger(best, { __shfl_xor_sync(~0u, best.value, bits),
                              __shfl_xor_sync(~0u, best.index, bits) });
    if (threadIdx.x % GPU_WARP == 0)
        part[threadIdx.x / GPU_WARP] = best;
    __syncthreads();
    for (unsigned w = 0; w < WARPS; w++)
        best = larger(best, part[w]);
    if (best.index == ~(uint64_t)0)
        best.index = 0;
    return best;
}

static __global__ void row_stats_kernel(double *y, const float *x, const int32_t *target,
                                        struct span rows, uint64_t cols, uint64_t first)
{
    SHARED(struct place, part, WARPS);
    SHARED(double, sums, WARPS);

    EACH_ROW(t, rows)
    {
        const float *xt = x + t * cols;
        struct place best = block_largest(xt, cols, part);
        double sum = 0;

        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
            sum += exp((double)xt[k] - (double)best.value);
        sum = block_sum(sum, sums);
        if (threadIdx.x == 0) {
            int64_t own = target ? (int64_t)target[t] - (int64_t)first : -1;
            bool held = own >= 0 && own < (int64_t)cols && target[t] >= 0;

            y[t * STATS] = (double)best.value;
            y[t * STATS + 1] = sum;
            y[t * STATS + 2] = held ? (double)xt[own] : -INFINITY;
            y[t * STATS + 3] = (double)(first + best.index);
        }
    }
}

extern "C" void gpu_row_stats(double *y, const float *x, const int32_t *target,
                              struct span rows, uint64_t cols, uint64_t first,
                              void *stream)
{
    if (rows.most)
        LAUNCH(row_stats_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x,
               target, rows, cols, first);
}

/* Reduces row T's statistics over all ranks, in rank order; STATS is
 * [parts][rows][STATS]. */
static __device__ void all_stats(double r[STATS], const double *stats, uint64_t parts,
                                 int64_t rows, int64_t t)
{
    for (int i = 0; i < STATS; i++)
        r[i] = stats[t * STATS + i];
    for (uint64_t k = 1; k < parts; k++) {
        const double *o = stats + (k * rows + t) * STATS;
        double max = o[0] > r[0] ? o[0] : r[0];

        if (o[0] == -INFINITY)
            continue;
        r[1] = r[1] * exp(r[0] - max) + o[1] * exp(o[0] - max);
        r[3] = o[0] > r[0] ? o[3] : r[3];
        r[0] = max;
        r[2] = o[2] > r[2] ? o[2] : r[2];
    }
}

template <bool LARGEST>
static __global__ void from_stats_kernel(float *y, const double *stats, uint64_t parts,
                                         struct span rows)
{
    int64_t end = end_row(rows, 0);
    double r[STATS];

    for (int64_t t = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; t < end;
         t += gridDim.x * (int64_t)blockDim.x) {
        all_stats(r, stats, parts, end, t);
        y[t] = LARGEST ? (float)r[3] : (float)(r[0] + log(r[1]) - r[2]);
    }
}

extern "C" void gpu_nll(float *y, const double *stats, uint64_t parts, struct span rows,
                        void *stream)
{
    if (rows.most)
        LAUNCH(from_stats_kernel<false>, gpu_blocks(rows.most, GPU_THREADS), GPU_THREADS,
               stream, y, stats, parts, rows);
}

extern "C" void gpu_argmax(float *y, const double *stats, uint64_t parts,
                           struct span rows, void *stream)
{
    if (rows.most)
        LAUNCH(from_stats_kernel<true>, gpu_blocks(rows.most, GPU_THREADS), GPU_THREADS,
               stream, y, stats, parts, rows);
}

/* y[t] = exp(x[t] - maximum) / sum */
static __global__ void softmax_kernel(float *y, const float *x, struct span rows,
                                      uint64_t cols)
{
    SHARED(struct place, part, WARPS);
    SHARED(double, sums, WARPS);

    EACH_ROW(t, rows)
    {
        const float *xt = x + t * cols;
        float most = block_largest(xt, cols, part).value;
        double sum = 0;

        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x) {
            float e = expf(xt[k] - most);

            y[t * cols + k] = e;
            sum += (double)e;
        }
        sum = block_sum(sum, sums);
        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
            y[t * cols + k] = (float)((double)y[t * cols + k] / sum);
    }
}

extern "C" void gpu_softmax(float *y, const float *x, struct span rows, uint64_t cols,
                            void *stream)
{
    if (rows.most && cols)
        LAUNCH(softmax_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x, rows,
               cols);
}
