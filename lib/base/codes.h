/* codes - numbers stored in 8 or 4 bits, with scales
 *
 * 8 bits: a row has one scale; code c, -127 to 127, stands for c times the scale.
 * 4 bits: each block of CODES_BLOCK numbers of a row has a scale in f16; code c, 0 to
 * 15, stands for c - 8 times the scale.  A byte holds the code of an even number in its
 * lower half and that of the next number in its upper half. */
#ifndef LIB_BASE_CODES_H
#define LIB_BASE_CODES_H

#include <stddef.h>
#include <stdint.h>

enum { CODES_BLOCK = 32 };

/* The largest absolute value of the N numbers at X; NaN or infinite if one of them
 * is. */
float codes_largest(const float *x, size_t n);
/* The scale for 8 bits of a row whose largest absolute value is LARGEST. */
float codes_scale8(float largest);
/* The nearest codes of the N finite numbers at X. */
void codes_make8(int8_t *to, const float *x, size_t n, float scale);
/* The scale (f16) for a block of finite numbers: of a few candidates, the one with the
 * least squared error. */
uint16_t codes_scale4(const float x[CODES_BLOCK]);
/* The nearest codes of a block. */
void codes_make4(uint8_t to[CODES_BLOCK / 2], const float x[CODES_BLOCK],
                 uint16_t scale);

#endif
