/* longformer - attention within a window and of global tokens (Longformer)
 *
 * Beltagy et al. 2020, "Longformer: The Long-Document Transformer", arXiv:2004.05150,
 * section 3.1: a token sees the tokens around it, and the global tokens; these see all
 * tokens, and have queries, keys and values of their own for that.  Which tokens are
 * global the model's task says: the first one, or those of the question.  A task is one
 * head of one text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/attention/attention.h"
#include "lib/cpu/cpu.h"

struct job {
    const struct cpu_globals *c;
    const struct inst *inst;
    size_t stride; /* columns of a row */
    size_t most;   /* tokens of the longest text */
    float *room;   /* [threads][GLOBALS_BLOCK][most] */
};

/* A head of a text: rows [n], and the global ones [from, to) among them. */
struct text {
    const struct job *j;
    size_t at; /* of its first number */
    size_t n, from, to;
    float *score; /* [GLOBALS_BLOCK][most] */
};

/* Some of a text's keys. */
struct keys {
    size_t first, n;
};

/* The global tokens of T, whose ids are IDS. */
static void find_globals(struct text *t, const int32_t *ids)
{
    const struct inst *inst = t->j->inst;
    size_t s = 0;

    while (s < t->n && ids[s] != inst->attention.separator)
        s++;
    t->from = t->to = 0;
    switch (inst->attention.global) {
    case GLOBAL_NONE:
        break;
    case GLOBAL_FIRST:
        t->to = 1;
        break;
    case GLOBAL_QUESTION:
        t->to = s < t->n ? s : 0;
        break;
    case GLOBAL_CHOICE:
        t->from = s + 2 < t->n ? s + 2 : t->n;
        t->to = t->n;
        break;
    }
}

/* The scores of the queries [ROW, ROW + ROWS) with the keys in PART[PARTS], side by
 * side. */
static void score(const struct text *t, size_t row, size_t rows, const float *q,
                  const float *k, const struct keys *part, int parts)
{
    size_t stride = t->j->stride, dim = t->j->inst->attention.head_dim, done = 0;

    for (int p = 0; p < parts; done += part[p++].n)
        if (part[p].n)
            cpu_dots(t->score + done, t->j->most, q + t->at + row * stride, stride,
                     rows, k + t->at + part[p].first * stride, stride, part[p].n, dim);
}

/* Their values, by the weights that the scores N have become. */
static void add_values(const struct text *t, size_t row, size_t rows, const float *v,
                       const struct keys *part, int parts)
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
    const struct keys all = { 0, t->n };

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
    size_t low = row > reach ? row - reach : 0;
    size_t high = t->n - row > rows + reach ? row + rows + reach : t->n;
    /* the global ones before the windows of these queries, the windows, those after */
    size_t before = t->to < low ? t->to : low, after = t->from > high ? t->from : high;
    struct keys part[] = { { t->from, before > t->from ? before - t->from : 0 },
                           { low, high - low },
                           { after, t->to > after ? t->to - after : 0 } };
    size_t n = part[0].n + part[1].n + part[2].n;

    score(t, row, rows, c->q, c->k, part, 3);
    for (size_t i = 0; i < rows; i++) {
        float *s = t->score + i * t->j->most, *window = s + part[0].n;
        size_t own = row + i;

        for (size_t k = low; k < high; k++) {
            size_t apart = k > own ? k - own : own - k;

            if (apart > reach && (k < t->from || k >= t->to))
                window[k - low] = -INFINITY;
        }
        cpu_softmax_row(s, n, (float)t->j->inst->attention.scale);
    }
    add_values(t, row, rows, c->v, part, 3);
}

/* Task: head TASK % heads of text TASK / heads. */
static void one_head(void *arg, size_t task, int thread)
{
    const struct job *j = arg;
    const struct cpu_globals *c = j->c;
    size_t heads = j->inst->attention.heads, text = task / heads;
    size_t first = (size_t)c->first[text];
    struct text t = {
        .j = j,
        .at = first * j->stride + task % heads * j->inst->attention.head_dim,
        .n = (text + 1 < c->ntexts ? (size_t)c->first[text + 1] : c->rows) - first,
        .score = j->room + (size_t)thread * GLOBALS_BLOCK * j->most
    };

    find_globals(&t, c->ids + first);
    for (size_t row = 0, end; row < t.n; row = end) {
        bool global = row >= t.from && row < t.to;

        end = row + GLOBALS_BLOCK < t.n ? row + GLOBALS_BLOCK : t.n;
        if (global)
            end = end < t.to ? end : t.to;
        else if (row < t.from)
            end = end < t.from ? end : t.from;
        (global ? see_all : see_window)(&t, row, end - row);
    }
}

int cpu_global_attention(struct device *d, const struct inst *inst,
                         const struct cpu_globals *c, struct err *err)
{
    struct job j = { .c = c, .inst = inst };

    j.stride = inst->attention.heads * inst->attention.head_dim;
    for (size_t i = 0; i < c->ntexts; i++) {
        size_t end = i + 1 < c->ntexts ? (size_t)c->first[i + 1] : c->rows;
        size_t n = end - (size_t)c->first[i];

        j.most = n > j.most ? n : j.most;
    }
    if (!inst->attention.heads || !j.most)
        return 0;
    j.room =
        cpu_take(d, (uint64_t)cpu_threads(d) * GLOBALS_BLOCK * j.most * sizeof(float),
                 "attention scores", err);
    if (!j.room)
        return -1;
    cpu_parallel(d, c->ntexts * inst->attention.heads, one_head, &j);
    cpu_give(d, j.room);
    return 0;
}
