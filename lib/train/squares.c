/* squares - an exact sum of squares of f32 numbers */
#include "lib/train/squares.h"

#include <math.h>
#include <string.h>

/* the sum of 2^16 squares of 48 bits fits 64 bits */
enum { MANTISSA = 23, MOST_PENDING = 1 << 16 };

static void settle(struct squares *s)
{
    for (int e = 0; e < SQUARES_EXPONENTS; e++) {
        s->low[e] += s->some[e] & UINT32_MAX;
        s->high[e] += (s->some[e] >> 32) + (s->low[e] >> 32);
        s->low[e] &= UINT32_MAX;
    }
    memset(s->some, 0, sizeof(s->some));
    s->pending = 0;
}

void squares_add(struct squares *s, const float *x, size_t n)
{
    while (n) {
        size_t room = MOST_PENDING - s->pending, k = n < room ? n : room;

        for (size_t i = 0; i < k; i++) {
            uint32_t bits, e;
            uint64_t m;

            memcpy(&bits, &x[i], sizeof(bits));
            e = bits >> MANTISSA & (SQUARES_EXPONENTS - 1);
            m = (bits & ((UINT32_C(1) << MANTISSA) - 1)) | (uint64_t)(e > 0)
                                                               << MANTISSA;
            s->some[e] += m * m;
        }
        s->pending += k;
        x += k;
        n -= k;
        if (s->pending == MOST_PENDING)
            settle(s);
    }
}

void squares_words(struct squares *s, double word[SQUARES_WORDS])
{
    settle(s);
    for (int e = 0; e < SQUARES_EXPONENTS; e++) {
        word[2 * e] = (double)s->low[e];
        word[2 * e + 1] = (double)s->high[e];
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
