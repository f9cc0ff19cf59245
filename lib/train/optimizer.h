/* optimizer - makes an optimizer's updates of the store of parameters
 *
 * What an optimizer is stands in lib/device/optimizers.h. */
#ifndef LIB_TRAIN_OPTIMIZER_H
#define LIB_TRAIN_OPTIMIZER_H

#include "lib/device/optimizers.h"

struct parameters;
struct wholes;

struct optimizer {
    struct optimizer_options options;
    double bias_speed; /* of the biases of routers: see struct parameter's load */
    double average;    /* decay of the moving average of weights, if P keeps it */
    uint64_t t;        /* number of updates so far */
    uint64_t seed;     /* of stochastic rounding, of weights without masters */
    double scale;      /* the gradients that P has are those times it, a power of 2; 0:
                        * they are those */
    struct wholes *wholes; /* makes updates of whole tensors; NULL: there are none */
};

/* Makes one update of P's weights with learning rate RATE; NORM is the norm of the
 * gradient over all ranks, TOKENS the number of rows of the global batch. */
MUST_CHECK int optimizer_step(struct optimizer *o, struct parameters *p, double rate,
                              double norm, uint64_t tokens, struct err *err);

#endif
