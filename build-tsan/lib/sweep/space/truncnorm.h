/* truncnorm - the normal distribution cut to an interval, in the log domain
 *
 * What the Parzen estimators need: probability masses of intervals far out in a
 * tail, and draws from them, without loss of precision. */
#ifndef LIB_SWEEP_SPACE_TRUNCNORM_H
#define LIB_SWEEP_SPACE_TRUNCNORM_H

/* log of the standard normal's distribution function at A. */
double truncnorm_log_cdf(double a);

/* log of the mass the standard normal puts on [a, b]; -inf when a >= b. */
double truncnorm_log_mass(double a, double b);

/* The Q-quantile, Q in [0, 1], of the standard normal cut to [a, b], a < b. */
double truncnorm_quantile(double q, double a, double b);

#endif
