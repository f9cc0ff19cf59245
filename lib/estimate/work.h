/* work - what one token costs a rank of a model, summed over layers
 *
 * Operations, bytes and collectives are those of cost.h.  Each instruction reads its
 * sources and writes its result once, and the backward pass does the same twice, for
 * the input's and for the weights' gradients: so it is where operations run one after
 * another.  What PyTorch has for free (struct op_torch) moves nothing. */
#ifndef LIB_ESTIMATE_WORK_H
#define LIB_ESTIMATE_WORK_H

#include "lib/estimate/memory.h"
#include "lib/program/cost.h"

/* Of one token going forward, over some layers. */
struct work {
    double products, repeated;  /* operations with weights, and of those what every rank
                                   of tp does */
    double frozen;              /* of the products those whose weight is not trained */
    double attention;           /* operations with keys and values */
    double cut, whole;          /* bytes moved: of values that are cut over tp or that a
                                   product has, and of others */
    double scores;              /* attention's, where they are kept */
    double reduced, reductions; /* bytes summed over tp, in so many sums */
    double gathered, gathers;   /* bytes gathered from all of tp, in so many times */
    double heads, keys, layers; /* bytes of queries and results; of keys and values;
                                   layers with attention */
    double routed, routes;      /* bytes of a token that go to experts, so many times */
    double cached;              /* bytes of a whole sequence's keys and values */
    double weights, experts;    /* elements, and those of experts */
    double trained, trained_experts; /* of them those with gradients, and adapters' */
    double matrices;     /* bytes of weights moved, however many the tokens */
    double instructions; /* but for those that PyTorch has for free */
};
enum { WORK_FIELDS = sizeof(struct work) / sizeof(double) };

/* A model's costs at one anatomy, as sums so that those of any stage are a difference.
 * The anatomy must outlive it. */
struct profile {
    const struct anatomy *a;
    struct work *all;   /* [depths + 1]: sums over what stands before a layer */
    struct work *again; /* the same of what full recomputation makes again: repeated
                           layers up to the last values that their backward pass reads,
                           as PyTorch's checkpoints stop there */
    int depths;
    double border; /* bytes of a token between two layers */
    double least;  /* heads of any layer on this rank */
    double chosen; /* share of all experts that a token goes to */
    double top;    /* experts of a token */
    double reach;  /* share of the groups of experts that they are chosen from */
};

/* The step that a profile of P is a mean row of. */
struct cost_step work_step(const struct program *p, const struct memory_options *o);

struct profile *profile_new(const struct anatomy *a, const struct memory_options *o);
void profile_free(struct profile *p);

/* TO += SIGN * W. */
void work_add(struct work *to, const struct work *w, double sign);
/* TO += what layers [FIRST, FIRST + COUNT) of SUMS, one of a profile's, cost. */
void work_add_layers(struct work *to, const struct work *sums, int first, int count);

#endif
