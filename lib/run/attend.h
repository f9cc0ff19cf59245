/* attend - the cache of one rank, and attention over it
 *
 * What a program keeps lies in a cache of blocks (cache.h), and its attention is done
 * here, because both depend on how the ranks of a sequence group share the tokens
 * (sequence.h): a rank keeps its neighbours' rows for its part of the heads, and when
 * there is a ring, only those. */
#ifndef LIB_RUN_ATTEND_H
#define LIB_RUN_ATTEND_H

#include "lib/run/cache.h"
#include "lib/run/replays.h"
#include "lib/run/sequence.h"

struct attend;

/* The rows of a step that are of one sequence. */
struct attend_segment {
    size_t sequence, start; /* 0: a new one */
    size_t row, n;          /* among those of this rank's step, or of all that share */
    size_t source_row, nsource; /* of a new one's source */
};

/* P, S, FROM (how the source's tokens are shared) and LINK must outlive it.  ERR_NO
 * when the ranks that exchange heads are more than the heads. */
MUST_CHECK int attend_open(struct attend **out, const struct program *p,
                           struct sequence *s, struct sequence *from, struct link *link,
                           const struct cache_limits *limits, struct err *err);
void attend_free(struct attend *a);
uint64_t attend_cache_bytes(const struct attend *a);
/* What it needs besides: room for exchanged rows. */
uint64_t attend_scratch_bytes(const struct attend *a);

/* Begin a step of N segments (one, where ranks share them): make room in the cache, and
 * add to U what its kernels read; attend_ready when U has been sent. */
MUST_CHECK int attend_begin(struct attend *a, const struct attend_segment *segment,
                            size_t n, struct upload *u, struct err *err);
void attend_ready(struct attend *a, const struct upload *u);
/* Adds to *shape everything that the launches of this module depend on in the current
 * step, which no other rank shares. */
void attend_shape(const struct attend *a, struct shape *shape);
/* SEQUENCE has ended. */
void attend_forget(struct attend *a, size_t sequence);
/* Run CALL, of an OP_KEEP or OP_ATTENTION, whose buffers are filled but for those of
 * kept values. */
MUST_CHECK int attend_keep(struct attend *a, struct call *call, struct err *err);
MUST_CHECK int attend_run(struct attend *a, struct call *call, struct err *err);
/* The same of an OP_ATTENTION_BACK. */
MUST_CHECK int attend_back(struct attend *a, struct call *call, struct err *err);

#endif
