/* decode - attention of a single query: each row of its keys and values is read by one
 * thread */
#include <string.h>

#include "lib/cpu/attention/attention.h"
#include "lib/cpu/attention/decode-float.h"

enum {
    STRETCH = 12, /* keys that all heads of one query read before the next keys, if the
                   * rows are converted; at most WIDE */
    SMALL = 1 << 14 /* numbers of keys that one thread reads sooner than several */
};

/* Stride of the score rows of two heads over N keys; not a multiple of 4096 bytes,
 * because then one key's scores would all map to one cache set. */
/* The keys that the single query sees. */
static size_t all_keys(const struct attention_job *j, size_t *low)
{
    size_t high;

    attention_visible(j, j->step->start, low, &high);
    return high > *low ? high - *low : 0;
}

/* A single query has tasks of four kinds: scores of some keys, for all heads; weights
 * of a head; sums of the values of a PART, of some KV heads with all their query heads;
 * and the sum of a head's PARTs.  So each row is read by one thread only, but for rows
 * of more KV heads than a task has. */
static size_t portions(const struct attention_job *j)
{
    return (j->inst->attention.kv_heads + j->kv_heads - 1) / j->kv_heads;
}

size_t decode_parts(const struct attention_job *j)
{
    size_t low, n = all_keys(j, &low), first = (j->step->first_key + low) / PART;

    return n ? (j->step->first_key + low + n - 1) / PART - first + 1 : 0;
}

/* What a task does with SOME rows from ROW on, which are the keys from KEY on counted
 * from the first visible one; KV HEADS from KV on. */
typedef void rows_task(const struct attention_job *j, size_t key, size_t row,
                       size_t some, size_t kv, size_t heads, float *y, float *wide);

/* Calls RUN for the contiguous rows of [FIRST, END), MOST at a time. */
static void each_rows(const struct attention_job *j, size_t first, size_t end,
                      size_t most, size_t kv, size_t heads, float *y, float *wide,
                      rows_task *run)
{
    size_t low;

    (void)all_keys(j, &low);
    for (size_t r = 0; r < j->runs; r++) {
        size_t key, some = attention_keys_in(&j->run[r], first, end, &key);

        for (size_t at = 0, n; at < some; at += n) {
            n = some - at < most ? some - at : most;
            run(j, key + at - low, j->run[r].row + key + at - j->run[r].key, n, kv,
                heads, y, wide);
        }
    }
}

static size_t group_of(const struct attention_job *j)
{
    return j->inst->attention.heads / j->inst->attention.kv_heads;
}

static void score_rows(const struct attention_job *j, size_t key, size_t row,
                       size_t some, size_t kv, size_t heads, float *y, float *wide)
{
    size_t low, stride = decode_score_stride(all_keys(j, &low)), group = group_of(j);
    size_t dim = j->inst->attention.head_dim;

    (void)y;
    if (j->bytes.term) {
        struct decode_int8_queries bytes = kv_products_queries(j, kv * group);

        decode_int8_dots(
            &(struct decode_int8_dots){ .score = j->score + kv * group * stride + key,
                                        .stride = stride,
                                        .query = &bytes,
                                        .k = &j->keys,
                                        .group = group,
                                        .head = kv,
                                        .heads = heads,
                                        .first = row,
                                        .n = some });
        return;
    }
    if (decode_float_has(&j->keys)) {
        decode_float_dots(j->score + key, stride, j->q, group, &j->keys, kv, heads, row,
                          some);
        return;
    }
    for (size_t h = kv; h < kv + heads; h++)
        kv_products_score(j, j->score + h * group * stride + key, stride,
                          j->q + h * group * dim, dim, group, row, some, h, wide);
}

static void sum_rows(const struct attention_job *j, size_t key, size_t row, size_t some,
                     size_t kv, size_t heads, float *y, float *wide)
{
    size_t low, stride = decode_score_stride(all_keys(j, &low)), group = group_of(j);

    if (decode_float_has(&j->values)) {
        decode_float_add(y, j->score + key, stride, group, &j->values, kv, heads, row,
                         some);
        return;
    }
    for (size_t h = kv; h < kv + heads; h++)
        kv_products_add(j, y + h * group * j->inst->attention.value_dim,
                        j->score + h * group * stride + key, stride, group, row, some,
                        h, wide);
}

/* Rows that a task reads before it turns to the next ones. */
static size_t stretch_of(const struct kv_rows *k)
{
    return decode_float_has(k) || decode_int8_has(k) ? PART : STRETCH;
}

/* Task: scores of some keys. */
static void score_part(void *arg, size_t task, int thread)
{
    const struct attention_job *j = arg;
    size_t low, n = all_keys(j, &low), first = task * PART;
    size_t some = n - first < PART ? n - first : PART;

    each_rows(j, low + first, low + first + some, stretch_of(&j->keys), 0,
              j->inst->attention.kv_heads, NULL, attention_wide(j, thread), score_rows);
}

/* Task: the weights of a head. */
static void weigh_head(void *arg, size_t head, int thread)
{
    const struct attention_job *j = arg;
    size_t low, n = all_keys(j, &low);
    float *own = j->score + head * decode_score_stride(n);

    (void)thread;
    if (!n) {
        attention_set_lse(j, 0, head, bias_sink(j, 0, head));
        return;
    }
    bias_add(j, head, j->step->start, own, low, n);
    attention_set_lse(j, 0, head,
                      softmax_scores(own, n, (float)j->inst->attention.scale,
                                     (float)j->inst->attention.softcap,
                                     bias_sink(j, 0, head)));
    attention_drop(j, 0, 1, head, own, low, n);
}

/* Task: the sum of a PART's values, of some KV heads. */
static void sum_part(void *arg, size_t task, int thread)
{
    const struct attention_job *j = arg;
    size_t low, n = all_keys(j, &low), part = task / portions(j);
    size_t kv = task % portions(j) * j->kv_heads, base = j->step->first_key;
    size_t left = j->inst->attention.kv_heads - kv;
    size_t kvs = left < j->kv_heads ? left : j->kv_heads;
    size_t dim = j->inst->attention.value_dim, group = group_of(j);
    size_t start = ((base + low) / PART + part) * PART;
    size_t first = part ? start - base : low;
    size_t end = attention_part_end(j, first, low + n), stride = decode_score_stride(n);
    float *y = j->part + part * j->inst->attention.heads * dim;

    if (j->sums) {
        for (size_t h = kv; h < kv + kvs; h++)
            kv_products_sum_int8(j, y + h * group * dim,
                                 j->score + h * group * stride + (first - low), stride,
                                 group, first, end, h, thread);
        return;
    }
    memset(y + kv * group * dim, 0, kvs * group * dim * sizeof(*y));
    each_rows(j, first, end, stretch_of(&j->values), kv, kvs, y,
              attention_wide(j, thread), sum_rows);
}

/* Task: the sum of a head's PARTs, in order. */
static void sum_parts(void *arg, size_t head, int thread)
{
    const struct attention_job *j = arg;
    size_t dim = j->inst->attention.value_dim, all = decode_parts(j);

    (void)thread;
    memset(j->y + head * dim, 0, dim * sizeof(*j->y));
    for (size_t i = 0; i < all; i++)
        attention_add_part(j->y + head * dim,
                           j->part + (i * j->inst->attention.heads + head) * dim, dim);
    bias_add_own_values(j, 0, 1, head);
}

/* Runs RUN in TASKS tasks: on D's threads, or on this one if there is little to do. */
static void share_query(struct device *d, struct attention_job *j, size_t tasks,
                        bool little, cpu_task *run)
{
    for (size_t i = 0; i < tasks && little; i++)
        run(j, i, 0);
    if (!little)
        cpu_parallel(d, tasks, run, j);
}

/* Attention of a single query. */
void decode_query(struct device *d, struct attention_job *j)
{
    size_t low, n = all_keys(j, &low), kv_heads = j->inst->attention.kv_heads;
    size_t tasks = 4 * (size_t)cpu_threads(d), all = decode_parts(j), shares;
    bool little = n * j->k_stride < SMALL;

    shares = little || !all ? 1 : (tasks + all - 1) / all;
    shares = shares < kv_heads ? shares : kv_heads;
    j->kv_heads = (kv_heads + shares - 1) / shares;
    if (j->bytes.term)
        decode_int8_round(&j->bytes, 0, j->q, j->inst->attention.head_dim,
                          j->inst->attention.heads);
    share_query(d, j, (n + PART - 1) / PART, little, score_part);
    share_query(d, j, j->inst->attention.heads, little, weigh_head);
    share_query(d, j, all * portions(j), little, sum_part);
    share_query(d, j, j->inst->attention.heads, little || all < 8, sum_parts);
}
