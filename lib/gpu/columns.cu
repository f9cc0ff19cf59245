/* columns - copy selected rows and columns
 *
 * Blocks (y) share the columns of a row; those of copy_columns handle a row each. */
#include "lib/gpu/quads.cuh"

template <bool WIDE>
static __global__ void take_rows_kernel(float *y, const float *x, const int32_t *row,
                                        struct span rows, uint32_t cols,
                                        uint64_t x_cols)
{
    others_ended();
    EACH_ROW(t, rows)
    {
        int64_t from = row ? row[t] : t;

        EACH_QUAD(k, cols, y)
        {
            float4 v = { 0, 0, 0, 0 };

            if (from >= 0)
                v = load_quad<WIDE>(x + from * x_cols + k, cols - k);
            store_quad<WIDE>(y + t * (int64_t)cols + k, cols - k, v);
        }
    }
}

extern "C" void gpu_take_rows(float *y, const float *x, const int32_t *row,
                              struct span rows, uint64_t cols, uint64_t x_cols,
                              uint64_t first, void *stream)
{
    dim3 grid = quad_grid(rows.most, cols);

    x += first;
    if (!rows.most || !cols)
        return;
    if (is_wide(x, x_cols) && is_wide(y, cols))
        LAUNCH_EARLY(take_rows_kernel<true>, grid, GPU_THREADS, stream, y, x, row, rows,
                     (uint32_t)cols, x_cols);
    else
        LAUNCH_EARLY(take_rows_kernel<false>, grid, GPU_THREADS, stream, y, x, row,
                     rows, (uint32_t)cols, x_cols);
}

static __global__ void concat_kernel(float *y, const float *x, const float *z,
                                     struct span rows, uint32_t heads, uint32_t a,
                                     uint32_t b, bool shared)
{
    uint32_t head = a + b, n = heads * head;

    EACH_ROW(t, rows)
    for (uint32_t k = blockIdx.y * blockDim.x + threadIdx.x; k < n;
         k += gridDim.y * blockDim.x) {
        uint64_t of = t * (uint64_t)heads + k / head;
        uint32_t col = k % head;

        y[t * (uint64_t)n + k] =
            col < a ? x[of * a + col] : z[(shared ? t : of) * b + col - a];
    }
}

extern "C" void gpu_concat(float *y, const float *x, const float *z, struct span rows,
                           uint64_t heads, uint64_t a, uint64_t b, bool shared,
                           void *stream)
{
    if (rows.most && heads)
        LAUNCH(concat_kernel,
               dim3(gpu_blocks(rows.most, 1), gpu_blocks(heads * (a + b), GPU_THREADS)),
               GPU_THREADS, stream, y, x, z, rows, (uint32_t)heads, (uint32_t)a,
               (uint32_t)b, shared);
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
                                 size_t n, struct span rows, uint64_t cols,
                                 void *stream)
{
    for (size_t first = 0; first < n && rows.most; first += GPU_RUNS) {
        struct runs runs = {};

        for (; runs.n < GPU_RUNS && first + runs.n < n; runs.n++)
            runs.v[runs.n] = run[first + runs.n];
        LAUNCH(copy_columns_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x,
               runs, rows, cols);
    }
}
