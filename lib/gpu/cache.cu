/* cache - append rows to the KV cache, and read them back
 *
 * A block of threads handles one row of range blockIdx.y. */
#include "lib/gpu/device.cuh"

static __global__ void keep_kernel(float *cache, const float *x, struct ranges r,
                                   uint64_t cols)
{
    struct range one = r.v[blockIdx.y];

    for (int64_t k = blockIdx.x; k < one.rows; k += gridDim.x) {
        float *to = cache + block_row(r, one, one.write_row + k) * cols;

        for (uint64_t i = threadIdx.x; i < cols; i += blockDim.x)
            to[i] = x[(one.row + k) * cols + i];
    }
}

extern "C" void gpu_keep(float *cache, const float *x, struct ranges r, uint64_t cols,
                         void *stream)
{
    if (r.n && r.most_rows && cols)
        LAUNCH(keep_kernel, dim3(gpu_blocks(r.most_rows, 1), (unsigned)r.n), GPU_THREADS,
               stream, cache, x, r, cols);
}

/* The keys of all ranges are consecutive in y. */
static __global__ void cache_read_kernel(float *y, const float *cache, struct ranges r,
                                         uint64_t cols)
{
    struct range one = r.v[blockIdx.y];
    int64_t before = 0;

    for (unsigned i = 0; i < blockIdx.y; i++)
        before += r.v[i].keys;
    for (int64_t k = blockIdx.x; k < one.keys; k += gridDim.x) {
        const float *from = cache + block_row(r, one, one.key_row + k) * cols;

        for (uint64_t i = threadIdx.x; i < cols; i += blockDim.x)
            y[(before + k) * cols + i] = from[i];
    }
}

extern "C" void gpu_cache_read(float *y, const float *cache, struct ranges r,
                               uint64_t cols, void *stream)
{
    if (r.n && r.most_keys && cols)
        LAUNCH(cache_read_kernel, dim3(gpu_blocks(r.most_keys, 1), (unsigned)r.n),
               GPU_THREADS, stream, y, cache, r, cols);
}
