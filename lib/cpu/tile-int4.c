/* tile-int4 - loops for weights of 4 bits */
#include <string.h>

#include "lib/cpu/packed.h"
#include "lib/cpu/tile-codes.h"

enum { WORDS = CODES_BLOCK / 8 }; /* of a row of a block */

#if CPU_HAS_WIDE
typedef uint16_t scales __attribute__((vector_size(32)));

static inline CPU_WIDE __attribute__((always_inline)) void load_scales(vec *out,
                                                                       const void *p)
{
    __asm__("vcvtph2ps %1, %0" : "=v"(*out) : "m"(*(const scales *)p));
}

static inline CPU_WIDE __attribute__((always_inline)) void
sum_blocks(float *y, const struct segment_x *x, size_t stride, const uint8_t *w,
           const uint16_t *scale, size_t blocks, int rows)
{
    vec acc[PACKED_ROWS], sw;

    ALL(int i = 0; i < rows; i++) acc[i] = (vec){ 0 };
    for (size_t k = 0; k < blocks; k++, w += WORDS * LINE) {
        vec_i32 sum[PACKED_ROWS][DIGITS];

        load_scales(&sw, scale + k * CODES_ROWS);
        __builtin_prefetch((const char *)(scale + k * CODES_ROWS) + AHEAD / 8, 0, 3);
        ALL(int i = 0; i < rows; i++)
        ALL(int d = 0; d < DIGITS; d++)
        sum[i][d] = (vec_i32){ 0 } + x[(size_t)i * stride].sum[k][d];
        ALL(int p = 0; p < WORDS; p++)
        {
            vec_u32 codes;
            vec_i32 low, high;

            __builtin_prefetch(w + p * LINE + AHEAD, 0, 3);
            memcpy(&codes, w + p * LINE, sizeof(codes));
            low = (vec_i32)(codes & 0x0f0f0f0f);
            high = (vec_i32)(codes >> 4 & 0x0f0f0f0f);
            ALL(int i = 0; i < rows; i++)
            ALL(int d = 0; d < DIGITS; d++)
            {
                const int8_t *at =
                    x[(size_t)i * stride].digit[d] + k * CODES_BLOCK + 8 * p;

                add_bytes(&sum[i][d], &low, at);
                add_bytes(&sum[i][d], &high, at + 4);
            }
        }
        ALL(int i = 0; i < rows; i++)
        {
            vec joined;

            join_digits(&joined, sum[i]);
            vec_fuse(&acc[i], &joined, &sw);
        }
    }
    ALL(int i = 0; i < rows; i++)
    {
        vec at;

        vec_load_f32(&at, y + i * CODES_ROWS);
        at += acc[i] * x[(size_t)i * stride].scale;
        memcpy(y + i * CODES_ROWS, &at, sizeof(at));
    }
}

CPU_WIDE static void sum_wide(float *y, const struct segment_x *x, size_t stride,
                              const uint8_t *w, const uint16_t *scale, size_t blocks,
                              int rows)
{
    if (rows == 4)
        sum_blocks(y, x, stride, w, scale, blocks, 4);
    else if (rows == 3)
        sum_blocks(y, x, stride, w, scale, blocks, 3);
    else if (rows == 2)
        sum_blocks(y, x, stride, w, scale, blocks, 2);
    else
        sum_blocks(y, x, stride, w, scale, blocks, 1);
}
#endif

CPU_CLONES static void sum_any(float *y, const struct segment_x *x, const uint8_t *w,
                               const uint16_t *scale, size_t blocks)
{
    vec at, acc = { 0 };

    for (size_t k = 0; k < blocks; k++, w += WORDS * LINE, scale += CODES_ROWS) {
        vec sum = { 0 }, sw;

        for (int p = 0; p < WORDS; p++) {
            size_t first = k * CODES_BLOCK + 8 * (size_t)p;
            vec_u32 codes;

            memcpy(&codes, w + p * LINE, sizeof(codes));
            for (int b = 0; b < 4; b++) {
                vec_i32 low = (vec_i32)(codes >> (8 * b) & 15) - 8;
                vec_i32 high = (vec_i32)(codes >> (8 * b + 4) & 15) - 8;

                sum +=
                    __builtin_convertvector(low, vec) * term_of(x, first + (size_t)b);
                sum += __builtin_convertvector(high, vec) *
                       term_of(x, first + 4 + (size_t)b);
            }
        }
        vec_load_f16(&sw, scale);
        acc += sum * sw;
    }
    vec_load_f32(&at, y);
    at += acc * x->scale;
    memcpy(y, &at, sizeof(at));
}

void int4_segment(float *y, const struct segment_x *x, size_t stride, const uint8_t *w,
                  const uint16_t *scale, size_t blocks, int rows)
{
#if CPU_HAS_WIDE
    if (has_dot_bytes()) {
        sum_wide(y, x, stride, w, scale, blocks, rows);
        return;
    }
#endif
    for (int i = 0; i < rows; i++)
        sum_any(y + i * CODES_ROWS, x + (size_t)i * stride, w, scale, blocks);
}
