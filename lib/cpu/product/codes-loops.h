/* codes-loops - what the loops for weights of 8 and 4 bits share */
#ifndef LIB_CPU_PRODUCT_CODES_LOOPS_H
#define LIB_CPU_PRODUCT_CODES_LOOPS_H

#include "lib/cpu/product/codes-linear.h"
#include "lib/cpu/simd/vec.h"

#define ALL _Pragma("GCC unroll 8") for

enum {
    LINE = 4 * CODES_ROWS, /* bytes of a word of each row */
    AHEAD = 4096,          /* bytes between what is read and what is prefetched */
    ALONE_AHEAD = 8192,    /* the same for one row, */
    STREAMS_AHEAD = 2048   /* and in each of several streams */
};

/* Term K of X, without its scale. */
static inline __attribute__((always_inline)) float
term_of(const struct codes_segment *x, size_t k)
{
    return (float)((x->digit[2][k] * 256 + x->digit[1][k]) * 256 + x->digit[0][k]);
}

/* *out = what byte J of each word of *w stands for as FP8: its exponent and mantissa at
 * their place in an f32 of another bias, which a power of two undoes.  No code is NaN
 * or infinite. */
static inline __attribute__((always_inline)) void fp8_values(vec *out, const vec_u32 *w,
                                                             int j, bool e5m2)
{
    vec_i32 high = (vec_i32)(*w << (24 - 8 * j));
    vec_i32 bits =
        e5m2 ? high >> 3 & (int32_t)0x8fe00000 : high >> 4 & (int32_t)0x87f00000;

    memcpy(out, &bits, sizeof(*out));
    *out *= e5m2 ? 0x1p112f : 0x1p120f;
}

/* *out = twice what each FP4 stands for: 0 1 2 3 4 6 8 12, and negated */
static inline __attribute__((always_inline)) void mxfp4_twice(vec_i32 *out,
                                                              const vec_u32 *four)
{
    vec_i32 size = (vec_i32)(*four & 7), exponent = size >> 1, one = size & 1;
    vec_i32 normal = exponent > 0, minus = (vec_i32)(*four << 28) >> 31;

    size = (one | (normal & 2)) << ((exponent - 1) & normal);
    *out = (size ^ minus) - minus;
}

/* *out = 16 powers of two, E8M0; 2^-127 is subnormal. */
static inline __attribute__((always_inline)) void mxfp4_scales(vec *out,
                                                               const uint8_t *p)
{
    typedef uint8_t bytes __attribute__((vector_size(16)));
    vec_u32 bits, least = { 0 }, low;
    bytes b;

    memcpy(&b, p, sizeof(b));
    bits = __builtin_convertvector(__builtin_convertvector(b, vec_u16), vec_u32) << 23;
    low = (vec_u32)(bits == least) & 0x00400000;
    bits |= low;
    memcpy(out, &bits, sizeof(*out));
}

#if CPU_HAS_WIDE
/* *sum += in each lane, the products of the four unsigned bytes of *w and the four
 * signed ones at X */
static inline CPU_WIDE __attribute__((always_inline)) void
add_bytes(vec_i32 *sum, const vec_i32 *w, const int8_t *x)
{
    vec_i32 to = *sum;

    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(to)
            : "v"(*w), "m"(*(const int8_t(*)[4])x));
    *sum = to;
}

/* *out = the sums of the digits joined */
static inline CPU_WIDE __attribute__((always_inline)) void
join_digits(vec *out, const vec_i32 digit[DIGITS])
{
    vec high = __builtin_convertvector(digit[2], vec);
    vec middle = __builtin_convertvector(digit[1], vec);
    vec low = __builtin_convertvector(digit[0], vec);

    *out = (high * 256 + middle) * 256 + low;
}
#endif

#endif
