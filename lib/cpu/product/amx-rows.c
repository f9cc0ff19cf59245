/* amx-rows - y = x W^T of many rows, x rounded to bf16, by bf16 weights or by codes of
 * 4 bits, which are widened to bf16, on CPUs with AMX
 *
 * x is laid out for tiles once.  A task multiplies a block of its rows, of which a
 * stretch of terms fits into the L2 cache, by some outputs, AMX_SIDE of them at a time:
 * their weights are copied, or widened, into whole lines, while what is copied next is
 * prefetched.  Sums of stretches are added in order, and the stretches depend on the
 * number of terms alone: neither the threads nor the other rows change a sum. */
#include "lib/base/mem.h"
#include "lib/cpu/simd/amx.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/product/codes-linear.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST = 6,            /* rows for which tiles are faster */
    LEAST_OF_CODES = 128, /* rows for which codes are widened */
    FEW = 2,              /* panels of x for which they are not */
    NEAR = 4,             /* steps that the weights of one panel are prefetched ahead */
    BLOCK_ROWS = 256,     /* most rows of a block */
    STRETCH = 64,         /* most steps of a stretch */
    APART = AMX_SIDE,     /* terms between rows of weights, so that equal columns map to
                           * different cache sets */
    TASKS = 4             /* of a thread, at least */
};

struct product {
    float *y;
    const float *x;
    const uint16_t *bf16; /* instead of x, or NULL */
    const struct matrix *w;
    size_t rows, in, out;
    size_t steps, stretch; /* of a row; of a stretch */
    uint16_t *tiles;       /* [panels][steps][AMX_SIDE * AMX_SIDE]: x */
    size_t panels, block;  /* of AMX_SIDE rows; of a block of rows */
    size_t share;          /* outputs of a task */
    uint16_t *room;        /* [threads][AMX_SIDE][stride]: weights */
    size_t stride;
};

/* Are they codes that are widened to bf16? */
static bool is_widened(const struct matrix *w)
{
    return format_is_coded(w->format) && w->format != FORMAT_INT8;
}

/* Task: AMX_SIDE rows of x. */
static void pack_panel(void *arg, size_t panel, int thread)
{
    const struct product *p = arg;
    size_t first = panel * AMX_SIDE, left = p->rows - first;
    size_t rows = left < AMX_SIDE ? left : AMX_SIDE;
    uint16_t *to = p->tiles + panel * p->steps * AMX_SIDE * AMX_SIDE;

    (void)thread;
    if (p->bf16)
        amx_turn(to, p->bf16 + first * p->in, p->in, rows, p->in, p->steps);
    else
        amx_pack(to, p->x + first * p->in, p->in, rows, p->in, p->steps);
}

/* Copies N <= AMX_SIDE rows of weights from row FIRST on, from step STEP on; what is
 * missing of whole tiles is zeros. */
static void copy_weights(const struct product *p, uint16_t *to, size_t first, size_t n,
                         size_t step, size_t steps)
{
    const size_t col = step * AMX_SIDE, room = steps * AMX_SIDE;
    const size_t terms = p->in - col < room ? p->in - col : room;

    if (is_widened(p->w))
        codes_widen(to, p->stride, p->w, first, n, col, terms);
    for (size_t r = 0; r < AMX_SIDE; r++, to += p->stride) {
        const uint16_t *from = (const uint16_t *)p->w->data + (first + r) * p->in + col;
        size_t some = r < n ? terms : 0;

        if (some && !is_widened(p->w))
            memcpy(to, from, some * sizeof(*to));
        memset(to + some, 0, (room - some) * sizeof(*to));
    }
}

/* Panels of rows of x [first, end), and outputs [out, last). */
struct part {
    size_t first, end, out, last;
};

/* What a product prefetches: weights at AHEAD and in the same columns of the next
 * AMX_SIDE - 1 rows, and from step UNTIL on those at THEN, unless it is NULL.  AHEAD
 * may be NULL: nothing. */
struct ahead {
    const uint16_t *ahead, *then;
    size_t until;
};

/* y of a part, at most AMX_SIDE outputs, over STEPS steps from STEP on.  Panels share
 * the rows to be prefetched. */
static void multiply_panels(const struct product *p, const struct part *of,
                            const uint16_t *w, size_t w_stride, size_t step,
                            size_t steps, struct ahead a)
{
    const size_t apart = p->in * sizeof(*w);
    int lines = AMX_SIDE;

    for (size_t k = 1; k < of->end - of->first && lines > 1; k *= 2)
        lines /= 2;
    for (size_t k = of->first; k < of->end; k++) {
        size_t row = k * AMX_SIDE;
        struct amx_product tile = {
            .w = w,
            .w_stride = w_stride,
            .x = p->tiles + (k * p->steps + step) * AMX_SIDE * AMX_SIDE,
            .steps = steps,
            .rows = p->rows - row < AMX_SIDE ? p->rows - row : AMX_SIDE,
            .outs = of->last - of->out,
            .ahead = (const char *)a.ahead,
            .lines = lines,
            .apart = apart,
            .until = a.until,
            .then = (const char *)a.then,
            .y = p->y + row * p->out + of->out,
            .y_stride = p->out,
            .add = step > 0
        };

        amx_multiply(&tile);
        if (a.ahead)
            a.ahead += (size_t)lines * p->in;
    }
}

/* The weights of output OUT from step STEP on. */
static const uint16_t *weights(const struct product *p, size_t out, size_t step)
{
    return (const uint16_t *)p->w->data + out * p->in + step * AMX_SIDE;
}

static size_t steps_from(const struct product *p, size_t step)
{
    return p->steps - step < p->stretch ? p->steps - step : p->stretch;
}

/* Over a stretch of steps, from copies of weights. */
static void multiply_copies(const struct product *p, const struct part *of, size_t step,
                            uint16_t *room)
{
    const size_t steps = steps_from(p, step);

    for (struct part some = *of; some.out < of->last; some.out = some.last) {
        size_t left = of->last - some.out, n = left < AMX_SIDE ? left : AMX_SIDE;
        struct ahead a = { .ahead = NULL };

        some.last = some.out + n;
        if (left >= 2 * AMX_SIDE && !is_widened(p->w))
            a.ahead = weights(p, some.last, step);
        copy_weights(p, room, some.out, n, step, steps);
        multiply_panels(p, &some, room, p->stride, step, steps, a);
    }
}

/* Few rows, by whole AMX_SIDEs of outputs: weights are multiplied as they lie in
 * memory.  For one panel, what is a little ahead is prefetched, else the next outputs,
 * while these are used from L2. */
static void multiply_few(const struct product *p, const struct part *of)
{
    for (struct part some = *of; some.out < of->last; some.out = some.last) {
        bool more = some.out + AMX_SIDE < of->last;

        some.last = some.out + AMX_SIDE;
        for (size_t step = 0, n; step < p->steps; step += n) {
            struct ahead a = { .ahead = NULL };

            n = steps_from(p, step);
            if (more)
                a.ahead = weights(p, some.last, step);
            if (p->panels == 1) {
                if (step + n == p->steps && more)
                    a.then = weights(p, some.last, 0);
                a.until = n > NEAR ? n - NEAR : 0;
                a.ahead = weights(p, some.out, step + NEAR);
            }
            multiply_panels(p, &some, weights(p, some.out, step), p->in, step, n, a);
        }
    }
}

static void multiply_task(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    const size_t tasks = (p->out + p->share - 1) / p->share;
    struct part of = { .first = task / tasks * p->block,
                       .out = task % tasks * p->share };
    uint16_t *room = p->room + (size_t)thread * AMX_SIDE * p->stride;
    struct part few;

    of.end = p->panels - of.first < p->block ? p->panels : of.first + p->block;
    of.last = p->out - of.out < p->share ? p->out : of.out + p->share;
    amx_begin();
    if (p->panels <= FEW && p->in % AMX_SIDE == 0 && !is_widened(p->w)) {
        few = of;
        few.last -= (of.last - of.out) % AMX_SIDE;
        multiply_few(p, &few);
        of.out = few.last;
    }
    for (size_t step = 0; step < p->steps && of.out < of.last; step += p->stretch)
        multiply_copies(p, &of, step, room);
    amx_end();
}

bool cpu_has_amx_rows(size_t rows, const struct matrix *w)
{
    return rows >= (size_t)(is_widened(w) ? LEAST_OF_CODES : LEAST) &&
           (w->format == FORMAT_BF16 || is_widened(w)) && w->cols && w->rows &&
           amx_has();
}

/* N in as few equal parts as are at most MOST, rounded up. */
static size_t evenly(size_t n, size_t most)
{
    size_t parts = (n + most - 1) / most;

    return (n + parts - 1) / parts;
}

int cpu_amx_rows(struct device *d, float *y, const void *x, enum format type,
                 size_t rows, const struct matrix *w, struct err *err)
{
    const size_t threads = (size_t)cpu_threads(d);
    struct product p = { .y = y,
                         .x = x,
                         .bf16 = type == FORMAT_BF16 ? x : NULL,
                         .w = w,
                         .rows = rows,
                         .in = (size_t)w->cols,
                         .out = (size_t)w->rows,
                         .steps = amx_sides((size_t)w->cols),
                         .panels = amx_sides(rows) };
    size_t numbers;

    p.stretch = evenly(p.steps, STRETCH);
    p.block = evenly(p.panels, BLOCK_ROWS / AMX_SIDE);
    p.share = amx_sides((p.out + TASKS * threads - 1) / (TASKS * threads)) * AMX_SIDE;
    p.stride = p.stretch * AMX_SIDE + APART;
    numbers = p.panels * p.steps * AMX_SIDE * AMX_SIDE;
    p.tiles = cpu_take(d, (numbers + threads * AMX_SIDE * p.stride) * sizeof(*p.tiles),
                       "rows of a product", err);
    if (!p.tiles)
        return -1;
    p.room = p.tiles + numbers;
    cpu_parallel(d, p.panels, pack_panel, &p);
    cpu_parallel(d,
                 (p.panels + p.block - 1) / p.block * ((p.out + p.share - 1) / p.share),
                 multiply_task, &p);
    cpu_give(d, p.tiles);
    return 0;
}
