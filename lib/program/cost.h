/* cost - FLOPs, bytes and collectives of a program, summed from the table of operations
 *
 * FLOPs are counted for products with weights and for the two products of attention, 2
 * for each multiply-add.  Bytes moved are the sources that an instruction reads and the
 * result that it writes.  The router is assumed to be balanced: each expert gets the
 * mean number of rows. */
#ifndef LIB_PROGRAM_COST_H
#define LIB_PROGRAM_COST_H

#include "lib/program/program.h"

/* What a cost depends on in a step. */
struct cost_step {
    double rows[ROWS_OWN]; /* of the spaces that every program has; those of experts,
                            and of others, follow */
    double keys;           /* keys in the cache at the end of the step */
    bool whole; /* the step is a sequence of KEYS tokens without cached ones, or its
                   average row: a causal row sees half of the keys in the mean */
    bool dense; /* masked scores are computed, too, as by eager attention in PyTorch */
    double senders; /* ranks of ep, if each has rows of its own; 0: all have equal */
    double value_bytes;  /* per element of values in f32; other types: their size */
    double weight_bytes; /* per element of a weight, if EACH is NULL */
    const double *each;  /* [nweights]: bytes per element of each weight; or NULL */
};

/* Steps with values and weights in f32: the average token of a sequence of TOKENS, and
 * a prompt of TOKENS with one output row. */
struct cost_step cost_token(double tokens);
struct cost_step cost_prompt(double tokens);

struct cost {
    double products;       /* FLOPs of products with weights */
    double attention;      /* FLOPs of products with keys and values */
    double sharded, whole; /* bytes moved of values sharded over tp; of all others */
    double weights;        /* bytes of weights read by products, each once per step */
};

/* One rank's traffic in one kind of collective over one mesh axis. */
struct cost_collective {
    double count;
    double bytes; /* size of the results */
};

/* Rows of VALUE in step S; of a cached value the rows that attention reads. */
double cost_rows(const struct program *p, const struct value *value,
                 const struct cost_step *s);
double cost_bytes(const struct program *p, const struct value *value,
                  const struct cost_step *s);
/* Keys that a query of attention INST sees in the mean. */
double cost_keys(const struct inst *inst, const struct cost_step *s);
/* Weight elements that product INST reads for ROWS tokens; of the experts only those
 * that get a row, in the mean. */
double cost_weights(const struct program *p, const struct inst *inst, double rows);

/* Cost of instruction INST; of all instructions of P. */
struct cost cost_of(const struct program *p, const struct inst *inst,
                    const struct cost_step *s);
struct cost cost_program(const struct program *p, const struct cost_step *s);
void cost_add(struct cost *sum, const struct cost *c);

/* The mesh axis of collective INST. */
enum mesh_axis cost_over(const struct inst *inst);
/* Adds P's collectives to OUT, by kind and mesh axis. */
void cost_collectives(struct cost_collective out[COLLECTIVE_KINDS][MESH_NAXES],
                      const struct program *p, const struct cost_step *s);

#endif
