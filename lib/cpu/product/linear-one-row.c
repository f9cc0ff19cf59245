/* linear-one-row - y = x W^T of one row, whose weights are read in several streams */
#include <string.h>

#include "lib/base/clock.h"
#include "lib/cpu/product/linear.h"

#if CPU_HAS_WIDE
/* One row by as many outputs as LOOP has streams of weights, each of which continues
 * with the next call: outputs that are APART outputs from one another. */
static void dot_streams(float *y, size_t apart, const float *x, const struct tiles *t,
                        const struct stream_loop *loop, const struct matrix *w,
                        uint64_t first, const struct sum_tree *tree)
{
    float sums[TREE_SUMS + 1][STREAMS];
    struct linear_terms of = { 0 };
    size_t last = 0;

    memset(sums[0], 0, sizeof(*sums)); /* compilers do not see that there is a leaf */
    for (int k = 0; k < tree->n; k++, last++) {
        struct weight_rows at = { .stride = w->cols * apart };

        of.count = tree->leaf[k].cols;
        at.data = linear_element(w, first, of.start);
        loop->sums(sums[last], x + of.x, &at, (size_t)of.count);
        for (int a = 0; a < tree->leaf[k].adds; a++, last--)
            for (size_t i = 0; i < loop->width; i++)
                sums[last - 1][i] += sums[last][i];
        linear_next(&of, t);
    }
    for (size_t i = 0; i < loop->width; i++)
        y[i * apart] = sums[0][i];
}

/* One row: a CPU prefetches streams of weights that it reads in order, and no other way
 * of reading was as fast. */
static void linear_streams(void *arg, size_t task, int thread)
{
    const struct linear *p = arg;
    struct stream_part part = streams_task(&p->streams, task);

    (void)thread;
    for (uint64_t j = part.first; j < part.first + part.times; j++)
        dot_streams(p->y + j, (size_t)part.apart, p->apart, p->tiles, p->loop, p->w, j,
                    p->tree);
    if (part.count)
        linear_few_rows(p->y + part.first, p->out, p->apart, p->x_stride, p->rows,
                        p->tiles, p->w, part.first, (size_t)part.count, p->tree);
}
#endif

/* Runs it.  Returns false if that is impossible, or if there are too few outputs. */
bool linear_one_row(struct device *d, struct linear *p)
{
#if CPU_HAS_WIDE
    struct streams *s = &p->streams;
    struct autotune *tuning = cpu_autotune(d, p->tiles->kind, ONE_ROW);
    uint64_t bytes = p->in * p->out * p->tiles->size;
    double start;

    if (p->rows != 1 || cpu_has() == CPU_ANY)
        return false;
    p->loop = &p->tiles->way[autotune_next(tuning, AUTOTUNE_WAYS, bytes)];
    *s = (struct streams){ .all = p->out,
                           .threads = (uint64_t)cpu_threads(d),
                           .width = p->loop->width,
                           .share = linear_share(p) / p->loop->width };
    s->length = s->all / (s->width * s->threads);
    s->length -= s->length && s->length % 2 == 0; /* even ones meet in a cache set */
    if (!s->length)
        return false;
    start = clock_seconds();
    cpu_parallel(d, streams_tasks(s), linear_streams, p);
    autotune_note(tuning, AUTOTUNE_WAYS, bytes, clock_seconds() - start);
    return true;
#else
    (void)d;
    (void)p;
    return false;
#endif
}
