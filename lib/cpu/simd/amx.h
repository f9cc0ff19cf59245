/* amx - products of tiles of bf16, or of bytes, by a CPU's matrix unit (Intel's
 * Advanced Matrix Extensions)
 *
 * A tile has 16 rows of 64 bytes.  Weights are multiplied as they are stored: a tile is
 * 16 outputs by 32 terms.  x is stored as amx_pack lays it out: a tile is 16 pairs of
 * terms by 16 rows of x.  Products are then 16 outputs by 16 rows. */
#ifndef LIB_CPU_SIMD_AMX_H
#define LIB_CPU_SIMD_AMX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    AMX_ROWS = 16, /* of a tile */
    AMX_SIDE = 32, /* rows of x, and outputs, of a product; terms of a step */
    AMX_BYTES = 64 /* of a row of a tile */
};

/* How many times AMX_SIDE it takes to hold N. */
static inline size_t amx_sides(size_t n)
{
    return (n + AMX_SIDE - 1) / AMX_SIDE;
}

/* Does the CPU have tiles of bf16, and does the kernel let this process use them? */
bool amx_has(void);

/* Configure the calling thread's tiles, and give them back. */
void amx_begin(void);
void amx_end(void);

/* Rounds N floats at X to bf16 at TO, subnormal ones to zero. */
void amx_round(uint16_t *to, const float *x, size_t n);

/* Lays ROWS <= AMX_SIDE rows of x out, rounded to bf16, over STEPS steps of AMX_SIDE
 * terms, of which there are TERMS, the others zeros: AMX_SIDE * AMX_SIDE numbers for
 * each step. */
void amx_pack(uint16_t *to, const float *x, size_t x_stride, size_t rows, size_t terms,
              size_t steps);

/* The same of columns: x is [TERMS][COLS], at most AMX_SIDE of both; the result is one
 * step of the product with its transpose. */
void amx_pack_columns(uint16_t *to, const float *x, size_t x_stride, size_t terms,
                      size_t cols);

/* The same two of numbers that are bf16. */
void amx_turn(uint16_t *to, const uint16_t *x, size_t x_stride, size_t rows,
              size_t terms, size_t steps);
void amx_weave(uint16_t *to, const uint16_t *x, size_t x_stride, size_t terms,
               size_t cols);

/* y[rows][outs] = x w^T, or += if ADD; if TRANSPOSED, y[outs][rows] = w x^T. */
struct amx_product {
    const uint16_t *w; /* [AMX_SIDE] rows of STEPS * AMX_SIDE terms */
    size_t w_stride;   /* terms between these */
    const uint16_t *x; /* as amx_pack lays it out */
    size_t steps;
    size_t rows, outs; /* at most AMX_SIDE */
    const char *ahead; /* what to prefetch: LINES lines in each step; or NULL */
    int lines;         /* a power of 2, at most 32 */
    size_t apart;      /* bytes between the lines of a step, whose next lines follow; */
    size_t until;      /* from this step on, */
    const char *then;  /* these lines, unless it is NULL */
    float *y;
    size_t y_stride;
    bool add, transposed; /* not both */
};
void amx_multiply(const struct amx_product *p);

enum {
    AMX_WORDS = 16, /* words of four codes of each output in one */
    AMX_DIGITS = 3
};

/* Sums of products of signed bytes, digits of AMX_ROWS rows of x, and unsigned ones,
 * codes of AMX_ROWS outputs in WORDS words as in lib/base/codes.h.  DIGIT and ROW are
 * the bytes between digits and rows of x. */
void amx_sum_codes(int32_t sums[AMX_DIGITS][AMX_ROWS][AMX_ROWS], const int8_t *x,
                   size_t digit, size_t row, const uint8_t *w, size_t words);

#endif
