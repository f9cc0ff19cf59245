/* codes-int4 - loops for weights of 4 bits */
#include <string.h>

#include "lib/cpu/product/codes-linear.h"
#include "lib/cpu/product/codes-loops.h"

enum {
    WORDS = CODES_BLOCK / 8,          /* of a row of a block */
    CODES_PER_SCALE = CODES_BLOCK / 2 /* bytes of codes to a scale */
};

#if CPU_HAS_WIDE
typedef uint16_t scales __attribute__((vector_size(32)));

static inline CPU_WIDE __attribute__((always_inline)) void load_scales(vec *out,
                                                                       const void *p)
{
    __asm__("vcvtph2ps %1, %0" : "=v"(*out) : "m"(*(const scales *)p));
}

/* add_bytes for several *w and the same bytes of x. */
static inline CPU_WIDE __attribute__((always_inline)) void
add_words(vec_i32 *sum, const vec_i32 *w, const vec_i32 *x)
{
    vec_i32 to = *sum;

    __asm__("vpdpbusd %2, %1, %0" : "+v"(to) : "v"(*w), "v"(*x));
    *sum = to;
}

/* *out = the four bytes at X, in each lane */
static inline CPU_WIDE __attribute__((always_inline)) void spread_bytes(vec_i32 *out,
                                                                        const int8_t *x)
{
    __asm__("vpbroadcastd %1, %0" : "=v"(*out) : "m"(*(const int8_t(*)[4])x));
}

/* Prefetches what is read AHEAD bytes later: one stream to the L1 cache, several to
 * L2. */
static inline __attribute__((always_inline)) void fetch(const uint8_t *w, int groups,
                                                        size_t ahead)
{
    vec_fetch((const char *)((uintptr_t)w + ahead), groups == 1);
}

/* ROWS and GROUPS are constants after inlining. */
static inline CPU_WIDE __attribute__((always_inline)) void
sum_blocks(const struct codes_tile *t, int rows, int groups)
{
    const int tiles = rows > 1 ? rows : groups;
    const size_t ahead = groups > 1 ? STREAMS_AHEAD : rows > 1 ? AHEAD : ALONE_AHEAD;
    const uint8_t *w = t->w;
    vec acc[CODES_TILE];

    ALL(int i = 0; i < tiles; i++) acc[i] = (vec){ 0 };
    for (size_t k = 0; k < t->count; k++, w += WORDS * LINE) {
        vec_i32 sum[CODES_TILE][DIGITS];
        vec sw;

        ALL(int i = 0; i < tiles; i++)
        ALL(int d = 0; d < DIGITS; d++)
        sum[i][d] =
            (vec_i32){ 0 } + t->x[rows > 1 ? (size_t)i * t->stride : 0].sum[k][d];
        ALL(int p = 0; p < WORDS; p++)
        {
            const size_t first = k * CODES_BLOCK + 8 * (size_t)p;
            vec_i32 low, high, x[DIGITS], next[DIGITS];

            if (groups > 1)
                ALL(int d = 0; d < DIGITS; d++)
                {
                    spread_bytes(&x[d], t->x->digit[d] + first);
                    spread_bytes(&next[d], t->x->digit[d] + first + 4);
                }
            ALL(int g = 0; g < groups; g++)
            {
                const uint8_t *at = w + (size_t)g * t->apart + p * LINE;
                vec_u32 codes;

                fetch(at, groups, ahead);
                memcpy(&codes, at, sizeof(codes));
                low = (vec_i32)(codes & 0x0f0f0f0f);
                high = (vec_i32)(codes >> 4 & 0x0f0f0f0f);
                if (groups > 1)
                    ALL(int d = 0; d < DIGITS; d++)
                    {
                        add_words(&sum[g][d], &low, &x[d]);
                        add_words(&sum[g][d], &high, &next[d]);
                    }
            }
            if (groups == 1) {
                ALL(int i = 0; i < rows; i++)
                ALL(int d = 0; d < DIGITS; d++)
                {
                    const int8_t *of = t->x[(size_t)i * t->stride].digit[d] + first;

                    add_bytes(&sum[i][d], &low, of);
                    add_bytes(&sum[i][d], &high, of + 4);
                }
            }
        }
        ALL(int i = 0; i < tiles; i++)
        {
            vec joined;

            if (i < groups) {
                const uint16_t *of =
                    t->scale + k * CODES_ROWS + (size_t)i * t->apart / CODES_PER_SCALE;

                load_scales(&sw, of);
                __builtin_prefetch((const void *)((uintptr_t)of + ahead / 8), 0, 3);
            }
            join_digits(&joined, sum[i]);
            vec_fuse(&acc[i], &joined, &sw);
        }
    }
    ALL(int i = 0; i < tiles; i++)
    {
        vec at;

        vec_load_f32(&at, t->y + i * CODES_ROWS);
        at += acc[i] * t->x[rows > 1 ? (size_t)i * t->stride : 0].scale;
        memcpy(t->y + i * CODES_ROWS, &at, sizeof(at));
    }
}

CPU_WIDE static void sum_wide(const struct codes_tile *t)
{
    if (t->groups == CODES_TILE)
        sum_blocks(t, 1, CODES_TILE);
    else if (t->rows == 4)
        sum_blocks(t, 4, 1);
    else if (t->rows == 3)
        sum_blocks(t, 3, 1);
    else if (t->rows == 2)
        sum_blocks(t, 2, 1);
    else
        sum_blocks(t, 1, 1);
}
#endif

CPU_CLONES static void sum_any(float *y, const struct codes_segment *x,
                               const uint8_t *w, const uint16_t *scale, size_t blocks)
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

void codes_int4_segment(const struct codes_tile *t)
{
#if CPU_HAS_WIDE
    if (cpu_has() == CPU_VNNI) {
        sum_wide(t);
        return;
    }
    if (codes_by_avx2()) {
        codes_int4_segment_avx2(t);
        return;
    }
#endif
    for (int i = 0; i < t->rows; i++)
        for (int g = 0; g < t->groups; g++)
            sum_any(t->y + (i + g) * CODES_ROWS, t->x + (size_t)i * t->stride,
                    t->w + (size_t)g * t->apart,
                    t->scale + (size_t)g * t->apart / CODES_PER_SCALE, t->count);
}
