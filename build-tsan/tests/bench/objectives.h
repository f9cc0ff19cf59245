/* objectives - functions to be minimized that samplers are compared on */
#ifndef TESTS_BENCH_OBJECTIVES_H
#define TESTS_BENCH_OBJECTIVES_H

#include <stddef.h>

struct objective {
    const char *name;
    const char *space; /* as a sweep file in the short form */
    size_t ndims, nlosses;
    /* LOSSES of the point X: numbers, the index of the choice, NaN when not in force.
     */
    void (*evaluate)(double *losses, const double *x);
};

/* The objective called NAME, or NULL. */
const struct objective *objectives_find(const char *name);

/* Evaluate it by name, for callers from other languages; 0, or -1 without one. */
int objectives_evaluate(const char *name, double *losses, const double *x);
/* Its space, or NULL. */
const char *objectives_space(const char *name);

/* Give the objective NAME ("nas", "xgboost", "deepar") its table: lines of ndims
 * coordinates and the loss.  Returns the number of rows, or -1. */
int objectives_load(const char *name, const char *path);

#endif
