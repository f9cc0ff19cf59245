/* kv-rows - rows of keys or values, in the type that stores them */
#include "lib/cpu/cache/kv-rows.h"

#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"
#include "lib/device/layout.h"

typedef int16_t vec_i16 __attribute__((vector_size(32)));
typedef int8_t vec_i8 __attribute__((vector_size(16)));

struct kv_rows kv_rows_of(const struct buffer *p, const float *plain, size_t heads,
                          size_t dim, size_t apart)
{
    struct kv_rows k = { .data = p ? (const char *)p->data : (const char *)plain,
                         .type = p ? p->format : FORMAT_F32,
                         .bytes = heads * apart * sizeof(*plain),
                         .heads = heads,
                         .dim = dim,
                         .apart = apart };

    if (p)
        k.bytes = format_row_bytes(p->format, p->cols, p->width);
    if (format_table[k.type].axis == FORMAT_CACHED) {
        k.per = p->width;
        k.scales = p->cols / p->width;
    }
    k.by_head = true;
    for (size_t h = 0; k.scales && dim && h < heads; h++)
        if (h * apart / k.per != (h * apart + dim - 1) / k.per)
            k.by_head = false;
    return k;
}

/* The scale of column COL of ROW. */
static float scale_of(const struct kv_rows *k, size_t row, size_t col)
{
    const char *at = k->data + row * k->bytes;
    uint16_t half;
    float scale;

    if (k->type == FORMAT_CACHE_INT4) {
        memcpy(&half, at + col / k->per * sizeof(half), sizeof(half));
        return dtype_bf16_to_f32(half);
    }
    memcpy(&scale, at + col / k->per * sizeof(scale), sizeof(scale));
    return scale;
}

float kv_rows_scale(const struct kv_rows *k, size_t row, size_t head)
{
    return k->scales && k->by_head ? scale_of(k, row, head * k->apart) : 1;
}

CPU_CLONES static void widen_i8(float *y, const int8_t *x, size_t n)
{
    size_t i = 0;

    for (; i + VEC <= n; i += VEC) {
        vec_i8 q;
        vec v;

        memcpy(&q, x + i, sizeof(q));
        v = __builtin_convertvector(
            __builtin_convertvector(__builtin_convertvector(q, vec_i16), vec_i32), vec);
        memcpy(y + i, &v, sizeof(v));
    }
    for (; i < n; i++)
        y[i] = (float)x[i];
}

/* E4M3: exponent and mantissa at their place in an f32 of another bias, which a power
 * of two undoes. */
CPU_CLONES static void widen_fp8(float *y, const uint8_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)(x[i] & 0x80) << 24 | (uint32_t)(x[i] & 0x7f) << 20;

        memcpy(&y[i], &bits, sizeof(bits));
        y[i] *= 0x1p120f;
    }
}

/* y[dim] times the scales of its columns, which begin at COL. */
static void scale_parts(float *y, const struct kv_rows *k, size_t row, size_t col)
{
    for (size_t c = 0, n; c < k->dim; c += n) {
        float scale = scale_of(k, row, col + c);

        n = k->per - (col + c) % k->per;
        n = n < k->dim - c ? n : k->dim - c;
        for (size_t i = 0; i < n; i++)
            y[c + i] *= scale;
    }
}

/* The N codes of 4 bits from column COL on. */
CPU_CLONES static void widen_i4(float *y, const uint8_t *x, size_t col, size_t n)
{
    size_t i = 0;

    if (n && col % 2) {
        y[0] = (float)((x[col / 2] >> 4) - 8);
        i = 1;
    }
    for (; i + 1 < n; i += 2) {
        int byte = x[(col + i) / 2];

        y[i] = (float)((byte & 15) - 8);
        y[i + 1] = (float)((byte >> 4) - 8);
    }
    if (i < n)
        y[i] = (float)((x[(col + i) / 2] & 15) - 8);
}

void kv_rows_widen(float *y, const struct kv_rows *k, size_t head, size_t first,
                   size_t n)
{
    size_t col = head * k->apart;

    for (size_t i = 0; i < n; i++, y += k->dim) {
        const char *row = k->data + (first + i) * k->bytes +
                          k->scales * format_table[k->type].scale_bytes;

        if (k->type == FORMAT_F32)
            memcpy(y, (const float *)(const void *)row + col, k->dim * sizeof(*y));
        else if (k->type == FORMAT_BF16)
            cpu_widen(&(struct matrix){ .data = row,
                                        .format = FORMAT_BF16,
                                        .rows = 1,
                                        .cols = k->heads * k->apart },
                      col, k->dim, y);
        else if (k->type == FORMAT_CACHE_FP8)
            widen_fp8(y, (const uint8_t *)row + col, k->dim);
        else if (k->type == FORMAT_CACHE_INT4)
            widen_i4(y, (const uint8_t *)row, col, k->dim);
        else
            widen_i8(y, (const int8_t *)row + col, k->dim);
        if (!k->by_head)
            scale_parts(y, k, first + i, col);
    }
}
