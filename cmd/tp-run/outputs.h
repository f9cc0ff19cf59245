/* outputs - an output of a model for each of many inputs, handed over in their order
 *
 * Several short inputs are a step together; nothing is padded, so texts of different
 * lengths beside each other cost nothing.  Replicas share the inputs out. */
#ifndef CMD_TP_RUN_OUTPUTS_H
#define CMD_TP_RUN_OUTPUTS_H

#include "cmd/tp-run/inputs.h"
#include "lib/run/scheduler.h"

struct outputs {
    struct session *session;
    struct inputs *inputs;
    const char *name; /* of the output */
    /* On the rank that has made the ROWS rows of COLS columns at X for input AT: makes
     * one row in ROOM of them; NULL: all rows reach the front as they are. */
    void (*reduce)(void *arg, size_t at, const float *x, size_t rows, size_t cols,
                   float *room);
    /* At the front, input by input; X is NULL for a bad one. */
    int (*done)(void *arg, size_t at, const float *x, size_t rows, size_t cols,
                struct err *err);
    void *arg;
    /* its own */
    struct runner *runner;
    size_t next;   /* input that the front hands over next */
    float **made;  /* [inputs]: those that the front has made itself */
    size_t *nmade; /* [inputs]: their rows */
};

/* The texts that the command line gives; NULL: none. */
struct given {
    const char *ids, *prompt, *pair;
    struct opt_list lines; /* files with a text in each line */
};

/* Append what G gives to IN. */
MUST_CHECK int outputs_read_inputs(struct inputs *in, struct session *s,
                                   const struct given *g, struct err *err);
/* Read what G gives (or, where it gives nothing, standard input) on rank 0, look at it
 * with CHECK (or NULL), and run MAIN on all ranks; the exit status. */
int outputs_main(struct session *s, struct inputs *in, const struct given *g,
                 int (*check)(void *arg, struct err *err), rank_main main, void *arg,
                 struct err *err);
/* The texts of IN that PLAN's replica runs, to plan->text, which the caller frees. */
void outputs_add_texts(struct scheduler *plan, const struct inputs *in);
/* Run all inputs, as a rank of COMM. */
MUST_CHECK int outputs_run(struct outputs *o, struct comm *comm, struct err *err);
/* Limits of an engine for whole inputs, several in a step. */
struct engine_limits outputs_limits(const struct session *s, const struct inputs *in);
/* Models that score a text do it at the last token that is not padding: of the logits
 * at *MADE of input IN only that row is left.  True where the model is one. */
bool outputs_last(const struct session *s, const struct input *in, const float **made,
                  size_t *rows, size_t cols);
/* No input of the model at hand may be empty or too long: a line that is becomes a bad
 * input. */
MUST_CHECK int outputs_check_inputs(struct inputs *in, const struct session *s,
                                    struct err *err);

#endif
