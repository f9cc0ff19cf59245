/* packed - y = x W^T for weights of 8 and 4 bits
 *
 * Sums have the order of linear.c: the lanes of a vector sum stretches of terms, a
 * fixed tree adds the lanes, stretches are added in order, and a struct sum_tree adds
 * the leaves.  The scale of 8 bits multiplies the sum of a leaf, so that ranks that
 * hold different leaves round alike. */
#include "lib/cpu/packed.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/codes.h"
#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/linear.h"
#include "lib/cpu/vec.h"

enum {
    FEW = 16,       /* most rows for which codes of 8 bits are widened as they are
                     * read */
    TASK = 1 << 16, /* bytes of weights of a task with few rows */
    PANEL = 48,     /* outputs of a panel; a multiple of the outputs of all tiles */
    STRETCH = 512,  /* terms of a stretch, of 8 bits; widened panels lie in L2 */
    STEPS = 8,      /* the same of 4 bits: steps */
    CHUNK = 32,     /* rows of x that are used together with codes of 4 bits */
    APART = VEC,    /* floats between rows of a panel: see linear.c */
    SUMS = TREE_LEAVES / 2 /* most pending sums besides the first */
};

struct product {
    float *y;
    const float *x;
    size_t rows;
    const struct matrix *w;
    uint64_t share; /* outputs of a task */
    const struct sum_tree *tree;
    struct int4_step *steps; /* x, arranged: [rows][row_steps]; of 4 bits */
    size_t row_steps;
    float *panels; /* [threads]: widened codes; NULL for few rows, and for 4 bits */
    float *rooms;  /* [threads][room], if the tree has several leaves */
    size_t room;
};

/* A leaf: columns [first, first + count), and where it begins in x. */
struct part_of_row {
    size_t first, count, step;
};

static size_t steps_of(size_t terms)
{
    return (terms + INT4_TERMS - 1) / INT4_TERMS;
}

bool cpu_is_packed(const struct matrix *w)
{
    return w->dtype == DTYPE_I8 || w->dtype == DTYPE_U8;
}

/* ---- 8 bits ---- */

static const int8_t *code8(const struct matrix *w, uint64_t row, uint64_t col)
{
    return (const int8_t *)w->data + row * w->cols + col;
}

static void few8(const struct product *p, float *y, size_t y_stride, uint64_t first,
                 size_t n, const struct part_of_row *l)
{
    const struct matrix *w = p->w;

    for (size_t j = 0; j < n; j += INT8_OUTS)
        for (size_t k = 0; k < l->count; k += STRETCH) {
            size_t terms = l->count - k < STRETCH ? l->count - k : STRETCH;
            struct int8_rows at = { .data = code8(w, first + j, l->first + k),
                                    .stride = (size_t)w->cols };

            if (first + j + 2 * INT8_OUTS <= w->rows)
                at.ahead =
                    code8(w, first + j + INT8_OUTS, 0) + INT8_OUTS * (l->first + k);
            int8_dot(y + j, y_stride, p->x + l->first + k, (size_t)w->cols, &at,
                     p->rows, n - j < INT8_OUTS ? n - j : INT8_OUTS, terms, k > 0);
        }
}

static void many8(const struct product *p, float *y, size_t y_stride, uint64_t first,
                  size_t n, const struct part_of_row *l, float *panel)
{
    const struct weight_rows at = { .data = (const char *)panel,
                                    .stride = STRETCH + APART };

    for (size_t k = 0; k < l->count; k += STRETCH) {
        size_t terms = l->count - k < STRETCH ? l->count - k : STRETCH;

        for (size_t j = 0; j < n; j++)
            int8_widen(panel + j * at.stride, code8(p->w, first + j, l->first + k),
                       terms);
        tile_f32.dot(y, y_stride, p->x + l->first + k, (size_t)p->w->cols, &at, p->rows,
                     n, terms, k > 0);
    }
}

/* y[rows][N] = the sums over leaf L of the outputs from FIRST on; N is at most
 * PANEL. */
static void leaf8(const struct product *p, float *y, size_t y_stride, uint64_t first,
                  size_t n, const struct part_of_row *l, float *panel)
{
    const float *scale = (const float *)p->w->scale + first;

    if (panel)
        many8(p, y, y_stride, first, n, l, panel);
    else
        few8(p, y, y_stride, first, n, l);
    for (size_t i = 0; i < p->rows; i++)
        for (size_t j = 0; j < n; j++)
            y[i * y_stride + j] *= scale[j];
}

/* ---- 4 bits ---- */

static struct int4_rows rows4(const struct matrix *w, uint64_t row, uint64_t col)
{
    size_t stride = (size_t)w->cols / 2, blocks = (size_t)w->cols / CODES_BLOCK;

    return (struct int4_rows){
        .data = (const uint8_t *)w->data + row * stride + col / 2,
        .scale = (const uint16_t *)w->scale + row * blocks + col / CODES_BLOCK,
        .stride = stride,
        .scale_stride = blocks
    };
}

/* CHUNK rows of x at a time are used for all outputs. */
static void leaf4(const struct product *p, float *y, size_t y_stride, uint64_t first,
                  size_t n, const struct part_of_row *l)
{
    const struct matrix *w = p->w;
    size_t all = steps_of(l->count);

    for (size_t i = 0; i < p->rows; i += CHUNK)
        for (size_t j = 0; j < n; j += INT4_OUTS)
            for (size_t k = 0; k < all; k += STEPS) {
                size_t steps = all - k < STEPS ? all - k : STEPS;
                struct int4_rows at = rows4(w, first + j, l->first + k * INT4_TERMS);

                if (i == 0 && first + j + 2 * INT4_OUTS <= w->rows) {
                    struct int4_rows next = rows4(w, first + j + INT4_OUTS, 0);
                    size_t done = INT4_OUTS * (l->first + k * INT4_TERMS);

                    at.ahead = next.data + done / 2;
                    at.scale_ahead = next.scale + done / CODES_BLOCK;
                }
                int4_dot(y + i * y_stride + j, y_stride,
                         p->steps + i * p->row_steps + l->step + k, p->row_steps, &at,
                         p->rows - i < CHUNK ? p->rows - i : CHUNK,
                         n - j < INT4_OUTS ? n - j : INT4_OUTS, steps, k > 0);
            }
}

/* ---- trees and threads ---- */

/* y[rows][N] of the outputs from FIRST on.  Sums that wait for others are in ROOM. */
static void outputs(const struct product *p, uint64_t first, size_t n, float *panel,
                    float *room)
{
    size_t stride = (size_t)p->w->rows, pending = 0;
    float *y = p->y + first;
    struct part_of_row l = { 0 };

    for (int k = 0; k < p->tree->n; k++) {
        float *to = pending ? room + (pending - 1) * p->rows * n : y;

        l.count = (size_t)p->tree->leaf[k].cols;
        if (p->w->dtype == DTYPE_I8)
            leaf8(p, to, pending ? n : stride, first, n, &l, panel);
        else
            leaf4(p, to, pending ? n : stride, first, n, &l);
        pending++;
        for (int a = 0; a < p->tree->leaf[k].adds; a++, pending--) {
            const float *z = room + (pending - 2) * p->rows * n;

            to = pending > 2 ? room + (pending - 3) * p->rows * n : y;
            for (size_t i = 0; i < p->rows; i++)
                for (size_t j = 0; j < n; j++)
                    to[i * (pending > 2 ? n : stride) + j] += z[i * n + j];
        }
        l.first += l.count;
        l.step += steps_of(l.count);
    }
}

static void run_task(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    uint64_t first = task * p->share, end = first + p->share;
    size_t at = (size_t)thread;

    if (end > p->w->rows)
        end = p->w->rows;
    for (; first < end; first += PANEL)
        outputs(p, first, end - first < PANEL ? (size_t)(end - first) : PANEL,
                p->panels ? p->panels + at * PANEL * (STRETCH + APART) : NULL,
                p->rooms ? p->rooms + at * p->room : NULL);
}

static void arrange_row(void *arg, size_t row, int thread)
{
    const struct product *p = arg;
    struct int4_step *to = p->steps + row * p->row_steps;
    const float *x = p->x + row * p->w->cols;

    (void)thread;
    for (int k = 0; k < p->tree->n; k++) {
        size_t n = (size_t)p->tree->leaf[k].cols;

        int4_arrange(to, x, n);
        to += steps_of(n);
        x += n;
    }
}

static int open_room(struct product *p, struct device *d, struct err *err)
{
    size_t threads = (size_t)cpu_threads(d);

    if (p->w->dtype == DTYPE_U8) {
        for (int k = 0; k < p->tree->n; k++)
            p->row_steps += steps_of((size_t)p->tree->leaf[k].cols);
        p->steps = mem_alloc(p->rows * p->row_steps * sizeof(*p->steps),
                             "rows of a product", err);
        if (!p->steps)
            return -1;
    } else if (p->rows > FEW) {
        p->panels = mem_alloc(threads * PANEL * (STRETCH + APART) * sizeof(*p->panels),
                              "weights of a product", err);
        if (!p->panels)
            return -1;
    }
    if (p->tree->n == 1)
        return 0;
    p->room = SUMS * PANEL * p->rows;
    p->rooms =
        mem_alloc(threads * p->room * sizeof(*p->rooms), "sums of a product", err);
    return p->rooms ? 0 : -1;
}

int cpu_packed_linear(struct device *d, float *y, const float *x, size_t rows,
                      const struct matrix *w, const struct sum_tree *tree,
                      struct err *err)
{
    const struct sum_tree whole = { .n = 1, .leaf = { { .cols = w->cols } } };
    struct product p = { .y = y,
                         .x = x,
                         .rows = rows,
                         .w = w,
                         .tree = tree ? tree : &whole,
                         .share = PANEL };
    uint64_t row_bytes = (w->dtype == DTYPE_I8 ? w->cols : w->cols / 2) + 1;
    int ret = -1;

    if (!rows || !w->rows)
        return 0;
    if (!w->cols) {
        memset(y, 0, rows * w->rows * sizeof(*y));
        return 0;
    }
    if (rows <= FEW)
        p.share = (TASK / row_bytes + PANEL) / PANEL * PANEL;
    if (open_room(&p, d, err) == 0) {
        if (p.steps)
            cpu_parallel(d, rows, arrange_row, &p);
        cpu_parallel(d, (size_t)((w->rows + p.share - 1) / p.share), run_task, &p);
        ret = 0;
    }
    free(p.steps);
    free(p.panels);
    free(p.rooms);
    return ret;
}
