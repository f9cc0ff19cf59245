/* part - the part of a model, of its states and of a batch that one rank has
 *
 * A stage of a pipeline has a range of layers, or two where the model is folded. States
 * are dealt over the ranks that have the same weights: dp x ep x sp, but for experts,
 * which are not replicated over ep. */
#ifndef LIB_ESTIMATE_PART_H
#define LIB_ESTIMATE_PART_H

#include "lib/estimate/anatomy.h"
#include "lib/estimate/memory.h"
#include "lib/estimate/tally.h"

struct part {
    int n, first[2], count[2]; /* ranges of layers */
    /* after part_open: */
    struct unit_run *slice; /* its units, in order, those that are alike together */
    int nslices;
    uint64_t sections; /* that they belong to, a bit for each */
};

/* The ranges alone. */
struct part part_of(const struct anatomy *a, const struct memory_options *o, int stage);
/* All of it; to be cleared. */
void part_open(struct part *p, const struct anatomy *a, const struct memory_options *o,
               int stage);
void part_clear(struct part *p);
/* After part_open: does it hold C? */
bool part_holds(const struct part *p, const struct common *c);
/* Its weights, summed over units and common tensors. */
void part_weights(struct weight_sum out[WEIGHT_CLASSES], const struct part *p,
                  const struct anatomy *a);

/* Ranks that have the same weights of CLASS, and those over which a state of it is
 * dealt. */
uint64_t part_replicas(const struct memory_options *o, int class);
uint64_t part_group(const struct memory_options *o, int class);

/* Of W the elements that are trained, adapters among them, and the bytes of their
 * gradients on a rank. */
uint64_t part_trained(struct tally *over, const struct memory_options *o,
                      const struct weight_sum *w);
uint64_t part_gradients(struct tally *over, const struct memory_options *o, int class,
                        const struct weight_sum *w);

/* Tokens of a micro-batch that a rank works on, and how many of N columns that are
 * whole over tp it keeps. */
uint64_t part_tokens(struct tally *over, const struct memory_options *o);
uint64_t part_columns(const struct memory_options *o, uint64_t n);

#endif
