/* result - reductions over a row of logits: statistics, likelihood, argmax; softmax
 *
 * Statistics of a row [4], f64: the maximum, the sum of exp(x - maximum), the target's
 * value, the index of the maximum; -inf for a maximum or target that the rank lacks.
 * The sum is NaN for a row with a NaN or +inf, and 0 for one of -inf alone.  A row is
 * divided into chunks of CHUNK columns; a block handles one chunk, and a second
 * kernel adds up the results of a row in their order. */
#include "lib/gpu/bounds.h"
#include "lib/gpu/quads.cuh"

/* PART: numbers that a chunk gives.  Threads of a block of one chunk, and quads of a
 * thread. */
enum { STATS = 4, PART = GPU_STATS_PART, KEPT = GPU_STATS_KEPT };
enum {
    CHUNK_THREADS = GPU_STATS_THREADS,
    CHUNK = GPU_STATS_CHUNK,
    MOST_WARPS = GPU_MOST_THREADS / GPU_WARP
};

struct place {
    float value;
    uint32_t index;
};

static const uint32_t NOWHERE = ~0u;

/* The larger of A and B; the first if they are equal. */
static __device__ struct place larger(struct place a, struct place b)
{
    return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

/* The larger of BEST and the first LEFT of four columns from K on. */
static __device__ struct place larger_of(struct place best, float4 v, uint32_t k,
                                         uint32_t left)
{
    if (v.x > best.value)
        best = { v.x, k };
    if (left > 1 && v.y > best.value)
        best = { v.y, k + 1 };
    if (left > 2 && v.z > best.value)
        best = { v.z, k + 2 };
    if (left > 3 && v.w > best.value)
        best = { v.w, k + 3 };
    return best;
}

static __device__ struct place warp_largest(struct place best)
{
    for (int bits = GPU_WARP / 2; bits; bits /= 2)
        best = larger(best, { __shfl_xor_sync(~0u, best.value, bits),
                              __shfl_xor_sync(~0u, best.index, bits) });
    return best;
}

/* The largest of a block, returned to all threads; PART as in block_sum. */
static __device__ struct place block_largest(struct place best, struct place *part)
{
    unsigned warps = blockDim.x / GPU_WARP;

    best = warp_largest(best);
    if (threadIdx.x % GPU_WARP == 0)
        part[threadIdx.x / GPU_WARP] = best;
    __syncthreads();
    return warp_largest(part[threadIdx.x & (warps - 1)]);
}

/* part[t][chunk] = the maximum of a chunk, the sum of exp(x - maximum), the index of
 * the maximum; chunks are gridDim.y. */
template <bool WIDE>
static __global__ void chunk_stats_kernel(double *part, const float *x,
                                          struct span rows, uint32_t cols)
{
    SHARED(struct place, largest, CHUNK_THREADS / GPU_WARP);
    SHARED(double, sums, CHUNK_THREADS / GPU_WARP);
    uint32_t first = blockIdx.y * CHUNK + 4 * threadIdx.x, step = 4 * CHUNK_THREADS;

    others_ended();
    EACH_ROW(t, rows)
    {
        const float *xt = x + t * (int64_t)cols;
        double *to = part + (t * gridDim.y + blockIdx.y) * PART, most, sum = 0;
        struct place best = { -INFINITY, NOWHERE };
        float4 v[KEPT];

        for (uint32_t j = 0, k = first; j < KEPT; j++, k += step)
            if (k < cols)
                v[j] = load_quad<WIDE>(xt + k, cols - k);
        for (uint32_t j = 0, k = first; j < KEPT; j++, k += step)
            if (k < cols)
                best = larger_of(best, v[j], k, WIDE ? 4 : cols - k);
        best = block_largest(best, largest);
        /* a chunk of -inf alone adds 0 */
        most = best.index == NOWHERE ? 0 : (double)best.value;
        for (uint32_t j = 0, k = first; j < KEPT; j++, k += step) {
            uint32_t left = k < cols ? cols - k : 0;
            float e[4] = { v[j].x, v[j].y, v[j].z, v[j].w };

            for (uint32_t i = 0; i < 4; i++)
                if (i < left)
                    sum += exp((double)e[i] - most);
        }
        sum = block_sum(sum, sums);
        if (threadIdx.x == 0) {
            to[0] = (double)best.value;
            to[1] = sum;
            to[2] = (double)best.index;
        }
    }
}

/* A warp handles a row of CHUNKS chunks. */
static __global__ void row_stats_kernel(double *y, const double *part, uint32_t chunks,
                                        const float *x, const int32_t *target,
                                        struct span rows, uint64_t cols, uint64_t first)
{
    unsigned lane = threadIdx.x % GPU_WARP, warps = blockDim.x / GPU_WARP;
    int64_t t;

    others_ended();
    t = first_row(rows, 0) + (int64_t)blockIdx.x * warps + threadIdx.x / GPU_WARP;
    for (; t < end_row(rows, 0); t += (int64_t)gridDim.x * warps) {
        const double *from = part + t * chunks * PART;
        struct place best = { -INFINITY, NOWHERE };
        double most, sum = 0;

        for (uint32_t c = lane; c < chunks; c += GPU_WARP)
            best =
                larger(best, { (float)from[c * PART], (uint32_t)from[c * PART + 2] });
        best = warp_largest(best);
        most = (double)best.value;
        for (uint32_t c = lane; c < chunks; c += GPU_WARP)
            sum += from[c * PART] > -INFINITY
                       ? from[c * PART + 1] * exp(from[c * PART] - most)
                       : from[c * PART + 1];
        sum = warp_sum(sum);
        if (lane == 0) {
            int64_t own = target ? (int64_t)target[t] - (int64_t)first : -1;
            bool held = own >= 0 && own < (int64_t)cols && target[t] >= 0;

            y[t * STATS] = most;
            y[t * STATS + 1] = sum;
            y[t * STATS + 2] = held ? (double)x[t * cols + own] : -INFINITY;
            y[t * STATS + 3] =
                (double)(first + (best.index == NOWHERE ? 0 : best.index));
        }
    }
}

static uint64_t chunks_of(uint64_t cols)
{
    return (cols + CHUNK - 1) / CHUNK;
}

extern "C" void gpu_row_stats(double *y, const float *x, const int32_t *target,
                              struct span rows, uint64_t cols, uint64_t first,
                              double *part, void *stream)
{
    uint32_t chunks = (uint32_t)chunks_of(cols);
    dim3 grid(gpu_blocks(rows.most, 1), chunks);

    if (!rows.most)
        return;
    if (chunks && is_wide(x, cols))
        LAUNCH_EARLY(chunk_stats_kernel<true>, grid, CHUNK_THREADS, stream, part, x,
                     rows, (uint32_t)cols);
    else if (chunks)
        LAUNCH_EARLY(chunk_stats_kernel<false>, grid, CHUNK_THREADS, stream, part, x,
                     rows, (uint32_t)cols);
    LAUNCH_EARLY(row_stats_kernel, gpu_blocks(rows.most, GPU_THREADS / GPU_WARP),
                 GPU_THREADS, stream, y, part, chunks, x, target, rows, cols, first);
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

        if (o[0] == -INFINITY && o[1] == 0)
            continue;
        r[1] = r[1] * exp(r[0] - max) + o[1] * exp(o[0] - max);
        r[3] = o[0] > r[0] ? o[3] : r[3];
        r[0] = max;
        r[2] = o[2] > r[2] ? o[2] : r[2];
    }
}

template <bool LARGEST>
static __global__ void from_stats_kernel(void *y, const double *stats, uint64_t parts,
                                         struct span rows)
{
    int64_t end;
    double r[STATS];

    others_ended();
    end = end_row(rows, 0);
    for (int64_t t = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; t < end;
         t += gridDim.x * (int64_t)blockDim.x) {
        all_stats(r, stats, parts, end, t);
        if (LARGEST)
            ((int32_t *)y)[t] = r[1] > 0 ? (int32_t)r[3] : -1;
        else
            ((float *)y)[t] = (float)(r[0] + log(r[1]) - r[2]);
    }
}

extern "C" void gpu_nll(float *y, const double *stats, uint64_t parts, struct span rows,
                        void *stream)
{
    if (rows.most)
        LAUNCH_EARLY(from_stats_kernel<false>, gpu_blocks(rows.most, GPU_THREADS),
                     GPU_THREADS, stream, y, stats, parts, rows);
}

extern "C" void gpu_argmax(int32_t *y, const double *stats, uint64_t parts,
                           struct span rows, void *stream)
{
    if (rows.most)
        LAUNCH_EARLY(from_stats_kernel<true>, gpu_blocks(rows.most, GPU_THREADS),
                     GPU_THREADS, stream, y, stats, parts, rows);
}

/* y[t] = exp(x[t] - maximum) / sum; a block handles a row, which it reads again for
 * each pass, from the caches. */
template <bool WIDE>
static __global__ void __launch_bounds__(GPU_MOST_THREADS)
    softmax_kernel(float *y, const float *x, struct span rows, uint32_t cols)
{
    SHARED(struct place, part, MOST_WARPS);
    SHARED(double, sums, MOST_WARPS);

    EACH_ROW(t, rows)
    {
        const float *xt = x + t * (int64_t)cols;
        struct place best = { -INFINITY, NOWHERE };
        float *yt = y + t * (int64_t)cols, most, high, low;
        double sum = 0;

        EACH_QUAD(k, cols, y)
        best = larger_of(best, load_quad<WIDE>(xt + k, cols - k), k, cols - k);
        most = block_largest(best, part).value;
        EACH_QUAD(k, cols, y)
        {
            float4 v = load_quad<WIDE>(xt + k, cols - k);
            uint32_t left = cols - k;

            sum += (double)expf(v.x - most);
            sum += left > 1 ? (double)expf(v.y - most) : 0;
            sum += left > 2 ? (double)expf(v.z - most) : 0;
            sum += left > 3 ? (double)expf(v.w - most) : 0;
        }
        sum = 1 / block_sum(sum, sums);
        high = (float)sum;
        low = (float)(sum - (double)high);
        EACH_QUAD(k, cols, y)
        {
            float4 v = load_quad<WIDE>(xt + k, cols - k);

            v = float4{ expf(v.x - most), expf(v.y - most), expf(v.z - most),
                        expf(v.w - most) };
            store_quad<WIDE>(
                yt + k, cols - k,
                float4{ fmaf(v.x, high, v.x * low), fmaf(v.y, high, v.y * low),
                        fmaf(v.z, high, v.z * low), fmaf(v.w, high, v.w * low) });
        }
    }
}

extern "C" void gpu_softmax(float *y, const float *x, struct span rows, uint64_t cols,
                            void *stream)
{
    unsigned blocks = gpu_blocks(rows.most, 1), threads = threads_of_row(cols);

    if (!rows.most || !cols)
        return;
    if (is_wide(x, cols) && is_wide(y, cols))
        LAUNCH(softmax_kernel<true>, blocks, threads, stream, y, x, rows,
               (uint32_t)cols);
    else
        LAUNCH(softmax_kernel<false>, blocks, threads, stream, y, x, rows,
               (uint32_t)cols);
}
