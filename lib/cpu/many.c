/* many - y = x W^T of many rows, x rounded to bf16, by bf16 weights
 *
 * The outputs of a panel lie in the lanes of its vectors: its weights are transposed
 * once for all rows, and each pair of terms of x is broadcast.  Lanes need not be added
 * up, and a panel is used from the L2 cache.  A sum adds its pairs of terms in order,
 * stretch by stretch: it depends neither on the other rows and outputs nor on threads,
 * but it is not the order of cpu_linear_rounded.
 *
 * CPUs with AMX multiply tiles of fixed size by oneDNN, whose sums may depend on the
 * number of rows. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/linear.h"
#include "lib/cpu/onednn.h"
#include "lib/cpu/vec.h"

enum {
    LEAST = 48,  /* rows for which it is worth while to transpose weights */
    VECTORS = 3, /* of outputs in a panel */
    WIDTH = VECTORS * VEC,
    DEEP = 2048,    /* terms of a stretch */
    STEP = 2 * VEC, /* terms that are transposed at a time */
    PART = 128,     /* least rows of a task, if there are more threads than panels */
    DNN_ROWS = 512, /* a tile of oneDNN's */
    DNN_OUTS = 256
};

struct product {
    float *y;
    const float *x;
    uint16_t *terms; /* x rounded, each row padded with zeros */
    size_t rows, in, out, stride;
    const struct matrix *w;
    size_t part;      /* rows of a task */
    size_t parts;     /* of the rows */
    uint32_t *panels; /* [threads][DEEP / 2][WIDTH]: pairs of terms */
    atomic_bool *lost;
};

/* Task: a row of x. */
static void round_row(void *arg, size_t row, int thread)
{
    const struct product *p = arg;
    uint16_t *to = p->terms + row * p->stride;

    (void)thread;
    cpu_round_bf16(to, p->x + row * p->in, p->in);
    memset(to + p->in, 0, (p->stride - p->in) * sizeof(*to));
}

/* ---- panels ---- */

#if CPU_HAS_WIDE
#define EACH   _Pragma("GCC unroll 16") for
#define INLINE static inline CPU_WIDE __attribute__((always_inline))

typedef uint32_t pairs __attribute__((vector_size(64)));

INLINE void hold(pairs *v)
{
    __asm__("" : "+v"(*v)); /* see vec_hold */
}

/* r[i][j] = r[j][i], in steps that exchange 1, 2, 4 and 8 lanes. */
INLINE void transpose(pairs r[VEC])
{
    pairs t[VEC];

    EACH(int i = 0; i < VEC; i += 2)
    {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8,
                                       24, 9, 25, 12, 28, 13, 29);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 18, 3, 19, 6, 22, 7, 23,
                                           10, 26, 11, 27, 14, 30, 15, 31);
    }
    EACH(int k = 0; k < VEC; k++)
    {
        const int i = k / 4 * 4, low = i + k % 4 / 2;

        if (k % 2 == 0)
            r[k] = __builtin_shufflevector(t[low], t[low + 2], 0, 1, 16, 17, 4, 5, 20,
                                           21, 8, 9, 24, 25, 12, 13, 28, 29);
        else
            r[k] = __builtin_shufflevector(t[low], t[low + 2], 2, 3, 18, 19, 6, 7, 22,
                                           23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
    EACH(int k = 0; k < VEC; k++)
    {
        const int low = k / 8 * 8 + k % 4;

        if (k % 8 < 4)
            t[k] = __builtin_shufflevector(r[low], r[low + 4], 0, 1, 2, 3, 8, 9, 10, 11,
                                           16, 17, 18, 19, 24, 25, 26, 27);
        else
            t[k] = __builtin_shufflevector(r[low], r[low + 4], 4, 5, 6, 7, 12, 13, 14,
                                           15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
    EACH(int k = 0; k < VEC; k++)
    {
        const int low = k % 8;

        if (k < 8)
            r[k] = __builtin_shufflevector(t[low], t[low + 8], 0, 1, 2, 3, 8, 9, 10, 11,
                                           16, 17, 18, 19, 24, 25, 26, 27);
        else
            r[k] = __builtin_shufflevector(t[low], t[low + 8], 4, 5, 6, 7, 12, 13, 14,
                                           15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
}

/* TO[pair][WIDTH] = N terms, at most STEP, of VEC outputs at W, of which COUNT are
 * there. */
INLINE void pack_step(uint32_t *to, const uint16_t *w, size_t stride, size_t count,
                      size_t n)
{
    pairs r[VEC];

    EACH(int i = 0; i < VEC; i++)
    {
        r[i] = (pairs){ 0 };
        if ((size_t)i < count)
            memcpy(&r[i], w + (size_t)i * stride, n * sizeof(*w));
    }
    transpose(r);
    for (size_t i = 0; i < VEC; i++)
        memcpy(to + i * WIDTH, &r[i], sizeof(r[i]));
}

/* Terms [COL, COL + N) of COUNT outputs from FIRST on, of which lanes without are
 * zeros. */
CPU_WIDE static void pack(uint32_t *to, const struct matrix *m, size_t first,
                          size_t count, size_t col, size_t n)
{
    const uint16_t *w = (const uint16_t *)m->data + first * m->cols + col;
    size_t stride = (size_t)m->cols;

    for (size_t v = 0; v < WIDTH; v += VEC, to += VEC, w += VEC * stride) {
        size_t some = count > v ? count - v : 0, k = 0;

        for (; some >= VEC && k + STEP <= n; k += STEP)
            pack_step(to + k / 2 * WIDTH, w + k, stride, VEC, STEP);
        for (; k < n; k += STEP)
            pack_step(to + k / 2 * WIDTH, w + k, stride, some < VEC ? some : VEC,
                      n - k < STEP ? n - k : STEP);
    }
}

/* Y[ROWS][WIDTH] = the sums of PAIRS pairs of terms, or += if ADD; prefetches AHEAD,
 * unless it is NULL.  ROWS is a constant after inlining. */
INLINE void add_pairs(float *y, size_t y_stride, const uint16_t *x, size_t x_stride,
                      const uint32_t *w, size_t npairs, bool add, const char *ahead,
                      int rows)
{
    vec acc[EIGHT][VECTORS];

    EACH(int i = 0; i < rows; i++)
    EACH(int j = 0; j < VECTORS; j++) acc[i][j] = (vec){ 0 };
    for (size_t k = 0; k < npairs; k++, w += WIDTH, x += 2) {
        pairs w0, w1, w2;

        memcpy(&w0, w, sizeof(w0));
        memcpy(&w1, w + VEC, sizeof(w1));
        memcpy(&w2, w + 2 * VEC, sizeof(w2));
        hold(&w0);
        hold(&w1);
        hold(&w2);
        if (ahead) {
            EACH(int j = 0; j < VECTORS; j++)
            __builtin_prefetch(ahead + (size_t)j * sizeof(vec), 0, 2);
            ahead += VECTORS * sizeof(vec);
        }
        EACH(int i = 0; i < rows; i++)
        {
            uint32_t pair;
            pairs xv;

            memcpy(&pair, x + (size_t)i * x_stride, sizeof(pair));
            xv = (pairs){ 0 } + pair;
            hold(&xv);
            __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc[i][0]) : "v"(w0), "v"(xv));
            __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc[i][1]) : "v"(w1), "v"(xv));
            __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc[i][2]) : "v"(w2), "v"(xv));
        }
    }
    EACH(int i = 0; i < rows; i++) EACH(int j = 0; j < VECTORS; j++)
    {
        float *at = y + (size_t)i * y_stride + j * VEC;
        vec had;

        if (add) {
            vec_load_f32(&had, at);
            acc[i][j] += had;
        }
        memcpy(at, &acc[i][j], sizeof(vec));
    }
}

CPU_WIDE static void add_rows(float *y, size_t y_stride, const uint16_t *x,
                              size_t x_stride, const uint32_t *w, size_t npairs,
                              bool add, const char *ahead, size_t rows)
{
    if (rows == 8 && ahead)
        add_pairs(y, y_stride, x, x_stride, w, npairs, add, ahead, 8);
    else if (rows == 8)
        add_pairs(y, y_stride, x, x_stride, w, npairs, add, NULL, 8);
    else if (rows == 4)
        add_pairs(y, y_stride, x, x_stride, w, npairs, add, NULL, 4);
    else
        add_pairs(y, y_stride, x, x_stride, w, npairs, add, NULL, 1);
}

/* Task: a panel of outputs for a part of the rows. */
CPU_WIDE static void panel_task(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    size_t first = task / p->parts * WIDTH, row = task % p->parts * p->part;
    size_t end = p->rows - row < p->part ? p->rows : row + p->part;
    size_t count = p->out - first < WIDTH ? p->out - first : WIDTH;
    uint32_t *panel = p->panels + (size_t)thread * (DEEP / 2 * WIDTH);
    const char *ahead = (const char *)p->w->data + (first + WIDTH) * p->in * 2;

    for (size_t k = 0; k < p->in; k += DEEP) {
        size_t n = p->in - k < DEEP ? p->in - k : DEEP, npairs = (n + 1) / 2, some;

        pack(panel, p->w, first, count, k, n);
        for (size_t i = row; i < end; i += some) {
            float edge[EIGHT * WIDTH], *y = p->y + i * p->out + first;
            bool whole = count == WIDTH;

            some = end - i >= 8 ? 8 : end - i >= 4 ? 4 : 1;
            for (size_t r = 0; r < some && !whole && k; r++)
                memcpy(edge + r * WIDTH, y + r * p->out, count * sizeof(*y));
            add_rows(whole ? y : edge, whole ? p->out : WIDTH,
                     p->terms + i * p->stride + k, p->stride, panel, npairs, k > 0,
                     i == row && first + 2 * WIDTH <= p->out ? ahead + k * WIDTH * 2
                                                             : NULL,
                     some);
            for (size_t r = 0; r < some && !whole; r++)
                memcpy(y + r * p->out, edge + r * WIDTH, count * sizeof(*y));
        }
    }
}
#endif

static int no_pairs(struct err *err)
{
    return err_set(err, ERR_SYSTEM, "this CPU has no AVX512-BF16");
}

static int run_panels(struct device *d, struct product *p, struct err *err)
{
#if CPU_HAS_WIDE
    size_t threads = (size_t)cpu_threads(d), panels = (p->out + WIDTH - 1) / WIDTH;
    size_t parts = (4 * threads + panels - 1) / panels, most = p->rows / PART;

    if (!tile_pairs())
        return no_pairs(err);
    p->parts = parts > most ? most : parts;
    p->parts = p->parts ? p->parts : 1;
    p->part = (p->rows + p->parts - 1) / p->parts;
    p->part = (p->part + EIGHT - 1) / EIGHT * EIGHT;
    p->parts = (p->rows + p->part - 1) / p->part;
    p->panels = mem_alloc(threads * (DEEP / 2 * WIDTH) * sizeof(*p->panels),
                          "panels of weights", err);
    if (!p->panels)
        return -1;
    cpu_parallel(d, panels * p->parts, panel_task, p);
    free(p->panels);
    return 0;
#else
    (void)d;
    (void)p;
    return no_pairs(err);
#endif
}

/* ---- oneDNN ---- */

/* Task: a tile. */
static void onednn_task(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    size_t row = task % p->parts * DNN_ROWS, first = task / p->parts * DNN_OUTS;
    size_t rows = p->rows - row < DNN_ROWS ? p->rows - row : DNN_ROWS;
    size_t outs = p->out - first < DNN_OUTS ? p->out - first : DNN_OUTS;
    const struct onednn_shape shape = { rows, outs, p->in, p->stride, p->out };
    struct onednn *product = onednn_new(DTYPE_BF16, &shape);

    (void)thread;
    if (!product ||
        !onednn_run(product, p->y + row * p->out + first, p->terms + row * p->stride,
                    (const uint16_t *)p->w->data + first * p->in))
        atomic_store(p->lost, true);
    onednn_free(product);
}

static int run_onednn(struct device *d, struct product *p, struct err *err)
{
    atomic_bool lost = false;

    p->lost = &lost;
    p->parts = (p->rows + DNN_ROWS - 1) / DNN_ROWS;
    cpu_parallel(d, (p->out + DNN_OUTS - 1) / DNN_OUTS * p->parts, onednn_task, p);
    return lost ? err_set(err, ERR_SYSTEM, CPU_OUTER_LOST) : 0;
}

/* ---- both ---- */

enum panels cpu_panels(size_t rows, const struct matrix *w)
{
    if (w->dtype != DTYPE_BF16 || rows < LEAST || !w->cols || !w->rows)
        return PANELS_NONE;
    if (onednn_has_amx())
        return PANELS_ONEDNN;
    return tile_pairs() ? PANELS_OWN : PANELS_NONE;
}

int cpu_linear_panels(struct device *d, float *y, const float *x, size_t rows,
                      const struct matrix *w, enum panels how, struct err *err)
{
    size_t in = (size_t)w->cols;
    struct product p = { .y = y,
                         .x = x,
                         .rows = rows,
                         .in = in,
                         .out = (size_t)w->rows,
                         .w = w,
                         /* rows begin in different cache sets */
                         .stride = (in + STEP - 1) / STEP * STEP + STEP };
    int ret = -1;

    p.terms = mem_alloc(rows * p.stride * sizeof(*p.terms), "rows of a product", err);
    if (!p.terms)
        return -1;
    cpu_parallel(d, rows, round_row, &p);
    ret = (how == PANELS_ONEDNN ? run_onednn : run_panels)(d, &p, err);
    free(p.terms);
    return ret;
}
