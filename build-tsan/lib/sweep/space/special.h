/* special - the beta distribution's quantiles */
#ifndef LIB_SWEEP_SPACE_SPECIAL_H
#define LIB_SWEEP_SPACE_SPECIAL_H

/* The distribution function of beta(a, b) at X in [0, 1]; a, b > 0. */
double special_beta_cdf(double x, double a, double b);
/* Its inverse at U in [0, 1]. */
double special_beta_quantile(double u, double a, double b);

#endif
