/* outputs - computes a model output for many inputs, and returns them in order
 *
 * Short inputs are batched in a step without padding.  Replicas share out the
 * inputs. */
#ifndef CMD_TP_RUN_OUTPUTS_H
#define CMD_TP_RUN_OUTPUTS_H

#include "cmd/tp-run/inputs.h"
#include "lib/run/scheduler.h"

struct outputs {
    struct session *session;
    struct inputs *inputs;
    const char *name; /* of the model's output */
    /* Called on the rank with the output for input AT: X has ROWS rows of COLS columns;
     * reduces them to one row in ROOM.  NULL: all rows are sent to rank 0. */
    void (*reduce)(void *arg, size_t at, const float *x, size_t rows, size_t cols,
                   float *room);
    /* Called on rank 0 for each input in order; X is NULL for a bad or empty input. */
    int (*done)(void *arg, size_t at, const float *x, size_t rows, size_t cols,
                struct err *err);
    void *arg;
    /* private */
    struct runner *runner;
    size_t next;   /* next input to pass to done() */
    float **made;  /* [inputs]: outputs computed on rank 0 itself */
    size_t *nmade; /* [inputs]: their numbers of rows */
};

/* The inputs given on the command line; NULL: none. */
struct given {
    const char *ids, *prompt, *pair;
    struct opt_list lines;   /* files with an input per line */
    struct opt_list tensors; /* files of tensors, an input each */
};

/* Appends the inputs of G to IN. */
MUST_CHECK int outputs_read_inputs(struct inputs *in, struct session *s,
                                   const struct given *g, struct err *err);
/* Chooses the backend for the model's output NAME, reads G's inputs (or, if there are
 * none, standard input) on rank 0, checks them with CHECK (or NULL), and runs MAIN on
 * all ranks.  Returns the exit status. */
int outputs_main(struct session *s, struct inputs *in, const struct given *g,
                 const char *name, int (*check)(void *arg, struct err *err),
                 rank_main main, void *arg, struct err *err);
/* On rank 0: runs the usable texts of IN; the tag of each is its index. */
MUST_CHECK int outputs_run_inputs(struct scheduler *s, const struct session *session,
                                  const struct inputs *in, struct err *err);
/* Runs all inputs, as a rank of COMM. */
MUST_CHECK int outputs_run(struct outputs *o, struct comm *comm, struct err *err);
/* Engine limits for whole inputs, several per step. */
struct engine_limits outputs_limits(const struct session *s, const struct inputs *in);
/* For a model that classifies whole texts: reduces the logits *MADE of IN to the row of
 * the last token that is not padding, and returns true. */
bool outputs_last(const struct session *s, const struct input *in, const float **made,
                  size_t *rows, size_t cols);
/* Checks that no input is empty or too long for the model; such a line becomes a bad
 * input. */
MUST_CHECK int outputs_check_inputs(struct inputs *in, const struct session *s,
                                    struct err *err);

#endif
