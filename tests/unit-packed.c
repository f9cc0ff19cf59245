/* unit-packed - products by weights of 8 and 4 bits against plain loops */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/codes.h"
#include "lib/base/format.h"
#include "lib/cpu/product/codes-linear.h"
#include "tests/cpu-trial.h"
#include "tests/tap.h"

static bool is_four(enum format f)
{
    return f == FORMAT_INT4 || f == FORMAT_MXFP4;
}

/* Numbers of a row that share a scale, where F leaves it open. */
static uint64_t per_of(enum format f)
{
    return f == FORMAT_E4M3 ? 16 : 0;
}

/* Memory for ROWS x COLS zeros of F. */
static struct format_codes codes_new(enum format f, uint64_t rows, uint64_t cols)
{
    struct format_codes c = { .rows = rows, .cols = cols, .per = per_of(f) };
    uint64_t codes = 0, scales = 0;

    (void)format_bytes(&codes, f, rows, cols);
    (void)format_scale_bytes(&scales, f, rows, cols, c.per);
    c.data = xmalloc((size_t)codes + 1);
    c.scale = xmalloc((size_t)scales + 1);
    format_clear(f, &c);
    return c;
}

static struct matrix matrix_of(enum format f, const struct format_codes *c)
{
    return (struct matrix){ .data = c->data,
                            .format = f,
                            .rows = c->rows,
                            .cols = c->cols,
                            .scale = c->scale,
                            .per = c->per };
}

static const enum format formats[] = { FORMAT_INT8, FORMAT_INT4, FORMAT_E4M3,
                                       FORMAT_E5M2, FORMAT_MXFP4 };

/* Random codes of a checkpoint, and scales, in row ROW. */
static void put_random(enum format f, const struct format_codes *c, uint64_t row)
{
    size_t n = (size_t)c->cols;
    float *x = numbers_new(2 * n + 1, row + 5);
    uint8_t *code = xmalloc(n + 1), *power = xmalloc(n + 1);
    float *scale = xmalloc((n + 1) * sizeof(*scale));

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof(bits));
        code[i] = (uint8_t)(is_four(f) ? bits >> 9 & 15 : bits >> 9 & 0xff);
        if (f == FORMAT_E4M3 && (code[i] & 0x7f) == 0x7f)
            code[i] = 1;
        if (f == FORMAT_E5M2) /* sums of which are not all of one term */
            code[i] = (uint8_t)(0x30 | (code[i] & 0x8f));
        power[i] = (uint8_t)(120 + (bits >> 17) % 9);
        scale[i] = 0.01f + x[n + i] * x[n + i];
    }
    if (!format_table[f].put(c, row, code, is_four(f) ? (void *)power : (void *)scale))
        tap_ok(false, "a code is a number");
    free(x);
    free(code);
    free(power);
    free(scale);
}

/* Random weights as codes. */
static struct matrix matrix_new(enum format f, uint64_t rows, uint64_t cols)
{
    size_t n = (size_t)cols;
    float *x = numbers_new((size_t)rows * n, 1);
    struct format_codes c = codes_new(f, rows, cols);

    for (size_t r = 0; r < rows; r++)
        if (format_table[f].put)
            put_random(f, &c, r);
        else
            format_table[f].encode(&c, r, x + r * n, codes_largest(x + r * n, n),
                                   false);
    free(x);
    return matrix_of(f, &c);
}

static void matrix_free(struct matrix *w)
{
    free((void *)w->data);
    free((void *)w->scale);
}

/* The place of the scale of column COL, counted over all. */
static uint64_t place_of_scale(const struct matrix *w, uint64_t row, uint64_t col)
{
    uint64_t per = is_four(w->format) ? 32 : w->per ? w->per : w->cols;

    return (row / 16 * ((w->cols + per - 1) / per) + col / per) * 16 + row % 16;
}

static int code_at(const struct matrix *w, uint64_t row, uint64_t col)
{
    const uint8_t *data = w->data;
    int byte;

    if (!is_four(w->format))
        return data[(row / 16 * ((w->cols + 3) / 4) + col / 4) * 64 + row % 16 * 4 +
                    col % 4];
    byte = data[(row / 16 * (w->cols / 8) + col / 8) * 64 + row % 16 * 4 + col % 4];
    return col % 8 < 4 ? byte & 15 : byte >> 4;
}

/* The scale of a weight. */
static double scale_at(const struct matrix *w, uint64_t row, uint64_t col)
{
    uint64_t at = place_of_scale(w, row, col);

    return w->format == FORMAT_INT4
               ? (double)dtype_f16_to_f32(((const uint16_t *)w->scale)[at])
           : w->format == FORMAT_MXFP4 ? ldexp(1, ((const uint8_t *)w->scale)[at] - 127)
                                       : (double)((const float *)w->scale)[at];
}

static double weight_at(const struct matrix *w, uint64_t row, uint64_t col)
{
    static const double four[] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
    int code = code_at(w, row, col);
    uint8_t byte = (uint8_t)code;
    double value;

    switch (w->format) {
    case FORMAT_INT8:
        value = code - 128;
        break;
    case FORMAT_INT4:
        value = code - 8;
        break;
    case FORMAT_MXFP4:
        value = code & 8 ? -four[code & 7] : four[code & 7];
        break;
    default:
        value = dtype_get(format_dtype(w->format), &byte, 0);
    }
    return value * scale_at(w, row, col);
}

/* Columns [FIRST, FIRST + N) of W, whole scales. */
static struct matrix part_new(const struct matrix *w, uint64_t first, uint64_t n)
{
    struct format_codes c = codes_new(w->format, w->rows, n);
    struct matrix m = matrix_of(w->format, &c);
    size_t unit = format_table[w->format].scale_bytes;

    for (uint64_t r = 0; r < w->rows; r++)
        for (uint64_t k = 0; k < n; k++) {
            int code = code_at(w, r, first + k);
            uint8_t *data = c.data;

            memcpy((char *)c.scale + place_of_scale(&m, r, k) * unit,
                   (const char *)w->scale + place_of_scale(w, r, first + k) * unit,
                   unit);
            if (!is_four(w->format)) {
                data[(r / 16 * ((n + 3) / 4) + k / 4) * 64 + r % 16 * 4 + k % 4] =
                    (uint8_t)code;
                continue;
            }
            data += (r / 16 * (n / 8) + k / 8) * 64 + r % 16 * 4 + k % 4;
            *data = (uint8_t)(k % 8 < 4 ? (*data & 0xf0) | code
                                        : (*data & 0x0f) | code << 4);
        }
    return m;
}

/* The largest error, relative to the size of the sum's terms. */
static double error_of(const float *y, const float *x, size_t rows,
                       const struct matrix *w)
{
    double most = 0, *row = xcalloc((size_t)w->cols + 1, sizeof(*row));

    for (uint64_t j = 0; j < w->rows; j++) {
        for (uint64_t k = 0; k < w->cols; k++)
            row[k] = weight_at(w, j, k);
        for (size_t i = 0; i < rows; i++) {
            double want = 0, size = 1e-30, d;

            for (uint64_t k = 0; k < w->cols; k++) {
                double term = (double)x[i * w->cols + k] * row[k];

                want += term;
                size += fabs(term);
            }
            d = fabs((double)y[i * w->rows + j] - want) / size;
            if (!(d <= most))
                most = isnan(d) ? INFINITY : d;
        }
    }
    free(row);
    return most;
}

struct result {
    double error;
    bool same; /* for any number of threads, and each row alone */
};

/* A product by codes; COARSE: with x rounded where that is faster. */
static int product(struct device *d, float *y, const float *x, size_t rows,
                   const struct matrix *w, const struct sum_tree *tree, bool coarse)
{
    struct err err;

    return (coarse ? cpu_codes_rounded : cpu_codes_linear)(d, y, x, rows, w, tree,
                                                           &err);
}

static struct result try_product(enum format f, size_t rows, uint64_t in, uint64_t out,
                                 const struct sum_tree *tree, bool coarse)
{
    struct matrix w = matrix_new(f, out, in);
    size_t n = rows * (size_t)out;
    float *x = numbers_new(rows * (size_t)in, 2), *y = xcalloc(n + 1, sizeof(*y)),
          *z = xcalloc(n + 1, sizeof(*z));
    struct result r = { .same = true };

    for (int threads = 1; threads <= 3; threads++) {
        struct device *d = device_new(threads);

        memset(z, 0xff, n * sizeof(*z));
        r.same &= product(d, z, x, rows, &w, tree, coarse) == 0;
        if (threads == 1)
            memcpy(y, z, n * sizeof(*y));
        r.same &= !memcmp(y, z, n * sizeof(*y));
        for (size_t i = 0; i < rows && threads < 3; i++) {
            device_keep(d, (int)i % 2);
            r.same &= product(d, z, x + i * in, 1, &w, tree, coarse) == 0 &&
                      !memcmp(z, y + i * out, (size_t)out * sizeof(*z));
        }
        backend_cpu.close(d);
    }
    r.error = error_of(y, x, rows, &w);
    matrix_free(&w);
    free(x);
    free(y);
    free(z);
    return r;
}

static void products_are_right(enum format f, bool coarse)
{
    static const size_t rows[] = { 1, 2, 3, 4, 5, 7, 8, 17, 35 };
    static const uint64_t shape[][2] = { { 32, 1 },   { 64, 50 },   { 96, 9 },
                                         { 160, 75 }, { 1120, 61 }, { 2080, 13 },
                                         { 64, 333 } }; /* whole streams, and a rest */
    double worst = 0;
    bool same = true;

    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
        for (size_t s = 0; s < sizeof(shape) / sizeof(*shape); s++) {
            uint64_t in = shape[s][0] - (is_four(f) ? 0 : 5);
            struct result one = try_product(f, rows[r], in, shape[s][1], NULL, coarse);

            worst = fmax(worst, one.error);
            same &= one.same;
        }
    if (!tap_ok(worst < (coarse ? 5e-5 : 1e-6), "codes of %s times their scales%s",
                format_name(f), coarse ? ", x rounded" : ""))
        printf("# error %g\n", worst);
    tap_ok(same, "the same bits for any number of threads, and alone");
}

static void trees_add_leaves(enum format f, bool coarse)
{
    enum {
        EIGHT_LEAF = 157, /* not whole words */
        FOUR_LEAF = 160,
        OUTS = 275 /* more groups than have room for their sums at once */
    };
    const uint64_t leaf = is_four(f) || per_of(f) ? FOUR_LEAF : EIGHT_LEAF,
                   cols = 4 * leaf;
    const uint64_t half_cols = 2 * leaf;
    const struct sum_tree tree = {
        .n = 4, .leaf = { { leaf, 0 }, { leaf, 1 }, { leaf, 0 }, { leaf, 2 } }
    };
    const struct sum_tree half = { .n = 2, .leaf = { { leaf, 0 }, { leaf, 1 } } };
    bool same = true;

    for (size_t rows = 1; rows < 40; rows += 19) {
        struct matrix w = matrix_new(f, OUTS, cols);
        float *x = numbers_new(rows * (size_t)cols, 3),
              *y = xcalloc(rows * OUTS, sizeof(*y)),
              *z = xcalloc(rows * OUTS * 2, sizeof(*z)),
              *part = xcalloc(rows * (size_t)half_cols, sizeof(*part));
        struct device *d = device_new(2);

        same &= try_product(f, rows, cols, OUTS, &tree, coarse).same;
        same &= product(d, y, x, rows, &w, &tree, coarse) == 0;
        for (size_t p = 0; p < 2; p++) {
            struct matrix own = part_new(&w, p * half_cols, half_cols);

            for (size_t i = 0; i < rows; i++)
                memcpy(part + i * half_cols, x + i * cols + p * half_cols,
                       (size_t)half_cols * sizeof(*x));
            same &=
                product(d, z + p * rows * OUTS, part, rows, &own, &half, coarse) == 0;
            matrix_free(&own);
        }
        for (size_t i = 0; i < rows * OUTS; i++)
            z[i] += z[rows * OUTS + i];
        same &= !memcmp(y, z, rows * OUTS * sizeof(*y));
        backend_cpu.close(d);
        matrix_free(&w);
        free(x);
        free(y);
        free(z);
        free(part);
    }
    tap_ok(same, "in %s halves of a tree add up to its bits%s", format_name(f),
           coarse ? ", x rounded" : "");
}

/* By codes widened to bf16: by x in bf16 the sum of products, but for the rounding of
 * numbers of 4 bits; the same bits for any number of threads. */
static void widened_codes_are_right(enum format f)
{
    enum { LEAF = 157 }; /* not whole words */
    static const uint64_t shape[][2] = {
        { 64, 50 }, { 2080, 61 }, { 4160, 100 }, { 96, 1000 }
    };
    const uint64_t leaf = is_four(f) ? 160 : LEAF;
    const struct sum_tree tree = {
        .n = 4, .leaf = { { leaf, 0 }, { leaf, 1 }, { leaf, 0 }, { leaf, 2 } }
    };
    double worst = 0;
    bool same = true;

    cpu_newest = CPU_AVX512; /* without tiles */
    for (size_t s = 0; s < 5; s++) {
        size_t rows = s == 3 ? 601 : 128 + s;
        uint64_t in = s == 4 ? 4 * leaf : shape[s][0] - (is_four(f) ? 0 : 5);
        struct matrix w = matrix_new(f, s == 4 ? 61 : shape[s][1], in);
        size_t n = rows * (size_t)w.rows;
        float *x, *y, *z, *taken;
        struct err err;

        if (!cpu_has_codes_bf16dot(rows, &w)) {
            printf("# skipped: codes widened to bf16\n");
            matrix_free(&w);
            cpu_newest = CPU_VNNI;
            return;
        }
        x = numbers_new(rows * (size_t)in, 2);
        y = xcalloc(n, sizeof(*y));
        z = xcalloc(n, sizeof(*z));
        for (int threads = 1; threads <= 3; threads++) {
            struct device *d = device_new(threads);

            memset(z, 0xff, n * sizeof(*z));
            same &= cpu_codes_bf16dot(d, threads > 1 ? z : y, x, rows, &w,
                                      s == 4 ? &tree : NULL, &err) == 0;
            same &= threads == 1 || !memcmp(y, z, n * sizeof(*y));
            backend_cpu.close(d);
        }
        taken = rounded_new(x, rows * (size_t)in);
        worst = fmax(worst, error_of(y, taken, rows, &w));
        for (int threads = 1; threads <= 3 && cpu_has_amx_rows(rows, &w); threads++) {
            struct device *d = device_new(threads);

            same &= cpu_amx_rows(d, threads > 1 ? z : y, x, FORMAT_F32, rows, &w,
                                 &err) == 0;
            same &= threads == 1 || !memcmp(y, z, n * sizeof(*y));
            backend_cpu.close(d);
            worst = fmax(worst, error_of(y, taken, rows, &w));
        }
        matrix_free(&w);
        free(taken);
        free(x);
        free(y);
        free(z);
    }
    if (!tap_ok(worst < (f == FORMAT_INT8 ? 1e-6 : 0x1p-8),
                "codes of %s widened to bf16", format_name(f)))
        printf("# error %g\n", worst);
    tap_ok(same, "the same bits for any number of threads, widened");
    cpu_newest = CPU_VNNI;
}

/* Tiles multiply 8 bits as they are, with the same bits. */
static void tiles_are_preferred(void)
{
    struct matrix w = matrix_new(FORMAT_INT8, 16, 64);

    tap_ok(!codes_by_amx(&w) ||
               !(cpu_has_codes_bf16dot(1000, &w) || cpu_has_amx_rows(1000, &w)),
           "codes of 8 bits are not widened where tiles multiply them");
    matrix_free(&w);
}

static void odd_numbers_are_seen(void)
{
    struct matrix w = matrix_new(FORMAT_INT4, 8, 64);
    float x[64] = { 0 }, y[8];
    struct device *d = device_new(1);
    struct err err;
    bool right = cpu_codes_linear(d, y, x, 1, &w, NULL, &err) == 0;

    for (int j = 0; j < 8; j++)
        right &= y[j] == 0;
    x[40] = NAN;
    right &= cpu_codes_linear(d, y, x, 1, &w, NULL, &err) == 0;
    for (int j = 0; j < 8; j++)
        right &= isnan(y[j]);
    x[40] = INFINITY;
    right &= cpu_codes_linear(d, y, x, 1, &w, NULL, &err) == 0;
    for (int j = 0; j < 8; j++)
        right &= !isfinite(y[j]);
    tap_ok(right, "zeros stay zeros, and a number that is not finite is not hidden");
    backend_cpu.close(d);
    matrix_free(&w);
}

/* Also the smallest, which is no normal number of f32. */
static void powers_are_all_seen(void)
{
    static const uint8_t power[] = { 0, 1, 2, 127, 200 };
    enum { ROWS = 20, COLS = 32 };
    bool right = true;

    for (size_t i = 0; i < sizeof(power); i++)
        for (size_t rows = 1; rows < 20; rows += 17) {
            struct matrix w = matrix_new(FORMAT_MXFP4, ROWS, COLS);
            float *x = numbers_new(rows * COLS, 9), y[ROWS * 20];
            struct device *d = device_new(1);

            memset((void *)(uintptr_t)w.scale, power[i], 2 * 16);
            for (size_t k = 0; k < rows * COLS; k++)
                x[k] = ldexpf(x[k], power[i] < 100 ? 100 : -100);
            right = product(d, y, x, rows, &w, NULL, false) == 0 &&
                    error_of(y, x, rows, &w) < 1e-6 && y[0] != 0 && right;
            backend_cpu.close(d);
            matrix_free(&w);
            free(x);
        }
    tap_ok(right, "every power of two is a scale of MXFP4");
}

static void codes_are_near(void)
{
    float *x = numbers_new(96, 9), tiny[CODES_BLOCK] = { 1e-9f, -2e-9f };
    struct matrix a = matrix_new(FORMAT_INT8, 3, 96),
                  b = matrix_new(FORMAT_INT4, 3, 96);
    float *source = numbers_new(288, 1), zero[CODES_BLOCK] = { 0 };
    bool eight = true, four = true;
    int8_t code[2];

    for (uint64_t r = 0; r < 3; r++)
        for (uint64_t c = 0; c < 96; c++) {
            double want = (double)source[r * 96 + c];
            double step8 = (double)((const float *)a.scale)[r];
            double step4 = fabs(scale_at(&b, r, c));

            eight &= fabs(weight_at(&a, r, c) - want) <= step8 * 0.501;
            four &= fabs(weight_at(&b, r, c) - want) <= step4 * 1.3;
        }
    tap_ok(eight, "a code of 8 bits is at most half a step away");
    tap_ok(four, "one of 4 bits little more than a step");
    tap_ok(isnan(codes_largest((const float[]){ 1, NAN, 3 }, 3)) &&
               isinf(codes_largest((const float[]){ 1, -INFINITY, 3 }, 3)),
           "numbers that are not finite are seen");
    codes_make8(code, (const float[]){ 1e-44f, 0 }, 2, codes_scale8(1e-44f));
    tap_ok(codes_scale4(zero, false) == 0 &&
               isfinite(dtype_f16_to_f32(codes_scale4(tiny, true))) &&
               code[0] >= -127 && code[1] == 0,
           "zeros and subnormal numbers have codes");
    matrix_free(&a);
    matrix_free(&b);
    free(x);
    free(source);
}

static void all_products_are_right(void)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
        for (int coarse = 0; coarse < (format_table[formats[i]].encode ? 2 : 1);
             coarse++) {
            products_are_right(formats[i], coarse);
            trees_add_leaves(formats[i], coarse);
        }
    tiles_are_preferred();
    odd_numbers_are_seen();
}

static void inverses_are_finite(void)
{
    float scale = 1;

    tap_ok(codes_inverse(4, 100, &scale) == 25 && scale == 0.04F,
           "numbers are multiplied by what makes the largest the most");
    tap_ok(codes_inverse(0, 100, &scale) == 0 && scale == 0, "zeros by nothing");
    tap_ok(codes_inverse(1e-38F, 1e6F, &scale) == 0 && scale < 1e-38F,
           "and those that are nearly zeros");
    tap_ok(codes_inverse(INFINITY, 100, &scale) == 0 && isnan(scale) &&
               codes_inverse(NAN, 100, &scale) == 0 && isnan(scale),
           "numbers that are none are seen in the scale");
}

int main(void)
{
    all_products_are_right();
    with_older_loops(all_products_are_right);
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
        widened_codes_are_right(formats[i]);
    powers_are_all_seen();
    codes_are_near();
    inverses_are_finite();
    return tap_done();
}
