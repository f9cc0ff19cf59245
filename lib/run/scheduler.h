/* scheduler - continuous batching: chooses the texts of each step
 *
 * A step has the next token of each text in generation, and chunks of the prompts of
 * other texts.  A text that ends makes room for the next.  The scheduler counts the
 * blocks of the KV cache.  A text begins when there are enough blocks for all its
 * tokens.  If a growing text finds no free block, the youngest other text is preempted:
 * it gives up its blocks and is later recomputed, with the tokens that it has gained.
 * So the cache never overflows and the oldest text always advances.  When rotary angles
 * depend on each length that a text had (dynamic RoPE), cached keys cannot be
 * recomputed; there a text reserves all its blocks at the start.  When one length
 * changes all angles (longrope), a text is recomputed when it reaches that length.
 *
 * All ranks of a replica run the same schedule and arrive at the same steps.
 * Expert-parallel replicas run the same number of steps; some run their last steps
 * without texts.  With pipeline stages there are as many steps in flight as stages, and
 * a text is in one of them. */
#ifndef LIB_RUN_SCHEDULER_H
#define LIB_RUN_SCHEDULER_H

#include "lib/run/runner.h"

/* A text to be run.  Arrays belong to the caller. */
struct scheduler_text {
    const int32_t *ids;                   /* [n]; grow with each generated token */
    const int32_t *token_types, *targets; /* [n] or NULL */
    const int32_t *marks;                 /* [n][MARKS] or NULL */
    size_t n;
    size_t most;           /* limit of its length; used only when texts grow */
    const int32_t *source; /* [nsource] */
    size_t nsource;
    const float *features; /* see struct segment; or NULL */
    size_t nframes;
    const struct draw *draw; /* sampling parameters of the next token, whose position is
                              * added; or NULL */
    bool over;               /* it needs no (more) steps */
    /* private to the scheduler */
    size_t done, blocks, source_blocks;
    size_t sequence;
    bool running, away; /* running: it has a sequence of the engine; away: a step in
                         * flight computes its next token */
};

/* The part of a text that was in a step. */
struct scheduler_part {
    size_t text;
    size_t start, n; /* its tokens [start, start + n) */
    bool last;       /* includes the text's last token so far */
    struct engine *engine;
    bool alone;                               /* the step had no other text */
    size_t row[ROWS_KINDS], rows[ROWS_KINDS]; /* its rows among the rows of the step;
                                               * none for ROWS_CHOSEN */
};

struct scheduler {
    struct runner *runner;
    struct scheduler_text *text; /* [ntexts]: in the order in which they begin */
    size_t ntexts;
    bool grow; /* texts grow by the token that is output 0 of the last stage */
    const struct engine_limits *limits; /* those of the runner's engine */
    /* Called when a text begins, or begins again after preemption; or NULL. */
    void (*begin)(void *arg, size_t text);
    /* Called after a step for each part, on every rank; or NULL. */
    int (*see)(void *arg, const struct scheduler_part *part, struct err *err);
    /* Text TEXT gains token ID: the callback updates its ids, n and over; on every rank
     * of the replica.  ID is -1 when the logits decide no token, because one is NaN or
     * +inf or all are -inf. */
    int (*gain)(void *arg, size_t text, int32_t id, struct err *err);
    /* Called when a step's results are known on all ranks: no step in flight contains a
     * part of a text before END; or NULL.  It may end texts by setting .over, the same
     * ones on every rank; their results that are still under way go to .gain. */
    int (*settled)(void *arg, size_t end, struct err *err);
    void *arg;
};

/* Runs the texts of S until all are over.  The KV cache must have room for the
 * longest. */
MUST_CHECK int scheduler_run(struct scheduler *s, struct err *err);

/* A part's rows of an output, and *rows, their number.  X has all ROWS rows of the
 * step, each of COLS columns. */
const float *scheduler_rows(const struct scheduler_part *part, enum row_kind kind,
                            const float *x, size_t cols, size_t *rows);

#endif
