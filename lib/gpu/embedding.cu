/* embedding - table lookup: y[t] = w[index(t) + offset - first], or zeros; and the rows
 * of an input
 *
 * Blocks (y) share the columns of a row. */
#include "lib/gpu/quads.cuh"

static __device__ inline int32_t index_at(struct indices index, int64_t t)
{
    int64_t at = t * (int64_t)index.cols;

    return index.x[at] - (index.minus ? index.minus[at] : 0);
}

template <bool WIDE>
static __global__ void embedding_kernel(float *y, struct matrix w, struct indices index,
                                        struct span rows, uint64_t offset,
                                        uint64_t first)
{
    uint32_t cols = (uint32_t)w.cols;

    others_ended();
    EACH_ROW(t, rows)
    {
        uint64_t row = (uint64_t)index_at(index, t) + offset;
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

extern "C" void gpu_embedding(float *y, struct matrix w, struct indices index,
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
static __global__ void input_kernel(float *y, const float *x, struct span rows,
                                    uint32_t cols)
{
    EACH_ROW(t, rows)
    EACH_QUAD(k, cols, y)
    {
        uint64_t at = t * (uint64_t)cols + k;

        store_quad<WIDE>(y + at, cols - k, load_quad<WIDE>(x + at, cols - k));
    }
}

extern "C" void gpu_input(float *y, const float *x, struct span rows, uint64_t cols,
                          void *stream)
{
    dim3 grid = quad_grid(rows.most, cols);

    if (!rows.most || !cols)
        return;
    if (is_wide(x, cols) && is_wide(y, cols))
        LAUNCH(input_kernel<true>, grid, GPU_THREADS, stream, y, x, rows,
               (uint32_t)cols);
    else
        LAUNCH(input_kernel<false>, grid, GPU_THREADS, stream, y, x, rows,
               (uint32_t)cols);
}
