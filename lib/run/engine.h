/* engine - runs a program on one rank
 *
 * An engine holds a program's weights, its cache and one arena for all values.  A step
 * runs the program on some tokens of one sequence: a prompt or a chunk of it, or one
 * new token.  All ranks of a tensor group take the same steps, and all stages of a
 * pipeline the same, one after the other: a step receives what its stage imports, and
 * sends what it exports, so that a stage works on a step while the next one works on
 * the step before. */
#ifndef LIB_RUN_ENGINE_H
#define LIB_RUN_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/comm/comm.h"
#include "lib/program/backend.h"
#include "lib/program/program.h"

struct engine_limits {
    int threads;
    size_t tokens;    /* of one step */
    size_t wanted;    /* rows of one step that reach the outputs */
    size_t context;   /* tokens of a sequence, for the cache */
    size_t source;    /* tokens of a source, for programs that read one */
    size_t sequences; /* that are kept at a time; 0 is 1 */
};

struct engine;

/* Who an engine works with. */
struct engine_groups {
    struct comm *tensor;   /* the ranks that share each layer */
    struct comm *sequence; /* those that share the tokens (sequence.h) */
    struct comm *pipe; /* those that have this rank's part of the stages, in order */
    int across;        /* ranks of the sequence group that exchange heads */
};

/* WEIGHT[i] is program weight i, which must outlive the engine, as must PROGRAM and the
 * groups. */
int engine_open(struct engine **out, const struct program *program,
                const struct matrix *weight, const struct engine_groups *groups,
                const struct engine_limits *limits, struct err *err);
void engine_free(struct engine *e);

struct step {
    const int32_t *ids;         /* [n] */
    const int32_t *token_types; /* [n], or NULL: all 0 */
    const int32_t *targets; /* [n]: the token that follows each, for "nll"; or NULL */
    size_t n;               /* at most limits.tokens */
    const int32_t *source;  /* [nsource], in the first step of a sequence of a program
                               that reads one; else NULL */
    size_t nsource;
    size_t start;          /* position of the first; 0 begins a new sequence */
    size_t sequence;       /* whose cache, below limits.sequences */
    const int32_t *wanted; /* [nwanted] rows of this step that reach the outputs of a
                              program built with .wanted */
    size_t nwanted;
};

/* Run STEP.  The outputs stay valid until the next step. */
int engine_step(struct engine *e, const struct step *step, struct err *err);
/* Call SEE before the first instruction of each part of the model (model_part), and
 * with -1 after the last of a step, from now on. */
void engine_watch(struct engine *e, void (*see)(void *arg, int part), void *arg);
/* Output I of the program, which this stage makes: *rows rows of its value's
 * whole_cols.  The first rank of a sequence group has the rows of all tokens, the
 * others their own. */
const float *engine_output(const struct engine *e, int i, size_t *rows);

/* Bytes of the cache, and of the arena with what is exchanged for attention. */
uint64_t engine_cache_bytes(const struct engine *e);
uint64_t engine_arena_bytes(const struct engine *e);
/* Bytes this rank has sent to others of its sequence group for attention. */
uint64_t engine_moved_bytes(const struct engine *e);

#endif
