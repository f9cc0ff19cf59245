/* values - the values of a forward pass, and what keeps them for the backward pass */
#ifndef LIB_ESTIMATE_VALUES_H
#define LIB_ESTIMATE_VALUES_H

#include "lib/estimate/anatomy.h"

struct values {
    struct anatomy *a;      /* whose program they are of */
    bool eager;             /* as in anatomy_options */
    int *producer;          /* [nvalues]: the instruction that makes it, or -1 */
    int *keeper;            /* [nvalues]: the first instruction whose derivative reads
                               it, or -1 */
    struct columns *copies; /* [ninsts]: what an instruction keeps besides values */
    bool *gathered;         /* [nvalues]: whole, and read by a product whose result is
                               cut: where tokens are cut elsewhere it is gathered */
    bool *routes;           /* [ninsts]: a product that scores experts */
    bool *logits;           /* [nvalues]: what the loss reads, and what that is made
                               of, back to the product */
};

/* Fill *V for A's program; nothing is kept yet.  A outlives it. */
void values_open(struct values *v, struct anatomy *a, bool eager);
void values_close(struct values *v);

/* The unit that makes VALUE. */
struct unit *values_unit(const struct values *v, int value);
/* The value whose memory VALUE is, or a part of it. */
int values_storage(const struct values *v, int value);
/* Is VALUE the logits that the loss reads, or what they are made of? */
bool values_are_logits(const struct values *v, int value);

bool value_is_cut(const struct value *value);
/* N for each row that is sent to the experts of MIXTURE (-1: none, then N), per token
 * of this rank: each goes to some of all experts, in the mean equally often, and the
 * other ranks of ep send theirs. */
uint64_t values_of_experts(const struct values *v, int mixture, uint64_t n);
/* Elements of VALUE for each token of this rank; row statistics and indices are too few
 * to count. */
uint64_t values_columns(const struct values *v, const struct value *value);
/* Add those of VALUE to SUM, or take them from it. */
void values_add(struct columns *sum, const struct values *v, int value);
void values_drop(struct columns *sum, const struct values *v, int value);

#endif
