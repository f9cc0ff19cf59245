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
