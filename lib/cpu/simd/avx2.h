/* avx2 - registers of eight floats: loops for CPUs with AVX2 and FMA
 *
 * What follows this file is compiled for such CPUs; it may run only where cpu_has()
 * says CPU_AVX2.  A vec takes two registers.  Loops go over the terms twice, first for
 * its lower lanes and then, from the L1 cache, for the upper ones: so a tile has twice
 * as many sums, and they are those of the other loops, bit by bit. */
#ifndef LIB_CPU_SIMD_AVX2_H
#define LIB_CPU_SIMD_AVX2_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/cpu/simd/vec.h"

#if CPU_HAS_WIDE
#pragma GCC target("arch=x86-64-v3")

enum { LANES = 8 };

typedef uint32_t vec_half_u32 __attribute__((vector_size(32)));
typedef int32_t vec_half_i32 __attribute__((vector_size(32)));

/* Keeps *v in a register. */
static inline __attribute__((always_inline)) void half_hold(vec_half *v)
{
    __asm__("" : "+x"(*v));
}

/* *sum += *a * *b with one rounding. */
static inline __attribute__((always_inline)) void
half_fuse(vec_half *sum, const vec_half *a, const vec_half *b)
{
    vec_half to = *sum;

    __asm__("vfmadd231ps %2, %1, %0" : "+x"(to) : "x"(*a), "x"(*b));
    *sum = to;
}

/* The same with LANES numbers at P. */
static inline __attribute__((always_inline)) void
half_fuse_at(vec_half *sum, const vec_half *a, const void *p)
{
    vec_half to = *sum;

    __asm__("vfmadd231ps %2, %1, %0"
            : "+x"(to)
            : "x"(*a), "m"(*(const float(*)[LANES])p));
    *sum = to;
}

static inline __attribute__((always_inline)) void half_load(vec_half *out,
                                                            const void *p)
{
    memcpy(out, p, sizeof(*out));
    half_hold(out);
}

/* *out = the number at P, in each lane */
static inline __attribute__((always_inline)) void half_spread(vec_half *out,
                                                              const float *p)
{
    __asm__("vbroadcastss %1, %0" : "=x"(*out) : "m"(*p));
}

/* The sums of the lanes of eight vectors, each given as the sum of its lower and upper
 * lanes, in the order of vec_sum. */
static inline __attribute__((always_inline)) void half_sum_eight(vec_half *out,
                                                                 const vec_half *v)
{
    vec_half quarter[4], pair[2], sum;

    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        const vec_half *a = &v[2 * i], *b = a + 1;

        quarter[i] = __builtin_shufflevector(*a, *b, 0, 1, 2, 3, 8, 9, 10, 11) +
                     __builtin_shufflevector(*a, *b, 4, 5, 6, 7, 12, 13, 14, 15);
    }
    _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++)
    {
        const vec_half *a = &quarter[2 * i], *b = a + 1;

        pair[i] = __builtin_shufflevector(*a, *b, 0, 1, 8, 9, 4, 5, 12, 13) +
                  __builtin_shufflevector(*a, *b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    sum = __builtin_shufflevector(pair[0], pair[1], 0, 2, 8, 10, 4, 6, 12, 14) +
          __builtin_shufflevector(pair[0], pair[1], 1, 3, 9, 11, 5, 7, 13, 15);
    *out = __builtin_shufflevector(sum, sum, 0, 4, 1, 5, 2, 6, 3, 7);
}
#endif

#endif
