/* cost - what a program costs a rank: the table of operations, folded
 *
 * FLOPs are those of products (2 for a multiplication and addition) and of attention's
 * two products; bytes moved are those of each source that an instruction reads and of
 * the result that it writes.  A row is sent to all experts equally often: the rows of
 * experts are counted in the mean. */
#ifndef LIB_PROGRAM_COST_H
#define LIB_PROGRAM_COST_H

#include "lib/program/program.h"

/* A step, as far as costs depend on it. */
struct cost_step {
    double rows[ROWS_KINDS]; /* of each kind; that of ROWS_CHOSEN is not read */
    double keys;             /* cached at the end of the step */
    bool whole; /* the step is a whole sequence of KEYS tokens, or a mean row of one:
                   where attention is causal, a row sees half of them */
    bool dense; /* keys that a row may not see are worked on, too, as PyTorch does that
                   keeps scores */
    double senders;      /* ranks of ep with rows of their own; 0: all have the same */
    double value_bytes;  /* of an element of values in f32; others have their type's */
    double weight_bytes; /* of an element of weights */
    const enum dtype *stored; /* [nweights]: their types instead; or NULL */
};

/* The step of which values take 4 bytes: a mean token of a sequence of TOKENS; and all
 * of them, of which one row is wanted. */
struct cost_step cost_token(double tokens);
struct cost_step cost_prompt(double tokens);

struct cost {
    double products;       /* FLOPs with weights */
    double attention;      /* and with keys and values */
    double sharded, whole; /* bytes moved of values that are cut over tp, of others */
    double weights;        /* bytes of products' weights read, each once a step */
};

/* What a rank sends and receives for one kind of collective over one group. */
struct cost_collective {
    double count;
    double bytes; /* of the results */
};

/* Rows of VALUE in step S: of one that is kept, those that are attended to. */
double cost_rows(const struct program *p, const struct value *value,
                 const struct cost_step *s);
double cost_bytes(const struct program *p, const struct value *value,
                  const struct cost_step *s);
/* Keys that a row of attention INST sees in the mean. */
double cost_keys(const struct inst *inst, const struct cost_step *s);
/* Elements of the weights that product INST reads for ROWS rows of its tokens: of the
 * experts those that some row is sent to. */
double cost_weights(const struct program *p, const struct inst *inst, double rows);

/* The cost of instruction INST, and of all of P. */
struct cost cost_of(const struct program *p, const struct inst *inst,
                    const struct cost_step *s);
struct cost cost_program(const struct program *p, const struct cost_step *s);
void cost_add(struct cost *sum, const struct cost *c);

/* The axis over which collective INST goes. */
enum mesh_axis cost_over(const struct inst *inst);
/* P's collectives, by kind and axis, are added to OUT. */
void cost_collectives(struct cost_collective out[COLLECTIVE_KINDS][MESH_NAXES],
                      const struct program *p, const struct cost_step *s);

#endif
