/* squares - the exact sum of the squares of f32 numbers
 *
 * The square of an f32 number is an integer of 48 bits times a power of two that its
 * exponent alone decides: squares of one exponent are added up as integers.  So it does
 * not matter in which order, by whom and in which parts numbers are added. */
#ifndef LIB_TRAIN_SQUARES_H
#define LIB_TRAIN_SQUARES_H

#include <stddef.h>
#include <stdint.h>

enum { SQUARES_EXPONENTS = 256, SQUARES_WORDS = 2 * SQUARES_EXPONENTS };

/* Zeroed: no number yet; fewer than 2^37. */
struct squares {
    uint64_t high[SQUARES_EXPONENTS], low[SQUARES_EXPONENTS]; /* 2^32 high + low */
    uint64_t some[SQUARES_EXPONENTS]; /* not yet among these, of PENDING numbers */
    size_t pending;
};

void squares_add(struct squares *s, const float *x, size_t n);
/* As numbers that ranks may add up, word by word: each sum is exact. */
void squares_words(struct squares *s, double word[SQUARES_WORDS]);
/* The sum that such words stand for, which they are left with another form of; NaN
 * where a number was none, or infinite. */
double squares_sum(double word[SQUARES_WORDS]);

#endif
