/* backend - the table of operations that the engine runs a program with
 *
 * Activations are row-major [rows][cols] f32 and never overlap their results unless a
 * comment says so. Weights come in their stored type and are widened on the fly; sums
 * are f32, statistics double, in an order that does not depend on the number of
 * threads; a product of few rows may be made in another order than one of many.  A
 * backend is listed in run/engine.c; the first whose probe succeeds is used. */
#ifndef LIB_PROGRAM_BACKEND_H
#define LIB_PROGRAM_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/program/program.h"

/* A weight in memory, row-major; types f32, bf16 and f16. */
struct matrix {
    const void *data;
    enum dtype dtype;
    uint64_t rows, cols;
};

/* What attention reads besides its instruction. */
struct attention_step {
    size_t rows;             /* queries of this step */
    size_t keys;             /* keys and values */
    size_t first_key;        /* position of the first; the others follow it */
    const int32_t *position; /* [rows] of the queries */
    const float *k, *v; /* [keys][kv_heads*head_dim], [keys][kv_heads*value_cols] */
    const struct matrix *bias; /* [buckets][heads], by distance; or NULL */
    float *lse; /* [rows][heads]: log of the sum of the scores' exponentials, for who
                   has the other keys elsewhere; or NULL */
};

/* What a backend works with: its threads.  One caller uses it at a time. */
struct device;

struct backend {
    const char *name;
    bool (*probe)(void);
    /* THREADS, at least 1, the caller's among them. */
    int (*open)(struct device **out, int threads, struct err *err);
    void (*close)(struct device *d); /* NULL is allowed */

    /* y[rows][cols(w)] = row index[i] + offset - first of the table; zero where it is
     * not there */
    void (*embedding)(struct device *d, float *y, const struct matrix *w,
                      const int32_t *index, size_t rows, uint64_t offset,
                      uint64_t first);
    /* y[rows][w.rows] = x w^T, and y[rows][w.cols] = x w.  Fails only for want of
     * memory. */
    int (*linear)(struct device *d, float *y, const float *x, size_t rows,
                  const struct matrix *w, struct err *err);
    int (*matmul)(struct device *d, float *y, const float *x, size_t rows,
                  const struct matrix *w, struct err *err);
    /* y may be x or z */
    void (*add)(struct device *d, float *y, const float *x, const float *z, size_t n);
    void (*mul)(struct device *d, float *y, const float *x, const float *z, size_t n);
    void (*scale)(struct device *d, float *y, const float *x, double number, size_t n);
    /* y[t] = x[t] s[t]; y may be x */
    void (*mul_rows)(struct device *d, float *y, const float *x, const float *s,
                     size_t rows, size_t cols);
    void (*softmax)(struct device *d, float *y, const float *x, size_t rows,
                    size_t cols);
    /* the experts' weights of each row, by their scores (inst->route); BIAS or NULL is
     * added to choose by */
    void (*route)(struct device *d, float *y, const float *x, size_t rows, size_t cols,
                  const struct inst *inst, const struct matrix *bias);
    /* y[i] = x[row[i]], and y[row[i]] += r[row[i]][col] x[i] with R_COLS columns in r
     */
    void (*take_rows)(struct device *d, float *y, const float *x, const int32_t *row,
                      size_t rows, size_t cols);
    void (*add_rows)(struct device *d, float *y, const float *x, const int32_t *row,
                     size_t rows, size_t cols, const float *r, size_t r_cols,
                     size_t col);
    /* of each of inst->head.count heads: y = a, then b */
    void (*concat)(struct device *d, float *y, const float *a, const float *b,
                   size_t rows, const struct inst *inst);
    /* of each head: y = x w^T or, when PLAIN, x w, with the head's rows of w from
     * inst->head.row on.  Fails only for want of memory. */
    int (*head_product)(struct device *d, float *y, const float *x, size_t rows,
                        const struct inst *inst, bool plain, const struct matrix *w,
                        struct err *err);
    void (*softcap)(struct device *d, float *y, const float *x, double number,
                    size_t n);
    /* a NaN stays one */
    void (*clip)(struct device *d, float *y, const float *x, double number, size_t n);
    void (*activation)(struct device *d, float *y, const float *x, enum activation act,
                       size_t n);
    void (*add_vector)(struct device *d, float *y, const float *x,
                       const struct matrix *w, size_t rows);
    /* sum[g] over each group of WIDTH columns of X: of x, or of (x - mean[g])^2 when
     * MEAN is given; groups in all = rows * cols / width */
    void (*group_sum)(struct device *d, double *sum, const float *x, const double *mean,
                      size_t groups, size_t width);
    /* y = (x - mean[g]) * factor[g] * (w + plus) + b; MEAN may be NULL, W, and B where
     * there is W; both are WIDTH long or as long as some whole groups, and repeat */
    void (*group_scale)(struct device *d, float *y, const float *x, const double *mean,
                        const double *factor, size_t groups, size_t width,
                        const struct matrix *w, double plus, const struct matrix *b);
    /* turn each head by cos[row][dim/2], sin[row][dim/2] */
    void (*rope)(struct device *d, float *y, const float *x, size_t rows, size_t cols,
                 size_t head, const struct rope *r, const float *cos, const float *sin);
    /* softmax(scale * q k^T, masked) v; 0 where no key is seen.  Fails only for want of
     * memory. */
    int (*attention)(struct device *d, float *y, const float *q,
                     const struct inst *inst, const struct attention_step *step,
                     struct err *err);
};

extern const struct backend backend_cpu;

#endif
