/* exchange - instructions for which a rank needs the others, or rows of the whole step
 *
 * What an engine is made of stands here for them; others use engine.h. */
#ifndef LIB_RUN_EXCHANGE_H
#define LIB_RUN_EXCHANGE_H

#include "lib/run/engine.h"
#include "lib/run/sequence.h"

struct rotation {
    float *cos, *sin; /* [rows][dim/2] of this step */
    double *inv_freq; /* in force */
};

struct engine {
    const struct program *p;
    const struct backend *ops;
    struct device *device;
    const struct matrix *weight;
    struct comm *comm; /* the tensor group */
    struct comm *pipe; /* this rank's part of all stages */
    struct engine_limits limits;
    char *arena;
    uint64_t arena_bytes;
    struct sequence sequence;
    struct attend *attend;
    uint64_t *offset; /* [nvalues] */
    float **whole;    /* [noutputs]: rows of all tokens, where they are shared */
    size_t *whole_cap;
    struct rotation *rotation; /* [nropes] */
    int32_t *position, *types; /* [tokens] */
    double *stat;              /* two numbers a group; grown as needed */
    size_t stat_cap;
    float *exchange; /* for gathers: own and all ranks' columns */
    size_t exchange_cap;
    struct step step; /* the last, this rank's rows of it; the arrays are the caller's
                         while it runs */
    int32_t *chosen;  /* [nchosen]: rows of the step that the expert at work is for */
    size_t nchosen;
    uint64_t first_expert, expert; /* the first of this rank; the one at work, from 0 */
    const int32_t *targets;        /* of all rows */
    void (*see)(void *arg, int part); /* or NULL */
    void *see_arg;
};

static inline size_t rows_of(const struct engine *e, int v)
{
    switch (e->p->value[v].rows) {
    case ROWS_WANTED:
        return e->step.nwanted;
    case ROWS_ONE:
        return 1;
    case ROWS_SOURCE:
        return e->step.nsource;
    case ROWS_CHOSEN:
        return e->nchosen;
    case ROWS_KINDS:
    case ROWS_TOKENS:
        break;
    }
    return e->step.n;
}

static inline float *value(const struct engine *e, int v)
{
    return (float *)(void *)(e->arena + e->offset[v]);
}

static inline const struct matrix *weight_of(const struct engine *e, int w)
{
    return w < 0 ? NULL
                 : &e->weight[w + (e->p->weight[w].experts ? (int)e->expert : 0)];
}

/* A norm; row sums of a cut axis are exchanged. */
int exchange_norm(struct engine *e, const struct inst *inst, struct err *err);
/* All ranks' columns, each put where its runs say; this rank's of a whole value. */
int exchange_gather(struct engine *e, const struct inst *inst, struct err *err);
void exchange_slice(struct engine *e, const struct inst *inst);
/* The wanted rows, and the first, of those that the sequence group shares. */
int exchange_take(struct engine *e, const struct inst *inst, struct err *err);
int exchange_first(struct engine *e, const struct inst *inst, struct err *err);
/* OP_NLL and OP_ARGMAX: each rank sums up its columns, then all combine them in rank
 * order. */
int exchange_rows(struct engine *e, const struct inst *inst, struct err *err);

#endif
