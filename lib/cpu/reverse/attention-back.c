/* attention-back - gradients of attention
 *
 * Weights are computed again, block by block of queries.  Where STEP says what the
 * attention over more keys than these gave (whole_lse, whole_y), the weights are parts
 * of those, and what these keys contribute is added to y. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/attention/attention.h"

/* Shared by all threads in the backward pass. */
struct back {
    struct attention_job j; /* y receives the gradients */
    const float *d;
    size_t d_stride;
    float *lse;     /* [rows][heads] */
    float *weights; /* [threads][2][BLOCK][keys]: weights, and their gradients */
    float *own;     /* [heads][keys][dim + value_dim]: a head's contribution to the
                     * gradients of k and v */
    size_t k_at, v_at, sink_at; /* columns of y: gradients of k, v and the sinks */
    size_t bias_at, bias_cols;  /* and of the table of biases, [buckets][bias_cols];
                                 * bias_cols 0: there are none */
    int32_t *bucket;            /* [distances], from j.least on */
    bool queries, keys;         /* which gradients there are */
    bool adds;                  /* the keys are some of all */
    atomic_bool *lost;          /* a product failed */
};

/* Replaces the gradients DS of the weights P by the gradients of the scaled products:
 * ds = p (dp - sum of p dp), times the derivative of the cap, if any (the score is log
 * p + LSE); the sum is ALL, if that is not NULL.  Returns the sum over these keys. */
static double weights_back(const struct back *b, float *ds, const float *p, size_t n,
                           float lse, const double *all)
{
    float cap = (float)b->j.inst->attention.softcap;
    float scale = (float)b->j.inst->attention.scale;
    double delta = 0;

    double whole;

    for (size_t k = 0; k < n; k++)
        delta += (double)p[k] * (double)ds[k];
    whole = all ? *all : delta;
    for (size_t k = 0; k < n; k++) {
        float s = cap > 0 && p[k] > 0 ? (logf(p[k]) + lse) / cap : 0;

        ds[k] = scale * p[k] * (float)((double)ds[k] - whole) * (1 - s * s);
    }
    return delta;
}

/* The gradients of the table's column for HEAD: those of the N scores DS of query ROW,
 * times the scale, of the keys from LOW on. */
static void add_buckets(const struct back *b, size_t row, size_t head, const float *ds,
                        size_t low, size_t n)
{
    const struct attention_job *j = &b->j;
    const float by = 1 / (float)j->inst->attention.scale;
    const int32_t *bucket = b->bucket + ((int64_t)(j->step->first_key + low) -
                                         (int64_t)(j->step->start + row) - j->least);
    float *y =
        j->y + row * j->y_stride + b->bias_at + j->inst->attention.bias_first + head;

    for (size_t k = 0; k < n; k++)
        y[(size_t)bucket[k] * b->bias_cols] += by * ds[k];
}

/* The weights P of N of the keys of query ROW, of which they are all, become parts of
 * those over all keys; returns the sum of p dp over these: that of y dy. */
static double share_weights(const struct back *b, size_t row, size_t head, float *p,
                            size_t n)
{
    const struct inst *inst = b->j.inst;
    const size_t dim = inst->attention.value_dim,
                 at = row * inst->attention.heads + head;
    const float *d = b->d + row * b->d_stride + head * dim;
    const float *y = b->j.step->whole_y + row * b->d_stride + head * dim;
    const float whole = b->j.step->whole_lse[at];
    const float by = b->lse[at] > -INFINITY ? expf(b->lse[at] - whole) : 0;
    double sum = 0;

    for (size_t k = 0; k < n; k++)
        p[k] *= by;
    for (size_t k = 0; k < dim; k++)
        sum += (double)d[k] * (double)y[k];
    b->lse[at] = whole;
    return sum;
}

/* Task: one head, block by block of queries. */
static void head_back(void *arg, size_t head, int thread)
{
    const struct back *b = arg;
    const struct attention_job *j = &b->j;
    size_t dim = j->inst->attention.head_dim, value_dim = j->inst->attention.value_dim;
    size_t keys = j->step->keys, both = dim + value_dim;
    size_t kv = head / (j->inst->attention.heads / j->inst->attention.kv_heads);
    float *p = b->weights + (size_t)thread * 2 * BLOCK * keys, *ds = p + BLOCK * keys;
    float *own = b->keys ? b->own + head * keys * both : NULL;

    if (own)
        memset(own, 0, keys * both * sizeof(*own));
    for (size_t row = 0; row < j->step->rows; row += BLOCK) {
        size_t left = j->step->rows - row, rows = left < BLOCK ? left : BLOCK;
        size_t low = 0, n = prefill_weigh(j, row, rows, head, kv, p, thread, &low);
        const float *k = j->step->k + low * j->k_stride + kv * dim;
        const float *v =
            j->step->v + low * j->v_stride + kv * j->inst->attention.value_cols;
        const float *q = j->q + row * j->q_stride + head * dim;
        const float *d = b->d + row * b->d_stride + head * value_dim;
        float *dq = b->queries ? j->y + row * j->y_stride + head * dim : NULL;

        for (size_t i = 0; i < rows && dq && !b->adds; i++)
            memset(dq + i * j->y_stride, 0, dim * sizeof(*dq));
        for (size_t i = 0; i < rows && j->sink && dq && !b->adds; i++)
            j->y[(row + i) * j->y_stride + b->sink_at + head] = 0;
        if (!n)
            continue;
        cpu_dots(ds, n, d, b->d_stride, rows, v, j->v_stride, n, value_dim);
        attention_drop(j, row, rows, head, ds, low, n);
        for (size_t i = 0; i < rows; i++) {
            double all = b->adds ? share_weights(b, row + i, head, p + i * n, n) : 0;
            float lse = b->lse[(row + i) * j->inst->attention.heads + head];
            double delta =
                weights_back(b, ds + i * n, p + i * n, n, lse, b->adds ? &all : NULL);

            if (j->sink && dq) /* the sink's value vector is 0 */
                j->y[(row + i) * j->y_stride + b->sink_at + head] +=
                    -expf(j->sink[head] - lse) * (float)delta;
            if (b->bias_cols)
                add_buckets(b, row + i, head, ds + i * n, low, n);
        }
        if (dq)
            cpu_add_weighted(dq, j->y_stride, ds, n, rows, k, j->k_stride, dim, n);
        if (!b->keys)
            continue;
        own += low * both;
        if (!cpu_outer(own, both, ds, n, n, q, j->q_stride, dim, rows))
            atomic_store(b->lost, true);
        attention_drop(j, row, rows, head, p, low, n);
        if (!cpu_outer(own + dim, both, p, n, n, d, b->d_stride, value_dim, rows))
            atomic_store(b->lost, true);
        own -= low * both;
    }
}

CPU_CLONES static void add_scaled(float *y, const float *x, float f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += f * x[i];
}

/* Task: one row of the gradients of k and v; adds each group's heads in order. */
static void add_heads(void *arg, size_t row, int thread)
{
    const struct back *b = arg;
    const struct inst *inst = b->j.inst;
    size_t dim = inst->attention.head_dim, value_dim = inst->attention.value_dim;
    size_t per = inst->attention.heads / inst->attention.kv_heads;
    float *y = b->j.y + row * b->j.y_stride;

    (void)thread;
    if (!b->adds) {
        memset(y + b->k_at, 0, b->j.k_stride * sizeof(*y));
        memset(y + b->v_at, 0, b->j.v_stride * sizeof(*y));
    }
    for (size_t h = 0; h < inst->attention.heads; h++) {
        const float *own = b->own + (h * b->j.step->keys + row) * (dim + value_dim);

        add_scaled(y + b->k_at + h / per * dim, own, 1, dim);
        add_scaled(y + b->v_at + h / per * inst->attention.value_cols, own + dim, 1,
                   value_dim);
    }
}

/* Finds the bucket of each distance, and clears the gradients of the table. */
static int open_buckets(struct back *b, struct device *d, struct err *err)
{
    const struct attention_job *j = &b->j;
    const struct matrix *m = j->step->bias;

    b->bias_cols = m->cols;
    b->bucket = cpu_take(d, j->distances * sizeof(*b->bucket), "attention biases", err);
    if (!b->bucket)
        return -1;
    for (size_t i = 0; i < j->distances; i++)
        b->bucket[i] = (int32_t)positions_bucket(j->least + (int64_t)i, m->rows,
                                                 j->inst->attention.far,
                                                 !j->inst->attention.causal);
    for (size_t i = 0; i < j->step->rows && !b->adds; i++)
        memset(j->y + i * j->y_stride + b->bias_at, 0,
               m->rows * m->cols * sizeof(*j->y));
    return 0;
}

int cpu_attention_back(struct device *dev, float *y, size_t stride, const float *d,
                       const float *q, const struct inst *inst,
                       const struct attention_step *step, struct err *err)
{
    size_t heads = inst->attention.heads, kv_heads = inst->attention.kv_heads;
    size_t both = inst->attention.head_dim + inst->attention.value_dim;
    struct attention_step own = *step;
    atomic_bool lost = false;
    struct back b = { .j = { .inst = inst,
                             .step = &own,
                             .q = q,
                             .y = y,
                             .q_stride = heads * inst->attention.head_dim,
                             .k_stride = kv_heads * inst->attention.head_dim,
                             .v_stride = kv_heads * inst->attention.value_cols,
                             .y_stride = stride,
                             .block = BLOCK },
                      .d = d,
                      .d_stride = heads * inst->attention.value_dim,
                      .queries = inst->attention.gradients != GRADIENTS_KEYS,
                      .keys = inst->attention.gradients != GRADIENTS_QUERIES,
                      .adds = step->whole_lse != NULL,
                      .lost = &lost };
    int ret = -1;

    if (!heads || !step->rows)
        return 0;
    b.k_at = b.queries ? b.j.q_stride : 0;
    b.v_at = b.k_at + b.j.k_stride;
    b.sink_at = b.bias_at = b.keys ? b.v_at + b.j.v_stride : b.j.q_stride;
    b.lse = cpu_take(dev, step->rows * heads * sizeof(float), "attention scores", err);
    b.weights = cpu_take(
        dev, (uint64_t)cpu_threads(dev) * 2 * BLOCK * step->keys * sizeof(float),
        "attention scores", err);
    if (b.keys)
        b.own = cpu_take(dev, heads * step->keys * both * sizeof(float),
                         "gradients of keys", err);
    if (!b.lse || !b.weights || (b.keys && !b.own) ||
        attention_open_runs(&b.j, dev, err) < 0 ||
        (step->sinks && bias_open_sinks(&b.j, dev, err) < 0) ||
        (step->bias && bias_open(&b.j, dev, err) < 0) ||
        (step->bias && stride > b.bias_at && b.queries &&
         open_buckets(&b, dev, err) < 0))
        goto out;
    own.lse = b.lse;
    cpu_parallel(dev, heads, head_back, &b);
    if (b.keys)
        cpu_parallel(dev, step->keys, add_heads, &b);
    ret = lost ? err_set(err, ERR_SYSTEM, CPU_OUTER_LOST) : 0;
out:
    cpu_give(dev, b.j.run);
    cpu_give(dev, b.j.sink);
    cpu_give(dev, b.j.bias);
    cpu_give(dev, b.bucket);
    cpu_give(dev, b.lse);
    cpu_give(dev, b.weights);
    cpu_give(dev, b.own);
    return ret;
}
