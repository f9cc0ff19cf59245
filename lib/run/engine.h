/* engine - runs a program on one rank
 *
 * An engine has the program's KV cache and one arena for all activations, in device
 * memory.  It handles addresses and runs kernels, but never reads or writes a value.  A
 * step runs the program on segments; a segment is some tokens of one sequence: a
 * prompt, a chunk of it, or one new token.  All ranks of a tensor group run the same
 * steps.  The stages of a pipeline run the same steps one after another: a step
 * receives the activations of the previous stage and sends its own to the next, so
 * while one stage runs a step the next stage runs the step before. */
#ifndef LIB_RUN_ENGINE_H
#define LIB_RUN_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/comm/comm.h"
#include "lib/device/device.h"
#include "lib/program/program.h"
#include "lib/run/feeds.h"
#include "lib/run/wires.h"

/* Capacities of an engine. */
struct engine_limits {
    size_t tokens;   /* prompt tokens of a step */
    size_t running;  /* in addition, tokens of sequences in generation: one each, and
                      * what is drafted */
    size_t wanted;   /* output rows of a step (logits_to_keep) */
    size_t segments; /* of a step; 0: 1 */
    size_t context;  /* tokens of a sequence in the KV cache */
    size_t source;   /* tokens of an encoder's input (source), if the program has an
                      * encoder */
    size_t sources;  /* source tokens of a step over all segments; 0: one source */
    size_t rows[ROWS_MOST]; /* of a step over all segments, of the given spaces that no
                             * source follows from; 0: as many as segments */
    size_t cache;           /* tokens in all blocks of the KV cache; 0: enough for all
                             * sequences */
    size_t sequences;       /* sequences in the KV cache at a time; 0: 1 */
    size_t texts;           /* of these, with sources of their own: others have that of
                             * the sequence that they were forked from; 0: all */
    size_t snapshots;       /* records for states beside those of the sequences
                             * (states.h) */
    size_t drafts;          /* most drafted tokens of a sequence in a step; each has a
                             * record, too, after those */
    size_t drafted;         /* most drafted tokens of a step: of .running and .wanted */
    bool whole; /* sequences are truncated by more than a step: rows stay in the cache
                 * that have left a window */
    enum format kept; /* type of the KV cache */
};

struct engine;

/* The communicators of an engine. */
struct engine_groups {
    struct comm *tensor;   /* the ranks of tensor parallelism */
    struct comm *sequence; /* the ranks that share a sequence's tokens (sequence.h) */
    struct comm *expert;   /* the ranks of expert parallelism; NULL: none */
    struct comm *pipe;     /* the same rank of every pipeline stage, in order */
    int across;            /* ranks of the sequence group that exchange heads (the
                            * all-to-all of Ulysses) */
    bool trains;           /* steps are whole sequences, without a cache, which the
                            * sequence group divides as in training (sequence.h); any
                            * number of them */
    const struct wires *wires; /* communicators between devices; or NULL */
};

/* WEIGHT[i] is program weight i, in the memory of DEVICE, which OPS opened.  All
 * arguments must outlive the engine. */
MUST_CHECK int engine_open(struct engine **out, const struct program *program,
                           const struct backend *ops, struct device *device,
                           const struct matrix *weight,
                           const struct engine_groups *groups,
                           const struct engine_limits *limits, struct err *err);
void engine_free(struct engine *e);
/* The same in two parts.  engine_plan allocates nothing: STORED[i] is the type of
 * weight i; only the size and the rank of the communicators are read.  engine_memory
 * adds to LIST what it will allocate, engine_room what the kernels will take beside it,
 * with THREADS threads on DEVICE, or on any if that is NULL.  After engine_start no
 * step allocates. */
MUST_CHECK int engine_plan(struct engine **out, const struct program *program,
                           const struct backend *ops, int threads,
                           const enum format *stored,
                           const struct engine_groups *groups,
                           const struct engine_limits *limits, struct err *err);
void engine_memory(const struct engine *e, struct ledger *list);
void engine_room(const struct engine *e, const struct device *device,
                 struct ledger *list);
MUST_CHECK int engine_start(struct engine *e, struct device *device,
                            const struct matrix *weight, struct err *err);
/* How often steps have allocated memory all the same: 0, and else a fault of
 * engine_plan, or of the device's room. */
uint64_t engine_grown(const struct engine *e);
/* Steps of single tokens on a device that records them, and how many of these were
 * replays of another one. */
struct engine_repeats {
    uint64_t steps, replayed;
};
struct engine_repeats engine_repeats(const struct engine *e);
/* For a program with a backward pass.  Steps add the gradient of each weight I, f32, to
 * GRADIENT[I], in device memory; those of a mixture's experts follow one another.
 * GRADIENT[nweights] must outlive E.  FACTOR: as in step_view. */
void engine_differentiate(struct engine *e, float *const *gradient,
                          const float factor[STEP_FACTORS]);
/* Has this rank all rows of output I?  With sequence parallelism the group's first rank
 * alone has those of all tokens. */
bool engine_has_output(struct engine *e, int i);
/* After engine_forward: the derivative of the likelihood of token I of the step is
 * multiplied by WEIGHT[I], of N, beside its factor.  All ranks of a sequence group
 * call it, with WEIGHT on those that have output 0. */
MUST_CHECK int engine_weigh(struct engine *e, const float *weight, size_t n,
                            struct err *err);
/* After engine_forward: the gradient of the logits, D, of as many rows and columns as
 * engine_output gave (program.given); as engine_weigh. */
MUST_CHECK int engine_give(struct engine *e, const float *d, struct err *err);
/* Sets the seed of dropout.  A mask depends on SEED, the place in the model and the
 * index of the token in the training run. */
void engine_drop(struct engine *e, uint64_t seed);

/* Runs a step of N segments of different sequences; N is at most 1 with sequence
 * parallelism.  Expert-parallel ranks all run the same number of steps; those without
 * work pass N = 0.  Outputs stay valid until the next step. */
MUST_CHECK int engine_step(struct engine *e, const struct segment *segment, size_t n,
                           struct err *err);
/* engine_forward runs a step without the backward pass; engine_reverse runs the
 * backward pass of the last such step. */
MUST_CHECK int engine_forward(struct engine *e, const struct segment *segment, size_t n,
                              struct err *err);
MUST_CHECK int engine_reverse(struct engine *e, struct err *err);
/* The same in two parts, if the program has them (program.nsplit): the gradients of
 * what the step received, which are sent; and those of weights. */
MUST_CHECK int engine_reverse_inputs(struct engine *e, struct err *err);
MUST_CHECK int engine_reverse_weights(struct engine *e, struct err *err);
/* Ends SEQUENCE and frees its blocks of the KV cache. */
void engine_forget(struct engine *e, size_t sequence);
/* Can sequences share the cached rows with which they begin: does what a row caches
 * depend on the tokens up to it alone?  *WINDOW: a sequence that has had more rows has
 * lost some; 0: it never does. */
bool engine_can_share(const struct engine *e, size_t *window);
/* SEQUENCE keeps its first N rows: the next segment may begin there.  N is not before
 * the start of its last segment, unless no layer has a window, or limits.whole. */
void engine_truncate(struct engine *e, size_t sequence, size_t n);
/* Do sequences have states of fixed size (states.h)?  Then one that begins with rows of
 * another, or is truncated, needs the state after these rows, too. */
bool engine_has_states(const struct engine *e);
/* The state of SEQUENCE becomes that of RECORD: one of limits.sequences, or after them
 * a snapshot, or after these that of a drafted token. */
MUST_CHECK int engine_restore(struct engine *e, size_t sequence, size_t record,
                              struct err *err);
/* Can a sequence begin with all rows of another, whatever they depend on? */
bool engine_can_fork(const struct engine *e);
/* Sequence TO begins with the first N rows of FROM, and what that has of its encoder.
 * Full blocks of the cache are shared, and rows after them copied. */
MUST_CHECK int engine_share(struct engine *e, size_t to, size_t from, size_t n,
                            struct err *err);
/* Blocks of the KV cache that sequences hold. */
size_t engine_cached_blocks(const struct engine *e);
/* From now on, call SEE before the first instruction of each part of the model
 * (model_part), and with -1 after the last instruction of a step. */
void engine_watch(struct engine *e, void (*see)(void *arg, int part), void *arg);
/* Calls BEFORE before each instruction, and with OVER at the end of a pass, with the
 * one behind it: weights may be elsewhere afterwards.  If it fails, the step fails. */
void engine_follow(struct engine *e,
                   int (*before)(void *arg, int inst, bool over, struct err *err),
                   void *arg);
/* From now on, notes at *RECEIVED when what another stage sent was there, by the clock
 * (base/clock.h), and waits for the device then, before it sends and at the end of a
 * step, so that a pass takes what it takes; NULL: no longer. */
void engine_time(struct engine *e, double *received);
/* Calls SETTLE at the end of each step; if it fails, the step fails. */
void engine_settle(struct engine *e, int (*settle)(void *arg, struct err *err),
                   void *arg);
/* Output I of the program; this stage must compute it.  *out has *rows rows of the
 * value's whole_cols, valid until the next call.  With sequence parallelism the group's
 * first rank gets the rows of all tokens, the others their own. */
MUST_CHECK int engine_output(struct engine *e, int i, const float **out, size_t *rows,
                             struct err *err);

/* The same of an output of I32, such as "next". */
MUST_CHECK int engine_ids(struct engine *e, int i, const int32_t **out, size_t *rows,
                          struct err *err);

/* Bytes that this rank has sent within its sequence group for attention. */
uint64_t engine_moved_bytes(const struct engine *e);

#endif
