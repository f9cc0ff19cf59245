/* attention - softmax(scale * q k^T) v over the keys each query may see
 *
 * Vaswani et al. 2017, eq. 1; heads in groups share keys and values (Ainslie et al.
 * 2023).  A task is a block of queries of one head: two matrix products with a row-wise
 * softmax between them.  Each score is summed separately and values are added key by
 * key, so a query's result depends neither on the other queries of its step nor on how
 * the cache is laid out. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/attention/decode-int8.h"
#include "lib/cpu/attention/decode-float.h"
#include "lib/cpu/attention/prefill-bf16.h"
#include "lib/cpu/simd/vec.h"

enum {
    BLOCK = 64,   /* queries per task */
    STRETCH = 12, /* keys that all heads of one query read before the next keys, if the
                   * rows are converted; at most WIDE */
    WIDE = 64,    /* cached keys that are converted to f32 at a time */
    PART = DECODE_INT8_PART, /* positions whose values are added up by themselves, and
                              * then to the sum of those before, so that threads can
                              * share the keys of a query */
    ROUNDED = 32,   /* queries for which keys and values are laid out for tiles */
    SMALL = 1 << 14 /* numbers of keys that one thread reads sooner than several */
};

/* Scales the scores, caps them unless CAP is 0, and returns the largest. */
CPU_CLONES static float scale_scores(float *s, size_t n, float scale, float cap)
{
    float max = -INFINITY;
    vec most = { 0 };
    size_t i = 0;

    most += max;
    for (; i + VEC <= n; i += VEC) {
        vec v;

        vec_load_f32(&v, s + i);
        v *= scale;
        if (cap > 0)
            vec_cap(&v, cap);
        memcpy(s + i, &v, sizeof(v));
        vec_raise(&most, &v);
    }
    max = vec_largest(&most, max);
    for (; i < n; i++) {
        s[i] *= scale;
        if (cap > 0)
            s[i] = cap * tanhf(s[i] / cap);
        max = s[i] > max ? s[i] : max;
    }
    return max;
}

/* Replaces the scores S[n] by weights, which sum to 1 together with the weight of SINK
 * (-INFINITY: no sink).  Returns the log of the sum of exponentials. */
CPU_CLONES static float softmax(float *s, size_t n, float scale, float cap, float sink)
{
    float max = scale_scores(s, n, scale, cap), factor;
    vec_double low = { 0 }, high = { 0 };
    double sum = 0;
    size_t i = 0;

    if (sink > max)
        max = sink;
    if (sink > -INFINITY)
        sum = (double)expf(sink - max);

    for (; i + VEC <= n; i += VEC) {
        vec_half half[2];
        vec v;

        vec_load_f32(&v, s + i);
        v -= max;
        vec_exp(&v, &v);
        memcpy(s + i, &v, sizeof(v));
        memcpy(half, &v, sizeof(half));
        low += __builtin_convertvector(half[0], vec_double);
        high += __builtin_convertvector(half[1], vec_double);
    }
    low += high;
    for (int k = 0; k < VEC / 2; k++)
        sum += low[k];
    for (; i < n; i++) {
        s[i] = expf(s[i] - max);
        sum += (double)s[i];
    }
    factor = (float)(1 / sum);
    for (i = 0; i + VEC <= n; i += VEC) {
        vec v;

        vec_load_f32(&v, s + i);
        v *= factor;
        memcpy(s + i, &v, sizeof(v));
    }
    for (; i < n; i++)
        s[i] *= factor;
    return sum > 0 ? max + (float)log(sum) : -INFINITY;
}

/* Keys whose rows are contiguous. */
struct key_run {
    size_t key, n; /* key: index of the first key; n: number of keys */
    size_t row;    /* row of the first key */
};

/* Shared by all threads. */
struct job {
    const struct inst *inst;
    const struct attention_step *step;
    const float *q;
    float *y;
    size_t q_stride, k_stride, v_stride, y_stride; /* between rows */
    size_t block;                                  /* queries of a task */
    struct kv_rows keys, values;
    size_t kv_heads; /* of a task with values, if there is a single query */
    float *score;    /* [threads][block][keys]; with a single query,
                      * [heads][score_stride(keys)] */
    void *owned;     /* NULL, or what these are in, to be released */
    float *part; /* with a single query, [PARTs][heads][value_dim]: sums of values; else
                  * [threads][block][value_dim] */
    struct key_run *run; /* [runs] */
    size_t runs;
    float *sink;    /* [heads]: attention sinks; or NULL */
    float *own;     /* [rows][heads]: scores, then weights, of the queries' own keys; or
                     * NULL */
    size_t *bucket; /* [distances]: of a query's own biases, query - key; or NULL */
    float *bias;    /* [heads][distances], divided by the scale; or NULL */
    int64_t least;  /* the smallest distance, key - query */
    size_t distances;
    float *wide; /* [threads][WIDE][the larger of dim and value_dim], or NULL */
    struct decode_int8_queries bytes; /* keys of 8 bits: the queries, [heads] of a
                                       * single one, else [threads][block] */
    char *sums; /* values of 8 bits: a struct decode_int8_sum of each thread */
    struct prefill_bf16 *bf16; /* NULL: products are made in f32 */
};

/* The keys visible to the query at POSITION: [*first, *end), which may be empty. */
static void visible(const struct job *j, size_t position, size_t *first, size_t *end)
{
    size_t window = j->inst->attention.window, base = j->step->first_key;
    size_t low = base, high = base + j->step->keys;

    if (j->inst->attention.chunked)
        window = position % window + 1;
    if (j->inst->attention.causal && position + 1 < high)
        high = position + 1;
    if (window && position + 1 > window + low)
        low = position + 1 - window;
    if (window && !j->inst->attention.causal && position + window < high)
        high = position + window;
    *first = low - base;
    *end = high > low ? high - base : *first;
}

static void set_lse(const struct job *j, size_t row, size_t head, float lse)
{
    float *own = j->own ? &j->own[row * j->inst->attention.heads + head] : NULL;

    if (j->step->lse)
        j->step->lse[row * j->inst->attention.heads + head] = lse;
    if (own)
        *own = expf(*own - lse);
}

/* ALiBi: the slope of HEAD of N heads.  With p the largest power of two that is at most
 * N, the first p heads have 2^(-8/p), 2^(-16/p), ...; the others have every second
 * slope of 2p heads (Press et al. 2022, "Train Short, Test Long", and its code). */
static double slope_of(uint64_t head, uint64_t n)
{
    uint64_t power = 1;

    while (power * 2 <= n)
        power *= 2;
    if (head < power)
        return exp2(-8.0 * (double)(head + 1) / (double)power);
    return exp2(-8.0 * (double)(2 * (head - power) + 1) / (double)(2 * power));
}

/* Index in the whole model of the rank's HEAD. */
static uint64_t global_head(const struct inst *inst, size_t head)
{
    size_t per = inst->attention.heads / inst->attention.kv_heads;

    return (inst->attention.group_start + head / per) * inst->attention.per_group +
           inst->attention.within_start + head % per;
}

/* The score of the key without a value or, before set_lse, of the key that only query
 * ROW sees; -INFINITY: none. */
static float sink_of(const struct job *j, size_t row, size_t head)
{
    return j->own    ? j->own[row * j->inst->attention.heads + head]
           : j->sink ? j->sink[head]
                     : -INFINITY;
}

/* Converts the sinks of this instruction's heads to f32. */
static int open_sinks(struct job *j, struct err *err)
{
    const struct matrix *m = j->step->sinks;
    const struct inst *inst = j->inst;
    size_t per = inst->attention.heads / inst->attention.kv_heads;
    size_t unit = (size_t)dtype_bits(m->dtype) / 8;

    j->sink = mem_alloc(inst->attention.heads * sizeof(float), "attention sinks", err);
    for (size_t h = 0; h < inst->attention.heads && j->sink; h++) {
        size_t at = (inst->attention.sink_group + h / per) * inst->attention.sink_per +
                    inst->attention.sink_within + h % per;

        dtype_to_f32(m->dtype, (const char *)m->data + at * unit, &j->sink[h], 1);
    }
    return j->sink ? 0 : -1;
}

/* Adds ALiBi's bias for HEAD to the unscaled scores S of the keys [FIRST, FIRST + N) of
 * the query at POSITION. */
static void add_alibi(const struct job *j, size_t head, size_t position, float *s,
                      size_t first, size_t n)
{
    double f = slope_of(global_head(j->inst, head), j->inst->attention.all_heads) *
               j->inst->attention.alibi / j->inst->attention.scale;

    first += j->step->first_key;
    for (size_t t = 0; t < n; t++)
        s[t] += (float)(f * ((double)(first + t) - (double)position));
}

/* T5's bucket of a key at DISTANCE from its query.  BOTH: half of the buckets are for
 * keys after the query.  Half of the buckets of a direction stand for one distance
 * each; the others grow logarithmically up to FAR (Raffel et al. 2020, "Exploring the
 * Limits of Transfer Learning", section 2.1, and its code). */
static size_t bucket_of(int64_t distance, size_t buckets, size_t far, bool both)
{
    size_t base = 0, exact, away;
    float f;

    if (both) {
        buckets /= 2;
        base = distance > 0 ? buckets : 0;
        away = (size_t)(distance < 0 ? -distance : distance);
    } else {
        away = distance < 0 ? (size_t)-distance : 0;
    }
    exact = buckets / 2;
    if (away < exact)
        return base + away;
    f = logf((float)away / (float)exact) / (float)log((double)far / (double)exact) *
        (float)(buckets - exact);
    away = exact + (size_t)(f > 0 ? f : 0);
    return base + (away < buckets - 1 ? away : buckets - 1);
}

/* Tabulates the bias of each distance that occurs, from (first key, last query) to
 * (last key, first query). */
static int open_bias(struct job *j, struct device *d, struct err *err)
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
    j->bias = mem_alloc(j->distances * heads * sizeof(float), "attention biases", err);
    rows = mem_alloc(j->distances * m->cols * sizeof(float), "attention biases", err);
    bucket = mem_alloc(j->distances * sizeof(*bucket), "attention biases", err);
    if (j->bias && rows && bucket) {
        for (size_t i = 0; i < j->distances; i++)
            bucket[i] =
                (int32_t)bucket_of(j->least + (int64_t)i, m->rows, inst->attention.far,
                                   !inst->attention.causal);
        cpu_embedding(d, rows, m, bucket, j->distances, 0, 0);
        for (size_t i = 0; i < j->distances; i++)
            for (size_t h = 0; h < heads; h++)
                j->bias[h * j->distances + i] =
                    rows[i * m->cols + inst->attention.bias_first + h] /
                    (float)inst->attention.scale;
    }
    ret = j->bias && rows && bucket ? 0 : -1;
    free(bucket);
    free(rows);
    return ret;
}

/* Tabulates the buckets of all distances that occur, and the scores of the queries' own
 * keys. */
static int open_stream(struct job *j, struct err *err)
{
    const struct attention_step *s = j->step;
    const struct inst *inst = j->inst;
    size_t heads = inst->attention.heads, dim = inst->attention.head_dim;
    size_t n = s->start + s->rows - s->first_key + 1;

    j->bucket = mem_alloc(n * sizeof(*j->bucket), "attention biases", err);
    if (s->own_k)
        j->own = mem_alloc(s->rows * heads * sizeof(float), "attention scores", err);
    if (!j->bucket || (s->own_k && !j->own))
        return -1;
    for (size_t i = 0; i < n; i++)
        j->bucket[i] =
            bucket_of(-(int64_t)i, inst->attention.span, inst->attention.far, false);
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
static void add_own_biases(const struct job *j, size_t head, size_t position, float *s,
                           size_t first, size_t n)
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
static void add_own_values(const struct job *j, size_t row, size_t rows, size_t head)
{
    size_t heads = j->inst->attention.heads, dim = j->inst->attention.value_dim;

    for (size_t i = row; i < row + rows && j->own; i++)
        for (size_t k = 0; k < dim; k++)
            j->y[i * j->y_stride + head * dim + k] +=
                j->own[i * heads + head] * j->step->own_v[(i * heads + head) * dim + k];
}

/* Adds the biases by distance to the scores S of the keys [FIRST, FIRST + N). */
static void add_biases(const struct job *j, size_t head, size_t position, float *s,
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
}

/* Returns how many keys of [FIRST, END) lie in RUN; *key is the first of them. */
static size_t keys_in(const struct key_run *run, size_t first, size_t end, size_t *key)
{
    size_t low = run->key > first ? run->key : first;
    size_t high = run->key + run->n < end ? run->key + run->n : end;

    *key = low;
    return high > low ? high - low : 0;
}

/* THREAD's part of WIDE. */
static float *wide_of(const struct job *j, int thread)
{
    size_t dim = j->inst->attention.head_dim, value_dim = j->inst->attention.value_dim;

    return j->wide
               ? j->wide + (size_t)thread * WIDE * (dim > value_dim ? dim : value_dim)
               : NULL;
}

/* N floats, rounded up to lines of a CPU cache. */
static size_t whole_lines(size_t n)
{
    return (n + VEC - 1) / VEC * VEC;
}

/* Scores of a query, with those that fill a panel. */
static size_t room_of_keys(const struct job *j)
{
    return amx_sides(j->step->keys) * AMX_SIDE;
}

/* X[ROWS][N], with STRIDE, times the scales of N rows from ROW on. */
static void scale_columns(float *x, size_t stride, size_t rows, const struct kv_rows *k,
                          size_t head, size_t row, size_t n)
{
    for (size_t t = 0; t < n && k->type == DTYPE_I8 && k->by_head; t++) {
        float scale = kv_rows_scale(k, row + t, head);

        for (size_t i = 0; i < rows; i++)
            x[i * stride + t] *= scale;
    }
}

/* Scores of ROWS queries, Q with Q_STRIDE, with the SOME keys from ROW on; SCORE has a
 * stride of N. */
static void score_keys(const struct job *j, float *score, size_t n, const float *q,
                       size_t q_stride, size_t rows, size_t row, size_t some, size_t kv,
                       float *wide)
{
    size_t dim = j->inst->attention.head_dim;

    if (!j->step->cached_k) {
        cpu_dots(score, n, q, q_stride, rows, j->step->k + row * j->k_stride + kv * dim,
                 j->k_stride, some, dim);
        return;
    }
    for (size_t i = 0; i < some; i += WIDE) {
        size_t m = some - i < WIDE ? some - i : WIDE;

        kv_rows_widen(wide, &j->keys, kv, row + i, m);
        cpu_dots(score + i, n, q, q_stride, rows, wide, dim, m, dim);
        scale_columns(score + i, n, rows, &j->keys, kv, row + i, m);
    }
}

/* y[ROWS][value_dim] += weights times the SOME values from ROW on.  May change the
 * weights. */
static void add_values(const struct job *j, float *y, float *score, size_t n,
                       size_t rows, size_t row, size_t some, size_t kv, float *wide)
{
    size_t first = kv * j->inst->attention.value_cols;
    size_t dim = j->inst->attention.value_dim;

    if (!j->step->cached_v) {
        cpu_add_weighted(y, dim, score, n, rows, j->step->v + row * j->v_stride + first,
                         j->v_stride, dim, some);
        return;
    }
    for (size_t i = 0; i < some; i += WIDE) {
        size_t m = some - i < WIDE ? some - i : WIDE;

        kv_rows_widen(wide, &j->values, kv, row + i, m);
        scale_columns(score + i, n, rows, &j->values, kv, row + i, m);
        cpu_add_weighted(y, dim, score + i, n, rows, wide, dim, dim, m);
    }
}

/* y[ROWS][value_dim] = the values of 8 bits of the keys [FIRST, END) of a PART, times
 * weights, whose first column is that of FIRST. */
static void sum_bytes(const struct job *j, float *y, const float *weight, size_t n,
                      size_t rows, size_t first, size_t end, size_t kv, int thread)
{
    size_t dim = j->inst->attention.value_dim;
    struct decode_int8_sum *s =
        (struct decode_int8_sum *)(void *)(j->sums +
                                           (size_t)thread * decode_int8_sum_size(dim));

    for (size_t i = 0; i < rows; i += DECODE_INT8_GROUP) {
        size_t left = rows - i;

        decode_int8_open(s, &j->values, kv,
                         left < DECODE_INT8_GROUP ? left : DECODE_INT8_GROUP);
        for (int add = 0; add < 2; add++) {
            for (size_t r = 0; r < j->runs; r++) {
                size_t key, some = keys_in(&j->run[r], first, end, &key);
                size_t row = j->run[r].row + key - j->run[r].key, at = key - first;

                if (some && add)
                    decode_int8_add(s, at, row, some);
                else if (some)
                    decode_int8_weigh(s, at, weight + i * n + at, n, row, some);
            }
            if (!add)
                decode_int8_start(s, end - first);
        }
        decode_int8_finish(y + i * dim, dim, s);
    }
}

/* y[ROWS][value_dim] = the values of the keys [FIRST, END) of a PART, times weights,
 * whose first column is that of FIRST.  May change the weights. */
static void sum_values(const struct job *j, float *y, float *weight, size_t n,
                       size_t rows, size_t first, size_t end, size_t kv, int thread)
{
    if (j->sums) {
        sum_bytes(j, y, weight, n, rows, first, end, kv, thread);
        return;
    }
    memset(y, 0, rows * j->inst->attention.value_dim * sizeof(*y));
    for (size_t r = 0; r < j->runs; r++) {
        size_t key, some = keys_in(&j->run[r], first, end, &key);

        if (some)
            add_values(j, y, weight + (key - first), n, rows,
                       j->run[r].row + key - j->run[r].key, some, kv,
                       wide_of(j, thread));
    }
}

/* The rounded queries from AT on; without any if keys are not of 8 bits. */
static struct decode_int8_queries bytes_from(const struct job *j, size_t at)
{
    struct decode_int8_queries q = j->bytes;

    if (q.term) {
        q.term += at * decode_int8_terms(q.dim);
        q.scale += at;
    }
    return q;
}

/* Computes the attention weights of ROWS queries from ROW on over the keys that at
 * least one of them sees, or more: returns their number N, *first_key is the first.  N
 * is 0 if no key is visible.  SCORE is [BLOCK][room_of_keys]. */
static size_t weigh(const struct job *j, size_t row, size_t rows, size_t head,
                    size_t kv, float *score, int thread, size_t *first_key)
{
    size_t dim = j->inst->attention.head_dim;
    size_t low = j->step->keys, high = 0, n;
    const float *q = j->q + row * j->q_stride + head * dim;
    struct decode_int8_queries bytes;

    for (size_t i = 0; i < rows; i++) {
        size_t first, end;

        visible(j, j->step->start + row + i, &first, &end);
        if (first == end)
            continue;
        low = first < low ? first : low;
        high = end > high ? end : high;
    }
    for (size_t i = 0; i < rows && low >= high; i++)
        set_lse(j, row + i, head, sink_of(j, row + i, head));
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
    bytes = bytes_from(j, (size_t)thread * j->block);
    if (bytes.term && !j->bf16)
        decode_int8_round(&bytes, 0, q, j->q_stride, rows);
    for (size_t r = 0; r < j->runs && !j->bf16; r++) {
        size_t key, some = keys_in(&j->run[r], low, high, &key);
        size_t from = j->run[r].row + key - j->run[r].key;

        if (some && bytes.term)
            decode_int8_dots(&(struct decode_int8_dots){ .score = score + (key - low),
                                                         .stride = n,
                                                         .query = &bytes,
                                                         .k = &j->keys,
                                                         .group = rows,
                                                         .head = kv,
                                                         .heads = 1,
                                                         .first = from,
                                                         .n = some });
        else if (some)
            score_keys(j, score + (key - low), n, q, j->q_stride, rows, from, some, kv,
                       wide_of(j, thread));
    }
    for (size_t i = 0; i < rows; i++) {
        size_t first, end;
        float *s = score + i * n;

        visible(j, j->step->start + row + i, &first, &end);
        if (first == end)
            first = end = low;
        add_biases(j, head, j->step->start + row + i, s + (first - low), first,
                   end - first);
        set_lse(j, row + i, head,
                softmax(s + (first - low), end - first, (float)j->inst->attention.scale,
                        (float)j->inst->attention.softcap, sink_of(j, row + i, head)));
        memset(s, 0, (first - low) * sizeof(*s));
        memset(s + (end - low), 0, (high - end) * sizeof(*s));
    }
    return n;
}

/* Applies dropout to the weights, or their gradients, of ROWS queries from ROW on over
 * N keys from LOW on. */
static void drop(const struct job *j, size_t row, size_t rows, size_t head,
                 float *score, size_t low, size_t n)
{
    const struct inst *inst = j->inst;

    for (size_t i = 0; i < rows && inst->attention.drop > 0; i++)
        cpu_drop(score + i * n, j->step->first_key + low, n, inst->attention.drop,
                 j->step->seed ^ inst->attention.site, j->step->token[row + i],
                 (uint32_t)global_head(inst, head) + 1);
}

/* The end of the PART of positions that KEY is in, or END if that is before. */
static size_t part_end(const struct job *j, size_t key, size_t end)
{
    size_t next = PART - (j->step->first_key + key) % PART;

    return end - key < next ? end : key + next;
}

CPU_CLONES static void add_part(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* Attention of ROWS queries from ROW on; SCORE is [BLOCK][room_of_keys], PART
 * [BLOCK][value_dim]. */
static void queries(const struct job *j, size_t row, size_t rows, size_t head,
                    size_t kv, float *score, float *part, int thread)
{
    size_t value_dim = j->inst->attention.value_dim, low = 0;
    size_t n = weigh(j, row, rows, head, kv, score, thread, &low);
    float *y = j->y + row * j->y_stride + head * value_dim;

    drop(j, row, rows, head, score, low, n);
    for (size_t i = 0; i < rows; i++)
        memset(y + i * j->y_stride, 0, value_dim * sizeof(*y));
    if (j->bf16 && n)
        prefill_bf16_values(j->bf16, thread, y, j->y_stride, score, n, rows, kv,
                            low / AMX_SIDE, n / AMX_SIDE);
    for (size_t at = low, end; at < low + n && !j->bf16; at = end) {
        end = part_end(j, at, low + n);
        sum_values(j, part, score + (at - low), n, rows, at, end, kv, thread);
        for (size_t i = 0; i < rows; i++)
            add_part(y + i * j->y_stride, part + i * value_dim, value_dim);
    }
    add_own_values(j, row, rows, head);
}

/* Task: block of queries TASK / heads of head TASK % heads. */
static void some_queries(void *arg, size_t task, int thread)
{
    const struct job *j = arg;
    size_t heads = j->inst->attention.heads;
    size_t row = task / heads * j->block, head = task % heads;
    size_t rows = j->step->rows - row < j->block ? j->step->rows - row : j->block;
    size_t kv = head / (heads / j->inst->attention.kv_heads);
    float *score = j->score + (size_t)thread * j->block * room_of_keys(j);

    queries(j, row, rows, head, kv, score,
            j->part + (size_t)thread * j->block * j->inst->attention.value_dim, thread);
}

/* Lays the panel of keys from FIRST on, or of values, of a KV head out for tiles. */
static void set_panel(const struct job *j, const struct kv_rows *k, size_t kv,
                      size_t panel, float *wide)
{
    size_t first = panel * AMX_SIDE, left = j->step->keys - first;
    size_t n = left < AMX_SIDE ? left : AMX_SIDE;

    for (size_t r = 0; r < j->runs; r++) {
        size_t key, some = keys_in(&j->run[r], first, first + n, &key);
        size_t row = j->run[r].row + key - j->run[r].key;
        float *to = wide + (key - first) * k->dim;

        if (!some)
            continue;
        kv_rows_widen(to, k, kv, row, some);
        for (size_t i = 0; i < some * k->dim && k->type == DTYPE_I8 && k->by_head; i++)
            to[i] *= kv_rows_scale(k, row + i / k->dim, kv);
    }
    (k == &j->keys ? prefill_bf16_set_keys : prefill_bf16_set_values)(j->bf16, kv,
                                                                      panel, wide, n);
}

/* Task: panel TASK / kv_heads of KV head TASK % kv_heads. */
static void lay_out(void *arg, size_t task, int thread)
{
    const struct job *j = arg;
    size_t kv_heads = j->inst->attention.kv_heads;

    set_panel(j, &j->keys, task % kv_heads, task / kv_heads, wide_of(j, thread));
    set_panel(j, &j->values, task % kv_heads, task / kv_heads, wide_of(j, thread));
}

/* May products be rounded, and are there so many queries that laying keys and values
 * out for tiles is worth while? */
static bool wants_bf16(const struct attention_step *s)
{
    return s->rounded && s->rows >= ROUNDED && bf16tile_has();
}

/* Lays them out. */
static int open_bf16(struct job *j, struct device *d, struct prefill_bf16 *t,
                     struct err *err)
{
    const struct inst *inst = j->inst;

    if (prefill_bf16_open(t, inst->attention.kv_heads, inst->attention.head_dim,
                          inst->attention.value_dim, j->step->keys, BLOCK,
                          (size_t)cpu_threads(d), err) < 0)
        return -1;
    j->bf16 = t;
    cpu_parallel(d, t->panels * t->heads, lay_out, j);
    return 0;
}

/* ---- one query ---- */

/* Stride of the score rows of two heads over N keys; not a multiple of 4096 bytes,
 * because then one key's scores would all map to one cache set. */
static size_t score_stride(size_t n)
{
    return whole_lines(n) + VEC;
}

/* The keys that the single query sees. */
static size_t all_keys(const struct job *j, size_t *low)
{
    size_t high;

    visible(j, j->step->start, low, &high);
    return high > *low ? high - *low : 0;
}

/* A single query has tasks of four kinds: scores of some keys, for all heads; weights
 * of a head; sums of the values of a PART, of some KV heads with all their query heads;
 * and the sum of a head's PARTs.  So each row is read by one thread only, but for rows
 * of more KV heads than a task has. */
static size_t portions(const struct job *j)
{
    return (j->inst->attention.kv_heads + j->kv_heads - 1) / j->kv_heads;
}

static size_t parts(const struct job *j)
{
    size_t low, n = all_keys(j, &low), first = (j->step->first_key + low) / PART;

    return n ? (j->step->first_key + low + n - 1) / PART - first + 1 : 0;
}

/* What a task does with SOME rows from ROW on, which are the keys from KEY on counted
 * from the first visible one; KV HEADS from KV on. */
typedef void rows_task(const struct job *j, size_t key, size_t row, size_t some,
                       size_t kv, size_t heads, float *y, float *wide);

/* Calls RUN for the contiguous rows of [FIRST, END), MOST at a time. */
static void each_rows(const struct job *j, size_t first, size_t end, size_t most,
                      size_t kv, size_t heads, float *y, float *wide, rows_task *run)
{
    size_t low;

    (void)all_keys(j, &low);
    for (size_t r = 0; r < j->runs; r++) {
        size_t key, some = keys_in(&j->run[r], first, end, &key);

        for (size_t at = 0, n; at < some; at += n) {
            n = some - at < most ? some - at : most;
            run(j, key + at - low, j->run[r].row + key + at - j->run[r].key, n, kv,
                heads, y, wide);
        }
    }
}

static size_t group_of(const struct job *j)
{
    return j->inst->attention.heads / j->inst->attention.kv_heads;
}

static void score_rows(const struct job *j, size_t key, size_t row, size_t some,
                       size_t kv, size_t heads, float *y, float *wide)
{
    size_t low, stride = score_stride(all_keys(j, &low)), group = group_of(j);
    size_t dim = j->inst->attention.head_dim;

    (void)y;
    if (j->bytes.term) {
        struct decode_int8_queries bytes = bytes_from(j, kv * group);

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
        score_keys(j, j->score + h * group * stride + key, stride,
                   j->q + h * group * dim, dim, group, row, some, h, wide);
}

static void sum_rows(const struct job *j, size_t key, size_t row, size_t some,
                     size_t kv, size_t heads, float *y, float *wide)
{
    size_t low, stride = score_stride(all_keys(j, &low)), group = group_of(j);

    if (decode_float_has(&j->values)) {
        decode_float_add(y, j->score + key, stride, group, &j->values, kv, heads, row,
                         some);
        return;
    }
    for (size_t h = kv; h < kv + heads; h++)
        add_values(j, y + h * group * j->inst->attention.value_dim,
                   j->score + h * group * stride + key, stride, group, row, some, h,
                   wide);
}

/* Rows that a task reads before it turns to the next ones. */
static size_t stretch_of(const struct kv_rows *k)
{
    return decode_float_has(k) || decode_int8_has(k) ? PART : STRETCH;
}

/* Task: scores of some keys. */
static void score_part(void *arg, size_t task, int thread)
{
    const struct job *j = arg;
    size_t low, n = all_keys(j, &low), first = task * PART;
    size_t some = n - first < PART ? n - first : PART;

    each_rows(j, low + first, low + first + some, stretch_of(&j->keys), 0,
              j->inst->attention.kv_heads, NULL, wide_of(j, thread), score_rows);
}

/* Task: the weights of a head. */
static void weigh_head(void *arg, size_t head, int thread)
{
    const struct job *j = arg;
    size_t low, n = all_keys(j, &low);
    float *own = j->score + head * score_stride(n);

    (void)thread;
    if (!n) {
        set_lse(j, 0, head, sink_of(j, 0, head));
        return;
    }
    add_biases(j, head, j->step->start, own, low, n);
    set_lse(j, 0, head,
            softmax(own, n, (float)j->inst->attention.scale,
                    (float)j->inst->attention.softcap, sink_of(j, 0, head)));
    drop(j, 0, 1, head, own, low, n);
}

/* Task: the sum of a PART's values, of some KV heads. */
static void sum_part(void *arg, size_t task, int thread)
{
    const struct job *j = arg;
    size_t low, n = all_keys(j, &low), part = task / portions(j);
    size_t kv = task % portions(j) * j->kv_heads, base = j->step->first_key;
    size_t left = j->inst->attention.kv_heads - kv;
    size_t kvs = left < j->kv_heads ? left : j->kv_heads;
    size_t dim = j->inst->attention.value_dim, group = group_of(j);
    size_t start = ((base + low) / PART + part) * PART;
    size_t first = part ? start - base : low;
    size_t end = part_end(j, first, low + n), stride = score_stride(n);
    float *y = j->part + part * j->inst->attention.heads * dim;

    if (j->sums) {
        for (size_t h = kv; h < kv + kvs; h++)
            sum_bytes(j, y + h * group * dim,
                      j->score + h * group * stride + (first - low), stride, group,
                      first, end, h, thread);
        return;
    }
    memset(y + kv * group * dim, 0, kvs * group * dim * sizeof(*y));
    each_rows(j, first, end, stretch_of(&j->values), kv, kvs, y, wide_of(j, thread),
              sum_rows);
}

/* Task: the sum of a head's PARTs, in order. */
static void sum_parts(void *arg, size_t head, int thread)
{
    const struct job *j = arg;
    size_t dim = j->inst->attention.value_dim, all = parts(j);

    (void)thread;
    memset(j->y + head * dim, 0, dim * sizeof(*j->y));
    for (size_t i = 0; i < all; i++)
        add_part(j->y + head * dim,
                 j->part + (i * j->inst->attention.heads + head) * dim, dim);
    add_own_values(j, 0, 1, head);
}

/* Runs RUN in TASKS tasks: on D's threads, or on this one if there is little to do. */
static void share_query(struct device *d, struct job *j, size_t tasks, bool little,
                        cpu_task *run)
{
    for (size_t i = 0; i < tasks && little; i++)
        run(j, i, 0);
    if (!little)
        cpu_parallel(d, tasks, run, j);
}

/* Attention of a single query. */
static void one_query(struct device *d, struct job *j)
{
    size_t low, n = all_keys(j, &low), kv_heads = j->inst->attention.kv_heads;
    size_t tasks = 4 * (size_t)cpu_threads(d), all = parts(j), shares;
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

/* Finds the contiguous rows: one run without block table, else one for each group of
 * adjacent blocks. */
static int open_runs(struct job *j, struct err *err)
{
    const struct attention_step *s = j->step;
    size_t most = s->block ? s->keys / s->block_rows + 2 : 1;

    j->run = mem_alloc(most * sizeof(*j->run), "runs of keys", err);
    if (!j->run)
        return -1;
    if (!s->block)
        j->run[j->runs++] = (struct key_run){ 0, s->keys, s->key_row };
    for (size_t key = 0; s->block && key < s->keys;) {
        size_t at = s->key_row + key, in = at % s->block_rows;
        size_t n = s->block_rows - in, left = s->keys - key;
        size_t row = (size_t)s->block[at / s->block_rows] * s->block_rows + in;
        struct key_run *last = j->runs ? &j->run[j->runs - 1] : NULL;

        n = n < left ? n : left;
        if (last && last->row + last->n == row)
            last->n += n;
        else
            j->run[j->runs++] = (struct key_run){ key, n, row };
        key += n;
    }
    return 0;
}

/* Memory for scores and sums of values, and what 8 bits need: the device's own for a
 * single query. */
static int open_room(struct job *j, struct device *d, struct err *err)
{
    size_t heads = j->inst->attention.heads, keys = j->step->keys;
    size_t threads = (size_t)cpu_threads(d), dim = j->inst->attention.value_dim;
    bool one = j->step->rows == 1;
    uint64_t queries = !decode_int8_has(&j->keys) ? 0
                       : one                      ? heads
                                                  : threads * j->block;
    uint64_t terms = decode_int8_terms(j->inst->attention.head_dim);
    uint64_t scores = whole_lines(one ? heads * score_stride(keys)
                                      : threads * j->block * room_of_keys(j));
    uint64_t sums = whole_lines((one ? parts(j) * heads : threads * j->block) * dim);
    uint64_t of_bytes =
        decode_int8_has(&j->values) ? threads * decode_int8_sum_size(dim) : 0;
    uint64_t bytes = of_bytes + (scores + sums + whole_lines(queries)) * sizeof(float) +
                     queries * terms * sizeof(*j->bytes.term);
    char *room = one ? cpu_room(d, bytes, "attention scores", err)
                     : mem_alloc(bytes, "attention scores", err);

    if (!room)
        return -1;
    j->owned = one ? NULL : room;
    j->sums = of_bytes ? room : NULL;
    j->score = (float *)(void *)(room + of_bytes);
    j->part = j->score + scores;
    if (queries) {
        j->bytes.dim = j->inst->attention.head_dim;
        j->bytes.scale = j->part + sums;
        j->bytes.term = (int16_t *)(void *)(j->bytes.scale + whole_lines(queries));
    }
    return 0;
}

int cpu_attention(struct device *d, float *y, const float *q, const struct inst *inst,
                  const struct attention_step *step, struct err *err)
{
    size_t heads = inst->attention.heads, kv_heads = inst->attention.kv_heads;
    size_t dim = inst->attention.head_dim, value_dim = inst->attention.value_dim;
    struct prefill_bf16 bf16 = { 0 };
    struct job j = { .inst = inst,
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
    if (open_runs(&j, err) < 0 || (step->bias && open_bias(&j, d, err) < 0) ||
        (step->sinks && open_sinks(&j, err) < 0) ||
        (step->biases && open_stream(&j, err) < 0))
        goto out;
    if (open_room(&j, d, err) < 0)
        goto out;
    if (step->cached_k || step->cached_v || wants_bf16(step)) {
        j.wide = mem_alloc((uint64_t)cpu_threads(d) * WIDE *
                               (dim > value_dim ? dim : value_dim) * sizeof(float),
                           "keys and values", err);
        if (!j.wide)
            goto out;
    }
    if (wants_bf16(step) && open_bf16(&j, d, &bf16, err) < 0)
        goto out;
    if (step->rows == 1)
        one_query(d, &j);
    else
        cpu_parallel(d, (step->rows + j.block - 1) / j.block * heads, some_queries, &j);
    ret = 0;
out:
    free(j.run);
    free(j.owned);
    free(j.wide);
    free(j.bias);
    free(j.sink);
    free(j.own);
    free(j.bucket);
    prefill_bf16_close(&bf16);
    return ret;
}

/* ---- backward pass ---- */

/* Shared by all threads in the backward pass. */
struct back {
    struct job j; /* y receives the gradients */
    const float *d;
    size_t d_stride;
    float *lse;     /* [rows][heads] */
    float *weights; /* [threads][2][BLOCK][keys]: weights, and their gradients */
    float *own;     /* [heads][keys][dim + value_dim]: a head's contribution to the
                     * gradients of k and v */
    size_t k_at, v_at, sink_at; /* columns of y: gradients of k, v and the sinks */
    atomic_bool *lost;          /* a product failed */
};

/* Replaces the gradients DS of the weights P by the gradients of the scaled products:
 * ds = p (dp - sum of p dp), times the derivative of the cap, if any (the score is log
 * p + LSE).  Returns the sum of p dp. */
static double weights_back(const struct back *b, float *ds, const float *p, size_t n,
                           float lse)
{
    float cap = (float)b->j.inst->attention.softcap;
    float scale = (float)b->j.inst->attention.scale;
    double delta = 0;

    for (size_t k = 0; k < n; k++)
        delta += (double)p[k] * (double)ds[k];
    for (size_t k = 0; k < n; k++) {
        float s = cap > 0 && p[k] > 0 ? (logf(p[k]) + lse) / cap : 0;

        ds[k] = scale * p[k] * (float)((double)ds[k] - delta) * (1 - s * s);
    }
    return delta;
}

/* Task: one head, block by block of queries. */
static void head_back(void *arg, size_t head, int thread)
{
    const struct back *b = arg;
    const struct job *j = &b->j;
    size_t dim = j->inst->attention.head_dim, value_dim = j->inst->attention.value_dim;
    size_t keys = j->step->keys, both = dim + value_dim;
    size_t kv = head / (j->inst->attention.heads / j->inst->attention.kv_heads);
    float *p = b->weights + (size_t)thread * 2 * BLOCK * keys, *ds = p + BLOCK * keys;
    float *own = b->own + head * keys * both;

    memset(own, 0, keys * both * sizeof(*own));
    for (size_t row = 0; row < j->step->rows; row += BLOCK) {
        size_t left = j->step->rows - row, rows = left < BLOCK ? left : BLOCK;
        size_t low = 0, n = weigh(j, row, rows, head, kv, p, thread, &low);
        const float *k = j->step->k + low * j->k_stride + kv * dim;
        const float *v =
            j->step->v + low * j->v_stride + kv * j->inst->attention.value_cols;
        const float *q = j->q + row * j->q_stride + head * dim;
        const float *d = b->d + row * b->d_stride + head * value_dim;
        float *dq = j->y + row * j->y_stride + head * dim;

        for (size_t i = 0; i < rows; i++)
            memset(dq + i * j->y_stride, 0, dim * sizeof(*dq));
        for (size_t i = 0; i < rows && j->sink; i++)
            j->y[(row + i) * j->y_stride + b->sink_at + head] = 0;
        if (!n)
            continue;
        cpu_dots(ds, n, d, b->d_stride, rows, v, j->v_stride, n, value_dim);
        drop(j, row, rows, head, ds, low, n);
        for (size_t i = 0; i < rows; i++) {
            float lse = b->lse[(row + i) * j->inst->attention.heads + head];
            double delta = weights_back(b, ds + i * n, p + i * n, n, lse);

            if (j->sink) /* the sink's value vector is 0 */
                j->y[(row + i) * j->y_stride + b->sink_at + head] =
                    -expf(j->sink[head] - lse) * (float)delta;
        }
        cpu_add_weighted(dq, j->y_stride, ds, n, rows, k, j->k_stride, dim, n);
        own += low * both;
        if (!cpu_outer(own, both, ds, n, n, q, j->q_stride, dim, rows))
            atomic_store(b->lost, true);
        drop(j, row, rows, head, p, low, n);
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
    memset(y + b->k_at, 0, b->j.k_stride * sizeof(*y));
    memset(y + b->v_at, 0, b->j.v_stride * sizeof(*y));
    for (size_t h = 0; h < inst->attention.heads; h++) {
        const float *own = b->own + (h * b->j.step->keys + row) * (dim + value_dim);

        add_scaled(y + b->k_at + h / per * dim, own, 1, dim);
        add_scaled(y + b->v_at + h / per * inst->attention.value_cols, own + dim, 1,
                   value_dim);
    }
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
                      .lost = &lost };
    int ret = -1;

    if (!heads || !step->rows)
        return 0;
    b.k_at = b.j.q_stride;
    b.v_at = b.k_at + b.j.k_stride;
    b.sink_at = b.v_at + b.j.v_stride;
    b.lse = mem_alloc(step->rows * heads * sizeof(float), "attention scores", err);
    b.weights =
        mem_alloc((uint64_t)cpu_threads(dev) * 2 * BLOCK * step->keys * sizeof(float),
                  "attention scores", err);
    b.own =
        mem_alloc(heads * step->keys * both * sizeof(float), "gradients of keys", err);
    if (!b.lse || !b.weights || !b.own || open_runs(&b.j, err) < 0 ||
        (step->sinks && open_sinks(&b.j, err) < 0))
        goto out;
    own.lse = b.lse;
    cpu_parallel(dev, heads, head_back, &b);
    cpu_parallel(dev, step->keys, add_heads, &b);
    ret = lost ? err_set(err, ERR_SYSTEM, CPU_OUTER_LOST) : 0;
out:
    free(b.j.run);
    free(b.j.sink);
    free(b.lse);
    free(b.weights);
    free(b.own);
    return ret;
}
