/* codes-int8 - loops for weights of 8 bits */
#include <string.h>

#include "lib/cpu/simd/amx.h"
#include "lib/cpu/product/codes-linear.h"
#include "lib/cpu/product/codes-loops.h"

#if CPU_HAS_WIDE
/* ROWS and AHEAD, to what is prefetched or 0, are constants after inlining. */
static inline CPU_WIDE __attribute__((always_inline)) void
sum_words(const struct codes_tile *t, int rows, size_t ahead)
{
    const uint8_t *w = t->w;
    vec_i32 acc[CODES_TILE][DIGITS];

    ALL(int i = 0; i < rows; i++)
    ALL(int d = 0; d < DIGITS; d++)
    acc[i][d] = (vec_i32){ 0 } + t->x[(size_t)i * t->stride].sum[0][d];
    for (size_t k = 0; k < t->count; k++, w += LINE) {
        vec_i32 codes;

        if (ahead)
            __builtin_prefetch((const void *)((uintptr_t)w + ahead), 0, 3);
        memcpy(&codes, w, sizeof(codes));
        ALL(int i = 0; i < rows; i++)
        ALL(int d = 0; d < DIGITS; d++)
        add_bytes(&acc[i][d], &codes, t->x[(size_t)i * t->stride].digit[d] + 4 * k);
    }
    ALL(int i = 0; i < rows; i++)
    {
        vec at, sum;

        join_digits(&sum, acc[i]);
        vec_load_f32(&at, t->y + i * CODES_ROWS);
        at += sum * t->x[(size_t)i * t->stride].scale;
        memcpy(t->y + i * CODES_ROWS, &at, sizeof(at));
    }
}

CPU_WIDE static void sum_wide(const struct codes_tile *t)
{
    if (t->rows == 4)
        sum_words(t, 4, AHEAD);
    else if (t->rows == 3)
        sum_words(t, 3, AHEAD);
    else if (t->rows == 2)
        sum_words(t, 2, AHEAD);
    else if (t->hints)
        sum_words(t, 1, ALONE_AHEAD);
    else
        sum_words(t, 1, 0);
}

CPU_WIDE void codes_int8_segment_amx(const struct codes_tile *t)
{
    int32_t sums[DIGITS][AMX_ROWS][CODES_ROWS] __attribute__((aligned(64)));

    amx_sum_codes(sums, t->x->digit[0], SEGMENT_ROOM, t->stride * sizeof(*t->x), t->w,
                  t->count);
    for (int i = 0; i < t->rows; i++) {
        const struct codes_segment *x = t->x + (size_t)i * t->stride;
        vec_i32 digit[DIGITS];
        vec at, sum;

        ALL(int d = 0; d < DIGITS; d++)
        {
            memcpy(&digit[d], sums[d][i], sizeof(digit[d]));
            digit[d] += x->sum[0][d];
        }
        join_digits(&sum, digit);
        vec_load_f32(&at, t->y + i * CODES_ROWS);
        at += sum * x->scale;
        memcpy(t->y + i * CODES_ROWS, &at, sizeof(at));
    }
}
#else
void codes_int8_segment_amx(const struct codes_tile *t)
{
    (void)t;
}
#endif

CPU_CLONES static void sum_any(float *y, const struct codes_segment *x,
                               const uint8_t *w, size_t words)
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

void codes_int8_segment(const struct codes_tile *t)
{
#if CPU_HAS_WIDE
    if (cpu_has() == CPU_VNNI) {
        sum_wide(t);
        return;
    }
    if (codes_by_avx2()) {
        codes_int8_segment_avx2(t);
        return;
    }
#endif
    for (int i = 0; i < t->rows; i++)
        sum_any(t->y + i * CODES_ROWS, t->x + (size_t)i * t->stride, t->w, t->count);
}
