/* sobol - direction numbers of the Sobol sequence */
#ifndef LIB_SWEEP_SAMPLER_SOBOL_H
#define LIB_SWEEP_SAMPLER_SOBOL_H

#include <stdint.h>

enum { SOBOL_DIMS = 256, SOBOL_BITS = 32 };

/* Write the SOBOL_BITS direction numbers of dimension DIM, the first bit after the
 * binary point being the highest; they are as in Bratley and Fox, "Algorithm 659"
 * (ACM TOMS 14(1), 1988). */
void sobol_directions(uint32_t v[SOBOL_BITS], int dim);

#endif
