/* cpu - the loops behind the CPU backend's kernels (kernels.c) */
#ifndef LIB_CPU_CPU_H
#define LIB_CPU_CPU_H

#include "lib/device/device.h"
#include "lib/device/positions.h"

/* Indices: column COLUMN of X[rows][COLS], less column MINUS, or -1. */
struct cpu_index {
    const int32_t *x;
    size_t cols;
    int column, minus;
};
static inline int32_t cpu_index_at(const struct cpu_index *index, size_t row)
{
    const int32_t *x = index->x + row * index->cols;

    return x[index->column] - (index->minus < 0 ? 0 : x[index->minus]);
}
/* The indices of an OP_EMBEDDING. */
struct cpu_index cpu_index_of(const struct call *c);
/* y[rows][cols(w)] = row index(i) + offset - first of the table; zeros if another rank
 * has that row */
void cpu_embedding(struct device *d, float *y, const struct matrix *w,
                   struct cpu_index index, size_t rows, uint64_t offset,
                   uint64_t first);
/* y[rows][w.rows] = x w^T, and y[rows][w.cols] = x w.  The result of a row does not
 * depend on the other rows.  TREE fixes the order of the sums; NULL: any order.  Fail
 * only for want of memory. */
MUST_CHECK int cpu_linear(struct device *d, float *y, const float *x, size_t rows,
                          const struct matrix *w, const struct sum_tree *tree,
                          struct err *err);
/* The same for w in bf16, with x rounded to bf16, or in bf16 if TYPE says so and not
 * f32; uses AVX512-BF16's products of pairs if the CPU has them. */
MUST_CHECK int cpu_linear_rounded(struct device *d, float *y, const void *x,
                                  enum format type, size_t rows, const struct matrix *w,
                                  const struct sum_tree *tree, struct err *err);
/* The same for w in f16, with x rounded to f16; and y = x w, which takes room for the
 * rounded x: product_room_half. */
MUST_CHECK int cpu_linear_half(struct device *d, float *y, const float *x, size_t rows,
                               const struct matrix *w, const struct sum_tree *tree,
                               struct err *err);
MUST_CHECK int cpu_matmul_half(struct device *d, float *y, const float *x, size_t rows,
                               const struct matrix *w, const struct sum_tree *tree,
                               struct err *err);
/* The same without TREE by AMX, also for codes of 4 bits, which are rounded to
 * bf16: other bits than those of the products above.  cpu_has_amx_rows: is it made for
 * ROWS rows on this CPU? */
MUST_CHECK int cpu_amx_rows(struct device *d, float *y, const void *x, enum format type,
                            size_t rows, const struct matrix *w, struct err *err);
bool cpu_has_amx_rows(size_t rows, const struct matrix *w);
/* Rounds N floats at X to bf16 at TO. */
void cpu_round_bf16(uint16_t *to, const float *x, size_t n);
/* y[rows][w->cols] = x[rows][w->rows] w, of codes: the derivative of such a product. */
void cpu_codes_back(struct device *d, float *y, const float *x, size_t rows,
                    const struct matrix *w);
/* Is W stored as codes?  Then cpu_codes_linear makes y = x w^T. */
bool cpu_has_codes(const struct matrix *w);
MUST_CHECK int cpu_codes_linear(struct device *d, float *y, const float *x, size_t rows,
                                const struct matrix *w, const struct sum_tree *tree,
                                struct err *err);
/* The same with x rounded, where that is faster: on CPUs with AVX2 and without
 * AVX512-VNNI, to integers of 16 bits relative to the largest of at most 512 terms. */
MUST_CHECK int cpu_codes_rounded(struct device *d, float *y, const float *x,
                                 size_t rows, const struct matrix *w,
                                 const struct sum_tree *tree, struct err *err);
/* The same with x, and numbers of 4 bits, rounded to bf16, by AVX512-BF16's products of
 * pairs.  cpu_has_codes_bf16dot: is it made for ROWS rows on this CPU? */
MUST_CHECK int cpu_codes_bf16dot(struct device *d, float *y, const float *x,
                                 size_t rows, const struct matrix *w,
                                 const struct sum_tree *tree, struct err *err);
bool cpu_has_codes_bf16dot(size_t rows, const struct matrix *w);
MUST_CHECK int cpu_matmul(struct device *d, float *y, const float *x, size_t rows,
                          const struct matrix *w, const struct sum_tree *tree,
                          struct err *err);
/* y = x w and y = x w^T for w in bf16, with x rounded to bf16, by AMX or AVX512-BF16:
 * other bits than those of the products above.  cpu_has_transposed_...: is it made for
 * ROWS rows on this CPU?  Where cpu_has_amx_rows, that is faster than
 * cpu_transposed_linear. */
MUST_CHECK int cpu_transposed_matmul(struct device *d, float *y, const float *x,
                                     size_t rows, const struct matrix *w,
                                     struct err *err);
bool cpu_has_transposed_matmul(size_t rows, const struct matrix *w);
MUST_CHECK int cpu_transposed_linear(struct device *d, float *y, const void *x,
                                     enum format type, size_t rows,
                                     const struct matrix *w, struct err *err);
bool cpu_has_transposed_linear(size_t rows, const struct matrix *w);
/* y may be x or z */
void cpu_add(struct device *d, float *y, const float *x, const float *z, size_t n);
void cpu_mul(struct device *d, float *y, const float *x, const float *z, size_t n);
/* The same, rounded to bf16; y is neither. */
void cpu_mul_bf16(struct device *d, uint16_t *y, const float *x, const float *z,
                  size_t n);
void cpu_scale(struct device *d, float *y, const float *x, double number, size_t n);
/* y[t] = x[t] s[t * stride]; y may be x */
void cpu_mul_rows(struct device *d, float *y, const float *x, const float *s,
                  size_t stride, size_t rows, size_t cols);
void cpu_softmax(struct device *d, float *y, const float *x, size_t rows, size_t cols);
/* The top-k router (inst->route): the experts of each row by score, [rows][top]; BIAS
 * (or NULL) is added to the scores for the choice only.  And their weights. */
void cpu_choose(struct device *d, int32_t *choice, const float *x, size_t rows,
                size_t cols, const struct inst *inst, const struct matrix *bias);
void cpu_route(struct device *d, float *y, const float *x, const int32_t *choice,
               size_t rows, size_t cols, const struct inst *inst);
/* True if score K is among those that a row's I-th choice is normalized with: not
 * chosen before, and below the choice's score by at most inst->route.near of the larger
 * magnitude (SparseMixer: Liu et al. 2024, arXiv:2409.12136). */
bool cpu_route_near(const struct inst *inst, const float *x, const int32_t *choice,
                    uint64_t i, size_t k);
/* The sum of their exponentials, relative to that of the choice. */
double cpu_route_softmax(const struct inst *inst, const float *x, size_t cols,
                         const int32_t *choice, uint64_t i);
/* y[i] = x[row[i]], in rows of BYTES; and y[row[i]] += r[row[i]][col] x[i] with R_COLS
 * columns in r */
void cpu_take_rows(struct device *d, void *y, const void *x, const int32_t *row,
                   size_t rows, size_t bytes);
void cpu_add_rows(struct device *d, float *y, const float *x, const int32_t *row,
                  size_t rows, size_t cols, const float *r, size_t r_cols, size_t col);
/* of each of inst->head.count heads: y = a, then b */
void cpu_concat(struct device *d, float *y, const float *a, const float *b, size_t rows,
                const struct inst *inst);
/* of each head: y = x w^T or, if PLAIN, x w, with the head's rows of w, which begin at
 * inst->head.row.  Fails only for want of memory. */
MUST_CHECK int cpu_head_product(struct device *d, float *y, const float *x, size_t rows,
                                const struct inst *inst, bool plain,
                                const struct matrix *w, struct err *err);
/* y = x / (1 - inst->drop.rate), or 0 at random.  TOKEN has the number of each row's
 * token; RUNS the columns of the full row that these are, NULL: all. */
void cpu_dropout(struct device *d, float *y, const float *x, size_t rows, size_t cols,
                 const struct inst *inst, const struct runs *runs,
                 const uint64_t *token, uint64_t seed);
void cpu_softcap(struct device *d, float *y, const float *x, double number, size_t n);
/* a NaN stays a NaN */
void cpu_clip(struct device *d, float *y, const float *x, double least, double most,
              size_t n);
void cpu_activation(struct device *d, float *y, const float *x, enum activation act,
                    size_t n);
void cpu_activation_bf16(struct device *d, uint16_t *y, const float *x,
                         enum activation act, size_t n);
/* Huang and Schlag 2024, arXiv:2411.13010, eq. 6: with b XIELU_LEAST and e XIELU_NEAR,
 * b x + above x^2 where x > 0, and b x + below (exp(min(x, e)) - 1 - x) elsewhere */
#define XIELU_LEAST 0.5f
#define XIELU_NEAR  (-1e-6f)
struct xielu {
    float above, below;
};
/* of weights of one element: their softplus, XIELU_LEAST more of the second */
struct xielu cpu_xielu_slopes(const struct matrix *above, const struct matrix *below);
void cpu_xielu(struct device *d, float *y, const float *x, struct xielu slopes,
               size_t n);
void cpu_add_vector(struct device *d, float *y, const float *x, const struct matrix *w,
                    size_t rows);
void cpu_mul_vector(struct device *d, float *y, const float *x, const struct matrix *w,
                    size_t rows);
/* sum[g] over each group of WIDTH columns of X, STRIDE apart: of x, or of (x -
 * mean[g])^2 if MEAN is given */
void cpu_group_sum(struct device *d, double *sum, const float *x, size_t stride,
                   const double *mean, size_t groups, size_t width);
/* y = (x - mean[g]) * factor[g] * (w + plus) + b; MEAN and W may be NULL, B too.  W and
 * B have WIDTH columns, or those of several groups, and repeat.  y is of TYPE, f32 or
 * bf16. */
void cpu_group_scale(struct device *d, void *y, enum format type, const float *x,
                     const double *mean, const double *factor, size_t groups,
                     size_t width, const struct matrix *w, double plus,
                     const struct matrix *b);
/* rotate each head by angles[row]: dim/2 cosines, then dim/2 sines */
void cpu_rope(struct device *d, float *y, const float *x, size_t rows, size_t cols,
              size_t head, const struct rope *r, const float *angles);
/* The keys of one sequence, and what else attention reads. */
struct attention_step {
    size_t rows, start;     /* queries; position of the first */
    size_t keys, first_key; /* keys and values; position of the first */
    size_t key_row;     /* row of the first in K and V, or counted over the blocks */
    const float *k, *v; /* [row][kv_heads*head_dim], [row][kv_heads*value_cols] */
    /* [row] of a cache in another type than f32, which K and V are then not; or NULL */
    const struct buffer *cached_k, *cached_v;
    const int32_t *block;       /* numbers of the KV cache blocks; NULL: contiguous */
    size_t block_rows;          /* rows of a block */
    const struct matrix *bias;  /* [buckets][heads], by distance; or NULL */
    const struct matrix *sinks; /* [heads], or NULL; see struct inst */
    const float *biases; /* [row][heads][buckets]: those of each query; or NULL */
    const float *own_k, *own_v; /* [row][heads*head_dim], [row][heads*value_dim]: of a
                                 * key that only the row's query sees; or NULL */
    float *lse;                 /* [rows][heads], or NULL; see struct call */
    const uint64_t *token;      /* [rows]: numbers of the tokens, for dropout */
    /* In the reverse, where these keys are some of all: what attention to all gave. */
    const float *whole_lse, *whole_y; /* [rows][heads], [rows][heads][value_dim] */
    uint64_t seed;
    bool rounded; /* on CPUs with AMX or AVX512-BF16, queries, keys, weights and values
                   * of many rows may be rounded to bf16; the number of rows may then
                   * change a result */
};
/* A row of the cache P, at TO, of X [P->cols]. */
void cpu_cache_row(void *to, const float *x, const struct buffer *p);
/* Y [N] = the columns from FIRST on of that row. */
void cpu_cached(float *y, const void *row, uint64_t first, size_t n,
                const struct buffer *p);

/* softmax(scale * q k^T, masked) v; zeros if no key is visible.  Fails only for want of
 * memory. */
MUST_CHECK int cpu_attention(struct device *d, float *y, const float *q,
                             const struct inst *inst, const struct attention_step *step,
                             struct err *err);

/* The gradients that INST asks for (.gradients), side by side in y's rows of STRIDE
 * columns: of q, k and v, where the keys are the queries' rows, and for each query
 * those of the sinks, if the step has these, or where there are columns for it, of the
 * table of biases; D is the gradient of the result.  Fails only for want of memory. */
MUST_CHECK int cpu_attention_back(struct device *dev, float *y, size_t stride,
                                  const float *d, const float *q,
                                  const struct inst *inst,
                                  const struct attention_step *step, struct err *err);

/* Returns the sum of exp((x[i] - MOST) / DIVISOR); TO[N] gets the terms unless it is
 * NULL.  MOST is at least the largest x, or NaN. */
double cpu_exp_terms(double *to, const float *x, size_t n, double most, double divisor);
/* The largest of X that is a number, or -INFINITY. */
float cpu_largest(const float *x, size_t n);
/* A token drawn from the logits, limited to the top_k likeliest and then to the
 * likeliest that add up to top_p; of equal logits the first is likelier.  -1 when a
 * logit is NaN or +inf, or all are -inf.  ROOM has cpu_sample_bytes(VOCAB) bytes. */
struct cpu_candidate {
    double weight; /* exp((logit - largest) / temperature) */
    float logit;
    int32_t id;
};
static inline size_t cpu_sample_bytes(size_t vocab)
{
    return vocab * (sizeof(struct cpu_candidate) + sizeof(double));
}
int32_t cpu_sample(const float *logits, size_t vocab, const struct draw *draw,
                   void *room);

extern kernel *const cpu_kernels[OP_COUNT];
extern array_kernel *const cpu_arrays[ARRAY_COUNT];
int cpu_round(struct device *d, const struct rounding *r, struct err *err);
extern const struct kernel_limits cpu_limits[OP_COUNT];
/* The kernels of the reverse: reverse/FILE-back.c. */
extern kernel kernel_outer, kernel_head_outer, kernel_embedding_back, kernel_column_sum,
    kernel_norm_weight, kernel_row_dot, kernel_activation_back, kernel_xielu_back,
    kernel_xielu_weight, kernel_softmax_back, kernel_softcap_back, kernel_clip_back,
    kernel_norm_back, kernel_norm_terms, kernel_norm_apply_back, kernel_rope_back,
    kernel_router_sums, kernel_balance, kernel_router_load, kernel_router_sums_back,
    kernel_balance_back, kernel_route_back, kernel_expert_spread, kernel_expert_dot,
    kernel_expert_scatter, kernel_segment_back, kernel_first_back, kernel_slice_owned,
    kernel_unslice;

/* What the operations share. */

/* A team of threads: struct device. */
MUST_CHECK int cpu_open(struct device **out, int threads, int local, struct err *err);
void cpu_close(struct device *d);
int cpu_threads(const struct device *d);
/* A kernel takes memory from the device's room and gives it back before it returns;
 * cpu_give gives back P and what was taken after it, NULL: nothing.  cpu_make_room
 * makes room for BYTES, while nothing is taken; backend.room says how many a program
 * needs (room.c).  If that does not suffice, cpu_take allocates, and cpu_grown counts
 * it. */
void *cpu_take(struct device *d, uint64_t bytes, const char *what, struct err *err);
void cpu_give(struct device *d, void *p);
MUST_CHECK int cpu_make_room(struct device *d, uint64_t bytes, struct err *err);
uint64_t cpu_room_bytes(const struct device *d);
uint64_t cpu_grown(const struct device *d);
/* What BYTES take of the room, whose parts are aligned. */
static inline uint64_t cpu_whole(uint64_t bytes)
{
    enum { ALIGN = 128 };

    return (bytes + (bytes == 0) + ALIGN - 1) / ALIGN * ALIGN;
}

/* The device's record of KIND, an enum stored, for ROWS, an enum rows_read
 * (autotune.h). */
struct autotune *cpu_autotune(struct device *d, int kind, int rows);
/* Run tasks 0 to TASKS - 1, each once, on threads 0 to cpu_threads - 1; back when all
 * are done.  What a task makes must not depend on its thread. */
typedef void cpu_task(void *arg, size_t task, int thread);
void cpu_parallel(struct device *d, size_t tasks, cpu_task *run, void *arg);
/* Weights AT to AT + N of W, counted over its rows, as f32: in place, or in SCRATCH. */
const float *cpu_widen(const struct matrix *w, uint64_t at, size_t n, float *scratch);
/* C[m][n] (ldc) += A^T B, A [rows][m] (lda), B [rows][n] (ldb); by one thread.  False,
 * with anything in C, if oneDNN gets no memory. */
#define CPU_OUTER_LOST "out of memory: oneDNN has no room for a product"
bool cpu_outer(float *c, size_t ldc, const float *a, size_t lda, size_t m,
               const float *b, size_t ldb, size_t n, size_t rows);
/* N numbers of a row in the order in which products by weights of TYPE take them:
 * cpu_arranged of them, N and zeros. */
size_t cpu_arranged(enum format type, size_t n);
void cpu_arrange(float *to, const float *x, enum format type, size_t n);
/* The same of X in bf16, for weights of 16 bits. */
void cpu_arrange_bf16(float *to, const uint16_t *x, size_t n);
/* Parts of such products, made by one thread: y[M][N] = x w^T over all columns of W,
 * rows FIRST to FIRST + N of it, x arranged; PANEL is room for cpu_panel_floats(), or
 * NULL when M is small.  And y[M][N] = x w over the rows ROW to ROW + IN, columns FIRST
 * to FIRST + N. */
size_t cpu_panel_floats(void);
/* Multiply the N numbers X, the first of which is number FIRST of its row, by 1 / (1 -
 * RATE) or, at random, by 0: by KEY, the row's number ROW, and LINE. */
void cpu_drop(float *x, size_t first, size_t n, double rate, uint64_t key, uint64_t row,
              uint32_t line);
void cpu_dot_rows(float *y, size_t y_stride, const float *x, size_t x_stride, size_t m,
                  const struct matrix *w, uint64_t first, size_t n, float *panel);
void cpu_outer_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
                    size_t m, const struct matrix *w, uint64_t row, uint64_t in,
                    uint64_t first, size_t n);
/* Of f32, by one thread: y[M][N] = x w^T over TERMS columns, and y[M][N] += x w over
 * TERMS rows of w, one after another. */
void cpu_dots(float *y, size_t y_stride, const float *x, size_t x_stride, size_t m,
              const float *w, size_t w_stride, size_t n, size_t terms);
void cpu_add_weighted(float *y, size_t y_stride, const float *x, size_t x_stride,
                      size_t m, const float *w, size_t w_stride, size_t n,
                      size_t terms);
/* The texts of a step: each has the rows from FIRST[i] on, to the next text's. */
struct cpu_texts {
    const int32_t *first; /* [n] */
    size_t n, rows;       /* of all texts */
};
/* Text I's rows: *n of them, from what is returned on. */
static inline size_t cpu_text(const struct cpu_texts *t, size_t i, size_t *n)
{
    size_t first = (size_t)t->first[i];

    *n = (i + 1 < t->n ? (size_t)t->first[i + 1] : t->rows) - first;
    return first;
}
/* The text that has row ROW. */
static inline size_t cpu_text_at(const struct cpu_texts *t, size_t row)
{
    size_t i = 0;

    while (i + 1 < t->n && (size_t)t->first[i + 1] <= row)
        i++;
    return i;
}
/* Attention by distance.  Queries and keys may be rows that were pooled. */
struct cpu_relate {
    float *y;
    const float *q, *k, *v, *q_far; /* [rows][heads][dim], as y; q_far reads as_key */
    const float *as_key, *as_query; /* [2 span][heads][dim]: the table's rows; as_query
                                     * may be NULL */
    const float *q_type;            /* as q, or NULL: reads */
    const struct matrix *types;     /* [2][heads][dim]: for tokens of the same type, and
                                     * of another */
    const int32_t *type;            /* [tokens] */
    struct cpu_texts queries, keys, tokens;
};
MUST_CHECK int cpu_relate(struct device *d, const struct inst *inst,
                          const struct cpu_relate *c, struct err *err);
/* The softmax of SCALE * S[n]. */
void cpu_softmax_row(float *s, size_t n, float scale);
/* Attention within a window and of global tokens (longformer.c). */
struct cpu_globals {
    float *y;
    const float *q, *k, *v, *q_all, *k_all, *v_all; /* [rows][heads][dim], as y */
    const int32_t *mask;                            /* [rows]: not 0 for global ones */
    struct cpu_texts texts;
};
MUST_CHECK int cpu_global_attention(struct device *d, const struct inst *inst,
                                    const struct cpu_globals *c, struct err *err);
/* Attention within a window and to side rows (side.c). */
struct cpu_side {
    float *y;
    const float *q, *k, *v;           /* [rows][heads][dim], as y */
    const float *side_k, *side_v;     /* [side rows][heads][dim] */
    const struct matrix *bias, *side; /* [buckets][heads] */
    struct cpu_texts texts, sides;
};
MUST_CHECK int cpu_side_attention(struct device *d, const struct inst *inst,
                                  const struct cpu_side *c, struct err *err);
/* Operations on the rows beside a row of X (conv-pool.c). */
struct cpu_taps {
    float *y;
    const float *x;            /* [rows][cols] */
    const float *scores;       /* [rows][heads][taps] of cpu_dynamic */
    const struct matrix *w;    /* [cols][taps] of cpu_convolve */
    struct cpu_texts from, to; /* the rows of x, and of y */
    size_t cols;               /* of x */
};
void cpu_shift(struct device *d, const struct inst *inst, const struct cpu_taps *c);
/* Pools, or unpools, by INST. */
void cpu_pool(struct device *d, const struct inst *inst, const struct cpu_taps *c);
/* The sums of blocks of rows. */
void cpu_block_sum(struct device *d, const struct inst *inst, const struct cpu_taps *c);
/* The rows around each of some rows, side by side. */
void cpu_unfold(struct device *d, const struct inst *inst, const struct cpu_taps *c);
/* The token at which a row begins that was pooled TIMES times as P says: for a first
 * row that is apart, one before the text. */
static inline int64_t cpu_pooled_token(size_t row, const struct pooled_text *p,
                                       uint64_t times)
{
    return positions_pooled_token((int64_t)row, p->apart, times);
}

MUST_CHECK int cpu_convolve(struct device *d, const struct inst *inst,
                            const struct cpu_taps *c, struct err *err);
void cpu_dynamic(struct device *d, const struct inst *inst, const struct cpu_taps *c);
/* OP_CAUSAL_CONVOLVE of X[rows][cols], with the taps W[cols][taps] (state-conv.c). */
struct cpu_tail {
    float *y;
    const float *x;
    const struct matrix *w;
    const struct states_view *state;
    size_t rows, cols, taps;
};
MUST_CHECK int cpu_causal_convolve(struct device *d, const struct cpu_tail *c,
                                   struct err *err);
/* OP_SCAN of INST (state-scan.c). */
struct cpu_scan {
    float *y;
    const float *x[INST_SOURCES]; /* as the kind has them (program/recurrence.h) */
    const struct matrix *w, *w2;
    const struct states_view *state;
    size_t rows;
};
uint64_t cpu_scan_room(const struct inst *inst, uint64_t rows);
MUST_CHECK int cpu_scan(struct device *d, const struct inst *inst,
                        const struct cpu_scan *c, struct err *err);
/* C[m][n] = A[m][k] B[n][k]^T by one thread, as fast as it gets: by oneDNN where it is
 * there.  For measuring. */
void cpu_gemm(size_t m, size_t n, size_t k, const float *a, const float *b, float *c);
/* True if CODE is an instruction of oneDNN.  Its version 2.6 writes near address 0 if
 * it gets no memory for the code that it generates at the first product of a kind. */
bool cpu_is_dnnl(const void *code);
/* TO[N] = the numbers at X, which may be TO, rounded to f16. */
void cpu_round_half(float *to, const float *x, size_t n);

#endif
