/* parzen - a Parzen estimator: a mixture of products, one kernel per observation
 *
 * Watanabe, "Tree-Structured Parzen Estimator" (arXiv 2304.11127), with the choices of
 * Optuna 5: each kernel is a product over the dimensions of a truncated normal (in the
 * logarithm where the dimension is logarithmic, integrated over the step where it is
 * discrete) or of a smoothed indicator of the observed choice.  A normal's width is
 * the larger distance to its two neighbours in that dimension, but at least the range
 * over min(100, n + 2).  The last kernel is the prior: centre and width of the range.
 * Old observations weigh less: the newest 25 count 1, the others rise from 1/n to 1. */
#ifndef LIB_SWEEP_SAMPLER_PARZEN_H
#define LIB_SWEEP_SAMPLER_PARZEN_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/rng.h"
#include "lib/sweep/space/dist.h"

struct parzen_dim;

struct parzen {
    struct parzen_dim *dims; /* [ndims] */
    size_t ndims;
    size_t nkernels;   /* observations and the prior */
    double *weights;   /* [nkernels], sum 1 */
    double *constants; /* [nkernels]: what of the log density no point changes */
    double *sums;      /* [nkernels]: room for parzen_log_density */
};

/* Estimate from N observations, oldest first: OBSERVATIONS[n][ndims], values as in
 * dist.h of the distributions DISTS[ndims].  EVEN gives all the same weight.  The
 * distributions must outlive *p. */
void parzen_init(struct parzen *p, const double *observations, size_t n,
                 const struct dist *const *dists, size_t ndims, bool even);
void parzen_clear(struct parzen *p);

/* Draw a point X[ndims]. */
void parzen_draw(const struct parzen *p, double *x, struct rng *rng);

/* log density at X[ndims]; of a discrete dimension, log probability. */
double parzen_log_density(struct parzen *p, const double *x);

#endif
