/* longformer - attention within a window and of global tokens (Longformer)
 *
 * Beltagy et al. 2020, "Longformer: The Long-Document Transformer", arXiv:2004.05150,
 * section 3.1: a token sees the tokens around it, and the global tokens; these see all
 * tokens, and have queries, keys and values of their own for that.  Which tokens are
 * global an input says.  A task is one head of one text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/attention/attention.h"
#include "lib/cpu/cpu.h"

struct job {
    const struct cpu_globals *c;
    const struct inst *inst;
    size_t stride;             /* columns of a row */
    size_t most;               /* tokens of the longest text */
    float *room;               /* [threads][GLOBALS_BLOCK][most] */
    struct globals_part *part; /* [threads][globals_parts(most)] */
};

/* A head of a text: rows [n]. */
struct text {
    const struct job *j;
    size_t at; /* of its first number */
    size_t n;
    const int32_t *mask;       /* [n] */
    float *score;              /* [GLOBALS_BLOCK][most] */
    struct globals_part *part; /* [globals_parts(most)] */
};

/* Adds to PART[PARTS] the runs of global tokens in [FIRST, END). */
static int add_runs(const struct text *t, size_t first, size_t end, int parts)
{
    for (size_t i = first; i < end; i++) {
        if (!t->mask[i])
            continue;
        if (i == first || !t->mask[i - 1])
            t->part[parts++] = (struct globals_part){ i, 0 };
        t->part[parts - 1].n++;
    }
    return parts;
}

/* The scores of the queries [ROW, ROW + ROWS) with the keys in PART[PARTS], side by
 * side. */
static void score(const struct text *t, size_t row, size_t rows, const float *q,
                  const float *k, const struct globals_part *part, int parts)
{
    size_t stride = t->j->stride, dim = t->j->inst->attention.head_dim, done = 0;

    for (int p = 0; p < parts; done += part[p++].n)
        if (part[p].n)
            cpu_dots(t->score + done, t->j->most, q + t->at + row * stride, stride,
                     rows, k + t->at + part[p].first * stride, stride, part[p].n, dim);
}

/* Their values, by the weights that the scores N have become. */
static void add_values(const struct text *t, size_t row, size_t rows, const float *v,
                       const struct globals_part *part, int parts)
{
    size_t stride = t->j->stride, dim = t->j->inst->attention.head_dim, done = 0;
    float *y = t->j->c->y + t->at + row * stride;

    for (size_t i = 0; i < rows; i++)
        memset(y + i * stride, 0, dim * sizeof(*y));
    for (int p = 0; p < parts; done += part[p++].n)
        if (part[p].n)
            cpu_add_weighted(y, stride, t->score + done, t->j->most, rows,
                             v + t->at + part[p].first * stride, stride, dim,
                             part[p].n);
}

/* The queries [ROW, ROW + ROWS), which are global. */
static void see_all(const struct text *t, size_t row, size_t rows)
{
    const struct cpu_globals *c = t->j->c;
    const struct globals_part all = { 0, t->n };

    score(t, row, rows, c->q_all, c->k_all, &all, 1);
    for (size_t i = 0; i < rows; i++)
        cpu_softmax_row(t->score + i * t->j->most, t->n,
                        (float)t->j->inst->attention.scale);
    add_values(t, row, rows, c->v_all, &all, 1);
}

/* The queries [ROW, ROW + ROWS), which are not. */
static void see_window(const struct text *t, size_t row, size_t rows)
{
    const struct cpu_globals *c = t->j->c;
    size_t reach = (size_t)t->j->inst->attention.window - 1;
    size_t low = row > reach ? row - reach : 0, before = 0, n = 0;
    size_t high = t->n - row > rows + reach ? row + rows + reach : t->n;
    /* the global ones before the windows of these queries, the windows, those after */
    int first = add_runs(t, 0, low, 0), parts;

    t->part[first] = (struct globals_part){ low, high - low };
    parts = add_runs(t, high, t->n, first + 1);
    for (int p = 0; p < parts; n += t->part[p++].n)
        before += p < first ? t->part[p].n : 0;
    score(t, row, rows, c->q, c->k, t->part, parts);
    for (size_t i = 0; i < rows; i++) {
        float *s = t->score + i * t->j->most, *window = s + before;
        size_t own = row + i;

        for (size_t k = low; k < high; k++) {
            size_t apart = k > own ? k - own : own - k;

            if (apart > reach && !t->mask[k])
                window[k - low] = -INFINITY;
        }
        cpu_softmax_row(s, n, (float)t->j->inst->attention.scale);
    }
    add_values(t, row, rows, c->v, t->part, parts);
}

/* Task: head TASK % heads of text TASK / heads. */
static void one_head(void *arg, size_t task, int thread)
{
    const struct job *j = arg;
    const struct cpu_globals *c = j->c;
    size_t heads = j->inst->attention.heads, n;
    size_t first = cpu_text(&c->texts, task / heads, &n);
    struct text t = { .j = j,
                      .at = first * j->stride +
                            task % heads * j->inst->attention.head_dim,
                      .n = n,
                      .mask = c->mask + first,
                      .score = j->room + (size_t)thread * GLOBALS_BLOCK * j->most,
                      .part = j->part + (size_t)thread * globals_parts(j->most) };

    for (size_t row = 0, end; row < t.n; row = end) {
        for (end = row + 1;
             end < t.n && end - row < GLOBALS_BLOCK && !t.mask[end] == !t.mask[row];)
            end++;
        (t.mask[row] ? see_all : see_window)(&t, row, end - row);
    }
}

int cpu_global_attention(struct device *d, const struct inst *inst,
                         const struct cpu_globals *c, struct err *err)
{
    struct job j = { .c = c, .inst = inst };

    j.stride = inst->attention.heads * inst->attention.head_dim;
    for (size_t i = 0, n; i < c->texts.n; i++) {
        (void)cpu_text(&c->texts, i, &n);
        j.most = n > j.most ? n : j.most;
    }
    if (!inst->attention.heads || !j.most)
        return 0;
    j.room =
        cpu_take(d, (uint64_t)cpu_threads(d) * GLOBALS_BLOCK * j.most * sizeof(float),
                 "attention scores", err);
    if (j.room)
        j.part = cpu_take(
            d, (uint64_t)cpu_threads(d) * globals_parts(j.most) * sizeof(*j.part),
            "runs of global tokens", err);
    if (j.part)
        cpu_parallel(d, c->texts.n * inst->attention.heads, one_head, &j);
    cpu_give(d, j.part);
    cpu_give(d, j.room);
    return j.part ? 0 : -1;
}
