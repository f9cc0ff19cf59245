/* squares - an exact sum of squares of f32 numbers */
#include "lib/train/squares.h"

#include <math.h>

enum { MANTISSA = 23 };

void squares_words(const uint64_t sum[SQUARES_WORDS], double word[SQUARES_WORDS])
{
    for (int e = 0; e < SQUARES_EXPONENTS; e++) {
        uint64_t low = sum[e], high = sum[SQUARES_EXPONENTS + e];

        word[2 * e] = (double)(low & UINT32_MAX);
        word[2 * e + 1] = (double)(high + (low >> 32));
    }
}

double squares_sum(double word[SQUARES_WORDS])
{
    const double base = 4294967296.0;
    double sum = 0;

    for (int e = 0; e < SQUARES_EXPONENTS - 1; e++) {
        double carry = floor(word[2 * e] / base);
        int scale = 2 * ((e ? e : 1) - 127 - MANTISSA);

        word[2 * e] -= carry * base;
        word[2 * e + 1] += carry;
        sum += ldexp(word[2 * e], scale);
        sum += ldexp(word[2 * e + 1], scale + 32);
    }
    return word[SQUARES_WORDS - 2] > 0 || word[SQUARES_WORDS - 1] > 0 ? (double)NAN
                                                                      : sum;
}
