/* embedding - table lookup: y[t] = w[index[t] + offset - first], or zeros; features,
 * and the rows around each second row */
#include "lib/gpu/device.cuh"

static __global__ void embedding_kernel(float *y, struct matrix w, const int32_t *index,
                                        struct span rows, uint64_t offset, uint64_t first)
{
    EACH_ROW(t, rows)
    {
        uint64_t row = (uint64_t)index[t] + offset;
        bool there = row >= first && row - first < w.rows;

        for (uint64_t k = threadIdx.x; k < w.cols; k += blockDim.x)
            y[t * w.cols + k] =
                there ? widen(w.dtype, w.data, (row - first) * w.cols + k) : 0;
    }
}

extern "C" void gpu_embedding(float *y, struct matrix w, const int32_t *index,
                              struct span rows, uint64_t offset, uint64_t first,
                              void *stream)
{
    if (rows.most && w.cols)
        LAUNCH(embedding_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, w,
               index, rows, offset, first);
}

static __global__ void features_kernel(float *y, const float *x, struct span rows,
                                       uint64_t cols)
{
    EACH_ROW(t, rows)
    {
        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
            y[t * cols + k] = x[t * cols + k];
    }
}

extern "C" void gpu_features(float *y, const float *x, struct span rows, uint64_t cols,
                             void *stream)
{
    if (rows.most && cols)
        LAUNCH(features_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x,
               rows, cols);
}

static __global__ void halve_kernel(float *y, const float *x, const struct around *at,
                                    struct span rows, uint64_t cols, int32_t reach)
{
    EACH_ROW(t, rows)
    {
        uint64_t n = cols * (uint64_t)reach;

        for (uint64_t k = threadIdx.x; k < n; k += blockDim.x) {
            int32_t row = at[t].centre + (int32_t)(k % (uint64_t)reach) - reach / 2;
            bool inside = row >= at[t].first && row < at[t].end;

            y[t * n + k] = inside ? x[(uint64_t)row * cols + k / (uint64_t)reach] : 0;
        }
    }
}

extern "C" void gpu_halve(float *y, const float *x, const struct around *at,
                          struct span rows, uint64_t cols, int32_t reach, void *stream)
{
    if (rows.most && cols)
        LAUNCH(halve_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x, at,
               rows, cols, reach);
}
