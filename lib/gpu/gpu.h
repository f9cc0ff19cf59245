/* gpu - launchers of the CUDA kernels in *.cu
 *
 * A launcher enqueues its kernels in STREAM and returns.  Addresses are in device
 * memory; structs are passed by value.  Values are f32, row-major; a void * with a flag
 * may be bf16, rounded to nearest even where it is a result.  A launcher does nothing
 * for 0 rows. */
#ifndef LIB_GPU_GPU_H
#define LIB_GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/device/arrays.h"
#include "lib/device/layout.h"
#include "lib/program/attention-shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rows that a kernel works on: 0 to *rows - 1, or for an expert rows[0] to rows[1]
 * - 1.  ROWS is in device memory. */
struct span {
    const int32_t *rows;
    size_t most; /* upper bound, for the size of the launch */
    bool expert;
};

/* y[t][k] = f(x[t][k], z[t][k]); y, x and z have COLS columns */
enum gpu_elementwise {
    GPU_ADD,       /* x + z */
    GPU_MUL,       /* x z */
    GPU_SCALE,     /* x number */
    GPU_SOFTCAP,   /* number tanh(x / number) */
    GPU_CLIP,      /* x clamped to [least, number] */
    GPU_ACTIVATION /* the last: GPU_ACTIVATION + ACT_SILU is silu(x) */
};
void gpu_elementwise(int what, float *y, const float *x, const float *z,
                     struct span rows, uint64_t cols, float number, float least,
                     void *stream);
/* The same of GPU_MUL and activations, with y in bf16. */
void gpu_elementwise_bf16(int what, void *y, const float *x, const float *z,
                          struct span rows, uint64_t cols, void *stream);
/* y = act(x) z; y is bf16 if BF16, else it may be z */
void gpu_gate(void *y, bool bf16, const float *x, const float *z, int act,
              struct span rows, uint64_t cols, void *stream);
/* xIELU: ABOVE applies to x > 0, BELOW to other x; both have one element */
void gpu_xielu(float *y, const float *x, struct matrix above, struct matrix below,
               struct span rows, uint64_t cols, void *stream);
/* y = x + w, w [cols] */
void gpu_add_vector(float *y, const float *x, struct matrix w, struct span rows,
                    void *stream);
/* The same for the N experts of which ROWS is the first: w[i] for the rows of the I-th.
 */
enum { GPU_PRODUCTS = 32 };
struct vectors {
    const void *v[GPU_PRODUCTS];
    enum format format;
    uint64_t cols;
    unsigned n;
};
void gpu_add_vectors(float *y, const float *x, struct vectors w, struct span rows,
                     void *stream);
void gpu_mul_vector(float *y, const float *x, struct matrix w, struct span rows,
                    void *stream);
/* y[t] = x[t] s[t * stride] */
void gpu_mul_rows(float *y, const float *x, const float *s, uint64_t stride,
                  struct span rows, uint64_t cols, void *stream);
/* y[t] = softmax of x[t] */
void gpu_softmax(float *y, const float *x, struct span rows, uint64_t cols,
                 void *stream);

/* Indices: x[t * cols] - minus[t * cols], or - 0 if MINUS is NULL. */
struct indices {
    const int32_t *x, *minus;
    uint64_t cols;
};
/* y[t] = row index(t) + offset - first of the table; zeros if another rank has that
 * row */
void gpu_embedding(float *y, struct matrix w, struct indices index, struct span rows,
                   uint64_t offset, uint64_t first, void *stream);

/* y = x[rows][cols] */
void gpu_input(float *y, const float *x, struct span rows, uint64_t cols, void *stream);

/* Norm groups: WIDTH columns each; COLS is a multiple of WIDTH. */
struct groups {
    struct span rows;
    uint64_t cols, width;
    double whole_width; /* columns of a group over all ranks */
};
/* y = (x - mean) / sqrt(mean of squares + eps) (w + plus) + b for each group; the mean
 * is 0 unless CENTRED; W.data and B.data may be NULL. */
struct norm_weights {
    struct matrix w, b;
    double eps, plus;
    bool centred;
    bool bf16; /* y is */
};
/* y = the norm of each group, on one rank */
void gpu_norm(void *y, const float *x, struct groups g, struct norm_weights n,
              void *stream);
/* SUM = x + z, which may be NULL, and y = its norm */
void gpu_add_norm(void *y, float *sum, const float *x, const float *z, struct groups g,
                  struct norm_weights n, void *stream);
/* sum[g] = sum of x, or of (x - mean)^2 if SQUARES; the mean is TOTAL[g] / whole_width,
 * or 0 if TOTAL is NULL.  All sums are 0 unless OWNED. */
void gpu_group_sum(double *sum, const float *x, const double *total, bool squares,
                   bool owned, struct groups g, void *stream);
/* y = the norm, given the all-reduced squares[g] and, if centred, total[g] */
void gpu_norm_apply(void *y, const float *x, const double *squares, const double *total,
                    struct groups g, struct norm_weights n, void *stream);

/* y[t] = cosines of a row's angles, then their sines; the angle of pair i < HALF is
 * position times inv_freq[i] (host memory).  Sequences longer than CONTEXT (0: no
 * limit) use LONG_FREQ or, if that is NULL, frequencies computed from THETA and
 * FACTOR. */
struct angles {
    const double *inv_freq, *long_freq;
    uint64_t half, context;
    double scale, theta, factor;
};
void gpu_angles(float *y, const int32_t *position, const int32_t *length,
                struct angles a, struct span rows, void *stream);
/* y[t] = x[t] (1 + AMOUNT log(1 + floor((position + 1) / STEP))) (OP_TEMPER) */
void gpu_temper(float *y, const float *x, const int32_t *position, double step,
                double amount, struct span rows, uint64_t cols, void *stream);
/* y[t] = x[t] + sines, then cosines of (position + OFFSET) inv_freq[i], HALF each;
 * inv_freq is in host memory; x NULL: zeros */
void gpu_sinusoid(float *y, const float *x, const int32_t *position, int64_t offset,
                  const double *inv_freq, uint64_t half, struct span rows,
                  void *stream);
/* rotates the first DIM columns of each head of HEAD columns by angles[t] */
void gpu_rope(float *y, const float *x, const float *angles, struct span rows,
              uint64_t cols, uint64_t head, uint64_t dim, bool interleaved,
              void *stream);

/* OP_ROPE_KEEP in one launch: Y of Q is x rotated by ANGLES; that of K is a cache, to
 * which x is appended, rotated; that of V one to which x is appended, with DIM 0.  X
 * NULL: there is none of it. */
struct rotated {
    const float *x;
    float *y;
    uint64_t cols, head, dim;
    bool interleaved;
};
void gpu_rope_keep(struct rotated q, struct rotated k, struct rotated v,
                   const float *angles, struct span rows, struct ranges of_k,
                   struct ranges of_v, void *stream);

/* Rows of keys or values in device memory: of a cache of FORMAT, or of a buffer. */
struct cached {
    const void *data;
    enum format format;
    uint32_t bytes; /* of a row */
    uint32_t cols;
    uint32_t per;   /* of codes: columns that share a scale, */
    uint32_t codes; /* and bytes of a row's scales, before them */
};
/* append rows of ranges to a cache's blocks; read them back */
void gpu_keep(struct cached cache, const float *x, struct ranges r, void *stream);
void gpu_cache_read(float *y, struct cached cache, struct ranges r, void *stream);

/* Options of attention, as in struct inst; value_dim is at most GPU_VALUE_DIM. */
enum { GPU_VALUE_DIM = 1024 };
struct attention {
    ATTENTION_SHAPE;
    bool narrow;  /* bf16 products with 16 significant bits are allowed (cores.cu) */
    bool rounded; /* and with bf16's eight */
    bool bf16;    /* y is */
    struct matrix bias;  /* data NULL: none */
    struct matrix sinks; /* attention sinks; data NULL: none */
};
/* y = softmax(scale q k^T, masked) v; LSE may be NULL.  ROOM is device memory of
 * gpu_attention_room bytes, aligned to 16; NULL if that is 0. */
void gpu_attention(void *y, float *lse, const float *q, struct cached k,
                   struct cached v, struct attention a, struct ranges r, void *room,
                   void *stream);
uint64_t gpu_attention_room(const void *y, const float *q, struct cached k,
                            struct cached v, struct attention a, struct ranges r);
/* The same on tensor cores, for texts of at least LEAST queries; TILES is device memory
 * of gpu_attention_tiles bytes.  Heads have at most 128 columns, a multiple of 4;
 * addresses are aligned to 16 bytes. */
void gpu_attention_cores(void *y, float *lse, const float *q, struct cached k,
                         struct cached v, struct attention a, struct ranges r,
                         uint64_t least, void *tiles, void *stream);
uint64_t gpu_attention_tiles(struct attention a, struct ranges r);
/* The same for texts of fewer than FEWER queries, which have at most ROWS; PARTS is
 * device memory of gpu_attention_parts bytes. */
void gpu_attention_few(void *y, float *lse, const float *q, struct cached k,
                       struct cached v, struct attention a, struct ranges r,
                       uint64_t rows, uint64_t fewer, void *parts, void *stream);
uint64_t gpu_attention_parts(struct attention a, struct ranges r, uint64_t rows);
/* Attention in blocks of the texts of more than a.over keys (blocks.cu). */
void gpu_attention_blocks(void *y, const float *q, struct cached k, struct cached v,
                          struct attention a, struct ranges r, void *stream);
/* Attention of a stream of predictions (stream.cu): a.bias.rows buckets of biases for
 * each query and head; OWN_K and OWN_V may be NULL. */
struct streams {
    const float *biases, *own_k, *own_v;
};
void gpu_stream(float *y, const float *q, struct cached k, struct cached v,
                struct attention a, struct streams o, struct ranges r, void *stream);
/* Texts: FIRST has their first rows, N[0] is their number, and ROWS[0] that of their
 * rows. */
struct texts {
    const int32_t *first, *n, *rows;
};
/* As struct pooled_text of a program. */
struct pooled {
    uint64_t times;
    bool apart, cut;
};
/* Attention with relative positions (relative.cu). */
struct relation {
    uint64_t heads, dim;
    int64_t span, far;
    double scale;
    const float *q_far, *as_key; /* the query for positions, and their rows */
    const float *as_query;       /* or NULL: no score of keys and positions */
    const float *q_type;         /* or NULL: no score of types */
    struct matrix types;         /* [2][heads][dim]: the same type, another */
    const int32_t *type;
    struct texts queries, keys, tokens;
    struct pooled pool;   /* of the queries */
    uint64_t keys_pooled; /* how often the keys were pooled */
    bool other_first;     /* in types */
    int64_t any_type;     /* a token of this type is of every type */
};
void gpu_relate(float *y, const float *q, const float *k, const float *v,
                struct relation a, struct span rows, void *stream);
/* Attention within a window and of global tokens (longformer.cu). */
struct globals {
    uint64_t heads, dim;
    int64_t window;
    double scale;
    const float *q_all, *k_all, *v_all;
    const int32_t *mask; /* not 0 for global tokens */
    struct texts texts;
};
void gpu_global_attention(float *y, const float *q, const float *k, const float *v,
                          struct globals a, struct span rows, void *stream);
/* Attention within a window and to side rows (side.cu). */
struct sides {
    uint64_t heads, dim;
    int64_t window, block;
    uint64_t far;
    double scale;
    const float *k, *v;       /* [side rows][heads][dim] */
    struct matrix bias, side; /* [buckets][heads] */
    struct texts texts, sides;
};
void gpu_side_attention(float *y, const float *q, const float *k, const float *v,
                        struct sides a, struct span rows, void *stream);
/* y[i] = the sum of BLOCK rows, the last of all that are left */
void gpu_block_sum(float *y, const float *x, uint64_t block, struct texts from,
                   struct texts to, struct span rows, uint64_t cols, void *stream);
/* Operations on the rows beside a row (conv-pool.cu). */
void gpu_shift(float *y, const float *x, int64_t by, struct texts text,
               struct span rows, uint64_t cols, void *stream);
/* OP_POOL, or OP_UNPOOL if BACK */
void gpu_pool(float *y, const float *x, struct pooled p, bool most, bool back,
              struct texts from, struct texts to, struct span rows, uint64_t cols,
              void *stream);
/* y[rows][cols][reach] */
void gpu_unfold(float *y, const float *x, struct texts from, struct texts to,
                struct span rows, uint64_t cols, uint64_t reach, uint64_t stride,
                uint64_t before, void *stream);
/* y[t][k] = sum over i of w[k][i] x[t + i - taps + 1][k], of a sequence whose earlier
 * rows are in STATE, which then has those before the next step (state-conv.cu). */
void gpu_causal_convolve(float *y, const float *x, struct matrix w,
                         struct states_view state, struct span rows, uint64_t cols,
                         uint64_t taps, void *stream);
void gpu_convolve(float *y, const float *x, struct matrix w, struct texts text,
                  struct span rows, uint64_t cols, uint64_t taps, void *stream);
void gpu_dynamic(float *y, const float *x, const float *scores, struct texts text,
                 struct span rows, uint64_t heads, uint64_t dim, uint64_t taps,
                 void *stream);
/* merges (z, more) into (y, lse): attention over the union of two sets of keys */
void gpu_merge(float *y, float *lse, const float *z, const float *more,
               struct span rows, uint64_t heads, uint64_t dim, void *stream);

/* N products y = x w^T, or x w if PLAIN, with IN terms and OUT outputs.  Product i has
 * offsets of i X_STEP, i Y_STEP and i W_STEP elements.  rows.expert: product i uses
 * w[i] and the rows of rows.rows + i; otherwise all use w[0]. */
enum {
    GPU_FEW = 16,    /* rows for which weights are streamed */
    GPU_SKINNY = 32, /* and by tensor cores (skinny.cu) */
    GPU_JOINED = 3   /* products of one x */
};
struct joined {
    float *y; /* [rows][out] */
    uint64_t out;
    const void *bias; /* [out], or NULL */
    enum format bias_format;
};
struct products {
    float *y;
    const void *x;
    const void *w[GPU_PRODUCTS];
    enum format format;
    uint64_t in, out;
    uint64_t x_stride, y_stride, w_stride; /* elements between rows */
    uint64_t x_step, y_step, w_step;
    struct span rows;
    size_t each; /* of experts: the rows of one, about */
    unsigned n;
    bool plain;
    bool rounded; /* x is rounded to bf16, or may be; w is bf16 or f16, and not PLAIN */
    bool bf16;    /* x is, and w, and not PLAIN; else it is f32 */
    bool cores;   /* the GPU's tensor cores multiply bf16 */
    void *parts;  /* gpu_skinny: memory for gpu_skinny_parts bytes; NULL if that is 0 */
    /* Several products of one x, if the first has outputs: w[i] has .out outputs, and
     * OUT is the most.  gpu_skinny alone takes them, not PLAIN. */
    struct joined joined[GPU_JOINED];
};
void gpu_product(struct products p, void *stream);
/* N products y = x w^T by weights that are codes: W and SCALE in groups of 16 outputs
 * (base/codes.h), PER terms to a scale where FORMAT leaves it open.  Experts as above,
 * else n is 1; x [rows][in], y [rows][out]. */
struct coded {
    float *y;
    const float *x;
    const void *w[GPU_PRODUCTS], *scale[GPU_PRODUCTS];
    enum format format;
    uint64_t in, out, per;
    struct span rows;
    unsigned n;
};
void gpu_codes(struct coded c, void *stream);
/* What gpu_product launches for 16-bit weights on tensor cores: up to GPU_SKINNY rows,
 * a row of which has the same bits with any number of others (skinny.cu), and more
 * (tiles.cu).  cuBLASLt is faster for many rows, but not for experts. */
bool gpu_is_skinny(const struct products *p);
void gpu_skinny(struct products p, void *stream);
void gpu_tiles(struct products p, void *stream);
/* hi + lo = x[n] with 16 significant bits; both are bf16; LO may be NULL.  N is a
 * multiple of 8, addresses are aligned to 16 bytes. */
void gpu_split_bf16(void *hi, void *lo, const float *x, uint64_t n, void *stream);
/* The same as pairs: eight numbers of hi, then theirs of lo. */
void gpu_split_pairs(void *pairs, const float *x, uint64_t n, void *stream);
/* (hi + lo) FACTOR[GPU_FACTOR] = x[rows][cols]; hi and lo are f16, LO may be NULL.  The
 * factor is a power of two, so that the largest number of hi is close to f16's largest.
 * FACTOR is device memory for GPU_FACTORS numbers, and also gets 1 and 0.  If x has
 * infinities or NaNs the factor is 1. */
enum { GPU_FACTOR, GPU_ONE, GPU_NOTHING, GPU_MAXIMA, GPU_FACTORS = GPU_MAXIMA + 512 };
void gpu_split_f16(void *hi, void *lo, float *factor, const float *x, struct span rows,
                   uint64_t cols, void *stream);

/* gpu_choose: choice[t] = top-k experts of a row by their scores (route in struct
 * inst), padded with -1.  gpu_route: y[t][e] = their weights.  COLS is at most
 * GPU_EXPERTS. */
enum { GPU_EXPERTS = 1024 };
struct routing {
    uint64_t top, groups, of, best;
    double scale, near;
    bool renorm;
    struct matrix bias; /* data NULL: none */
};
void gpu_choose(int32_t *choice, const float *x, struct routing r, struct span rows,
                uint64_t cols, void *stream);
void gpu_route(float *y, const float *x, const int32_t *choice, struct routing r,
               struct span rows, uint64_t cols, void *stream);
/* OP_EXPERT_COUNT, OP_EXPERT_INDEX and OP_EXPERT_COMBINE (lib/program/op.h) for COUNT
 * experts and TOP experts per token */
void gpu_expert_count(int32_t *y, const int32_t *choice, struct span rows, uint64_t top,
                      uint64_t count, void *stream);
void gpu_expert_index(int32_t *y, const int32_t *choice, const int32_t *counts,
                      struct span rows, uint64_t top, uint64_t count, void *stream);
void gpu_expert_combine(float *y, const float *x, const float *route,
                        const int32_t *index, const int32_t *counts, struct span rows,
                        uint64_t cols, uint64_t count, void *stream);

/* y[t] = columns [FIRST, FIRST + COLS) of x[row[t]]; ROW NULL: of x[t]; zeros if row[t]
 * < 0.  Both are bf16 if BF16. */
void gpu_take_rows(void *y, const void *x, bool bf16, const int32_t *row,
                   struct span rows, uint64_t cols, uint64_t x_cols, uint64_t first,
                   void *stream);
/* y = for each head, A columns of x, then B columns of z; z has a single head if
 * SHARED */
void gpu_concat(float *y, const float *x, const float *z, struct span rows,
                uint64_t heads, uint64_t a, uint64_t b, bool shared, void *stream);
/* A run of columns to copy; at most GPU_RUNS per launch. */
enum { GPU_RUNS = 64 };
struct column_run {
    uint64_t to, from, count;
    uint64_t from_cols; /* columns of a source row; the source begins at element BASE *
                         * rows */
    uint64_t base;
};
/* y[t][run.to + i] = x[base * rows + t * from_cols + from + i] for N runs (host
 * memory); both are bf16 if BF16 */
void gpu_copy_columns(void *y, const void *x, bool bf16, const struct column_run *run,
                      size_t n, struct span rows, uint64_t cols, void *stream);

/* y[t] = max, sum of exp(x - max), x[target - first], index of the max + first; f64.
 * PART is device memory for gpu_row_stats_part(rows.most, cols) numbers; NULL if that
 * is 0. */
void gpu_row_stats(double *y, const float *x, const int32_t *target, struct span rows,
                   uint64_t cols, uint64_t first, double *part, void *stream);
/* reductions of the statistics of PARTS ranks: log sum exp - target; index of the
 * max */
void gpu_nll(float *y, const double *stats, uint64_t parts, struct span rows,
             void *stream);
void gpu_argmax(int32_t *y, const double *stats, uint64_t parts, struct span rows,
                void *stream);
/* y[t] = a token drawn from the logits */
void gpu_sample(int32_t *y, const float *x, const struct draw *draw, struct span rows,
                uint64_t cols, void *stream);

/* OP of arrays (lib/device/arrays.h) */
void gpu_array(enum array_op op, struct array_call c, void *stream);

#ifdef __cplusplus
}
#endif
#endif
