/* engine - runs a program on one rank
 *
 * An engine holds a program's cache and one arena for all values, in the memory of a
 * device; it knows addresses and runs kernels, but neither reads nor writes a value.  A
 * step runs the program on segments: some tokens of each of some sequences, a prompt or
 * a chunk of it, or one new token.  All ranks of a tensor group take the same steps,
 * and all stages of a pipeline the same, one after the other: a step receives what its
 * stage imports, and sends what it exports, so that a stage works on a step while the
 * next one works on the step before. */
#ifndef LIB_RUN_ENGINE_H
#define LIB_RUN_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/comm/comm.h"
#include "lib/device/device.h"
#include "lib/program/program.h"
#include "lib/run/wires.h"

struct engine_limits {
    size_t tokens;    /* of one step */
    size_t running;   /* besides, of texts that are being made: one of each */
    size_t wanted;    /* rows of one step that reach the outputs */
    size_t segments;  /* of one step; 0 is 1 */
    size_t context;   /* tokens of a sequence, for the cache */
    size_t source;    /* tokens of a source, for programs that read one, and */
    size_t sources;   /* of all sources of a step; 0: of one */
    size_t cache;     /* tokens that the cache has blocks for; 0: all sequences' */
    size_t sequences; /* that are kept at a time; 0 is 1 */
};

struct engine;

/* Who an engine works with. */
struct engine_groups {
    struct comm *tensor;   /* the ranks that share each layer */
    struct comm *sequence; /* those that share the tokens (sequence.h) */
    struct comm *expert;   /* those that share out the experts; NULL: nobody does */
    struct comm *pipe; /* those that have this rank's part of the stages, in order */
    int across;        /* ranks of the sequence group that exchange heads */
    const struct wires *wires; /* their devices; or NULL */
};

/* WEIGHT[i] is program weight i, in the memory of DEVICE, which OPS has opened; all
 * must outlive the engine, as must PROGRAM and the groups. */
MUST_CHECK int engine_open(struct engine **out, const struct program *program,
                           const struct backend *ops, struct device *device,
                           const struct matrix *weight,
                           const struct engine_groups *groups,
                           const struct engine_limits *limits, struct err *err);
void engine_free(struct engine *e);
/* The gradients of the weights are added to f32 numbers at GRADIENT[i], in the memory
 * of the device, in the weights' order one after the other, for a program with a
 * reverse; the loss is multiplied by SCALE. */
void engine_differentiate(struct engine *e, float *gradient, float scale);
/* What a program drops at random depends on SEED, on the place in the model and on the
 * token's number. */
void engine_drop(struct engine *e, uint64_t seed);

/* The part of a step that is of one sequence. */
struct segment {
    const int32_t *ids;         /* [n] */
    const int32_t *token_types; /* [n], or NULL: all 0 */
    const int32_t *marks;       /* [n][MARKS], or NULL: all 0, the last the position */
    const int32_t *targets; /* [n]: the token that follows each, for "nll"; or NULL */
    size_t n;
    const int32_t *source; /* [nsource], in the first step of a sequence of a program
                              that reads one; else NULL */
    size_t nsource;
    size_t start;          /* position of the first; 0 begins a new sequence */
    uint64_t token;        /* number of the first in all of a training, for dropout */
    size_t length;         /* tokens of the sequence that are known, where rotary angles
                              depend on it; 0: up to the last of these */
    size_t sequence;       /* whose cache, below limits.sequences */
    const int32_t *wanted; /* [nwanted] rows of this segment that reach the outputs of a
                              program built with .wanted */
    size_t nwanted;
    const struct draw
        *draw; /* [nwanted]: how each is drawn, for TAIL_SAMPLE; or NULL */
};

/* Run a step of the N segments at SEGMENT, each of another sequence; where ranks share
 * sequences N is at most 1.  Ranks that share out experts take as many steps as each
 * other, those who have nothing to do with N 0.  The outputs stay valid until the next
 * step. */
MUST_CHECK int engine_step(struct engine *e, const struct segment *segment, size_t n,
                           struct err *err);
/* The same, without the reverse; and the reverse of the last step run so. */
MUST_CHECK int engine_forward(struct engine *e, const struct segment *segment, size_t n,
                              struct err *err);
MUST_CHECK int engine_reverse(struct engine *e, struct err *err);
/* SEQUENCE has ended, and its part of the cache is free. */
void engine_forget(struct engine *e, size_t sequence);
/* Call SEE before the first instruction of each part of the model (model_part), and
 * with -1 after the last of a step, from now on. */
void engine_watch(struct engine *e, void (*see)(void *arg, int part), void *arg);
/* Output I of the program, which this stage makes: *out has *rows rows of its value's
 * whole_cols, until the next call.  The first rank of a sequence group has the rows of
 * all tokens, the others their own. */
MUST_CHECK int engine_output(struct engine *e, int i, const float **out, size_t *rows,
                             struct err *err);

/* Bytes of the cache, and of the arena with what is exchanged for attention. */
uint64_t engine_cache_bytes(const struct engine *e);
uint64_t engine_arena_bytes(const struct engine *e);
/* Bytes this rank has sent to others of its sequence group for attention. */
uint64_t engine_moved_bytes(const struct engine *e);

#endif
