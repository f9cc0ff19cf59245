/* squares - an exact sum of squares of f32 numbers
 *
 * The square of an f32 number is a 48-bit integer times a power of two that depends
 * only on the number's exponent.  Squares with equal exponents are added as integers by
 * the backend (ARRAY_SQUARES of lib/device/arrays.h), so the sum does not depend on the
 * order or on the distribution over ranks. */
#ifndef LIB_TRAIN_SQUARES_H
#define LIB_TRAIN_SQUARES_H

#include <stdint.h>

#include "lib/device/arrays.h"

/* Converts the sums of ARRAY_SQUARES, of at most 2^37 numbers, to doubles that ranks
 * may all-reduce word by word without rounding. */
void squares_words(const uint64_t sum[SQUARES_WORDS], double word[SQUARES_WORDS]);
/* The total of (all-reduced) words, which are normalized in place; NaN when any number
 * was infinite or NaN. */
double squares_sum(double word[SQUARES_WORDS]);

#endif
