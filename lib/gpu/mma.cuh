/* mma - products of small matrices by a warp: tensor cores, and an FMA twin
 *
 * d [16][8] += a [16][16] b [16][8]; a and b are bf16, d is f32.  Each lane has some
 * elements of each matrix, two bf16 per word, lower half first.  With g = lane / 4 and
 * t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"):
 *
 *   a[i]: row g + 8 (i % 2), columns 2 t + 8 (i / 2) and the next
 *   b[i]: rows 2 t + 8 i and the next, column g
 *   d[i]: row g + 8 (i / 2), column 2 t + i % 2
 *
 * The twin fetches the operands from other lanes and uses FMAs, in the order of the
 * columns of a.  GPUs without bf16 tensor cores run it (before sm_80), and the emulation
 * sums in its order, with one meeting of the lanes.  That of the sums within a tensor
 * core is unspecified.  tests/emu/fragments.cu checks all against the tables of the PTX
 * ISA. */
#ifndef LIB_GPU_MMA_CUH
#define LIB_GPU_MMA_CUH

#include "lib/gpu/device.cuh"

/* Splits two numbers into hi + lo with 16 significant bits; lo is 0 for infinities. */
static __device__ inline void split_pair(float low, float high, uint32_t *hi,
                                         uint32_t *lo)
{
    float a, b;

    *hi = pack_bf16(low, high);
    a = __uint_as_float(*hi << 16);
    b = __uint_as_float(*hi & 0xffff0000u);
    *lo = pack_bf16(fabsf(a) < INFINITY ? low - a : 0,
                    fabsf(b) < INFINITY ? high - b : 0);
}

/* The words of lane FROM; each lane may choose another FROM. */
static __device__ inline uint4 words_of(uint4 mine, unsigned from)
{
#ifdef __CUDACC__
    uint4 w;

    w.x = __shfl_sync(~0u, mine.x, from);
    w.y = __shfl_sync(~0u, mine.y, from);
    w.z = __shfl_sync(~0u, mine.z, from);
    w.w = __shfl_sync(~0u, mine.w, from);
    return w;
#else
    return __shfl_sync(~0u, mine, from);
#endif
}

/* sum + the dot product of two pairs */
static __device__ inline float fma_pair(uint32_t a, uint32_t b, float sum)
{
    sum = fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16), sum);
    return fmaf(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u),
                sum);
}

static __device__ inline void mma_twin(float *d, const uint32_t *a, const uint32_t *b)
{
    unsigned lane = threadIdx.x % GPU_WARP, g = lane / 4, t = lane % 4;

#pragma unroll 1
    for (unsigned half = 0; half < 2; half++)
#pragma unroll 1
        for (unsigned s = 0; s < 4; s++) { /* columns 8 half + 2 s and + 1 of a */
            uint4 rows = words_of({ a[0], a[1], a[2], a[3] }, 4 * g + s);
            uint4 one = words_of({ b[0], b[1], 0, 0 }, 8 * t + s),
                  next = words_of({ b[0], b[1], 0, 0 }, 8 * t + 4 + s);
            uint32_t upper = half ? rows.z : rows.x, lower = half ? rows.w : rows.y;
            uint32_t left = half ? one.y : one.x, right = half ? next.y : next.x;

            d[0] = fma_pair(upper, left, d[0]);
            d[1] = fma_pair(upper, right, d[1]);
            d[2] = fma_pair(lower, left, d[2]);
            d[3] = fma_pair(lower, right, d[3]);
        }
}

static __device__ inline void mma(float *d, const uint32_t *a, const uint32_t *b)
{
#if GPU_HAS_MMA
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(__CUDACC__)
    mma_twin(d, a, b);
#else
    unsigned lane = threadIdx.x % GPU_WARP, g = lane / 4, t = lane % 4, meeting;
    const struct emu_box mine = { { a[0], a[1], a[2], a[3], b[0], b[1] } };
    const struct emu_box *of = emu_meet(~0u, &mine, sizeof(mine), &meeting, EMU_AT);

    for (unsigned half = 0; half < 2; half++)
        for (unsigned s = 0; s < 4; s++) {
            const uint32_t *rows = of[4 * g + s].word + 2 * half;
            uint32_t left = of[8 * t + s].word[4 + half],
                     right = of[8 * t + 4 + s].word[4 + half];

            d[0] = fma_pair(rows[0], left, d[0]);
            d[1] = fma_pair(rows[0], right, d[1]);
            d[2] = fma_pair(rows[1], left, d[2]);
            d[3] = fma_pair(rows[1], right, d[3]);
        }
    emu_part(meeting);
#endif
}

/* Loads four matrices of 8 x 8 16-bit elements from shared memory at BASE.  Lane I
 * passes the offset, in elements, of row I % 8 of matrix I / 8, aligned to 16 bytes,
 * and receives in word[m] elements 2 t and 2 t + 1 of row g of matrix m, or of its
 * column g if TRANSPOSED (PTX ISA, ldmatrix). */
template <bool TRANSPOSED>
static __device__ inline void load_matrices(uint32_t *word, const uint16_t *base,
                                            unsigned offset)
{
#ifdef __CUDACC__
    uint32_t at = (uint32_t)__cvta_generic_to_shared(base) + 2 * offset;

    if (TRANSPOSED)
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
            : "r"(at)
            : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                     : "r"(at)
                     : "memory");
#else
    unsigned lane = threadIdx.x % GPU_WARP, g = lane / 4, t = lane % 4, meeting;
    const struct emu_box *of =
        emu_meet(~0u, &offset, sizeof(offset), &meeting, EMU_AT);

    for (unsigned m = 0; m < 4; m++) {
        unsigned one = of[8 * m + (TRANSPOSED ? 2 * t : g)].word[0];
        unsigned next = of[8 * m + (TRANSPOSED ? 2 * t + 1 : g)].word[0];
        unsigned at = TRANSPOSED ? g : 2 * t;

        word[m] = base[one + at] | (uint32_t)base[next + (TRANSPOSED ? at : at + 1)]
                                       << 16;
    }
    emu_part(meeting);
#endif
}

/* Starts to copy 16 bytes from global memory at FROM to shared memory at TO; both are
 * aligned to 16 bytes.  The thread must wait by copies_wait before it reads them, and a
 * barrier must follow before other threads do.  Before sm_80 the copy is made at
 * once. */
static __device__ inline void copy_start(void *to, const void *from)
{
#if GPU_HAS_MMA
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
#elif defined(__CUDACC__)
    *(uint4 *)to = *(const uint4 *)from;
#else
    emu_copy_start(to, from);
#endif
}

/* Waits for all copies that this thread has started. */
static __device__ inline void copies_wait()
{
#if GPU_HAS_MMA
    asm volatile("cp.async.wait_all;" ::: "memory");
#elif !defined(__CUDACC__)
    emu_copies_wait();
#endif
}

/* 2^x within 2 units in the last place; 0 for -infinity */
static __device__ inline float exp_two(float x)
{
#ifdef __CUDACC__
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

#endif
