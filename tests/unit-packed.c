/* unit-packed - products by weights of 8 and 4 bits against plain loops */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/codes.h"
#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/cpu/cpu.h"
#include "tests/tap.h"

static float *numbers_new(size_t n, uint64_t stream)
{
    float *x = xcalloc(n + 1, sizeof(*x));
    struct rng r;

    rng_init(&r, 7, stream);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)rng_normal(&r);
    return x;
}

/* Random weights as codes, with the bytes behind them that kernels may read. */
static struct matrix matrix_new(bool four, uint64_t rows, uint64_t cols)
{
    size_t n = (size_t)cols, blocks = n / CODES_BLOCK;
    float *x = numbers_new((size_t)rows * n, 1);
    int8_t *eight = xcalloc((size_t)rows * n + 64, 1);
    uint8_t *codes = xcalloc((size_t)rows * n / 2 + 64, 1);
    float *scale = xcalloc((size_t)rows + 16, sizeof(*scale));
    uint16_t *scales = xcalloc((size_t)rows * blocks + 32, sizeof(*scales));

    for (size_t r = 0; r < rows; r++) {
        scale[r] = codes_scale8(codes_largest(x + r * n, n));
        codes_make8(eight + r * n, x + r * n, n, scale[r]);
        for (size_t b = 0; four && b < blocks; b++) {
            const float *at = x + r * n + b * CODES_BLOCK;

            scales[r * blocks + b] = codes_scale4(at);
            codes_make4(codes + (r * n + b * CODES_BLOCK) / 2, at,
                        scales[r * blocks + b]);
        }
    }
    free(x);
    free(four ? (void *)eight : codes);
    free(four ? (void *)scale : scales);
    return (struct matrix){ .data = four ? (void *)codes : eight,
                            .scale = four ? (void *)scales : scale,
                            .dtype = four ? DTYPE_U8 : DTYPE_I8,
                            .rows = rows,
                            .cols = cols };
}

static void matrix_free(struct matrix *w)
{
    free((void *)w->data);
    free((void *)w->scale);
}

static double weight_at(const struct matrix *w, uint64_t row, uint64_t col)
{
    uint64_t at = row * w->cols + col;
    int byte;

    if (w->dtype == DTYPE_I8)
        return ((const int8_t *)w->data)[at] * (double)((const float *)w->scale)[row];
    byte = ((const uint8_t *)w->data)[at / 2];
    return ((at % 2 ? byte >> 4 : byte & 15) - 8) *
           (double)dtype_f16_to_f32(((const uint16_t *)w->scale)[at / CODES_BLOCK]);
}

static struct device *device_new(int threads)
{
    struct device *d;
    struct err err;

    if (backend_cpu.open(&d, threads, 0, &err) < 0) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    return d;
}

/* The largest error, relative to the size of the sum's terms. */
static double error_of(const float *y, const float *x, size_t rows,
                       const struct matrix *w)
{
    double most = 0;

    for (size_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < w->rows; j++) {
            double want = 0, size = 1e-30, d;

            for (uint64_t k = 0; k < w->cols; k++) {
                double term = (double)x[i * w->cols + k] * weight_at(w, j, k);

                want += term;
                size += fabs(term);
            }
            d = fabs((double)y[i * w->rows + j] - want) / size;
            if (!(d <= most))
                most = isnan(d) ? INFINITY : d;
        }
    return most;
}

struct result {
    double error;
    bool same; /* for any number of threads, and each row alone */
};

static struct result try_product(bool four, size_t rows, uint64_t in, uint64_t out,
                                 const struct sum_tree *tree)
{
    struct matrix w = matrix_new(four, out, in);
    size_t n = rows * (size_t)out;
    float *x = numbers_new(rows * (size_t)in, 2), *y = xcalloc(n + 1, sizeof(*y)),
          *z = xcalloc(n + 1, sizeof(*z));
    struct result r = { .same = true };
    struct err err;

    for (int threads = 1; threads <= 3; threads++) {
        struct device *d = device_new(threads);

        memset(z, 0xff, n * sizeof(*z));
        r.same &= cpu_packed_linear(d, z, x, rows, &w, tree, &err) == 0;
        if (threads == 1)
            memcpy(y, z, n * sizeof(*y));
        r.same &= !memcmp(y, z, n * sizeof(*y));
        for (size_t i = 0; i < rows && threads == 2; i++)
            r.same &= cpu_packed_linear(d, z, x + i * in, 1, &w, tree, &err) == 0 &&
                      !memcmp(z, y + i * out, (size_t)out * sizeof(*z));
        backend_cpu.close(d);
    }
    r.error = error_of(y, x, rows, &w);
    matrix_free(&w);
    free(x);
    free(y);
    free(z);
    return r;
}

static void products_are_right(bool four)
{
    static const size_t rows[] = { 1, 2, 3, 4, 5, 7, 8, 17, 35 };
    static const uint64_t shape[][2] = { { 32, 1 },   { 64, 50 },   { 96, 9 },
                                         { 160, 75 }, { 1120, 61 }, { 2080, 13 } };
    double worst = 0;
    bool same = true;

    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
        for (size_t s = 0; s < sizeof(shape) / sizeof(*shape); s++) {
            uint64_t in = shape[s][0] - (four ? 0 : 5);
            struct result one = try_product(four, rows[r], in, shape[s][1], NULL);

            worst = fmax(worst, one.error);
            same &= one.same;
        }
    if (!tap_ok(worst < (four ? 2e-5 : 5e-7), "codes of %d bits times their scales",
                four ? 4 : 8))
        printf("# error %g\n", worst);
    tap_ok(same, "the same bits for any number of threads, and alone");
}

static void trees_add_leaves(bool four)
{
    const struct sum_tree tree = {
        .n = 4, .leaf = { { 160, 0 }, { 160, 1 }, { 160, 0 }, { 160, 2 } }
    };
    const struct sum_tree half = { .n = 2, .leaf = { { 160, 0 }, { 160, 1 } } };
    bool same = true;

    for (size_t rows = 1; rows < 40; rows += 19) {
        struct matrix w = matrix_new(four, 61, 640);
        float *x = numbers_new(rows * 640, 3), *y = xcalloc(rows * 61, sizeof(*y)),
              *z = xcalloc(rows * 61 * 2, sizeof(*z)),
              *part = xcalloc(rows * 320, sizeof(*part));
        struct device *d = device_new(2);
        struct err err;

        same &= try_product(four, rows, 640, 61, &tree).same;
        same &= cpu_packed_linear(d, y, x, rows, &w, &tree, &err) == 0;
        for (size_t p = 0; p < 2; p++) {
            /* half of the inputs, with the scales of the whole outputs */
            size_t bytes = four ? 160 : 320, scales = four ? 10 : 0;
            char *data = xcalloc(61 * bytes + 64, 1);
            uint16_t *scale = xcalloc(61 * 10 + 32, sizeof(*scale));
            struct matrix own = { .data = data,
                                  .scale = four ? scale : w.scale,
                                  .dtype = w.dtype,
                                  .rows = 61,
                                  .cols = 320 };

            for (size_t r = 0; r < 61; r++) {
                memcpy(data + r * bytes, (const char *)w.data + (2 * r + p) * bytes,
                       bytes);
                if (four)
                    memcpy(scale + r * scales,
                           (const uint16_t *)w.scale + (2 * r + p) * scales,
                           scales * sizeof(*scale));
            }
            for (size_t i = 0; i < rows; i++)
                memcpy(part + i * 320, x + i * 640 + p * 320, 320 * sizeof(*x));
            same &= cpu_packed_linear(d, z + p * rows * 61, part, rows, &own, &half,
                                      &err) == 0;
            free(data);
            free(scale);
        }
        for (size_t i = 0; i < rows * 61; i++)
            z[i] += z[rows * 61 + i];
        same &= !memcmp(y, z, rows * 61 * sizeof(*y));
        backend_cpu.close(d);
        matrix_free(&w);
        free(x);
        free(y);
        free(z);
        free(part);
    }
    tap_ok(same, "in %d bits halves of a tree add up to its bits", four ? 4 : 8);
}

static void odd_numbers_are_seen(void)
{
    struct matrix w = matrix_new(true, 8, 64);
    float x[64] = { 0 }, y[8];
    struct device *d = device_new(1);
    struct err err;
    bool right = cpu_packed_linear(d, y, x, 1, &w, NULL, &err) == 0;

    for (int j = 0; j < 8; j++)
        right &= y[j] == 0;
    x[40] = NAN;
    right &= cpu_packed_linear(d, y, x, 1, &w, NULL, &err) == 0;
    for (int j = 0; j < 8; j++)
        right &= isnan(y[j]);
    x[40] = INFINITY;
    right &= cpu_packed_linear(d, y, x, 1, &w, NULL, &err) == 0;
    for (int j = 0; j < 8; j++)
        right &= !isfinite(y[j]);
    tap_ok(right, "zeros stay zeros, and a number that is not finite is not hidden");
    backend_cpu.close(d);
    matrix_free(&w);
}

static void codes_are_near(void)
{
    float *x = numbers_new(96, 9), tiny[CODES_BLOCK] = { 1e-9f, -2e-9f };
    struct matrix a = matrix_new(false, 3, 96), b = matrix_new(true, 3, 96);
    float *source = numbers_new(288, 1), zero[CODES_BLOCK] = { 0 };
    bool eight = true, four = true;
    int8_t code[2];

    for (uint64_t r = 0; r < 3; r++)
        for (uint64_t c = 0; c < 96; c++) {
            double want = (double)source[r * 96 + c];
            double step8 = (double)((const float *)a.scale)[r];
            double step4 = fabs((double)dtype_f16_to_f32(
                ((const uint16_t *)b.scale)[r * 3 + c / CODES_BLOCK]));

            eight &= fabs(weight_at(&a, r, c) - want) <= step8 * 0.501;
            four &= fabs(weight_at(&b, r, c) - want) <= step4 * 1.3;
        }
    tap_ok(eight, "a code of 8 bits is at most half a step away");
    tap_ok(four, "one of 4 bits little more than a step");
    tap_ok(isnan(codes_largest((const float[]){ 1, NAN, 3 }, 3)) &&
               isinf(codes_largest((const float[]){ 1, -INFINITY, 3 }, 3)),
           "numbers that are not finite are seen");
    codes_make8(code, (const float[]){ 1e-44f, 0 }, 2, codes_scale8(1e-44f));
    tap_ok(codes_scale4(zero) == 0 && isfinite(dtype_f16_to_f32(codes_scale4(tiny))) &&
               code[0] >= -127 && code[1] == 0,
           "zeros and subnormal numbers have codes");
    matrix_free(&a);
    matrix_free(&b);
    free(x);
    free(source);
}

int main(void)
{
    for (int four = 0; four < 2; four++) {
        products_are_right(four);
        trees_add_leaves(four);
    }
    odd_numbers_are_seen();
    codes_are_near();
    return tap_done();
}
