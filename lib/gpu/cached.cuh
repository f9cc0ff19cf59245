/* cached - rows of keys or values, as kernels read them: plain or codes with scales
 *
 * A row of codes begins with its scales (base/format.h).  A quad of four neighbouring
 * columns is one access if rows are quads (cached_is_wide), else each column is read by
 * itself; numbers do not depend on it, and are those of format_table's widen. */
#ifndef LIB_GPU_CACHED_CUH
#define LIB_GPU_CACHED_CUH

#include "lib/base/cached.h"
#include "lib/gpu/quads.cuh"

/* Whether four columns of a row can be read at once, if they begin at a multiple of
 * four. */
static inline bool cached_is_wide(const struct cached &c)
{
    switch (c.format) {
    case FORMAT_F32:
        return is_wide(c.data, c.cols);
    case FORMAT_BF16:
        return is_wide(c.data, c.cols, sizeof(uint16_t));
    default:
        return c.cols % 4 == 0 && c.per % 4 == 0 && (uintptr_t)c.data % 4 == 0;
    }
}

static __device__ inline const char *cached_row(const struct cached &c, int64_t row)
{
    return (const char *)c.data + row * (int64_t)c.bytes;
}

/* E4M3: exponent and mantissa at their place in an f32 of another bias, which a power
 * of two undoes.  NaN is not among cached codes. */
static __device__ inline float widen_e4m3(uint32_t code)
{
    return __uint_as_float((code & 0x80u) << 24 | (code & 0x7fu) << 20) *
           1.329227995784916e36f;
}

/* The code of column COL of a row of F, as a number, without its scale. */
template <enum format F>
static __device__ inline float cached_code(const char *row, const struct cached &c,
                                           uint32_t col)
{
    const uint8_t *code = (const uint8_t *)row + c.codes;

    if (F == FORMAT_CACHE_INT8)
        return (float)(int8_t)code[col];
    if (F == FORMAT_CACHE_FP8)
        return widen_e4m3(code[col]);
    return (float)((int)(code[col / 2] >> (col % 2 ? 4 : 0) & 15) - 8);
}

/* The scale of column COL. */
template <enum format F>
static __device__ inline float cached_scale(const char *row, const struct cached &c,
                                            uint32_t col)
{
    if (F == FORMAT_CACHE_INT4)
        return widen_bf16(((const uint16_t *)row)[col / c.per]);
    return ((const float *)row)[col / c.per];
}

/* Four codes of columns that share a scale. */
template <enum format F>
static __device__ inline float4 cached_codes(const char *row, const struct cached &c,
                                             uint32_t col)
{
    if (F == FORMAT_CACHE_INT4) {
        uint16_t w = *(const uint16_t *)(row + c.codes + col / 2);

        return float4{ (float)((int)(w & 15) - 8), (float)((int)(w >> 4 & 15) - 8),
                       (float)((int)(w >> 8 & 15) - 8), (float)((int)(w >> 12) - 8) };
    }
    uint32_t w = *(const uint32_t *)(row + c.codes + col);

    if (F == FORMAT_CACHE_FP8)
        return float4{ widen_e4m3(w), widen_e4m3(w >> 8), widen_e4m3(w >> 16),
                       widen_e4m3(w >> 24) };
    return float4{ (float)(int8_t)w, (float)(int8_t)(w >> 8), (float)(int8_t)(w >> 16),
                   (float)(int8_t)(w >> 24) };
}

template <enum format F>
static __device__ inline float cached_number(const char *row, const struct cached &c,
                                             uint32_t col)
{
    return cached_code<F>(row, c, col) * cached_scale<F>(row, c, col);
}

/* The same of the format of C, which is not known when the kernel is compiled. */
template <bool WIDE>
static __device__ inline float4 cached_any(const char *row, const struct cached &c,
                                           uint32_t col, uint32_t left);

/* The first LEFT of the columns COL to COL + 3 of a row of F, zeros for the others;
 * FORMAT_COUNT: of any. */
template <enum format F, bool WIDE>
static __device__ inline float4 cached_quad(const char *row, const struct cached &c,
                                            uint32_t col, uint32_t left)
{
    if (F == FORMAT_COUNT)
        return cached_any<WIDE>(row, c, col, left);
    if (F == FORMAT_F32)
        return load_quad<WIDE>((const float *)row + col, left);
    if (F == FORMAT_BF16)
        return widen_quad<WIDE>(FORMAT_BF16, row, col, left);
    if (WIDE) {
        float4 v = cached_codes<F>(row, c, col);
        float scale = cached_scale<F>(row, c, col);

        return float4{ v.x * scale, v.y * scale, v.z * scale, v.w * scale };
    }
    return float4{ cached_number<F>(row, c, col),
                   left > 1 ? cached_number<F>(row, c, col + 1) : 0,
                   left > 2 ? cached_number<F>(row, c, col + 2) : 0,
                   left > 3 ? cached_number<F>(row, c, col + 3) : 0 };
}

template <bool WIDE>
static __device__ inline float4 cached_any(const char *row, const struct cached &c,
                                           uint32_t col, uint32_t left)
{
    switch (c.format) {
    case FORMAT_F32:
        return cached_quad<FORMAT_F32, WIDE>(row, c, col, left);
    case FORMAT_BF16:
        return cached_quad<FORMAT_BF16, WIDE>(row, c, col, left);
    case FORMAT_CACHE_INT8:
        return cached_quad<FORMAT_CACHE_INT8, WIDE>(row, c, col, left);
    case FORMAT_CACHE_FP8:
        return cached_quad<FORMAT_CACHE_FP8, WIDE>(row, c, col, left);
    default:
        return cached_quad<FORMAT_CACHE_INT4, WIDE>(row, c, col, left);
    }
}

/* A head's part of a row, as an array. */
struct cached_head {
    const char *row;
    const struct cached &c;
    uint32_t first;

    __device__ float operator[](uint64_t col) const
    {
        return cached_any<false>(row, c, first + (uint32_t)col, 1).x;
    }
};

#endif
