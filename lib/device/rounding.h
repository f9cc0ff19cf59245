/* rounding - stochastic rounding to bf16, for C and CUDA
 *
 * A number between two of bf16 becomes one of them, each with the probability of its
 * nearness, so that the mean of many is the number (Gupta et al. 2015, "Deep Learning
 * with Limited Numerical Precision", section 3).  The random bits are a function of the
 * place in the whole tensor, the tensor (stream), the update (step) and a key: neither
 * the layout nor the order of computation changes one. */
#ifndef LIB_DEVICE_ROUNDING_H
#define LIB_DEVICE_ROUNDING_H

#include <stdint.h>

#include "lib/base/hostdevice.h"

/* y, of bf16, = x, both in memory of a device.  Number K has place FIRST + (K + SKIP) /
 * COLS * STRIDE + (K + SKIP) % COLS in its whole tensor. */
struct rounding {
    uint64_t n;
    uint16_t *y;
    const float *x;
    uint32_t stream, step; /* the tensor, and the update */
    uint64_t key, first, cols, stride, skip;
};

enum { ROUNDING_EACH = 8 }; /* numbers for which one block of random words serves */

/* The place of number K in its whole tensor. */
HOST_DEVICE uint64_t rounding_place(const struct rounding *r, uint64_t k)
{
    const uint64_t in = k + r->skip;

    return r->first + in / r->cols * r->stride + in % r->cols;
}

/* The random words of places [EACH BLOCK, EACH (BLOCK + 1)): Philox4x32-10, as
 * rng_block's. */
HOST_DEVICE void rounding_words(uint32_t word[4], const struct rounding *r,
                                uint64_t block)
{
    uint32_t k0 = (uint32_t)r->key, k1 = (uint32_t)(r->key >> 32);
    uint32_t a = (uint32_t)block, b = (uint32_t)(block >> 32), c = r->stream,
             d = r->step;

    for (int round = 0; round < 10; round++) {
        const uint64_t p = (uint64_t)0xD2511F53u * a, q = (uint64_t)0xCD9E8D57u * c;

        a = (uint32_t)(q >> 32) ^ b ^ k0;
        b = (uint32_t)q;
        c = (uint32_t)(p >> 32) ^ d ^ k1;
        d = (uint32_t)p;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    word[0] = a;
    word[1] = b;
    word[2] = c;
    word[3] = d;
}

/* The number with BITS, of f32, at PLACE, whose words are WORD, in bf16. */
HOST_DEVICE uint16_t rounding_bf16(uint32_t bits, const uint32_t word[4],
                                   uint64_t place)
{
    const uint32_t half = (uint32_t)(place % ROUNDING_EACH);
    const uint32_t random = word[half / 2] >> 16 * (half % 2) & 0xffffu;

    if ((bits & 0x7f800000u) == 0x7f800000u) /* infinite, or no number, as it is */
        return (uint16_t)(bits >> 16 | ((bits & 0x7fffffu) ? 0x40u : 0));
    return (uint16_t)((bits + random) >> 16);
}

#endif
