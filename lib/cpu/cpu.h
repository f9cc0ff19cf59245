/* cpu - the operations of the CPU backend; their contracts are in model/backend.h */
#ifndef LIB_CPU_CPU_H
#define LIB_CPU_CPU_H

#include "lib/program/backend.h"

void cpu_embedding(struct device *d, float *y, const struct matrix *w,
                   const int32_t *index, size_t rows, uint64_t offset, uint64_t first);
int cpu_linear(struct device *d, float *y, const float *x, size_t rows,
               const struct matrix *w, struct err *err);
int cpu_matmul(struct device *d, float *y, const float *x, size_t rows,
               const struct matrix *w, struct err *err);
void cpu_add(struct device *d, float *y, const float *x, const float *z, size_t n);
void cpu_mul(struct device *d, float *y, const float *x, const float *z, size_t n);
void cpu_scale(struct device *d, float *y, const float *x, double number, size_t n);
void cpu_mul_rows(struct device *d, float *y, const float *x, const float *s,
                  size_t rows, size_t cols);
void cpu_softmax(struct device *d, float *y, const float *x, size_t rows, size_t cols);
void cpu_route(struct device *d, float *y, const float *x, size_t rows, size_t cols,
               const struct inst *inst, const struct matrix *bias);
void cpu_take_rows(struct device *d, float *y, const float *x, const int32_t *row,
                   size_t rows, size_t cols);
void cpu_add_rows(struct device *d, float *y, const float *x, const int32_t *row,
                  size_t rows, size_t cols, const float *r, size_t r_cols, size_t col);
void cpu_concat(struct device *d, float *y, const float *a, const float *b, size_t rows,
                const struct inst *inst);
int cpu_head_product(struct device *d, float *y, const float *x, size_t rows,
                     const struct inst *inst, bool plain, const struct matrix *w,
                     struct err *err);
void cpu_softcap(struct device *d, float *y, const float *x, double number, size_t n);
void cpu_clip(struct device *d, float *y, const float *x, double number, size_t n);
void cpu_activation(struct device *d, float *y, const float *x, enum activation act,
                    size_t n);
void cpu_add_vector(struct device *d, float *y, const float *x, const struct matrix *w,
                    size_t rows);
void cpu_group_sum(struct device *d, double *sum, const float *x, const double *mean,
                   size_t groups, size_t width);
void cpu_group_scale(struct device *d, float *y, const float *x, const double *mean,
                     const double *factor, size_t groups, size_t width,
                     const struct matrix *w, double plus, const struct matrix *b);
void cpu_rope(struct device *d, float *y, const float *x, size_t rows, size_t cols,
              size_t head, const struct rope *r, const float *cos, const float *sin);
int cpu_attention(struct device *d, float *y, const float *q, const struct inst *inst,
                  const struct attention_step *step, struct err *err);

/* What the operations share. */

/* A team of threads: struct device. */
int cpu_open(struct device **out, int threads, struct err *err);
void cpu_close(struct device *d);
int cpu_threads(const struct device *d);
/* Run tasks 0 to TASKS - 1, each once, on threads 0 to cpu_threads - 1; back when all
 * are done.  What a task makes must not depend on its thread. */
typedef void cpu_task(void *arg, size_t task, int thread);
void cpu_parallel(struct device *d, size_t tasks, cpu_task *run, void *arg);
/* Weights AT to AT + N of W, counted over its rows, as f32: in place, or in SCRATCH. */
const float *cpu_widen(const struct matrix *w, uint64_t at, size_t n, float *scratch);
/* C[m][n] (row stride ldc) = A[m][k] (lda) op(B); op(B) is [k][n], and B is [n][k]
 * (ldb) when TRANSPOSED.  Called inside a parallel region: one thread makes all of it.
 */
void cpu_gemm(bool transposed, size_t m, size_t n, size_t k, const float *a, size_t lda,
              const float *b, size_t ldb, float *c, size_t ldc);
#endif
