/* history - what a sampler and the analyses need to know of a study's trials
 *
 * A table: one row per trial, in the order of their numbers, one column per parameter
 * of the space.  Every objective is a loss, smaller is better: an objective that is
 * maximized has its sign turned. */
#ifndef LIB_SWEEP_SPACE_HISTORY_H
#define LIB_SWEEP_SPACE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum past_state { PAST_RUNNING, PAST_COMPLETE, PAST_PRUNED, PAST_FAILED };

struct past {
    int number;
    enum past_state state;
    double *x;         /* [nparams]: values as in dist.h; NaN: the trial has none */
    double *loss;      /* [nobjectives]; set when complete */
    double violation;  /* sum of the positive constraints; above 0: infeasible */
    int64_t last_step; /* of its intermediate values, -1 without any */
    double last_loss;  /* the value there, as a loss; NaN is legal */
    int generation;    /* what the sampler noted on the trial, -1 for nothing */
    int member;        /* of a population, noted as well */
};

struct history {
    struct past *trials; /* [n] */
    size_t n, cap;
    size_t nparams, nobjectives;
};

void history_init(struct history *h, size_t nparams, size_t nobjectives);
void history_clear(struct history *h);
/* Append a row: x all NaN, losses 0, nothing noted.  Numbers must not descend.  The
 * pointer is good until the next history_add. */
struct past *history_add(struct history *h, int number, enum past_state state);

/* True when some running, complete, pruned or failed trial sits at point X. */
bool history_has(const struct history *h, const double *x);

#endif
