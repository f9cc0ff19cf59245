/* decode-int8 - attention over keys and values of 8 bits, by products of integers
 *
 * The terms of a query are rounded to 16 bits, relative to its largest; the weights of
 * up to KEYBYTES_PART keys, each times the scale of its values, to 23 bits, relative to
 * the largest.  Sums of their products with codes are then exact in any order: a query
 * has the same result alone and among others. */
#ifndef LIB_CPU_ATTENTION_DECODE_INT8_H
#define LIB_CPU_ATTENTION_DECODE_INT8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/cpu/cache/kv-rows.h"
#include "lib/cpu/simd/vec.h"

enum {
    KEYBYTES_PART = 512, /* keys whose weights are rounded together, at most */
    KEYBYTES_GROUP = 4,  /* queries whose weights are used together, at most */
    KEYBYTES_DIGITS = 3, /* of a weight, of 8 bits each */
    KEYBYTES_TERMS = 64  /* rows of terms and of sums have a multiple of these */
};

/* Are rows of K read in this way?  Those of 8 bits with a scale for each head are, on
 * CPUs with AVX-512 and products of bytes (VNNI); elsewhere f32 is faster.  If they are
 * not, do not call what follows. */
bool keybytes_are(const struct keyrows *k);

static inline size_t keybytes_terms(size_t dim)
{
    return (dim + KEYBYTES_TERMS - 1) / KEYBYTES_TERMS * KEYBYTES_TERMS;
}

/* Rounded queries, in memory of the caller's. */
struct keybytes_queries {
    int16_t *term; /* [queries][keybytes_terms(dim)] */
    float *scale;  /* [queries] */
    size_t dim;
};
/* Rounds the queries Q [N][STRIDE] as those from AT on. */
void keybytes_round(const struct keybytes_queries *to, size_t at, const float *q,
                    size_t stride, size_t n);

/* score[h][STRIDE] = q_h . row FIRST + I, over N rows and the HEADS KV heads from HEAD
 * on, each with GROUP queries; SCORE and QUERY begin with those of HEAD. */
struct keybytes_dots {
    float *score;
    size_t stride;
    const struct keybytes_queries *query;
    const struct keyrows *k;
    size_t group, head, heads, first, n;
};
void keybytes_dots(const struct keybytes_dots *r);

/* The values of up to KEYBYTES_PART keys, summed with the weights, none negative, of up
 * to KEYBYTES_GROUP queries: keybytes_open, keybytes_weigh for all keys,
 * keybytes_start, keybytes_add for all keys, keybytes_finish. */
struct keybytes_sum {
    const struct keyrows *k;
    size_t head, group;
    int32_t most[KEYBYTES_GROUP]; /* bits of the largest weights */
    float scale[KEYBYTES_GROUP];
    float weight[KEYBYTES_GROUP][KEYBYTES_PART + VEC];
    uint8_t digit[KEYBYTES_GROUP][KEYBYTES_DIGITS][KEYBYTES_PART + VEC];
    _Alignas(64) int32_t sum[]; /* [group][digits][keybytes_terms(dim)] */
};
/* Bytes of one for DIM columns. */
size_t keybytes_sum_size(size_t dim);
/* Begins sums of HEAD's values for GROUP queries. */
void keybytes_open(struct keybytes_sum *s, const struct keyrows *k, size_t head,
                   size_t group);
/* Weights [group][STRIDE] of the N keys from AT on, which are the rows from ROW on. */
void keybytes_weigh(struct keybytes_sum *s, size_t at, const float *weight,
                    size_t stride, size_t row, size_t n);
/* There are N keys. */
void keybytes_start(struct keybytes_sum *s, size_t n);
void keybytes_add(struct keybytes_sum *s, size_t at, size_t row, size_t n);
/* y[group][STRIDE] = the sums. */
void keybytes_finish(float *y, size_t stride, const struct keybytes_sum *s);

#endif
