/* scheduler - continuous batching: a queue of texts, and the steps that serve them
 *
 * Rank 0 submits and cancels texts and calls scheduler_step until it returns 0; the
 * other ranks call scheduler_follow.  Rank 0 decides what each step contains and sends
 * each replica its plan (plan.h); the last stage of a replica sends back the next
 * tokens.  So texts may come, stop and be cancelled between any two steps.
 *
 * A step has the next token of each text in generation, and chunks of the prompts of
 * other texts.  A text that ends makes room for the next in the queue, which goes to
 * the replica that has the fewest.  The scheduler counts the blocks of the KV cache.  A
 * text begins when there are enough blocks for all its tokens.  If a growing text finds
 * no free block, the youngest other text is preempted: it gives up its blocks and is
 * later recomputed, with the tokens that it has gained.  So the cache never overflows
 * and the oldest text always advances.  When rotary angles depend on each length that a
 * text had (dynamic RoPE), cached keys cannot be recomputed; there a text reserves all
 * its blocks at the start.  When one length changes all angles (longrope), a text is
 * recomputed when it reaches that length.
 *
 * Replicas end their steps together, since rank 0 runs one of them itself.  So they
 * read prompts in the same steps, as far as texts need not wait for that: up to eight
 * steps of single tokens.
 *
 * A growing text that begins with the tokens of another one shares its blocks of the
 * cache, and waits while that one computes them.  Texts that are over keep their blocks
 * until others need them.  Full blocks alone are shared, and only where a row depends
 * on the tokens up to it (engine_can_share); so the results are the same to the bit
 * where they do not depend on the rows of a step.
 *
 * Where tokens are drafted (.draft), a step computes a text's next token and those that
 * the draft expects after it, and chooses the token after each of them as if it came
 * alone: from the logits of its row, with the sampling parameters of its position.  The
 * tokens up to the first that is not the drafted one are gained at once; the rows after
 * it are dropped, and a state of fixed size is restored.  So drafts change no token
 * where results do not depend on the rows of a step, whether it is drawn or not: where
 * the draft is one token, to accept it if it was drawn is speculative sampling
 * (Leviathan et al. 2023, "Fast inference from transformers via speculative decoding"),
 * as it is drawn with the target's probability of it, and else another one is, by the
 * target's probabilities of the others.
 *
 * All calls come from one thread.  Where others hear of texts, as in a server, they put
 * what is to be submitted and cancelled into a queue of theirs, which this thread
 * empties between two steps, and waits for while it is idle; ranks that follow wait as
 * long.  A text that never fits is refused when it is submitted, and nothing ends.
 *
 * With pipeline stages there are as many steps in flight as stages, and a text's next
 * token is in one of them. */
#ifndef LIB_RUN_SCHEDULER_H
#define LIB_RUN_SCHEDULER_H

#include "lib/run/processors.h"
#include "lib/run/runner.h"

/* A text to be run.  Arrays are the caller's, and stay until the text and its forks are
 * over; of a text that grows, scheduler_submit copies the ids. */
struct scheduler_text {
    const int32_t *ids;            /* [n] */
    const void *input[FEEDS_MOST]; /* as of a segment of all its tokens; that of ids is
                                    * not read */
    size_t rows[ROWS_MOST];        /* the same */
    const int32_t *targets;        /* [n] or NULL */
    size_t n;
    size_t most;             /* limit of its length; used only when texts grow */
    const struct draw *draw; /* sampling parameters of the next token, whose position is
                              * added; copied.  A temperature of 0: the likeliest token.
                              * NULL: the program has no OP_SAMPLE */
    const struct choosing *how; /* how the next token is chosen, in place of DRAW's
                                 * temperature, top_k and top_p; needs a program that
                                 * .keeps_logits unless it edits and tells nothing; or
                                 * NULL */
    int adapter;                /* as of a segment */
    uint64_t tag;               /* the caller's number of it, known on every rank */
    uint64_t salt; /* texts of different salts share no blocks: of users who may
                    * not learn what others ask; nor do those of different adapters */
    bool tells;    /* .told has the log-probabilities of its tokens after the first: it
                    * takes over no rows of others, and needs .how with .likely of at
                    * least 0 */
};

/* The part of a text that was in a step. */
struct scheduler_part {
    uint64_t id, tag;
    int replica;
    size_t start, n; /* its tokens [start, start + n) */
    bool last;       /* includes the text's last token so far */
    /* for .see alone: */
    struct engine *engine;
    bool alone;                             /* the step had no other text */
    size_t row[ROWS_MOST], rows[ROWS_MOST]; /* its rows among the rows of the step; none
                                             * of experts */
};

/* What a step has decided. */
struct scheduler_gain {
    uint64_t id, tag; /* of the text */
    int32_t next;     /* the token that follows it; -1 when the logits decide none,
                       * because one is NaN or +inf or all are -inf */
    const struct likely
        *likely; /* [1 + nlikely]: NEXT, and the likeliest tokens that the
                  * text's .how asks for; id -1 where there are fewer */
    size_t nlikely;
    const struct likely *others; /* [nothers]: what is drawn beside NEXT, where the
                                  * text's .how has several draws */
    size_t nothers;
};

/* What a step has told of a text that .tells. */
struct scheduler_told {
    uint64_t id, tag;
    size_t first, n;             /* tokens [first, first + n) of the text */
    const struct likely *likely; /* [n][1 + nlikely]: each token, of which an id of -1
                                  * says that the logits before it are no numbers; and
                                  * the likeliest ones in its place */
    size_t nlikely;
};

/* A text that the next step takes on, and what may follow it. */
struct scheduler_draft {
    uint64_t id, tag, salt;
    const int32_t *ids; /* [n]: all its tokens */
    size_t n;
    const struct draw *draw;    /* of the text, or NULL, as it was submitted: */
    const struct choosing *how; /* the same */
    size_t most;                /* as many are of use, at least 1 */
    int32_t *next;   /* [most]: to be filled with the first .ndrafted tokens */
    size_t ndrafted; /* 0 */
};
enum { DRAFTS_MOST = SAVES_MOST };

struct scheduler_options {
    bool grow;       /* texts grow by the token that is output 0 of the last stage */
    bool no_sharing; /* each text computes all its tokens itself */
    const struct engine_limits *limits; /* those of the runner's engine */
    /* Called after a step for each part, on every rank of the replica; or NULL. */
    int (*see)(void *arg, const struct scheduler_part *part, struct err *err);
    /* On rank 0, later: the same part, in the same order, so that it can receive what
     * .see has sent; or NULL.  Unless texts grow, .last says that this one is over. */
    int (*collect)(void *arg, const struct scheduler_part *part, struct err *err);
    /* On rank 0: a text has a next token.  The callback appends to it what it gains
     * (scheduler_append), that token or others, or lets it wait (scheduler_hold); else
     * the text is over.  It may submit, fork, cancel, and append to texts that wait.
     * Not called for cancelled texts. */
    int (*gain)(void *arg, const struct scheduler_gain *gain, struct err *err);
    /* On rank 0, before .gain, for texts that .tells; or NULL.  Not called for texts
     * that are over. */
    int (*told)(void *arg, const struct scheduler_told *told, struct err *err);
    /* On rank 0, once before each step that has growing texts: drafts what follows
     * V[n]; or NULL.  limits->drafts is the most that a text takes, at most
     * DRAFTS_MOST, and limits->drafted the most of a step, which the oldest texts take.
     * Not with ranks that share a sequence; of dynamic RoPE nothing is drafted. */
    int (*draft)(void *arg, struct scheduler_draft *v, size_t n, struct err *err);
    void *arg;
};

struct scheduler;

/* R and what *options points to must outlive *out, and be the same on all ranks.
 * Collective.  Call scheduler_close also after a failure. */
MUST_CHECK int scheduler_open(struct scheduler **out, struct runner *r,
                              const struct scheduler_options *options, struct err *err);

/* On rank 0: */

/* Appends T to the queue.  Ids count from 0.  ERR_INPUT: T is empty, or has more tokens
 * or other rows than there will ever be room for; then S is as before. */
MUST_CHECK int scheduler_submit(struct scheduler *s, const struct scheduler_text *t,
                                uint64_t *id, struct err *err);
/* Ends text ID, which frees its blocks before the next step; results under way are
 * dropped.  A no-op for a text that is over. */
void scheduler_cancel(struct scheduler *s, uint64_t id);
/* During .gain for ID, and at any time for a text that waits: appends N tokens, at most
 * up to its limit. */
void scheduler_append(struct scheduler *s, uint64_t id, const int32_t *ids, size_t n);
/* During .gain for ID: it waits, until scheduler_append or scheduler_cancel. */
void scheduler_hold(struct scheduler *s, uint64_t id);
/* During .gain for ID, or while ID waits: makes a text with all its tokens, and what
 * DRAW and TAG give, which waits like it.  The two share the full blocks of the cache;
 * if there is no room for the other one, it is computed again when there is (of dynamic
 * RoPE never the same: ERR_SYSTEM). */
MUST_CHECK int scheduler_fork(struct scheduler *s, uint64_t id, const struct draw *draw,
                              uint64_t tag, uint64_t *fork, struct err *err);
/* Runs one step, or takes the results of one.  Returns 1; 0: idle, all submitted texts
 * are over or wait; -1: *err is set, and S can only be closed. */
MUST_CHECK int scheduler_step(struct scheduler *s, struct err *err);
/* Runs steps until the scheduler is idle. */
MUST_CHECK int scheduler_run(struct scheduler *s, struct err *err);
/* Texts in the queue, and texts that have begun. */
size_t scheduler_waiting(const struct scheduler *s);
size_t scheduler_running(const struct scheduler *s);
/* Numbers so far. */
struct scheduler_counts {
    uint64_t computed;  /* tokens */
    uint64_t asked;     /* tokens of texts that began, which might have been shared */
    uint64_t shared;    /* of these: that another text had computed */
    uint64_t preempted; /* texts, each time */
    uint64_t growing;   /* of .computed: each the next token of a text in generation */
    uint64_t drafted;   /* of .computed: beside these, in the hope that they follow */
    uint64_t accepted;  /* of .drafted: that texts gained */
    size_t blocks;      /* of the cache, over all replicas */
    size_t held;        /* of these: by texts that are not over, now */
};
struct scheduler_counts scheduler_counts(const struct scheduler *s);
/* Of a text until it is over, which it is not in its last .gain. */
struct scheduler_usage {
    size_t prompt, gained; /* tokens */
    size_t shared;         /* of the prompt, that another text had computed */
    uint64_t preempted;    /* how often */
    bool begun;            /* it has been in a step */
};
/* False: ID is over. */
bool scheduler_usage(const struct scheduler *s, uint64_t id,
                     struct scheduler_usage *usage);

/* On the other ranks: runs the steps that rank 0 decides until it closes its scheduler.
 * The same error as rank 0's if it closes it because of one. */
MUST_CHECK int scheduler_follow(struct scheduler *s, struct err *err);

/* On every rank: ends the steps and releases S.  RET is the status of all work with S;
 * returns the status.  NULL is allowed. */
MUST_CHECK int scheduler_close(struct scheduler *s, int ret, struct err *err);

/* A part's rows of an output whose rows are SPACE's, and *rows, their number.  X has
 * all ROWS rows of the step, each of COLS columns. */
const float *scheduler_rows(const struct scheduler_part *part, int space,
                            const float *x, size_t cols, size_t *rows);

#endif
