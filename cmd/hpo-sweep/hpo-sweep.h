/* hpo-sweep - what the subcommands share */
#ifndef CMD_HPO_SWEEP_HPO_SWEEP_H
#define CMD_HPO_SWEEP_HPO_SWEEP_H

#include "cmd/cmd.h"
#include "lib/sweep/sampler/sampler.h"
#include "lib/sweep/storage/storage.h"
#include "lib/sweep/format/sweepfile.h"

/* Options that say which study. */
struct where {
    const char *storage, *study;
};

/* clang-format off */
#define WHERE_OPTIONS(w) \
    { OPT_STRING, 'S', "storage", &(w).storage, "URL", \
      "where the study is kept", NULL, NULL }, \
    { OPT_STRING, '\0', "study", &(w).study, "NAME", "the study's name", NULL, NULL }
/* clang-format on */

extern const char *const direction_words[];

enum { WISH_WORDS = 16 };

/* Options that say what a sweep is; they override its file. */
struct wish {
    struct where where;
    const char *sampler, *pruner;
    struct opt_list directions, metrics;
    uint64_t seed;
    bool has_seed;
    const char *samplers[WISH_WORDS], *pruners[WISH_WORDS]; /* their names, NULL */
};

/* Fill W's list of the names that there are, and return it. */
const char *const *wish_samplers(struct wish *w);
const char *const *wish_pruners(struct wish *w);

/* clang-format off */
#define WISH_OPTIONS(w) \
    WHERE_OPTIONS((w).where), \
    { OPT_STRING, '\0', "sampler", &(w).sampler, "NAME", \
      "how points are drawn", wish_samplers(&(w)), NULL }, \
    { OPT_STRING, '\0', "pruner", &(w).pruner, "NAME", \
      "how trials are stopped", wish_pruners(&(w)), NULL }, \
    { OPT_LIST, '\0', "direction", &(w).directions, "WAY", \
      "minimize or maximize, one per objective", direction_words, NULL }, \
    { OPT_LIST, '\0', "metric", &(w).metrics, "NAME", NULL, NULL, NULL }, \
    { OPT_U64, '\0', "seed", &(w).seed, "N", NULL, NULL, \
      &(w).has_seed }
/* clang-format on */

/* Check what W asks of a study begun from F, and choose its sampler. */
MUST_CHECK int wish_check(const struct wish *w, struct sampler_choice *sampler,
                          const struct sweepfile *f, struct err *err);

/* An open study. */
struct session {
    struct storage *st;
    struct study study;
    char *name, *url; /* owned */
    bool open;        /* between begin and end */
    double given_up;  /* when session_again is to give up, by clock_seconds(); or 0 */
    size_t left;      /* points that were interrupted so often that they are left */

    /* of a sweep alone */
    struct sweepfile file;
    struct sampler_choice sampler;
    uint64_t seed;
};

/* Open the study that W, or HPO_STORAGE and HPO_STUDY, name; without a name the only
 * one there.  It is loaded, between begin and end when CHANGE. */
MUST_CHECK int session_open(struct session *s, const struct where *w, bool change,
                            struct err *err);
/* The same to read alone, of FILE if it is not NULL: a storage, or the sweep file of a
 * study.  Where nothing names a study, it is the only one of the working directory. */
MUST_CHECK int session_open_file(struct session *s, const struct where *w,
                                 const char *file, struct err *err);
/* Read the sweep file PATH into *S, derive the names of the study and its storage, and
 * check W as far as possible without opening them. */
MUST_CHECK int session_read_sweep(struct session *s, const char *path,
                                  const struct wish *w, struct err *err);
/* Open, or begin, its study, alone and loaded.  The latter alone, after session_again.
 */
MUST_CHECK int session_prepare(struct session *s, const struct wish *w,
                               struct err *err);
MUST_CHECK int session_open_study(struct session *s, const struct wish *w,
                                  struct err *err);
/* Start the study, which has no trials, with the trials of study NAME that have values
 * and fit the space: *TAKEN of *TOTAL.  NAME is a study of the same storage, a storage
 * or a sweep file.  Does nothing if an earlier run has done it. */
MUST_CHECK int session_warm_start(struct session *s, const char *name, size_t *taken,
                                  size_t *total, struct err *err);
/* Print the storage's advice, once in the life of the storage. */
void session_advise(const struct session *s, const struct cmd *cmd);
/* Begin again after session_end, the study brought up to date. */
MUST_CHECK int session_begin(struct session *s, struct err *err);
MUST_CHECK int session_end(struct session *s, struct err *err);
/* After a failure that is the storage's and `passing`: make ready to begin again; the
 * study is forgotten.  -1 with *err set, which may be passing in turn. */
MUST_CHECK int session_recover(struct session *s, struct err *err);
/* The same for a command that makes one change: wait until the storage is there again,
 * for HPO_PATIENCE seconds in all, and begin.  -1 with *err as it was when that failure
 * does not pass. */
MUST_CHECK int session_again(struct session *s, struct err *err);
/* Let CHANGE, which gets ARG, change the study, and keep that; should the connection be
 * lost, AGAIN, when nobody may know whether it was kept before. */
MUST_CHECK int session_change(struct session *s,
                              int (*change)(struct session *s, void *arg, bool again,
                                            struct err *err),
                              void *arg, struct err *err);
/* A mark on trials, JSON, by which a change that is made again knows what it had made
 * before: a fresh one, owned; note it on trial ID, where connections may be lost; and
 * the trial that has it, or NULL. */
MUST_CHECK int session_mark_new(char **mark, struct err *err);
MUST_CHECK int session_mark(struct session *s, int64_t id, const char *mark,
                            struct err *err);
const struct study_trial *session_marked(const struct session *s, const char *mark);
void session_close(struct session *s);
/* The point X[space.n] of T. */
void session_point(double *x, const struct session *s, const struct study_trial *t);
/* Whether a trial of S runs or waits. */
bool session_is_busy(struct study *s);
/* Bring the study of a session that only reads up to date. */
MUST_CHECK int session_look_again(struct session *s, struct err *err);

/* How many trials count: those that have ended, with BEGUN also those that run.  One
 * that another trial tries again does not, nor do the first PARDONED that failed. */
uint64_t session_done(struct session *s, uint64_t pardoned, bool begun);
/* Whether as many as CAP count, those that run among them; never when it is 0. */
bool session_is_full(struct session *s, uint64_t cap, uint64_t pardoned);
/* Start the next trial: the first that waits, those first that go on with a training;
 * else a new point.  Returns 1 with X filled and *number set, 0 when nothing is left to
 * draw, SAMPLER_LATER when nothing is before a trial that runs has ended. */
MUST_CHECK int session_draw(struct session *s, int *number, double *x, struct err *err);

/* Trials that go on with the training of another (lineage.c). */

/* Whether a trial waits that does. */
bool session_goes_on(struct session *s);
/* Trial ID, which is new, goes on with what trial NUMBER does. */
MUST_CHECK int session_take_place(struct session *s, int number, int64_t id,
                                  struct err *err);
/* Whether the study's pruner pauses trials; and enqueue the next one that is to go on,
 * if there is one. */
MUST_CHECK int session_pauses(bool *pauses, const struct session *s, struct err *err);
MUST_CHECK int session_promote(struct session *s, struct err *err);
/* Note the path of the checkpoint that T, which is not finished, ended with. */
MUST_CHECK int session_note_checkpoint(struct session *s, const struct study_trial *t,
                                       const char *path, struct err *err);

/* What T begins with. */
struct origin {
    int parent;             /* the trial whose checkpoint it is, or -1 */
    char *checkpoint;       /* its path, or NULL; owned */
    bool resumes;           /* with that one's point */
    int generation, member; /* of a population, or -1 */
};

struct origin session_origin(const struct session *s, const struct study_trial *t);

/* Let trial ID be another's after SECONDS without news of it: session_end_leases takes
 * it for failed then.  WORKER is the process that runs it, as job_identity_dup has it,
 * or NULL. */
MUST_CHECK int session_lease(struct session *s, int64_t id, double seconds,
                             const char *worker, struct err *err);
/* Whether T is leased to WORKER. */
bool session_leased(const struct study_trial *t, const char *worker);
/* Whether a trial runs that has a lease, so that it ends in any case. */
bool session_some_run(struct session *s);
/* There is news of T: its lease, if it has one, begins again. */
MUST_CHECK int session_renew(struct session *s, const struct study_trial *t,
                             struct err *err);
/* Record as failed the trials whose lease has expired, and (session_reap) those whose
 * worker on this host is dead; with AGAIN, enqueue their points again. */
MUST_CHECK int session_end_leases(struct session *s, bool again, struct err *err);
MUST_CHECK int session_reap(struct session *s, bool again, struct err *err);
/* Record T as failed because its worker was ended; with AGAIN, enqueue its point again
 * unless this has happened to it three times.  T may have moved afterwards. */
MUST_CHECK int session_interrupt(struct session *s, struct study_trial *t, bool again,
                                 struct err *err);
/* How often T's command was started before; and note it. */
int session_attempt(const struct study_trial *t);
MUST_CHECK int session_note_attempt(struct session *s, int64_t id, int attempt,
                                    struct err *err);

/* Attributes of a trial, the user's, that say how its command ended. */
#define SESSION_STATUS_KEY "exit_status"
#define SESSION_SIGNAL_KEY "signal"
#define SESSION_REASON_KEY "reason"

struct ending {
    int status;         /* as from exit, -1 for none */
    int signal;         /* that ended the command, 0 for none */
    const char *reason; /* one line, or NULL */
};

/* Note on T, which is not finished, how it ended. */
MUST_CHECK int session_explain(struct session *s, const struct study_trial *t,
                               const struct ending *end, struct err *err);
/* The trial whose number TEXT says, which runs, or may be WAITING; NULL with *err set
 * when there is none. */
struct study_trial *session_trial(struct session *s, const char *text, bool waiting,
                                  struct err *err);
/* Finish T: COMPLETE takes one value per objective, NaN makes it failed; PRUNED takes
 * its last report along. */
MUST_CHECK int session_finish(struct session *s, struct study_trial *t,
                              enum study_state state, const double *values, size_t n,
                              struct err *err);
/* Note the constraints of T, a list as JSON: those above 0 are violated. */
MUST_CHECK int session_constrain(struct session *s, const struct study_trial *t,
                                 const char *json, struct err *err);
/* Enqueue what T, which has failed, tried, as its next attempt.  T may have moved
 * afterwards. */
MUST_CHECK int session_hand_on(struct session *s, const struct study_trial *t,
                               struct err *err);
/* Note that T was told to stop; whether it was. */
MUST_CHECK int session_condemn(struct session *s, const struct study_trial *t,
                               struct err *err);
bool session_condemned(const struct study_trial *t);
/* The study's pruner, which may be none. */
MUST_CHECK int session_pruner(struct pruner_choice *c, const struct session *s,
                              struct err *err);
/* Append the parameters of T as a JSON object. */
void session_add_point(struct str *out, const struct session *s,
                       const struct study_trial *t);
/* Whether the study's pruner would stop T; rungs passed are noted. */
MUST_CHECK int session_judge(struct session *s, const struct study_trial *t,
                             bool *prune, struct err *err);

/* T's user attribute KEY, owned; NULL if there is none, or it is no text. */
char *session_text_dup(const struct study_trial *t, const char *key);
/* The reason that is noted on T, owned; NULL without one. */
char *session_reason_dup(const struct study_trial *t);
/* Try again, once each, the points whose trials have all failed. */
MUST_CHECK int session_retry_failed(struct session *s, struct err *err);

/* What is known of the points that were tried. */
struct points {
    int *failed;    /* [nfailed]: the last trial of each point whose trials all failed;
                       owned */
    size_t nfailed; /* without those that run, wait, or are infeasible */
    size_t filled;  /* points that have a value or are infeasible */
};

void points_init(struct points *p, const struct session *s);
void points_clear(struct points *p);

/* How much each parameter matters, the most important first; names are borrowed. */
struct importances {
    struct importance {
        const char *name;
        double importance;
        size_t trials; /* that have it, of all that count */
    } * v;             /* [n] */
    size_t n;
    size_t trials;      /* complete, with finite values: they count */
    size_t infinite;    /* complete, with others */
    bool distinct;      /* the values are not all the same */
    struct space space; /* owns the names */
};

enum importance_method { IMPORTANCE_PED_ANOVA, IMPORTANCE_FANOVA };

void importances_init(struct importances *all, const struct study *s,
                      enum importance_method method);
void importances_clear(struct importances *all);

int ask_main(const char *program, int argc, char **argv);
int tell_main(const char *program, int argc, char **argv);
int report_main(const char *program, int argc, char **argv);
int should_prune_main(const char *program, int argc, char **argv);
int enqueue_main(const char *program, int argc, char **argv);
int trials_main(const char *program, int argc, char **argv);
int best_main(const char *program, int argc, char **argv);
int pareto_main(const char *program, int argc, char **argv);
int importance_main(const char *program, int argc, char **argv);
int plot_main(const char *program, int argc, char **argv);
int export_main(const char *program, int argc, char **argv);
int import_main(const char *program, int argc, char **argv);
int watch_main(const char *program, int argc, char **argv);
int repair_main(const char *program, int argc, char **argv);
int slurm_main(const char *program, int argc, char **argv);
int run_main(const char *program, int argc, char **argv);

/* Print T of S for people or, with JSON, as one object of TYPE. */
void print_trial(const struct study *s, const struct study_trial *t, bool json);

#endif
