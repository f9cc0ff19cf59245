/* back - launchers of the kernels of the reverse, and what they take beside operands
 *
 * As gpu.h and bounds.h.  D is the gradient of the result of the reversed operation;
 * gradients of weights are added to what is there. */
#ifndef LIB_GPU_BACK_H
#define LIB_GPU_BACK_H

#include "lib/gpu/bounds.h"
#include "lib/gpu/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = d f'(x): GPU_SOFTCAP, GPU_CLIP and activations, as of gpu_elementwise */
void gpu_elementwise_back(int what, float *y, const float *d, const float *x,
                          struct span rows, uint64_t cols, float number, float least,
                          void *stream);
void gpu_softmax_back(float *y, const float *d, const float *x, struct span rows,
                      uint64_t cols, void *stream);
/* y[t] = a[t] . b[t] */
void gpu_row_dot(float *y, const float *a, const float *b, struct span rows,
                 uint64_t cols, void *stream);
/* As gpu_rope, by the opposite angles. */
void gpu_rope_back(float *y, const float *x, const float *angles, struct span rows,
                   uint64_t cols, uint64_t head, uint64_t dim, bool interleaved,
                   void *stream);
/* y[row[t]] = d[t], unless row[t] < 0 */
void gpu_put_rows(float *y, const float *d, const int32_t *row, struct span rows,
                  uint64_t cols, void *stream);

/* Sums over all ranks of a norm whose columns they share; or NULL. */
struct norm_sums {
    const double *squares, *total; /* of each group */
    const double *terms;           /* as gpu_norm_terms makes them */
    bool corrects;                 /* this rank's columns are counted */
};
void gpu_norm_back(float *y, const float *d, const float *x, struct groups g,
                   struct norm_weights n, struct norm_sums s, void *stream);
/* y[g] = the sums of a xh and of a */
void gpu_norm_terms(double *y, const float *d, const float *x, struct groups g,
                    struct norm_weights n, struct norm_sums s, void *stream);
/* y[n.w.cols] += the sum of d xh; ROOM is device memory for gpu_sum_bytes */
void gpu_norm_weight(float *y, const float *d, const float *x, struct groups g,
                     struct norm_weights n, struct norm_sums s, double *room,
                     void *stream);
/* y[cols] += the sum of the rows of d, each of PER groups of COLS columns */
void gpu_column_sum(float *y, const float *d, struct span rows, uint64_t cols,
                    uint64_t per, double *room, void *stream);

/* The rows of a table: that of row T is index(T) + OFFSET - FIRST, of ROWS; none if it
 * is another rank's, or if index(T) + OFFSET is PADDING. */
struct table_rows {
    struct indices index;
    uint64_t offset, first, padding, rows;
};
/* y[row] += d[t], in the order of t; ROOM is device memory for gpu_add_rows_bytes. */
void gpu_add_rows(float *y, const float *d, struct table_rows r, struct span rows,
                  uint64_t cols, int32_t *room, void *stream);

/* y[h] += a[h]^T b[h] of each of HEADS matrices side by side */
struct outer {
    float *y;           /* [heads][m][n] */
    const float *a, *b; /* [rows][heads][m] and [rows][heads][n] */
    uint64_t m, n, heads;
    struct span rows;
    bool rounded; /* a and b are rounded to bf16, or may be */
};
void gpu_outer(struct outer o, void *stream);

/* y = the gradients of q, k and v, of COLS columns each row: those of queries begin at
 * column 0, of k at K_AT and of v at V_AT, of the sinks at SINK_AT, of the table of
 * biases at BIAS_AT (BIAS_COLS 0: there are none).  MADE are the results of the
 * attention, LSE its logsumexps and DELTA numbers, [rows][heads] each. */
struct attention_back {
    float *y;
    uint64_t cols, k_at, v_at, sink_at, bias_at, bias_cols;
    bool queries, keys; /* which there are */
    const float *d, *q, *k, *v, *made, *lse;
    float *delta;
    void *rounded;     /* for the operands in bf16; NULL: they are not rounded */
    uint64_t key_rows; /* of k and v */
};
void gpu_attention_back(struct attention_back b, struct attention a, struct ranges r,
                        struct span rows, void *stream);

/* Its operands in bf16, for gpu_attention_back_cores, which makes what
 * gpu_attention_back does if gpu_is_back_cores; rows begin at multiples of 16 bytes.
 */
struct attention_bf16 {
    uint16_t *q, *k, *v, *d;
};
void gpu_attention_back_cores(struct attention_back b, struct attention_bf16 x,
                              struct attention a, struct ranges r, void *stream);

/* Rows that were sent to COUNT experts of this rank, the first of which is FIRST of
 * ALL: of tokens INDEX, COUNTS[e] of them before those of expert e. */
struct sent_rows {
    const int32_t *index, *counts;
    uint64_t all, first;
    int32_t count;
};
/* y[i] = r[t][e] d[t] */
void gpu_expert_spread(float *y, const float *d, const float *r, struct sent_rows s,
                       struct span rows, uint64_t cols, void *stream);
/* y[t][e] = d[t] . a[i]; y is 0 before */
void gpu_expert_dot(float *y, const float *d, const float *a, struct sent_rows s,
                    struct span rows, uint64_t cols, void *stream);
/* y is 0 before */
void gpu_route_back(float *y, const float *d, const float *x, const int32_t *choice,
                    struct routing r, struct span rows, uint64_t cols, void *stream);

/* What the gradient of a likelihood reads beside logits: *FACTOR times WEIGHT[t] (NULL:
 * 1) is that of the likelihood of TARGET[t] (< 0: none); the statistics of PARTS ranks
 * follow each other. */
struct likelihood {
    const int32_t *target;
    const float *factor, *weight;
    uint64_t parts, first; /* first: of the columns of this rank */
    float smooth, each;    /* label smoothing, and that of each column */
};
void gpu_nll_back(float *y, const double *stats, const float *x, struct likelihood n,
                  struct span rows, uint64_t cols, void *stream);

#ifdef __cplusplus
}
#endif

/* ---- bounds ---- */

/* norm-back.cu: parts in which COLS columns are summed over rows, so that there are
 * enough blocks. */
enum { GPU_SUM_BLOCKS = 512, GPU_SUM_PARTS = 64 };

static inline uint64_t gpu_sum_parts(uint64_t cols)
{
    uint64_t blocks = (cols + 31) / 32;
    uint64_t parts = blocks ? (GPU_SUM_BLOCKS + blocks - 1) / blocks : 1;

    return parts < GPU_SUM_PARTS ? parts : (uint64_t)GPU_SUM_PARTS;
}

/* Bytes for them, and for the statistics of GROUPS groups of a norm. */
static inline uint64_t gpu_sum_bytes(uint64_t cols, uint64_t groups)
{
    return (gpu_sum_parts(cols) * cols + 2 * groups) * sizeof(double);
}

/* rows-back.cu: bytes for the links of ROWS rows. */
static inline uint64_t gpu_add_rows_bytes(uint64_t rows)
{
    return 2 * rows * sizeof(int32_t);
}

/* Are the gradients of attention made on tensor cores? */
static inline bool gpu_is_back_cores(const struct attention *a)
{
    return a->narrow && a->rounded && !a->bias.data && a->head_dim % 8 == 0 &&
           a->value_dim % 8 == 0 && a->head_dim <= GPU_TILED_DIM &&
           a->value_dim <= GPU_TILED_DIM && a->value_cols == a->value_dim;
}

static inline uint64_t gpu_whole_lines(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* attention-back.cu: bytes before the room of the attention that is made again: its
 * results, logsumexps, and a number of each query and head; and of ROWS queries and
 * KEYS keys in bf16. */
static inline uint64_t gpu_attention_back_made(const struct attention *a, uint64_t rows)
{
    return gpu_whole_lines(rows * a->heads * (a->value_dim + 2) * sizeof(float));
}

static inline uint64_t gpu_attention_back_own(const struct attention *a, uint64_t rows,
                                              uint64_t keys)
{
    uint64_t both = 2 * (a->head_dim + a->value_dim);
    uint64_t of_bf16 = gpu_is_back_cores(a)
                           ? gpu_whole_lines(rows * a->heads * both) +
                                 gpu_whole_lines(keys * a->kv_heads * both)
                           : 0;

    return gpu_attention_back_made(a, rows) + of_bf16;
}

/* Could cuBLASLt make O, whose operands are rounded to bf16, or f32? */
static inline bool gpu_blas_serves_outer(const struct outer *o)
{
    uint64_t unit = o->rounded ? 2 : 4;

    return !o->rows.expert && o->heads == 1 && o->rows.most > GPU_BLAS_OWN && o->m &&
           o->n && gpu_blas_aligned(NULL, o->m, unit) &&
           gpu_blas_aligned(NULL, o->n, unit);
}

/* Bytes for an operand of COLS columns. */
static inline uint64_t gpu_blas_outer_bytes(const struct outer *o, uint64_t cols)
{
    return o->rounded ? GPU_BLAS_FACTORS + o->rows.most * cols * 2 : 0;
}

#endif
