/* train - what the parts of 'tp-run train' share
 *
 * train.c reads options, traindir.c keeps the run's directory, trainrank.c is what each
 * rank does, and trainlog.c tells of it. */
#ifndef CMD_TP_RUN_TRAIN_H
#define CMD_TP_RUN_TRAIN_H

#include "cmd/tp-run/session.h"
#include "lib/pipe/action.h"
#include "lib/train/save.h"
#include "lib/train/schedule.h"

enum { SAVE_AT_END = INT32_MAX }; /* steps from one checkpoint to the next */

struct train_options {
    int steps, global, micro, warmup, eval_every, save_every;
    uint64_t seed, seq;
    double dropout; /* below 0: the config's */
    double lr, decay, beta1, beta2, eps, clip, eval_fraction, spikes;
    int schedule, pack, order;
    bool deterministic;
    int init;       /* weights are drawn */
    int keep;       /* newest checkpoints; 0: all */
    bool keep_best; /* and the one with the least evaluation's loss */
    bool log_samples;
    double stop_after; /* seconds; 0: never */
};

/* An option that the run's directory remembers. */
struct setting {
    enum { SETTING_INT, SETTING_U64, SETTING_DOUBLE, SETTING_CHOICE } kind;
    const char *option; /* as it is given; with _ for - its key */
    void *value;
    const char *const *choices;
    bool given; /* on the command line */
    bool fixed; /* cannot change while a run goes on */
};

/* How far a run is; the rest follows from the step. */
struct train_state {
    uint64_t step, updates, tokens;
    double norm; /* mean of the last norms; 0: none yet */
    double best; /* least loss of an evaluation that was saved, and its step */
    uint64_t best_step;
};

/* What a run was begun with, besides its settings. */
struct train_files {
    char *model;
    struct train_file {
        char *path;
        uint64_t size;
        uint32_t crc;
    } * data, *eval;
    size_t ndata, neval;
};

struct train {
    struct session *session;
    struct train_options o;
    struct setting *setting;
    size_t nsettings;
    const struct action_table *table; /* of --pipeline FILE; or NULL */
    enum order pipeline;
    struct data *data, *eval;    /* eval: files of their own, or NULL */
    uint64_t held;               /* samples that are evaluated */
    char *dir;                   /* of the run; NULL: nothing is kept */
    const char *log;             /* --log, or NULL */
    const char *report, *result; /* hpo-sweep's files, or NULL */
    int lock;                    /* the run's directory, open and locked; -1: none */
    struct train_files files;    /* that the run reads */
    bool resumed;
    bool replaces;            /* a run that is there is removed */
    struct train_state state; /* to begin with */
};

/* ---- traindir.c ---- */

/* The file that makes DIR a run's. */
bool train_dir_is_run(const char *dir);
/* Make DIR where it is not there, and lock it until *fd is closed.  ERR_LOCKED when
 * another run is in it. */
MUST_CHECK int train_dir_lock(int *fd, const char *dir, struct err *err);
/* The path of checkpoint STEP; and the newest that is whole, a fresh text, NULL: none.
 */
char *train_step_dup(const char *dir, uint64_t step);
char *train_newest_dup(const char *dir);
/* Remove checkpoints but for the newest KEEP and step BEST (0: none). */
MUST_CHECK int train_dir_prune(const char *dir, int keep, uint64_t best,
                               struct err *err);

MUST_CHECK int train_files_add(struct train_file **v, size_t *n, const char *path,
                               struct err *err);
void train_files_clear(struct train_files *f);

/* Make T's directory that of a run that begins or goes on: what it replaces and what
 * an interrupted run has left is removed, and run.json says what it was begun with. */
MUST_CHECK int train_dir_begin(const struct train *t, struct err *err);
/* Read that: .files, and the settings that are not given.  One that is given, is fixed
 * and has another value is ERR_USAGE. */
MUST_CHECK int train_dir_read(struct train *t, struct err *err);

void train_settings_print(struct str *out, const struct train *t);
/* The state as a manifest has it, and back. */
char *train_state_dup(const struct train *t, const struct train_state *s,
                      double eval_loss);
MUST_CHECK int train_state_read(struct train *t, const struct checkpoint *c,
                                struct err *err);

/* ---- trainlog.c ---- */

struct train_log {
    const struct train *t;
    int fd[2];            /* of the run, and of --log; -1: none */
    double begun, worked; /* seconds: when the run began, and of its steps */
    uint64_t tokens;      /* of these */
    bool shown;           /* a line of progress is on the terminal */
    bool progress, lines; /* it is to be; plain lines are printed */
    uint64_t first;       /* step that this process began with */
    double loss_sum;      /* of its steps */
    struct train_state state;
    double loss, eval_loss; /* the last; NaN: none */
    uint64_t memory;        /* bytes of the rank with the most */
    double flops, peak;     /* of these steps; that all ranks can make a second */
};

struct train_told {
    struct trainer_result result;
    double rate, seconds;
    double flops;       /* of the step, forwards and back, counted once */
    uint64_t tokens;    /* of it */
    const uint64_t *id; /* [global] of samples; or NULL */
};

MUST_CHECK int train_log_open(struct train_log *l, const struct train *t,
                              struct err *err);
void train_log_close(struct train_log *l);
MUST_CHECK int train_log_step(struct train_log *l, const struct train_told *s,
                              struct err *err);
MUST_CHECK int train_log_eval(struct train_log *l, double loss, double seconds,
                              struct err *err);
/* CHECKPOINT is the last one, or NULL. */
MUST_CHECK int train_log_end(struct train_log *l, const char *checkpoint,
                             struct err *err);

/* ---- trainrank.c ---- */

int train_rank(void *arg, struct comm *world, struct err *err);

#endif
