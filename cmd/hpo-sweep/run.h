/* run - what the parts of the runner share: run.c begins, loop.c decides, spawn.c
 * starts commands, signals.c waits, progress.c tells */
#ifndef CMD_HPO_SWEEP_RUN_H
#define CMD_HPO_SWEEP_RUN_H

#include <signal.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/sweep/job/devices.h"
#include "lib/sweep/job/guard.h"
#include "lib/sweep/job/job.h"
#include "lib/sweep/job/measure.h"

struct runner_options {
    struct wish wish;
    int jobs, trials, failures, retries;
    int pardoned; /* failed trials that do not count, -1: as many as TRIALS */
    enum { FAIL_ON_ALL, FAIL_ON_ANY, FAIL_ON_NEVER } fail_on;
    double timeout;
    const char *require, *joblog;
    const char *warm; /* the study to begin with, or NULL */
    const char *mark; /* of --replace: @ for @lr@; NULL for braces */
    struct measure measure;
    struct devices devices; /* no slots: the environment's are left alone */
    bool no_devices;        /* each trial sees none */
    struct limits limits;   /* of processors, memory and output */
    bool shell, quiet, verbose, dry;
    bool share;        /* the study, with other runs that do */
    bool requeue;      /* what was cut short */
    bool retry_failed; /* what failed by itself */
};

struct loop {
    const struct runner_options *o;
    const struct cmd *cmd; /* for warnings */
    struct session *s;
    char **require; /* words of a check that runs before each trial, or NULL; owned */
    char *const *command;         /* the user's words, or NULL: the file's command */
    char *program, *program_path; /* the first word of the last trial's, and what it
                                     leads to; owned */
    int log;                      /* descriptor of the joblog, or -1 */
    char *base;                   /* where trial directories are made; owned */
    int base_held;                /* descriptor of that directory, locked, or -1 */
    char *url;             /* the storage, for commands that go elsewhere; owned */
    char *identity;        /* this process; owned */
    struct guard guard;    /* ends the commands if it is killed */
    struct job *jobs;      /* [o->jobs] */
    struct job *over;      /* [o->jobs]: jobs that the transaction took the end of */
    bool doubted;          /* run_doubt has had its say */
    bool recovered;        /* a connection was lost: a trial may be drawn already */
    int running, failures; /* failures in a row */
    double end;            /* draw nothing after this, or infinity */
    bool exhausted, pruning;
    bool pauses;        /* what the pruner stops may go on later */
    bool later;         /* a trial elsewhere is to end before there is one for us */
    bool lacks;         /* it was said that a paused trial left no checkpoint */
    struct err failure; /* what ends the run once the trials have been ended */
    bool gave_up;       /* after too many failures in a row */
    int *ended; /* [nended]: trials of this run, in the order they ended; owned */
    size_t nended, ended_cap;
    double looked;    /* when the study was read last */
    double renewed;   /* when the leases of the trials that run last were */
    sigset_t signals; /* that are waited for */
    int signal;       /* that ends the run, or 0 */
    bool hurry;       /* there was another */
    bool draining;    /* was told to start nothing more */
};

/* Seconds without news after which a run on another host is taken for dead, and between
 * two pieces of news. */
enum { RUN_LEASE = 900, RUN_NEWS = 180 };

/* Warn of what is allowed and hardly meant, unless told to be quiet. */
void run_doubt(const struct loop *l);
/* The finished trials to reach, 0 for no such bound. */
uint64_t loop_budget(const struct loop *l);
/* How many of the trials that count have ended. */
uint64_t loop_done(const struct loop *l);
/* Whether another trial may be begun now. */
bool loop_may_draw(const struct loop *l);
/* Run trials until there are enough or something ends the run. */
MUST_CHECK int loop_run(struct loop *l, struct err *err);

/* What a transaction changes of the run, to be taken back when it is given up. */
struct remembered {
    struct job *jobs; /* [o->jobs]; owned */
    int running, failures;
    bool gave_up, exhausted;
    size_t nended, left;
    double renewed;
};

void recover_remember(struct remembered *r, const struct loop *l);
/* The transaction that began at R came to nothing, or nobody knows, as the storage's
 * failure may pass: take back what it changed of the run, and wait, while the commands
 * go on, until the storage is there again.  Every step of a transaction may then be
 * taken once more, also if it was committed. */
MUST_CHECK int recover_wait(struct loop *l, const struct remembered *r,
                            struct err *err);
void recover_forget(struct remembered *r);
/* The trial that this run has drawn and does not know of, or NULL. */
const struct study_trial *recover_find(const struct loop *l);
/* Collect the commands that have ended, and end those past their time. */
void loop_tend(struct loop *l);

/* Take the directory of the trials, l->base: runs of other studies stay out of it, for
 * they would take each other's results.  ERR_LOCKED when another run has it. */
MUST_CHECK int directory_hold(struct loop *l, struct err *err);

/* From here on signals are waited for: SIGTERM, SIGINT and SIGHUP end the run, SIGUSR1
 * lets the trials that run be the last. */
void signals_block(struct loop *l);
/* Wait for one, or for a child, and note it; false when none came in a tenth of a
 * second. */
bool signals_wait(struct loop *l);
/* "SIGTERM" of its number; or "signal 99". */
const char *signals_name(char buf[16], int sig);

/* Why JOB failed, in one line: WHY it has no values if it ended well, and whether it
 * was cut short because the run ends.  Fills *end, whose reason becomes WHY's text. */
void ending_find(struct ending *end, bool *cut_short, struct str *why,
                 const struct loop *l, const struct job *job);
/* Whether a signal ended JOB, or so it says, that may come to the run as well. */
bool ending_may_be_ours(const struct job *job);
/* The status of a run that came to its end, and a line of what became of its trials. */
int ending_report(struct loop *l, const struct cmd *cmd);

/* The line on the terminal. */
struct progress {
    bool shown;
    double begun, last; /* by clock_seconds() */
    uint64_t finished;  /* when the run began */
};

struct progress progress_begin(const struct loop *l);
/* Show or renew it, on a terminal, at most ten times a second. */
void progress_show(struct progress *p, const struct loop *l);
void progress_end(struct progress *p, const struct loop *l);

/* Check the command for errors that can be found before the first trial. */
MUST_CHECK int spawn_check(struct loop *l, struct err *err);
/* Whether something of the command speaks of parameters: a word that names one, or has
 * HPO_, as the variables do, or params.json; or a file that does, which is the program,
 * a word, or a file or Python module that such a script names. */
bool spawn_uses_parameters(const struct loop *l);
/* Take the words of the file that --require names, checked. */
MUST_CHECK int spawn_read_require(struct loop *l, struct err *err);
/* Run the check at X to its end: 0 feasible, 1 not, -1 that it failed itself.  A signal
 * that ends the run ends it as well: 0 with l->signal. */
MUST_CHECK int spawn_feasible(struct loop *l, struct job *job, const double *x,
                              struct err *err);
/* Start JOB's command at X. */
MUST_CHECK int spawn_command(struct loop *l, struct job *job, const double *x,
                             struct err *err);

#endif
