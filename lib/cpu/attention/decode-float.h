/* decode-float - one query times rows of keys or values, in the type that stores them
 *
 * On CPUs with AVX-512 or AVX2, decode_float_dots and decode_float_add process all
 * heads for a few rows before the next rows, and widen bf16 and int8 in registers.
 * Elsewhere, callers widen some rows with kv_rows_widen and use cpu_dots and
 * cpu_add_weighted, which give the same bits.  The scales of int8 multiply scores and
 * weights, not elements.  decode-int8.h is faster for int8, where the CPU has it. */
#ifndef LIB_CPU_ATTENTION_DECODE_FLOAT_H
#define LIB_CPU_ATTENTION_DECODE_FLOAT_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/cpu/cache/kv-rows.h"

/* Have decode_float_dots and decode_float_add loops for K?  They do on such a CPU if
 * dim is a multiple of VEC and scales are by head.  Else do not call them. */
bool decode_float_has(const struct kv_rows *k);

/* score[h][i] = q_h . row FIRST + I, over N rows and the HEADS KV heads from HEAD on,
 * each with GROUP query heads.  Q [heads][group][dim] and SCORE are those of head 0;
 * STRIDE is that between two heads of SCORE. */
void decode_float_dots(float *score, size_t stride, const float *q, size_t group,
                       const struct kv_rows *k, size_t head, size_t heads, size_t first,
                       size_t n);
/* y_h += weight[h][i] row FIRST + I, row after row. */
void decode_float_add(float *y, const float *weight, size_t stride, size_t group,
                      const struct kv_rows *k, size_t head, size_t heads, size_t first,
                      size_t n);

/* What loops get: the arguments of decode_float_dots, or of decode_float_add. */
struct decode_float_request {
    float *to;         /* scores, or sums */
    const float *from; /* queries, or weights */
    size_t stride;     /* of scores or weights */
    size_t group, head, heads, first, n;
    const struct kv_rows *k;
};
/* For CPUs with AVX2. */
void decode_float_dots_avx2(const struct decode_float_request *r);
void decode_float_add_avx2(const struct decode_float_request *r);

#endif
