/* action - what the ranks of a pipeline do, in order
 *
 * A model is cut into stages; each rank runs one (or, in chunks, several), and a
 * micro-batch goes through all of them forwards and back.  A table lists for every rank
 * the actions it takes one after another: it says nothing of time. */
#ifndef LIB_PIPE_ACTION_H
#define LIB_PIPE_ACTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

enum action_kind {
    ACTION_FORWARD,
    ACTION_BACKWARD, /* gradients of input and weights at once */
    ACTION_INPUT,    /* gradient of the input alone */
    ACTION_WEIGHT,   /* gradient of the weights, after that of the input */
    ACTION_KINDS
};

struct action {
    enum action_kind kind;
    int stage; /* 0 .. stages-1 in the model's order */
    int micro_batch;
    bool paired; /* with the next of its rank: they begin together, and end together */
    bool timed;  /* it was measured: */
    double start, seconds; /* when it began, from the beginning of the step, and what it
                            * took */
};

struct action_row {
    struct action *v;
    size_t n, cap;
};

struct action_table {
    int ranks, stages, micro_batches;
    int chains;             /* copies of the model: stages and micro-batches are divided
                               among them in order */
    int *rank_of;           /* [stages] */
    struct action_row *row; /* [ranks] */
};

/* An empty table of these sizes; rank_of is to be filled. */
void action_table_init(struct action_table *t, int ranks, int stages,
                       int micro_batches);
/* *TO = the actions of FROM, without times, each by itself. */
void action_table_apart(struct action_table *to, const struct action_table *from);
/* *TO = FROM, times and all. */
void action_table_copy(struct action_table *to, const struct action_table *from);
void action_table_clear(struct action_table *t);
void action_add(struct action_table *t, int rank, enum action_kind kind, int stage,
                int micro_batch);

/* Does MICRO_BATCH go through STAGE?  Is STAGE the first or the last of its copy? */
bool action_passes(const struct action_table *t, int stage, int micro_batch);
bool action_begins(const struct action_table *t, int stage);
bool action_ends(const struct action_table *t, int stage);

/* The largest number of micro-batches in flight on STAGE in ROW, of its rank: forward
 * done, gradients of weights not. */
int action_in_flight(const struct action_row *row, int stage);

/* "2F0": stage, one of F B I W, micro-batch (PyTorch's notation); of what was measured
 * "2F0@START+SECONDS", of which PyTorch reads as much as it knows. */
void action_print(struct str *out, const struct action *a);

/* Is every stage's forward and backward of every micro-batch there once, on the rank
 * that has the stage, the backward after the forward and the weights' gradient after
 * the input's?  ERR_INPUT names the first that is missing, doubled or out of order. */
MUST_CHECK int action_check(const struct action_table *t, struct err *err);

#endif
