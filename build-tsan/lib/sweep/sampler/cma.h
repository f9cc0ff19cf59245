/* cma - the covariance matrix adaptation evolution strategy
 *
 * Hansen, "The CMA Evolution Strategy: A Tutorial" (arXiv 1604.00772), with active
 * (negative) weights, as in the Python package cmaes.  Separable, the covariance is a
 * diagonal that is learnt (n + 2) / 3 times as fast, without negative weights: Ros and
 * Hansen, "A Simple Modification in CMA-ES Achieving Linear Time and Space Complexity"
 * (PPSN 2008). */
#ifndef LIB_SWEEP_SAMPLER_CMA_H
#define LIB_SWEEP_SAMPLER_CMA_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/rng.h"

struct cma {
    size_t n;          /* dimension, at least 1 */
    size_t population; /* lambda, at least 2 */
    size_t mu;         /* parents */
    bool separable;
    double mu_eff, c1, cmu, cc, c_sigma, d_sigma, chi_n;
    double *weights; /* [population] */
    double sigma;
    int generation;
    double *mean, *p_sigma, *p_c; /* [n] */
    double *c;                    /* [n][n]: covariance; separable, [n]: its diagonal */
    double *b, *d; /* [n][n], [n]: its eigenvectors and the roots of the values;
                      separable, b is NULL: they are the axes */
    double *work;  /* private */
};

/* Start at MEAN[n] with step size SIGMA; POPULATION 0 is 4 + floor(3 ln n). */
void cma_init(struct cma *s, size_t n, const double *mean, double sigma,
              size_t population, bool separable);
void cma_clear(struct cma *s);

/* Draw X[n] inside the unit cube: again at most TRIES times, then moved to its edge;
 * separable, at once. */
void cma_ask(const struct cma *s, double *x, int tries, struct rng *rng);

/* Learn from a generation: POINTS[population][n] and their LOSSES[population]. */
void cma_tell(struct cma *s, const double *points, const double *losses);

#endif
