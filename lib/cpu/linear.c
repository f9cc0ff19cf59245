/* linear - y = x W^T and y = x W
 *
 * Few rows are bound by reading the weights: our own loops read each weight once, widen
 * it and use it for all the rows.  Many rows are bound by arithmetic: a panel of
 * weights is widened to f32 and handed to oneDNN, or to a plain loop in a build
 * without it. */
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/vec.h"

#ifdef HAVE_DNNL
#include <dnnl.h>
#endif

enum {
    FEW = 8,         /* rows that the memory-bound loops take */
    PANEL = 1 << 21, /* weights that a thread widens at a time */
};

static const char *element(const struct matrix *w, uint64_t row, uint64_t col)
{
    return (const char *)w->data +
           (row * w->cols + col) * (uint64_t)dtype_bits(w->dtype) / 8;
}

/* ---- few rows ---- */

#define LOAD(type, out, p)                             \
    do {                                               \
        if ((type) == DTYPE_F32)                       \
            vec_load_f32(out, (const float *)(p));     \
        else if ((type) == DTYPE_BF16)                 \
            vec_load_bf16(out, (const uint16_t *)(p)); \
        else                                           \
            vec_load_f16(out, (const uint16_t *)(p));  \
    } while (0)

/* ACC += the VEC weights at W times the VEC numbers at X */
#define ADD_PRODUCT(acc, type, w, x) \
    do {                             \
        vec wv, xv;                  \
                                     \
        LOAD(type, &wv, w);          \
        vec_load_f32(&xv, x);        \
        (acc) += wv * xv;            \
    } while (0)

/* y[i] = w . x_i for ROWS rows of x, N columns; TYPE is a constant after inlining. Each
 * sum is made by four interleaved vectors, so its order is the same whatever ROWS
 * is. */
static inline __attribute__((always_inline)) void
dot_rows(float *y, size_t y_stride, const char *w, enum dtype type, const float *x,
         size_t rows, size_t n)
{
    size_t size = type == DTYPE_F32 ? 4 : 2;
    size_t body = n / (4 * VEC) * (4 * VEC);

    for (size_t i = 0; i < rows; i++) {
        const float *xi = x + i * n;
        vec a0 = { 0 }, a1 = { 0 }, a2 = { 0 }, a3 = { 0 };
        float tail = 0;

        for (size_t k = 0; k < body; k += 4 * VEC) {
            ADD_PRODUCT(a0, type, w + k * size, xi + k);
            ADD_PRODUCT(a1, type, w + (k + VEC) * size, xi + k + VEC);
            ADD_PRODUCT(a2, type, w + (k + 2 * VEC) * size, xi + k + 2 * VEC);
            ADD_PRODUCT(a3, type, w + (k + 3 * VEC) * size, xi + k + 3 * VEC);
        }
        a0 = (a0 + a1) + (a2 + a3);
        for (size_t k = body; k < n; k++) {
            float wk;

            if (type == DTYPE_F32)
                memcpy(&wk, w + k * 4, 4);
            else if (type == DTYPE_BF16)
                wk = dtype_bf16_to_f32(((const uint16_t *)(const void *)w)[k]);
            else
                wk = dtype_f16_to_f32(((const uint16_t *)(const void *)w)[k]);
            tail += wk * xi[k];
        }
        y[i * y_stride] = vec_sum(&a0) + tail;
    }
}

#define DOT_BLOCK(name, type)                                                         \
    CPU_CLONES static void name(float *y, const float *x, size_t rows,                \
                                const struct matrix *w, uint64_t first, uint64_t end) \
    {                                                                                 \
        for (uint64_t r = first; r < end; r++)                                        \
            dot_rows(y + r, w->rows, element(w, r, 0), type, x, rows, w->cols);       \
    }

DOT_BLOCK(dot_f32, DTYPE_F32)
DOT_BLOCK(dot_bf16, DTYPE_BF16)
DOT_BLOCK(dot_f16, DTYPE_F16)

static void few_linear(float *y, const float *x, size_t rows, const struct matrix *w)
{
    enum { STEP = 16 };
    long steps = (long)((w->rows + STEP - 1) / STEP);

#pragma omp parallel for schedule(static)
    for (long s = 0; s < steps; s++) {
        uint64_t first = (uint64_t)s * STEP,
                 end = first + STEP < w->rows ? first + STEP : w->rows;

        if (w->dtype == DTYPE_F32)
            dot_f32(y, x, rows, w, first, end);
        else if (w->dtype == DTYPE_BF16)
            dot_bf16(y, x, rows, w, first, end);
        else
            dot_f16(y, x, rows, w, first, end);
    }
}

/* y[COLS] += f * w */
CPU_CLONES static void axpy(float *y, const char *w, enum dtype type, float f, size_t n)
{
    if (type == DTYPE_F32)
        for (size_t k = 0; k < n; k++)
            y[k] += f * ((const float *)(const void *)w)[k];
    else if (type == DTYPE_BF16)
        for (size_t k = 0; k < n; k++)
            y[k] += f * dtype_bf16_to_f32(((const uint16_t *)(const void *)w)[k]);
    else
        for (size_t k = 0; k < n; k++)
            y[k] += f * dtype_f16_to_f32(((const uint16_t *)(const void *)w)[k]);
}

static void few_matmul(float *y, const float *x, size_t rows, const struct matrix *w)
{
    enum { STEP = 256 };
    long steps = (long)((w->cols + STEP - 1) / STEP);

#pragma omp parallel for schedule(static)
    for (long s = 0; s < steps; s++) {
        uint64_t first = (uint64_t)s * STEP,
                 n = w->cols - first < STEP ? w->cols - first : STEP;

        for (size_t i = 0; i < rows; i++)
            memset(y + i * w->cols + first, 0, n * sizeof(*y));
        for (uint64_t k = 0; k < w->rows; k++)
            for (size_t i = 0; i < rows; i++)
                axpy(y + i * w->cols + first, element(w, k, first), w->dtype,
                     x[i * w->rows + k], n);
    }
}

/* ---- many rows ---- */

void cpu_gemm(bool transposed, size_t m, size_t n, size_t k, const float *a, size_t lda,
              const float *b, size_t ldb, float *c, size_t ldc)
{
#ifdef HAVE_DNNL
    dnnl_sgemm('N', transposed ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k,
               1.0f, a, (dnnl_dim_t)lda, b, (dnnl_dim_t)ldb, 0.0f, c, (dnnl_dim_t)ldc);
#else
    for (size_t i = 0; i < m; i++) {
        const float *row = a + i * lda;
        float *to = c + i * ldc;

        if (!transposed)
            memset(to, 0, n * sizeof(*to));
        for (size_t j = 0; transposed && j < n; j++) {
            struct matrix one = { b + j * ldb, DTYPE_F32, 1, k };

            dot_f32(to + j, row, 1, &one, 0, 1);
        }
        for (size_t j = 0; !transposed && j < k; j++)
            axpy(to, (const char *)(b + j * ldb), DTYPE_F32, row[j], n);
    }
#endif
}

/* Outputs that one thread makes at a time.  It follows from the sizes alone, so that
 * sums are made alike on any number of threads: the library's own threads would share
 * out long sums. */
static uint64_t tile_width(uint64_t in, uint64_t out)
{
    uint64_t width = out / 16, most = PANEL / (in ? in : 1);

    width = width > 256 ? 256 : width;
    width = width > most ? most : width;
    return width < 64 ? 64 : width / 64 * 64;
}

/* W's share in outputs FIRST to FIRST + N as f32, in place or in SCRATCH; *stride is
 * that between its rows. */
static const float *panel(const struct matrix *w, bool transposed, uint64_t first,
                          uint64_t n, float *scratch, size_t *stride)
{
    *stride = w->cols;
    if (transposed)
        return cpu_widen(w, first * w->cols, n * w->cols, scratch);
    if (w->dtype == DTYPE_F32)
        return (const float *)w->data + first;
    *stride = n;
    for (uint64_t k = 0; k < w->rows; k++)
        cpu_widen(w, k * w->cols + first, n, scratch + k * n);
    return scratch;
}

static int many(float *y, const float *x, size_t rows, const struct matrix *w,
                bool transposed, struct err *err)
{
    uint64_t in = transposed ? w->cols : w->rows, out = transposed ? w->rows : w->cols;
    uint64_t width = tile_width(in, out), room = 0;
    int threads = cpu_threads();
    float *scratch = NULL;

    if (w->dtype != DTYPE_F32) {
        room = width * in;
        scratch = mem_alloc((uint64_t)threads * room * sizeof(*scratch),
                            "panels of weights", err);
        if (!scratch)
            return -1;
    }
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (long t = 0; t < (long)((out + width - 1) / width); t++) {
        uint64_t first = (uint64_t)t * width;
        uint64_t n = out - first < width ? out - first : width;
        size_t stride;
        float *mine = scratch ? scratch + (uint64_t)cpu_thread() * room : NULL;
        const float *b = panel(w, transposed, first, n, mine, &stride);

        cpu_gemm(transposed, rows, n, in, x, in, b, stride, y + first, out);
    }
    free(scratch);
    return 0;
}

int cpu_linear(float *y, const float *x, size_t rows, const struct matrix *w,
               struct err *err)
{
    if (!w->rows)
        return 0;
    if (rows > FEW)
        return many(y, x, rows, w, true, err);
    few_linear(y, x, rows, w);
    return 0;
}

int cpu_matmul(float *y, const float *x, size_t rows, const struct matrix *w,
               struct err *err)
{
    if (!w->rows) {
        memset(y, 0, rows * w->cols * sizeof(*y));
        return 0;
    }
    if (rows > FEW)
        return many(y, x, rows, w, false, err);
    few_matmul(y, x, rows, w);
    return 0;
}
