/* optimizer - AdamW (Loshchilov and Hutter 2019), numerically as torch.optim.AdamW
 *
 * For equal gradients, moments equal PyTorch's (foreach and fused off) to the bit.
 * Weights do too, where PyTorch's square root is correctly rounded; MKL's is sometimes
 * off by one unit in the last place, which changes about one weight in some hundred.
 * Weight decay excludes biases and norms, as in Hugging Face's Trainer. */
#ifndef LIB_TRAIN_OPTIMIZER_H
#define LIB_TRAIN_OPTIMIZER_H

#include <stdbool.h>

#include "lib/train/parameters.h"
#include "lib/train/squares.h"

struct adamw {
    double beta1, beta2, eps, decay;
};

/* Update number T (from 1) of the N weights P with moments M and V, for the gradients G
 * times FACTOR and the learning rate RATE. */
void adamw_update(const struct adamw *a, double rate, uint64_t t, float factor,
                  float *p, const float *g, float *m, float *v, size_t n);

struct optimizer {
    struct adamw adamw;
    double clip; /* maximum gradient norm; 0: no clipping */
    uint64_t t;  /* number of updates so far */
    float *m, *v;
    bool *decays; /* [nweights]: weight decay applies */
};

/* Allocates state for the weights of P; the caller has set .adamw and .clip. */
MUST_CHECK int optimizer_open(struct optimizer *o, const struct parameters *p,
                              struct err *err);
void optimizer_close(struct optimizer *o);
/* Sums the squared gradients of the elements whose primary replica is on this rank. */
void optimizer_squares(struct parameters *p, double word[SQUARES_WORDS]);
/* Makes one update with learning rate RATE; NORM is the gradient norm over all
 * ranks. */
void optimizer_step(struct optimizer *o, struct parameters *p, double rate,
                    double norm);

#endif
