/* gradient - the kernels of the reverse
 *
 * D is the gradient of the result of the reversed operation.  Gradients of weights are
 * added to their memory, so micro-batches accumulate in order.  The order of all sums
 * is independent of the number of threads. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"

enum {
    COLS = 64,      /* columns of a task */
    FEW = 16,       /* columns that are turned at a time */
    STEP = 1 << 14, /* elements of a task */
};

static size_t rows_of(const struct buffer *b)
{
    return (size_t)*b->rows;
}

static size_t blocks_of(size_t n, size_t block)
{
    return (n + block - 1) / block;
}

/* Elements FIRST (returned) to *end, of N, for task TASK. */
static size_t span(size_t task, size_t block, size_t n, size_t *end)
{
    size_t first = task * block;

    *end = n - first < block ? n : first + block;
    return first;
}

/* ---- products ---- */

/* cpu_outer, row after row, so that the bits of C depend neither on M nor on N: oneDNN
 * adds in another order at the edges of its tiles, on some CPUs. */
static void outer_in_order(float *c, size_t ldc, const float *a, size_t lda, size_t m,
                           const float *b, size_t ldb, size_t n, size_t rows)
{
    float turned[FEW][COLS];

    for (size_t t = 0; t < rows; t += COLS) {
        size_t some = rows - t < COLS ? rows - t : COLS;

        for (size_t i = 0; i < m; i += FEW) {
            size_t few = m - i < FEW ? m - i : FEW;

            for (size_t k = 0; k < some; k++)
                for (size_t r = 0; r < few; r++)
                    turned[r][k] = a[(t + k) * lda + i + r];
            cpu_add_weighted(c + i * ldc, ldc, turned[0], COLS, few, b + t * ldb, ldb,
                             n, some);
        }
    }
}

/* A product of HEADS matrices side by side, each of COLS_A by COLS_B. */
struct outer {
    float *y;
    const float *a, *b;
    size_t rows, heads, cols_a, cols_b, share; /* columns of a that are one task's */
    bool in_order;     /* ranks with parts of the columns have the same bits */
    atomic_bool *lost; /* a product failed */
};

static void outer_some(void *arg, size_t task, int thread)
{
    const struct outer *o = arg;
    size_t tasks = blocks_of(o->cols_a, o->share), head = task / tasks, end;
    size_t first = span(task % tasks, o->share, o->cols_a, &end), m = end - first;
    size_t lda = o->heads * o->cols_a, ldb = o->heads * o->cols_b, ldc = o->cols_b;
    float *c = o->y + (head * o->cols_a + first) * ldc;
    const float *a = o->a + head * o->cols_a + first, *b = o->b + head * o->cols_b;

    (void)thread;
    if (o->in_order)
        outer_in_order(c, ldc, a, lda, m, b, ldb, o->cols_b, o->rows);
    else if (!cpu_outer(c, ldc, a, lda, m, b, ldb, o->cols_b, o->rows))
        atomic_store(o->lost, true);
}

/* The share depends only on the sizes, and so does the order of the sums. */
static int run_outer(struct device *d, struct outer o, struct err *err)
{
    atomic_bool lost = false;

    if (!o.rows || !o.cols_a || !o.cols_b)
        return 0;
    o.lost = &lost;
    o.share = o.cols_a / 16 / COLS * COLS;
    o.share = o.share < COLS ? COLS : o.share > 4 * COLS ? 4 * COLS : o.share;
    cpu_parallel(d, o.heads * blocks_of(o.cols_a, o.share), outer_some, &o);
    return lost ? err_set(err, ERR_SYSTEM, CPU_OUTER_LOST) : 0;
}

int kernel_outer(struct device *d, const struct call *c, struct err *err)
{
    return run_outer(d,
                     (struct outer){ .y = c->y.data,
                                     .a = c->x[0].data,
                                     .b = c->x[1].data,
                                     .rows = rows_of(&c->x[0]),
                                     .heads = 1,
                                     .cols_a = c->w->rows,
                                     .cols_b = c->w->cols,
                                     .in_order = c->program->deterministic },
                     err);
}

int kernel_head_outer(struct device *d, const struct call *c, struct err *err)
{
    return run_outer(
        d,
        (struct outer){ .y = (float *)c->y.data + c->inst->head.row * c->w->cols,
                        .a = c->x[0].data,
                        .b = c->x[1].data,
                        .rows = rows_of(&c->x[0]),
                        .heads = c->inst->head.count,
                        .cols_a = c->inst->head.a,
                        .cols_b = c->inst->head.b,
                        .in_order = c->program->deterministic },
        err);
}

/* ---- tables and vectors ---- */

/* Sums over rows: a task adds up the rows of a block of columns in order. */
struct columns {
    const struct call *c;
    float *y;
    const float *d, *x;
    size_t rows, cols;
    const double *mean, *factor; /* of each group of width columns */
    size_t width, period;
};

static void add_embeddings(void *arg, size_t task, int thread)
{
    const struct columns *s = arg;
    const struct inst *inst = s->c->inst;
    const int32_t *index = s->c->step->index[inst->embedding.index];
    size_t end, first = span(task, COLS, s->cols, &end);

    (void)thread;
    for (size_t t = 0; t < s->rows; t++) {
        uint64_t row = (uint64_t)index[t] + inst->embedding.offset;

        if (row < inst->embedding.first || row - inst->embedding.first >= s->c->w->rows)
            continue;
        row -= inst->embedding.first;
        for (size_t k = first; k < end; k++)
            s->y[row * s->cols + k] += s->d[t * s->cols + k];
    }
}

int kernel_embedding_back(struct device *d, const struct call *c, struct err *err)
{
    struct columns s = { .c = c,
                         .y = c->y.data,
                         .d = c->x[0].data,
                         .rows = rows_of(&c->x[0]),
                         .cols = c->w->cols };

    (void)err;
    cpu_parallel(d, blocks_of(s.cols, COLS), add_embeddings, &s);
    return 0;
}

static void add_columns(void *arg, size_t task, int thread)
{
    const struct columns *s = arg;
    size_t end, first = span(task, COLS, s->cols, &end);
    double sum[COLS] = { 0 };

    (void)thread;
    for (size_t t = 0; t < s->rows; t++)
        for (size_t k = first; k < end; k++)
            sum[k - first] += (double)s->d[t * s->cols + k];
    for (size_t k = first; k < end; k++)
        s->y[k] += (float)sum[k - first];
}

int kernel_column_sum(struct device *d, const struct call *c, struct err *err)
{
    struct columns s = { .y = c->y.data, .d = c->x[0].data, .cols = c->w->cols };

    (void)err;
    if (s.cols) /* a vector may stand for every group of a row's columns */
        s.rows = rows_of(&c->x[0]) * (c->x[0].cols / s.cols);
    cpu_parallel(d, blocks_of(s.cols, COLS), add_columns, &s);
    return 0;
}

static void row_dot(void *arg, size_t task, int thread)
{
    const struct columns *s = arg;
    double sum = 0;

    (void)thread;
    for (size_t k = 0; k < s->cols; k++)
        sum += (double)s->d[task * s->cols + k] * (double)s->x[task * s->cols + k];
    s->y[task] = (float)sum;
}

int kernel_row_dot(struct device *d, const struct call *c, struct err *err)
{
    struct columns s = {
        .y = c->y.data, .d = c->x[0].data, .x = c->x[1].data, .cols = c->x[0].cols
    };

    (void)err;
    cpu_parallel(d, rows_of(&c->y), row_dot, &s);
    return 0;
}

/* ---- norms ---- */

/* Mean and factor of each group, as in the forward pass: from the sums over all ranks,
 * or if SQUARES is NULL from the columns of X.  One allocation, returned. */
static double *norm_statistics(struct device *d, const struct inst *inst,
                               const float *x, size_t groups, const double *squares,
                               const double *sum, double **factor, struct err *err)
{
    double whole = (double)inst->norm.whole_width;
    double *mean = mem_alloc((2 * groups + 1) * sizeof(*mean), "row statistics", err);

    if (!mean)
        return NULL;
    *factor = mean + groups;
    memset(mean, 0, groups * sizeof(*mean));
    if (squares) {
        for (size_t i = 0; i < groups && inst->norm.centred; i++)
            mean[i] = sum[i] / whole;
        memcpy(*factor, squares, groups * sizeof(*mean));
    } else {
        if (inst->norm.centred)
            cpu_group_sum(d, mean, x, inst->norm.width, NULL, groups, inst->norm.width);
        for (size_t i = 0; i < groups; i++)
            mean[i] /= whole;
        cpu_group_sum(d, *factor, x, inst->norm.width, mean, groups, inst->norm.width);
    }
    for (size_t i = 0; i < groups; i++)
        (*factor)[i] = 1 / sqrt((*factor)[i] / whole + inst->norm.eps);
    return mean;
}

struct norm {
    float *y;
    const float *d, *x, *w; /* w [period], or NULL: ones */
    double *mean, *factor;
    double *terms; /* [groups][2]: sums of a xh, and of a, where a = d (w + plus) */
    size_t width, period;
    double plus, whole;
    bool centred, corrects; /* this rank's columns are counted */
};

static double scaled(const struct norm *n, size_t at)
{
    return (double)n->d[at] * (n->w ? (double)n->w[at % n->period] + n->plus : 1);
}

static void norm_terms(void *arg, size_t task, int thread)
{
    const struct norm *n = arg;
    double by = 0, sum = 0;

    (void)thread;
    for (size_t i = 0; i < n->width; i++) {
        size_t at = task * n->width + i;
        double a = scaled(n, at);

        by += a * ((double)n->x[at] - n->mean[task]) * n->factor[task];
        sum += a;
    }
    n->terms[2 * task] = by;
    n->terms[2 * task + 1] = sum;
}

/* dx = r (a - [mean(a)] - xh mean(a xh)) */
static void norm_back(void *arg, size_t task, int thread)
{
    const struct norm *n = arg;
    double r = n->factor[task], by = 0, sum = 0;

    (void)thread;
    if (n->corrects) {
        by = n->terms[2 * task] / n->whole;
        sum = n->centred ? n->terms[2 * task + 1] / n->whole : 0;
    }
    for (size_t i = 0; i < n->width; i++) {
        size_t at = task * n->width + i;
        double xh = ((double)n->x[at] - n->mean[task]) * r;

        n->y[at] = (float)(r * (scaled(n, at) - sum - xh * by));
    }
}

/* Fills N for CALL's d and a; SQUARES and SUM are the sums over all ranks, or NULL. The
 * caller frees *wide and n->mean. */
static int open_norm(struct norm *n, struct device *d, const struct call *c,
                     size_t *groups, float **wide, const double *squares,
                     const double *sum, struct err *err)
{
    const struct inst *inst = c->inst;
    size_t rows = rows_of(&c->x[0]);

    *n = (struct norm){ .d = c->x[0].data,
                        .x = c->x[1].data,
                        .width = inst->norm.width,
                        .plus = inst->norm.plus_one,
                        .whole = (double)inst->norm.whole_width,
                        .centred = inst->norm.centred,
                        .corrects = inst->norm.owned };
    *wide = NULL;
    *groups = squares ? rows : rows * c->x[1].cols / inst->norm.width;
    n->mean = norm_statistics(d, inst, n->x, *groups, squares, sum, &n->factor, err);
    if (!n->mean)
        return -1;
    if (c->w) {
        n->period = c->w->cols;
        *wide = mem_alloc((n->period + 1) * sizeof(**wide), "a norm's weight", err);
        if (!*wide) {
            free(n->mean);
            return -1;
        }
        n->w = cpu_widen(c->w, 0, n->period, *wide);
    }
    return 0;
}

int kernel_norm_back(struct device *d, const struct call *c, struct err *err)
{
    struct norm n;
    size_t groups;
    float *wide;
    int ret = -1;

    if (open_norm(&n, d, c, &groups, &wide, NULL, NULL, err) < 0)
        return -1;
    n.y = c->y.data;
    n.terms = mem_alloc((2 * groups + 1) * sizeof(*n.terms), "row statistics", err);
    if (n.terms) {
        cpu_parallel(d, groups, norm_terms, &n);
        cpu_parallel(d, groups, norm_back, &n);
        ret = 0;
    }
    free(n.terms);
    free(n.mean);
    free(wide);
    return ret;
}

int kernel_norm_terms(struct device *d, const struct call *c, struct err *err)
{
    struct norm n;
    size_t groups;
    float *wide;

    if (open_norm(&n, d, c, &groups, &wide, c->x[2].data, c->x[3].data, err) < 0)
        return -1;
    n.terms = c->y.data;
    cpu_parallel(d, groups, norm_terms, &n);
    free(n.mean);
    free(wide);
    return 0;
}

int kernel_norm_apply_back(struct device *d, const struct call *c, struct err *err)
{
    struct norm n;
    size_t groups;
    float *wide;

    if (open_norm(&n, d, c, &groups, &wide, c->x[3].data, c->x[4].data, err) < 0)
        return -1;
    n.y = c->y.data;
    n.terms = c->x[2].data;
    cpu_parallel(d, groups, norm_back, &n);
    free(n.mean);
    free(wide);
    return 0;
}

/* Column k of the weight applies to columns k, k + period, ... of each row. */
static void add_normed(void *arg, size_t task, int thread)
{
    const struct columns *s = arg;
    size_t end, first = span(task, COLS, s->period, &end);
    double sum[COLS] = { 0 };

    (void)thread;
    for (size_t at = 0; at < s->rows * s->cols; at += s->period)
        for (size_t k = first; k < end; k++) {
            size_t group = (at + k) / s->width;

            sum[k - first] += (double)s->d[at + k] *
                              ((double)s->x[at + k] - s->mean[group]) *
                              s->factor[group];
        }
    for (size_t k = first; k < end; k++)
        s->y[k] += (float)sum[k - first];
}

int kernel_norm_weight(struct device *d, const struct call *c, struct err *err)
{
    struct norm n;
    size_t groups;
    struct columns s;
    float *wide;

    if (!c->w->cols)
        return 0;
    if (open_norm(&n, d, c, &groups, &wide, c->x[2].data, c->x[3].data, err) < 0)
        return -1;
    s = (struct columns){ .y = c->y.data,
                          .d = n.d,
                          .x = n.x,
                          .rows = rows_of(&c->x[0]),
                          .cols = c->x[1].cols,
                          .mean = n.mean,
                          .factor = n.factor,
                          .width = n.width,
                          .period = n.period };
    cpu_parallel(d, blocks_of(s.period, COLS), add_normed, &s);
    free(n.mean);
    free(wide);
    return 0;
}

/* ---- element by element ---- */

struct elements {
    float *y;
    const float *d, *x;
    size_t n;
    float number, least;
    enum activation act;
};

/* Of y = x s(u), u = x (slope + cube x^2), s the sigmoid:
 * s + x s (1 - s) (slope + 3 cube x^2). */
CPU_CLONES static void gate_back(float *y, const float *d, const float *x, size_t n,
                                 float slope, float cube)
{
    for (size_t i = 0; i < n; i += VEC) {
        size_t bytes = (n - i < VEC ? n - i : VEC) * sizeof(*x);
        vec v = { 0 }, g = { 0 }, e, s;

        memcpy(&v, x + i, bytes);
        memcpy(&g, d + i, bytes);
        e = -v * (slope + cube * v * v);
        vec_exp(&e, &e);
        s = 1.0f / (1.0f + e);
        g *= s + v * s * (e * s) * (slope + 3.0f * cube * v * v);
        memcpy(y + i, &g, bytes);
    }
}

static float slope_at(enum activation act, float x)
{
    float y;

    switch (act) {
    case ACT_GELU: /* the normal distribution of x, and x times its density */
        return 0.5f * (1 + erff(x * 0.70710678118654752f)) +
               x * 0.39894228040143268f * expf(-0.5f * x * x);
    case ACT_GELU_10:
        y = 0.5f * x * (1 + erff(x * 0.70710678118654752f));
        return y > 10 || y < -10 ? 0 : slope_at(ACT_GELU, x);
    case ACT_RELU:
        return x > 0 ? 1 : 0;
    case ACT_RELU2:
        return x > 0 ? 2 * x : 0;
    case ACT_RELU6:
        return x > 0 && x < 6 ? 1 : 0;
    case ACT_LEAKY_RELU:
        return x > 0 ? 1 : 0.01f;
    case ACT_MISH: /* softplus' is the sigmoid */
        y = tanhf(x > 20 ? x : log1pf(expf(x)));
        return y + x * (1 - y * y) / (1 + expf(-x));
    case ACT_LAPLACE: /* the density */
        y = (x - 0.707107f) / 0.282095f;
        return 0.39894228040143268f / 0.282095f * expf(-0.5f * y * y);
    case ACT_HARDSWISH:
        return x <= -3 ? 0 : x >= 3 ? 1 : (2 * x + 3) / 6;
    case ACT_SQRT_SOFTPLUS:
        y = sqrtf(x > 20 ? x : log1pf(expf(x)));
        return y > 0 ? 0.5f / y / (1 + expf(-x)) : 0;
    case ACT_TANH:
        y = tanhf(x);
        return 1 - y * y;
    case ACT_SIGMOID:
        y = 1 / (1 + expf(-x));
        return y * (1 - y);
    default:
        return 1;
    }
}

static void activation_back(float *y, const float *d, const float *x,
                            enum activation act, size_t n)
{
    static const float twice = 2 * 0.79788456080286536f; /* 2 sqrt(2 / pi) */

    switch (act) {
    case ACT_SILU:
        gate_back(y, d, x, n, 1, 0);
        return;
    case ACT_GELU_TANH:
    case ACT_GELU_NEW:
        gate_back(y, d, x, n, twice, twice * 0.044715f);
        return;
    case ACT_QUICK_GELU:
        gate_back(y, d, x, n, 1.702f, 0);
        return;
    default:
        for (size_t i = 0; i < n; i++)
            y[i] = d[i] * slope_at(act, x[i]);
    }
}

static void some_xielu(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t end, at = span(task, STEP, e->n, &end);

    (void)thread;
    for (size_t i = at; i < end; i++) {
        float x = e->x[i];

        e->y[i] = e->d[i] * (XIELU_LEAST +
                             (x > 0 ? 2 * e->number * x
                                    : e->least * (x < XIELU_NEAR ? expm1f(x) : -1.0f)));
    }
}

int kernel_xielu_back(struct device *d, const struct call *c, struct err *err)
{
    struct xielu slopes = cpu_xielu_slopes(c->w, c->w2);
    struct elements e = { .y = c->y.data,
                          .d = c->x[0].data,
                          .x = c->x[1].data,
                          .n = rows_of(&c->y) * c->y.cols,
                          .number = slopes.above,
                          .least = slopes.below };

    (void)err;
    cpu_parallel(d, blocks_of(e.n, STEP), some_xielu, &e);
    return 0;
}

/* The softplus of the weight has the sigmoid for its derivative. */
int kernel_xielu_weight(struct device *d, const struct call *c, struct err *err)
{
    const float *g = c->x[0].data, *x = c->x[1].data;
    size_t n = rows_of(&c->x[0]) * c->x[0].cols;
    bool above = c->inst->scalar != 0;
    double sum = 0;
    float wide, *y = c->y.data;

    (void)d;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i];

        if ((v > 0) == above)
            sum +=
                (double)g[i] * (above ? v * v : expm1(fmin(v, (double)XIELU_NEAR)) - v);
    }
    *y += (float)(sum / (1 + exp(-(double)*cpu_widen(c->w, 0, 1, &wide))));
    return 0;
}

static void some_activations(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t end, at = span(task, STEP, e->n, &end);

    (void)thread;
    activation_back(e->y + at, e->d + at, e->x + at, e->act, end - at);
}

static void some_caps(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t end, at = span(task, STEP, e->n, &end);

    (void)thread;
    for (size_t i = at; i < end; i++) {
        float t = tanhf(e->x[i] / e->number);

        e->y[i] = e->d[i] * (1 - t * t);
    }
}

/* The gradient passes at the bounds themselves, as in PyTorch. */
static void some_clips(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t end, at = span(task, STEP, e->n, &end);

    (void)thread;
    for (size_t i = at; i < end; i++)
        e->y[i] = e->x[i] > e->number || e->x[i] < e->least ? 0 : e->d[i];
}

static int run_elements(struct device *d, const struct call *c, cpu_task *run,
                        struct elements e)
{
    e.y = c->y.data;
    e.d = c->x[0].data;
    e.x = c->x[1].data;
    e.n = rows_of(&c->y) * c->y.cols;
    cpu_parallel(d, blocks_of(e.n, STEP), run, &e);
    return 0;
}

int kernel_activation_back(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    return run_elements(d, c, some_activations,
                        (struct elements){ .act = c->inst->act });
}

int kernel_softcap_back(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    return run_elements(d, c, some_caps,
                        (struct elements){ .number = (float)c->inst->scalar });
}

int kernel_clip_back(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    return run_elements(d, c, some_clips,
                        (struct elements){ .number = (float)c->inst->clip.most,
                                           .least = (float)c->inst->clip.least });
}

int kernel_softmax_back(struct device *d, const struct call *c, struct err *err)
{
    const float *g = c->x[0].data, *x = c->x[1].data;
    size_t cols = c->y.cols;
    float *y = c->y.data;

    (void)err;
    cpu_softmax(d, y, x, rows_of(&c->y), cols);
    for (size_t t = 0; t < rows_of(&c->y); t++, y += cols, g += cols) {
        double sum = 0;

        for (size_t k = 0; k < cols; k++)
            sum += (double)g[k] * (double)y[k];
        for (size_t k = 0; k < cols; k++)
            y[k] = (float)((double)y[k] * ((double)g[k] - sum));
    }
    return 0;
}

int kernel_rope_back(struct device *d, const struct call *c, struct err *err)
{
    const struct rope *r = &c->program->rope[c->inst->rope.table];
    size_t n = rows_of(&c->y) * r->dim;
    const float *angles = c->x[1].data;
    float *back = mem_alloc((n + 1) * sizeof(*back), "angles", err);

    if (!back)
        return -1;
    for (size_t i = 0; i < n; i++)
        back[i] = i % r->dim < r->dim / 2 ? angles[i] : -angles[i];
    cpu_rope(d, c->y.data, c->x[0].data, rows_of(&c->y), c->y.cols, c->inst->rope.head,
             r, back);
    free(back);
    return 0;
}

/* ---- experts ---- */

/* The choice is no function of the scores; a chosen one's weight is its score, or its
 * share of those chosen. */
/* Each choice's weight is a softmax over scores near it. */
static void near_back(float *y, const float *g, const float *x, const int32_t *choice,
                      size_t cols, const struct inst *inst)
{
    for (uint64_t i = 0; i < inst->route.top && choice[i] >= 0; i++) {
        double sum = cpu_route_softmax(inst, x, cols, choice, i);
        double d = (double)g[choice[i]] * inst->route.scale / sum;

        for (size_t k = 0; k < cols; k++)
            if (cpu_route_near(inst, x, choice, i, k))
                y[k] -= (float)(d * exp((double)(x[k] - x[choice[i]])) / sum);
        y[choice[i]] += (float)d;
    }
}

int kernel_route_back(struct device *d, const struct call *c, struct err *err)
{
    const float *g = c->x[0].data, *x = c->x[1].data;
    const int32_t *choice = c->x[2].data;
    size_t cols = c->y.cols, top = c->x[2].cols;
    float *y = c->y.data;

    (void)d;
    (void)err;
    memset(y, 0, rows_of(&c->y) * cols * sizeof(*y));
    for (size_t t = 0; t < rows_of(&c->y); t++, choice += top) {
        double sum = 1e-20, by = 0, factor = c->inst->route.scale;
        size_t at = t * cols;

        if (c->inst->route.near > 0) {
            near_back(y + at, g + at, x + at, choice, cols, c->inst);
            continue;
        }
        for (size_t i = 0; i < top && choice[i] >= 0; i++) {
            size_t k = at + (size_t)choice[i];

            sum += (double)x[k];
            by += (double)g[k] * (double)x[k];
        }
        if (c->inst->route.renorm)
            factor /= sum;
        for (size_t i = 0; i < top && choice[i] >= 0; i++) {
            size_t k = at + (size_t)choice[i];

            y[k] = (float)(factor *
                           ((double)g[k] - (c->inst->route.renorm ? by / sum : 0)));
        }
    }
    return 0;
}

/* The rows of expert E: FIRST (returned) to *end, counted over all rows sent. */
static size_t expert_span(const struct call *c, size_t e, size_t *end)
{
    const int32_t *counts = c->x[3].data;

    *end = (size_t)counts[e + 1];
    return (size_t)counts[e];
}

int kernel_expert_spread(struct device *d, const struct call *c, struct err *err)
{
    const struct mixture *m = &c->program->mixture[c->inst->mixture];
    const float *g = c->x[0].data, *r = c->x[1].data;
    const int32_t *index = c->x[2].data;
    size_t cols = c->y.cols, end;
    float *y = c->y.data;

    (void)d;
    (void)err;
    for (uint64_t e = 0; e < m->count; e++)
        for (size_t i = expert_span(c, e, &end); i < end; i++) {
            size_t t = (size_t)index[i];
            float by = r[t * c->x[1].cols + m->first + e];

            for (size_t k = 0; k < cols; k++)
                y[i * cols + k] = by * g[t * cols + k];
        }
    return 0;
}

int kernel_expert_dot(struct device *d, const struct call *c, struct err *err)
{
    const struct mixture *m = &c->program->mixture[c->inst->mixture];
    const float *g = c->x[0].data, *a = c->x[1].data;
    const int32_t *index = c->x[2].data;
    size_t cols = c->x[0].cols, end;
    float *y = c->y.data;

    (void)d;
    (void)err;
    memset(y, 0, rows_of(&c->y) * c->y.cols * sizeof(*y));
    for (uint64_t e = 0; e < m->count; e++)
        for (size_t i = expert_span(c, e, &end); i < end; i++) {
            size_t t = (size_t)index[i];
            double sum = 0;

            for (size_t k = 0; k < cols; k++)
                sum += (double)g[t * cols + k] * (double)a[i * cols + k];
            y[t * c->y.cols + m->first + e] = (float)sum;
        }
    return 0;
}

static void scatter_columns(void *arg, size_t task, int thread)
{
    const struct columns *s = arg;
    const int32_t *index = s->c->x[1].data;
    size_t end, first = span(task, COLS, s->cols, &end);

    (void)thread;
    for (size_t i = 0; i < s->rows; i++)
        for (size_t k = first; k < end; k++)
            s->y[(size_t)index[i] * s->cols + k] += s->d[i * s->cols + k];
}

int kernel_expert_scatter(struct device *d, const struct call *c, struct err *err)
{
    struct columns s = { .c = c,
                         .y = c->y.data,
                         .d = c->x[0].data,
                         .rows = rows_of(&c->x[0]),
                         .cols = c->y.cols };

    (void)err;
    memset(s.y, 0, rows_of(&c->y) * s.cols * sizeof(*s.y));
    cpu_parallel(d, blocks_of(s.cols, COLS), scatter_columns, &s);
    return 0;
}

/* ---- rows and columns ---- */

static void clear(const struct call *c)
{
    memset(c->y.data, 0, rows_of(&c->y) * c->y.cols * sizeof(float));
}

int kernel_segment_back(struct device *d, const struct call *c, struct err *err)
{
    size_t cols = c->x[0].cols;

    (void)d;
    (void)err;
    clear(c);
    for (size_t i = 0; i < rows_of(&c->y); i++)
        memcpy((float *)c->y.data + i * c->y.cols + c->inst->segment.first,
               (const float *)c->x[0].data + i * cols, cols * sizeof(float));
    return 0;
}

int kernel_first_back(struct device *d, const struct call *c, struct err *err)
{
    const int32_t *row = c->step->first;
    size_t cols = c->y.cols;

    (void)d;
    (void)err;
    clear(c);
    for (size_t i = 0; i < rows_of(&c->x[0]); i++)
        if (row[i] >= 0)
            memcpy((float *)c->y.data + (size_t)row[i] * cols,
                   (const float *)c->x[0].data + i * cols, cols * sizeof(float));
    return 0;
}

/* Runs of this rank's columns. */
static const struct runs *own_runs(const struct call *c)
{
    return &c->program->gather[c->inst->gather.gather].runs[c->program->coord[MESH_TP]];
}

int kernel_slice_owned(struct device *d, const struct call *c, struct err *err)
{
    const struct runs *runs = own_runs(c);
    const float *from = c->x[0].data;
    float *to = c->y.data;

    (void)d;
    (void)err;
    clear(c);
    for (size_t i = 0; i < rows_of(&c->y); i++, from += c->x[0].cols)
        for (size_t k = 0; k < runs->n; to += runs->v[k++].count)
            if (runs->v[k].owned)
                memcpy(to, from + runs->v[k].start, runs->v[k].count * sizeof(*to));
    return 0;
}

int kernel_unslice(struct device *d, const struct call *c, struct err *err)
{
    const struct runs *runs = own_runs(c);
    const float *from = c->x[0].data;
    float *to = c->y.data;

    (void)d;
    (void)err;
    clear(c);
    for (size_t i = 0; i < rows_of(&c->y); i++, to += c->y.cols)
        for (size_t k = 0; k < runs->n; from += runs->v[k++].count)
            memcpy(to + runs->v[k].start, from, runs->v[k].count * sizeof(*to));
    return 0;
}
