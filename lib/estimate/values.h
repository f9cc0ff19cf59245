/* values - the values of a forward pass and the instructions that save them */
#ifndef LIB_ESTIMATE_VALUES_H
#define LIB_ESTIMATE_VALUES_H

#include "lib/estimate/anatomy.h"

struct values {
    struct anatomy *a;      /* owner of the program */
    bool eager;             /* see anatomy_options */
    int *producer;          /* [nvalues]: instruction that makes it, or -1 */
    int *keeper;            /* [nvalues]: instruction that saves it: the first whose
                               derivative reads it; or -1 */
    struct columns *copies; /* [ninsts]: copies that the instruction saves */
    bool *gathered; /* [nvalues]: replicated and read by a column-parallel product:
                       with sequence parallelism it is gathered there */
    bool *routes;   /* [ninsts]: a product that scores experts */
    bool *logits;   /* [nvalues]: the logits that the loss reads, and values from
                       which they are made, back to the product */
};

/* Fills *v for A's program; nothing is saved yet.  A must outlive *v. */
void values_open(struct values *v, struct anatomy *a, bool eager);
void values_close(struct values *v);

/* The unit that makes VALUE. */
struct unit *values_unit(const struct values *v, int value);
/* The value whose memory VALUE shares, wholly or as a view. */
int values_storage(const struct values *v, int value);
/* True if VALUE is marked in v->logits. */
bool values_are_logits(const struct values *v, int value);

bool value_is_cut(const struct value *value);
/* Columns per token of this rank for N columns per row sent to the experts of MIXTURE;
 * N if MIXTURE is -1.  Balanced router: all experts get equally many rows; ranks of ep
 * send theirs, too. */
uint64_t values_of_experts(const struct values *v, int mixture, uint64_t n);
/* Elements of VALUE per token of this rank; 0 for row statistics and indices, which are
 * negligible. */
uint64_t values_columns(const struct values *v, const struct value *value);
/* Adds VALUE's elements to SUM, or subtracts them. */
void values_add(struct columns *sum, const struct values *v, int value);
void values_drop(struct columns *sum, const struct values *v, int value);

#endif
