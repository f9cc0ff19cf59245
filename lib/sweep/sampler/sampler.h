/* sampler - the next point to try
 *
 * A sampler keeps no state between calls: what it needs to know is in the study, so
 * that every draw may come from a process of its own.  Draws use the random stream of
 * (study seed, trial number); those of grid, random and qmc depend on nothing else. */
#ifndef LIB_SWEEP_SAMPLER_SAMPLER_H
#define LIB_SWEEP_SAMPLER_SAMPLER_H

#include "lib/base/rng.h"
#include "lib/sweep/space/history.h"
#include "lib/sweep/space/settings.h"
#include "lib/sweep/space/space.h"

/* There is nothing to draw before a trial that runs has ended. */
enum { SAMPLER_LATER = 2 };

/* The attribute of a trial that has its generation in a population. */
#define PBT_GENERATION_KEY "hpo-sweep:generation"

struct sampler_task {
    const struct space *space;
    const struct history *history; /* without the trial being drawn */
    const double *set;             /* the sampler's settings, in its list's order */
    uint64_t seed;
    int number; /* of the trial being drawn */
    struct rng *rng;
};

/* What is kept on a trial beside its point; -1 for nothing. */
struct sampler_note {
    int generation;
    int member; /* of a population */
    int parent; /* the trial whose checkpoint it begins with */
};

struct sampler {
    const char *name;
    const char *summary;
    const struct setting *settings;
    /* The trial attribute under which the generation that draw reports is kept;
     * history's rows carry it back.  NULL: nothing to keep. */
    const char *generation_key;
    bool ends;             /* has a last point of its own: needs no budget */
    bool single_objective; /* serves one objective only */
    bool blind;            /* never looks at the history */
    bool forks;            /* trials begin with the checkpoints of others */
    /* NULL, or whether the space suits: -1 with ERR_USAGE. */
    int (*check)(const struct space *space, const double *set, struct err *err);
    /* Write a point to x (entries not in force may hold anything) and what there is to
     * note.  Returns 1, SAMPLER_LATER, or 0 when nothing is left. */
    int (*draw)(double *x, struct sampler_note *note, const struct sampler_task *task);
};

extern const struct sampler sampler_grid, sampler_random, sampler_qmc, sampler_tpe,
    sampler_cma_es, sampler_nsga_ii, sampler_gp, sampler_pbt;
extern const struct sampler *const sampler_all[]; /* ends with NULL */

/* A sampler as chosen: "tpe", "qmc:sequence=halton,scramble=no", "tpe:distinct". */
struct sampler_choice {
    const struct sampler *sampler;
    double set[SETTINGS_MAX];
    bool distinct; /* never draw a point twice, as far as there are others */
};

/* Parse SPEC; ERR_USAGE lists the names when it is none of them. */
MUST_CHECK int sampler_parse(struct sampler_choice *c, const char *spec,
                             struct err *err);

/* ERR_USAGE when C cannot serve SPACE or that number of objectives. */
MUST_CHECK int sampler_check(const struct sampler_choice *c, const struct space *space,
                             size_t nobjectives, struct err *err);

/* Draw the point X[space->n] of trial NUMBER: fixed parameters as in FIXED (NULL, or
 * NaN for the free ones), NaN for those not in force.  *note is what to keep, the
 * generation under c->sampler->generation_key.  Returns 1; 0 when nothing is left to
 * draw (all points of a finite space are taken), SAMPLER_LATER when nothing is now. */
int sampler_draw(double *x, struct sampler_note *note, const struct sampler_choice *c,
                 const struct space *space, const struct history *history,
                 uint64_t seed, int number, const double *fixed);

/* Draw X from the prior; uses one number of RNG per parameter, active or not. */
void sampler_prior(double *x, const struct space *space, struct rng *rng);

#endif
