/* columns - copy selected rows and columns
 *
 * Blocks (y) share the columns of a row; those of copy_columns handle a row each. */
#include "lib/gpu/quads.cuh"

/* Four neighbours of f32 or bf16, as they lie. */
template <class T> struct quad;
template <> struct quad<float> {
    float4 v;
};
template <> struct quad<uint16_t> {
    ushort4 v;
};

template <class T, bool WIDE>
static __global__ void take_rows_kernel(T *y, const T *x, const int32_t *row,
                                        struct span rows, uint32_t cols,
                                        uint64_t x_cols)
{
    others_ended();
    EACH_ROW(t, rows)
    {
        int64_t from = row ? row[t] : t;

        EACH_QUAD(k, cols, y)
        {
            const T *one = x + from * x_cols + k;
            T *to = y + t * (int64_t)cols + k;
            struct quad<T> v = {
            };

            if (WIDE) {
                if (from >= 0)
                    v = *(const struct quad<T> *)one;
                *(struct quad<T> *)to = v;
            } else
                for (uint32_t i = 0; i < 4 && k + i < cols; i++)
                    to[i] = from >= 0 ? one[i] : (T)0;
        }
    }
}

template <class T>
static void take_rows(T *y, const T *x, const int32_t *row, struct span rows,
                      uint64_t cols, uint64_t x_cols, void *stream)
{
    dim3 grid = quad_grid(rows.most, cols);

    if (is_wide(x, x_cols, sizeof(T)) && is_wide(y, cols, sizeof(T)))
        LAUNCH_EARLY((take_rows_kernel<T, true>), grid, GPU_THREADS, stream, y, x, row,
                     rows, (uint32_t)cols, x_cols);
    else
        LAUNCH_EARLY((take_rows_kernel<T, false>), grid, GPU_THREADS, stream, y, x, row,
                     rows, (uint32_t)cols, x_cols);
}

extern "C" void gpu_take_rows(void *y, const void *x, bool bf16, const int32_t *row,
                              struct span rows, uint64_t cols, uint64_t x_cols,
                              uint64_t first, void *stream)
{
    if (!rows.most || !cols)
        return;
    if (bf16)
        take_rows((uint16_t *)y, (const uint16_t *)x + first, row, rows, cols, x_cols,
                  stream);
    else
        take_rows((float *)y, (const float *)x + first, row, rows, cols, x_cols,
                  stream);
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

template <class T>
static __global__ void copy_columns_kernel(T *y, const T *x, struct runs runs,
                                           struct span rows, uint64_t cols)
{
    uint64_t all = (uint64_t)(end_row(rows, 0) - first_row(rows, 0));

    EACH_ROW(t, rows)
    for (unsigned i = 0; i < runs.n; i++) {
        const struct column_run *r = &runs.v[i];
        const T *from = x + r->base * all + t * r->from_cols + r->from;

        for (uint64_t k = threadIdx.x; k < r->count; k += blockDim.x)
            y[t * cols + r->to + k] = from[k];
    }
}

extern "C" void gpu_copy_columns(void *y, const void *x, bool bf16,
                                 const struct column_run *run, size_t n,
                                 struct span rows, uint64_t cols, void *stream)
{
    for (size_t first = 0; first < n && rows.most; first += GPU_RUNS) {
        unsigned blocks = gpu_blocks(rows.most, 1);
        struct runs runs = {};

        for (; runs.n < GPU_RUNS && first + runs.n < n; runs.n++)
            runs.v[runs.n] = run[first + runs.n];
        if (bf16)
            LAUNCH(copy_columns_kernel<uint16_t>, blocks, GPU_THREADS, stream,
                   (uint16_t *)y, (const uint16_t *)x, runs, rows, cols);
        else
            LAUNCH(copy_columns_kernel<float>, blocks, GPU_THREADS, stream, (float *)y,
                   (const float *)x, runs, rows, cols);
    }
}
