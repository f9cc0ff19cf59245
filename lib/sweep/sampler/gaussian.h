/* gaussian - Gaussian process regression in a unit cube
 *
 * Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006): the kernel
 * is Matern's with nu = 5/2 and a length for each dimension (4.17), a choice being at
 * distance 1 from every other.  The lengths, the signal's and the noise's variance are
 * those of the largest posterior density (chapter 5.4.1), under the priors of Optuna
 * 5.0's GPSampler.  One that grows with the dimensions (Hvarfner, Hellsten and Nardi,
 * "Vanilla Bayesian Optimization Performs Great in High Dimensions", 2024) takes what
 * jagged losses do for noise. */
#ifndef LIB_SWEEP_SAMPLER_GAUSSIAN_H
#define LIB_SWEEP_SAMPLER_GAUSSIAN_H

#include <stdbool.h>
#include <stddef.h>

struct gaussian {
    size_t n, d;
    const double *x;    /* [n][d], between 0 and 1, or the number of a choice */
    const double *y;    /* [n]: about 0, of a spread about 1 */
    const bool *choice; /* [d] */
    double *inverse;    /* [d]: 1 / length^2 */
    double signal, noise;
    double *l;     /* [n][n]: Cholesky factor of the observations' covariance */
    double *alpha; /* [n]: covariance^-1 y */
};

/* Fit to the observations, which must outlive G. */
void gaussian_fit(struct gaussian *g, const double *x, const double *y, size_t n,
                  const bool *choice, size_t d);
/* The same lengths and variances on other observations. */
void gaussian_again(struct gaussian *g, const struct gaussian *fitted, const double *x,
                    const double *y, size_t n);
void gaussian_clear(struct gaussian *g);

/* Mean and deviation (without the noise) at X[d].  With gradients, unless NULL, in
 * DMEAN[d] and DDEVIATION[d], 0 for choices.  ROOM holds 2 n numbers. */
void gaussian_predict(const struct gaussian *g, const double *x, double *mean,
                      double *deviation, double *dmean, double *ddeviation,
                      double *room);

#endif
