/* pareto - fronts, non-domination ranks and hypervolumes of losses
 *
 * Points are rows of N x M losses, all to be minimized.  A point dominates another when
 * it is nowhere larger and somewhere smaller; equal points do not dominate each
 * other. */
#ifndef LIB_SWEEP_SAMPLER_PARETO_H
#define LIB_SWEEP_SAMPLER_PARETO_H

#include <stdbool.h>
#include <stddef.h>

bool pareto_dominates(const double *a, const double *b, size_t m);

/* RANK[n]: 0 for the front, 1 for the front of the rest, and so on.  Once at least
 * ENOUGH different points are ranked, all others share the next rank (ENOUGH 0: rank
 * all).  O(n log n) per rank for M <= 2, O(n * front) beyond. */
void pareto_ranks(size_t *rank, const double *losses, size_t n, size_t m,
                  size_t enough);

/* Volume that the points dominate below the reference point REF[m]; points beyond it
 * count for nothing.  Exact: a sweep for M <= 2, the exclusive-volume recursion of
 * While, Bradstreet and Barone (IEEE TEC 16(1), 2012) beyond. */
double pareto_hypervolume(const double *losses, size_t n, size_t m, const double *ref);

/* Choose K of N points whose hypervolume below REF is large, greedily, each time the
 * point that adds most; K <= N.  Writes their row numbers to CHOSEN[k].  Equal points
 * are taken once before any is taken again. */
void pareto_choose(size_t *chosen, size_t k, const double *losses, size_t n, size_t m,
                   const double *ref);

/* Choose the K best of N points: whole ranks, then by pareto_choose from the rank that
 * does not fit, below a reference point a tenth beyond that rank's worst losses; K <=
 * N. Writes their row numbers to CHOSEN[k], in ascending order. */
void pareto_best(size_t *chosen, size_t k, const double *losses, size_t n, size_t m);

#endif
