/* squares - an exact sum of squares of f32 numbers
 *
 * The square of an f32 number is a 48-bit integer times a power of two that depends
 * only on the number's exponent.  Squares with equal exponents are added as integers,
 * so the sum does not depend on the order or on the distribution over ranks. */
#ifndef LIB_TRAIN_SQUARES_H
#define LIB_TRAIN_SQUARES_H

#include <stddef.h>
#include <stdint.h>

enum { SQUARES_EXPONENTS = 256, SQUARES_WORDS = 2 * SQUARES_EXPONENTS };

/* Zero-initialize.  At most 2^37 numbers. */
struct squares {
    uint64_t high[SQUARES_EXPONENTS], low[SQUARES_EXPONENTS]; /* 2^32 high + low */
    uint64_t some[SQUARES_EXPONENTS]; /* sums of the last PENDING numbers, not yet
                                       * included */
    size_t pending;
};

void squares_add(struct squares *s, const float *x, size_t n);
/* Converts to doubles that ranks may all-reduce word by word without rounding. */
void squares_words(struct squares *s, double word[SQUARES_WORDS]);
/* The total of (all-reduced) words, which are normalized in place; NaN when any number
 * was infinite or NaN. */
double squares_sum(double word[SQUARES_WORDS]);

#endif
