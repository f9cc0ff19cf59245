/* experts - top-k experts of each row, their weights, and the experts' rows
 *
 * A warp handles one row: it selects the top-k experts one after another, limited to
 * the best groups if there are groups (DeepSeek-V2, 2024, section 2.2.2; V3 scores a
 * group by the sum of its two best experts). */
#include "lib/gpu/device.cuh"

/* Index of the largest of the N values at X, the first of equals; *most is its value.
 * Synchronizes the warp before and after reading X. */
static __device__ uint64_t largest(const float *x, uint64_t n, float *most)
{
    uint64_t best = threadIdx.x < n ? threadIdx.x : 0;
    float value;

    __syncwarp();
    value = x[best];
    for (uint64_t k = threadIdx.x + GPU_WARP; k < n; k += GPU_WARP)
        if (x[k] > value) {
            best = k;
            value = x[k];
        }
    for (int bits = GPU_WARP / 2; bits; bits /= 2) {
        float other = __shfl_xor_sync(~0u, value, bits);
        uint64_t at = __shfl_xor_sync(~0u, best, bits);

        if (other > value || (other == value && at < best)) {
            best = at;
            value = other;
        }
    }
    *most = value;
    return best;
}

/* Lane 0 writes; other lanes see it after the next warp operation. */
static __device__ void set(float *at, float value)
{
    if (threadIdx.x == 0)
        *at = value;
}

/* Sets the scores outside the best groups to -INFINITY.  SPARE has room for a row, SUM
 * for the groups. */
static __device__ void limit_groups(float *score, float *spare, float *sum,
                                    uint64_t cols, const struct routing *r)
{
    uint64_t size = cols / r->groups;

    for (uint64_t k = threadIdx.x; k < cols; k += GPU_WARP)
        spare[k] = score[k];
    for (uint64_t g = 0; g < r->groups; g++) {
        float all = 0, most;

        for (uint64_t i = 0; i < r->best; i++) {
            uint64_t at = g * size + largest(spare + g * size, size, &most);

            all += most;
            set(spare + at, -INFINITY);
        }
        set(sum + g, all);
    }
    for (uint64_t i = 0; i < r->of; i++) {
        float most;
        uint64_t g = largest(sum, r->groups, &most);

        set(sum + g, -INFINITY); /* marks it as selected */
    }
    __syncwarp();
    for (uint64_t k = threadIdx.x; k < cols; k += GPU_WARP)
        if (sum[k / size] > -INFINITY)
            score[k] = -INFINITY;
}

static __global__ void choose_kernel(int32_t *choice, const float *x, struct routing r,
                                     struct span rows, uint64_t cols)
{
    SHARED(float, score, GPU_EXPERTS);
    SHARED(float, spare, GPU_EXPERTS);
    SHARED(float, group, GPU_EXPERTS);

    EACH_ROW(t, rows)
    {
        bool none = false;

        for (uint64_t k = threadIdx.x; k < cols; k += GPU_WARP)
            score[k] = x[t * cols + k] +
                       (r.bias.data ? widen(r.bias.format, r.bias.data, k) : 0);
        if (r.of < r.groups)
            limit_groups(score, spare, group, cols, &r);
        for (uint64_t i = 0; i < r.top; i++) {
            float most;
            uint64_t k = largest(score, cols, &most);

            none = none || (i && most == -INFINITY);
            set(score + k, -INFINITY);
            if (threadIdx.x == 0)
                choice[t * r.top + i] = none ? -1 : (int32_t)k;
        }
        __syncwarp();
    }
}

extern "C" void gpu_choose(int32_t *choice, const float *x, struct routing r,
                           struct span rows, uint64_t cols, void *stream)
{
    if (rows.most && cols)
        LAUNCH(choose_kernel, gpu_blocks(rows.most, 1), GPU_WARP, stream, choice, x, r,
               rows, cols);
}

/* Softmax weight of a row's I-th choice over the experts that were not chosen before
 * and whose scores are near it (SparseMixer, as in PhiMoE): 1 / sum of exp(score - its
 * score). */
static __device__ double near_softmax(const float *x, uint64_t cols, const int32_t *own,
                                      uint64_t i, double near)
{
    double best = x[own[i]], sum = 0;

    for (uint64_t k = 0; k < cols; k++) {
        double score = x[k], size = fabs(score);
        bool before = false;

        for (uint64_t j = 0; j < i; j++)
            before = before || (uint64_t)own[j] == k;
        if (!before && best - score <= near * (size > best ? size : best))
            sum += exp(score - best);
    }
    return 1 / sum;
}

/* y[t][e] = x[t][e] scale for chosen experts, divided by their sum if renorm, 0 for
 * other experts; with near, a softmax */
static __global__ void route_kernel(float *y, const float *x, const int32_t *choice,
                                    struct routing r, struct span rows, uint64_t cols)
{
    EACH_ROW(t, rows)
    {
        const float *xt = x + t * cols;
        const int32_t *own = choice + t * r.top;
        double sum = 0, factor = r.scale;

        for (uint64_t i = 0; i < r.top && own[i] >= 0; i++)
            sum += (double)xt[own[i]];
        if (r.renorm)
            factor /= sum + 1e-20;
        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x) {
            double weight = 0;

            for (uint64_t i = 0; i < r.top && own[i] >= 0; i++)
                if ((uint64_t)own[i] == k)
                    weight = r.near > 0 ? near_softmax(xt, cols, own, i, r.near)
                                        : (double)xt[k];
            y[t * cols + k] = (float)(weight * factor);
        }
    }
}

extern "C" void gpu_route(float *y, const float *x, const int32_t *choice,
                          struct routing r, struct span rows, uint64_t cols,
                          void *stream)
{
    if (rows.most && cols)
        LAUNCH(route_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x,
               choice, r, rows, cols);
}

/* ---- rows of the experts ---- */

enum { COUNT_THREADS = 8 * GPU_THREADS };

/* The sum of V over the lanes before this one; *all is that over all. */
static __device__ inline int32_t sum_before(int32_t v, int32_t *all)
{
    unsigned lane = threadIdx.x % GPU_WARP;
    int32_t sum = v;

    for (unsigned k = 1; k < GPU_WARP; k *= 2) {
        int32_t other = __shfl_sync(~0u, sum, (lane - k) % GPU_WARP);

        sum += lane >= k ? other : 0;
    }
    *all = __shfl_sync(~0u, sum, GPU_WARP - 1);
    return sum - v;
}

/* y[e + 1] = number of rows sent to experts 0 to e; a warp counts those of an expert */
static __global__ void expert_count_kernel(int32_t *y, const int32_t *choice,
                                           struct span rows, uint64_t top,
                                           uint64_t count)
{
    uint32_t end = (uint32_t)(end_row(rows, 0) * (int64_t)top);
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    int32_t before = 0;

    for (uint32_t e = warp; e < count; e += COUNT_THREADS / GPU_WARP) {
        int32_t n = 0, all;

        for (uint32_t i = lane; i < end; i += GPU_WARP)
            n += choice[i] == (int32_t)e;
        sum_before(n, &all);
        if (lane == 0)
            y[e + 1] = all;
    }
    __syncthreads();
    if (warp)
        return;
    if (lane == 0)
        y[0] = 0;
    for (uint32_t e = lane; e - lane < count; e += GPU_WARP) {
        int32_t n = e < count ? y[e + 1] : 0, all, sum = sum_before(n, &all);

        if (e < count)
            y[e + 1] = before + sum + n;
        before += all;
    }
}

extern "C" void gpu_expert_count(int32_t *y, const int32_t *choice, struct span rows,
                                 uint64_t top, uint64_t count, void *stream)
{
    LAUNCH(expert_count_kernel, 1, COUNT_THREADS, stream, y, choice, rows, top, count);
}

/* y[counts[e] + i] = the i-th row sent to expert e, which a warp looks for */
static __global__ void expert_index_kernel(int32_t *y, const int32_t *choice,
                                           const int32_t *counts, struct span rows,
                                           uint64_t top)
{
    uint32_t end = (uint32_t)(end_row(rows, 0) * (int64_t)top);
    int32_t e = (int32_t)blockIdx.x, at = counts[e];

    for (uint32_t i = threadIdx.x; i - threadIdx.x < end; i += GPU_WARP) {
        int32_t mine = i < end && choice[i] == e, all, before = sum_before(mine, &all);

        if (mine)
            y[at + before] = (int32_t)(i / (uint32_t)top);
        at += all;
    }
}

extern "C" void gpu_expert_index(int32_t *y, const int32_t *choice,
                                 const int32_t *counts, struct span rows, uint64_t top,
                                 uint64_t count, void *stream)
{
    if (rows.most && count)
        LAUNCH(expert_index_kernel, (unsigned)count, GPU_WARP, stream, y, choice,
               counts, rows, top);
}

/* Binary search of row T in INDEX[first .. end), which is ascending; END if absent. */
static __device__ int32_t place_of(const int32_t *index, int32_t first, int32_t end,
                                   int64_t t)
{
    int32_t last = end;

    while (first < end) {
        int32_t middle = first + (end - first) / 2;

        if (index[middle] < t)
            first = middle + 1;
        else
            end = middle;
    }
    return first < last && index[first] == t ? first : last;
}

/* y[t] = sum over its experts e, in order, of route[t][e] x[place_of(t)] */
static __global__ void expert_combine_kernel(float *y, const float *x,
                                             const float *route, const int32_t *index,
                                             const int32_t *counts, struct span rows,
                                             uint64_t cols, uint64_t count)
{
    SHARED(float, weight, GPU_EXPERTS);
    SHARED(int32_t, place, GPU_EXPERTS);

    EACH_ROW(t, rows)
    {
        for (uint64_t e = threadIdx.x; e < count; e += blockDim.x) {
            weight[e] = route[t * count + e];
            if (weight[e] != 0)
                place[e] = place_of(index, counts[e], counts[e + 1], t);
        }
        __syncthreads();
        for (uint64_t k = blockIdx.y * blockDim.x + threadIdx.x; k < cols;
             k += gridDim.y * blockDim.x) {
            float sum = 0;

            for (uint64_t e = 0; e < count; e++)
                if (weight[e] != 0)
                    sum += weight[e] * x[place[e] * cols + k];
            y[t * cols + k] = sum;
        }
        __syncthreads();
    }
}

extern "C" void gpu_expert_combine(float *y, const float *x, const float *route,
                                   const int32_t *index, const int32_t *counts,
                                   struct span rows, uint64_t cols, uint64_t count,
                                   void *stream)
{
    if (rows.most && cols)
        LAUNCH(expert_combine_kernel,
               dim3(gpu_blocks(rows.most, 1), gpu_blocks(cols, GPU_THREADS)),
               GPU_THREADS, stream, y, x, route, index, counts, rows, cols, count);
}
