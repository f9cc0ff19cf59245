/* cpu - the operations of the CPU backend; their contracts are in model/backend.h */
#ifndef LIB_CPU_CPU_H
#define LIB_CPU_CPU_H

#include "lib/model/backend.h"

void cpu_embedding(float *y, const struct matrix *w, const int32_t *index, size_t rows,
                   uint64_t offset, uint64_t first);
int cpu_linear(float *y, const float *x, size_t rows, const struct matrix *w,
               struct err *err);
int cpu_matmul(float *y, const float *x, size_t rows, const struct matrix *w,
               struct err *err);
void cpu_add(float *y, const float *x, const float *z, size_t n);
void cpu_mul(float *y, const float *x, const float *z, size_t n);
void cpu_scale(float *y, const float *x, double number, size_t n);
void cpu_softcap(float *y, const float *x, double number, size_t n);
void cpu_activation(float *y, const float *x, enum activation act, size_t n);
void cpu_add_vector(float *y, const float *x, const struct matrix *w, size_t rows);
void cpu_group_sum(double *sum, const float *x, const double *mean, size_t groups,
                   size_t width);
void cpu_group_scale(float *y, const float *x, const double *mean, const double *factor,
                     size_t groups, size_t width, const struct matrix *w, double plus,
                     const struct matrix *b);
void cpu_rope(float *y, const float *x, size_t rows, size_t cols, size_t head,
              const struct rope *r, const float *cos, const float *sin);
int cpu_attention(float *y, const float *q, const struct inst *inst,
                  const struct attention_step *step, struct err *err);

/* What the operations share. */

/* Threads of a parallel region, and the number of this one inside it. */
int cpu_threads(void);
int cpu_thread(void);
/* Weights AT to AT + N of W, counted over its rows, as f32: in place, or in SCRATCH. */
const float *cpu_widen(const struct matrix *w, uint64_t at, size_t n, float *scratch);
/* C[m][n] (row stride ldc) = A[m][k] (lda) op(B); op(B) is [k][n], and B is [n][k]
 * (ldb) when TRANSPOSED.  Called inside a parallel region: one thread makes all of it.
 */
void cpu_gemm(bool transposed, size_t m, size_t n, size_t k, const float *a, size_t lda,
              const float *b, size_t ldb, float *c, size_t ldc);
#endif
