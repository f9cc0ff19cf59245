/* ggml - weights as ggml stores them: blocks of numbers that share scales
 *
 * A row of a matrix is whole blocks, one after another, each of some bytes that hold
 * codes and scales.  Layouts: ggml-common.h and ggml-quants.c of llama.cpp; values are
 * computed in f32, in the order of dequantize_row_*, and have its bits. */
#ifndef LIB_BASE_GGML_H
#define LIB_BASE_GGML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ggml_row {
    const char *name; /* "q8_0": of the type, and the suffix of a tensor's name */
    uint32_t type;    /* its number in GGUF */
    uint32_t numbers; /* of a block */
    uint32_t bytes;
    /* X[numbers] = the numbers of the block at B. */
    void (*widen)(float *x, const uint8_t *b);
};

enum { GGML_MOST = 256 }; /* numbers of a block */

extern const struct ggml_row ggml_table[];
extern const size_t ggml_count;

/* The row of the type of that number, or of that name; NULL: there is none. */
const struct ggml_row *ggml_find(uint32_t type);
const struct ggml_row *ggml_named(const char *name);

/* X[N] = the numbers of N / R->numbers blocks at B. */
void ggml_widen(const struct ggml_row *r, float *x, const uint8_t *b, size_t n);

/* A block of Q8_0: GGML_Q8_BYTES at B of the GGML_Q8_NUMBERS numbers at X.  The bytes
 * are those of quantize_row_q8_0_ref; where the scale is 0 as a half, so are the codes.
 * False, with *b unchanged, if a number is not finite or the scale is none as a half.
 */
enum { GGML_Q8_TYPE = 8, GGML_Q8_NUMBERS = 32, GGML_Q8_BYTES = 34 };
bool ggml_q8(uint8_t *b, const float *x);

#endif
