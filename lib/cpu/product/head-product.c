/* head-product - y = x w^T, or x w, of each head by rows of its own of w */
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"

struct head_product {
    float *y;
    const float *x;
    size_t rows;
    const struct inst *inst;
    const struct matrix *w;
    bool plain;
    float *scratch; /* [threads][head_floats] */
};

/* Scratch floats of a thread for a head's product: its rows of x rearranged, and a
 * panel. */
static size_t head_floats(const struct head_product *r)
{
    return r->rows * cpu_arranged(r->w->format, r->inst->head.a) +
           (r->rows > 1 ? cpu_panel_floats() : 0);
}

/* Task: a head. */
static void one_head(void *arg, size_t task, int thread)
{
    const struct head_product *r = arg;
    size_t in = r->inst->head.a, to = r->inst->head.b, heads = r->inst->head.count;
    size_t stride = cpu_arranged(r->w->format, in);
    uint64_t row = r->inst->head.row + task * (r->plain ? in : to);
    const float *x = r->x + task * in;
    float *y = r->y + task * to, *own;

    if (r->plain) {
        cpu_outer_rows(y, heads * to, x, heads * in, r->rows, r->w, row, in, 0, to);
        return;
    }
    own = r->scratch + (size_t)thread * head_floats(r);
    for (size_t i = 0; i < r->rows; i++)
        cpu_arrange(own + i * stride, x + i * heads * in, r->w->format, in);
    cpu_dot_rows(y, heads * to, own, stride, r->rows, r->w, row, to,
                 r->rows > 1 ? own + r->rows * stride : NULL);
}

int cpu_head_product(struct device *d, float *y, const float *x, size_t rows,
                     const struct inst *inst, bool plain, const struct matrix *w,
                     struct err *err)
{
    struct head_product r = {
        .y = y, .x = x, .inst = inst, .plain = plain, .w = w, .rows = rows
    };

    if (!rows || !inst->head.a || !inst->head.b)
        return 0;
    if (!plain) {
        r.scratch =
            cpu_take(d, (uint64_t)cpu_threads(d) * head_floats(&r) * sizeof(*r.scratch),
                     "a head's rows", err);
        if (!r.scratch)
            return -1;
    }
    cpu_parallel(d, inst->head.count, one_head, &r);
    cpu_give(d, r.scratch);
    return 0;
}
