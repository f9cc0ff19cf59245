/* tile-int8 - loops for weights of 8 bits */
#include <string.h>

#include "lib/cpu/packed.h"
#include "lib/cpu/tile-codes.h"

#if CPU_HAS_WIDE
static inline CPU_WIDE __attribute__((always_inline)) void
sum_words(float *y, const struct segment_x *x, size_t stride, const uint8_t *w,
          size_t words, int rows)
{
    vec_i32 acc[PACKED_ROWS][DIGITS];

    ALL(int i = 0; i < rows; i++)
    ALL(int d = 0; d < DIGITS; d++)
    acc[i][d] = (vec_i32){ 0 } + x[(size_t)i * stride].sum[0][d];
    for (size_t k = 0; k < words; k++) {
        vec_i32 codes;

        __builtin_prefetch(w + k * LINE + AHEAD, 0, 3);
        memcpy(&codes, w + k * LINE, sizeof(codes));
        ALL(int i = 0; i < rows; i++)
        ALL(int d = 0; d < DIGITS; d++)
        add_bytes(&acc[i][d], &codes, x[(size_t)i * stride].digit[d] + 4 * k);
    }
    ALL(int i = 0; i < rows; i++)
    {
        vec at, sum;

        join_digits(&sum, acc[i]);
        vec_load_f32(&at, y + i * CODES_ROWS);
        at += sum * x[(size_t)i * stride].scale;
        memcpy(y + i * CODES_ROWS, &at, sizeof(at));
    }
}

CPU_WIDE static void sum_wide(float *y, const struct segment_x *x, size_t stride,
                              const uint8_t *w, size_t words, int rows)
{
    if (rows == 4)
        sum_words(y, x, stride, w, words, 4);
    else if (rows == 3)
        sum_words(y, x, stride, w, words, 3);
    else if (rows == 2)
        sum_words(y, x, stride, w, words, 2);
    else
        sum_words(y, x, stride, w, words, 1);
}
#endif

CPU_CLONES static void sum_any(float *y, const struct segment_x *x, const uint8_t *w,
                               size_t words)
{
    vec at, sum = { 0 };

    for (size_t k = 0; k < words; k++) {
        vec_u32 codes;

        memcpy(&codes, w + k * LINE, sizeof(codes));
        for (int b = 0; b < 4; b++) {
            vec_i32 code = (vec_i32)(codes >> (8 * b) & 255) - 128;

            sum += __builtin_convertvector(code, vec) * term_of(x, 4 * k + (size_t)b);
        }
    }
    vec_load_f32(&at, y);
    at += sum * x->scale;
    memcpy(y, &at, sizeof(at));
}

void int8_segment(float *y, const struct segment_x *x, size_t stride, const uint8_t *w,
                  size_t words, int rows)
{
#if CPU_HAS_WIDE
    if (has_dot_bytes()) {
        sum_wide(y, x, stride, w, words, rows);
        return;
    }
#endif
    for (int i = 0; i < rows; i++)
        sum_any(y + i * CODES_ROWS, x + (size_t)i * stride, w, words);
}
