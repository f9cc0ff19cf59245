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
    TASK = 1 << 16,  /* weights of a task of few rows */
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

/* One product, as its threads see it. */
struct product {
    float *y;
    const float *x;
    size_t rows;
    const struct matrix *w;
    bool transposed;
    uint64_t in, out; /* columns of x and y */
    uint64_t share;   /* outputs of a task */
    float *scratch;   /* [threads][share * in], for widened weights */
};

/* Run RUN over the outputs, SHARE at a time. */
static void share_out(struct device *d, struct product *p, uint64_t share,
                      cpu_task *run)
{
    p->share = share;
    cpu_parallel(d, (size_t)((p->out + share - 1) / share), run, p);
}

/* The outputs of TASK: *n from the one returned. */
static uint64_t outputs(const struct product *p, size_t task, uint64_t *n)
{
    uint64_t first = task * p->share;

    *n = p->out - first < p->share ? p->out - first : p->share;
    return first;
}

static void few_linear(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    uint64_t n, first = outputs(p, task, &n);

    (void)thread;
    if (p->w->dtype == DTYPE_F32)
        dot_f32(p->y, p->x, p->rows, p->w, first, first + n);
    else if (p->w->dtype == DTYPE_BF16)
        dot_bf16(p->y, p->x, p->rows, p->w, first, first + n);
    else
        dot_f16(p->y, p->x, p->rows, p->w, first, first + n);
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

static void few_matmul(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    uint64_t n, first = outputs(p, task, &n);

    (void)thread;
    for (size_t i = 0; i < p->rows; i++)
        memset(p->y + i * p->out + first, 0, n * sizeof(*p->y));
    for (uint64_t k = 0; k < p->in; k++)
        for (size_t i = 0; i < p->rows; i++)
            axpy(p->y + i * p->out + first, element(p->w, k, first), p->w->dtype,
                 p->x[i * p->in + k], n);
}

/* Outputs whose weights make a task of some 100 KB. */
static uint64_t few_share(const struct product *p)
{
    uint64_t share = TASK / (p->in + 1) + 1;

    return p->transposed || share > 256 ? share : 256;
}

/* ---- many rows ---- */

void cpu_gemm(bool transposed, bool add, size_t m, size_t n, size_t k, const float *a,
              size_t lda, const float *b, size_t ldb, float *c, size_t ldc)
{
#ifdef HAVE_DNNL
    dnnl_sgemm('N', transposed ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k,
               1.0f, a, (dnnl_dim_t)lda, b, (dnnl_dim_t)ldb, add ? 1.0f : 0.0f, c,
               (dnnl_dim_t)ldc);
#else
    for (size_t i = 0; i < m; i++) {
        const float *row = a + i * lda;
        float *to = c + i * ldc;

        if (!transposed && !add)
            memset(to, 0, n * sizeof(*to));
        for (size_t j = 0; transposed && j < n; j++) {
            struct matrix one = { b + j * ldb, DTYPE_F32, 1, k };
            float sum;

            dot_f32(&sum, row, 1, &one, 0, 1);
            to[j] = add ? to[j] + sum : sum;
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

static void many(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    uint64_t n, first = outputs(p, task, &n);
    float *mine = p->scratch ? p->scratch + (uint64_t)thread * p->share * p->in : NULL;
    size_t stride;
    const float *b = panel(p->w, p->transposed, first, n, mine, &stride);

    cpu_gemm(p->transposed, false, p->rows, n, p->in, p->x, p->in, b, stride,
             p->y + first, p->out);
}

static int multiply(struct device *d, struct product *p, struct err *err)
{
    uint64_t width = tile_width(p->in, p->out);

    if (p->rows <= FEW) {
        share_out(d, p, few_share(p), p->transposed ? few_linear : few_matmul);
        return 0;
    }
    if (p->w->dtype != DTYPE_F32) {
        p->scratch = mem_alloc((uint64_t)cpu_threads(d) * width * p->in * sizeof(float),
                               "panels of weights", err);
        if (!p->scratch)
            return -1;
    }
    share_out(d, p, width, many);
    free(p->scratch);
    return 0;
}

int cpu_linear(struct device *d, float *y, const float *x, size_t rows,
               const struct matrix *w, struct err *err)
{
    struct product p = { .y = y,
                         .x = x,
                         .rows = rows,
                         .w = w,
                         .transposed = true,
                         .in = w->cols,
                         .out = w->rows };

    return multiply(d, &p, err);
}

int cpu_matmul(struct device *d, float *y, const float *x, size_t rows,
               const struct matrix *w, struct err *err)
{
    struct product p = {
        .y = y, .x = x, .rows = rows, .w = w, .in = w->rows, .out = w->cols
    };

    if (!w->rows) {
        memset(y, 0, rows * w->cols * sizeof(*y));
        return 0;
    }
    return multiply(d, &p, err);
}
