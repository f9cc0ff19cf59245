/* ggml - weights as ggml stores them: blocks of numbers that share scales */
#include "lib/base/ggml.h"

#include <math.h>
#include <string.h>

#include "lib/base/dtype.h"

static float half(const uint8_t *b)
{
    return dtype_f16_to_f32((uint16_t)(b[0] | b[1] << 8));
}

/* Code I of 32 in 16 bytes: the lower halves first, then the upper ones. */
static int nibble(const uint8_t *b, int i)
{
    return b[i % 16] >> 4 * (i / 16) & 15;
}

/* Bit I of B, as the fifth of a code. */
static int fifth(const uint8_t *b, int i)
{
    return (b[i / 8] >> i % 8 & 1) << 4;
}

/* ---- 32 numbers ---- */

/* half d; qs[16] */
static void widen_q4_0(float *x, const uint8_t *b)
{
    for (int i = 0; i < 32; i++)
        x[i] = half(b) * (float)(nibble(b + 2, i) - 8);
}

/* half d, m; qs[16] */
static void widen_q4_1(float *x, const uint8_t *b)
{
    for (int i = 0; i < 32; i++)
        x[i] = half(b) * (float)nibble(b + 4, i) + half(b + 2);
}

/* half d; qh[4]; qs[16] */
static void widen_q5_0(float *x, const uint8_t *b)
{
    for (int i = 0; i < 32; i++)
        x[i] = half(b) * (float)((nibble(b + 6, i) | fifth(b + 2, i)) - 16);
}

/* half d, m; qh[4]; qs[16] */
static void widen_q5_1(float *x, const uint8_t *b)
{
    for (int i = 0; i < 32; i++)
        x[i] = half(b) * (float)(nibble(b + 8, i) | fifth(b + 4, i)) + half(b + 2);
}

/* half d; int8 q[32] */
static void widen_q8_0(float *x, const uint8_t *b)
{
    for (int i = 0; i < 32; i++)
        x[i] = half(b) * (float)(int8_t)b[2 + i];
}

/* uint8 e; qs[16]: the OCP format MXFP4, with values doubled and 2^(e - 128) */
static void widen_mxfp4(float *x, const uint8_t *b)
{
    static const float value[] = { 0, 1,  2,  3,  4,  6,  8,  12,
                                   0, -1, -2, -3, -4, -6, -8, -12 };
    uint32_t bits = b[0] < 2 ? UINT32_C(0x200000) << b[0] : (uint32_t)(b[0] - 1) << 23;
    float d;

    memcpy(&d, &bits, sizeof(d));
    for (int i = 0; i < 32; i++)
        x[i] = d * value[nibble(b + 1, i)];
}

/* ---- 256 numbers ---- */

/* Scale and minimum J of 8, of 6 bits each, in the 12 bytes at S. */
static void scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    *scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    *min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

/* scales[16]; qs[64]; half d, e */
static void widen_q2_k(float *x, const uint8_t *b)
{
    float d = half(b + 80), e = half(b + 82);

    for (int i = 0; i < 256; i++) {
        int code = b[16 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
        int s = b[i / 16];

        x[i] = d * (float)(s & 15) * (float)code - e * (float)(s >> 4);
    }
}

/* hmask[32]; qs[64]; scales[12]; half d */
static void widen_q3_k(float *x, const uint8_t *b)
{
    const uint8_t *s = b + 96;
    float d = half(b + 108);

    for (int i = 0; i < 256; i++) {
        int j = i / 16;
        int scale = (s[j % 8] >> 4 * (j / 8) & 15) | (s[8 + j % 4] >> 2 * (j / 4) & 3)
                                                         << 4;
        int code = b[32 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
        int high = b[i % 32] >> i / 32 & 1;

        x[i] = d * (float)(scale - 32) * (float)(code - 4 * (1 - high));
    }
}

/* half d, e; scales[12]; qs[128] */
static void widen_q4_k(float *x, const uint8_t *b)
{
    float d = half(b), e = half(b + 2);

    for (int i = 0; i < 256; i++) {
        int scale, min;

        scale_min(b + 4, i / 32, &scale, &min);
        x[i] = d * (float)scale *
                   (float)(b[16 + i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15) -
               e * (float)min;
    }
}

/* half d, e; scales[12]; qh[32]; qs[128] */
static void widen_q5_k(float *x, const uint8_t *b)
{
    float d = half(b), e = half(b + 2);

    for (int i = 0; i < 256; i++) {
        int code = (b[48 + i / 64 * 32 + i % 32] >> 4 * (i / 32 % 2) & 15) |
                   (b[16 + i % 32] >> i / 32 & 1) << 4;
        int scale, min;

        scale_min(b + 4, i / 32, &scale, &min);
        x[i] = d * (float)scale * (float)code - e * (float)min;
    }
}

/* ql[128]; qh[64]; int8 scales[16]; half d */
static void widen_q6_k(float *x, const uint8_t *b)
{
    float d = half(b + 208);

    for (int i = 0; i < 256; i++) {
        int low = b[i / 128 * 64 + i % 64] >> 4 * (i / 64 % 2) & 15;
        int high = b[128 + i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;

        x[i] = d * (float)(int8_t)b[192 + i / 16] * (float)((low | high << 4) - 32);
    }
}

/* ---- codes of a table: "non-linear" 4 bits ---- */

static const float levels[] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113 };

/* half d; qs[16] */
static void widen_iq4_nl(float *x, const uint8_t *b)
{
    for (int i = 0; i < 32; i++)
        x[i] = half(b) * levels[nibble(b + 2, i)];
}

/* half d; uint16 high; low[4]; qs[128] */
static void widen_iq4_xs(float *x, const uint8_t *b)
{
    int high = b[2] | b[3] << 8;
    float d = half(b);

    for (int i = 0; i < 256; i++) {
        int g = i / 32;
        int scale = (b[4 + g / 2] >> 4 * (g % 2) & 15) | (high >> 2 * g & 3) << 4;

        x[i] = d * (float)(scale - 32) * levels[nibble(b + 8 + 16 * g, i % 32)];
    }
}

const struct ggml_row ggml_table[] = {
    { "q4_0", 2, 32, 18, widen_q4_0 },      { "q4_1", 3, 32, 20, widen_q4_1 },
    { "q5_0", 6, 32, 22, widen_q5_0 },      { "q5_1", 7, 32, 24, widen_q5_1 },
    { "q8_0", 8, 32, 34, widen_q8_0 },      { "q2_k", 10, 256, 84, widen_q2_k },
    { "q3_k", 11, 256, 110, widen_q3_k },   { "q4_k", 12, 256, 144, widen_q4_k },
    { "q5_k", 13, 256, 176, widen_q5_k },   { "q6_k", 14, 256, 210, widen_q6_k },
    { "iq4_nl", 20, 32, 18, widen_iq4_nl }, { "iq4_xs", 23, 256, 136, widen_iq4_xs },
    { "mxfp4", 39, 32, 17, widen_mxfp4 },
};
const size_t ggml_count = sizeof(ggml_table) / sizeof(*ggml_table);

const struct ggml_row *ggml_find(uint32_t type)
{
    for (size_t i = 0; i < ggml_count; i++)
        if (ggml_table[i].type == type)
            return &ggml_table[i];
    return NULL;
}

const struct ggml_row *ggml_named(const char *name)
{
    for (size_t i = 0; i < ggml_count; i++)
        if (!strcmp(ggml_table[i].name, name))
            return &ggml_table[i];
    return NULL;
}

void ggml_widen(const struct ggml_row *r, float *x, const uint8_t *b, size_t n)
{
    for (size_t i = 0; i + r->numbers <= n; i += r->numbers, b += r->bytes)
        r->widen(x + i, b);
}

bool ggml_q8(uint8_t *b, const float *x)
{
    float most = 0, scale, inverse;
    uint16_t stored;

    for (int i = 0; i < GGML_Q8_NUMBERS; i++) {
        if (!isfinite(x[i]))
            return false;
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    scale = most / 127;
    inverse = scale > 0 ? 1 / scale : 0;
    if (isinf(inverse)) /* of a scale that is 0 as a half */
        inverse = 0;
    stored = dtype_f32_to_f16(scale);
    if (isinf(dtype_f16_to_f32(stored)))
        return false;
    b[0] = (uint8_t)(stored & 0xff);
    b[1] = (uint8_t)(stored >> 8);
    for (int i = 0; i < GGML_Q8_NUMBERS; i++)
        b[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
    return true;
}
