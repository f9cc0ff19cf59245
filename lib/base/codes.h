/* codes - numbers stored in 8 or 4 bits, with scales
 *
 * 8 bits: a row has one scale; code c, -127 to 127, stands for c times the scale.
 * 4 bits: each block of CODES_BLOCK numbers of a row has a scale in f16; code c, -8 to
 * 7, stands for c times the scale.
 *
 * In memory, CODES_ROWS rows lie side by side, so that a product reads them as one
 * stream: a group of rows is a sequence of lines of CODES_ROWS words of four bytes, one
 * of each row.  Rows that fill up the last group are zeros, with scale 0.
 * 8 bits: [groups][words][CODES_ROWS][4], a byte is the code of one number plus 128;
 * the last word of a row is filled up with zeros.  Scales: f32 [groups][CODES_ROWS].
 * 4 bits: [groups][blocks][4 words][CODES_ROWS][4]: of eight numbers, the lower halves
 * of the bytes of a word have the first four, the upper halves the others, plus 8.
 * Scales: f16 [groups][blocks][CODES_ROWS]. */
#ifndef LIB_BASE_CODES_H
#define LIB_BASE_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"

enum { CODES_BLOCK = 32, CODES_ROWS = 16 };

/* The largest absolute value of the N numbers at X; NaN or infinite if one of them
 * is. */
float codes_largest(const float *x, size_t n);
/* What numbers are multiplied by so that LARGEST becomes MOST; 0 if there are none but
 * zeros, or nearly.  *scale gives them back: if one is not finite NAN, as is then all
 * that is made of them. */
float codes_inverse(float largest, float most, float *scale);
/* The scale for 8 bits of a row whose largest absolute value is LARGEST. */
float codes_scale8(float largest);
/* The nearest codes of the N finite numbers at X. */
void codes_make8(int8_t *to, const float *x, size_t n, float scale);
/* The scale (f16) for a block of finite numbers: of a few candidates, the one with the
 * least squared error.  DECODED: if the numbers are codes times a scale, the result
 * stands for the same numbers. */
uint16_t codes_scale4(const float x[CODES_BLOCK], bool decoded);
/* The nearest codes of a block. */
void codes_make4(int8_t to[CODES_BLOCK], const float x[CODES_BLOCK], uint16_t scale);

/* Put the N codes of row ROW from column FIRST on, a multiple of 4, at their place in
 * the memory TO of rows of COLS; of 4 bits those of block BLOCK. */
void codes_put8(uint8_t *to, uint64_t cols, uint64_t row, uint64_t first, size_t n,
                const int8_t *code);
void codes_put4(uint8_t *to, uint16_t *scales, uint64_t cols, uint64_t row,
                uint64_t block, const int8_t code[CODES_BLOCK], uint16_t scale);

#endif
