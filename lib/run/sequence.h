/* sequence - sequence parallelism: how ranks share the tokens of a step
 *
 * Each of the S ranks of the group has a contiguous range of the step's rows.  S = U x
 * R.  Each U neighbouring ranks exchange heads for rows before attention and back after
 * it (an all-to-all; Jacobs et al. 2023, "DeepSpeed Ulysses"), so a rank then has all
 * rows of the neighbours for some of the heads.  KV groups are not split; with more
 * ranks than groups, a group is replicated.  The R sets of neighbours pass keys and
 * values around a ring (Liu et al. 2023, "Ring Attention").  If a step has fewer tokens
 * than ranks, it is replicated: all ranks have all rows.
 *
 * In training every step is divided, and some ranks may have no rows.  The rows of a
 * step are in 2 R chunks, and set P of neighbours has chunks P and 2 R - 1 - P, one
 * behind the other, so that causal attention costs all sets the same. */
#ifndef LIB_RUN_SEQUENCE_H
#define LIB_RUN_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/run/link.h"

/* Rows [first, first + count) of a step. */
struct rows_run {
    size_t first, count;
};

enum { ROWS_RUNS = 2 }; /* runs of rows that a rank, or a set of neighbours, has */

struct sequence {
    struct comm *comm; /* of the group; borrowed */
    struct link *link; /* borrowed */
    int across, ring;  /* U and R */
    bool trains;       /* steps are divided as in training */
    void *packed;      /* device: buffer for one rank's part */
    size_t packed_bytes;
    uint64_t most;  /* its bytes in the largest step */
    uint64_t grown; /* how often a step had more */
    /* the current step */
    bool shared;                    /* replicated: every rank has all rows */
    size_t n;                       /* tokens of the step */
    size_t first, count;            /* this rank's rows; first: not in training */
    struct rows_run run[ROWS_RUNS]; /* they, in order; some may be empty */
    const int32_t *rows;    /* device: a copy of count, set by the caller that uploads
                             * the step */
    size_t begin, gathered; /* the rows of this rank and its neighbours */
    uint64_t moved;         /* total bytes that this rank has sent for attention */
};

/* ACROSS must divide the group's size. */
void sequence_init(struct sequence *s, struct comm *comm, struct link *link,
                   int across);
void sequence_clear(struct sequence *s);
/* Steps of at most TOKENS will exchange the heads H; sequence_open allocates for all.
 */
void sequence_plan(struct sequence *s, const struct head_part *h, uint64_t per,
                   size_t tokens);
MUST_CHECK int sequence_open(struct sequence *s, struct err *err);
/* Divides a step of N tokens. */
void sequence_begin(struct sequence *s, size_t n);
/* RUN = the rows of the neighbours at position PLACE of the ring, in training. */
void sequence_runs(const struct sequence *s, int place, struct rows_run run[ROWS_RUNS]);
/* The rows of RUN, the first of which has place BEFORE, that are of the N from BEGIN
 * on: returns their number; they have the places from *PLACE on, and are those from
 * *FIRST on of the N. */
size_t rows_run_meet(const struct rows_run *run, size_t before, size_t begin, size_t n,
                     size_t *place, size_t *first);
/* The place of row ROW of the step among this rank's; -1: another rank has it. */
int64_t sequence_own(const struct sequence *s, size_t row);
/* The rows of the neighbours at position PLACE of the ring; for a step that is not
 * replicated.  In training *first is 0. */
void sequence_place(const struct sequence *s, int place, size_t *first, size_t *count);
/* Upper bounds for a step of at most TOKENS: rows of a rank, and rows of a set of
 * neighbours. */
size_t sequence_rows_most(const struct sequence *s, size_t tokens);
size_t sequence_gathered_most(const struct sequence *s, size_t tokens);

/* The heads that this rank computes.  WITHIN is 1 for keys and values.  PER is the
 * number of query heads in a KV group, the unit of distribution. */
struct head_part sequence_heads(const struct sequence *s, uint64_t groups, uint64_t per,
                                uint64_t within, uint64_t dim);
uint64_t heads_cols(const struct head_part *h); /* number of columns */

/* All-to-all from rows to heads: y[gathered][part's columns] from x[count][all
 * columns]; sequence_to_rows is the inverse.  Device memory; Y and X must not
 * overlap. */
MUST_CHECK int sequence_to_heads(struct sequence *s, const struct head_part *h,
                                 uint64_t per, float *y, const float *x,
                                 struct err *err);
MUST_CHECK int sequence_to_rows(struct sequence *s, const struct head_part *h,
                                uint64_t per, float *y, const float *x,
                                struct err *err);

/* The same where ranks have terms of the same columns, which are added in the order of
 * the ranks: those of a KV group of which each has some query heads, or, ALIKE, all
 * columns of H.  sequence_plan_sum is sequence_plan for it. */
MUST_CHECK int sequence_sum_rows(struct sequence *s, const struct head_part *h,
                                 uint64_t per, bool alike, float *y, const float *x,
                                 struct err *err);
void sequence_plan_sum(struct sequence *s, const struct head_part *h, uint64_t per,
                       bool alike, size_t tokens);

/* Gathers the rows x[count][cols] of all ranks into y[n][cols] on the group's first
 * rank; host memory. */
MUST_CHECK int sequence_collect(struct sequence *s, float *y, const float *x,
                                size_t cols, struct err *err);
/* The inverse: y[count][cols] = this rank's rows of x[n][cols], which the group's first
 * rank has. */
MUST_CHECK int sequence_scatter(struct sequence *s, float *y, const float *x,
                                size_t cols, struct err *err);

#endif
