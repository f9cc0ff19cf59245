/* embedding - table lookup: y[t] = w[index[t] + offset - first], or zeros */
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
