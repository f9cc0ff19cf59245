/* study - the trials of a study in memory, and what stores them
 *
 * The model and the words are Optuna's: a study has objectives with directions, and
 * numbered trials with parameters, values, intermediate values and attributes, some the
 * user's and some the system's.  A storage is one row of a table of functions; all that
 * changes a study happens between its begin and end, alone among all processes. */
#ifndef LIB_SWEEP_STORAGE_STUDY_H
#define LIB_SWEEP_STORAGE_STUDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/sweep/space/history.h"
#include "lib/sweep/pruner/pruner.h"
#include "lib/sweep/space/space.h"

enum study_state {
    STUDY_RUNNING,
    STUDY_COMPLETE,
    STUDY_PRUNED,
    STUDY_FAIL,
    STUDY_WAITING,
    STUDY_NSTATES
};

const char *study_state_name(enum study_state s); /* "COMPLETE", as Optuna says */
bool study_state_parse(enum study_state *s, const char *name);

struct study_attr {
    char *key, *json; /* owned */
};

struct study_attrs {
    struct study_attr *v; /* [n] */
    size_t n, cap;
};

struct study_param {
    int name;                /* index into the study's names */
    double value;            /* as in dist.h */
    const struct dist *dist; /* borrowed from the study */
};

struct study_trial {
    int64_t id; /* the storage's */
    int number; /* from 0 within the study */
    enum study_state state;
    char *start, *complete; /* "YYYY-MM-DD HH:MM:SS.ffffff" in UTC, or NULL; owned */
    struct study_param *params; /* [nparams] */
    size_t nparams, params_cap;
    double *values; /* [nvalues]: NaN for none */
    size_t nvalues;
    int64_t *steps;  /* [nreports], ascending */
    double *reports; /* [nreports] */
    size_t nreports, steps_cap, reports_cap;
    struct study_attrs user, system;
};

/* How many trials there are of each kind. */
struct study_counts {
    size_t waiting, running, complete, pruned;
    size_t failed;     /* with the infeasible and the retried ones */
    size_t infeasible; /* failed because a constraint is violated */
    size_t retried;    /* failed, and another trial tries the same again */
    size_t given;      /* complete or pruned, taken over from another study */
    size_t resumed;    /* pruned, and another trial goes on with the same */
};

struct study {
    int64_t id;
    char *name;
    bool *maximize; /* [nobjectives] */
    size_t nobjectives;
    struct study_attrs user, system;
    struct study_trial *trials; /* [n], by number */
    size_t n, cap;

    char **names; /* [nnames]: of parameters, in the order they were met */
    size_t nnames, names_cap;
    struct study_dist *dists; /* private: distributions by their JSON text */
    struct study_dist *last_dist,
        *next_dist;           /* private: its end; where to look first */
    size_t open;              /* private: see study_first_open */
    struct study_counts past; /* private: of the first `counted` trials */
    size_t counted;           /* private */
};

void study_clear(struct study *s);

/* The time as trials have it, UTC: "YYYY-MM-DD HH:MM:SS.ffffff"; or in this host's
 * zone. */
enum { STUDY_TIME_SIZE = 32 };
void study_now(char out[STUDY_TIME_SIZE], bool local);
/* A value or report: a finite number, inf or nan in any of the usual spellings. */
bool study_value(double *out, const char *text);
/* Append X as Python's JSON has it: a float shows that it is one, and NaN and the
 * infinities stand bare. */
void study_add_value(struct str *s, double x);

/* For storages, while they load: */
struct study_trial *study_add_trial(struct study *s, int64_t id,
                                    enum study_state state);
/* Forget all of T but its id and number. */
void study_reset_trial(struct study_trial *t);
/* Add parameter NAME with the distribution of the JSON text DIST. */
MUST_CHECK int study_add_param(struct study *s, struct study_trial *t, const char *name,
                               double value, const char *dist, struct err *err);
void study_set_value(struct study_trial *t, size_t objective, double value);
void study_set_report(struct study_trial *t, int64_t step, double value);
void study_set_attr(struct study_attrs *a, const char *key, const char *json);

/* The JSON text of the attribute KEY, or NULL. */
const char *study_attr(const struct study_attrs *a, const char *key);
/* The trial with that number, or NULL. */
struct study_trial *study_find(const struct study *s, int number);
const struct study_param *
study_find_param(const struct study *s, const struct study_trial *t, const char *name);
bool study_finished(const struct study_trial *t);
void study_count(struct study_counts *c, struct study *s);
/* The index of the first trial that is not finished, or s->n.  Trials before it do not
 * change any more, so most loops can start here. */
size_t study_first_open(struct study *s);
/* The sum of the positive constraints of T, under both of Optuna's spellings. */
double study_violation(const struct study_trial *t);
/* Whether A is better than B by the first objective; both complete. */
bool study_better(const struct study *s, const struct study_trial *a,
                  const struct study_trial *b);
/* The best complete feasible trial, one with a finite value if there is one; or NULL.
 */
const struct study_trial *study_best(const struct study *s);

/* What objective K is called: by the study, else "value"; owned. */
char *study_objective_dup(const struct study *s, size_t k);

/* The study as a sampler sees it, waiting trials and number EXCEPT left out.
 * GENERATION_KEY as in struct sampler.  Release with history_clear. */
void study_history(struct history *h, const struct study *s, const struct space *space,
                   const char *generation_key, int except);
/* The study as a pruner sees it: a fresh array of s->n curves that borrow from S;
 * release with study_curves_free. */
struct curve *study_curves_new(const struct study *s);
void study_curves_free(struct curve *curves, size_t n);

/* The space that the trials of S were drawn from, for analyses when no sweep file is at
 * hand: every parameter met, unconditional. */
void study_space(struct space *space, const struct study *s);

/* Refuse SPACE when a trial of S has one of its parameters with another kind, scale or
 * list of choices, or the study was begun with other parameters, conditions or priors;
 * the error names the difference.  Ranges may become wider: then the result is 1. */
MUST_CHECK int study_check_space(const struct study *s, const struct space *space,
                                 struct err *err);
/* The text that is kept in the study for that purpose. */
char *study_space_text(const struct space *space);

#define STUDY_SPACE_KEY  "hpo-sweep:space"
#define STUDY_SEED_KEY   "hpo-sweep:seed"
#define STUDY_ID_KEY     "hpo-sweep:id" /* that no other study has */
#define STUDY_PRUNER_KEY "hpo-sweep:pruner"
#define STUDY_GIVEN_KEY  "hpo-sweep:given" /* of a trial: its number elsewhere */
#define STUDY_PRUNE_KEY  "hpo-sweep:prune" /* of a trial: it was told to stop */
#define STUDY_NAMES_KEY  "study:metric_names"

/* Of a trial that goes on with a training: its place in a population; the number of the
 * trial whose checkpoint it begins with; and, where it has that one's point, of the one
 * that was paused. */
#define STUDY_MEMBER_KEY  "hpo-sweep:member"
#define STUDY_PARENT_KEY  "hpo-sweep:parent"
#define STUDY_RESUMES_KEY "hpo-sweep:resumes"

/* Of a trial, the user's: the path of the last checkpoint that its command wrote. */
#define STUDY_CHECKPOINT_KEY "checkpoint"

/* Optuna's attributes of a trial that tries a failed one again: the number of the first
 * that failed, and of all of them. */
#define STUDY_FAILED_KEY "failed_trial"
#define STUDY_RETRY_KEY  "retry_history"

#endif
