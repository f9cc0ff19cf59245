/* scheduler - who is in the next step
 *
 * A schedule runs texts in steps of several.  A step has the next token of each text
 * that is being made, and beside them chunks of texts that are read; a text whose
 * last token has been run makes room for the next one.  The cache's blocks are counted
 * here: a text begins when there are enough for all of it; one that grows and finds
 * none waits, after the youngest of the others has given its own back, which is read
 * again later, with what it has gained.  So the cache is never exceeded, and the oldest
 * text always goes on.  Where
 * rotary angles depend on each length that a text had, what was kept cannot be made
 * again: there a text has all its blocks from the beginning.  Where one length changes
 * all angles, a text that comes to it is read again.
 *
 * All ranks of a replica run the same schedule and come to the same steps; replicas
 * that share out experts take as many, the last ones of some without texts.  Over
 * stages as many steps are on their way as there are stages, and a text is in one of
 * them. */
#ifndef LIB_RUN_SCHEDULER_H
#define LIB_RUN_SCHEDULER_H

#include "lib/run/runner.h"

/* What a schedule is told of a text.  Arrays are the caller's. */
struct scheduler_text {
    const int32_t *ids;                   /* [n]; grown ones change with each token */
    const int32_t *token_types, *targets; /* [n] or NULL */
    const int32_t *marks;                 /* [n][MARKS] or NULL */
    size_t n;
    size_t most;           /* tokens that it may come to; not read unless texts grow */
    const int32_t *source; /* [nsource] */
    size_t nsource;
    const struct draw *draw; /* how the next token is drawn; its position is added; or
                                NULL */
    bool over;               /* there is nothing to do for it, or no more */
    /* the schedule's own */
    size_t done, blocks, source_blocks;
    size_t sequence;
    bool running, away; /* it has a sequence; a step on its way decides on its token */
};

/* What a step has made of a part of a text. */
struct scheduler_part {
    size_t text;
    size_t start, n; /* tokens of it */
    bool last;       /* up to the last that there is */
    struct engine *engine;
    bool alone;                               /* it is all of the step */
    size_t row[ROWS_KINDS], rows[ROWS_KINDS]; /* its rows among those of the step; not
                                                 of ROWS_CHOSEN */
};

struct scheduler {
    struct runner *runner;
    struct scheduler_text *text; /* [ntexts]: in the order in which they begin */
    size_t ntexts;
    bool grow; /* texts gain tokens: output 0 of the last stage is the next one */
    const struct engine_limits *limits; /* those of the runner's engine */
    /* A text begins, for the first time or again; or NULL. */
    void (*begin)(void *arg, size_t text);
    /* After a step, for each part, on every rank; or NULL. */
    int (*see)(void *arg, const struct scheduler_part *part, struct err *err);
    /* TEXT gains token ID: change its ids and n, and over; on every rank. */
    void (*gain)(void *arg, size_t text, int32_t id);
    /* What a step has made is known everywhere: of all texts before END no part is on
     * its way that has been run here; or NULL. */
    int (*settled)(void *arg, size_t end, struct err *err);
    void *arg;
};

/* Run the texts of S until all are over.  The cache must have room for the longest. */
MUST_CHECK int scheduler_run(struct scheduler *s, struct err *err);

/* An output's row of a part, and how many they are, of the rows at X of COLS columns; X
 * is all that the step has made, in ROWS rows. */
const float *scheduler_rows(const struct scheduler_part *part, enum rows kind,
                            const float *x, size_t cols, size_t *rows);

#endif
