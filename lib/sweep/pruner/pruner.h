/* pruner - whether a running trial is worth finishing
 *
 * The rules are Optuna's, decision for decision.  A pruner keeps no state: a rung that
 * a trial has completed is an attribute of that trial, as in Optuna. */
#ifndef LIB_SWEEP_PRUNER_PRUNER_H
#define LIB_SWEEP_PRUNER_PRUNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/sweep/space/history.h"
#include "lib/sweep/space/settings.h"

/* The attribute of a trial under which the value it had at rung K is kept. */
#define PRUNER_RUNG_KEY "completed_rung_%d"

struct curve {
    int number;
    enum past_state state;
    const int64_t *steps; /* [n], ascending */
    const double *values; /* [n], as reported; NaN is legal */
    size_t n;
    double value;        /* the final one, as told; NaN without one */
    bool infeasible;     /* a constraint is violated */
    const double *rungs; /* [nrungs]: values of the rungs completed, from rung 0 */
    size_t nrungs;
    bool resumable; /* pruned, with a checkpoint to go on from */
    bool resumed;   /* another trial does so, and stands for both */
};

struct pruner_task {
    const char *study_name;
    bool maximize;
    const struct curve *trials; /* [n]: all of the study, SELF included */
    size_t n;
    const struct curve *self;
};

struct pruner_verdict {
    bool prune;
    /* To note on the trial: value at rungs [first_rung, end_rung). */
    int first_rung, end_rung;
    double rung_value;
};

struct pruner {
    const char *name;
    const char *summary;
    const struct setting *settings;
    bool wraps; /* asks another pruner, if there is one, before it prunes */
    void (*judge)(struct pruner_verdict *v, const struct pruner_task *task,
                  const double *set);
    /* NULL, or whether the settings suit one another: -1 with ERR_USAGE. */
    int (*check)(const double *set, struct err *err);
    /* NULL, or whether what is pruned may go on later; and which of the trials of TASK
     * (whose self is NULL) is the next to do so, or NULL. */
    bool (*pauses)(const double *set);
    const struct curve *(*promote)(const struct pruner_task *task, const double *set);
};

extern const struct pruner pruner_none, pruner_median, pruner_percentile,
    pruner_successive_halving, pruner_hyperband, pruner_patient, pruner_threshold,
    pruner_wilcoxon;
extern const struct pruner *const pruner_all[]; /* ends with NULL */

/* A pruner as chosen: "median:warmup=5", "patient:patience=3+median". */
struct pruner_choice {
    const struct pruner *pruner;
    double set[SETTINGS_MAX];
    const struct pruner *wrapped; /* NULL: none */
    double wrapped_set[SETTINGS_MAX];
};

MUST_CHECK int pruner_parse(struct pruner_choice *c, const char *spec, struct err *err);

/* Whether a pruned trial is only paused; and the one that is to go on, or NULL. */
bool pruner_pauses(const struct pruner_choice *c);
const struct curve *pruner_promote(const struct pruner_choice *c,
                                   const struct pruner_task *task);
/* Judge task->self; without intermediate values it is never pruned. */
void pruner_judge(struct pruner_verdict *v, const struct pruner_choice *c,
                  const struct pruner_task *task);

#endif
