/* pedanova - how much each parameter matters to being among the best
 *
 * PED-ANOVA: Watanabe, Bansal and Hutter, "PED-ANOVA: Efficiently Quantifying
 * Hyperparameter Importance in Arbitrary Subspaces" (IJCAI 2023), with Optuna's
 * choices: the best tenth against all complete trials. */
#ifndef LIB_SWEEP_SAMPLER_PEDANOVA_H
#define LIB_SWEEP_SAMPLER_PEDANOVA_H

#include "lib/sweep/space/history.h"
#include "lib/sweep/space/space.h"

/* OUT[space->n]: the importance of each parameter, at least 0; their sum is 1 when
 * NORMALIZED (all equal when they are all 0).  OBJECTIVE is the objective's index, or
 * -1 to take the best by Pareto rank.  Complete trials with finite losses count; with
 * fewer than two all importances are 0. */
void pedanova_importance(double *out, const struct history *h,
                         const struct space *space, int objective, bool normalized);

#endif
