/* linear - y = x W^T: which loops make it, and how threads share it
 *
 * Each sum has a fixed order, which does not depend on the other rows and outputs, nor
 * on the number of threads: a row's result does not depend on its batch.  y = x W^T:
 * the lanes of a vector sum stretches of BLOCK terms (rounded x: of BF16DOT_BLOCK), a
 * fixed tree adds the lanes, and the stretches are added in order.  y = x W: terms are
 * added in order.  16-bit weights: one vector holds the weights at even positions of
 * 32, the next those at odd positions (vec_pair_bf16); x is rearranged in the same way
 * once and padded with zeros.
 *
 * Tensor parallelism: if ranks may divide the terms of a sum, it is computed in parts,
 * each in the order above, and a binary tree adds the parts (struct sum_tree).  A rank
 * that has all terms of a subtree computes the same value as several ranks would.
 *
 * Register tiles of rows x outputs reuse each loaded weight for several rows.  With few
 * rows, weights are widened to f32 as they are read; with more, a panel of weights is
 * widened first or, with many, copied into whole lines. */
#include "lib/cpu/product/linear.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/cpu/product/codes-linear.h"

enum {
    WIDENED = 128,  /* rows for which codes are widened to bf16 */
    TASK = 1 << 16, /* weights of a task with few rows */
};

void cpu_dot_rows(float *y, size_t y_stride, const float *x, size_t x_stride, size_t m,
                  const struct matrix *w, uint64_t first, size_t n, float *panel)
{
    const struct sum_tree all = linear_whole(w);

    if (panel)
        linear_many_panels(y, y_stride, x, x_stride, m, w, first, n,
                           (struct linear_terms){ .count = w->cols }, panel);
    else
        linear_few_rows(y, y_stride, x, x_stride, m, linear_tiles(w->format), w, first,
                        n, &all);
}

size_t cpu_panel_floats(void)
{
    return (size_t)PANEL * (BLOCK + APART);
}

#if CPU_HAS_WIDE
/* Floats of a thread's room for linear_many_rows or, if PAIRED, bf16dot_rows. */
static size_t block_floats(size_t rows, const struct sum_tree *tree, bool paired)
{
    size_t some = rows < BLOCK_ROWS ? (rows + EIGHT - 1) / EIGHT * EIGHT : BLOCK_ROWS;

    if (paired)
        return BF16DOT_FLOATS + (tree->n > 1 ? TREE_SUMS * rows * BLOCK_OUTS : 0);
    return BLOCK_OUTS * (BLOCK + APART + some * (tree->n > 1 ? TREE_SUMS + 1 : 1));
}
#endif

/* Runs RUN in tasks of SHARE outputs each. */
void linear_share_out(struct device *d, struct linear *p, uint64_t share, cpu_task *run)
{
    p->share = share;
    cpu_parallel(d, (size_t)((p->out + share - 1) / share), run, p);
}

/* Returns the first output of TASK; *n is their number. */
uint64_t linear_span(const struct linear *p, size_t task, size_t *n)
{
    uint64_t first = task * p->share;

    *n = (size_t)(p->out - first < p->share ? p->out - first : p->share);
    return first;
}

static void linear_outputs(void *arg, size_t task, int thread)
{
    const struct linear *p = arg;
    size_t n, first = (size_t)linear_span(p, task, &n);
    const float *x = p->apart;
    float *panel = p->panels ? p->panels + (size_t)thread * cpu_panel_floats() : NULL;

    if (p->tree->n > 1 && panel)
        linear_many_panels_tree(p->y + first, p->out, x, p->x_stride, p->rows, p->w,
                                first, n, p->tree, panel,
                                p->rooms + (size_t)thread * p->room);
    else if (panel)
        linear_many_panels(p->y + first, p->out, x, p->x_stride, p->rows, p->w, first,
                           n, (struct linear_terms){ .count = p->in }, panel);
    else
        linear_few_rows(p->y + first, p->out, x, p->x_stride, p->rows, p->tiles, p->w,
                        first, n, p->tree);
}

#if CPU_HAS_WIDE
static void linear_blocks(void *arg, size_t task, int thread)
{
    const struct linear *p = arg;
    size_t n, first = (size_t)linear_span(p, task, &n);
    float *room = p->rooms + (size_t)thread * p->room;

    if (p->tiles->paired)
        bf16dot_rows(p->y + first, p->out, p->apart, p->x_stride, p->rows, p->tiles,
                     p->w, first, n, p->tree, room);
    else
        linear_many_rows(p->y + first, p->out, p->apart, p->x_stride, p->rows, p->panel,
                         p->w, first, n, p->tree, room);
}
#endif

/* Are there so many rows that they are faster in blocks?  Sets the room for these. */
static bool wants_blocks(struct linear *p)
{
#if CPU_HAS_WIDE
    if (cpu_has() != CPU_ANY &&
        (cpu_has_codes(p->w) || p->rows > (p->tiles->paired ? 2 * CHUNK : FEW))) {
        p->room = block_floats(p->rows, p->tree, p->tiles->paired);
        return true;
    }
#endif
    (void)p;
    return false;
}

/* Tasks of a block's outputs, or of less, so that all threads have some. */
static void share_blocks(struct device *d, struct linear *p)
{
#if CPU_HAS_WIDE
    /* whole groups of codes, too */
    const uint64_t unit =
        cpu_has_codes(p->w) ? (uint64_t)(OUTS * CODES_ROWS / 2) : GROUP;
    uint64_t share = p->out / (4 * (uint64_t)cpu_threads(d)) / unit * unit;

    share = share < unit ? unit : share < BLOCK_OUTS ? share : BLOCK_OUTS;
    linear_share_out(d, p, share, linear_blocks);
#else
    (void)d;
    (void)p;
#endif
}

/* Outputs per task: some 100 KB of weights, in whole panels. */
uint64_t linear_share(const struct linear *p)
{
    uint64_t share = TASK / (p->in + 1) + 1;

    return (share + PANEL - 1) / PANEL * PANEL;
}

/* Runs it by eight rows at a time or more, in BLOCKS or panels. */
static void share_rows(struct device *d, struct linear *p, bool blocks)
{
    const uint64_t bytes = p->in * p->out * p->tiles->size;
    const int rows = p->rows <= FEW     ? FEW_ROWS
                     : p->rows <= CHUNK ? SOME_ROWS
                                        : MANY_ROWS;
    struct autotune *tuning = cpu_autotune(d, p->tiles->kind, rows);
    const int n = p->rows >= EIGHT && p->tiles->near ? 2 : 1;
    double start;

    p->panel = linear_tiles(FORMAT_F32);
    if (n > 1 && autotune_next(tuning, n, bytes)) {
        p->tiles = p->tiles->near;
        p->panel = p->panel->near;
    }
    start = clock_seconds();
    if (blocks)
        share_blocks(d, p);
    else
        linear_share_out(d, p, p->panels ? PANEL : linear_share(p), linear_outputs);
    if (n > 1)
        autotune_note(tuning, n, bytes, (clock_seconds() - start) / (double)p->rows);
}

static void set_apart(void *arg, size_t task, int thread)
{
    const struct linear *p = arg;
    float *to = p->apart + task * p->x_stride;
    const float *x = p->bf16 ? NULL : p->x + task * p->in;
    const uint16_t *bf16 = p->bf16 ? p->bf16 + task * p->in : NULL;

    (void)thread;
    for (int k = 0; k < p->tree->n; k++) {
        size_t cols = (size_t)p->tree->leaf[k].cols;
        size_t floats = linear_floats(p->tiles, cols);

        if (p->tiles->paired) {
            memset(to, 0, floats * sizeof(*to));
            if (bf16)
                memcpy(to, bf16, cols * sizeof(*bf16));
            else
                cpu_round_bf16((uint16_t *)to, x, cols);
        } else if (bf16) {
            cpu_arrange_bf16(to, bf16, cols);
        } else {
            cpu_arrange(to, x, p->w->format, cols);
            if (p->rounded && p->w->format == FORMAT_F16)
                cpu_round_half(to, to, floats);
            else if (p->rounded)
                linear_round(to, floats);
        }
        to += floats;
        if (bf16)
            bf16 += cols;
        else
            x += cols;
    }
}

/* y = x W^T; ROUNDED: x is rounded to bf16, or it is of TYPE bf16; to f16 for W in f16.
 */
static int linear(struct device *d, float *y, const void *x, enum format type,
                  size_t rows, const struct matrix *w, const struct sum_tree *tree,
                  bool rounded, struct err *err)
{
    const struct sum_tree whole = linear_whole(w);
    struct linear p = { .y = y,
                        .x = x,
                        .bf16 = type == FORMAT_BF16 ? x : NULL,
                        .rows = rows,
                        .w = w,
                        .rounded = rounded,
                        .tiles =
                            rounded && w->format != FORMAT_F16 ? tile_bf16dot() : NULL,
                        .tree = tree ? tree : &whole,
                        .in = w->cols,
                        .out = w->rows,
                        .x_stride = (size_t)w->cols + 2 * VEC * TREE_LEAVES + APART };
    size_t apart, panels = 0, rooms;
    float *room = NULL;
    bool blocks;

    if (!w->cols) {
        memset(y, 0, rows * w->rows * sizeof(*y));
        return 0;
    }
    if (!p.tiles)
        p.tiles = linear_tiles(w->format);
    if (p.tiles->paired)
        p.x_stride = (size_t)w->cols / 2 + VEC * (TREE_LEAVES + 1) + APART;
    p.x_stride = (p.x_stride + VEC - 1) / VEC * VEC;
    apart = rows * p.x_stride;
    blocks = wants_blocks(&p);
    if (!blocks && rows > FEW && !p.tiles->paired) {
        panels = (size_t)cpu_threads(d) * cpu_panel_floats();
        p.room = p.tree->n > 1 ? TREE_SUMS * PANEL * rows : 0;
    }
    rooms = (size_t)cpu_threads(d) * p.room;
    room =
        cpu_take(d, (apart + panels + rooms) * sizeof(*room), "rows of a product", err);
    if (!room)
        return -1;
    p.apart = room;
    cpu_parallel(d, rows, set_apart, &p);
    if (panels)
        p.panels = room + apart;
    if (rooms)
        p.rooms = room + apart + panels;
    if (blocks || !linear_one_row(d, &p))
        share_rows(d, &p, blocks);
    cpu_give(d, room);
    return 0;
}

int cpu_linear(struct device *d, float *y, const float *x, size_t rows,
               const struct matrix *w, const struct sum_tree *tree, struct err *err)
{
    return linear(d, y, x, FORMAT_F32, rows, w, tree, false, err);
}

int cpu_linear_rounded(struct device *d, float *y, const void *x, enum format type,
                       size_t rows, const struct matrix *w, const struct sum_tree *tree,
                       struct err *err)
{
    return linear(d, y, x, type, rows, w, tree, w->format == FORMAT_BF16, err);
}

int cpu_linear_half(struct device *d, float *y, const float *x, size_t rows,
                    const struct matrix *w, const struct sum_tree *tree,
                    struct err *err)
{
    return linear(d, y, x, FORMAT_F32, rows, w, tree, true, err);
}

bool cpu_has_codes_bf16dot(size_t rows, const struct matrix *w)
{
    return cpu_has_codes(w) && !codes_by_amx(w) && rows >= WIDENED && w->cols &&
           tile_bf16dot();
}

int cpu_codes_bf16dot(struct device *d, float *y, const float *x, size_t rows,
                      const struct matrix *w, const struct sum_tree *tree,
                      struct err *err)
{
    return linear(d, y, x, FORMAT_F32, rows, w, tree, true, err);
}
