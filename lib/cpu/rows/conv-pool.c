/* conv-pool - operations that read the rows beside a token's own, in its text
 *
 * A row reads COUNT rows, itself in the middle; rows beyond the text are zeros. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"

struct job {
    const struct cpu_taps *c;
    const struct inst *inst;
    const float *w; /* [cols][taps], or NULL */
};

/* Rows of the text of ROW in the source, which has the result's rows: from *low to
 * before *end. */
static void text_of(const struct cpu_taps *c, size_t row, size_t *low, size_t *end)
{
    *low = cpu_text(&c->from, cpu_text_at(&c->from, row), end);
    *end += *low;
}

static void shift_row(void *arg, size_t row, int thread)
{
    const struct job *j = arg;
    const struct cpu_taps *c = j->c;
    int64_t from = (int64_t)row + j->inst->shift;
    size_t low, end;

    (void)thread;
    text_of(c, row, &low, &end);
    if (from < (int64_t)low || from >= (int64_t)end)
        memset(c->y + row * c->cols, 0, c->cols * sizeof(*c->y));
    else
        memcpy(c->y + row * c->cols, c->x + (size_t)from * c->cols,
               c->cols * sizeof(*c->y));
}

void cpu_shift(struct device *d, const struct inst *inst, const struct cpu_taps *c)
{
    struct job j = { .c = c, .inst = inst };

    cpu_parallel(d, c->to.rows, shift_row, &j);
}

/* Row I of a text of N rows in X, of which MADE are made: of two neighbours among its
 * rows, the first of which comes twice if it is apart. */
static void pool_row(const struct job *j, float *y, const float *x, size_t i, size_t n,
                     size_t made)
{
    const struct pooled_text *p = &j->inst->pool.at;
    size_t all = n + (p->apart && !p->cut), from = 2 * i, pair, cols = j->c->cols;

    if (made == n) { /* too few to pool */
        memcpy(y, x + i * cols, cols * sizeof(*y));
        return;
    }
    pair = from + 1 < all ? from + 1 : from;
    from -= p->apart && from;
    pair -= p->apart && pair;
    for (size_t k = 0; k < cols; k++) {
        float a = x[from * cols + k], b = x[pair * cols + k];

        y[k] = !j->inst->pool.most ? (a + b) / 2 : a > b ? a : b;
    }
}

static void pool_text_row(void *arg, size_t row, int thread)
{
    const struct job *j = arg;
    const struct cpu_taps *c = j->c;
    const struct pooled_text *p = &j->inst->pool.at;
    size_t text = cpu_text_at(&c->to, row), made, n, i, from;
    float *y = c->y + row * c->cols;
    const float *x;

    (void)thread;
    i = row - cpu_text(&c->to, text, &made);
    x = c->x + cpu_text(&c->from, text, &n) * c->cols;
    if (j->inst->op == OP_POOL) {
        pool_row(j, y, x, i, n, made);
        return;
    }
    from = !p->apart ? i >> p->times : i ? 1 + ((i - 1) >> p->times) : 0;
    if (from < n)
        memcpy(y, x + from * c->cols, c->cols * sizeof(*y));
    else
        memset(y, 0, c->cols * sizeof(*y));
}

void cpu_pool(struct device *d, const struct inst *inst, const struct cpu_taps *c)
{
    struct job j = { .c = c, .inst = inst };

    cpu_parallel(d, c->to.rows, pool_text_row, &j);
}

/* y[i] = the sum of the rows of block I of the text, the last of which has all that are
 * left. */
static void sum_block(void *arg, size_t row, int thread)
{
    const struct job *j = arg;
    const struct cpu_taps *c = j->c;
    size_t text = cpu_text_at(&c->to, row), by = (size_t)j->inst->block, made, n, i;
    float *y = c->y + row * c->cols;
    const float *x;

    (void)thread;
    i = row - cpu_text(&c->to, text, &made);
    x = c->x + cpu_text(&c->from, text, &n) * c->cols;
    memset(y, 0, c->cols * sizeof(*y));
    for (size_t at = i * by; at < (i + 1 < made ? (i + 1) * by : n); at++)
        for (size_t k = 0; k < c->cols; k++)
            y[k] += x[at * c->cols + k];
}

void cpu_block_sum(struct device *d, const struct inst *inst, const struct cpu_taps *c)
{
    struct job j = { .c = c, .inst = inst };

    cpu_parallel(d, c->to.rows, sum_block, &j);
}

/* y[t][c][k] = x[t stride + k - before][c], 0 beyond the text. */
static void unfold_row(void *arg, size_t row, int thread)
{
    const struct job *j = arg;
    const struct cpu_taps *c = j->c;
    size_t text = cpu_text_at(&c->to, row), reach = j->inst->unfold.reach, made, n;
    size_t at = (row - cpu_text(&c->to, text, &made)) * j->inst->unfold.stride;
    const float *x = c->x + cpu_text(&c->from, text, &n) * c->cols;
    float *y = c->y + row * c->cols * reach;

    (void)thread;
    for (size_t k = 0; k < reach; k++) {
        size_t before = j->inst->unfold.before, from = at + k - before;
        bool inside = at + k >= before && from < n;

        for (size_t i = 0; i < c->cols; i++)
            y[i * reach + k] = inside ? x[from * c->cols + i] : 0;
    }
}

void cpu_unfold(struct device *d, const struct inst *inst, const struct cpu_taps *c)
{
    struct job j = { .c = c, .inst = inst };

    cpu_parallel(d, c->to.rows, unfold_row, &j);
}

/* The taps of ROW within its text: from *first to before *last; *x is the row that the
 * first of them reads. */
static void taps_of(const struct job *j, size_t row, size_t *first, size_t *last,
                    const float **x)
{
    size_t half = j->inst->taps.count / 2, low, end;

    text_of(j->c, row, &low, &end);
    *first = row - low < half ? half - (row - low) : 0;
    *last = end - row <= half ? half + (end - row) : j->inst->taps.count;
    *x = j->c->x + (row + *first - half) * j->c->cols;
}

static void convolve_row(void *arg, size_t row, int thread)
{
    const struct job *j = arg;
    size_t cols = j->c->cols, first, last;
    float *y = j->c->y + row * cols;
    const float *x;

    (void)thread;
    taps_of(j, row, &first, &last, &x);
    memset(y, 0, cols * sizeof(*y));
    for (size_t k = first; k < last; k++, x += cols)
        for (size_t i = 0; i < cols; i++)
            y[i] += j->w[i * j->inst->taps.count + k] * x[i];
}

int cpu_convolve(struct device *d, const struct inst *inst, const struct cpu_taps *c,
                 struct err *err)
{
    struct job j = { .c = c, .inst = inst };
    size_t n = c->cols * inst->taps.count;
    float *w = cpu_take(d, (n + 1) * sizeof(*w), "taps of columns", err);

    if (!w)
        return -1;
    j.w = cpu_widen(c->w, 0, n, w);
    cpu_parallel(d, c->to.rows, convolve_row, &j);
    cpu_give(d, w);
    return 0;
}

/* The factors of a row's taps: the softmax of its scores. */
struct softmax {
    float most;
    double sum;
};

static struct softmax softmax_of(const float *s, size_t n)
{
    struct softmax m = { .most = -INFINITY };

    for (size_t k = 0; k < n; k++)
        m.most = s[k] > m.most ? s[k] : m.most;
    for (size_t k = 0; k < n; k++)
        m.sum += (double)expf(s[k] - m.most);
    return m;
}

static void dynamic_row(void *arg, size_t row, int thread)
{
    const struct job *j = arg;
    size_t cols = j->c->cols, taps = j->inst->taps.count, dim = j->inst->taps.dim;
    float *y = j->c->y + row * cols;
    size_t first, last;
    const float *x;

    (void)thread;
    taps_of(j, row, &first, &last, &x);
    memset(y, 0, cols * sizeof(*y));
    for (size_t h = 0; h < j->inst->taps.heads; h++) {
        const float *s = j->c->scores + (row * j->inst->taps.heads + h) * taps;
        struct softmax m = softmax_of(s, taps);

        for (size_t k = first; k < last; k++) {
            float by = (float)((double)expf(s[k] - m.most) / m.sum);

            for (size_t i = h * dim; i < (h + 1) * dim; i++)
                y[i] += by * x[(k - first) * cols + i];
        }
    }
}

void cpu_dynamic(struct device *d, const struct inst *inst, const struct cpu_taps *c)
{
    struct job j = { .c = c, .inst = inst };

    cpu_parallel(d, c->to.rows, dynamic_row, &j);
}
