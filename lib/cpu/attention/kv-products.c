/* kv-products - scores of some queries with rows of keys, and sums of rows of values,
 * which may lie in a cache of any type */
#include "lib/cpu/attention/attention.h"

/* X[ROWS][N], with STRIDE, times the scales of N rows from ROW on. */
static void scale_columns(float *x, size_t stride, size_t rows, const struct kv_rows *k,
                          size_t head, size_t row, size_t n)
{
    for (size_t t = 0; t < n && k->scales && k->by_head; t++) {
        float scale = kv_rows_scale(k, row + t, head);

        for (size_t i = 0; i < rows; i++)
            x[i * stride + t] *= scale;
    }
}

/* Scores of ROWS queries, Q with Q_STRIDE, with the SOME keys from ROW on; SCORE has a
 * stride of N. */
void kv_products_score(const struct attention_job *j, float *score, size_t n,
                       const float *q, size_t q_stride, size_t rows, size_t row,
                       size_t some, size_t kv, float *wide)
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
void kv_products_add(const struct attention_job *j, float *y, float *score, size_t n,
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
void kv_products_sum_int8(const struct attention_job *j, float *y, const float *weight,
                          size_t n, size_t rows, size_t first, size_t end, size_t kv,
                          int thread)
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
                size_t key, some = attention_keys_in(&j->run[r], first, end, &key);
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

/* The rounded queries from AT on; without any if keys are not of 8 bits. */
struct decode_int8_queries kv_products_queries(const struct attention_job *j, size_t at)
{
    struct decode_int8_queries q = j->bytes;

    if (q.term) {
        q.term += at * decode_int8_terms(q.dim);
        q.scale += at;
    }
    return q;
}
