/* words - weights as they are read, 16 bytes at a time */
#ifndef LIB_GPU_WORDS_CUH
#define LIB_GPU_WORDS_CUH

#include "lib/gpu/mma.cuh"

/* A word of weights.  They are read once: L1 is for x. */
static __device__ inline uint4 load_weights(const uint4 *p)
{
#ifdef __CUDACC__
    uint4 w;

    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                 : "l"(p));
    return w;
#else
    return *p;
#endif
}

/* Bits of an f16 in the lower half of a register. */
static __device__ inline float widen_half(uint32_t bits)
{
#ifdef __CUDACC__
    float f;

    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)bits));
    return f;
#else
    return widen_f16((uint16_t)bits);
#endif
}

/* Bits of X rounded to f16 (nearest even). */
static __device__ inline uint16_t narrow_f16(float x)
{
#ifdef __CUDACC__
    uint16_t h;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    uint32_t bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u;
    float size = fabsf(x);

    if (!(size < 65520)) /* infinity, NaN */
        return (uint16_t)(sign | (size > 0 && size <= INFINITY ? 0x7c00u : 0x7e00u));
    if (size < 6.103515625e-05f) /* in units of 2^-24, which an f32's sum rounds to */
        return (uint16_t)(sign | (__float_as_uint(size + 0.5f) & 0x7ffu));
    bits = (bits & 0x7fffffffu) - (112u << 23);
    return (uint16_t)(sign | ((bits + 0xfffu + (bits >> 13 & 1)) >> 13));
#endif
}

/* Two numbers rounded to f16, LOW in the lower half. */
static __device__ inline uint32_t pack_f16(float low, float high)
{
    return narrow_f16(low) | (uint32_t)narrow_f16(high) << 16;
}

/* A pair of f16 weights as bf16: high + low. */
static __device__ inline void split_weights(uint32_t w, uint32_t *high, uint32_t *low)
{
    float a = widen_half(w), b = widen_half(w >> 16);

    *high = pack_bf16(a, b);
    *low = pack_bf16(a - __uint_as_float(*high << 16),
                     b - __uint_as_float(*high & 0xffff0000u));
}

/* Four terms of a row from K on, of IN; WIDE: aligned. */
static __device__ inline float4 four_at(const float *x, uint32_t k, uint32_t in,
                                        bool wide)
{
    float4 v = { 0, 0, 0, 0 };

    if (wide) {
        if (k < in)
            v = *(const float4 *)(x + k);
        return v;
    }
    v.x = k < in ? x[k] : 0;
    v.y = k + 1 < in ? x[k + 1] : 0;
    v.z = k + 2 < in ? x[k + 2] : 0;
    v.w = k + 3 < in ? x[k + 3] : 0;
    return v;
}

/* Bytes of a number of P's x. */
static inline uint64_t x_unit(const struct products &p)
{
    return p.bf16 ? sizeof(uint16_t) : sizeof(float);
}

/* The same of x in bf16, as they lie. */
static __device__ inline uint2 four_at(const uint16_t *x, uint32_t k, uint32_t in,
                                       bool wide)
{
    uint32_t v[4];

    if (wide)
        return k < in ? *(const uint2 *)(x + k) : uint2{ 0, 0 };
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        v[i] = k + i < in ? x[k + i] : 0;
    return { v[0] | v[1] << 16, v[2] | v[3] << 16 };
}

/* True if tensor cores can multiply 16-bit weights that are read 16 bytes at a time. */
static inline bool are_words(const struct products &p)
{
    uint64_t bytes = (p.w_stride | p.w_step) * 2;

    if (!p.cores || p.format == FORMAT_F32 || !p.in || p.in >= UINT32_MAX / 2)
        return false;
    if (!p.plain)
        bytes |= (p.x_stride | p.x_step) * x_unit(p) | (uintptr_t)p.x;
    for (unsigned i = 0; i < (p.rows.expert ? p.n : 1); i++)
        bytes |= (uintptr_t)p.w[i];
    return bytes % 16 == 0 && (p.plain ? p.out : p.in) % 8 == 0;
}

/* True if four neighbours of a row of x can be read at a time. */
static inline bool are_quads(const struct products &p)
{
    return !(((uintptr_t)p.x | (p.x_stride | p.x_step) * x_unit(p)) %
             (4 * x_unit(p))) &&
           p.in % 4 == 0;
}

#endif
