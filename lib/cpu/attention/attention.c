/* attention - softmax(scale * q k^T) v over the keys each query may see
 *
 * Vaswani et al. 2017, eq. 1; heads in groups share keys and values (Ainslie et al.
 * 2023).  A task is a block of queries of one head: two matrix products with a row-wise
 * softmax between them.  Each score is summed separately and values are added key by
 * key, so a query's result depends neither on the other queries of its step nor on how
 * the cache is laid out. */
#include "lib/cpu/attention/attention.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"

/* The keys visible to the query at POSITION: [*first, *end), which may be empty. */
void attention_visible(const struct attention_job *j, size_t position, size_t *first,
                       size_t *end)
{
    const struct inst *inst = j->inst;
    const uint64_t far = INT64_MAX / 2; /* a window beyond all positions */
    uint64_t window = inst->attention.window;
    int64_t low, high;

    positions_visible((int64_t)position, (int32_t)j->step->first_key,
                      (int32_t)j->step->keys, (int64_t)(window < far ? window : far),
                      inst->attention.causal, inst->attention.chunked, &low, &high);
    *first = (size_t)low;
    *end = (size_t)high;
}

bool attention_in_blocks(const struct attention_job *j)
{
    return j->inst->attention.block && j->step->keys > j->inst->attention.over;
}

/* Adds [FIRST, END) of [LOW, HIGH) to SPAN[N], whose last may reach into it. */
static int add_span(struct attention_span *span, int n, size_t first, size_t end,
                    size_t low, size_t high)
{
    first = first > low ? first : low;
    end = end < high ? end : high;
    if (first >= end)
        return n;
    if (n && first <= span[n - 1].end)
        span[n - 1].end = end > span[n - 1].end ? end : span[n - 1].end;
    else
        span[n++] = (struct attention_span){ first, end };
    return n;
}

int attention_spans(const struct attention_job *j, size_t row, size_t rows, size_t low,
                    size_t high, struct attention_span *span)
{
    size_t block = (size_t)j->inst->attention.block, from, to, last;
    int n;

    if (!attention_in_blocks(j))
        return add_span(span, 0, low, high, low, high);
    from = (j->step->start + row) / block;
    to = (j->step->start + row + rows - 1) / block;
    last = (j->step->keys - 1) / block;
    if (from == 0 || to >= last)
        return add_span(span, 0, low, high, low, high);
    n = add_span(span, 0, 0, block, low, high);
    n = add_span(span, n, (from - 1) * block, (to + 2) * block, low, high);
    return add_span(span, n, last * block, j->step->keys, low, high);
}

void attention_set_lse(const struct attention_job *j, size_t row, size_t head,
                       float lse)
{
    float *own = j->own ? &j->own[row * j->inst->attention.heads + head] : NULL;

    if (j->step->lse)
        j->step->lse[row * j->inst->attention.heads + head] = lse;
    if (own)
        *own = expf(*own - lse);
}

/* Applies dropout to the weights, or their gradients, of ROWS queries from ROW on over
 * N keys from LOW on. */
void attention_drop(const struct attention_job *j, size_t row, size_t rows, size_t head,
                    float *score, size_t low, size_t n)
{
    const struct inst *inst = j->inst;

    for (size_t i = 0; i < rows && inst->attention.drop > 0; i++)
        cpu_drop(score + i * n, j->step->first_key + low, n, inst->attention.drop,
                 j->step->seed ^ inst->attention.site, j->step->token[row + i],
                 (uint32_t)attention_global_head(inst, head) + 1);
}

CPU_CLONES void attention_add_part(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* Finds the contiguous rows: one run without block table, else one for each group of
 * adjacent blocks. */
int attention_open_runs(struct attention_job *j, struct device *d, struct err *err)
{
    const struct attention_step *s = j->step;
    size_t most = s->block ? s->keys / s->block_rows + 2 : 1;

    j->run = cpu_take(d, most * sizeof(*j->run), "runs of keys", err);
    if (!j->run)
        return -1;
    if (!s->block)
        j->run[j->runs++] = (struct attention_run){ 0, s->keys, s->key_row };
    for (size_t key = 0; s->block && key < s->keys;) {
        size_t at = s->key_row + key, in = at % s->block_rows;
        size_t n = s->block_rows - in, left = s->keys - key;
        size_t row = (size_t)s->block[at / s->block_rows] * s->block_rows + in;
        struct attention_run *last = j->runs ? &j->run[j->runs - 1] : NULL;

        n = n < left ? n : left;
        if (last && last->row + last->n == row)
            last->n += n;
        else
            j->run[j->runs++] = (struct attention_run){ key, n, row };
        key += n;
    }
    return 0;
}

/* Memory for scores and sums of values, and what 8 bits need. */
static int open_room(struct attention_job *j, struct device *d, struct err *err)
{
    size_t heads = j->inst->attention.heads, keys = j->step->keys;
    size_t threads = (size_t)cpu_threads(d), dim = j->inst->attention.value_dim;
    bool one = j->step->rows == 1;
    uint64_t queries = !decode_int8_has(&j->keys) ? 0
                       : one                      ? heads
                                                  : threads * j->block;
    uint64_t terms = decode_int8_terms(j->inst->attention.head_dim);
    uint64_t scores =
        attention_whole_lines(one ? heads * decode_score_stride(keys)
                                  : threads * j->block * attention_room_of_keys(j));
    uint64_t sums = attention_whole_lines(
        (one ? decode_parts(j) * heads : threads * j->block) * dim);
    uint64_t of_bytes =
        decode_int8_has(&j->values) ? threads * decode_int8_sum_size(dim) : 0;
    uint64_t bytes = of_bytes +
                     (scores + sums + attention_whole_lines(queries)) * sizeof(float) +
                     queries * terms * sizeof(*j->bytes.term);
    char *room = cpu_take(d, bytes, "attention scores", err);

    if (!room)
        return -1;
    j->owned = room;
    j->sums = of_bytes ? room : NULL;
    j->score = (float *)(void *)(room + of_bytes);
    j->part = j->score + scores;
    if (queries) {
        j->bytes.dim = j->inst->attention.head_dim;
        j->bytes.scale = j->part + sums;
        j->bytes.term =
            (int16_t *)(void *)(j->bytes.scale + attention_whole_lines(queries));
    }
    return 0;
}

int cpu_attention(struct device *d, float *y, const float *q, const struct inst *inst,
                  const struct attention_step *step, struct err *err)
{
    size_t heads = inst->attention.heads, kv_heads = inst->attention.kv_heads;
    size_t dim = inst->attention.head_dim, value_dim = inst->attention.value_dim;
    struct prefill_bf16 bf16 = { 0 };
    struct attention_job j = { .inst = inst,
                               .step = step,
                               .q = q,
                               .y = y,
                               .q_stride = heads * inst->attention.head_dim,
                               .k_stride = kv_heads * inst->attention.head_dim,
                               .v_stride = kv_heads * inst->attention.value_cols,
                               .y_stride = heads * inst->attention.value_dim,
                               .block = BLOCK };

    int ret = -1;

    if (!heads || !step->rows)
        return 0;
    j.keys = kv_rows_of(step->cached_k, step->k, kv_heads, dim, dim);
    j.values = kv_rows_of(step->cached_v, step->v, kv_heads, value_dim,
                          inst->attention.value_cols);
    if (attention_open_runs(&j, d, err) < 0 ||
        (step->bias && bias_open(&j, d, err) < 0) ||
        (step->sinks && bias_open_sinks(&j, d, err) < 0) ||
        (step->biases && bias_open_stream(&j, d, err) < 0))
        goto out;
    if (open_room(&j, d, err) < 0)
        goto out;
    if (step->cached_k || step->cached_v || prefill_wants_bf16(step)) {
        j.wide = cpu_take(d,
                          (uint64_t)cpu_threads(d) * WIDE *
                              (dim > value_dim ? dim : value_dim) * sizeof(float),
                          "keys and values", err);
        if (!j.wide)
            goto out;
    }
    if (prefill_wants_bf16(step) && prefill_open_bf16(&j, d, &bf16, err) < 0)
        goto out;
    if (step->rows == 1)
        decode_query(d, &j);
    else
        cpu_parallel(d, (step->rows + j.block - 1) / j.block * heads, prefill_queries,
                     &j);
    ret = 0;
out:
    cpu_give(d, j.run);
    cpu_give(d, j.owned);
    cpu_give(d, j.wide);
    cpu_give(d, j.bias);
    cpu_give(d, j.sink);
    cpu_give(d, j.own);
    cpu_give(d, j.bucket);
    prefill_bf16_close(&bf16, d);
    return ret;
}
