/* decode-int8 - attention over keys and values of 8 bits, by products of integers
 *
 * The terms of a query are rounded to 16 bits, relative to its largest; the weights of
 * up to DECODE_INT8_PART keys, each times the scale of its values, to 23 bits, relative
 * to the largest.  Sums of their products with codes are then exact in any order: a
 * query has the same result alone and among others. */
#ifndef LIB_CPU_ATTENTION_DECODE_INT8_H
#define LIB_CPU_ATTENTION_DECODE_INT8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/cpu/cache/kv-rows.h"
#include "lib/cpu/simd/vec.h"

enum {
    DECODE_INT8_PART = 512, /* keys whose weights are rounded together, at most */
    DECODE_INT8_GROUP = 4,  /* queries whose weights are used together, at most */
    DECODE_INT8_DIGITS = 3, /* of a weight, of 8 bits each */
    DECODE_INT8_TERMS = 64  /* rows of terms and of sums have a multiple of these */
};

/* Are rows of K read in this way?  Those of 8 bits with a scale for each head are, on
 * CPUs with AVX-512 and products of bytes (VNNI); elsewhere f32 is faster.  If they are
 * not, do not call what follows. */
bool decode_int8_has(const struct kv_rows *k);

static inline size_t decode_int8_terms(size_t dim)
{
    return (dim + DECODE_INT8_TERMS - 1) / DECODE_INT8_TERMS * DECODE_INT8_TERMS;
}

/* Rounded queries, in memory of the caller's. */
struct decode_int8_queries {
    int16_t *term; /* [queries][decode_int8_terms(dim)] */
    float *scale;  /* [queries] */
    size_t dim;
};
/* Rounds the queries Q [N][STRIDE] as those from AT on. */
void decode_int8_round(const struct decode_int8_queries *to, size_t at, const float *q,
                       size_t stride, size_t n);

/* score[h][STRIDE] = q_h . row FIRST + I, over N rows and the HEADS KV heads from HEAD
 * on, each with GROUP queries; SCORE and QUERY begin with those of HEAD. */
struct decode_int8_dots {
    float *score;
    size_t stride;
    const struct decode_int8_queries *query;
    const struct kv_rows *k;
    size_t group, head, heads, first, n;
};
void decode_int8_dots(const struct decode_int8_dots *r);

/* The values of up to DECODE_INT8_PART keys, summed with the weights, none negative, of
 * up to DECODE_INT8_GROUP queries: decode_int8_open, decode_int8_weigh for all keys,
 * decode_int8_start, decode_int8_add for all keys, decode_int8_finish. */
struct decode_int8_sum {
    const struct kv_rows *k;
    size_t head, group;
    int32_t most[DECODE_INT8_GROUP]; /* bits of the largest weights */
    float scale[DECODE_INT8_GROUP];
    float weight[DECODE_INT8_GROUP][DECODE_INT8_PART + VEC];
    uint8_t digit[DECODE_INT8_GROUP][DECODE_INT8_DIGITS][DECODE_INT8_PART + VEC];
    _Alignas(64) int32_t sum[]; /* [group][digits][decode_int8_terms(dim)] */
};
/* Bytes of one for DIM columns. */
static inline size_t decode_int8_sum_size(size_t dim)
{
    return sizeof(struct decode_int8_sum) + sizeof(int32_t) * DECODE_INT8_GROUP *
                                                DECODE_INT8_DIGITS *
                                                decode_int8_terms(dim);
}

/* Begins sums of HEAD's values for GROUP queries. */
void decode_int8_open(struct decode_int8_sum *s, const struct kv_rows *k, size_t head,
                      size_t group);
/* Weights [group][STRIDE] of the N keys from AT on, which are the rows from ROW on. */
void decode_int8_weigh(struct decode_int8_sum *s, size_t at, const float *weight,
                       size_t stride, size_t row, size_t n);
/* There are N keys. */
void decode_int8_start(struct decode_int8_sum *s, size_t n);
void decode_int8_add(struct decode_int8_sum *s, size_t at, size_t row, size_t n);
/* y[group][STRIDE] = the sums. */
void decode_int8_finish(float *y, size_t stride, const struct decode_int8_sum *s);

#endif
