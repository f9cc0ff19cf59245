/* attention - interface between the files that make attention
 *
 * attention.c opens a struct attention_job; prefill.c and decode.c make the results of
 * many queries and of one. */
#ifndef LIB_CPU_ATTENTION_ATTENTION_H
#define LIB_CPU_ATTENTION_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/cpu/attention/decode-int8.h"
#include "lib/cpu/attention/prefill-bf16.h"
#include "lib/cpu/cache/kv-rows.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"

enum {
    BLOCK = 64,              /* queries per task */
    RELATE_BLOCK = 16,       /* queries of a block of scores of relative.c */
    GLOBALS_BLOCK = 16,      /* and of longformer.c */
    SIDE_BLOCK = 16,         /* and of side.c */
    WIDE = 64,               /* cached keys that are converted to f32 at a time */
    PART = DECODE_INT8_PART, /* positions whose values are added up by themselves, and
                              * then to the sum of those before, so that threads can
                              * share the keys of a query */
};

/* Of longformer.c: some keys of a text, and how many such parts a row may see of a text
 * of N tokens: the runs of global tokens, and a window. */
struct globals_part {
    size_t first, n;
};
static inline uint64_t globals_parts(uint64_t n)
{
    return n / 2 + 3;
}

/* Of side.c: the distances of N rows from each other, key - query. */
static inline uint64_t side_distances(uint64_t n)
{
    return n ? 2 * n - 1 : 0;
}

/* Some keys: from FIRST to before END. */
struct attention_span {
    size_t first, end;
};

/* Keys whose rows are contiguous. */
struct attention_run {
    size_t key, n; /* key: index of the first key; n: number of keys */
    size_t row;    /* row of the first key */
};

/* Shared by all threads. */
struct attention_job {
    const struct inst *inst;
    const struct attention_step *step;
    const float *q;
    float *y;
    size_t q_stride, k_stride, v_stride, y_stride; /* between rows */
    size_t block;                                  /* queries of a task */
    struct kv_rows keys, values;
    size_t kv_heads; /* of a task with values, if there is a single query */
    float *score;    /* [threads][block][keys]; with a single query,
                      * [heads][decode_score_stride(keys)] */
    void *owned;     /* what these are in */
    float *part; /* with a single query, [PARTs][heads][value_dim]: sums of values; else
                  * [threads][block][value_dim] */
    struct attention_run *run; /* [runs] */
    size_t runs;
    float *sink;    /* [heads]: attention sinks; or NULL */
    float *own;     /* [rows][heads]: scores, then weights, of the queries' own keys; or
                     * NULL */
    size_t *bucket; /* [distances]: of a query's own biases, query - key; or NULL */
    float *bias;    /* [heads][distances], divided by the scale; or NULL */
    int64_t least;  /* the smallest distance, key - query */
    size_t distances;
    float *wide; /* [threads][WIDE][the larger of dim and value_dim], or NULL */
    struct decode_int8_queries bytes; /* keys of 8 bits: the queries, [heads] of a
                                       * single one, else [threads][block] */
    char *sums; /* values of 8 bits: a struct decode_int8_sum of each thread */
    struct prefill_bf16 *bf16; /* NULL: products are made in f32 */
};

/* Returns how many keys of [FIRST, END) lie in RUN; *key is the first of them. */
static inline size_t attention_keys_in(const struct attention_run *run, size_t first,
                                       size_t end, size_t *key)
{
    size_t low = run->key > first ? run->key : first;
    size_t high = run->key + run->n < end ? run->key + run->n : end;

    *key = low;
    return high > low ? high - low : 0;
}

/* THREAD's part of WIDE. */
static inline float *attention_wide(const struct attention_job *j, int thread)
{
    size_t dim = j->inst->attention.head_dim, value_dim = j->inst->attention.value_dim;

    return j->wide
               ? j->wide + (size_t)thread * WIDE * (dim > value_dim ? dim : value_dim)
               : NULL;
}

/* N floats, rounded up to lines of a CPU cache. */
static inline size_t attention_whole_lines(size_t n)
{
    return (n + VEC - 1) / VEC * VEC;
}

/* Scores of a query, with those that fill a panel. */
static inline size_t attention_room_of_keys(const struct attention_job *j)
{
    return amx_sides(j->step->keys) * AMX_SIDE;
}

/* The end of the PART of positions that KEY is in, or END if that is before. */
static inline size_t attention_part_end(const struct attention_job *j, size_t key,
                                        size_t end)
{
    size_t next = PART - (j->step->first_key + key) % PART;

    return end - key < next ? end : key + next;
}

/* The keys visible to the query at POSITION: [*first, *end), which may be empty. */
void attention_visible(const struct attention_job *j, size_t position, size_t *first,
                       size_t *end);
void attention_set_lse(const struct attention_job *j, size_t row, size_t head,
                       float lse);
/* Index in the whole model of the rank's HEAD. */
uint64_t attention_global_head(const struct inst *inst, size_t head);
/* Applies dropout to the weights, or their gradients, of ROWS queries from ROW on over
 * N keys from LOW on. */
void attention_drop(const struct attention_job *j, size_t row, size_t rows, size_t head,
                    float *score, size_t low, size_t n);
void attention_add_part(float *y, const float *x, size_t n);
/* Is the text read in blocks? */
bool attention_in_blocks(const struct attention_job *j);
/* The keys of [LOW, HIGH) that some of ROWS queries from ROW on see, or more, in order:
 * SPAN[3].  Returns how many spans there are. */
int attention_spans(const struct attention_job *j, size_t row, size_t rows, size_t low,
                    size_t high, struct attention_span *span);
/* Finds the contiguous rows: one run without block table, else one for each group of
 * adjacent blocks. */
int attention_open_runs(struct attention_job *j, struct device *d, struct err *err);

/* bias.c */
/* The score of the key without a value or, before attention_set_lse, of the key that
 * only query ROW sees; -INFINITY: none. */
float bias_sink(const struct attention_job *j, size_t row, size_t head);
/* Converts the sinks of this instruction's heads to f32. */
int bias_open_sinks(struct attention_job *j, struct device *d, struct err *err);
/* Tabulates the bias of each distance that occurs, from (first key, last query) to
 * (last key, first query). */
int bias_open(struct attention_job *j, struct device *d, struct err *err);
/* Tabulates the buckets of all distances that occur, and the scores of the queries' own
 * keys. */
int bias_open_stream(struct attention_job *j, struct device *d, struct err *err);
/* Adds the biases by distance to the scores S of the keys [FIRST, FIRST + N). */
void bias_add(const struct attention_job *j, size_t head, size_t position, float *s,
              size_t first, size_t n);
/* y[ROWS] += the values that only they see, times their weights. */
void bias_add_own_values(const struct attention_job *j, size_t row, size_t rows,
                         size_t head);

/* softmax.c */
/* Replaces the scores S[n] by weights, which sum to 1 together with the weight of SINK
 * (-INFINITY: no sink).  Returns the log of the sum of exponentials. */
float softmax_scores(float *s, size_t n, float scale, float cap, float sink);

/* kv-products.c */
/* Scores of ROWS queries, Q with Q_STRIDE, with the SOME keys from ROW on; SCORE has a
 * stride of N. */
void kv_products_score(const struct attention_job *j, float *score, size_t n,
                       const float *q, size_t q_stride, size_t rows, size_t row,
                       size_t some, size_t kv, float *wide);
/* y[ROWS][value_dim] += weights times the SOME values from ROW on.  May change the
 * weights. */
void kv_products_add(const struct attention_job *j, float *y, float *score, size_t n,
                     size_t rows, size_t row, size_t some, size_t kv, float *wide);
/* y[ROWS][value_dim] = the values of 8 bits of the keys [FIRST, END) of a PART, times
 * weights, whose first column is that of FIRST. */
void kv_products_sum_int8(const struct attention_job *j, float *y, const float *weight,
                          size_t n, size_t rows, size_t first, size_t end, size_t kv,
                          int thread);
/* The rounded queries from AT on; without any if keys are not of 8 bits. */
struct decode_int8_queries kv_products_queries(const struct attention_job *j,
                                               size_t at);

/* prefill.c */
/* Computes the attention weights of ROWS queries from ROW on over the keys that at
 * least one of them sees, or more: returns their number N, *first_key is the first.  N
 * is 0 if no key is visible.  SCORE is [BLOCK][attention_room_of_keys]. */
size_t prefill_weigh(const struct attention_job *j, size_t row, size_t rows,
                     size_t head, size_t kv, float *score, int thread,
                     size_t *first_key);
/* Task: block of queries TASK / heads of head TASK % heads. */
void prefill_queries(void *arg, size_t task, int thread);
/* May products be rounded, and are there so many queries that laying keys and values
 * out for tiles is worth while? */
bool prefill_wants_bf16(const struct attention_step *s);
/* Lays them out. */
int prefill_open_bf16(struct attention_job *j, struct device *d, struct prefill_bf16 *t,
                      struct err *err);

/* decode.c */
/* Stride of the score rows of two heads over N keys; not a multiple of 4096 bytes,
 * because then one key's scores would all map to one cache set. */
static inline size_t decode_score_stride(size_t n)
{
    return attention_whole_lines(n) + VEC;
}
size_t decode_parts(const struct attention_job *j);
/* Attention of a single query. */
void decode_query(struct device *d, struct attention_job *j);

#endif
