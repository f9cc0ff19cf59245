/* decode-float - one query times rows of keys or values, in the type that stores them
 *
 * On CPUs with AVX-512 or AVX2, keyrows_dots and keyrows_add process all heads for a
 * few rows before the next rows, and widen bf16 and int8 in registers.  Elsewhere,
 * callers widen some rows with keyrows_widen and use cpu_dots and cpu_add_weighted,
 * which give the same bits.  The scales of int8 multiply scores and weights, not
 * elements.  decode-int8.h is faster for int8, where the CPU has it. */
#ifndef LIB_CPU_ATTENTION_DECODE_FLOAT_H
#define LIB_CPU_ATTENTION_DECODE_FLOAT_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/cpu/cache/kv-rows.h"

/* Have keyrows_dots and keyrows_add loops for K?  They do on such a CPU if dim
 * is a multiple of VEC and scales are by head.  Else do not call them. */
bool keyrows_are_whole(const struct keyrows *k);

/* score[h][i] = q_h . row FIRST + I, over N rows and the HEADS KV heads from HEAD on,
 * each with GROUP query heads.  Q [heads][group][dim] and SCORE are those of head 0;
 * STRIDE is that between two heads of SCORE. */
void keyrows_dots(float *score, size_t stride, const float *q, size_t group,
                  const struct keyrows *k, size_t head, size_t heads, size_t first,
                  size_t n);
/* y_h += weight[h][i] row FIRST + I, row after row. */
void keyrows_add(float *y, const float *weight, size_t stride, size_t group,
                 const struct keyrows *k, size_t head, size_t heads, size_t first,
                 size_t n);

/* What loops get: the arguments of keyrows_dots, or of keyrows_add. */
struct keyrows_request {
    float *to;         /* scores, or sums */
    const float *from; /* queries, or weights */
    size_t stride;     /* of scores or weights */
    size_t group, head, heads, first, n;
    const struct keyrows *k;
};
/* For CPUs with AVX2. */
void keyrows_dots_avx2(const struct keyrows_request *r);
void keyrows_add_avx2(const struct keyrows_request *r);

#endif
