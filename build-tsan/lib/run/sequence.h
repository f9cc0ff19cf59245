/* sequence - how the ranks of a sequence group share the tokens of a step
 *
 * Each of the S ranks has a range of the step's rows, in order.  The ranks are U by R:
 * each U neighbours exchange heads before attention and rows after it (Jacobs et al.
 * 2023, "DeepSpeed Ulysses"), so that a rank has all their rows for some of the heads;
 * KV groups are dealt whole, and one is repeated where there are more ranks than
 * groups. The R sets of neighbours pass keys and values around in a ring (Liu et al.
 * 2023, "Ring Attention").  A step of fewer tokens than ranks is shared: all ranks have
 * all of its rows. */
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
    void *packed;      /* device: room for one rank's part */
    size_t packed_bytes;
    /* of the present step */
    bool shared;
    size_t n;               /* its tokens */
    size_t first, count;    /* this rank's rows */
    const int32_t *rows;    /* device: count; set by who uploads the step */
    size_t begin, gathered; /* the rows of this rank and its neighbours */
    uint64_t moved;         /* bytes that this rank has sent for attention, ever */
};

/* ACROSS must divide the group's size. */
void sequence_init(struct sequence *s, struct comm *comm, struct link *link,
                   int across);
void sequence_clear(struct sequence *s);
/* Share a step of N tokens. */
void sequence_begin(struct sequence *s, size_t n);
/* The rows of the neighbours at place PLACE of the ring, of a step that is not shared.
 */
void sequence_place(const struct sequence *s, int place, size_t *first, size_t *count);
/* Most rows that a rank has, and most that its neighbours and it have, of a step of at
 * most TOKENS. */
size_t sequence_rows_most(const struct sequence *s, size_t tokens);
size_t sequence_gathered_most(const struct sequence *s, size_t tokens);

/* The part that this rank takes; WITHIN is 1 for keys and values.  PER is the heads of
 * a group of the queries: what they are dealt by. */
struct head_part sequence_heads(const struct sequence *s, uint64_t groups, uint64_t per,
                                uint64_t within, uint64_t dim);
uint64_t heads_cols(const struct head_part *h); /* of the part */

/* y[gathered][part's columns] from x[count][all columns], and back; device memory.  Y
 * and X differ. */
MUST_CHECK int sequence_to_heads(struct sequence *s, const struct head_part *h,
                                 uint64_t per, float *y, const float *x,
                                 struct err *err);
MUST_CHECK int sequence_to_rows(struct sequence *s, const struct head_part *h,
                                uint64_t per, float *y, const float *x,
                                struct err *err);

/* y[n][cols] on the group's first rank from the rows x[count][cols] of all; memory of
 * the host. */
MUST_CHECK int sequence_collect(struct sequence *s, float *y, const float *x,
                                size_t cols, struct err *err);

#endif
