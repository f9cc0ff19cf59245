/* work - the cost of one token on a rank, summed over layers
 *
 * FLOPs, bytes and collectives come from cost.h.  Each instruction reads its sources
 * and writes its result once; the backward pass moves twice as much, for the gradients
 * of inputs and of weights.  This models operations that run one after another.
 * Operations that cost PyTorch nothing (op_torch.free) move nothing. */
#ifndef LIB_ESTIMATE_WORK_H
#define LIB_ESTIMATE_WORK_H

#include "lib/estimate/memory.h"
#include "lib/program/cost.h"

/* One token's forward pass, summed over some layers. */
struct work {
    double products, repeated; /* FLOPs of products with weights; the part that every tp
                                  rank repeats */
    double frozen;             /* FLOPs of products whose weight is not trained */
    double head;               /* FLOPs of products outside layers */
    double attention;          /* FLOPs of products with keys and values */
    double started, masked;    /* FLOPs of a key for each row of attention; the same for
                                  each    edge of a mask */
    double cut, whole;         /* bytes moved: of values sharded over tp or touched by a
                                  product; of other values */
    double scores;             /* bytes of attention's scores, if they are stored */
    double reduced, reductions; /* bytes and number of all-reduces over tp */
    double gathered, gathers;   /* bytes and number of all-gathers over tp */
    double heads, keys, layers; /* bytes of queries and results; of keys and values;
                                   number of layers with attention */
    double routed, routes; /* bytes dispatched to experts, and number of dispatches */
    double grouped;        /* FLOPs of products with experts */
    double combined, combinations;   /* the all-reduces of experts' results alone */
    double cached;                   /* KV cache bytes of a whole sequence */
    double weights, experts;         /* weight elements outside experts; of experts */
    double trained, trained_experts; /* those with gradients, adapters included */
    double matrices;     /* weight bytes read, independent of the number of tokens */
    double instructions; /* number of instructions that PyTorch runs as kernels */
};
enum { WORK_FIELDS = sizeof(struct work) / sizeof(double) };

/* The costs of a model for one costmodel, as prefix sums: a stage is a difference.  The
 * costmodel must outlive it. */
struct profile {
    const struct costmodel *a;
    struct work *all;   /* [depths + 1]: sum over everything before a layer */
    struct work *again; /* the same for full recomputation: layers up to their last
                           saved value, where PyTorch's checkpoint stops recomputing */
    int depths;
    double boundary; /* bytes per token at a stage boundary */
    double least;    /* fewest heads of any layer on this rank */
    double chosen;   /* fraction of all experts that a token uses */
    double top;      /* experts per token (top-k) */
    double reach;    /* fraction of the expert groups that the router may choose from */
};

/* The step whose mean row a profile of P describes. */
struct cost_step work_step(const struct program *p, const struct memory_options *o);

/* What a program of tp-run does after its forward pass, for one token: AGAIN, what it
 * computes a second time, and BACK, the gradients.  Gradients of weights are moved once
 * for all tokens, like weights. */
struct own_work {
    struct work again, back;
};
/* Of PROGRAM, of A's model and mesh. */
struct own_work work_own(const struct costmodel *a, const struct program *program,
                         const struct memory_options *o);

struct profile *profile_new(const struct costmodel *a, const struct memory_options *o);
void profile_free(struct profile *p);

/* TO += SIGN * W. */
void work_add(struct work *to, const struct work *w, double sign);
/* TO += cost of the layers [FIRST, FIRST + COUNT); SUMS is profile.all or .again. */
void work_add_layers(struct work *to, const struct work *sums, int first, int count);

#endif
