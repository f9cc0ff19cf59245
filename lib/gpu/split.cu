/* split - f32 numbers in one or two parts of 16 bits, for products by cuBLASLt
 *
 * bf16 has f32's range, and f16 more bits: its parts are those of x times a power of
 * two that brings the largest number of x close to f16's largest. */
#include "lib/gpu/mma.cuh"
#include "lib/gpu/words.cuh"

/* hi = bf16(x), lo = bf16(x - hi) unless NULL; lo of an infinity is 0; eight numbers a
 * thread, APART words from the next */
static __global__ void split_bf16_kernel(uint4 *hi, uint4 *lo, unsigned apart,
                                         const float4 *x, uint64_t n)
{
    uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;

    others_ended();
    for (; i < n / 8; i += (uint64_t)gridDim.x * blockDim.x) {
        float4 a = x[2 * i], b = x[2 * i + 1];
        uint4 high, low;

        split_pair(a.x, a.y, &high.x, &low.x);
        split_pair(a.z, a.w, &high.y, &low.y);
        split_pair(b.x, b.y, &high.z, &low.z);
        split_pair(b.z, b.w, &high.w, &low.w);
        hi[i * apart] = high;
        if (lo)
            lo[i * apart] = low;
    }
}

static void launch_split(uint4 *hi, uint4 *lo, unsigned apart, const float *x,
                         uint64_t n, void *stream)
{
    if (n)
        LAUNCH_EARLY(split_bf16_kernel, gpu_blocks(n / 8, GPU_THREADS), GPU_THREADS,
                     stream, hi, lo, apart, (const float4 *)x, n);
}

extern "C" void gpu_split_bf16(void *hi, void *lo, const float *x, uint64_t n,
                               void *stream)
{
    launch_split((uint4 *)hi, (uint4 *)lo, 1, x, n, stream);
}

extern "C" void gpu_split_pairs(void *pairs, const float *x, uint64_t n, void *stream)
{
    launch_split((uint4 *)pairs, (uint4 *)pairs + 1, 2, x, n, stream);
}

/* ---- f16 ---- */

enum {
    MAXIMA = GPU_FACTORS - GPU_MAXIMA,
    BLOCK = GPU_THREADS,
    BLOCK_WARPS = BLOCK / GPU_WARP
};

static __device__ inline uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The largest over a block of BLOCK threads; PART has a number for each warp. */
static __device__ inline uint32_t block_largest(uint32_t v, uint32_t *part)
{
    for (int k = GPU_WARP / 2; k; k /= 2)
        v = larger(v, __shfl_xor_sync(~0u, v, k));
    if (threadIdx.x % GPU_WARP == 0)
        part[threadIdx.x / GPU_WARP] = v;
    __syncthreads();
    v = part[0];
    for (unsigned i = 1; i < BLOCK_WARPS; i++)
        v = larger(v, part[i]);
    return v;
}

/* most[block] = bits of the block's largest |x|, of which a NaN's are the largest */
static __global__ void largest_kernel(uint32_t *most, const float4 *x, struct span rows,
                                      uint64_t cols)
{
    SHARED(uint32_t, part, BLOCK_WARPS);
    uint64_t i = blockIdx.x * (uint64_t)BLOCK + threadIdx.x;
    uint64_t n = (uint64_t)end_row(rows, 0) * cols;
    uint32_t v = 0;

    for (; i < n / 4; i += (uint64_t)gridDim.x * BLOCK) {
        float4 f = x[i];

        v = larger(v, __float_as_uint(f.x) & 0x7fffffffu);
        v = larger(v, __float_as_uint(f.y) & 0x7fffffffu);
        v = larger(v, __float_as_uint(f.z) & 0x7fffffffu);
        v = larger(v, __float_as_uint(f.w) & 0x7fffffffu);
    }
    v = block_largest(v, part);
    if (threadIdx.x == 0)
        most[blockIdx.x] = v;
}

/* The exponent, as an f32 has it, of the power of two by which numbers of up to MOST
 * become less than 2^15. */
static __device__ inline uint32_t scale_of(uint32_t most)
{
    enum { BIAS = 127, LARGE = 14, NONE = 255 };
    uint32_t exponent = most >> 23, scale = 2 * BIAS + LARGE - exponent;

    if (!most || exponent == NONE)
        return BIAS;
    /* its inverse is a number, too */
    return scale > 2 * BIAS - 1 ? 2 * BIAS - 1 : scale;
}

/* Parts of two numbers. */
static __device__ inline void split_halves(float a, float b, uint32_t *high,
                                           uint32_t *low)
{
    float first, second;

    *high = pack_f16(a, b);
    first = widen_half(*high);
    second = widen_half(*high >> 16);
    *low = pack_f16(fabsf(first) < INFINITY ? a - first : 0,
                    fabsf(second) < INFINITY ? b - second : 0);
}

static __global__ void split_f16_kernel(uint4 *hi, uint4 *lo, float *factor,
                                        const float4 *x, struct span rows,
                                        uint64_t cols, unsigned maxima)
{
    SHARED(uint32_t, part, BLOCK_WARPS);
    const uint32_t *most = (const uint32_t *)factor + GPU_MAXIMA;
    uint64_t i = blockIdx.x * (uint64_t)BLOCK + threadIdx.x;
    uint64_t n = (uint64_t)end_row(rows, 0) * cols;
    uint32_t v = 0, scale;
    float by;

    for (unsigned k = threadIdx.x; k < maxima; k += BLOCK)
        v = larger(v, most[k]);
    scale = scale_of(block_largest(v, part));
    by = __uint_as_float(scale << 23);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        factor[GPU_FACTOR] = __uint_as_float((254 - scale) << 23);
        factor[GPU_ONE] = 1;
        factor[GPU_NOTHING] = 0;
    }
    for (; i < n / 8; i += (uint64_t)gridDim.x * BLOCK) {
        float4 a = x[2 * i], b = x[2 * i + 1];
        uint4 high, low;

        split_halves(a.x * by, a.y * by, &high.x, &low.x);
        split_halves(a.z * by, a.w * by, &high.y, &low.y);
        split_halves(b.x * by, b.y * by, &high.z, &low.z);
        split_halves(b.z * by, b.w * by, &high.w, &low.w);
        hi[i] = high;
        if (lo)
            lo[i] = low;
    }
}

extern "C" void gpu_split_f16(void *hi, void *lo, float *factor, const float *x,
                              struct span rows, uint64_t cols, void *stream)
{
    uint64_t n = rows.most * cols;
    unsigned maxima = gpu_blocks(n / 4, BLOCK);

    if (!n)
        return;
    maxima = maxima < MAXIMA ? maxima : (unsigned)MAXIMA;
    LAUNCH(largest_kernel, maxima, BLOCK, stream, (uint32_t *)factor + GPU_MAXIMA,
           (const float4 *)x, rows, cols);
    LAUNCH(split_f16_kernel, gpu_blocks(n / 8, BLOCK), BLOCK, stream, (uint4 *)hi,
           (uint4 *)lo, factor, (const float4 *)x, rows, cols, maxima);
}
