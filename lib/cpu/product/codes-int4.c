/* codes-int4 - loops for weights of 4 bits: int4, and MXFP4, twice whose numbers plus
 * 12 are looked up */
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

/* *codes = the bytes of TWICE that the bytes of *codes are indices of */
static inline CPU_WIDE __attribute__((always_inline)) void look_up(vec_i32 *codes,
                                                                   const vec_i32 *twice)
{
    vec_i32 out;

    __asm__("vpshufb %2, %1, %0" : "=v"(out) : "v"(*twice), "v"(*codes));
    *codes = out;
}

/* ROWS, GROUPS and MX are constants after inlining. */
static inline CPU_WIDE __attribute__((always_inline)) void
sum_blocks(const struct codes_tile *t, int rows, int groups, bool mx)
{
    static const uint8_t plus12[] = { 12, 13, 14, 15, 16, 18, 20, 24,
                                      12, 11, 10, 9,  8,  6,  4,  0 };
    vec_i32 twice = { 0 };
    const int tiles = rows > 1 ? rows : groups;
    const size_t ahead = groups > 1 ? STREAMS_AHEAD : rows > 1 ? AHEAD : ALONE_AHEAD;
    const uint8_t *w = t->w;
    vec acc[CODES_TILE];

    for (int i = 0; i < 4 && mx; i++)
        memcpy((char *)&twice + i * sizeof(plus12), plus12, sizeof(plus12));
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
                if (mx) {
                    look_up(&low, &twice);
                    look_up(&high, &twice);
                }
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
                const size_t of =
                    k * CODES_ROWS + (size_t)i * t->apart / CODES_PER_SCALE;
                const char *from = (const char *)t->scale + of * (mx ? 1 : 2);

                if (mx)
                    mxfp4_scales(&sw, (const uint8_t *)from);
                else
                    load_scales(&sw, from);
                __builtin_prefetch(
                    (const void *)((uintptr_t)from + ahead / (mx ? 16 : 8)), 0, 3);
            }
            join_digits(&joined, sum[i]);
            vec_fuse(&acc[i], &joined, &sw);
        }
    }
    ALL(int i = 0; i < tiles; i++)
    {
        vec at;

        vec_load_f32(&at, t->y + i * CODES_ROWS);
        at += acc[i] *
              (t->x[rows > 1 ? (size_t)i * t->stride : 0].scale * (mx ? 0.5f : 1.0f));
        memcpy(t->y + i * CODES_ROWS, &at, sizeof(at));
    }
}

#define SUM(name, mx)                                     \
    CPU_WIDE static void name(const struct codes_tile *t) \
    {                                                     \
        if (t->groups == CODES_TILE)                      \
            sum_blocks(t, 1, CODES_TILE, mx);             \
        else if (t->rows == 4)                            \
            sum_blocks(t, 4, 1, mx);                      \
        else if (t->rows == 3)                            \
            sum_blocks(t, 3, 1, mx);                      \
        else if (t->rows == 2)                            \
            sum_blocks(t, 2, 1, mx);                      \
        else                                              \
            sum_blocks(t, 1, 1, mx);                      \
    }
SUM(sum_wide, false)
SUM(sum_wide_mx, true)
#undef SUM
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

/* The same of MXFP4. */
CPU_CLONES static void sum_any_mx(float *y, const struct codes_segment *x,
                                  const uint8_t *w, const uint8_t *scale, size_t blocks)
{
    vec at, acc = { 0 };

    for (size_t k = 0; k < blocks; k++, w += WORDS * LINE, scale += CODES_ROWS) {
        vec sum = { 0 }, sw;

        for (int p = 0; p < WORDS; p++) {
            size_t first = k * CODES_BLOCK + 8 * (size_t)p;
            vec_u32 codes;

            memcpy(&codes, w + p * LINE, sizeof(codes));
            for (int b = 0; b < 8; b++) {
                vec_u32 four = codes >> (b < 4 ? 8 * b : 8 * (b - 4) + 4) & 15;
                vec_i32 twice;

                mxfp4_twice(&twice, &four);
                sum +=
                    __builtin_convertvector(twice, vec) * term_of(x, first + (size_t)b);
            }
        }
        mxfp4_scales(&sw, scale);
        acc += sum * sw;
    }
    vec_load_f32(&at, y);
    at += acc * (x->scale * 0.5f);
    memcpy(y, &at, sizeof(at));
}

void codes_int4_segment(const struct codes_tile *t)
{
    const bool mx = t->format == FORMAT_MXFP4;

#if CPU_HAS_WIDE
    if (cpu_has() == CPU_VNNI) {
        (mx ? sum_wide_mx : sum_wide)(t);
        return;
    }
    if (codes_by_avx2() && !mx) {
        codes_int4_segment_avx2(t);
        return;
    }
#endif
    for (int i = 0; i < t->rows; i++)
        for (int g = 0; g < t->groups; g++) {
            const struct codes_segment *x = t->x + (size_t)i * t->stride;
            const uint8_t *w = t->w + (size_t)g * t->apart;
            const size_t of = (size_t)g * t->apart / CODES_PER_SCALE;
            float *y = t->y + (i + g) * CODES_ROWS;

            if (mx)
                sum_any_mx(y, x, w, (const uint8_t *)t->scale + of, t->count);
            else
                sum_any(y, x, w, (const uint16_t *)t->scale + of, t->count);
        }
}
