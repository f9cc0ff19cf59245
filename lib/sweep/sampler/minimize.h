/* minimize - the lowest place of a smooth function in a box
 *
 * L-BFGS on the variables that are not held by a bound (Nocedal and Wright, "Numerical
 * Optimization", chapter 7.2), steps projected onto the box (Bertsekas, "Projected
 * Newton Methods", 1982). */
#ifndef LIB_SWEEP_SAMPLER_MINIMIZE_H
#define LIB_SWEEP_SAMPLER_MINIMIZE_H

#include <stddef.h>

/* The value at X[n], and the gradient in GRADIENT[n]; INFINITY where there is none. */
typedef double (*minimize_function)(void *context, const double *x, double *gradient);

/* Move X[n], between LOW[n] and HIGH[n], downhill in at most STEPS steps; returns the
 * value there.  It ends where a step gains no more than LEVEL of the value. */
double minimize(double *x, size_t n, const double *low, const double *high,
                minimize_function f, void *context, double level, int steps);

#endif
