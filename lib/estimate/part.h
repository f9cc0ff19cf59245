/* part - one rank's part of the layers, the training states and the batch
 *
 * A pipeline stage has one range of layers, or two if the schedule folds the model.
 * ZeRO shards states over the ranks with the same weights: dp x ep x sp; for experts,
 * which are not replicated over ep, dp x sp. */
#ifndef LIB_ESTIMATE_PART_H
#define LIB_ESTIMATE_PART_H

#include "lib/estimate/anatomy.h"
#include "lib/estimate/memory.h"
#include "lib/estimate/tally.h"

struct part {
    int n, first[2], count[2]; /* ranges of layers */
    /* after part_open: */
    struct unit_run *slice; /* its units, in order, as runs of identical ones */
    int nslices;
    uint64_t sections; /* bit per section that has a unit here */
};

/* Sets the ranges only. */
struct part part_of(const struct anatomy *a, const struct memory_options *o, int stage);
/* Sets all fields; release with part_clear. */
void part_open(struct part *p, const struct anatomy *a, const struct memory_options *o,
               int stage);
void part_clear(struct part *p);
/* True if the part, opened, holds C. */
bool part_holds(const struct part *p, const struct common *c);
/* Sums its weights over units and common tensors. */
void part_weights(struct weight_sum out[WEIGHT_CLASSES], const struct part *p,
                  const struct anatomy *a);

/* Number of ranks with the same weights of CLASS; number of ranks over which ZeRO
 * shards a state of CLASS. */
uint64_t part_replicas(const struct memory_options *o, int class);
uint64_t part_group(const struct memory_options *o, int class);

/* Trained elements of W, LoRA adapters included; bytes of their gradients on a rank. */
uint64_t part_trained(struct tally *over, const struct memory_options *o,
                      const struct weight_sum *w);
uint64_t part_gradients(struct tally *over, const struct memory_options *o, int class,
                        const struct weight_sum *w);

/* Tokens of a micro-batch on a rank; columns that a rank saves of N columns replicated
 * over tp. */
uint64_t part_tokens(struct tally *over, const struct memory_options *o);
uint64_t part_columns(const struct memory_options *o, uint64_t n);

#endif
