/* prefill - attention of many queries: a task is a block of queries of one head */
#include <string.h>

#include "lib/cpu/attention/attention.h"

enum { ROUNDED = 32 }; /* queries for which keys and values are laid out for tiles */

/* y[ROWS][value_dim] = the values of the keys [FIRST, END) of a PART, times weights,
 * whose first column is that of FIRST.  May change the weights. */
static void sum_values(const struct attention_job *j, float *y, float *weight, size_t n,
                       size_t rows, size_t first, size_t end, size_t kv, int thread)
{
    if (j->sums) {
        kv_products_sum_int8(j, y, weight, n, rows, first, end, kv, thread);
        return;
    }
    memset(y, 0, rows * j->inst->attention.value_dim * sizeof(*y));
    for (size_t r = 0; r < j->runs; r++) {
        size_t key, some = attention_keys_in(&j->run[r], first, end, &key);

        if (some)
            kv_products_add(j, y, weight + (key - first), n, rows,
                            j->run[r].row + key - j->run[r].key, some, kv,
                            attention_wide(j, thread));
    }
}

/* Scores of ROWS queries Q, with their codes in BYTES, with the keys of SPAN; SCORE has
 * a stride of N. */
static void score_keys(const struct attention_job *j, float *score, size_t n,
                       const float *q, size_t rows, struct attention_span span,
                       size_t kv, const struct decode_int8_queries *bytes, int thread)
{
    for (size_t r = 0; r < j->runs; r++) {
        size_t key, some = attention_keys_in(&j->run[r], span.first, span.end, &key);
        size_t from = j->run[r].row + key - j->run[r].key;

        if (some && bytes->term)
            decode_int8_dots(
                &(struct decode_int8_dots){ .score = score + (key - span.first),
                                            .stride = n,
                                            .query = bytes,
                                            .k = &j->keys,
                                            .group = rows,
                                            .head = kv,
                                            .heads = 1,
                                            .first = from,
                                            .n = some });
        else if (some)
            kv_products_score(j, score + (key - span.first), n, q, j->q_stride, rows,
                              from, some, kv, attention_wide(j, thread));
    }
}

/* Computes the attention weights of ROWS queries from ROW on over the keys that at
 * least one of them sees, or more: returns their number N, *first_key is the first.  N
 * is 0 if no key is visible.  SCORE is [BLOCK][attention_room_of_keys]. */
size_t prefill_weigh(const struct attention_job *j, size_t row, size_t rows,
                     size_t head, size_t kv, float *score, int thread,
                     size_t *first_key)
{
    size_t dim = j->inst->attention.head_dim;
    size_t low = j->step->keys, high = 0, n;
    const float *q = j->q + row * j->q_stride + head * dim;
    struct decode_int8_queries bytes;
    struct attention_span span[3];
    int spans;

    for (size_t i = 0; i < rows; i++) {
        size_t first, end;

        attention_visible(j, j->step->start + row + i, &first, &end);
        if (first == end)
            continue;
        low = first < low ? first : low;
        high = end > high ? end : high;
    }
    for (size_t i = 0; i < rows && low >= high; i++)
        attention_set_lse(j, row + i, head, bias_sink(j, row + i, head));
    if (low >= high)
        return 0;
    if (j->bf16) { /* whole panels */
        low = low / AMX_SIDE * AMX_SIDE;
        high = amx_sides(high) * AMX_SIDE;
        prefill_bf16_scores(j->bf16, thread, score, high - low, q, j->q_stride, rows,
                            kv, low / AMX_SIDE, (high - low) / AMX_SIDE);
    }
    *first_key = low;
    n = high - low;
    bytes = kv_products_queries(j, (size_t)thread * j->block);
    if (bytes.term && !j->bf16)
        decode_int8_round(&bytes, 0, q, j->q_stride, rows);
    spans = attention_spans(j, row, rows, low, high, span);
    for (int i = 0; i < spans && !j->bf16; i++)
        score_keys(j, score + (span[i].first - low), n, q, rows, span[i], kv, &bytes,
                   thread);
    for (size_t i = 0; i < rows; i++) {
        size_t first, end;
        float *s = score + i * n;

        attention_visible(j, j->step->start + row + i, &first, &end);
        if (first == end)
            first = end = low;
        bias_add(j, head, j->step->start + row + i, s + (first - low), first,
                 end - first);
        attention_set_lse(j, row + i, head,
                          softmax_scores(s + (first - low), end - first,
                                         (float)j->inst->attention.scale,
                                         (float)j->inst->attention.softcap,
                                         bias_sink(j, row + i, head)));
        memset(s, 0, (first - low) * sizeof(*s));
        memset(s + (end - low), 0, (high - end) * sizeof(*s));
    }
    return n;
}

static bool has_keys(const struct attention_span *span, int n, size_t first, size_t end)
{
    for (int i = 0; i < n; i++)
        if (span[i].first < end && first < span[i].end)
            return true;
    return false;
}

/* Attention of ROWS queries from ROW on; SCORE is [BLOCK][attention_room_of_keys], PART
 * [BLOCK][value_dim]. */
static void queries(const struct attention_job *j, size_t row, size_t rows, size_t head,
                    size_t kv, float *score, float *part, int thread)
{
    size_t value_dim = j->inst->attention.value_dim, low = 0;
    size_t n = prefill_weigh(j, row, rows, head, kv, score, thread, &low);
    float *y = j->y + row * j->y_stride + head * value_dim;
    struct attention_span span[3];
    int spans = attention_spans(j, row, rows, low, low + n, span);

    attention_drop(j, row, rows, head, score, low, n);
    for (size_t i = 0; i < rows; i++)
        memset(y + i * j->y_stride, 0, value_dim * sizeof(*y));
    if (j->bf16 && n)
        prefill_bf16_values(j->bf16, thread, y, j->y_stride, score, n, rows, kv,
                            low / AMX_SIDE, n / AMX_SIDE);
    for (size_t at = low, end; at < low + n && !j->bf16; at = end) {
        end = attention_part_end(j, at, low + n);
        if (!has_keys(span, spans, at, end))
            continue;
        sum_values(j, part, score + (at - low), n, rows, at, end, kv, thread);
        for (size_t i = 0; i < rows; i++)
            attention_add_part(y + i * j->y_stride, part + i * value_dim, value_dim);
    }
    bias_add_own_values(j, row, rows, head);
}

/* Task: block of queries TASK / heads of head TASK % heads. */
void prefill_queries(void *arg, size_t task, int thread)
{
    const struct attention_job *j = arg;
    size_t heads = j->inst->attention.heads;
    size_t row = task / heads * j->block, head = task % heads;
    size_t rows = j->step->rows - row < j->block ? j->step->rows - row : j->block;
    size_t kv = head / (heads / j->inst->attention.kv_heads);
    float *score = j->score + (size_t)thread * j->block * attention_room_of_keys(j);

    queries(j, row, rows, head, kv, score,
            j->part + (size_t)thread * j->block * j->inst->attention.value_dim, thread);
}

/* Lays the panel of keys from FIRST on, or of values, of a KV head out for tiles. */
static void set_panel(const struct attention_job *j, const struct kv_rows *k, size_t kv,
                      size_t panel, float *wide)
{
    size_t first = panel * AMX_SIDE, left = j->step->keys - first;
    size_t n = left < AMX_SIDE ? left : AMX_SIDE;

    for (size_t r = 0; r < j->runs; r++) {
        size_t key, some = attention_keys_in(&j->run[r], first, first + n, &key);
        size_t row = j->run[r].row + key - j->run[r].key;
        float *to = wide + (key - first) * k->dim;

        if (!some)
            continue;
        kv_rows_widen(to, k, kv, row, some);
        for (size_t i = 0; i < some * k->dim && k->scales && k->by_head; i++)
            to[i] *= kv_rows_scale(k, row + i / k->dim, kv);
    }
    (k == &j->keys ? prefill_bf16_set_keys : prefill_bf16_set_values)(j->bf16, kv,
                                                                      panel, wide, n);
}

/* Task: panel TASK / kv_heads of KV head TASK % kv_heads. */
static void lay_out(void *arg, size_t task, int thread)
{
    const struct attention_job *j = arg;
    size_t kv_heads = j->inst->attention.kv_heads;

    set_panel(j, &j->keys, task % kv_heads, task / kv_heads, attention_wide(j, thread));
    set_panel(j, &j->values, task % kv_heads, task / kv_heads,
              attention_wide(j, thread));
}

/* May products be rounded, and are there so many queries that laying keys and values
 * out for tiles is worth while? */
bool prefill_wants_bf16(const struct attention_step *s)
{
    return s->rounded && s->rows >= ROUNDED && bf16tile_has();
}

/* Lays them out. */
int prefill_open_bf16(struct attention_job *j, struct device *d, struct prefill_bf16 *t,
                      struct err *err)
{
    const struct inst *inst = j->inst;

    if (prefill_bf16_open(t, inst->attention.kv_heads, inst->attention.head_dim,
                          inst->attention.value_dim, j->step->keys, BLOCK, d, err) < 0)
        return -1;
    j->bf16 = t;
    cpu_parallel(d, t->panels * t->heads, lay_out, j);
    return 0;
}
