/* rows - row spaces: what the rows of a value stand for, and how many there are
 *
 * A space's rows are counted for each text.  Those of GIVEN spaces a text says itself;
 * those of the others follow from their parent.  The first spaces are those of every
 * program; the family language declares others, by inputs with rows of their own and by
 * operations that have fewer or more rows than their source. */
#ifndef LIB_PROGRAM_ROWS_H
#define LIB_PROGRAM_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/model/deal.h"

enum {
    ROWS_TOKENS, /* all tokens of the step */
    ROWS_WANTED, /* the output rows: tokens whose logits or states are asked for */
    ROWS_ONE,    /* one row per sequence of the step */
    ROWS_SOURCE, /* what the encoder's attention sees: all tokens of the source, or rows
                    made of another input; none after a sequence's first step */
    ROWS_TABLE,  /* all rows of a position table, in every step */
    ROWS_SENT,   /* ep > 1: the rows that this rank dispatches, once per chosen expert,
                    sorted by expert */
    ROWS_CHOSEN, /* the rows that this rank's experts get, sorted by expert; with ep > 1
                    by sending rank within an expert */
    ROWS_OWN,    /* the first that a family declares */
    ROWS_MOST = 16
};

struct row_space {
    char name[24];
    enum rows_how {
        HOW_GIVEN,        /* the text says how many */
        HOW_WANTED,       /* some rows of the parent: the step says which */
        HOW_PER_SEQUENCE, /* one */
        HOW_RATIO,        /* (times * rows of the parent + plus) / by, rounded down */
        HOW_SHARE,        /* of all rows of the parent in a step, part PLUS of BY
                             (deal_units) */
        HOW_FIXED,        /* bound, in every step */
        HOW_EXPERT        /* see struct mixture */
    } how;
    int parent; /* or -1 */
    uint64_t times, by;
    int64_t plus;
    uint64_t least; /* as many rows as the parent, where it has no more than these */
    uint64_t bound;
};

struct row_spaces {
    struct row_space v[ROWS_MOST];
    int n;
};

/* The spaces of every program. */
void rows_init(struct row_spaces *r);
/* Index of the space called NAME[len], or -1. */
int rows_find(const struct row_spaces *r, const char *name, size_t len);
/* Index of the space called NAME[len], which a text gives; adds it.  -1: there are too
 * many, the name is too long, or its rows follow from a parent. */
int rows_give(struct row_spaces *r, const char *name, size_t len);
/* Index of the space with OF's members how to least; adds it.  NAME[len] is its name;
 * LEN 0: one is made of the parent's, unless there is one with another name already.
 * ROWS_SOURCE may become such a space.  -1: the name has other rows already, is too
 * long, or there are too many. */
int rows_derive(struct row_spaces *r, const struct row_space *of, const char *name,
                size_t len);
/* The given space from which K's rows follow, by ratios alone; else K. */
int rows_root(const struct row_spaces *r, int k);
/* Number of ratios between K and its root. */
int rows_depth(const struct row_spaces *r, int k);

/* Rows of S whose parent has PARENT. */
uint64_t rows_of_parent(const struct row_space *s, uint64_t parent);
/* The rows of space K, a HOW_SHARE, where its parent has PARENT in a step. */
struct share rows_share(const struct row_spaces *r, int k, uint64_t parent);
/* The rows of one text: from those of its given spaces N[ROWS_TOKENS], ... come the
 * rows of all spaces but ROWS_WANTED and those of experts. */
void rows_count(const struct row_spaces *r, size_t n[ROWS_MOST]);
/* Most rows of each space in a step of at most MOST[ROWS_ONE] texts with MOST of
 * tokens, wanted rows and source rows in all: fills in those of the others that are 0.
 */
void rows_most(const struct row_spaces *r, uint64_t most[ROWS_MOST]);
/* Sets the rows of the given space from which ROWS_SOURCE follows, in N, so that a text
 * has SOURCE rows of it. */
void rows_source(const struct row_spaces *r, size_t n[ROWS_MOST], size_t source);
/* Rows of K for each row of *known, which is one of the spaces of every program. */
double rows_ratio(const struct row_spaces *r, int k, int *known);

#endif
