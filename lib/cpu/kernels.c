/* kernels - the CPU's kernel of each row of the table of operations */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"

/* ---- buffers ---- */

static size_t rows_of(const struct buffer *b)
{
    return (size_t)*b->rows;
}

/* Elements. */
static size_t count_of(const struct buffer *b)
{
    return rows_of(b) * b->cols;
}

static float *result(const struct call *c)
{
    return c->y.data;
}

static const float *source(const struct call *c, int k)
{
    return c->x[k].data;
}

static bool is_bf16(const struct buffer *b)
{
    return b->format == FORMAT_BF16;
}

/* Bytes of a row of B, which is no cache. */
static size_t row_bytes(const struct buffer *b)
{
    return b->cols * (size_t)format_bits(b->format) / 8;
}

/* ---- products and elementwise operations ---- */

static int kernel_embedding(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_embedding(d, result(c), c->w, cpu_index_of(c), rows_of(&c->y),
                  c->inst->embedding.offset, c->inst->embedding.first);
    return 0;
}

/* Tree NUMBER of the program. */
static const struct sum_tree *tree_of(const struct call *c, int number)
{
    return number ? &c->program->tree[number - 1] : NULL;
}

/* May the number of rows change a row's rounding? */
static bool is_loose(const struct call *c)
{
    return c->program->rounded && !c->program->deterministic;
}

static int kernel_linear(struct device *d, const struct call *c, struct err *err)
{
    const bool loose = is_loose(c);
    const enum format type = c->x[0].format;

    if (cpu_has_codes(c->w) && c->inst->back) {
        cpu_codes_back(d, result(c), source(c, 0), rows_of(&c->y), c->w);
        return 0;
    }
    if (loose && cpu_has_amx_rows(rows_of(&c->y), c->w))
        return cpu_amx_rows(d, result(c), c->x[0].data, type, rows_of(&c->y), c->w,
                            err);
    if (loose && cpu_has_transposed_linear(rows_of(&c->y), c->w))
        return cpu_transposed_linear(d, result(c), c->x[0].data, type, rows_of(&c->y),
                                     c->w, err);
    if (loose && cpu_has_codes_bf16dot(rows_of(&c->y), c->w))
        return cpu_codes_bf16dot(d, result(c), source(c, 0), rows_of(&c->y), c->w,
                                 tree_of(c, c->inst->tree), err);
    if (cpu_has_codes(c->w))
        return (loose ? cpu_codes_rounded
                      : cpu_codes_linear)(d, result(c), source(c, 0), rows_of(&c->y),
                                          c->w, tree_of(c, c->inst->tree), err);
    if (c->program->half && c->w->format == FORMAT_F16)
        return cpu_linear_half(d, result(c), source(c, 0), rows_of(&c->y), c->w,
                               tree_of(c, c->inst->tree), err);
    if (c->program->rounded)
        return cpu_linear_rounded(d, result(c), c->x[0].data, type, rows_of(&c->y),
                                  c->w, tree_of(c, c->inst->tree), err);
    return cpu_linear(d, result(c), source(c, 0), rows_of(&c->y), c->w,
                      tree_of(c, c->inst->tree), err);
}

static int kernel_matmul(struct device *d, const struct call *c, struct err *err)
{
    if (cpu_has_codes(c->w)) /* its rows are outputs, as those of linear */
        return kernel_linear(d, c, err);
    if (is_loose(c) && cpu_has_transposed_matmul(rows_of(&c->y), c->w))
        return cpu_transposed_matmul(d, result(c), source(c, 0), rows_of(&c->y), c->w,
                                     err);
    return (c->program->half && c->w->format == FORMAT_F16
                ? cpu_matmul_half
                : cpu_matmul)(d, result(c), source(c, 0), rows_of(&c->y), c->w,
                              tree_of(c, c->inst->tree), err);
}

static int kernel_head_linear(struct device *d, const struct call *c, struct err *err)
{
    return cpu_head_product(d, result(c), source(c, 0), rows_of(&c->y), c->inst, false,
                            c->w, err);
}

static int kernel_head_matmul(struct device *d, const struct call *c, struct err *err)
{
    return cpu_head_product(d, result(c), source(c, 0), rows_of(&c->y), c->inst, true,
                            c->w, err);
}

static int kernel_add(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_add(d, result(c), source(c, 0), source(c, 1), count_of(&c->y));
    return 0;
}

static int kernel_mul(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    if (is_bf16(&c->y))
        cpu_mul_bf16(d, c->y.data, source(c, 0), source(c, 1), count_of(&c->y));
    else
        cpu_mul(d, result(c), source(c, 0), source(c, 1), count_of(&c->y));
    return 0;
}

static int kernel_add_vector(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_add_vector(d, result(c), source(c, 0), c->w, rows_of(&c->y));
    return 0;
}

static int kernel_mul_vector(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_mul_vector(d, result(c), source(c, 0), c->w, rows_of(&c->y));
    return 0;
}

static int kernel_xielu(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_xielu(d, result(c), source(c, 0), cpu_xielu_slopes(c->w, c->w2),
              count_of(&c->y));
    return 0;
}

static int kernel_scale(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_scale(d, result(c), source(c, 0), c->inst->scalar, count_of(&c->y));
    return 0;
}

static int kernel_mul_rows(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_mul_rows(d, result(c), source(c, 0), source(c, 1) + c->inst->column,
                 c->x[1].cols, rows_of(&c->y), c->y.cols);
    return 0;
}

static int kernel_activation(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    if (is_bf16(&c->y))
        cpu_activation_bf16(d, c->y.data, source(c, 0), c->inst->act, count_of(&c->y));
    else
        cpu_activation(d, result(c), source(c, 0), c->inst->act, count_of(&c->y));
    return 0;
}

static int kernel_softmax(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_softmax(d, result(c), source(c, 0), rows_of(&c->y), c->y.cols);
    return 0;
}

static int kernel_softcap(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_softcap(d, result(c), source(c, 0), c->inst->scalar, count_of(&c->y));
    return 0;
}

static int kernel_clip(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_clip(d, result(c), source(c, 0), c->inst->clip.least, c->inst->clip.most,
             count_of(&c->y));
    return 0;
}

/* By what the rows of value V drop. */
static const uint64_t *tokens_of(const struct call *c, int v)
{
    return c->step->token[c->program->value[v].rows];
}

static int kernel_dropout(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_dropout(d, result(c), source(c, 0), rows_of(&c->y), c->y.cols, c->inst,
                c->inst->drop.gather < 0 ? NULL
                                         : &c->program->gather[c->inst->drop.gather]
                                                .runs[c->program->coord[MESH_TP]],
                tokens_of(c, c->inst->src[0]), *c->step->seed);
    return 0;
}

/* ---- norms ---- */

/* Takes *mean and *factor, [groups] each; returns what is to be given back. */
static double *statistics(struct device *d, size_t groups, double **mean,
                          double **factor, struct err *err)
{
    double *all = cpu_take(d, (2 * groups + 1) * sizeof(*all), "row statistics", err);

    *mean = all;
    *factor = all ? all + groups : NULL;
    return all;
}

static double factor_of(const struct inst *inst, double squares)
{
    return 1 / sqrt(squares / (double)inst->norm.whole_width + inst->norm.eps);
}

static int norm(struct device *d, const struct call *c, bool centred, struct err *err)
{
    size_t width = c->inst->norm.width, groups = count_of(&c->y) / width;
    double *mean, *factor, *all = statistics(d, groups, &mean, &factor, err);

    if (!all)
        return -1;
    memset(mean, 0, groups * sizeof(*mean));
    if (centred) {
        cpu_group_sum(d, mean, source(c, 0), width, NULL, groups, width);
        for (size_t i = 0; i < groups; i++)
            mean[i] /= (double)width;
    }
    cpu_group_sum(d, factor, source(c, 0), width, mean, groups, width);
    for (size_t i = 0; i < groups; i++)
        factor[i] = factor_of(c->inst, factor[i]);
    cpu_group_scale(d, c->y.data, c->y.format, source(c, 0), centred ? mean : NULL,
                    factor, groups, width, c->w, c->inst->norm.plus_one, c->w2);
    cpu_give(d, all);
    return 0;
}

static int kernel_rmsnorm(struct device *d, const struct call *c, struct err *err)
{
    return norm(d, c, false, err);
}

static int kernel_layernorm(struct device *d, const struct call *c, struct err *err)
{
    return norm(d, c, true, err);
}

/* sum[row] = sum over the N columns of X from FIRST on. */
static void sum_columns(struct device *d, const struct call *c, double *sum,
                        const double *mean, size_t first, size_t n)
{
    cpu_group_sum(d, sum, source(c, 0) + first, c->inst->norm.width, mean,
                  rows_of(&c->y), n);
}

/* Sums the leaves of a tree, then adds the sums in the order that it fixes. */
static int sum_by_tree(struct device *d, const struct call *c, const double *mean,
                       const struct sum_tree *t, struct err *err)
{
    size_t rows = rows_of(&c->y), first = 0, sums = 0;
    double *sum =
        cpu_take(d, (uint64_t)rows * TREE_LEAVES * sizeof(*sum), "row statistics", err);

    if (!sum)
        return -1;
    for (int i = 0; i < t->n; i++) {
        sum_columns(d, c, sum + sums++ * rows, mean, first, t->leaf[i].cols);
        first += t->leaf[i].cols;
        for (int k = 0; k < t->leaf[i].adds; k++, sums--)
            for (size_t r = 0; r < rows; r++)
                sum[(sums - 2) * rows + r] += sum[(sums - 1) * rows + r];
    }
    memcpy(c->y.data, sum, rows * sizeof(*sum));
    cpu_give(d, sum);
    return 0;
}

/* Sums over the columns of each row, of squares of differences if MEAN is given.  A
 * rank without columns, or with replicas only, adds nothing. */
static int sum_rows(struct device *d, const struct call *c, const double *mean,
                    struct err *err)
{
    const struct sum_tree *t = tree_of(c, c->inst->norm.tree);
    size_t width = c->inst->norm.width;

    if (!c->inst->norm.owned || !width)
        memset(c->y.data, 0, rows_of(&c->y) * sizeof(double));
    else if (t)
        return sum_by_tree(d, c, mean, t, err);
    else
        sum_columns(d, c, c->y.data, mean, 0, width);
    return 0;
}

static int kernel_row_sum(struct device *d, const struct call *c, struct err *err)
{
    return sum_rows(d, c, NULL, err);
}

/* The sums of squares of groups of columns, of which this rank has some, or a part of
 * one; others are 0. */
static int group_squares(struct device *d, const struct call *c, struct err *err)
{
    size_t rows = rows_of(&c->y), width = c->inst->norm.width,
           own = width ? c->x[0].cols / width : 0, all = c->inst->norm.groups;
    double *mean, *sum, *to = c->y.data,
                        *room = statistics(d, rows * own, &mean, &sum, err);

    if (!room)
        return -1;
    memset(mean, 0, rows * own * sizeof(*mean));
    memset(to, 0, rows * all * sizeof(*to));
    cpu_group_sum(d, sum, source(c, 0), width, mean, rows * own, width);
    for (size_t i = 0; i < rows * own; i++)
        to[i / own * all + c->inst->norm.first + i % own] = sum[i];
    cpu_give(d, room);
    return 0;
}

static int kernel_row_squares(struct device *d, const struct call *c, struct err *err)
{
    size_t rows = rows_of(&c->y);
    const double *sum = c->x[1].data;
    double *mean, *factor, *all = statistics(d, rows, &mean, &factor, err);
    int ret;

    if (!all)
        return -1;
    if (c->inst->norm.groups) {
        cpu_give(d, all);
        return group_squares(d, c, err);
    }
    for (size_t i = 0; i < rows; i++)
        mean[i] = sum ? sum[i] / (double)c->inst->norm.whole_width : 0;
    ret = sum_rows(d, c, mean, err);
    cpu_give(d, all);
    return ret;
}

/* SUM NULL: RMS norm, without a mean. */
static int apply_norm(struct device *d, const struct call *c, const double *squares,
                      const double *sum, struct err *err)
{
    size_t rows = rows_of(&c->y), width = c->inst->norm.width,
           groups = c->inst->norm.groups ? c->inst->norm.groups : 1,
           own = c->inst->norm.groups && width ? c->y.cols / width : 1;
    double *mean, *factor, *all = statistics(d, rows * own, &mean, &factor, err);

    if (!all)
        return -1;
    for (size_t i = 0; i < rows * own; i++) {
        size_t at = i / own * groups + c->inst->norm.first + i % own;

        mean[i] = sum ? sum[i] / (double)c->inst->norm.whole_width : 0;
        factor[i] = factor_of(c->inst, squares[at]);
    }
    if (width)
        cpu_group_scale(d, c->y.data, c->y.format, source(c, 0), sum ? mean : NULL,
                        factor, rows * own, width, c->w, c->inst->norm.plus_one, c->w2);
    cpu_give(d, all);
    return 0;
}

static int kernel_rms_apply(struct device *d, const struct call *c, struct err *err)
{
    return apply_norm(d, c, c->x[1].data, NULL, err);
}

static int kernel_layer_apply(struct device *d, const struct call *c, struct err *err)
{
    return apply_norm(d, c, c->x[1].data, c->x[2].data, err);
}

/* ---- positions ---- */

/* Angles are rounded to f32, as in training. */
static int kernel_angles(struct device *d, const struct call *c, struct err *err)
{
    const struct rope *r = &c->program->rope[c->inst->rope.table];
    size_t half = r->dim / 2, rows = rows_of(&c->y);
    double *own = xmalloc((half + 1) * sizeof(*own));
    const double *inv_freq = NULL;
    const int32_t *at = c->step->input[program_positions(c->program, c->inst)];
    bool fixed = !r->dynamic && !r->long_freq;
    int32_t length = -1;

    (void)d;
    (void)err;
    if (fixed)
        inv_freq = r->inv_freq;
    for (size_t i = 0; i < rows; i++) {
        float *cosine = result(c) + i * r->dim, *sine = cosine + half;

        if (!fixed && c->step->length[i] != length) {
            length = c->step->length[i];
            inv_freq = program_rope_at(r, (uint64_t)length, own);
        }
        for (size_t k = 0; k < half; k++) {
            float angle = (float)at[i] * (float)inv_freq[k];

            cosine[k] = (float)(cos((double)angle) * r->scale);
            sine[k] = (float)(sin((double)angle) * r->scale);
        }
    }
    free(own);
    return 0;
}

static int kernel_temper(struct device *d, const struct call *c, struct err *err)
{
    const int32_t *at = c->step->input[program_positions(c->program, c->inst)];
    double step = c->inst->temper.step, amount = c->inst->temper.amount;
    size_t cols = c->y.cols;

    (void)err;
    for (size_t i = 0; i < rows_of(&c->y); i++)
        cpu_scale(d, result(c) + i * cols, source(c, 0) + i * cols,
                  1 + amount * log1p(floor((at[i] + 1.0) / step)), cols);
    return 0;
}

static int kernel_sinusoid(struct device *d, const struct call *c, struct err *err)
{
    const struct rope *r = &c->program->rope[c->inst->rope.table];
    const int32_t *at = c->step->input[program_positions(c->program, c->inst)];
    size_t half = r->dim / 2, rows = rows_of(&c->y);

    (void)d;
    (void)err;
    for (size_t i = 0; i < rows; i++) {
        const float *x = c->inst->nsrc ? source(c, 0) + i * r->dim : NULL;
        float *y = result(c) + i * r->dim;

        for (size_t k = 0; k < half; k++) {
            float angle = (float)(at[i] + c->inst->rope.offset) * (float)r->inv_freq[k];

            y[k] = (x ? x[k] : 0) + (float)sin((double)angle);
            y[k + half] = (x ? x[k + half] : 0) + (float)cos((double)angle);
        }
    }
    return 0;
}

static int kernel_rope(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_rope(d, result(c), source(c, 0), rows_of(&c->y), c->y.cols, c->inst->rope.head,
             &c->program->rope[c->inst->rope.table], source(c, 1));
    return 0;
}

/* ---- the KV cache ---- */

/* Row of the cache that is row ROW of a range. */
static size_t block_row(const struct ranges *r, const struct range *one, size_t row)
{
    return (size_t)r->block[(size_t)one->block + row / r->block_rows] * r->block_rows +
           row % r->block_rows;
}

static int kernel_keep(struct device *d, const struct call *c, struct err *err)
{
    size_t cols = c->x[0].cols;
    struct buffer pool = c->y;
    uint64_t bytes;

    (void)d;
    (void)err;
    pool.cols = cols;
    bytes = format_row_bytes(pool.format, cols, pool.width);
    for (size_t i = 0; i < c->range.n; i++) {
        const struct range *r = &c->range.v[i];

        for (int32_t k = 0; k < r->rows; k++)
            cpu_cache_row((char *)c->y.data +
                              block_row(&c->range, r, (size_t)(r->write_row + k)) *
                                  bytes,
                          source(c, 0) + (size_t)(r->row + k) * cols, &pool);
    }
    return 0;
}

static int kernel_cache_read(struct device *d, const struct call *c, struct err *err)
{
    size_t cols = c->x[0].cols;
    uint64_t bytes = format_row_bytes(c->x[0].format, cols, c->x[0].width);
    float *to = result(c);

    (void)d;
    (void)err;
    for (size_t i = 0; i < c->range.n; i++) {
        const struct range *r = &c->range.v[i];

        for (int32_t k = 0; k < r->keys; k++, to += cols)
            cpu_cached(to,
                       (const char *)c->x[0].data +
                           block_row(&c->range, r, (size_t)(r->key_row + k)) * bytes,
                       0, cols, &c->x[0]);
    }
    return 0;
}

/* Is B a cache in another type than f32? */
static bool is_narrow(const struct buffer *b)
{
    return b->format != FORMAT_F32;
}

/* OP_ATTENTION and OP_STREAM. */
static int attend(struct device *d, const struct call *c, struct err *err)
{
    const struct inst *inst = c->inst;

    for (size_t i = 0; i < c->range.n; i++) {
        const struct range *r = &c->range.v[i];
        struct attention_step step = { .rows = (size_t)r->rows,
                                       .start = (size_t)r->start,
                                       .keys = (size_t)r->keys,
                                       .first_key = (size_t)r->first_key,
                                       .key_row = (size_t)r->key_row,
                                       .k = source(c, 1),
                                       .v = source(c, 2),
                                       .bias = inst->attention.sinks ? NULL : c->w,
                                       .sinks = inst->attention.sinks ? c->w : NULL,
                                       .rounded = c->rounded && is_loose(c) };

        if (inst->attention.drop > 0) {
            step.token = tokens_of(c, inst->src[0]) + r->row;
            step.seed = *c->step->seed;
        }

        if (r->block >= 0) {
            step.block = c->range.block + r->block;
            step.block_rows = c->range.block_rows;
        }
        if (is_narrow(&c->x[1]))
            step.cached_k = &c->x[1];
        if (is_narrow(&c->x[2]))
            step.cached_v = &c->x[2];
        if (c->lse)
            step.lse = c->lse + (size_t)r->row * inst->attention.heads;
        if (inst->op == OP_STREAM)
            step.biases = source(c, 3) + (size_t)r->row * c->x[3].cols;
        if (inst->op == OP_STREAM && inst->nsrc > 4) {
            step.own_k = source(c, 4) + (size_t)r->row * c->x[4].cols;
            step.own_v = source(c, 5) + (size_t)r->row * c->x[5].cols;
        }
        if (cpu_attention(d, result(c) + (size_t)r->row * c->y.cols,
                          source(c, 0) + (size_t)r->row * c->x[0].cols, inst, &step,
                          err) < 0)
            return -1;
    }
    return 0;
}

static int kernel_attention(struct device *d, const struct call *c, struct err *err)
{
    return attend(d, c, err);
}

static int kernel_stream(struct device *d, const struct call *c, struct err *err)
{
    return attend(d, c, err);
}

/* One sequence after another; the keys are its own rows, or those of its source. */
static int kernel_attention_back(struct device *d, const struct call *c,
                                 struct err *err)
{
    const bool keys = c->inst->attention.gradients == GRADIENTS_KEYS;

    for (size_t i = 0; i < c->range.n; i++) {
        const struct range *r = &c->range.v[i];
        size_t row = (size_t)r->row, key_row = (size_t)r->key_row;
        struct attention_step step = { .rows = (size_t)r->rows,
                                       .start = (size_t)r->start,
                                       .keys = (size_t)r->keys,
                                       .first_key = (size_t)r->first_key,
                                       .k = source(c, 2) + key_row * c->x[2].cols,
                                       .v = source(c, 3) + key_row * c->x[3].cols,
                                       .bias = c->inst->attention.sinks ? NULL : c->w,
                                       .sinks =
                                           c->inst->attention.sinks ? c->w : NULL };

        if (c->inst->attention.drop > 0) {
            step.token = tokens_of(c, c->inst->src[1]) + row;
            step.seed = *c->step->seed;
        }
        if (c->lse) {
            step.whole_lse = c->lse + row * c->inst->attention.heads;
            step.whole_y = source(c, 4) + row * c->x[4].cols;
        }

        if (cpu_attention_back(d, result(c) + (keys ? key_row : row) * c->y.cols,
                               c->y.cols, source(c, 0) + row * c->x[0].cols,
                               source(c, 1) + row * c->x[1].cols, c->inst, &step,
                               err) < 0)
            return -1;
    }
    return 0;
}

/* Merges (y, lse) and (z, more), attention over two sets of keys, into the first: means
 * weighted by exp(lse). */
static int kernel_merge(struct device *d, const struct call *c, struct err *err)
{
    size_t heads = c->x[0].cols, dim = heads ? c->y.cols / heads : 0;
    float *y = c->y.data, *lse = c->x[0].data;
    const float *z = source(c, 1), *more = source(c, 2);

    (void)d;
    (void)err;
    for (size_t i = 0; i < rows_of(&c->y) * heads; i++) {
        float most = lse[i] > more[i] ? lse[i] : more[i], f, g;

        if (more[i] == -INFINITY)
            continue;
        f = expf(lse[i] - most);
        g = expf(more[i] - most);
        for (size_t k = 0; k < dim; k++)
            y[i * dim + k] = (f * y[i * dim + k] + g * z[i * dim + k]) / (f + g);
        lse[i] = most + logf(f + g);
    }
    return 0;
}

/* Copies a part of the heads of each row, out of full rows or into them. */
static void copy_heads(const struct head_part *h, float *whole, float *part,
                       size_t rows, bool to_whole)
{
    size_t cols = h->groups * h->within * h->dim, run = h->within_count * h->dim;

    for (size_t i = 0; i < rows; i++)
        for (uint64_t g = 0; g < h->group_count; g++, part += run) {
            float *at = whole + i * cols +
                        ((h->group_start + g) * h->within + h->within_start) * h->dim;

            memcpy(to_whole ? at : part, to_whole ? part : at, run * sizeof(*at));
        }
}

static int kernel_heads_pack(struct device *d, const struct call *c, struct err *err)
{
    (void)d;
    (void)err;
    copy_heads(&c->inst->heads, c->x[0].data, result(c), rows_of(&c->y), false);
    return 0;
}

static int kernel_heads_unpack(struct device *d, const struct call *c, struct err *err)
{
    (void)d;
    (void)err;
    copy_heads(&c->inst->heads, result(c), c->x[0].data, rows_of(&c->y), true);
    return 0;
}

/* ---- experts ---- */

static int kernel_concat(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_concat(d, result(c), source(c, 0), source(c, 1), rows_of(&c->y), c->inst);
    return 0;
}

static int kernel_input(struct device *d, const struct call *c, struct err *err)
{
    (void)d;
    (void)err;
    memcpy(result(c), c->step->input[c->inst->input],
           rows_of(&c->y) * c->y.cols * sizeof(float));
    return 0;
}

/* The texts of the rows of value V. */
static struct cpu_texts texts_of(const struct call *c, int v)
{
    int rows = c->program->value[v].rows;

    return (struct cpu_texts){ .first = c->step->first[rows],
                               .n = (size_t)c->step->rows[ROWS_ONE][0],
                               .rows = (size_t)c->step->rows[rows][0] };
}

static int kernel_relate(struct device *d, const struct call *c, struct err *err)
{
    struct cpu_relate r = { .y = result(c),
                            .q = source(c, 0),
                            .k = source(c, 1),
                            .v = source(c, 2),
                            .q_far = source(c, 0),
                            .as_key = source(c, 3),
                            .as_query = source(c, 4) };

    r.queries = r.keys = r.tokens = texts_of(c, c->inst->dst);
    return cpu_relate(d, c->inst, &r, err);
}

static int kernel_relate_xl(struct device *d, const struct call *c, struct err *err)
{
    struct cpu_relate r = { .y = result(c),
                            .q = source(c, 0),
                            .k = source(c, 1),
                            .v = source(c, 2),
                            .q_far = source(c, 3),
                            .as_key = source(c, 4),
                            .q_type = c->w ? source(c, 5) : NULL,
                            .types = c->w,
                            .type = c->step->input[FEED_TOKEN_TYPES],
                            .queries = texts_of(c, c->inst->dst),
                            .keys = texts_of(c, c->inst->src[1]) };

    r.tokens = (struct cpu_texts){ .first = c->step->first[ROWS_TOKENS],
                                   .n = r.queries.n,
                                   .rows = (size_t)c->step->rows[ROWS_TOKENS][0] };
    return cpu_relate(d, c->inst, &r, err);
}

static int kernel_global_attention(struct device *d, const struct call *c,
                                   struct err *err)
{
    struct cpu_globals g = { .y = result(c),
                             .q = source(c, 0),
                             .k = source(c, 1),
                             .v = source(c, 2),
                             .q_all = source(c, 3),
                             .k_all = source(c, 4),
                             .v_all = source(c, 5),
                             .mask = c->step->input[c->inst->attention.mask],
                             .texts = texts_of(c, c->inst->dst) };

    return cpu_global_attention(d, c->inst, &g, err);
}

static int kernel_side_attention(struct device *d, const struct call *c,
                                 struct err *err)
{
    struct cpu_side s = { .y = result(c),
                          .q = source(c, 0),
                          .k = source(c, 1),
                          .v = source(c, 2),
                          .side_k = source(c, 3),
                          .side_v = source(c, 4),
                          .bias = c->w,
                          .side = c->w2,
                          .texts = texts_of(c, c->inst->dst),
                          .sides = texts_of(c, c->inst->src[3]) };

    return cpu_side_attention(d, c->inst, &s, err);
}

/* ---- rows beside a row ---- */

static struct cpu_taps taps_of(const struct call *c)
{
    return (struct cpu_taps){ .y = result(c),
                              .x = source(c, 0),
                              .from = texts_of(c, c->inst->src[0]),
                              .to = texts_of(c, c->inst->dst),
                              .cols = c->x[0].cols };
}

static int kernel_unfold(struct device *d, const struct call *c, struct err *err)
{
    struct cpu_taps t = taps_of(c);

    (void)err;
    cpu_unfold(d, c->inst, &t);
    return 0;
}

static int kernel_shift(struct device *d, const struct call *c, struct err *err)
{
    struct cpu_taps t = taps_of(c);

    (void)err;
    cpu_shift(d, c->inst, &t);
    return 0;
}

static int kernel_pool(struct device *d, const struct call *c, struct err *err)
{
    struct cpu_taps t = taps_of(c);

    (void)err;
    cpu_pool(d, c->inst, &t);
    return 0;
}

static int kernel_block_sum(struct device *d, const struct call *c, struct err *err)
{
    struct cpu_taps t = taps_of(c);

    (void)err;
    cpu_block_sum(d, c->inst, &t);
    return 0;
}

static int kernel_unpool(struct device *d, const struct call *c, struct err *err)
{
    return kernel_pool(d, c, err);
}

static int kernel_convolve(struct device *d, const struct call *c, struct err *err)
{
    struct cpu_taps t = taps_of(c);

    t.w = c->w;
    return cpu_convolve(d, c->inst, &t, err);
}

static int kernel_causal_convolve(struct device *d, const struct call *c,
                                  struct err *err)
{
    const struct cpu_tail t = { .y = result(c),
                                .x = source(c, 0),
                                .w = c->w,
                                .state = &c->state,
                                .rows = rows_of(&c->y),
                                .cols = c->x[0].cols,
                                .taps = c->inst->taps.count };

    return cpu_causal_convolve(d, &t, err);
}

static int kernel_scan(struct device *d, const struct call *c, struct err *err)
{
    struct cpu_scan s = { .y = result(c),
                          .w = c->w,
                          .w2 = c->w2,
                          .state = &c->state,
                          .rows = rows_of(&c->y) };

    for (int i = 0; i < c->inst->nsrc; i++)
        s.x[i] = source(c, i);
    return cpu_scan(d, c->inst, &s, err);
}

static int kernel_dynamic(struct device *d, const struct call *c, struct err *err)
{
    struct cpu_taps t = taps_of(c);

    (void)err;
    t.scores = source(c, 1);
    cpu_dynamic(d, c->inst, &t);
    return 0;
}

/* ---- choices of experts ---- */

static int kernel_choose(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_choose(d, c->y.data, source(c, 0), rows_of(&c->y), c->x[0].cols, c->inst, c->w);
    return 0;
}

static int kernel_route(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_route(d, result(c), source(c, 0), c->x[1].data, rows_of(&c->y), c->y.cols,
              c->inst);
    return 0;
}

static int kernel_expert_count(struct device *d, const struct call *c, struct err *err)
{
    uint64_t experts = c->program->mixture[c->inst->mixture].all;
    const int32_t *choice = c->x[0].data;
    int32_t *y = c->y.data;

    (void)d;
    (void)err;
    memset(y, 0, (experts + 1) * sizeof(*y));
    for (size_t i = 0; i < count_of(&c->x[0]); i++)
        if (choice[i] >= 0)
            y[choice[i] + 1]++;
    for (uint64_t e = 0; e < experts; e++)
        y[e + 1] += y[e];
    return 0;
}

static int kernel_expert_index(struct device *d, const struct call *c, struct err *err)
{
    uint64_t experts = c->program->mixture[c->inst->mixture].all;
    size_t top = c->x[0].cols;
    const int32_t *choice = c->x[0].data;
    int32_t *next = cpu_take(d, experts * sizeof(*next), "rows of experts", err);

    if (!next)
        return -1;
    memcpy(next, c->x[1].data, experts * sizeof(*next));
    for (size_t i = 0; i < count_of(&c->x[0]); i++)
        if (choice[i] >= 0)
            ((int32_t *)c->y.data)[next[choice[i]]++] = (int32_t)(i / top);
    cpu_give(d, next);
    return 0;
}

static int kernel_expert_gather(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    cpu_take_rows(d, c->y.data, c->x[0].data, c->x[1].data, rows_of(&c->y),
                  row_bytes(&c->y));
    return 0;
}

static int kernel_expert_combine(struct device *d, const struct call *c,
                                 struct err *err)
{
    const struct mixture *m = &c->program->mixture[c->inst->mixture];
    const int32_t *counts = c->x[3].data, *index = c->x[2].data;

    (void)err;
    memset(result(c), 0, count_of(&c->y) * sizeof(float));
    for (uint64_t e = 0; e < m->all; e++)
        cpu_add_rows(d, result(c), source(c, 0) + (size_t)counts[e] * c->y.cols,
                     index + counts[e], (size_t)(counts[e + 1] - counts[e]), c->y.cols,
                     source(c, 1), c->x[1].cols, e);
    return 0;
}

/* ---- rows and columns ---- */

static int kernel_segment(struct device *d, const struct call *c, struct err *err)
{
    size_t rows = rows_of(&c->y), bytes = row_bytes(&c->y), all = row_bytes(&c->x[0]);
    const char *from = (const char *)c->x[0].data +
                       c->inst->segment.first * (size_t)format_bits(c->y.format) / 8;

    (void)d;
    (void)err;
    for (size_t i = 0; i < rows; i++)
        memcpy((char *)c->y.data + i * bytes, from + i * all, bytes);
    return 0;
}

/* y[i] = x[row[i]]; zeros if the row is on another rank. */
static void copy_rows(const struct call *c, const int32_t *row)
{
    size_t rows = rows_of(&c->y), bytes = row_bytes(&c->y);
    char *to = c->y.data;

    for (size_t i = 0; i < rows; i++, to += bytes)
        if (row[i] >= 0)
            memcpy(to, (const char *)c->x[0].data + (size_t)row[i] * bytes, bytes);
        else
            memset(to, 0, bytes);
}

static int kernel_take(struct device *d, const struct call *c, struct err *err)
{
    (void)d;
    (void)err;
    copy_rows(c, c->step->output);
    return 0;
}

static int kernel_first(struct device *d, const struct call *c, struct err *err)
{
    (void)d;
    (void)err;
    copy_rows(c, c->step->first[c->program->value[c->inst->src[0]].rows]);
    return 0;
}

/* The source has all columns of one rank, then those of the next. */
static int kernel_arrange(struct device *d, const struct call *c, struct err *err)
{
    const struct gather *g = &c->program->gather[c->inst->gather.gather];
    size_t rows = rows_of(&c->y), cols = c->y.cols;
    const float *from = source(c, 0);

    (void)d;
    (void)err;
    for (int r = 0; r < g->parts; r++)
        for (size_t i = 0; i < rows; i++)
            for (size_t k = 0; k < g->runs[r].n; k++) {
                const struct run *run = &g->runs[r].v[k];

                if (run->owned)
                    memcpy(result(c) + i * cols + run->start, from,
                           run->count * sizeof(*from));
                from += run->count;
            }
    return 0;
}

static int kernel_slice(struct device *d, const struct call *c, struct err *err)
{
    const struct gather *g = &c->program->gather[c->inst->gather.gather];
    const struct runs *runs = &g->runs[c->program->coord[MESH_TP]];
    size_t rows = rows_of(&c->y), whole = row_bytes(&c->x[0]);
    size_t unit = (size_t)format_bits(c->y.format) / 8;
    const char *from = c->x[0].data;
    char *to = c->y.data;

    (void)d;
    (void)err;
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < runs->n; k++) {
            memcpy(to, from + i * whole + runs->v[k].start * unit,
                   runs->v[k].count * unit);
            to += runs->v[k].count * unit;
        }
    return 0;
}

/* ---- results of rows ---- */

/* A rank's statistics of a row, over its columns: OP_ROW_STATS. */
struct row_stats {
    double max, sum; /* sum of exp(x - max); 0 when all are -inf, NaN with a NaN or
                      * +inf */
    double target;   /* value of the target's column, if this rank has it */
    double index;    /* index of the largest */
};

static struct row_stats look_at_row(const float *x, size_t n, uint64_t first,
                                    int64_t target)
{
    const float max = cpu_largest(x, n);
    struct row_stats r = { .max = (double)max,
                           .target = -INFINITY,
                           .index = (double)first };
    size_t at = 0;

    while (at < n && x[at] != max)
        at++;
    if (at < n)
        r.index = (double)(first + at);
    r.sum = cpu_exp_terms(NULL, x, n, max > -INFINITY ? r.max : 0, 1);
    if (max == -INFINITY && r.sum >= 0) /* the terms are tiny, not 0 */
        r.sum = 0;
    if (target >= (int64_t)first && target < (int64_t)(first + n))
        r.target = (double)x[target - (int64_t)first];
    return r;
}

static void look_at(void *arg, size_t row, int thread)
{
    const struct call *c = arg;
    const int32_t *target = c->step->target[c->program->value[c->inst->dst].rows];
    struct row_stats *y = c->y.data;
    size_t cols = c->x[0].cols;

    (void)thread;
    y[row] = look_at_row(source(c, 0) + row * cols, cols, c->inst->row.first,
                         target ? target[row] : -1);
}

static int kernel_row_stats(struct device *d, const struct call *c, struct err *err)
{
    struct call call = *c;

    (void)err;
    cpu_parallel(d, rows_of(&c->y), look_at, &call);
    return 0;
}

/* Combines row I's statistics of all ranks, in rank order. */
static struct row_stats all_stats(const struct call *c, size_t i)
{
    const struct row_stats *all = c->x[0].data;
    size_t rows = rows_of(&c->y);
    size_t parts = c->x[0].cols * sizeof(double) / sizeof(*all);
    struct row_stats r = all[i];

    for (size_t k = 1; k < parts; k++) {
        const struct row_stats *o = &all[k * rows + i];
        double max = o->max > r.max ? o->max : r.max;

        if (o->max == -INFINITY && o->sum == 0)
            continue;
        r.sum = r.sum * exp(r.max - max) + o->sum * exp(o->max - max);
        r.index = o->max > r.max ? o->index : r.index;
        r.max = max;
        r.target = o->target > r.target ? o->target : r.target;
    }
    return r;
}

static int kernel_nll(struct device *d, const struct call *c, struct err *err)
{
    (void)d;
    (void)err;
    for (size_t i = 0; i < rows_of(&c->y); i++) {
        struct row_stats r = all_stats(c, i);
        const double z = c->inst->row.z, sum = r.max + log(r.sum);

        if (c->inst->nsrc > 1)
            r.target = (1 - c->inst->row.smooth) * r.target +
                       c->inst->row.smooth / (double)c->inst->row.vocab *
                           ((const double *)c->x[1].data)[i];
        result(c)[i] = (float)(sum - r.target + (z > 0 ? z * sum * sum : 0));
    }
    return 0;
}

/* Task: factor times the row's weight, ((1 + 2 z log sum exp(a)) softmax(a) - (1 -
 * smooth) [target] - smooth / vocab) of a row; zeros without a target. */
static void nll_row_back(void *arg, size_t i, int thread)
{
    enum { PART = 256 };
    const struct call *c = arg;
    const int32_t target = c->step->target[c->program->value[c->inst->src[1]].rows][i];
    const size_t cols = c->y.cols;
    const struct row_stats r = all_stats(c, i);
    const float *x = source(c, 1) + i * cols;
    float *y = result(c) + i * cols;
    int64_t own = (int64_t)target - (int64_t)c->inst->row.first;
    const bool tokens = c->program->value[c->inst->src[1]].rows == ROWS_TOKENS;
    const float factor = c->step->factor[FACTOR_NLL] *
                         (tokens && c->step->weight ? c->step->weight[i] : 1);
    const double smooth = c->inst->row.smooth;
    const double each = smooth > 0 ? smooth / (double)c->inst->row.vocab : 0;
    const double rise =
        c->inst->row.z > 0 ? 1 + 2 * c->inst->row.z * (r.max + log(r.sum)) : 1;
    double term[PART];

    (void)thread;
    if (target < 0) {
        memset(y, 0, cols * sizeof(*y));
        return;
    }
    for (size_t at = 0; at < cols; at += PART) {
        size_t some = cols - at < PART ? cols - at : PART;

        (void)cpu_exp_terms(term, x + at, some, r.max, 1);
        for (size_t k = 0; k < some; k++)
            y[at + k] = factor * (float)(rise * term[k] / r.sum - each);
    }
    if (own >= 0 && own < (int64_t)cols)
        y[own] -= factor * (float)(1 - smooth);
}

static int kernel_nll_back(struct device *d, const struct call *c, struct err *err)
{
    struct call call = *c;

    (void)err;
    cpu_parallel(d, rows_of(&c->y), nll_row_back, &call);
    return 0;
}

static int kernel_argmax(struct device *d, const struct call *c, struct err *err)
{
    (void)d;
    (void)err;
    for (size_t i = 0; i < rows_of(&c->y); i++) {
        struct row_stats r = all_stats(c, i);

        ((int32_t *)c->y.data)[i] = r.sum > 0 ? (int32_t)r.index : -1;
    }
    return 0;
}

struct samples {
    const struct call *call;
    bool by_row; /* fewer rows than threads: each row has room, else each thread */
    char *room;  /* [rows or threads][cpu_sample_bytes(columns)] */
};

static void sample_row(void *arg, size_t i, int thread)
{
    const struct samples *s = arg;
    const struct call *c = s->call;
    const size_t cols = c->x[0].cols, at = s->by_row ? i : (size_t)thread;

    ((int32_t *)c->y.data)[i] =
        cpu_sample(source(c, 0) + i * cols, cols, &c->step->draw[i],
                   s->room + at * cpu_sample_bytes(cols));
}

static int kernel_sample(struct device *d, const struct call *c, struct err *err)
{
    const size_t rows = rows_of(&c->y), threads = (size_t)cpu_threads(d);
    struct samples s = { .call = c, .by_row = rows < threads };

    if (!rows)
        return 0;
    s.room = cpu_take(d, (s.by_row ? rows : threads) * cpu_sample_bytes(c->x[0].cols),
                      "candidates", err);
    if (!s.room)
        return -1;
    cpu_parallel(d, rows, sample_row, &s);
    cpu_give(d, s.room);
    return 0;
}

/* ---- the table ---- */

/* Runs KERNEL for each expert, with its weights, on the rows that it gets. */
static int by_expert(struct device *d, const struct call *c, kernel *run,
                     struct err *err)
{
    const int32_t *sent = c->expert_rows + c->nexperts; /* number of all rows */

    for (size_t e = 0; e < c->nexperts; e++) {
        size_t first = (size_t)c->expert_rows[e];
        int32_t rows = c->expert_rows[e + 1] - c->expert_rows[e];
        struct call one = *c;

        if (!rows)
            continue;
        for (int k = 0; k < c->inst->nsrc; k++)
            if (c->x[k].rows == sent) {
                one.x[k].data = (char *)c->x[k].data + first * row_bytes(&c->x[k]);
                one.x[k].rows = &rows;
            }
        if (c->y.rows == sent) {
            one.y.data = (char *)c->y.data + first * row_bytes(&c->y);
            one.y.rows = &rows;
        } else { /* the gradient of its weight */
            one.y.data = (float *)c->y.data + e * c->y.cols;
        }
        one.w += c->inst->weight >= 0 ? e : 0;
        one.w2 += c->inst->weight2 >= 0 ? e : 0;
        if (run(d, &one, err) < 0)
            return -1;
    }
    return 0;
}

#define DEVICE(word)                                                               \
    static int run_##word(struct device *d, const struct call *c, struct err *err) \
    {                                                                              \
        return c->expert_rows ? by_expert(d, c, kernel_##word, err)                \
                              : kernel_##word(d, c, err);                          \
    }
#define COMM(word)
#define FUSED(word)
#define ROW(id, word, on, ...) on(word)
OPS(ROW)
#undef ROW
#undef DEVICE
#undef COMM
#undef FUSED

/* A CPU calls a kernel in no time, and reads again from its caches what it has just
 * written: no fusion was faster here than its parts (tests/bench/fusing.c). */
#define kernel_gated_linear LACKS(gated_linear)
#define kernel_linears      LACKS(linears)
#define kernel_add_norm     LACKS(add_norm)
#define kernel_rope_keep    LACKS(rope_keep)

#define DEVICE(word)           run_##word
#define FUSED(word)            kernel_##word
#define COMM(word)             NULL
#define ROW(id, word, on, ...) [OP_##id] = on(word),
kernel *const cpu_kernels[OP_COUNT] = { OPS(ROW) };

enum {
    PLAIN = 1 << FORMAT_F32 | 1 << FORMAT_BF16 | 1 << FORMAT_F16,
    CODED = PLAIN | 1 << FORMAT_INT8 | 1 << FORMAT_INT4 | 1 << FORMAT_E4M3 |
            1 << FORMAT_E5M2 | 1 << FORMAT_MXFP4,
    CACHES = 1 << FORMAT_F32 | 1 << FORMAT_BF16 | 1 << FORMAT_CACHE_INT8 |
             1 << FORMAT_CACHE_FP8 | 1 << FORMAT_CACHE_INT4,
};

const struct kernel_limits cpu_limits[OP_COUNT] = {
    [OP_LINEAR] = { .weight = CODED, .back = CODED },
    [OP_MATMUL] = { .weight = CODED, .back = CODED },
    [OP_KEEP] = { .cache = CACHES },
    [OP_CACHE_READ] = { .cache = CACHES },
    [OP_ATTENTION] = { .cache = CACHES },
    [OP_STREAM] = { .cache = CACHES },
};
