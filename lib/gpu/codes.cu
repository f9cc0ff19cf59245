/* codes - products by weights that are codes with scales (twin of
 * lib/cpu/product/codes-linear.c)
 *
 * y[t][o] = sum over k of x[t][k] code[o][k] scale: codes become numbers in registers.
 * Weights lie in groups of 16 outputs, word by word of four bytes (base/codes.h).  A
 * block makes the 16 outputs of a group for up to ROWS rows at a time: a lane has one
 * output and every second word, and warps take turns at pairs of words.  The order of a
 * sum depends on the number of terms alone, so a row has the same bits with any
 * others. */
#include "lib/gpu/cached.cuh"

enum { ROWS = 8, OUTPUTS = 16, CODES_WARPS = GPU_THREADS / GPU_WARP, BLOCK = 32 };

static __device__ inline float widen_e5m2(uint32_t code)
{
    return widen_f16((uint16_t)(code << 8));
}

/* A power of two of E8M0; the smallest is no normal number. */
static __device__ inline float power_of(uint32_t byte)
{
    return __uint_as_float(byte ? byte << 23 : 0x00400000u);
}

/* E2M1. */
static __device__ inline float widen_e2m1(uint32_t code)
{
    uint32_t size = code & 7;
    float x = size < 2 ? 0.5f * (float)size
                       : __uint_as_float((126 + (size >> 1)) << 23 | (size & 1) << 22);

    return code & 8 ? -x : x;
}

/* Numbers of a word, and number I of them without its scale. */
template <enum format F>
static constexpr int in_word = F == FORMAT_INT4 || F == FORMAT_MXFP4 ? 8 : 4;

template <enum format F> static __device__ inline float number_of(uint32_t word, int i)
{
    uint32_t byte = word >> i % 4 * 8 & 0xff, half = i < 4 ? byte & 15 : byte >> 4;

    if (F == FORMAT_INT8)
        return (float)((int)byte - 128);
    if (F == FORMAT_E4M3)
        return widen_e4m3(byte);
    if (F == FORMAT_E5M2)
        return widen_e5m2(byte);
    return F == FORMAT_INT4 ? (float)((int)half - 8) : widen_e2m1(half);
}

/* The scale of output OUT of GROUP for the word that begins at column COL. */
template <enum format F>
static __device__ inline float scale_of(const struct coded &c, const void *scale,
                                        uint64_t group, unsigned out, uint32_t col)
{
    if (F == FORMAT_INT8)
        return ((const float *)scale)[group * OUTPUTS + out];
    if (F == FORMAT_INT4)
        return widen_f16(
            ((const uint16_t *)
                 scale)[(group * (c.in / BLOCK) + col / BLOCK) * OUTPUTS + out]);
    if (F == FORMAT_MXFP4)
        return power_of(
            ((const uint8_t *)
                 scale)[(group * (c.in / BLOCK) + col / BLOCK) * OUTPUTS + out]);
    return ((const float *)
                scale)[(group * ((c.in + c.per - 1) / c.per) + col / c.per) * OUTPUTS +
                       out];
}

template <enum format F> static __global__ void codes_kernel(struct coded c)
{
    enum { EACH = in_word<F> };
    SHARED(float, part, CODES_WARPS *ROWS *OUTPUTS);
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    unsigned out = lane % OUTPUTS;
    uint32_t words = ((uint32_t)c.in + EACH - 1) / EACH;
    uint64_t group = blockIdx.x;
    const uint32_t *w =
        (const uint32_t *)c.w[blockIdx.y] + group * words * OUTPUTS + out;
    const void *scale = c.scale[blockIdx.y];
    struct span rows = c.rows;
    int32_t end;

    others_ended();
    end = end_row(rows, blockIdx.y);
    for (int32_t t = first_row(rows, blockIdx.y); t < end; t += ROWS) {
        float sum[ROWS] = { 0 };

        for (uint32_t i = 2 * warp + lane / OUTPUTS; i < words; i += 2 * CODES_WARPS) {
            uint32_t word = w[(uint64_t)i * OUTPUTS], col = i * EACH;
            float by = scale_of<F>(c, scale, group, out, col), v[EACH];

#pragma unroll
            for (int k = 0; k < EACH; k++)
                v[k] = number_of<F>(word, k) * by;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const float *x = c.x + (int64_t)(t + r) * c.in + col;

                if (t + r >= end)
                    break;
#pragma unroll
                for (int k = 0; k < EACH; k++)
                    if (col + k < c.in) /* the last word is filled up */
                        sum[r] = fmaf(x[k], v[k], sum[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            sum[r] += __shfl_xor_sync(~0u, sum[r], OUTPUTS);
            if (lane < OUTPUTS)
                part[(warp * ROWS + r) * OUTPUTS + out] = sum[r];
        }
        __syncthreads();
        for (unsigned i = threadIdx.x; i < ROWS * OUTPUTS; i += GPU_THREADS) {
            int32_t row = t + (int32_t)(i / OUTPUTS);
            uint64_t to = group * OUTPUTS + i % OUTPUTS;
            float all = 0;

            for (unsigned k = 0; k < CODES_WARPS; k++)
                all += part[k * ROWS * OUTPUTS + i];
            if (row < end && to < c.out)
                c.y[(uint64_t)row * c.out + to] = all;
        }
        __syncthreads();
    }
}

template <enum format F> static void launch(const struct coded &c, void *stream)
{
    LAUNCH_EARLY(codes_kernel<F>,
                 dim3((unsigned)((c.out + OUTPUTS - 1) / OUTPUTS), c.n), GPU_THREADS,
                 stream, c);
}

extern "C" void gpu_codes(struct coded c, void *stream)
{
    if (!c.rows.most || !c.out || !c.n)
        return;
    switch (c.format) {
    case FORMAT_INT8:
        return launch<FORMAT_INT8>(c, stream);
    case FORMAT_INT4:
        return launch<FORMAT_INT4>(c, stream);
    case FORMAT_E4M3:
        return launch<FORMAT_E4M3>(c, stream);
    case FORMAT_E5M2:
        return launch<FORMAT_E5M2>(c, stream);
    default:
        return launch<FORMAT_MXFP4>(c, stream);
    }
}
