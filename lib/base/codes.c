/* codes - numbers stored in 8 or 4 bits, with scales */
#include "lib/base/codes.h"

#include <math.h>

#include "lib/base/dtype.h"

float codes_largest(const float *x, size_t n)
{
    float largest = 0;

    for (size_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);

        if (isnan(size))
            return size;
        if (size > largest)
            largest = size;
    }
    return largest;
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

void codes_make8(int8_t *to, const float *x, size_t n, float scale)
{
    float inverse = inverse_of(scale);

    for (size_t i = 0; i < n; i++) {
        float code = rintf(x[i] * inverse);

        to[i] = (int8_t)(code > 127 ? 127 : code < -127 ? -127 : code);
    }
}

static float code4(float x, float inverse)
{
    float code = rintf(x * inverse);

    return code > 7 ? 7 : code < -8 ? -8 : code;
}

static float squared_error(const float x[CODES_BLOCK], float scale)
{
    float inverse = inverse_of(scale), sum = 0;

    for (int i = 0; i < CODES_BLOCK; i++) {
        float d = x[i] - code4(x[i], inverse) * scale;

        sum += d * d;
    }
    return sum;
}

/* Codes reach further below zero than above, so the scale has the opposite sign of the
 * largest number.  A larger scale clips nothing but is coarse, a smaller one is fine
 * but clips. */
uint16_t codes_scale4(const float x[CODES_BLOCK])
{
    static const float parts[] = { 8, 8.4f, 8.8f, 7.7f, 7.4f, 7.1f };
    float largest = 0, least = INFINITY;
    uint16_t best = 0;

    for (int i = 0; i < CODES_BLOCK; i++)
        if (fabsf(x[i]) > fabsf(largest))
            largest = x[i];
    for (size_t k = 0; k < sizeof(parts) / sizeof(*parts) && largest != 0; k++) {
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

void codes_make4(uint8_t to[CODES_BLOCK / 2], const float x[CODES_BLOCK],
                 uint16_t scale)
{
    float inverse = inverse_of(dtype_f16_to_f32(scale));

    for (int i = 0; i < CODES_BLOCK / 2; i++) {
        int low = (int)code4(x[2 * i], inverse) + 8;
        int high = (int)code4(x[2 * i + 1], inverse) + 8;

        to[i] = (uint8_t)(low | high << 4);
    }
}
