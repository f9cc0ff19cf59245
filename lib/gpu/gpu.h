/* gpu - the launchers of the CUDA backend's kernels, which stand in *.cu
 *
 * Each puts its kernels into STREAM and returns; kernels of a stream run one after
 * another.  Addresses are of device memory, but for structs, which are copied.  Values
 * are f32, row-major; a launcher does nothing for no rows. */
#ifndef LIB_GPU_GPU_H
#define LIB_GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/device/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rows that a kernel works on, as device memory says: those before *rows; of an
 * expert those from rows[0] to rows[1]. */
struct span {
    const int32_t *rows;
    size_t most; /* at most */
    bool expert;
};

/* elementwise: y, x and z have COLS columns */
enum gpu_elementwise {
    GPU_ADD,     /* x + z */
    GPU_MUL,     /* x z */
    GPU_SCALE,   /* x number */
    GPU_SOFTCAP, /* number tanh(x / number) */
    GPU_CLIP,    /* x between cube and number */
    GPU_GATE,    /* x sigmoid(x (number + cube x^2)) */
    GPU_GELU,
    GPU_RELU,
    GPU_TANH,
    GPU_SIGMOID,
    GPU_COPY, /* and the other activations */
    GPU_RELU2,
    GPU_RELU6,
    GPU_LEAKY_RELU,
    GPU_GELU_10,
    GPU_MISH,
    GPU_LAPLACE,
    GPU_HARDSWISH,
    GPU_SQRT_SOFTPLUS
};
void gpu_elementwise(enum gpu_elementwise what, float *y, const float *x,
                     const float *z, struct span rows, uint64_t cols, float number,
                     float cube, void *stream);
/* y = x + w, and y[t] = x[t] s[t] */
void gpu_add_vector(float *y, const float *x, struct matrix w, struct span rows,
                    void *stream);
void gpu_mul_rows(float *y, const float *x, const float *s, struct span rows,
                  uint64_t cols, void *stream);
/* of each row */
void gpu_softmax(float *y, const float *x, struct span rows, uint64_t cols,
                 void *stream);

/* y[t] = row index[t] + offset - first of the table; zero where it is not there */
void gpu_embedding(float *y, struct matrix w, const int32_t *index, struct span rows,
                   uint64_t offset, uint64_t first, void *stream);

/* Groups of WIDTH columns, of which a row of COLS has some whole ones. */
struct groups {
    struct span rows;
    uint64_t cols, width;
    double whole_width; /* of a group over all ranks */
};
/* What a norm does to a group: (x - mean) factor (w + plus) + b; W.data and B.data may
 * be NULL. */
struct norm_weights {
    struct matrix w, b;
    double eps, plus;
    bool centred;
};
/* y = the norm of each group */
void gpu_norm(float *y, const float *x, struct groups g, struct norm_weights n,
              void *stream);
/* sum[g] of x, or, where SQUARES, of (x - mean)^2, the mean from TOTAL[g] or 0; all are
 * 0 unless OWNED */
void gpu_group_sum(double *sum, const float *x, const double *total, bool squares,
                   bool owned, struct groups g, void *stream);
/* y = the norm by squares[g] and, where it is centred, total[g] */
void gpu_norm_apply(float *y, const float *x, const double *squares,
                    const double *total, struct groups g, struct norm_weights n,
                    void *stream);

/* y[t] = cosines of a row's angles, then their sines: of pair i of HALF, position times
 * inv_freq[i] (host memory).  Where CONTEXT is not 0, frequencies of sequences that are
 * longer are instead LONG_FREQ or, where that is NULL, made of THETA by FACTOR. */
struct angles {
    const double *inv_freq, *long_freq;
    uint64_t half, context;
    double scale, theta, factor;
};
void gpu_angles(float *y, const int32_t *position, const int32_t *length,
                struct angles a, struct span rows, void *stream);
/* y[t] = x[t] + the sines, then the cosines of (position + OFFSET) times inv_freq[i]
 * (host memory), HALF of each */
void gpu_sinusoid(float *y, const float *x, const int32_t *position, uint64_t offset,
                  const double *inv_freq, uint64_t half, struct span rows,
                  void *stream);
/* turn the first DIM columns of each head of HEAD by angles[t] */
void gpu_rope(float *y, const float *x, const float *angles, struct span rows,
              uint64_t cols, uint64_t head, uint64_t dim, bool interleaved,
              void *stream);

/* the rows of ranges to a cache's blocks, and from them */
void gpu_keep(float *cache, const float *x, struct ranges r, uint64_t cols,
              void *stream);
void gpu_cache_read(float *y, const float *cache, struct ranges r, uint64_t cols,
                    void *stream);

/* What attention is (struct inst has the same); VALUE_DIM is at most GPU_VALUE_DIM. */
enum { GPU_VALUE_DIM = 1024 };
struct attention {
    uint64_t heads, kv_heads, head_dim, value_dim, value_cols;
    uint64_t group_start, per_group, within_start, all_heads, window, far;
    double scale, softcap, alibi;
    bool causal;
    bool narrow;        /* products to sixteen bits will do (cores.cu) */
    struct matrix bias; /* data NULL: none */
    uint64_t bias_first;
    struct matrix sinks; /* the same: a score of its own for each head */
    uint64_t sink_group, sink_within, sink_per;
};
/* y = softmax(scale q k^T, masked) v; LSE or NULL.  PART is of as many floats as
 * gpu_attention_part says for QUERIES rows of queries, NULL where it says 0. */
void gpu_attention(float *y, float *lse, const float *q, const float *k, const float *v,
                   struct attention a, struct ranges r, float *part, void *stream);
uint64_t gpu_attention_part(struct attention a, struct ranges r, uint64_t queries);
/* The same on tensor cores, for sequences of at least LEAST queries; heads have at most
 * 128 columns, a multiple of 4, and addresses are aligned to 16 bytes. */
void gpu_attention_cores(float *y, float *lse, const float *q, const float *k,
                         const float *v, struct attention a, struct ranges r,
                         uint64_t least, void *stream);
/* Attention by distance (relate.cu). */
struct relation {
    uint64_t heads, dim;
    int64_t span, far;
    double scale;
};
void gpu_relate(float *y, const float *q, const float *k, const float *v,
                const float *as_key, const float *as_query, struct relation a,
                const int32_t *first, const int32_t *texts, struct span rows,
                void *stream);
/* y, lse = those over the keys of both (y, lse) and (z, more) */
void gpu_merge(float *y, float *lse, const float *z, const float *more,
               struct span rows, uint64_t heads, uint64_t dim, void *stream);

/* y = x w^T, or x w where PLAIN, of each of N: the first of each lie X_STEP, Y_STEP and
 * W_STEP elements apart, its matrix is w[i] for those of experts, whose rows are those
 * of rows.rows + i, else w[0].  IN terms, OUT results. */
enum { GPU_PRODUCTS = 32 };
struct products {
    float *y;
    const float *x;
    const void *w[GPU_PRODUCTS];
    enum dtype dtype;
    uint64_t in, out;
    uint64_t x_stride, y_stride, w_stride; /* elements from row to row */
    uint64_t x_step, y_step, w_step;
    struct span rows;
    unsigned n;
    bool plain;
};
void gpu_product(struct products p, void *stream);
/* hi + lo = x[n] to sixteen bits, both bf16 */
void gpu_split_bf16(void *hi, void *lo, const float *x, uint64_t n, void *stream);

/* choice[t] = the experts of a row by its scores (struct inst's route), -1: no more;
 * and y[t][e] = their weights; COLS is at most GPU_EXPERTS */
enum { GPU_EXPERTS = 1024 };
struct routing {
    uint64_t top, groups, of, best;
    double scale;
    bool renorm;
    struct matrix bias; /* data NULL: none */
};
void gpu_choose(int32_t *choice, const float *x, struct routing r, struct span rows,
                uint64_t cols, void *stream);
void gpu_route(float *y, const float *x, const int32_t *choice, struct routing r,
               struct span rows, uint64_t cols, void *stream);
/* of the COUNT experts of rows that choose TOP, as the table of operations says */
void gpu_expert_count(int32_t *y, const int32_t *choice, struct span rows, uint64_t top,
                      uint64_t count, void *stream);
void gpu_expert_index(int32_t *y, const int32_t *choice, const int32_t *counts,
                      struct span rows, uint64_t top, uint64_t count, void *stream);
void gpu_expert_combine(float *y, const float *x, const float *route,
                        const int32_t *index, const int32_t *counts, struct span rows,
                        uint64_t cols, uint64_t count, void *stream);

/* y[t] = COLS columns of x[row[t]] from FIRST on; ROW NULL: t; zeros where row[t] < 0
 */
void gpu_take_rows(float *y, const float *x, const int32_t *row, struct span rows,
                   uint64_t cols, uint64_t x_cols, uint64_t first, void *stream);
/* of each head: y = A columns of x, then B of z, which has one head for all where
 * SHARED */
void gpu_concat(float *y, const float *x, const float *z, struct span rows,
                uint64_t heads, uint64_t a, uint64_t b, bool shared, void *stream);
/* Columns that are copied together; at most GPU_RUNS in a launch. */
enum { GPU_RUNS = 64 };
struct column_run {
    uint64_t to, from, count;
    uint64_t from_cols; /* of a row that they are read from, which begins at BASE times
                           the rows */
    uint64_t base;
};
/* y[t][run.to + i] = x[base * rows + t * from_cols + from + i] of N runs (host memory)
 */
void gpu_copy_columns(float *y, const float *x, const struct column_run *run, size_t n,
                      struct span rows, uint64_t cols, void *stream);

/* max, sum of exp(x - max), x[target - first], index of the largest + first: f64 */
void gpu_row_stats(double *y, const float *x, const int32_t *target, struct span rows,
                   uint64_t cols, uint64_t first, void *stream);
/* from the statistics of PARTS ranks: log sum exp - target, and the index */
void gpu_nll(float *y, const double *stats, uint64_t parts, struct span rows,
             void *stream);
void gpu_argmax(float *y, const double *stats, uint64_t parts, struct span rows,
                void *stream);
/* a token drawn by its logits */
void gpu_sample(float *y, const float *x, const struct draw *draw, struct span rows,
                uint64_t cols, void *stream);

#ifdef __cplusplus
}
#endif
#endif
