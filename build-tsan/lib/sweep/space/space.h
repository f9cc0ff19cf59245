/* space - the parameters of a sweep: their values, prior shapes and conditions
 *
 * A point of the space is an array of one double per parameter, in the space's order
 * (see dist.h); NaN stands for a parameter that the point leaves out because its
 * condition is not met.  Parameters come after the one they depend on. */
#ifndef LIB_SWEEP_SPACE_SPACE_H
#define LIB_SWEEP_SPACE_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/sweep/space/dist.h"

/* How the prior spreads over the distribution. */
enum space_shape {
    SPACE_FLAT,      /* evenly, on the logarithmic scale when dist.log */
    SPACE_LOG,       /* evenly in the logarithm, although dist.log is off (steps) */
    SPACE_NORMAL,    /* normal(a, b) of the value, of its logarithm when dist.log */
    SPACE_LOGNORMAL, /* normal(a, b) of the logarithm, although dist.log is off */
    SPACE_BETA,      /* beta(a, b) */
    SPACE_WEIGHTED,  /* choice i with probability weights[i] */
};

struct space_param {
    char *name; /* owned, not empty, without line feeds */
    struct dist dist;
    enum space_shape shape;
    double a, b;
    double *weights; /* [dist.nchoices], sum 1; owned; SPACE_WEIGHTED alone */
    int parent;      /* the parameter this one depends on, or -1 */
    bool *when;      /* [parent's nchoices]: active for these; owned */
    struct space_range {
        double low, high; /* both included; may be infinite */
    } * ranges;           /* [nranges]: of a parent that is a number, instead; owned */
    size_t nranges;
};

struct space {
    struct space_param *params; /* [n] */
    size_t n, cap;
};

void space_clear(struct space *s);
/* Append P, whose parts the space takes ownership of. */
void space_add(struct space *s, const struct space_param *p);
int space_find(const struct space *s, const char *name); /* index, or -1 */

/* True when parameter I is in force at point X (only earlier entries are read). */
bool space_active(const struct space *s, const double *x, size_t i);
/* Replace the entries of X that are not in force by NaN. */
void space_settle(const struct space *s, double *x);

/* The value at quantile U, in [0, 1), of the prior of P; always a value P may take. */
double space_quantile(const struct space_param *p, double u);
/* VALUE moved to the nearest one D may take; choices are rounded and clamped. */
double space_nearest(const struct dist *d, double value);
/* VALUE on the scale on which D is searched (the logarithm when D.log), and back. */
double space_to_scale(const struct dist *d, double value);
double space_from_scale(const struct dist *d, double t);
/* The same with the scale's ends at 0 and 1; of numbers that may differ. */
double space_to_unit(const struct dist *d, double value);
double space_from_unit(const struct dist *d, double u);
/* The scale's ends; a stepped parameter's are half a step beyond its values. */
void space_scale_bounds(const struct dist *d, double *low, double *high);

/* Number of values of D, or 0 when continuous. */
uint64_t space_count(const struct dist *d);
/* The value of D with index K, in ascending order. */
double space_nth(const struct dist *d, uint64_t k);
/* Whether another parameter depends on parameter I. */
bool space_is_parent(const struct space *s, size_t i);
/* Number of points, conditions respected, or 0 when there is no end or it does not
 * fit 64 bits. */
uint64_t space_size(const struct space *s);

/* Two parameters are of one group when they are always in force together.  Writes the
 * group of each to GROUP[n] and returns the number of groups; group 0 is the
 * unconditional one, which may be empty. */
size_t space_groups(const struct space *s, size_t *group);

#endif
