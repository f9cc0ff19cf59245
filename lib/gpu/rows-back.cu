/* rows-back - gradients of tables, of rows that are taken, and of likelihoods
 *
 * Rows that belong to the same row of a table are added in their order: each row finds
 * the next with its index, and whoever is first adds all that follow. */
#include "lib/gpu/back.h"
#include "lib/gpu/quads.cuh"

/* ---- sums of rows with one index ---- */

enum { NO_ROW = -1 };

/* The row of the table that row T is added to; NO_ROW: none. */
static __device__ int64_t row_of(const struct table_rows *r, int64_t t)
{
    int64_t at = t * (int64_t)r->index.cols;
    uint64_t row =
        (uint64_t)(r->index.x[at] - (r->index.minus ? r->index.minus[at] : 0)) +
        r->offset;

    if (row == r->padding || row < r->first || row - r->first >= r->rows)
        return NO_ROW;
    return (int64_t)(row - r->first);
}

/* Is there a row of [FROM, END) with index ROW?  *found is the first.  All lanes of a
 * warp ask alike. */
static __device__ bool find_row(const struct table_rows *r, int64_t row, int64_t from,
                                int64_t end, int32_t *found)
{
    for (int64_t t = from; t < end; t += GPU_WARP) {
        int64_t mine = t + threadIdx.x % GPU_WARP;
        unsigned is =
            mine < end && row_of(r, mine) == row ? 1u << threadIdx.x % GPU_WARP : 0;

        for (int k = GPU_WARP / 2; k; k /= 2)
            is |= __shfl_xor_sync(~0u, is, k);
        if (is) {
            int first = 0;

            while (!(is >> first & 1))
                first++;
            *found = (int32_t)t + first;
            return true;
        }
    }
    return false;
}

/* next[t] = the next row with the index of row t, or NO_ROW; next[n + t] is not 0 if
 * t is the first of them.  A warp handles a row. */
static __global__ void link_kernel(int32_t *next, struct table_rows r, struct span rows)
{
    int64_t first = first_row(rows, 0), n = end_row(rows, 0);
    int64_t t =
        first + blockIdx.x * (int64_t)(blockDim.x / GPU_WARP) + threadIdx.x / GPU_WARP;

    for (; t < n; t += gridDim.x * (int64_t)(blockDim.x / GPU_WARP)) {
        int64_t row = row_of(&r, t);
        int32_t before, after = NO_ROW;
        bool leads = row != NO_ROW && !find_row(&r, row, first, t, &before);

        if (row != NO_ROW && !find_row(&r, row, t + 1, n, &after))
            after = NO_ROW;
        if (threadIdx.x % GPU_WARP == 0) {
            next[t] = after;
            next[rows.most + (uint64_t)t] = leads;
        }
    }
}

static __global__ void add_rows_kernel(float *y, const float *d, const int32_t *next,
                                       struct table_rows r, struct span rows,
                                       uint64_t cols)
{
    EACH_ROW(t, rows)
    {
        float *to = y + row_of(&r, t) * (int64_t)cols;

        if (!next[rows.most + (uint64_t)t])
            continue;
        for (uint64_t k = blockIdx.y * (uint64_t)blockDim.x + threadIdx.x; k < cols;
             k += gridDim.y * (uint64_t)blockDim.x) {
            float sum = to[k];

            for (int64_t i = t; i != NO_ROW; i = next[i])
                sum += d[i * (int64_t)cols + k];
            to[k] = sum;
        }
    }
}

extern "C" void gpu_add_rows(float *y, const float *d, struct table_rows r,
                             struct span rows, uint64_t cols, int32_t *room,
                             void *stream)
{
    if (!rows.most || !cols)
        return;
    LAUNCH(link_kernel, gpu_blocks(rows.most, GPU_THREADS / GPU_WARP), GPU_THREADS,
           stream, room, r, rows);
    LAUNCH(add_rows_kernel,
           dim3(gpu_blocks(rows.most, 1), gpu_blocks(cols, GPU_THREADS)), GPU_THREADS,
           stream, y, d, (const int32_t *)room, r, rows, cols);
}

/* ---- single rows ---- */

enum { MOST_WARPS = GPU_MOST_THREADS / GPU_WARP };

static __global__ void __launch_bounds__(GPU_MOST_THREADS)
    row_dot_kernel(float *y, const float *a, const float *b, struct span rows,
                   uint64_t cols)
{
    SHARED(double, part, MOST_WARPS);

    EACH_ROW(t, rows)
    {
        double sum = 0;

        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
            sum += (double)a[t * (int64_t)cols + k] * (double)b[t * (int64_t)cols + k];
        sum = block_sum(sum, part);
        if (threadIdx.x == 0)
            y[t] = (float)sum;
        __syncthreads();
    }
}

extern "C" void gpu_row_dot(float *y, const float *a, const float *b, struct span rows,
                            uint64_t cols, void *stream)
{
    if (rows.most)
        LAUNCH(row_dot_kernel, gpu_blocks(rows.most, 1), threads_of_row(cols), stream,
               y, a, b, rows, cols);
}

/* y[row[t]] = d[t], unless row[t] < 0 */
static __global__ void put_rows_kernel(float *y, const float *d, const int32_t *row,
                                       struct span rows, uint64_t cols)
{
    EACH_ROW(t, rows)
    for (uint64_t k = threadIdx.x; row[t] >= 0 && k < cols; k += blockDim.x)
        y[row[t] * (int64_t)cols + k] = d[t * (int64_t)cols + k];
}

extern "C" void gpu_put_rows(float *y, const float *d, const int32_t *row,
                             struct span rows, uint64_t cols, void *stream)
{
    if (rows.most)
        LAUNCH(put_rows_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, d,
               row, rows, cols);
}

/* ---- likelihoods ---- */

/* The maximum and the sum of exponentials of a row over the statistics of PARTS ranks
 * (result.cu), NEXT numbers apart. */
static __device__ void all_stats(const double *s, uint64_t parts, uint64_t next,
                                 double *max, double *sum)
{
    *max = s[0];
    *sum = s[1];
    for (uint64_t i = 1; i < parts; i++) {
        const double *o = s + i * next;
        double most = o[0] > *max ? o[0] : *max;

        if (o[0] == -INFINITY && o[1] == 0)
            continue;
        *sum = *sum * exp(*max - most) + o[1] * exp(o[0] - most);
        *max = most;
    }
}

static __global__ void __launch_bounds__(GPU_MOST_THREADS)
    nll_back_kernel(float *y, const double *stats, const float *x, struct likelihood n,
                    struct span rows, uint64_t cols)
{
    EACH_ROW(t, rows)
    {
        const float *from = x + t * (int64_t)cols;
        float *to = y + t * (int64_t)cols;
        const int64_t own = (int64_t)n.target[t] - (int64_t)n.first;
        const float factor = *n.factor * (n.weight ? n.weight[t] : 1);
        double max, sum;
        float by, most;

        all_stats(stats + 4 * t, n.parts, 4 * (uint64_t)end_row(rows, 0), &max, &sum);
        by = (float)(1 / sum);
        most = (float)max;
        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x) {
            float p = expf(from[k] - most) * by - n.each;

            if ((int64_t)k == own)
                p -= 1 - n.smooth;
            to[k] = n.target[t] < 0 ? 0 : factor * p;
        }
    }
}

extern "C" void gpu_nll_back(float *y, const double *stats, const float *x,
                             struct likelihood n, struct span rows, uint64_t cols,
                             void *stream)
{
    if (rows.most && cols)
        LAUNCH(nll_back_kernel, gpu_blocks(rows.most, 1), GPU_MOST_THREADS, stream, y,
               stats, x, n, rows, cols);
}
