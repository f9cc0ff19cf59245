/* kv-cache - append rows to the KV cache, and read them back
 *
 * Blocks (z) share the columns of a row of range blockIdx.y. */
#include "lib/gpu/quads.cuh"

static dim3 range_grid(const struct ranges *r, uint64_t most, uint64_t cols)
{
    return dim3(gpu_blocks(most, 1), (unsigned)r->n, gpu_blocks(cols, 4 * GPU_THREADS));
}

template <bool WIDE>
static __global__ void keep_kernel(float *cache, const float *x, struct ranges r,
                                   uint32_t cols)
{
    struct range one;

    others_ended();
    one = r.v[blockIdx.y];
    for (int64_t k = blockIdx.x; k < one.rows; k += gridDim.x) {
        const float *from = x + (one.row + k) * cols;

        EACH_QUAD(i, cols, z)
        {
            float4 v = load_quad<WIDE>(from + i, cols - i);
            /* looked up while the load is under way */
            float *to = cache + block_row(r, one, one.write_row + k) * cols;

            store_quad<WIDE>(to + i, cols - i, v);
        }
    }
}

extern "C" void gpu_keep(float *cache, const float *x, struct ranges r, uint64_t cols,
                         void *stream)
{
    dim3 grid = range_grid(&r, r.most_rows, cols);

    if (!r.n || !r.most_rows || !cols)
        return;
    if (is_wide(cache, cols) && is_wide(x, cols))
        LAUNCH_EARLY(keep_kernel<true>, grid, GPU_THREADS, stream, cache, x, r,
                     (uint32_t)cols);
    else
        LAUNCH_EARLY(keep_kernel<false>, grid, GPU_THREADS, stream, cache, x, r,
                     (uint32_t)cols);
}

/* The keys of all ranges are consecutive in y. */
template <bool WIDE>
static __global__ void cache_read_kernel(float *y, const float *cache, struct ranges r,
                                         uint32_t cols)
{
    struct range one = r.v[blockIdx.y];
    int64_t before = 0;

    for (unsigned i = 0; i < blockIdx.y; i++)
        before += r.v[i].keys;
    for (int64_t k = blockIdx.x; k < one.keys; k += gridDim.x) {
        const float *from = cache + block_row(r, one, one.key_row + k) * cols;
        float *to = y + (before + k) * cols;

        EACH_QUAD(i, cols, z)
        store_quad<WIDE>(to + i, cols - i, load_quad<WIDE>(from + i, cols - i));
    }
}

extern "C" void gpu_cache_read(float *y, const float *cache, struct ranges r,
                               uint64_t cols, void *stream)
{
    dim3 grid = range_grid(&r, r.most_keys, cols);

    if (!r.n || !r.most_keys || !cols)
        return;
    if (is_wide(cache, cols) && is_wide(y, cols))
        LAUNCH(cache_read_kernel<true>, grid, GPU_THREADS, stream, y, cache, r,
               (uint32_t)cols);
    else
        LAUNCH(cache_read_kernel<false>, grid, GPU_THREADS, stream, y, cache, r,
               (uint32_t)cols);
}
