/* codes-avx2 - loops for weights of 8 and 4 bits, for CPUs with AVX2
 *
 * Without products of four bytes.  8 bits: codes are widened to 16 bits and multiplied
 * by digits of 12 bits, or by terms of 16.  4 bits: products of a code and a digit of 8
 * bits are at most 15 * 128, so that sixteen of them, which is a lane's share of a
 * block, add up in 16 bits. */
#include "lib/cpu/product/codes-linear.h"
#include "lib/cpu/product/codes-loops.h"

#include "lib/cpu/simd/avx2.h"

#if CPU_HAS_WIDE
#include <immintrin.h>

enum {
    QUADS = CODES_ROWS / 4, /* registers of a word of 8 bits of each row */
    SIDES = CODES_ROWS / 8, /* and of 4 bits */
    WORDS = CODES_BLOCK / 8 /* of 4 bits, of a row of a block */
};

/* y[8] += sum * the scale of X */
static inline __attribute__((always_inline)) void add_sums(float *y, __m256 sum,
                                                           float scale)
{
    _mm256_storeu_ps(y,
                     _mm256_fmadd_ps(sum, _mm256_set1_ps(scale), _mm256_loadu_ps(y)));
}

/* ---- 8 bits ---- */

/* ROWS rows by the groups of four outputs QUAD to QUAD + QUADS_OF: acc[row][quad][half]
 * has two sums of an output, of its even and its odd pairs of terms.  ROWS, QUADS_OF,
 * HALVES and AHEAD, to what is prefetched or 0, are constants after inlining. */
static inline __attribute__((always_inline)) void
sum_words(__m256i acc[CODES_TILE][QUADS][2], const struct codes_tile *t, int rows,
          int quad, int quads_of, int halves, size_t ahead)
{
    const uint8_t *w = t->w + (size_t)quad * 16;
    __m256i sum[CODES_TILE][QUADS][2];

    ALL(int i = 0; i < rows; i++)
    ALL(int q = 0; q < quads_of; q++)
    ALL(int h = 0; h < halves; h++) sum[i][q][h] = _mm256_setzero_si256();
    for (size_t k = 0; k < t->count; k++, w += LINE) {
        __m256i codes[QUADS];

        if (ahead)
            _mm_prefetch((const char *)((uintptr_t)w + ahead), _MM_HINT_T0);
        ALL(int q = 0; q < quads_of; q++)
        codes[q] = _mm256_cvtepu8_epi16(
            _mm_loadu_si128((const __m128i *)(const void *)(w + (size_t)q * 16)));
        ALL(int i = 0; i < rows; i++)
        ALL(int h = 0; h < halves; h++)
        {
            long long four;
            __m256i x;

            memcpy(&four, t->x[(size_t)i * t->stride].half[h] + 4 * k, sizeof(four));
            x = _mm256_set1_epi64x(four);
            ALL(int q = 0; q < quads_of; q++)
            sum[i][q][h] =
                _mm256_add_epi32(sum[i][q][h], _mm256_madd_epi16(codes[q], x));
        }
    }
    ALL(int i = 0; i < rows; i++)
    ALL(int q = 0; q < quads_of; q++)
    ALL(int h = 0; h < halves; h++) acc[i][quad + q][h] = sum[i][q][h];
}

/* The sums of eight outputs from those of their pairs of terms, and FIRST. */
static inline __attribute__((always_inline)) __m256 join_pairs(__m256i a, __m256i b,
                                                               int32_t first)
{
    __m256i sum = _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xd8);

    return _mm256_cvtepi32_ps(_mm256_add_epi32(sum, _mm256_set1_epi32(first)));
}

static void int8_finish(const struct codes_tile *t, __m256i acc[CODES_TILE][QUADS][2])
{
    for (int i = 0; i < t->rows; i++) {
        const struct codes_segment *x = &t->x[(size_t)i * t->stride];

        for (int q = 0; q < QUADS; q += 2) {
            __m256 sum = join_pairs(acc[i][q][0], acc[i][q + 1][0], x->sum[0][0]);

            if (!t->coarse)
                sum = _mm256_fmadd_ps(
                    join_pairs(acc[i][q][1], acc[i][q + 1][1], x->sum[0][1]),
                    _mm256_set1_ps(4096), sum);
            add_sums(t->y + i * CODES_ROWS + q * 4, sum, x->scale);
        }
    }
}

/* All outputs, QUADS_OF groups of four at a time. */
static inline __attribute__((always_inline)) void
sum_quads(__m256i acc[CODES_TILE][QUADS][2], const struct codes_tile *t, int rows,
          int quads_of, int halves, size_t ahead)
{
    for (int q = 0; q < QUADS; q += quads_of)
        sum_words(acc, t, rows, q, quads_of, halves, ahead);
}

static void sum_fine(__m256i acc[CODES_TILE][QUADS][2], const struct codes_tile *t)
{
    if (t->rows == 4)
        sum_quads(acc, t, 4, 1, 2, 0);
    else if (t->rows == 3)
        sum_quads(acc, t, 3, 2, 2, 0);
    else if (t->rows == 2)
        sum_quads(acc, t, 2, 2, 2, 0);
    else if (t->hints)
        sum_quads(acc, t, 1, QUADS, 2, ALONE_AHEAD);
    else
        sum_quads(acc, t, 1, QUADS, 2, 0);
}

static void sum_coarse(__m256i acc[CODES_TILE][QUADS][2], const struct codes_tile *t)
{
    if (t->rows == 4)
        sum_quads(acc, t, 4, 2, 1, 0);
    else if (t->rows == 3)
        sum_quads(acc, t, 3, 2, 1, 0);
    else if (t->rows == 2)
        sum_quads(acc, t, 2, QUADS, 1, 0);
    else if (t->hints)
        sum_quads(acc, t, 1, QUADS, 1, ALONE_AHEAD);
    else
        sum_quads(acc, t, 1, QUADS, 1, 0);
}

void codes_int8_segment_avx2(const struct codes_tile *t)
{
    __m256i acc[CODES_TILE][QUADS][2];

    if (t->coarse)
        sum_coarse(acc, t);
    else
        sum_fine(acc, t);
    int8_finish(t, acc);
}

/* ---- 4 bits ---- */

/* The sums of a block of eight outputs, of which PAIRS has those of pairs of terms by
 * each digit, in integers: at most 2^30. */
static inline __attribute__((always_inline)) __m256
join_block(const __m256i pairs[DIGITS], const int32_t first[DIGITS], int digits)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i sum = _mm256_setzero_si256();

    ALL(int d = digits - 1; d >= 0; d--)
    sum = _mm256_add_epi32(_mm256_slli_epi32(sum, 8),
                           _mm256_add_epi32(_mm256_madd_epi16(pairs[d], one),
                                            _mm256_set1_epi32(first[d])));
    return _mm256_cvtepi32_ps(sum);
}

/* *sum += the products of the codes and the four digits at X */
static inline __attribute__((always_inline)) void add_codes(__m256i *sum, __m256i codes,
                                                            const int8_t *x)
{
    int32_t four;

    memcpy(&four, x, sizeof(four));
    *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(codes, _mm256_set1_epi32(four)));
    __asm__("" : "+x"(*sum)); /* or the compiler keeps all products, and adds later */
}

/* ROWS rows by the outputs from 8 * SIDE on, SIDES_OF times eight; constants after
 * inlining, as are DIGITS and AHEAD. */
static inline __attribute__((always_inline)) void
sum_blocks(const struct codes_tile *t, const uint8_t *w, const uint16_t *scale,
           float *y, int rows, int side, int sides_of, int digits, size_t ahead)
{
    const __m256i low = _mm256_set1_epi8(15);
    __m256 acc[CODES_TILE][SIDES];

    ALL(int i = 0; i < rows; i++)
    ALL(int s = 0; s < sides_of; s++) acc[i][s] = _mm256_setzero_ps();
    for (size_t k = 0; k < t->count; k++, w += WORDS * LINE, scale += CODES_ROWS) {
        __m256i sum[CODES_TILE][SIDES][DIGITS];

        ALL(int i = 0; i < rows; i++)
        ALL(int s = 0; s < sides_of; s++)
        ALL(int d = 0; d < digits; d++) sum[i][s][d] = _mm256_setzero_si256();
        ALL(int p = 0; p < WORDS; p++)
        ALL(int s = 0; s < sides_of; s++)
        {
            const uint8_t *at = w + p * LINE + (side + s) * 32;
            const size_t first = k * CODES_BLOCK + 8 * (size_t)p;
            __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)at);
            __m256i lower = _mm256_and_si256(codes, low);
            __m256i upper = _mm256_and_si256(_mm256_srli_epi16(codes, 4), low);

            if (ahead && s == 0)
                _mm_prefetch((const char *)((uintptr_t)at + ahead), _MM_HINT_T0);
            ALL(int i = 0; i < rows; i++)
            ALL(int d = 0; d < digits; d++)
            {
                const int8_t *x = t->x[(size_t)i * t->stride].digit[d] + first;

                add_codes(&sum[i][s][d], lower, x);
                add_codes(&sum[i][s][d], upper, x + 4);
            }
        }
        ALL(int s = 0; s < sides_of; s++)
        {
            __m256 by = _mm256_cvtph_ps(_mm_loadu_si128(
                (const __m128i *)(const void *)(scale + (side + s) * 8)));

            ALL(int i = 0; i < rows; i++)
            acc[i][s] = _mm256_fmadd_ps(
                join_block(sum[i][s], t->x[(size_t)i * t->stride].sum[k], digits), by,
                acc[i][s]);
        }
    }
    ALL(int i = 0; i < rows; i++)
    ALL(int s = 0; s < sides_of; s++)
    add_sums(y + i * CODES_ROWS + (side + s) * 8, acc[i][s],
             t->x[(size_t)i * t->stride].scale);
}

static inline __attribute__((always_inline)) void sum_sides(const struct codes_tile *t,
                                                            int digits)
{
    for (int g = 0; t->rows == 1 && g < t->groups; g++) {
        size_t at = (size_t)g * t->apart;

        sum_blocks(t, t->w + at, (const uint16_t *)t->scale + at / (CODES_BLOCK / 2),
                   t->y + g * CODES_ROWS, 1, 0, SIDES, digits,
                   t->hints ? ALONE_AHEAD : AHEAD);
    }
    for (int s = 0; t->rows == 2 && s < SIDES; s++)
        sum_blocks(t, t->w, t->scale, t->y, 2, s, 1, digits, 0);
    for (int s = 0; t->rows == 3 && s < SIDES; s++)
        sum_blocks(t, t->w, t->scale, t->y, 3, s, 1, digits, 0);
    for (int s = 0; t->rows == 4 && s < SIDES; s++)
        sum_blocks(t, t->w, t->scale, t->y, 4, s, 1, digits, 0);
}

void codes_int4_segment_avx2(const struct codes_tile *t)
{
    if (t->coarse)
        sum_sides(t, DIGITS - 1);
    else
        sum_sides(t, DIGITS);
}
#endif
