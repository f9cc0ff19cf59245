/* bias - what is added to scores: by distance (ALiBi, T5, a stream of predictions), and
 * attention sinks */
#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/cpu/attention/attention.h"

/* Index in the whole model of the rank's HEAD. */
uint64_t attention_global_head(const struct inst *inst, size_t head)
{
    return positions_head(head, inst->attention.heads / inst->attention.kv_heads,
                          inst->attention.group_start, inst->attention.per_group,
                          inst->attention.within_start);
}

/* The score of the key without a value or, before attention_set_lse, of the key that
 * only query ROW sees; -INFINITY: none. */
float bias_sink(const struct attention_job *j, size_t row, size_t head)
{
    return j->own    ? j->own[row * j->inst->attention.heads + head]
           : j->sink ? j->sink[head]
                     : -INFINITY;
}

/* Converts the sinks of this instruction's heads to f32. */
int bias_open_sinks(struct attention_job *j, struct device *d, struct err *err)
{
    const struct matrix *m = j->step->sinks;
    const struct inst *inst = j->inst;
    size_t per = inst->attention.heads / inst->attention.kv_heads;
    size_t unit = (size_t)format_bits(m->format) / 8;

    j->sink =
        cpu_take(d, inst->attention.heads * sizeof(float), "attention sinks", err);
    for (size_t h = 0; h < inst->attention.heads && j->sink; h++) {
        size_t at = (size_t)positions_head(h, per, inst->attention.sink_group,
                                           inst->attention.sink_per,
                                           inst->attention.sink_within);

        dtype_to_f32(format_dtype(m->format), (const char *)m->data + at * unit,
                     &j->sink[h], 1);
    }
    return j->sink ? 0 : -1;
}

/* Adds ALiBi's bias for HEAD to the unscaled scores S of the keys [FIRST, FIRST + N) of
 * the query at POSITION. */
static void add_alibi(const struct attention_job *j, size_t head, size_t position,
                      float *s, size_t first, size_t n)
{
    double f = positions_slope(attention_global_head(j->inst, head),
                               j->inst->attention.all_heads) *
               j->inst->attention.alibi / j->inst->attention.scale;

    first += j->step->first_key;
    for (size_t t = 0; t < n; t++)
        s[t] += (float)(f * ((double)(first + t) - (double)position));
}

/* Tabulates the bias of each distance that occurs, from (first key, last query) to
 * (last key, first query). */
int bias_open(struct attention_job *j, struct device *d, struct err *err)
{
    const struct matrix *m = j->step->bias;
    const struct inst *inst = j->inst;
    size_t heads = inst->attention.heads;
    int64_t low = (int64_t)j->step->start, high = low + (int64_t)j->step->rows - 1;
    int32_t *bucket;
    float *rows;
    int ret;

    j->least = (int64_t)j->step->first_key - high;
    j->distances =
        (size_t)((int64_t)(j->step->first_key + j->step->keys) - low - j->least);
    j->bias =
        cpu_take(d, j->distances * heads * sizeof(float), "attention biases", err);
    rows = cpu_take(d, j->distances * m->cols * sizeof(float), "attention biases", err);
    bucket = cpu_take(d, j->distances * sizeof(*bucket), "attention biases", err);
    if (j->bias && rows && bucket) {
        for (size_t i = 0; i < j->distances; i++)
            bucket[i] =
                (int32_t)positions_bucket(j->least + (int64_t)i, m->rows,
                                          inst->attention.far, !inst->attention.causal);
        cpu_embedding(d, rows, m, (struct cpu_index){ bucket, 1, 0, -1 }, j->distances,
                      0, 0);
        for (size_t i = 0; i < j->distances; i++)
            for (size_t h = 0; h < heads; h++)
                j->bias[h * j->distances + i] =
                    rows[i * m->cols + inst->attention.bias_first + h] /
                    (float)inst->attention.scale;
    }
    ret = j->bias && rows && bucket ? 0 : -1;
    cpu_give(d, bucket);
    cpu_give(d, rows);
    return ret;
}

/* Tabulates the buckets of all distances that occur, and the scores of the queries' own
 * keys. */
int bias_open_stream(struct attention_job *j, struct device *d, struct err *err)
{
    const struct attention_step *s = j->step;
    const struct inst *inst = j->inst;
    size_t heads = inst->attention.heads, dim = inst->attention.head_dim;
    size_t n = s->start + s->rows - s->first_key + 1;

    j->bucket = cpu_take(d, n * sizeof(*j->bucket), "attention biases", err);
    if (s->own_k)
        j->own = cpu_take(d, s->rows * heads * sizeof(float), "attention scores", err);
    if (!j->bucket || (s->own_k && !j->own))
        return -1;
    for (size_t i = 0; i < n; i++)
        j->bucket[i] = positions_bucket(-(int64_t)i, inst->attention.span,
                                        inst->attention.far, false);
    for (size_t i = 0; i < s->rows * heads && s->own_k; i++) {
        cpu_dots(&j->own[i], 1, j->q + i * dim, dim, 1, s->own_k + i * dim, dim, 1,
                 dim);
        j->own[i] = j->own[i] * (float)inst->attention.scale +
                    s->biases[i * inst->attention.span];
    }
    return 0;
}

/* Adds the biases of the query at POSITION to its scores S of the keys [FIRST, FIRST +
 * N), which are one further away if it has a key of its own. */
static void add_own_biases(const struct attention_job *j, size_t head, size_t position,
                           float *s, size_t first, size_t n)
{
    const struct attention_step *step = j->step;
    size_t row = position - step->start;
    const float *bias = step->biases + (row * j->inst->attention.heads + head) *
                                           j->inst->attention.span;
    size_t distance = position - step->first_key - first + (step->own_k != NULL);

    for (size_t t = 0; t < n; t++)
        s[t] += bias[j->bucket[distance - t]] / (float)j->inst->attention.scale;
}

/* y[ROWS] += the values that only they see, times their weights. */
void bias_add_own_values(const struct attention_job *j, size_t row, size_t rows,
                         size_t head)
{
    size_t heads = j->inst->attention.heads, dim = j->inst->attention.value_dim;

    for (size_t i = row; i < row + rows && j->own; i++)
        for (size_t k = 0; k < dim; k++)
            j->y[i * j->y_stride + head * dim + k] +=
                j->own[i * heads + head] * j->step->own_v[(i * heads + head) * dim + k];
}

/* Of a text in blocks: the scores S of unseen keys become -INFINITY, whatever they
 * were. */
static void add_blocks(const struct attention_job *j, size_t position, float *s,
                       size_t first, size_t n)
{
    const struct inst *inst = j->inst;
    size_t block = (size_t)inst->attention.block, end;
    float more = (float)(log(inst->attention.copies) / inst->attention.scale);

    for (size_t key = first; key < first + n; key = end) {
        int seen = positions_in_blocks((int64_t)position, (int64_t)key,
                                       (int64_t)j->step->keys, (int64_t)block);

        end = (key / block + 1) * block;
        end = end < first + n ? end : first + n;
        for (size_t t = key; t < end && seen != SEEN; t++)
            s[t - first] = seen == UNSEEN ? -INFINITY : s[t - first] + more;
    }
}

/* Adds the biases by distance to the scores S of the keys [FIRST, FIRST + N). */
void bias_add(const struct attention_job *j, size_t head, size_t position, float *s,
              size_t first, size_t n)
{
    const float *bias = j->bias ? j->bias + head * j->distances : NULL;

    if (j->inst->attention.alibi != 0)
        add_alibi(j, head, position, s, first, n);
    if (j->bucket)
        add_own_biases(j, head, position, s, first, n);
    if (bias)
        bias += (int64_t)(j->step->first_key + first) - (int64_t)position - j->least;
    for (size_t t = 0; t < n && bias; t++)
        s[t] += bias[t];
    if (attention_in_blocks(j))
        add_blocks(j, position, s, first, n);
}
