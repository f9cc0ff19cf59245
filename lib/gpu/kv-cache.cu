/* kv-cache - append rows to the KV cache, and read them back (twin of
 * lib/cpu/cache/kv-cache.c)
 *
 * A row is appended as the cache's format has it, in the same bytes as by the CPU.
 * Blocks (z) share the columns of a row of range blockIdx.y. */
#include "lib/gpu/cached.cuh"

static dim3 range_grid(const struct ranges *r, uint64_t most, uint64_t cols)
{
    return dim3(gpu_blocks(most, 1), (unsigned)r->n, gpu_blocks(cols, 4 * GPU_THREADS));
}

/* ---- plain formats ---- */

template <bool WIDE>
static __device__ inline void store_bf16(uint16_t *y, uint32_t left, float4 v)
{
    ushort4 h = { narrow_bf16(v.x), narrow_bf16(v.y), narrow_bf16(v.z),
                  narrow_bf16(v.w) };

    if (WIDE) {
        *(ushort4 *)y = h;
        return;
    }
    y[0] = h.x;
    if (left > 1)
        y[1] = h.y;
    if (left > 2)
        y[2] = h.z;
    if (left > 3)
        y[3] = h.w;
}

template <bool WIDE>
static __global__ void keep_kernel(struct cached c, const float *x, struct ranges r)
{
    struct range one;

    others_ended();
    one = r.v[blockIdx.y];
    for (int64_t k = blockIdx.x; k < one.rows; k += gridDim.x) {
        const float *from = x + (one.row + k) * c.cols;

        EACH_QUAD(i, c.cols, z)
        {
            float4 v = load_quad<WIDE>(from + i, c.cols - i);
            /* looked up while the load is under way */
            char *to = (char *)cached_row(c, block_row(r, one, one.write_row + k));

            if (c.format == FORMAT_F32)
                store_quad<WIDE>((float *)to + i, c.cols - i, v);
            else
                store_bf16<WIDE>((uint16_t *)to + i, c.cols - i, v);
        }
    }
}

/* ---- codes ---- */

static __device__ inline float warp_min(float v)
{
    return -warp_max(-v);
}

/* Appends the N numbers X that share scale AT of the row TO, from column AT N on; all
 * lanes of a warp.  FP8 and bytes: the scale is the largest magnitude over the largest
 * code. */
template <enum format F>
static __device__ void keep_bytes(char *to, const struct cached &c, const float *x,
                                  uint32_t at, uint32_t n)
{
    const float full = F == FORMAT_CACHE_INT8 ? 127 : 448;
    uint8_t *code = (uint8_t *)to + c.codes + at * n;
    unsigned lane = threadIdx.x % GPU_WARP;
    float most = 0, factor;
    bool all = true;

    for (uint32_t i = lane; i < n; i += GPU_WARP) {
        float size = fabsf(x[i]);

        most = size > most ? size : most;
        all = all && size < INFINITY;
    }
    most = warp_max(all ? most : INFINITY);
    factor = cached_factor(most, full);
    if (lane == 0)
        ((float *)to)[at] = most < INFINITY ? most / full : NAN;
    for (uint32_t i = lane; i < n; i += GPU_WARP)
        code[i] = !(most < INFINITY)       ? 1
                  : F == FORMAT_CACHE_INT8 ? (uint8_t)cached_int8(x[i], factor)
                                           : cached_e4m3(x[i], factor);
}

/* The same in 4 bits.  A lane writes whole bytes: N is even, or the first lane does it
 * all. */
static __device__ void keep_nibbles(char *to, const struct cached &c, const float *x,
                                    uint32_t at, uint32_t n)
{
    uint8_t *byte = (uint8_t *)to + c.codes;
    unsigned lane = threadIdx.x % GPU_WARP;
    float low = INFINITY, high = -INFINITY, factor;
    bool all = true;
    uint16_t scale;

    for (uint32_t i = lane; i < n; i += GPU_WARP) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        all = all && fabsf(x[i]) < INFINITY;
    }
    all = warp_max(all ? 0 : 1) == 0;
    low = warp_min(low);
    high = warp_max(high);
    scale = narrow_bf16(all ? cached_extreme(low, high) / -8 : NAN);
    factor = all ? cached_factor(widen_bf16(scale), 1) : 0;
    if (lane == 0)
        ((uint16_t *)to)[at] = scale;
    for (uint32_t i = 2 * lane; i < n; i += 2 * GPU_WARP) {
        unsigned first = all ? cached_int4(x[i], factor) : 9;
        unsigned second = all ? cached_int4(x[i + 1], factor) : 9;

        byte[(at * n + i) / 2] = (uint8_t)(first | second << 4);
    }
}

/* Of a row whose scales are for odd numbers of columns: by one thread. */
static __device__ void keep_odd(char *to, const struct cached &c, const float *x)
{
    uint8_t *byte = (uint8_t *)to + c.codes;

    for (uint32_t at = 0; at < c.cols / c.per; at++) {
        const float *of = x + at * c.per;
        float low = of[0], high = of[0], factor;
        bool all = true;
        uint16_t scale;

        for (uint32_t i = 0; i < c.per; i++) {
            low = of[i] < low ? of[i] : low;
            high = of[i] > high ? of[i] : high;
            all = all && fabsf(of[i]) < INFINITY;
        }
        scale = narrow_bf16(all ? cached_extreme(low, high) / -8 : NAN);
        factor = all ? cached_factor(widen_bf16(scale), 1) : 0;
        ((uint16_t *)to)[at] = scale;
        for (uint32_t i = 0; i < c.per; i++) {
            uint32_t col = at * c.per + i;
            unsigned code = all ? cached_int4(of[i], factor) : 9;

            byte[col / 2] =
                (uint8_t)(col % 2 ? (byte[col / 2] & 15) | code << 4 : code);
        }
    }
}

/* A warp takes the numbers of a scale. */
static __global__ void keep_codes_kernel(struct cached c, const float *x,
                                         struct ranges r)
{
    enum { WARPS = GPU_THREADS / GPU_WARP };
    bool odd = c.format == FORMAT_CACHE_INT4 && c.per % 2;
    uint32_t first = blockIdx.z * WARPS + threadIdx.x / GPU_WARP;
    struct range one;

    others_ended();
    one = r.v[blockIdx.y];
    for (int64_t k = blockIdx.x; k < one.rows; k += gridDim.x) {
        const float *from = x + (one.row + k) * c.cols;
        char *to = (char *)cached_row(c, block_row(r, one, one.write_row + k));

        if (odd && blockIdx.z == 0 && threadIdx.x == 0)
            keep_odd(to, c, from);
        for (uint32_t at = first; !odd && at < c.cols / c.per; at += gridDim.z * WARPS)
            if (c.format == FORMAT_CACHE_INT8)
                keep_bytes<FORMAT_CACHE_INT8>(to, c, from + at * c.per, at, c.per);
            else if (c.format == FORMAT_CACHE_FP8)
                keep_bytes<FORMAT_CACHE_FP8>(to, c, from + at * c.per, at, c.per);
            else
                keep_nibbles(to, c, from + at * c.per, at, c.per);
    }
}

/* ---- launches ---- */

extern "C" void gpu_keep(struct cached c, const float *x, struct ranges r, void *stream)
{
    dim3 grid = range_grid(&r, r.most_rows, c.cols);

    if (!r.n || !r.most_rows || !c.cols)
        return;
    if (c.codes)
        LAUNCH_EARLY(
            keep_codes_kernel,
            dim3(grid.x, grid.y, gpu_blocks(c.cols / c.per, GPU_THREADS / GPU_WARP)),
            GPU_THREADS, stream, c, x, r);
    else if (cached_is_wide(c) && is_wide(x, c.cols))
        LAUNCH_EARLY(keep_kernel<true>, grid, GPU_THREADS, stream, c, x, r);
    else
        LAUNCH_EARLY(keep_kernel<false>, grid, GPU_THREADS, stream, c, x, r);
}

/* The keys of all ranges are consecutive in y. */
template <bool WIDE>
static __global__ void cache_read_kernel(float *y, struct cached c, struct ranges r)
{
    struct range one = r.v[blockIdx.y];
    int64_t before = 0;

    for (unsigned i = 0; i < blockIdx.y; i++)
        before += r.v[i].keys;
    for (int64_t k = blockIdx.x; k < one.keys; k += gridDim.x) {
        const char *from = cached_row(c, block_row(r, one, one.key_row + k));
        float *to = y + (before + k) * c.cols;

        EACH_QUAD(i, c.cols, z)
        store_quad<WIDE>(to + i, c.cols - i, cached_any<WIDE>(from, c, i, c.cols - i));
    }
}

extern "C" void gpu_cache_read(float *y, struct cached c, struct ranges r, void *stream)
{
    dim3 grid = range_grid(&r, r.most_keys, c.cols);

    if (!r.n || !r.most_keys || !c.cols)
        return;
    if (cached_is_wide(c) && is_wide(y, c.cols))
        LAUNCH(cache_read_kernel<true>, grid, GPU_THREADS, stream, y, c, r);
    else
        LAUNCH(cache_read_kernel<false>, grid, GPU_THREADS, stream, y, c, r);
}
