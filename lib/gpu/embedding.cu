/* embedding - table lookup: y[t] = w[index[t] + offset - first], or zeros; features,
 * and the rows around each second row
 *
 * Blocks (y) share the columns of a row; those of halve handle a row each. */
#include "lib/gpu/quads.cuh"

template <bool WIDE>
static __global__ void embedding_kernel(float *y, struct matrix w, const int32_t *index,
                                        struct span rows, uint64_t offset,
                                        uint64_t first)
{
    uint32_t cols = (uint32_t)w.cols;

    others_ended();
    EACH_ROW(t, rows)
    {
        uint64_t row = (uint64_t)index[t] + offset;
        bool there = row >= first && row - first < w.rows;

        EACH_QUAD(k, cols, y)
        {
            float4 v = { 0, 0, 0, 0 };

            if (there)
                v = widen_quad<WIDE>(w.format, w.data, (row - first) * cols + k,
                                     cols - k);
            store_quad<WIDE>(y + t * (int64_t)cols + k, cols - k, v);
        }
    }
}

extern "C" void gpu_embedding(float *y, struct matrix w, const int32_t *index,
                              struct span rows, uint64_t offset, uint64_t first,
                              void *stream)
{
    dim3 grid = quad_grid(rows.most, w.cols);

    if (!rows.most || !w.cols)
        return;
    if (is_wide(w) && is_wide(y, w.cols))
        LAUNCH_EARLY(embedding_kernel<true>, grid, GPU_THREADS, stream, y, w, index,
                     rows, offset, first);
    else
        LAUNCH_EARLY(embedding_kernel<false>, grid, GPU_THREADS, stream, y, w, index,
                     rows, offset, first);
}

template <bool WIDE>
static __global__ void features_kernel(float *y, const float *x, struct span rows,
                                       uint32_t cols)
{
    EACH_ROW(t, rows)
    EACH_QUAD(k, cols, y)
    {
        uint64_t at = t * (uint64_t)cols + k;

        store_quad<WIDE>(y + at, cols - k, load_quad<WIDE>(x + at, cols - k));
    }
}

extern "C" void gpu_features(float *y, const float *x, struct span rows, uint64_t cols,
                             void *stream)
{
    dim3 grid = quad_grid(rows.most, cols);

    if (!rows.most || !cols)
        return;
    if (is_wide(x, cols) && is_wide(y, cols))
        LAUNCH(features_kernel<true>, grid, GPU_THREADS, stream, y, x, rows,
               (uint32_t)cols);
    else
        LAUNCH(features_kernel<false>, grid, GPU_THREADS, stream, y, x, rows,
               (uint32_t)cols);
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
