/* attend - the KV cache of one rank, and attention over it
 *
 * The cache is allocated in blocks (cache.h).  Cache and attention are one module
 * because both depend on how the ranks of a sequence group share the tokens
 * (sequence.h): with Ulysses a rank caches all neighbours' rows for its part of the
 * heads; with a ring, only these neighbours' rows. */
#ifndef LIB_RUN_ATTEND_H
#define LIB_RUN_ATTEND_H

#include "lib/run/cache.h"
#include "lib/run/replays.h"
#include "lib/run/sequence.h"
#include "lib/run/upload.h"

struct attend;

/* The rows of a step that belong to one sequence. */
struct attend_segment {
    size_t sequence, start; /* start: position of the first row; 0: a new sequence */
    size_t row, n;          /* among the rows of this rank's step, or of all ranks with
                             * sequence parallelism */
    size_t source_row, nsource; /* of a new sequence's encoder input */
    uint64_t token;             /* as in struct segment */
};

/* attend_plan finds the sizes, attend_open allocates in the device of LINK.  P, S, FROM
 * (sharing of the encoder's tokens) and LINK must outlive *out.  ERR_NO when there are
 * more ranks that exchange heads than heads. */
MUST_CHECK int attend_plan(struct attend **out, const struct program *p,
                           struct sequence *s, struct sequence *from, struct link *link,
                           const struct cache_limits *limits, struct err *err);
MUST_CHECK int attend_open(struct attend *a, struct err *err);
void attend_free(struct attend *a);
uint64_t attend_cache_bytes(const struct attend *a);
uint64_t attend_tables_bytes(const struct attend *a);
/* Bytes of temporary buffers, for rows that are exchanged. */
uint64_t attend_scratch_bytes(const struct attend *a);
/* Most bytes that are sent at a time. */
uint64_t attend_sent_bytes(const struct attend *a);
/* The number of KEYS that kernels are launched for. */
size_t attend_padded(size_t keys);
/* Most cached rows of a sequence. */
size_t attend_keys_most(const struct attend *a);
/* Adds to U, which plans, what attend_begin adds in the largest step, of N segments. */
void attend_begin_most(const struct attend *a, size_t n, struct upload *u);

/* Begins a step of N segments (at most one with sequence parallelism): makes room in
 * the cache, and adds to U what the kernels read.  ROOM: 0, or
 * how many segments and, rounded to powers of two, keys it is launched for, so that
 * other steps have its shape.
 * Call attend_ready after upload_send. */
MUST_CHECK int attend_begin(struct attend *a, const struct attend_segment *segment,
                            size_t n, size_t room, struct upload *u, struct err *err);
void attend_ready(struct attend *a, const struct upload *u);
/* Adds to *shape everything that the launches of this module depend on in the current
 * step, which no other rank shares. */
void attend_shape(const struct attend *a, struct shape *shape);
/* Ends SEQUENCE and frees its blocks. */
void attend_forget(struct attend *a, size_t sequence);
/* Can sequences share the rows with which they begin?  *WINDOW: a sequence that has had
 * more rows has lost some; 0: it never does. */
bool attend_can_share(const struct attend *a, size_t *window);
/* Can a sequence begin with all rows that another has?  Not where ranks have parts of
 * it. */
bool attend_can_fork(const struct attend *a);
/* As cache_truncate and cache_share. */
void attend_truncate(struct attend *a, size_t sequence, size_t n);
MUST_CHECK int attend_share(struct attend *a, size_t to, size_t from, size_t n,
                            struct err *err);
/* Blocks that sequences hold. */
size_t attend_held(const struct attend *a);
/* attend_keep appends to the KV cache (OP_KEEP), attend_run computes OP_ATTENTION and
 * OP_STREAM.  The caller sets CALL's buffers except those of cached values. */
MUST_CHECK int attend_keep(struct attend *a, struct call *call, struct err *err);
/* Sets the cache's buffer and range of CALL, of OP_KEEP where no ranks share texts. */
void attend_aim(const struct attend *a, struct call *call);
MUST_CHECK int attend_run(struct attend *a, struct call *call, struct err *err);
/* The same for OP_ATTENTION_BACK. */
MUST_CHECK int attend_back(struct attend *a, struct call *call, struct err *err);

#endif
