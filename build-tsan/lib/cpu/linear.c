/* linear - y = x W^T and y = x W
 *
 * A sum is made in one order, whatever other rows and outputs are made beside it and
 * by however many threads: what a row gives does not depend on the batch that it is in.
 * Of y = x W^T, stretches of BLOCK terms are summed by the lanes of one vector, which
 * are then added in a fixed tree, and stretch is added to stretch; of y = x W, term
 * is added to term.
 *
 * Tiles of rows and outputs keep their sums in registers, so that a weight which has
 * been read is used for several rows.  For few rows weights are widened as they are
 * read; for many, a panel of them is widened first. */
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
    FEW = 16,         /* rows for which weights are widened as they are read */
    TASK = 1 << 16,   /* weights of a task of few rows */
    BLOCK = 1024,     /* terms of a stretch */
    ROWS = 4,         /* of a tile */
    OUTS = 6,         /* of it, where there are several rows */
    TALL = 8,         /* or rows, where weights are widened for them, */
    SLIM = 3,         /* and outputs */
    LONE = 1,         /* and where there is one: as they lie in memory */
    PANEL = 8 * OUTS, /* outputs that are made together */
    APART = VEC, /* between rows that follow each other: more, so that equal columns
                    fall into different sets of the cache */
    STRIP = 128, /* outputs of y = x W that are made together, */
    DEEP = 32    /* from so many terms at a time */
};

#define EACH _Pragma("GCC unroll 8") for

static inline __attribute__((always_inline)) size_t size_of(enum dtype type)
{
    return type == DTYPE_F32 ? 4 : 2;
}

static const char *element(const struct matrix *w, uint64_t row, uint64_t col)
{
    return (const char *)w->data + (row * w->cols + col) * size_of(w->dtype);
}

/* The VEC weights at P; TYPE is a constant after inlining. */
static inline __attribute__((always_inline)) void load(vec *out, enum dtype type,
                                                       const void *p)
{
    if (type == DTYPE_F32)
        vec_load_f32(out, p);
    else if (type == DTYPE_BF16)
        vec_load_bf16(out, p);
    else
        vec_load_f16(out, p);
}

/* N of them, and zeros. */
static inline __attribute__((always_inline)) void load_some(vec *out, enum dtype type,
                                                            const void *p, size_t n)
{
    float all[VEC] = { 0 };

    memcpy(all, p, n * size_of(type));
    load(out, type, all);
}

static inline __attribute__((always_inline)) void
load_terms(vec *out, enum dtype type, const void *p, bool some, size_t n)
{
    if (some)
        load_some(out, type, p, n);
    else
        load(out, type, p);
}

/* ---- y = x W^T ---- */

/* Weights in rows, from some term on. */
struct weight_rows {
    const char *data;
    size_t stride; /* elements between rows */
};

/* acc[i][j] += the VEC terms at X of row i times those at W of row j; N < VEC of them
 * where SOME.  The lesser of rows and outputs stay in registers meanwhile. */
static inline __attribute__((always_inline)) void
add_terms(vec acc[TALL][OUTS], const float *x, size_t x_stride, const char *w,
          size_t w_stride, enum dtype type, bool some, size_t n, int rows, int outs)
{
    vec xv[TALL], wv[OUTS];

    if (rows > outs) {
        EACH(int j = 0; j < outs; j++)
        load_terms(&wv[j], type, w + (size_t)j * w_stride * size_of(type), some, n);
        EACH(int i = 0; i < rows; i++)
        {
            load_terms(&xv[0], DTYPE_F32, x + (size_t)i * x_stride, some, n);
            EACH(int j = 0; j < outs; j++) acc[i][j] += wv[j] * xv[0];
        }
        return;
    }
    EACH(int i = 0; i < rows; i++)
    load_terms(&xv[i], DTYPE_F32, x + (size_t)i * x_stride, some, n);
    EACH(int j = 0; j < outs; j++)
    {
        load_terms(&wv[0], type, w + (size_t)j * w_stride * size_of(type), some, n);
        EACH(int i = 0; i < rows; i++) acc[i][j] += wv[0] * xv[i];
    }
}

/* y[i][j] = x_i . w_j, or += when ADD, over N terms; ROWS by OUTS of them, which are
 * constants after inlining. */
static inline __attribute__((always_inline)) void tile(float *y, size_t y_stride,
                                                       const float *x, size_t x_stride,
                                                       const struct weight_rows *w,
                                                       enum dtype type, size_t n,
                                                       bool add, int rows, int outs)
{
    vec acc[TALL][OUTS];
    size_t k = 0;

    EACH(int i = 0; i < rows; i++)
    EACH(int j = 0; j < outs; j++) acc[i][j] = (vec){ 0 };
    for (; k + VEC <= n; k += VEC)
        add_terms(acc, x + k, x_stride, w->data + k * size_of(type), w->stride, type,
                  false, VEC, rows, outs);
    if (k < n)
        add_terms(acc, x + k, x_stride, w->data + k * size_of(type), w->stride, type,
                  true, n - k, rows, outs);
    EACH(int i = 0; i < rows; i++) EACH(int j = 0; j < outs; j++)
    {
        float *at = y + (size_t)i * y_stride + j, sum = vec_sum(&acc[i][j]);

        *at = add ? *at + sum : sum;
    }
}

/* ROWS of x by N outputs. */
static inline __attribute__((always_inline)) void
some_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
          const struct weight_rows *w, enum dtype type, size_t n, size_t terms,
          bool add, int rows)
{
    const size_t outs = rows == 1 ? LONE : rows == TALL ? SLIM : OUTS;
    struct weight_rows at = *w;
    size_t j = 0;

    for (; j + outs <= n; j += outs, at.data += outs * w->stride * size_of(type))
        tile(y + j, y_stride, x, x_stride, &at, type, terms, add, rows, (int)outs);
    for (; j < n; j++, at.data += w->stride * size_of(type))
        tile(y + j, y_stride, x, x_stride, &at, type, terms, add, rows, 1);
}

/* y[M][N] = x w^T, or += when ADD, over TERMS. */
#define TILES(name, type)                                                              \
    CPU_CLONES static void name(float *y, size_t y_stride, const float *x,             \
                                size_t x_stride, const struct weight_rows *w,          \
                                size_t m, size_t n, size_t terms, bool add)            \
    {                                                                                  \
        size_t i = 0;                                                                  \
                                                                                       \
        for (; i + ROWS <= m; i += ROWS)                                               \
            some_rows(y + i * y_stride, y_stride, x + i * x_stride, x_stride, w, type, \
                      n, terms, add, ROWS);                                            \
        y += i * y_stride;                                                             \
        x += i * x_stride;                                                             \
        if (m - i == 3)                                                                \
            some_rows(y, y_stride, x, x_stride, w, type, n, terms, add, 3);            \
        else if (m - i == 2)                                                           \
            some_rows(y, y_stride, x, x_stride, w, type, n, terms, add, 2);            \
        else if (m - i == 1)                                                           \
            some_rows(y, y_stride, x, x_stride, w, type, n, terms, add, 1);            \
    }

TILES(tiles_f32, DTYPE_F32)
TILES(tiles_bf16, DTYPE_BF16)
TILES(tiles_f16, DTYPE_F16)

/* N rows of W from row FIRST on and column COL, of TERMS columns, as f32 with room
 * between them. */
static struct weight_rows widen_panel(const struct matrix *w, uint64_t first, size_t n,
                                      uint64_t col, size_t terms, float *to)
{
    for (size_t j = 0; j < n; j++) {
        float *row = to + j * (BLOCK + APART);
        const float *from = cpu_widen(w, (first + j) * w->cols + col, terms, row);

        if (from != row)
            memcpy(row, from, terms * sizeof(*row));
    }
    return (struct weight_rows){ (const char *)to, BLOCK + APART };
}

/* Few rows: outputs of a tile after one another, each over all terms, as weights lie in
 * memory. */
static void dot_few(float *y, size_t y_stride, const float *x, size_t x_stride,
                    size_t m, const struct matrix *w, uint64_t first, size_t n)
{
    size_t outs = m == 1 ? LONE : OUTS;

    for (size_t j = 0; j < n; j += outs)
        for (size_t k = 0; k < w->cols; k += BLOCK) {
            size_t terms = w->cols - k < BLOCK ? (size_t)w->cols - k : BLOCK;
            struct weight_rows at = { element(w, first + j, k), w->cols };

            (w->dtype == DTYPE_F32    ? tiles_f32
             : w->dtype == DTYPE_BF16 ? tiles_bf16
                                      : tiles_f16)(y + j, y_stride, x + k, x_stride,
                                                   &at, m, n - j < outs ? n - j : outs,
                                                   terms, k > 0);
        }
}

/* Many: a panel of weights is widened, and used for all rows. */
static void dot_many(float *y, size_t y_stride, const float *x, size_t x_stride,
                     size_t m, const struct matrix *w, uint64_t first, size_t n,
                     float *panel)
{
    for (size_t k = 0; k < w->cols; k += BLOCK) {
        size_t terms = w->cols - k < BLOCK ? (size_t)w->cols - k : BLOCK;

        for (size_t j = 0; j < n; j += PANEL) {
            size_t some = n - j < PANEL ? n - j : PANEL;
            struct weight_rows at = widen_panel(w, first + j, some, k, terms, panel);

            tiles_f32(y + j, y_stride, x + k, x_stride, &at, m, some, terms, k > 0);
        }
    }
}

void cpu_dot_rows(float *y, size_t y_stride, const float *x, size_t x_stride, size_t m,
                  const struct matrix *w, uint64_t first, size_t n, float *panel)
{
    if (panel)
        dot_many(y, y_stride, x, x_stride, m, w, first, n, panel);
    else
        dot_few(y, y_stride, x, x_stride, m, w, first, n);
}

size_t cpu_panel_floats(void)
{
    return (size_t)PANEL * (BLOCK + APART);
}

/* ---- y = x W ---- */

/* acc[i] += x[i][k] w[k] for N terms k; the sums of VECS vectors of outputs begin as
 * those at Y. */
static inline __attribute__((always_inline)) void
add_outer(float *y, size_t y_stride, const float *x, size_t x_stride, const char *w,
          size_t w_stride, enum dtype type, size_t n, int rows, int vecs)
{
    vec acc[ROWS][8], wv;

    EACH(int i = 0; i < rows; i++)
    EACH(int c = 0; c < vecs; c++)
    vec_load_f32(&acc[i][c], y + (size_t)i * y_stride + c * VEC);
    for (size_t k = 0; k < n; k++)
        EACH(int c = 0; c < vecs; c++)
        {
            load(&wv, type, w + (k * w_stride + (size_t)c * VEC) * size_of(type));
            EACH(int i = 0; i < rows; i++)
            acc[i][c] += wv * x[(size_t)i * x_stride + k];
        }
    EACH(int i = 0; i < rows; i++)
    EACH(int c = 0; c < vecs; c++)
    memcpy(y + (size_t)i * y_stride + c * VEC, &acc[i][c], sizeof(acc[i][c]));
}

/* Fewer than VEC outputs. */
static inline __attribute__((always_inline)) void
add_outer_some(float *y, const float *x, const char *w, size_t w_stride,
               enum dtype type, size_t n, size_t outs)
{
    vec acc, wv;

    load_some(&acc, DTYPE_F32, y, outs);
    for (size_t k = 0; k < n; k++) {
        load_some(&wv, type, w + k * w_stride * size_of(type), outs);
        acc += wv * x[k];
    }
    memcpy(y, &acc, outs * sizeof(*y));
}

static inline __attribute__((always_inline)) void
outer_rows(float *y, size_t y_stride, const float *x, size_t x_stride, const char *w,
           size_t w_stride, enum dtype type, size_t n, size_t outs, int rows)
{
    size_t j = 0;

    for (; rows == 1 && j + 8 * VEC <= outs; j += 8 * VEC)
        add_outer(y + j, y_stride, x, x_stride, w + j * size_of(type), w_stride, type,
                  n, rows, 8);
    for (; j + 4 * VEC <= outs; j += 4 * VEC)
        add_outer(y + j, y_stride, x, x_stride, w + j * size_of(type), w_stride, type,
                  n, rows, 4);
    for (; j + VEC <= outs; j += VEC)
        add_outer(y + j, y_stride, x, x_stride, w + j * size_of(type), w_stride, type,
                  n, rows, 1);
    for (int i = 0; i < rows && j < outs; i++)
        add_outer_some(y + (size_t)i * y_stride + j, x + (size_t)i * x_stride,
                       w + j * size_of(type), w_stride, type, n, outs - j);
}

/* y[M][OUTS] += x w over N terms. */
#define OUTER(name, type)                                                         \
    CPU_CLONES static void name(float *y, size_t y_stride, const float *x,        \
                                size_t x_stride, const char *w, size_t w_stride,  \
                                size_t m, size_t outs, size_t n)                  \
    {                                                                             \
        size_t i = 0;                                                             \
                                                                                  \
        for (; i + ROWS <= m; i += ROWS)                                          \
            outer_rows(y + i * y_stride, y_stride, x + i * x_stride, x_stride, w, \
                       w_stride, type, n, outs, ROWS);                            \
        for (; i < m; i++)                                                        \
            outer_rows(y + i * y_stride, y_stride, x + i * x_stride, x_stride, w, \
                       w_stride, type, n, outs, 1);                               \
    }

OUTER(outer_f32, DTYPE_F32)
OUTER(outer_bf16, DTYPE_BF16)
OUTER(outer_f16, DTYPE_F16)

/* y[M][outputs FIRST to FIRST + N] of x W. */
static void outer_strip(float *y, size_t y_stride, const float *x, size_t x_stride,
                        size_t m, const struct matrix *w, uint64_t row, uint64_t in,
                        uint64_t first, size_t n)
{
    float wide[DEEP * STRIP];

    for (size_t i = 0; i < m; i++)
        memset(y + i * y_stride, 0, n * sizeof(*y));
    for (uint64_t k = 0; k < in; k += DEEP) {
        size_t terms = in - k < DEEP ? (size_t)(in - k) : DEEP, stride = w->cols;
        const char *at = element(w, row + k, first);
        enum dtype type = w->dtype;

        if (m > FEW && type != DTYPE_F32) {
            for (size_t i = 0; i < terms; i++)
                cpu_widen(w, (row + k + i) * w->cols + first, n, wide + i * STRIP);
            at = (const char *)wide;
            stride = STRIP;
            type = DTYPE_F32;
        }
        (type == DTYPE_F32 ? outer_f32
         : type == DTYPE_BF16
             ? outer_bf16
             : outer_f16)(y, y_stride, x + k, x_stride, at, stride, m, n, terms);
    }
}

void cpu_outer_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
                    size_t m, const struct matrix *w, uint64_t row, uint64_t in,
                    uint64_t first, size_t n)
{
    for (size_t j = 0; j < n; j += STRIP)
        outer_strip(y + j, y_stride, x, x_stride, m, w, row, in, first + j,
                    n - j < STRIP ? n - j : STRIP);
}

/* ---- shared out ---- */

/* One product, as its threads see it. */
struct product {
    float *y;
    const float *x;
    float *apart; /* a copy of x with room between its rows, or NULL */
    size_t rows, x_stride;
    const struct matrix *w;
    uint64_t in, out; /* columns of x and y */
    uint64_t share;   /* outputs of a task */
    float *panels;    /* [threads], or NULL */
};

/* Run RUN over the outputs, SHARE at a time. */
static void share_out(struct device *d, struct product *p, uint64_t share,
                      cpu_task *run)
{
    p->share = share;
    cpu_parallel(d, (size_t)((p->out + share - 1) / share), run, p);
}

/* The outputs of TASK: *n from the one returned. */
static uint64_t outputs(const struct product *p, size_t task, size_t *n)
{
    uint64_t first = task * p->share;

    *n = (size_t)(p->out - first < p->share ? p->out - first : p->share);
    return first;
}

static void linear_outputs(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    size_t n, first = (size_t)outputs(p, task, &n);

    cpu_dot_rows(p->y + first, p->out, p->apart ? p->apart : p->x, p->x_stride, p->rows,
                 p->w, first, n,
                 p->panels ? p->panels + (size_t)thread * cpu_panel_floats() : NULL);
}

static void matmul_outputs(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    size_t n, first = (size_t)outputs(p, task, &n);

    (void)thread;
    cpu_outer_rows(p->y + first, p->out, p->x, p->in, p->rows, p->w, 0, p->in, first,
                   n);
}

static void set_apart(void *arg, size_t task, int thread)
{
    const struct product *p = arg;

    (void)thread;
    memcpy(p->apart + task * p->x_stride, p->x + task * p->in, p->in * sizeof(*p->x));
}

/* Outputs whose weights make a task of some 100 KB, in whole panels. */
static uint64_t few_share(const struct product *p)
{
    uint64_t share = TASK / (p->in + 1) + 1;

    return (share + PANEL - 1) / PANEL * PANEL;
}

int cpu_linear(struct device *d, float *y, const float *x, size_t rows,
               const struct matrix *w, struct err *err)
{
    struct product p = { .y = y,
                         .x = x,
                         .rows = rows,
                         .w = w,
                         .in = w->cols,
                         .out = w->rows,
                         .x_stride = (size_t)w->cols };
    size_t apart = rows > 1 ? rows * ((size_t)w->cols + APART) : 0;
    size_t panels = rows > FEW ? (size_t)cpu_threads(d) * cpu_panel_floats() : 0;
    float *room = NULL;

    if (!w->cols) {
        memset(y, 0, rows * w->rows * sizeof(*y));
        return 0;
    }
    if (apart + panels) {
        room = mem_alloc((apart + panels) * sizeof(*room), "rows of a product", err);
        if (!room)
            return -1;
    }
    if (apart) {
        p.apart = room;
        p.x_stride += APART;
        cpu_parallel(d, rows, set_apart, &p);
    }
    if (panels)
        p.panels = room + apart;
    share_out(d, &p, panels ? PANEL : few_share(&p), linear_outputs);
    free(room);
    return 0;
}

int cpu_matmul(struct device *d, float *y, const float *x, size_t rows,
               const struct matrix *w, struct err *err)
{
    struct product p = {
        .y = y, .x = x, .rows = rows, .w = w, .in = w->rows, .out = w->cols
    };

    (void)err;
    share_out(d, &p, 2 * STRIP, matmul_outputs);
    return 0;
}

/* ---- products of numbers ---- */

void cpu_dots(float *y, size_t y_stride, const float *x, size_t x_stride, size_t m,
              const float *w, size_t w_stride, size_t n, size_t terms)
{
    struct weight_rows rows = { (const char *)w, w_stride };

    tiles_f32(y, y_stride, x, x_stride, &rows, m, n, terms, false);
}

void cpu_add_weighted(float *y, size_t y_stride, const float *x, size_t x_stride,
                      size_t m, const float *w, size_t w_stride, size_t n, size_t terms)
{
    outer_f32(y, y_stride, x, x_stride, (const char *)w, w_stride, m, n, terms);
}

void cpu_gemm(size_t m, size_t n, size_t k, const float *a, const float *b, float *c)
{
#ifdef HAVE_DNNL
    dnnl_sgemm('N', 'T', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, 1.0f, a,
               (dnnl_dim_t)k, b, (dnnl_dim_t)k, 0.0f, c, (dnnl_dim_t)n);
#else
    cpu_dots(c, n, a, k, m, b, k, n, k);
#endif
}
