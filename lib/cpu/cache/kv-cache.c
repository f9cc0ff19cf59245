/* kv-cache - conversion of rows to and from the cache's type
 *
 * An int8 row has a scale for each head: the largest magnitude / 127.  A cached row
 * depends on its own token only, so results do not depend on batching or on chunks of a
 * prompt. */
#include <math.h>
#include <string.h>

#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"

/* Quantizes the N values of a head at X to int8.  Returns the scale; NAN if a value is
 * not finite. */
CPU_CLONES static float narrow(int8_t *q, const float *x, size_t n)
{
    float most = 0, to;

    for (size_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);

        most = size > most || isnan(size) ? size : most;
    }
    if (!(most < INFINITY)) {
        memset(q, 1, n);
        return NAN;
    }
    to = most > 0 ? 127 / most : 0;
    if (!(to < INFINITY)) /* all magnitudes are below 2^-121 */
        to = 0;
    for (size_t i = 0; i < n; i++)
        q[i] = (int8_t)rintf(x[i] * to);
    return most / 127;
}

CPU_CLONES static void round_bf16(uint16_t *to, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = dtype_f32_to_bf16(x[i]);
}

static void cache_int8(float *scale, const float *x, const struct buffer *p)
{
    uint64_t heads = p->cols / p->width;
    int8_t *q = (int8_t *)(scale + heads);

    for (uint64_t h = 0; h < heads; h++)
        scale[h] = narrow(q + h * p->width, x + h * p->width, p->width);
}

void cpu_cache_row(void *to, const float *x, const struct buffer *p)
{
    if (p->format == FORMAT_F32)
        memcpy(to, x, p->cols * sizeof(*x));
    else if (p->format == FORMAT_BF16)
        round_bf16(to, x, p->cols);
    else if (p->format == FORMAT_CACHE_INT8)
        cache_int8(to, x, p);
    else
        format_table[p->format].encode(
            &(struct format_codes){
                .data = to, .rows = 1, .cols = p->cols, .per = p->width },
            0, x, 0, false);
}

CPU_CLONES static void scale_bytes(float *y, const int8_t *q, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)q[i] * scale;
}

static void widen_int8(float *y, const float *scale, uint64_t first, size_t n,
                       const struct buffer *p)
{
    const int8_t *q = (const int8_t *)(scale + p->cols / p->width);

    for (uint64_t end = first + n; first < end;) {
        uint64_t h = first / p->width, left = (h + 1) * p->width - first;
        uint64_t some = left < end - first ? left : end - first;

        scale_bytes(y, q + first, scale[h], (size_t)some);
        y += some;
        first += some;
    }
}

void cpu_cached(float *y, const void *row, uint64_t first, size_t n,
                const struct buffer *p)
{
    const struct matrix bf16 = {
        .data = row, .format = FORMAT_BF16, .rows = 1, .cols = p->cols
    };
    const struct format_codes codes = {
        .data = (void *)(uintptr_t)row, .rows = 1, .cols = p->cols, .per = p->width
    };

    if (p->format == FORMAT_F32)
        memcpy(y, (const float *)row + first, n * sizeof(*y));
    else if (p->format == FORMAT_BF16)
        (void)cpu_widen(&bf16, first, n, y);
    else if (p->format == FORMAT_CACHE_INT8)
        widen_int8(y, row, first, n, p);
    else
        format_table[p->format].widen(y, &codes, 0, first, n);
}
