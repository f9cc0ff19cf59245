/* format - how numbers lie in memory: a plain type, or codes with scales */
#include "lib/base/format.h"

#include <math.h>
#include <string.h>

#include "lib/base/cached.h"
#include "lib/base/codes.h"
#include "lib/base/mem.h"

static uint64_t groups_of(uint64_t rows)
{
    return rows / CODES_ROWS + (rows % CODES_ROWS != 0);
}

/* The place of word WORD of a row, of words of four bytes, in rows of WORDS. */
static uint8_t *word_at(const struct format_codes *c, uint64_t words, uint64_t row,
                        uint64_t word)
{
    uint64_t line = row / CODES_ROWS * words + word;

    return (uint8_t *)c->data + (line * CODES_ROWS + row % CODES_ROWS) * 4;
}

/* ---- plain ---- */

static void widen_plain(float *x, const struct format_codes *c, uint64_t row,
                        uint64_t first, uint64_t n, enum dtype t)
{
    size_t unit = (size_t)dtype_bits(t) / 8;

    dtype_to_f32(t, (const char *)c->data + (row * c->cols + first) * unit, x,
                 (size_t)n);
}

#define PLAIN(word, T)                                                             \
    static void widen_##word(float *x, const struct format_codes *c, uint64_t row, \
                             uint64_t first, uint64_t n)                           \
    {                                                                              \
        widen_plain(x, c, row, first, n, T);                                       \
    }
PLAIN(f32, DTYPE_F32)
PLAIN(bf16, DTYPE_BF16)
PLAIN(f16, DTYPE_F16)
PLAIN(f64, DTYPE_F64)
PLAIN(i32, DTYPE_I32)
#undef PLAIN

/* ---- bytes and halves of bytes, integers ---- */

static void widen_int8(float *x, const struct format_codes *c, uint64_t row,
                       uint64_t first, uint64_t n)
{
    float scale = ((const float *)c->scale)[row];

    for (uint64_t i = 0; i < n; i++) {
        uint64_t col = first + i;

        x[i] =
            (float)(word_at(c, (c->cols + 3) / 4, row, col / 4)[col % 4] - 128) * scale;
    }
}

static void encode_int8(const struct format_codes *c, uint64_t row, const float *x,
                        float largest, bool decoded)
{
    float scale = codes_scale8(largest);

    (void)decoded;
    ((float *)c->scale)[row] = scale;
    for (uint64_t first = 0; first < c->cols; first += CODES_BLOCK) {
        uint64_t left = c->cols - first;
        size_t n = left < CODES_BLOCK ? (size_t)left : CODES_BLOCK;
        int8_t code[CODES_BLOCK];

        codes_make8(code, x + first, n, scale);
        codes_put8(c->data, c->cols, row, first, n, code);
    }
}

static void widen_int4(float *x, const struct format_codes *c, uint64_t row,
                       uint64_t first, uint64_t n)
{
    uint64_t blocks = c->cols / CODES_BLOCK;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t col = first + i;
        uint64_t at = row / CODES_ROWS * blocks + col / CODES_BLOCK;
        uint16_t scale =
            ((const uint16_t *)c->scale)[at * CODES_ROWS + row % CODES_ROWS];
        int byte = word_at(c, c->cols / 8, row, col / 8)[col % 4];

        x[i] = (float)((col % 8 < 4 ? byte & 15 : byte >> 4) - 8) *
               dtype_f16_to_f32(scale);
    }
}

static void encode_int4(const struct format_codes *c, uint64_t row, const float *x,
                        float largest, bool decoded)
{
    (void)largest;
    for (uint64_t b = 0; b < c->cols / CODES_BLOCK; b++, x += CODES_BLOCK) {
        uint16_t scale = codes_scale4(x, decoded);
        int8_t code[CODES_BLOCK];

        codes_make4(code, x, scale);
        codes_put4(c->data, c->scale, c->cols, row, b, code, scale);
    }
}

/* ---- FP8 and FP4: OCP specifications FP8 1.0 and MX 1.0 (2023) ---- */

static float f8_value(enum dtype t, uint8_t code)
{
    return (float)dtype_get(t, &code, 0);
}

static void widen_f8(float *x, const struct format_codes *c, uint64_t row,
                     uint64_t first, uint64_t n, enum dtype t)
{
    uint64_t per = c->per ? c->per : c->cols, blocks = (c->cols + per - 1) / per;
    const float *scale = (const float *)c->scale +
                         row / CODES_ROWS * blocks * CODES_ROWS + row % CODES_ROWS;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t col = first + i;

        x[i] = f8_value(t, word_at(c, (c->cols + 3) / 4, row, col / 4)[col % 4]) *
               scale[col / per * CODES_ROWS];
    }
}

static bool put_f8(const struct format_codes *c, uint64_t row, const uint8_t *code,
                   const float *scale, enum dtype t)
{
    uint64_t per = c->per ? c->per : c->cols, blocks = (c->cols + per - 1) / per;
    float *to =
        (float *)c->scale + row / CODES_ROWS * blocks * CODES_ROWS + row % CODES_ROWS;
    bool number[256], all = true;

    for (int i = 0; i < 256; i++)
        number[i] = isfinite(f8_value(t, (uint8_t)i));
    for (uint64_t col = 0; col < c->cols; col++) {
        word_at(c, (c->cols + 3) / 4, row, col / 4)[col % 4] = code[col];
        all &= number[code[col]];
    }
    for (uint64_t b = 0; b < blocks; b++)
        to[b * CODES_ROWS] = scale[b];
    return all;
}

#define F8(word, T)                                                                \
    static void widen_##word(float *x, const struct format_codes *c, uint64_t row, \
                             uint64_t first, uint64_t n)                           \
    {                                                                              \
        widen_f8(x, c, row, first, n, T);                                          \
    }                                                                              \
    static bool put_##word(const struct format_codes *c, uint64_t row,             \
                           const uint8_t *code, const void *scale)                 \
    {                                                                              \
        return put_f8(c, row, code, scale, T);                                     \
    }
F8(e4m3, DTYPE_F8_E4M3)
F8(e5m2, DTYPE_F8_E5M2)
#undef F8

/* E2M1; scales are E8M0. */
static void widen_mxfp4(float *x, const struct format_codes *c, uint64_t row,
                        uint64_t first, uint64_t n)
{
    static const float value[] = { 0, 0.5F, 1, 1.5F, 2, 3, 4, 6 };
    uint64_t blocks = c->cols / CODES_BLOCK;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t col = first + i;
        uint64_t at = row / CODES_ROWS * blocks + col / CODES_BLOCK;
        int scale = ((const uint8_t *)c->scale)[at * CODES_ROWS + row % CODES_ROWS];
        int byte = word_at(c, c->cols / 8, row, col / 8)[col % 4];
        int four = col % 8 < 4 ? byte & 15 : byte >> 4;

        x[i] = ldexpf(four & 8 ? -value[four & 7] : value[four & 7], scale - 127);
    }
}

static bool put_mxfp4(const struct format_codes *c, uint64_t row, const uint8_t *code,
                      const void *scale)
{
    const uint8_t *power = scale;
    uint64_t blocks = c->cols / CODES_BLOCK;
    bool all = true;

    for (uint64_t col = 0; col < c->cols; col += 8) {
        uint8_t *word = word_at(c, c->cols / 8, row, col / 8);

        for (int k = 0; k < 4; k++)
            word[k] =
                (uint8_t)(code[col + (uint64_t)k] | code[col + 4 + (uint64_t)k] << 4);
    }
    for (uint64_t b = 0; b < blocks; b++) {
        uint64_t at = row / CODES_ROWS * blocks + b;

        ((uint8_t *)c->scale)[at * CODES_ROWS + row % CODES_ROWS] = power[b];
        all &= power[b] != 0xff; /* NaN */
    }
    return all;
}

/* ---- cached rows ---- */

static void widen_cache_int8(float *x, const struct format_codes *c, uint64_t row,
                             uint64_t first, uint64_t n)
{
    const float *scale = c->data;
    const int8_t *q = (const int8_t *)(scale + c->cols / c->per);

    (void)row;
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)q[first + i] * scale[(first + i) / c->per];
}

/* The scale of a head is its largest magnitude / 127; NaN if that is not finite. */
static void encode_cache_int8(const struct format_codes *c, uint64_t row,
                              const float *x, float largest, bool decoded)
{
    float *scale = c->data;
    uint64_t heads = c->cols / c->per;
    int8_t *q = (int8_t *)(scale + heads);

    (void)row;
    (void)largest;
    (void)decoded;
    for (uint64_t h = 0; h < heads; h++, x += c->per, q += c->per) {
        float most = codes_largest(x, (size_t)c->per);
        float to = codes_inverse(most, 127, &scale[h]);

        for (uint64_t i = 0; i < c->per; i++)
            q[i] = isfinite(most) ? cached_int8(x[i], to) : 1;
    }
}

static void widen_cache_fp8(float *x, const struct format_codes *c, uint64_t row,
                            uint64_t first, uint64_t n)
{
    const float *scale = c->data;
    const uint8_t *code = (const uint8_t *)(scale + c->cols / c->per);

    (void)row;
    for (uint64_t i = 0; i < n; i++)
        x[i] = f8_value(DTYPE_F8_E4M3, code[first + i]) * scale[(first + i) / c->per];
}

static void encode_cache_fp8(const struct format_codes *c, uint64_t row, const float *x,
                             float largest, bool decoded)
{
    float *scale = c->data;
    uint64_t heads = c->cols / c->per;
    uint8_t *code = (uint8_t *)(scale + heads);

    (void)row;
    (void)largest;
    (void)decoded;
    for (uint64_t h = 0; h < heads; h++, x += c->per, code += c->per) {
        float most = codes_largest(x, (size_t)c->per);
        float to = codes_inverse(most, 448, &scale[h]);

        for (uint64_t i = 0; i < c->per; i++)
            code[i] = isfinite(most) ? cached_e4m3(x[i], to) : 1;
    }
}

static void widen_cache_int4(float *x, const struct format_codes *c, uint64_t row,
                             uint64_t first, uint64_t n)
{
    const uint16_t *scale = c->data;
    const uint8_t *byte = (const uint8_t *)(scale + c->cols / c->per);

    (void)row;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t col = first + i;
        int code = (byte[col / 2] >> (col % 2 ? 4 : 0) & 15) - 8;

        x[i] = (float)code * dtype_bf16_to_f32(scale[col / c->per]);
    }
}

static void encode_cache_int4(const struct format_codes *c, uint64_t row,
                              const float *x, float largest, bool decoded)
{
    uint16_t *scale = c->data;
    uint64_t blocks = c->cols / c->per;
    uint8_t *byte = (uint8_t *)(scale + blocks);

    (void)row;
    (void)largest;
    (void)decoded;
    for (uint64_t b = 0; b < blocks; b++) {
        const float *of = x + b * c->per;
        float low = of[0], high = of[0], extreme, factor;
        bool all = true;

        for (uint64_t i = 0; i < c->per; i++) {
            low = of[i] < low ? of[i] : low;
            high = of[i] > high ? of[i] : high;
            all = all && isfinite(of[i]);
        }
        extreme = all ? cached_extreme(low, high) : NAN;
        scale[b] = dtype_f32_to_bf16(extreme / -8);
        factor = all ? cached_factor(dtype_bf16_to_f32(scale[b]), 1) : 0;
        for (uint64_t i = 0; i < c->per; i++) {
            uint64_t col = b * c->per + i;
            uint8_t code = all ? cached_int4(of[i], factor) : 9;

            if (col % 2)
                byte[col / 2] = (uint8_t)((byte[col / 2] & 15) | code << 4);
            else
                byte[col / 2] = code;
        }
    }
}

/* ---- the table ---- */

#define PLAIN(ID, word, size)               \
    [FORMAT_##ID] = { .name = #word,        \
                      .axis = FORMAT_PLAIN, \
                      .type = DTYPE_##ID,   \
                      .numbers = 1,         \
                      .bytes = size,        \
                      .widen = widen_##word }
const struct format_row format_table[FORMAT_COUNT] = {
    PLAIN(F32, f32, 4),
    PLAIN(BF16, bf16, 2),
    PLAIN(F16, f16, 2),
    PLAIN(F64, f64, 8),
    PLAIN(I32, i32, 4),
    [FORMAT_INT8] = { "int8", FORMAT_GROUPS, DTYPE_I8, 4, 4, false, 128, SCALE_OF_ROW,
                      sizeof(float), widen_int8, NULL, encode_int8 },
    [FORMAT_INT4] = { "int4", FORMAT_GROUPS, DTYPE_U8, CODES_BLOCK, CODES_BLOCK / 2,
                      true, 0x88, SCALE_OF_BLOCK, sizeof(uint16_t), widen_int4, NULL,
                      encode_int4 },
    [FORMAT_E4M3] = { "fp8", FORMAT_GROUPS, DTYPE_F8_E4M3, 4, 4, false, 0,
                      SCALE_OF_SOME, sizeof(float), widen_e4m3, put_e4m3, NULL },
    [FORMAT_E5M2] = { "fp8-e5m2", FORMAT_GROUPS, DTYPE_F8_E5M2, 4, 4, false, 0,
                      SCALE_OF_SOME, sizeof(float), widen_e5m2, put_e5m2, NULL },
    [FORMAT_MXFP4] = { "mxfp4", FORMAT_GROUPS, DTYPE_F4, CODES_BLOCK, CODES_BLOCK / 2,
                       true, 0, SCALE_OF_BLOCK, 1, widen_mxfp4, put_mxfp4, NULL },
    [FORMAT_CACHE_FP8] = { "fp8", FORMAT_CACHED, DTYPE_F8_E4M3, 1, 1, false, 0,
                           SCALE_OF_SOME, sizeof(float), widen_cache_fp8, NULL,
                           encode_cache_fp8 },
    [FORMAT_CACHE_INT8] = { "int8", FORMAT_CACHED, DTYPE_I8, 1, 1, false, 0,
                            SCALE_OF_SOME, sizeof(float), widen_cache_int8, NULL,
                            encode_cache_int8 },
    [FORMAT_CACHE_INT4] = { "int4", FORMAT_CACHED, DTYPE_U8, 2, 1, false, 0x88,
                            SCALE_OF_SOME, sizeof(uint16_t), widen_cache_int4, NULL,
                            encode_cache_int4 },
};

bool format_of(enum format *f, enum dtype t)
{
    for (int i = 0; i < FORMAT_COUNT; i++)
        if (format_table[i].axis == FORMAT_PLAIN && format_table[i].type == t) {
            *f = (enum format)i;
            return true;
        }
    return false;
}

/* Blocks of a row of COLS numbers. */
static uint64_t blocks_of(const struct format_row *f, uint64_t cols)
{
    return cols / f->numbers + (cols % f->numbers != 0);
}

/* Rows in memory of a matrix of ROWS. */
static bool held_rows(uint64_t *held, const struct format_row *f, uint64_t rows)
{
    *held = rows;
    return f->axis != FORMAT_GROUPS || mem_mul(held, groups_of(rows), CODES_ROWS);
}

bool format_bytes(uint64_t *bytes, enum format f, uint64_t rows, uint64_t cols)
{
    const struct format_row *t = &format_table[f];
    uint64_t held, n;

    return held_rows(&held, t, rows) && mem_mul(&n, held, blocks_of(t, cols)) &&
           mem_mul(bytes, n, t->bytes);
}

bool format_scale_bytes(uint64_t *bytes, enum format f, uint64_t rows, uint64_t cols,
                        uint64_t per)
{
    const struct format_row *t = &format_table[f];
    uint64_t held, n, each = 0;

    if (t->scale == SCALE_OF_ROW || (t->scale == SCALE_OF_SOME && !per))
        each = 1;
    else if (t->scale == SCALE_OF_BLOCK)
        each = blocks_of(t, cols);
    else if (t->scale == SCALE_OF_SOME)
        each = cols / per + (cols % per != 0);
    return held_rows(&held, t, rows) && mem_mul(&n, held, each) &&
           mem_mul(bytes, n, t->scale_bytes);
}

uint64_t format_row_bytes(enum format f, uint64_t cols, uint64_t per)
{
    uint64_t codes = 0, scales = 0;

    (void)format_bytes(&codes, f, 1, cols);
    (void)format_scale_bytes(&scales, f, 1, cols, per);
    return (codes + scales + 3) / 4 * 4;
}

uint64_t format_cached_per(enum format f, uint64_t width)
{
    uint64_t per = width;

    for (uint64_t parts = 2; f == FORMAT_CACHE_INT4 && per > CODES_BLOCK; parts++)
        per = width % parts ? per : width / parts;
    return per;
}

void format_clear(enum format f, const struct format_codes *c)
{
    uint64_t codes = 0, scales = 0;

    (void)format_bytes(&codes, f, c->rows, c->cols);
    (void)format_scale_bytes(&scales, f, c->rows, c->cols, c->per);
    memset(c->data, format_table[f].zero, (size_t)codes);
    if (scales)
        memset(c->scale, 0, (size_t)scales);
}
