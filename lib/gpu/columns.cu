/* columns - copy selected rows and columns
 *
 * A block handles one row. */
#include "lib/gpu/device.cuh"

static __global__ void take_rows_kernel(float *y, const float *x, const int32_t *row,
                                        struct span rows, uint64_t cols, uint64_t x_cols,
                                        uint64_t first)
{
    EACH_ROW(t, rows)
    {
        int64_t from = row ? row[t] : t;

        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
            y[t * cols + k] = from < 0 ? 0 : x[from * x_cols + first + k];
    }
}

extern "C" void gpu_take_rows(float *y, const float *x, const int32_t *row,
                              struct span rows, uint64_t cols, uint64_t x_cols,
                              uint64_t first, void *stream)
{
    if (rows.most && cols)
        LAUNCH(take_rows_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x, row,
               rows, cols, x_cols, first);
}

static __global__ void concat_kernel(float *y, const float *x, const float *z,
                                     struct span rows, uint64_t heads, uint64_t a,
                                     uint64_t b, bool shared)
{
    EACH_ROW(t, rows)
    for (uint64_t k = threadIdx.x; k < heads * (a + b); k += blockDim.x) {
        uint64_t head = t * heads + k / (a + b), col = k % (a + b);

        y[t * heads * (a + b) + k] =
            col < a ? x[head * a + col] : z[(shared ? t : head) * b + col - a];
    }
}

extern "C" void gpu_concat(float *y, const float *x, const float *z, struct span rows,
                           uint64_t heads, uint64_t a, uint64_t b, bool shared,
                           void *stream)
{
    if (rows.most && heads)
        LAUNCH(concat_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x, z,
               rows, heads, a, b, shared);
}

struct runs {
    struct column_run v[GPU_RUNS];
    unsigned n;
};

static __global__ void copy_columns_kernel(float *y, const float *x, struct runs runs,
                                           struct span rows, uint64_t cols)
{
    uint64_t all = (uint64_t)(end_row(rows, 0) - first_row(rows, 0));

    EACH_ROW(t, rows)
    for (unsigned i = 0; i < runs.n; i++) {
        const struct column_run *r = &runs.v[i];
        const float *from = x + r->base * all + t * r->from_cols + r->from;

        for (uint64_t k = threadIdx.x; k < r->count; k += blockDim.x)
            y[t * cols + r->to + k] = from[k];
    }
}

extern "C" void gpu_copy_columns(float *y, const float *x, const struct column_run *run,
                                 size_t n, struct span rows, uint64_t cols, void *stream)
{
    for (size_t first = 0; first < n && rows.most; first += GPU_RUNS) {
        struct runs runs = {};

        for (; runs.n < GPU_RUNS && first + runs.n < n; runs.n++)
            runs.v[runs.n] = run[first + runs.n];
        LAUNCH(copy_columns_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x,
               runs, rows, cols);
    }
}
