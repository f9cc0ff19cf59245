/* codes - numbers stored in 8 or 4 bits, with scales */
#include "lib/base/codes.h"

#include <math.h>
#include <string.h>

/* Four numbers, as every CPU that runs this has them: what is found, and so what is
 * stored, does not depend on the CPU. */
typedef float four __attribute__((vector_size(16)));
typedef int32_t quad __attribute__((vector_size(16)));

/* Lanes of *a where *mask is all ones, else of *b. */
static inline void choose(four *out, const quad *mask, const four *a, const four *b)
{
    *out = (four)(((quad)*a & *mask) | ((quad)*b & ~*mask));
}

float codes_largest(const float *x, size_t n)
{
    /* without their signs, bits are ordered as numbers are, and NaN are the largest */
    enum { ALL = 16 };
    quad most[4] = { { 0 } }, v[4];
    float largest;

    for (size_t i = 0; i < n; i += ALL) {
        const size_t left = n - i;

        if (left >= ALL) {
            memcpy(v, x + i, sizeof(v));
        } else {
            memset(v, 0, sizeof(v));
            memcpy(v, x + i, left * sizeof(*x));
        }
        for (int k = 0; k < 4; k++) {
            quad above;

            v[k] &= 0x7fffffff;
            above = v[k] > most[k];
            most[k] = (v[k] & above) | (most[k] & ~above);
        }
    }
    for (int k = 1; k < ALL; k++)
        if (most[k / 4][k % 4] > most[0][0])
            most[0][0] = most[k / 4][k % 4];
    memcpy(&largest, most, sizeof(largest));
    return largest;
}

float codes_inverse(float largest, float most, float *scale)
{
    float inverse = most / largest;

    *scale = isfinite(largest) ? largest / most : NAN;
    return isfinite(largest) && isfinite(inverse) ? inverse : 0;
}

float codes_scale8(float largest)
{
    return largest / 127;
}

/* 1 / SCALE; 0 if that is not finite, for a scale of zero or one that is subnormal. */
static float inverse_of(float scale)
{
    float inverse = 1 / scale;

    return isfinite(inverse) ? inverse : 0;
}

/* X, of a magnitude below 2^22, rounded to the nearest integer, limited to LEAST and
 * MOST.  A compiler vectorizes this, unlike rintf. */
static inline float code_of(float x, float least, float most)
{
    float code = (x + 0x1.8p23f) - 0x1.8p23f;

    code = code > most ? most : code;
    return code < least ? least : code;
}

/* to[N] = code_of of the numbers at X times INVERSE, four at a time. */
static inline void codes_of(int8_t *to, const float *x, size_t n, float inverse,
                            float least, float most)
{
    const four low = { least, least, least, least }, high = { most, most, most, most };
    const size_t whole = n / 4 * 4;

    for (size_t i = 0; i < whole; i += 4) {
        quad above, below, code;
        four v;

        memcpy(&v, x + i, sizeof(v));
        v = (v * inverse + 0x1.8p23f) - 0x1.8p23f;
        above = v > high;
        below = v < low;
        choose(&v, &above, &high, &v);
        choose(&v, &below, &low, &v);
        code = __builtin_convertvector(v, quad);
        for (int k = 0; k < 4; k++)
            to[i + (size_t)k] = (int8_t)code[k];
    }
    for (size_t i = whole; i < n; i++)
        to[i] = (int8_t)code_of(x[i] * inverse, least, most);
}

void codes_make8(int8_t *to, const float *x, size_t n, float scale)
{
    codes_of(to, x, n, inverse_of(scale), -127, 127);
}

static float squared_error(const float x[CODES_BLOCK], float scale)
{
    enum { LANES = 8 };
    float inverse = inverse_of(scale), sum[LANES] = { 0 }, all = 0;

    for (int i = 0; i < CODES_BLOCK; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float d = x[i + l] - code_of(x[i + l] * inverse, -8, 7) * scale;

            sum[l] += d * d;
        }
    for (int l = 0; l < LANES; l++)
        all += sum[l];
    return all;
}

/* The number of a block that is the furthest from zero; of two, the positive one. */
static float extreme(const float x[CODES_BLOCK])
{
    four low = { 0 }, high = { 0 };
    float least = 0, most = 0;

    for (int i = 0; i < CODES_BLOCK; i += 4) {
        quad below, above;
        four v;

        memcpy(&v, x + i, sizeof(v));
        below = v < low;
        above = v > high;
        choose(&low, &below, &v, &low);
        choose(&high, &above, &v, &high);
    }
    for (int k = 0; k < 4; k++) {
        least = low[k] < least ? low[k] : least;
        most = high[k] > most ? high[k] : most;
    }
    return -least > most ? least : most;
}

/* Codes reach further below zero than above, so the scale has the opposite sign of the
 * largest number.  A smaller scale is finer but clips that number. */
uint16_t codes_scale4(const float x[CODES_BLOCK], bool decoded)
{
    /* the last two: the largest number may have had the code 7 or -7 */
    static const float parts[] = { 8, 8.6f, 7.5f, 7, -7 };
    size_t n = sizeof(parts) / sizeof(*parts) - (decoded ? 0 : 2);
    float least = INFINITY, largest = extreme(x);
    uint16_t best = 0;

    for (size_t k = 0; k < n && least > 0 && largest != 0; k++) {
        uint16_t scale = dtype_f32_to_f16(-largest / parts[k]);
        float wide = dtype_f16_to_f32(scale), error;

        if (!isfinite(wide) || wide == 0)
            continue;
        error = squared_error(x, wide);
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    return best;
}

void codes_make4(int8_t to[CODES_BLOCK], const float x[CODES_BLOCK], uint16_t scale)
{
    codes_of(to, x, CODES_BLOCK, inverse_of(dtype_f16_to_f32(scale)), -8, 7);
}

void codes_put8(uint8_t *to, uint64_t cols, uint64_t row, uint64_t first, size_t n,
                const int8_t *code)
{
    uint64_t words = (cols + 3) / 4;
    uint8_t *line = to + (row / CODES_ROWS * words * CODES_ROWS + row % CODES_ROWS) * 4;
    size_t c = 0;

    line += first * CODES_ROWS;
    for (; c + 4 <= n; c += 4) {
        uint32_t word;

        memcpy(&word, code + c, sizeof(word));
        word ^= 0x80808080; /* plus 128 each */
        memcpy(line + c * CODES_ROWS, &word, sizeof(word));
    }
    for (; c < n; c++)
        line[c / 4 * 4 * CODES_ROWS + c % 4] = (uint8_t)(code[c] + 128);
}

void codes_put4(uint8_t *to, uint16_t *scales, uint64_t cols, uint64_t row,
                uint64_t block, const int8_t code[CODES_BLOCK], uint16_t scale)
{
    uint64_t blocks = cols / CODES_BLOCK, at = row / CODES_ROWS * blocks + block;
    uint8_t *line = to + (at * 4 * CODES_ROWS + row % CODES_ROWS) * 4;

    for (int w = 0; w < 4; w++, line += 4 * CODES_ROWS, code += 8)
        for (int i = 0; i < 4; i++)
            line[i] = (uint8_t)((code[i] + 8) | (code[i + 4] + 8) << 4);
    scales[at * CODES_ROWS + row % CODES_ROWS] = scale;
}
