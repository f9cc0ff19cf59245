/* qmc - low-discrepancy sequences: Sobol and Halton */
#ifndef LIB_SWEEP_SAMPLER_QMC_H
#define LIB_SWEEP_SAMPLER_QMC_H

#include <stddef.h>
#include <stdint.h>

/* Coordinate DIM, below SOBOL_DIMS, of point INDEX of the Sobol sequence in Gray code
 * order (Antonov and Saleev), in [0, 1).  SEED, unless NULL, scrambles it: a random
 * linear matrix and a digital shift. */
double qmc_sobol(uint64_t index, size_t dim, const uint64_t *seed);

/* Coordinate DIM of point INDEX of the Halton sequence, base the DIM-th prime, in
 * [0, 1).  SEED, unless NULL, permutes the digits (Owen, arXiv 1706.02808). */
double qmc_halton(uint64_t index, size_t dim, const uint64_t *seed);

#endif
