/* arrange - rows of x, and panels of weights, in the order that the loops read */
#include <math.h>
#include <string.h>

#include "lib/cpu/product/linear.h"

size_t cpu_arranged(enum format type, size_t n)
{
    return type == FORMAT_F32 ? n : (n + 2 * VEC - 1) / (2 * VEC) * (2 * VEC);
}

void cpu_arrange(float *to, const float *x, enum format type, size_t n)
{
    size_t k = 0;

    if (type == FORMAT_F32) {
        memcpy(to, x, n * sizeof(*x));
        return;
    }
    for (; k + 2 * VEC <= n; k += 2 * VEC)
        for (size_t i = 0; i < VEC; i++) {
            to[k + i] = x[k + 2 * i];
            to[k + VEC + i] = x[k + 2 * i + 1];
        }
    if (k == n)
        return;
    memset(to + k, 0, 2 * VEC * sizeof(*to));
    for (size_t i = k; i < n; i++)
        to[k + (i - k) / 2 + (i - k) % 2 * VEC] = x[i];
}

void cpu_arrange_bf16(float *to, const uint16_t *x, size_t n)
{
    size_t whole = n / (2 * VEC) * (2 * VEC);
    uint16_t rest[2 * VEC] = { 0 };

    memcpy(rest, x + whole, (n - whole) * sizeof(*rest));
    linear_tiles(FORMAT_BF16)->widen(to, (const char *)x, whole);
    if (whole < n)
        linear_tiles(FORMAT_BF16)->widen(to + whole, (const char *)rest, 2 * VEC);
}

/* Widens N weights at FROM to f32, in the arrangement of x (cpu_arrange). */
static void widen_row(float *to, const char *from, enum format type, size_t n)
{
    size_t steps = n / (2 * VEC) * (2 * VEC);
    char rest[2 * VEC * sizeof(uint16_t)] = { 0 };

    if (type == FORMAT_F32) {
        memcpy(to, from, n * sizeof(*to));
        return;
    }
    memcpy(rest, from + steps * sizeof(uint16_t), (n - steps) * sizeof(uint16_t));
    linear_tiles(type)->widen(to, from, steps);
    if (steps < n)
        linear_tiles(type)->widen(to + steps, rest, 2 * VEC);
}

/* Widens N rows of W from row FIRST on, TERMS columns from column COL on, to f32 rows
 * with a stride of BLOCK + APART. */
struct weight_rows linear_widen_panel(const struct matrix *w, uint64_t first, size_t n,
                                      uint64_t col, size_t terms, float *to)
{
    for (size_t j = 0; j < n; j++)
        widen_row(to + j * (BLOCK + APART), linear_element(w, first + j, col),
                  w->format, terms);
    return (struct weight_rows){ .data = (const char *)to, .stride = BLOCK + APART };
}

CPU_CLONES void cpu_round_bf16(uint16_t *to, const float *x, size_t n)
{
    for (size_t k = 0; k < n; k += VEC) {
        size_t some = n - k < VEC ? n - k : VEC;
        vec v = { 0 };
        vec_u32 bits;
        vec_u16 upper;

        if (some == VEC)
            vec_load_f32(&v, x + k);
        else
            memcpy(&v, x + k, some * sizeof(*x));
        vec_round_bf16(&v);
        memcpy(&bits, &v, sizeof(bits));
        upper = __builtin_convertvector(bits >> 16, vec_u16);
        memcpy(to + k, &upper, some * sizeof(*to));
    }
}

/* Rounds the N floats at X to bf16 in place; N is a multiple of VEC. */
CPU_CLONES void linear_round(float *x, size_t n)
{
    for (size_t k = 0; k < n; k += VEC) {
        vec v;

        vec_load_f32(&v, x + k);
        vec_round_bf16(&v);
        memcpy(x + k, &v, sizeof(v));
    }
}

/* To the nearest multiple of the spacing of f16's numbers, the even one of two: adding
 * 1/2 leaves multiples of 2^-24, the spacing of the subnormal ones. */
CPU_CLONES void cpu_round_half(float *to, const float *x, size_t n)
{
    const float least = 0x1p-14f, limit = 65520;

    for (size_t k = 0; k < n; k++) {
        const float size = fabsf(x[k]);
        uint32_t bits;
        float near, y;

        memcpy(&bits, &size, sizeof(bits));
        bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffU;
        memcpy(&near, &bits, sizeof(near));
        y = size < least ? (size + 0.5f) - 0.5f : near;
        y = size < limit ? y : size * INFINITY;
        to[k] = copysignf(y, x[k]);
    }
}

#if CPU_HAS_WIDE
/* The lanes LOW.. of *a and *b in turns, of each quarter. */
#define IN_TURNS(a, b, low)                                                          \
    __builtin_shufflevector(a, b, low, 8 + low, low + 1, 9 + low, low + 4, 12 + low, \
                            low + 5, 13 + low)
/* The pairs LOW of *a and *b, of each half. */
#define PAIRS_OF(a, b, low)                                                         \
    __builtin_shufflevector(a, b, low, low + 1, 8 + low, 9 + low, low + 4, low + 5, \
                            12 + low, 13 + low)

/* y[i * STRIDE + c] = x[c][i] of eight by eight. */
CPU_HALF void linear_transpose(float *y, size_t stride, const float (*x)[EIGHT])
{
    vec_half r[8], t[8];

    _Pragma("GCC unroll 8") for (int c = 0; c < 8; c++) memcpy(&r[c], x[c], sizeof(*r));
    _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++)
    {
        t[2 * k] = IN_TURNS(r[2 * k], r[2 * k + 1], 0);
        t[2 * k + 1] = IN_TURNS(r[2 * k], r[2 * k + 1], 2);
    }
    _Pragma("GCC unroll 2") for (int h = 0; h < 8; h += 4)
    {
        r[h] = PAIRS_OF(t[h], t[h + 2], 0);
        r[h + 1] = PAIRS_OF(t[h], t[h + 2], 2);
        r[h + 2] = PAIRS_OF(t[h + 1], t[h + 3], 0);
        r[h + 3] = PAIRS_OF(t[h + 1], t[h + 3], 2);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        t[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        t[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    _Pragma("GCC unroll 8") for (size_t i = 0; i < 8; i++)
        memcpy(y + i * stride, &t[i], sizeof(*t));
}
#endif
