/* optimizer - AdamW (Loshchilov and Hutter 2019), as torch.optim.AdamW computes it
 *
 * Given equal gradients, moments are equal to PyTorch's (foreach and fused off) to the
 * bit, and so are weights where its square root is rounded correctly: MKL's is off by
 * a unit in the last place now and then, which one weight in some hundred shows.  Decay
 * spares what Hugging Face's trainer spares: biases and norms.
 */
#ifndef LIB_TRAIN_OPTIMIZER_H
#define LIB_TRAIN_OPTIMIZER_H

#include <stdbool.h>

#include "lib/train/parameters.h"
#include "lib/train/squares.h"

struct adamw {
    double beta1, beta2, eps, decay;
};

/* Update number T, from 1, of the N weights P with moments M and V: gradients G times
 * FACTOR, at the rate RATE. */
void adamw_update(const struct adamw *a, double rate, uint64_t t, float factor,
                  float *p, const float *g, float *m, float *v, size_t n);

struct optimizer {
    struct adamw adamw;
    double clip; /* most norm of all gradients; 0: any */
    uint64_t t;  /* updates so far */
    float *m, *v;
    bool *decays; /* [nweights] */
};

/* For the weights of P; *o's .adamw and .clip are given. */
MUST_CHECK int optimizer_open(struct optimizer *o, const struct parameters *p,
                              struct err *err);
void optimizer_close(struct optimizer *o);
/* The squares of the gradients that count on this rank. */
void optimizer_squares(struct parameters *p, double word[SQUARES_WORDS]);
/* One update at the rate RATE, of gradients whose norm over all ranks is NORM. */
void optimizer_step(struct optimizer *o, struct parameters *p, double rate,
                    double norm);

#endif
