/* fanova - how much of the losses' variance each parameter explains
 *
 * Hutter, Hoos and Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter
 * Importance" (ICML 2014): a random forest is fitted to the losses, and of the variance
 * of each tree over the whole space the part is taken that one parameter alone
 * explains.  What several explain together is nobody's. */
#ifndef LIB_SWEEP_SAMPLER_FANOVA_H
#define LIB_SWEEP_SAMPLER_FANOVA_H

#include "lib/sweep/space/history.h"
#include "lib/sweep/space/space.h"

/* OUT[space->n]: the part of each parameter, all of them together 1 (all equal when
 * nothing is explained).  Complete trials with a finite first loss count; without any
 * all parts are 0. */
void fanova_importance(double *out, const struct history *h, const struct space *space);

#endif
