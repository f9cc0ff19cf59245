/* attend - the cache of one rank, and attention over it
 *
 * What a program keeps lies here, and its attention is done here, because both depend
 * on how the ranks of a sequence group share the tokens (sequence.h): a rank keeps its
 * neighbours' rows for its part of the heads, and when there is a ring, only those. */
#ifndef LIB_RUN_ATTEND_H
#define LIB_RUN_ATTEND_H

#include "lib/program/backend.h"
#include "lib/run/sequence.h"

struct attend;

struct attend_limits {
    size_t tokens;    /* of one step */
    size_t context;   /* of a sequence */
    size_t source;    /* of its source */
    size_t sequences; /* kept at a time */
};

/* P, S, OPS and DEVICE must outlive it.  ERR_NO when the ranks that exchange heads are
 * more than the heads. */
int attend_open(struct attend **out, const struct program *p, struct sequence *s,
                const struct backend *ops, struct device *device,
                const struct attend_limits *limits, struct err *err);
void attend_free(struct attend *a);
uint64_t attend_cache_bytes(const struct attend *a);
/* What it needs besides: room for exchanged rows. */
uint64_t attend_scratch_bytes(const struct attend *a);

/* Begin a step of sequence SEQUENCE, whose first token is at START (0: a new sequence,
 * with a source of SOURCE tokens); S has been told of it. */
void attend_begin(struct attend *a, size_t sequence, size_t start, size_t source);
/* Keep x[count][cols], this rank's rows of an OP_KEEP. */
int attend_keep(struct attend *a, const struct inst *inst, const float *x,
                struct err *err);
/* y[count] = the attention INST of q[count], with the table BIAS or NULL; K and V are
 * NULL where they are kept. */
int attend_run(struct attend *a, const struct inst *inst, const struct matrix *bias,
               float *y, const float *q, const float *k, const float *v,
               struct err *err);

#endif
