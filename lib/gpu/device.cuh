/* device - the language of the kernels: CUDA's own header, or the emulation's */
#ifndef LIB_GPU_DEVICE_CUH
#define LIB_GPU_DEVICE_CUH

#include <stdint.h>

#include "lib/device/positions.h"
#include "lib/gpu/gpu.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
/* Shared memory of a block; N is a constant. */
#define SHARED(type, name, n) __shared__ type name[n]
#define LAUNCH(kernel, grid, block, stream, ...) \
    kernel<<<grid, block, 0, (cudaStream_t)(stream)>>>(__VA_ARGS__)
/* Shared memory of a block whose size, in bytes, LAUNCH_SHARED says; it may be larger
 * than SHARED's. */
#define SHARED_AT_LAUNCH(type, name) extern __shared__ type name[]
#define LAUNCH_SHARED(bytes, kernel, grid, block, stream, ...)                    \
    do {                                                                          \
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, \
                             (int)(bytes));                                       \
        kernel<<<grid, block, bytes, (cudaStream_t)(stream)>>>(__VA_ARGS__);      \
    } while (0)
/* Launches a kernel that may start while those launched before it still run
 * (programmatic dependent launch, compute capability 9.0).  It calls others_ended. */
#define LAUNCH_EARLY(kernel, grid, block, stream, ...) \
    gpu_launch_early(kernel, grid, block, stream, __VA_ARGS__)
template <class... P, class... A>
static inline void gpu_launch_early(void (*kernel)(P...), dim3 grid, dim3 block,
                                    void *stream, A... a)
{
    static int early = -1;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute how = {};
    cudaFuncAttributes is = {};

    /* the code that runs must have been compiled to wait: all kernels are compiled for
     * the same GPUs */
    if (early < 0)
        early = CUDART_VERSION >= 12030 && /* such launches can be recorded */
                cudaFuncGetAttributes(&is, kernel) == cudaSuccess &&
                is.ptxVersion >= 90;
    how.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    how.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = (cudaStream_t)stream;
    config.attrs = &how;
    config.numAttrs = (unsigned)early;
    cudaLaunchKernelEx(&config, kernel, (P)a...);
}
#else
#include "tests/emu/emu.h"
#endif

/* Waits, in a kernel that LAUNCH_EARLY launches, until those launched before have
 * ended. Until then it reads only what no kernel writes (weights), and writes nothing.
 * Every thread calls it, and the next kernel may start from then on. */
static __device__ inline void others_ended()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#elif !defined(__CUDACC__)
    emu_others_ended();
#endif
}

/* Threads of a block; maximum number of blocks, which then loop. */
#ifdef __CUDACC__
enum { GPU_WARP = 32, GPU_THREADS = 128, GPU_BLOCKS = 4096 };
#else
enum { GPU_WARP = 32, GPU_THREADS = 64, GPU_BLOCKS = 6 };
#endif

/* Brings the line at P into the second-level cache. */
static __device__ inline void prefetch_line(const void *p)
{
#ifdef __CUDACC__
    asm volatile("prefetch.global.L2 [%0];" : : "l"(p));
#else
    (void)p;
#endif
}

/* Blocks of one kernel that make parts of something: each calls this in one thread
 * after a barrier that follows its last write of a part; true for the last of N, which
 * then reads, after a barrier, all parts by load_written.  *ARRIVED is 0 before and
 * after. */
static __device__ inline bool has_arrived(unsigned *arrived, unsigned n)
{
    bool last;

    if (n == 1)
        return true;
    __threadfence();
    last = atomicAdd(arrived, 1u) == n - 1;
    if (last)
        *arrived = 0;
    __threadfence();
    return last;
}

/* What another block may have written, past the first-level cache. */
template <class T> static __device__ inline T load_written(const T *p)
{
#ifdef __CUDACC__
    return __ldcg(p);
#else
    return *p;
#endif
}

/* Number of blocks for N items, EACH per block at a time. */
static inline unsigned gpu_blocks(uint64_t n, uint64_t each)
{
    uint64_t blocks = (n + each - 1) / each, most = GPU_BLOCKS;

    return (unsigned)(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

static __device__ inline int32_t first_row(struct span s, unsigned expert)
{
    return s.expert ? s.rows[expert] : 0;
}

static __device__ inline int32_t end_row(struct span s, unsigned expert)
{
    return s.expert ? s.rows[expert + 1] : s.rows[0];
}

/* The memory row of row ROW of a range; through the block table, if there is one. */
static __device__ inline int64_t block_row(struct ranges r, struct range one,
                                           int64_t row)
{
    /* rows are int32_t, and 64-bit division is slow on a GPU */
    uint32_t size = (uint32_t)r.block_rows, at = (uint32_t)row;

    if (one.block < 0)
        return row;
    return r.block[one.block + at / size] * (int64_t)size + at % size;
}

/* As cpu_text_at: the text that has row ROW; and the row after its last one. */
static __device__ inline int32_t text_at(const struct texts *t, int64_t row)
{
    int32_t i = 0;

    while (i + 1 < t->n[0] && t->first[i + 1] <= row)
        i++;
    return i;
}

static __device__ inline int64_t text_end(const struct texts *t, int32_t text)
{
    return text + 1 < t->n[0] ? t->first[text + 1] : t->rows[0];
}

/* As cpu_pooled_token. */
static __device__ inline int64_t pooled_token(int64_t row, struct pooled p,
                                              uint64_t times)
{
    return positions_pooled_token(row, p.apart, times);
}

/* Loops over this block's rows. */
#define EACH_ROW(t, s)                                                         \
    for (int64_t t = first_row(s, 0) + (int64_t)blockIdx.x; t < end_row(s, 0); \
         t += gridDim.x)

/* bf16 is the upper half of an f32; f16 by its bits (IEEE 754). */
static __device__ inline float widen_bf16(uint16_t h)
{
    return __uint_as_float((uint32_t)h << 16);
}

static __device__ inline float widen_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, mag = (uint32_t)(h & 0x7fffu) << 13;

    if ((h & 0x7c00u) == 0x7c00u) /* infinity, NaN */
        return __uint_as_float(sign | mag | 0x7f800000u);
    return __uint_as_float(
        sign | __float_as_uint(__uint_as_float(mag) * 5.192296858534828e33f));
}

/* Rounds to nearest even; a NaN stays NaN. */
static __device__ inline uint16_t narrow_bf16(float x)
{
    uint32_t u = __float_as_uint(x);

    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* Tensor cores that multiply bf16, and its conversion. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define GPU_HAS_MMA 1
#else
#define GPU_HAS_MMA 0
#endif

/* Two numbers rounded to bf16 (nearest even), LOW in the lower half. */
static __device__ inline uint32_t pack_bf16(float low, float high)
{
#if GPU_HAS_MMA
    uint32_t word;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#else
    return narrow_bf16(low) | (uint32_t)narrow_bf16(high) << 16;
#endif
}

/* Element I of memory of type T, as f32. */
static __device__ inline float widen(enum format t, const void *p, uint64_t i)
{
    return t == FORMAT_F32    ? ((const float *)p)[i]
           : t == FORMAT_BF16 ? widen_bf16(((const uint16_t *)p)[i])
                              : widen_f16(((const uint16_t *)p)[i]);
}

/* Reductions over a warp; all lanes get the result. */
static __device__ inline float warp_sum(float v)
{
    for (int k = GPU_WARP / 2; k; k /= 2)
        v += __shfl_xor_sync(~0u, v, k);
    return v;
}

static __device__ inline float warp_max(float v)
{
    for (int k = GPU_WARP / 2; k; k /= 2) {
        float other = __shfl_xor_sync(~0u, v, k);

        v = other > v ? other : v;
    }
    return v;
}

static __device__ inline double warp_sum(double v)
{
    for (int k = GPU_WARP / 2; k; k /= 2)
        v += __shfl_xor_sync(~0u, v, k);
    return v;
}

/* The sum over a block of 1, 2, 4 ... 32 warps; all threads get the result.  PART is
 * shared memory with one number per warp; it is in use until the next barrier. */
static __device__ inline double block_sum(double v, double *part)
{
    unsigned warps = blockDim.x / GPU_WARP;

    v = warp_sum(v);
    if (threadIdx.x % GPU_WARP == 0)
        part[threadIdx.x / GPU_WARP] = v;
    __syncthreads();
    v = part[threadIdx.x & (warps - 1)];
    for (unsigned k = warps / 2; k; k /= 2)
        v += __shfl_xor_sync(~0u, v, k);
    return v;
}

#endif
