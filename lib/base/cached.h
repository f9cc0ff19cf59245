/* cached - how the numbers of a cached key or value become codes, and back
 *
 * C and CUDA compile these functions, so that both backends append the same bytes.  A
 * cached row is its scales, then its codes; PER numbers share a scale (base/format.h).
 * Rows of 4 bits have scales of bf16, a code is -8 to 7, and the number of an even
 * column is in the lower half of its byte. */
#ifndef LIB_BASE_CACHED_H
#define LIB_BASE_CACHED_H

#include <math.h>
#include <stdint.h>

#include "lib/base/hostdevice.h"

/* What the numbers of a scale are multiplied by, so that EXTREME becomes FULL; 0 if
 * they are all zeros, or nearly. */
HOST_DEVICE float cached_factor(float extreme, float full)
{
    float factor = full / extreme;

    return fabsf(factor) < INFINITY ? factor : 0;
}

HOST_DEVICE int8_t cached_int8(float x, float factor)
{
    return (int8_t)rintf(x * factor);
}

/* The nearest E4M3 (OCP FP8 1.0) of X FACTOR, at most 448 in magnitude; ties to
 * even. */
HOST_DEVICE uint8_t cached_e4m3(float x, float factor)
{
    uint8_t sign;
    int exponent;

    x *= factor;
    sign = signbit(x) ? 0x80 : 0;
    x = fabsf(x);
    if (x < 0x1p-6f) /* steps of 2^-9; 8 of them are the first normal number */
        return (uint8_t)(sign | (uint8_t)rintf(x * 0x1p9f));
    (void)frexpf(x, &exponent);
    /* 4 bits in steps of 2^(exponent - 4); 16 of them carry into the exponent */
    return (uint8_t)(sign | (uint8_t)(((exponent + 5) << 3) +
                                      (int)rintf(ldexpf(x, 4 - exponent))));
}

/* 4 bits: the code that stands for X, plus 8. */
HOST_DEVICE uint8_t cached_int4(float x, float factor)
{
    float code = rintf(x * factor);

    return (uint8_t)((code > 7 ? 7 : code < -8 ? -8 : code) + 8);
}

/* The number furthest from zero of those from LOW to HIGH, which becomes -8; of two the
 * negative one. */
HOST_DEVICE float cached_extreme(float low, float high)
{
    return -low >= high ? low : high;
}

#endif
