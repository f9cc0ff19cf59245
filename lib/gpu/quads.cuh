/* quads - four neighbouring columns at a time
 *
 * A thread handles the columns 4 i to 4 i + 3 of a row.  If the row begins at a
 * multiple of four elements and has a multiple of four columns (WIDE), that is one
 * access; otherwise each column is accessed by itself, by the same thread.  A result
 * does not depend on WIDE.  A row has fewer than 2^31 columns: 64-bit division is slow.
 */
#ifndef LIB_GPU_QUADS_CUH
#define LIB_GPU_QUADS_CUH

#include "lib/gpu/device.cuh"

/* Whether rows of COLS elements of UNIT bytes, one after another from P on, are WIDE.
 */
static inline bool is_wide(const void *p, uint64_t cols, uint64_t unit = sizeof(float))
{
    return cols % 4 == 0 && (uintptr_t)p % (4 * unit) == 0;
}

static inline bool is_wide(struct matrix w)
{
    return is_wide(w.data, w.cols, w.format == FORMAT_F32 ? 4 : 2);
}

/* Blocks for ROWS rows (x) of COLS columns (y): few rows have many blocks too. */
static inline dim3 quad_grid(uint64_t rows, uint64_t cols)
{
    return dim3(gpu_blocks(rows, 1), gpu_blocks(cols, 4 * GPU_THREADS));
}

/* Loops over this thread's quads of a row of N columns, whose blocks are those of an
 * AXIS of the grid; k is the first column of a quad. */
#define EACH_QUAD(k, n, axis)                                                  \
    for (uint32_t k = 4 * (blockIdx.axis * blockDim.x + threadIdx.x),          \
                  end_ = (uint32_t)(n), step_ = 4 * gridDim.axis * blockDim.x; \
         k < end_; k += step_)

/* The first LEFT of four elements at X, zeros for the others. */
template <bool WIDE>
static __device__ inline float4 load_quad(const float *x, uint32_t left)
{
    if (WIDE)
        return *(const float4 *)x;
    return float4{ x[0], left > 1 ? x[1] : 0, left > 2 ? x[2] : 0,
                   left > 3 ? x[3] : 0 };
}

template <bool WIDE>
static __device__ inline void store_quad(float *y, uint32_t left, float4 v)
{
    if (WIDE) {
        *(float4 *)y = v;
        return;
    }
    y[0] = v.x;
    if (left > 1)
        y[1] = v.y;
    if (left > 2)
        y[2] = v.z;
    if (left > 3)
        y[3] = v.w;
}

/* The same in bf16. */
template <bool WIDE>
static __device__ inline void store_quad(uint16_t *y, uint32_t left, float4 v)
{
    uint32_t one = pack_bf16(v.x, v.y), two = pack_bf16(v.z, v.w);

    if (WIDE) {
        *(uint2 *)y = { one, two };
        return;
    }
    y[0] = (uint16_t)one;
    if (left > 1)
        y[1] = (uint16_t)(one >> 16);
    if (left > 2)
        y[2] = (uint16_t)two;
    if (left > 3)
        y[3] = (uint16_t)(two >> 16);
}

/* Elements AT and on of Y, which is bf16 or f32: four, aligned; and one. */
static __device__ inline void put_quad(void *y, bool bf16, uint64_t at, float4 v)
{
    if (bf16)
        store_quad<true>((uint16_t *)y + at, 4, v);
    else
        store_quad<true>((float *)y + at, 4, v);
}

static __device__ inline void put_number(void *y, bool bf16, uint64_t at, float v)
{
    if (bf16)
        ((uint16_t *)y)[at] = (uint16_t)pack_bf16(v, 0);
    else
        ((float *)y)[at] = v;
}

/* As load_quad: elements I to I + 3 of memory of type T. */
template <bool WIDE>
static __device__ inline float4 widen_quad(enum format t, const void *p, uint64_t i,
                                           uint32_t left)
{
    if (t == FORMAT_F32)
        return load_quad<WIDE>((const float *)p + i, left);
    if (WIDE) {
        ushort4 h = *(const ushort4 *)((const uint16_t *)p + i);

        if (t == FORMAT_BF16)
            return float4{ widen_bf16(h.x), widen_bf16(h.y), widen_bf16(h.z),
                           widen_bf16(h.w) };
        return float4{ widen_f16(h.x), widen_f16(h.y), widen_f16(h.z), widen_f16(h.w) };
    }
    return float4{ widen(t, p, i), left > 1 ? widen(t, p, i + 1) : 0,
                   left > 2 ? widen(t, p, i + 2) : 0,
                   left > 3 ? widen(t, p, i + 3) : 0 };
}

/* Threads of a block that handles a row of COLS columns, by the columns alone: the
 * order of a sum over the row depends on it.  A thread has at most QUADS_KEPT quads in
 * registers, unless the row is longer than GPU_MOST_THREADS threads have. */
enum { QUADS_KEPT = 2 };
#ifdef __CUDACC__
enum { GPU_MOST_THREADS = 1024 };
#else
enum { GPU_MOST_THREADS = 64 };
#endif

static inline unsigned threads_of_row(uint64_t cols)
{
    unsigned n = GPU_WARP;

    while (n < GPU_MOST_THREADS && (uint64_t)n * 4 * QUADS_KEPT < cols)
        n *= 2;
    return n;
}

#endif
