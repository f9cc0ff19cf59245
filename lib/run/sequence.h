/* sequence - sequence parallelism: how ranks share the tokens of a step
 *
 * Each of the S ranks of the group has a contiguous range of the step's rows.  S = U x
 * R.  Each U neighbouring ranks exchange heads for rows before attention and back after
 * it (an all-to-all; Jacobs et al. 2023, "DeepSpeed Ulysses"), so a rank then has all
 * rows of the neighbours for some of the heads.  KV groups are not split; with more
 * ranks than groups, a group is replicated.  The R sets of neighbours pass keys and
 * values around a ring (Liu et al. 2023, "Ring Attention").  If a step has fewer tokens
 * than ranks, it is replicated: all ranks have all rows. */
#ifndef LIB_RUN_SEQUENCE_H
#define LIB_RUN_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/run/link.h"

struct sequence {
    struct comm *comm; /* of the group; borrowed */
    struct link *link; /* borrowed */
    int across, ring;  /* U and R */
    void *packed;      /* device: buffer for one rank's part */
    size_t packed_bytes;
    uint64_t most;  /* its bytes in the largest step */
    uint64_t grown; /* how often a step had more */
    /* the current step */
    bool shared;            /* replicated: every rank has all rows */
    size_t n;               /* tokens of the step */
    size_t first, count;    /* this rank's rows */
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
/* The rows of the neighbours at position PLACE of the ring; for a step that is not
 * replicated. */
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

/* Gathers the rows x[count][cols] of all ranks into y[n][cols] on the group's first
 * rank; host memory. */
MUST_CHECK int sequence_collect(struct sequence *s, float *y, const float *x,
                                size_t cols, struct err *err);

#endif
