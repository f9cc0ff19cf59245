/* train - shared by the parts of 'tp-run train'
 *
 * train.c reads options, traindir.c manages the run's directory and trainsteps.c the
 * checkpoints in it, trainloss.c finds the loss, trainrank.c is the main function of a
 * rank, trainlog.c writes logs and reports, and traintime.c timelines. */
#ifndef CMD_TP_RUN_TRAIN_H
#define CMD_TP_RUN_TRAIN_H

#include "cmd/tp-run/session.h"
#include "lib/pipe/passtimes.h"
#include "lib/program/recompute.h"
#include "lib/train/losses.h"
#include "lib/train/verdict.h"
#include "lib/train/save.h"
#include "lib/train/schedule.h"

enum { SAVE_AT_END = INT32_MAX }; /* value of save_every: one checkpoint, at the end */

struct train_options {
    int steps, global, micro, warmup, eval_every, save_every;
    uint64_t seed, seq;
    double dropout; /* negative: the config's */
    double lr, momentum, decay, beta1, beta2, eps, clip, eval_fraction, spikes;
    int schedule, optimizer, pack, order;
    double adamw_lr;              /* Muon: for what is no matrix; -1: as for these */
    int adjust_lr;                /* enum muon_adjust */
    int decays;                   /* enum decay_kind */
    bool relative, warms, scaled; /* Adafactor, as in optimizer_options */
    double clip_threshold, decay_rate;
    int width;               /* enum token_width */
    int loss;                /* 0: that of the model's head; else enum loss_kind + 1 */
    double mask_probability; /* of a token, where masked ones are learned */
    int mask_id;             /* negative: the tokenizer's */
    struct loss_numbers numbers; /* beta negative: that of the loss; clip_high:
                                  * clip_low */
    bool unscaled;               /* as in data_options */
    struct schedule_options rates;
    struct trainer_terms terms;
    uint64_t vocab;   /* tokens of the model, if it gets more; else 0 */
    bool vocab_zero;  /* whose rows are 0 at first */
    bool last_answer; /* of chats, the last answer alone is learned */
    bool drop_last; /* no step has fewer samples: one that begins in an epoch may end in
                     * the next */
    bool deterministic;
    struct recompute_plan recompute;
    bool sequence;  /* --sequence-parallel */
    int zero;       /* stage of ZeRO */
    int hsdp;       /* replicas that share by it; 0: all */
    int offload;    /* 1: the optimizer's state */
    bool init;      /* initialize weights at random */
    int keep;       /* number of newest checkpoints to keep; 0: all */
    bool keep_best; /* and the one with the lowest evaluation loss */
    bool log_samples;
    double stop_after; /* seconds; 0: never */
    const char *lora;  /* RANK[:NAMES] of an adapter that is trained; or NULL */
    const char *saved; /* modules that are trained with it; or NULL */
    double lora_alpha, lora_dropout;
    bool rslora, dora;
    const char *freeze, *only; /* names of what is not trained; of all that is */
    int frozen;                /* enum weights_form of matrices that are not trained */
    int compute;               /* enum session_compute */
    int master;     /* 1: matrices that products read are kept in bf16 alone */
    int early_stop; /* evaluations without gain that end the run; 0: any number */
};

enum { SETTING_ADDED = 2, SETTING_TURNED, SETTING_LATER };

/* An option that is stored in the run's directory. */
struct setting {
    enum {
        SETTING_INT,
        SETTING_COUNT, /* an int of at least 1 */
        SETTING_U64,
        SETTING_DOUBLE,  /* at least 0 */
        SETTING_SHARE,   /* at least 0, less than 1 */
        SETTING_DROPOUT, /* the same; or -1, which cannot be given: the config's */
        SETTING_MAYBE,   /* at least 0; or -1, which cannot be given: a default */
        SETTING_SPIKES,  /* 0, or above 1 */
        SETTING_CHOICE,
        SETTING_TEXT, /* a const char *; not given: NULL, which is "" in its file */
        SETTING_FLAG  /* 0 or 1 in its file */
    } kind;
    const char *option; /* on the command line; '-' becomes '_' in its key */
    void *value;
    const char *const *choices;
    bool given; /* on the command line */
    int fixed;  /* 1: may not change when a run is resumed; SETTING_ADDED: nor that, and
                 * older runs lack it, which had the default, or with SETTING_TURNED the
                 * flag; SETTING_LATER: may change, and older runs lack it: */
    char *usual; /* that, as in run.json; NULL for others */
    char *text;  /* of SETTING_TEXT, as read; or NULL */
};

/* Notes what the N settings at S have before options are read. */
void train_settings_note(struct setting *s, size_t n);
void train_settings_clear(struct setting *s, size_t n);

/* The schedule that O describes. */
struct schedule train_schedule(const struct train_options *o);

/* What the value of S must be, if it is not; else NULL. */
const char *train_setting_fault(const struct setting *s);

/* Progress of a run; everything else follows from the step. */
struct train_state {
    struct schedule_state rates;
    uint64_t step, updates, tokens;
    uint64_t samples; /* that its steps have taken: index of the next */
    double eval_loss; /* of the evaluation after this step; NaN: none */
    double norm;      /* mean of recent gradient norms; 0: none yet */
    double best;      /* lowest evaluation loss of a saved step, and that step */
    uint64_t best_step;
    struct scaler scaler; /* of --compute f16 */
    double lowest;        /* evaluation loss of all, */
    uint64_t stale;       /* and the evaluations since */
};

/* Files, by name and contents. */
struct train_list {
    struct train_file {
        char *path;
        uint64_t size;
        uint32_t crc;
        uint64_t vocab; /* all ids are known to be below; 0: not known */
        double weight;  /* in a mixture; 0: it is none */
    } * v;
    size_t n;
};

/* The files that a run was started with. */
struct train_files {
    char *model;
    struct train_list data, eval;
    struct train_list weights; /* of the model, and its config */
};

/* What a directory had when it was looked at. */
struct train_look {
    bool is_dir, is_run; /* it is there; it has a run's file of settings */
    uint32_t crc;        /* of that file */
    char *newest;        /* path of the newest complete checkpoint, or NULL */
};

struct train {
    struct session *session;
    struct train_options o;
    struct setting *setting;
    size_t nsettings;
    const struct action_table *table;    /* of the pipeline's actions */
    struct mesh staged;                  /* the session's, with a rank for each stage */
    struct data *data, *eval;            /* eval: --eval-data, or NULL */
    uint64_t held;                       /* number of samples for evaluation */
    char *dir;                           /* of the run; NULL: nothing is saved */
    const char *log;                     /* --log, or NULL */
    const char *metrics, *tensorboard;   /* --metrics, --tensorboard, or NULL */
    int log_every;                       /* steps between two plain lines */
    struct opt_list timeline;            /* files of --timeline */
    const char *command;                 /* as given */
    const char *report, *result, *trace; /* hpo-sweep's files, or NULL */
    int lock;                 /* the run's directory, open and locked; -1: none */
    struct train_look look;   /* the directory before it was locked */
    struct train_files files; /* files that the run reads */
    char *cursors; /* of the sources of a mixture, in the checkpoint; or NULL */
    bool resumed;
    int optimizer_before; /* of the run that is read, */
    bool relative_before; /* and --relative-step */
    bool forked;          /* begins with the whole state of another run's checkpoint */
    bool foreign;         /* it began with a checkpoint of another trainer, */
    double checkpoint_rate;         /* which had this rate next */
    int steps_before, micro_before; /* --steps and --micro-batch of the run before it
                                     * was resumed; 0: not known */
    bool replaces;                  /* an existing run is removed */
    enum loss_kind loss;
    struct train_state state; /* initial state */
};

/* ---- trainloss.c ---- */

/* Sets T->loss: that of --loss, or of the model's head. */
MUST_CHECK int train_loss_find(struct train *t, struct err *err);
/* The numbers of T's loss: those that are not given are usual with it. */
struct loss_numbers train_loss_numbers(const struct train *t);
/* Sets in O, which has a vocabulary, what the labels of T's loss need; released with
 * train_loss_clear, also after a failure. */
MUST_CHECK int train_loss_labels(struct data_options *o, const struct train *t,
                                 struct err *err);
void train_loss_clear(struct data_options *o);
/* The same of the names of classes alone, where the loss has classes. */
void train_loss_classes(struct data_options *o, const struct train *t);
/* Tokens of the longest source of T's samples. */
size_t train_source_most(const struct train *t);
/* The most documents of a sample with labels; or 0. */
size_t train_documents_most(const struct train *t);

/* ---- trainfrom.c ---- */

/* Takes the place in the training from the checkpoint of another trainer that T has
 * opened and, of a run that begins ANEW, the settings that are not given.  ERR_NO when
 * its optimizer has what this one has not. */
MUST_CHECK int train_from_take(struct train *t, bool anew, struct err *err);
/* Sets its place in the data, once the size of a batch is known. */
void train_from_place(struct train *t);

/* ---- traindir.c ---- */

/* Creates DIR if necessary and locks it until *fd is closed.  ERR_LOCKED when another
 * run uses it; then *fd is untouched. */
MUST_CHECK int train_dir_lock(int *fd, const char *dir, struct err *err);
/* Looks at DIR, which need not exist. */
MUST_CHECK int train_dir_look(struct train_look *look, const char *dir,
                              struct err *err);
void train_look_clear(struct train_look *look);
/* Looks again, once DIR is locked: ERR_LOCKED when it has another run, or another
 * newest checkpoint, than BEFORE. */
MUST_CHECK int train_dir_check(const struct train_look *before, const char *dir,
                               struct err *err);
/* ---- trainsteps.c ---- */

/* The path of the newest complete checkpoint, or NULL when DIR has none; the caller
 * frees it. */
MUST_CHECK int train_newest(char **path, const char *dir, struct err *err);
/* The newest complete checkpoint of DIR, as train_newest, that is also undamaged: all
 * of its files are read.  *damaged becomes the number of damaged ones that are newer,
 * and *why the fault of the newest of them, which the caller frees; ERR_INPUT when all
 * are damaged. */
MUST_CHECK int train_newest_whole(char **path, size_t *damaged, char **why,
                                  const char *dir, int threads, struct err *err);
/* Removes what an interrupted run left of checkpoints; all complete checkpoints. */
MUST_CHECK int train_steps_clean(const char *dir, struct err *err);
MUST_CHECK int train_steps_remove(const char *dir, struct err *err);
/* Renames checkpoints beyond STEP, which are damaged, to NAME.damaged. */
MUST_CHECK int train_steps_retire(const char *dir, uint64_t step, struct err *err);
/* Removes all checkpoints except the newest KEEP and step BEST (0: none). */
MUST_CHECK int train_dir_prune(const char *dir, int keep, uint64_t best,
                               struct err *err);

/* ---- traindir.c: files and settings ---- */

/* "-" is standard input, which can be read once more afterwards. */
MUST_CHECK int train_files_add(struct train_list *list, const char *path,
                               struct err *err);
/* ERR_USAGE unless the files GIVEN by OPTION, or those of LIST's names if none is
 * given, have the contents that LIST says. */
MUST_CHECK int train_files_compare(const struct train_list *list,
                                   const struct opt_list *given, const char *option,
                                   struct err *err);
void train_list_clear(struct train_list *list);
void train_files_clear(struct train_files *f);

/* Fills .files.weights from the open model. */
MUST_CHECK int train_files_note(struct train *t, struct err *err);

/* Prepares T's directory for a run that begins or resumes: removes what it replaces and
 * what an interrupted run left unfinished, and writes run.json. */
MUST_CHECK int train_dir_begin(struct train *t, struct err *err);
/* Reads run.json: .files, .forked, and the settings that are not given.  ERR_USAGE when
 * a fixed setting is given with another value. */
MUST_CHECK int train_dir_read(struct train *t, struct err *err);
/* Reads the run.json of DIR, another run: the files of data, and the settings that are
 * not given. */
MUST_CHECK int train_dir_fork(struct train *t, const char *dir, struct err *err);

/* The loss of the last step in the log of the run in DIR; NaN: it has none. */
MUST_CHECK int train_dir_last_loss(double *loss, const char *dir, struct err *err);

void train_settings_print(struct str *out, const struct train *t);
/* Converts the state to the JSON of a manifest, and back. */
char *train_state_dup(const struct train *t, const struct train_state *s);
/* TEXT is the manifest's, or NULL; PATH has it. */
MUST_CHECK int train_state_read(struct train *t, const char *text, const char *path,
                                struct err *err);

/* ---- trainmix.c ---- */

/* Takes the weight off each of the names GIVEN by --data, such as 0.7:a.jsonl, to
 * *WEIGHT [n], which the caller frees; 0 where there is none. */
MUST_CHECK int train_mix_split(struct opt_list *given, double **weight,
                               struct err *err);
/* Notes the weights of the files of LIST, [N] as they were given, if they were.
 * ERR_USAGE where a run that goes on has others. */
MUST_CHECK int train_mix_note(struct train_list *list, const double *weight, size_t n,
                              bool continues, struct err *err);
/* Where the sources of D are after SAMPLES samples, as JSON. */
char *train_mix_cursors_dup(struct data *d, uint64_t samples);
/* ERR_INPUT unless the checkpoint that T goes on from has its sources where its data
 * has them. */
MUST_CHECK int train_mix_check(const struct train *t, struct err *err);

/* ---- trainlog.c ---- */

struct train_log {
    const struct train *t;
    int fd[2];            /* of the run, and of --log; -1: none */
    double begun, worked; /* seconds: start time of the run; time spent in steps */
    uint64_t tokens;      /* tokens of these steps */
    bool shown;           /* a progress line is on the terminal, */
    double drawn;         /* since then */
    bool progress, lines; /* whether to print progress; plain lines */
    uint64_t first;       /* first step of this process, */
    uint64_t samples;     /* and its first sample */
    double loss_sum;      /* sum over its steps that have a loss, */
    uint64_t losses;      /* so many */
    struct train_state state;
    double loss, eval_loss, norm, rate; /* last values; NaN: none */
    double accuracy, f1;                /* of the last evaluation, too */
    uint64_t skipped;                   /* steps of this process */
    int events;                         /* TensorBoard's file, or -1; */
    bool no_events, no_metrics;         /* it, or --metrics, could not be written */
    double measured;                    /* when --metrics was written */
    uint64_t memory;                    /* of the rank with the most */
    double flops, peak; /* of these steps; per second at most, over all ranks */
};

struct train_told {
    struct trainer_result result;
    double rate, seconds;
    double flops;         /* forward and backward, each counted once */
    uint64_t tokens;      /* of the step */
    size_t samples;       /* number of them */
    const uint64_t *id;   /* [samples]; or NULL */
    const size_t *source; /* [samples], of a mixture */
};

MUST_CHECK int train_log_open(struct train_log *l, const struct train *t,
                              struct err *err);
void train_log_close(struct train_log *l);
/* Tells hpo-sweep, if it asks, of the newest whole checkpoint. */
MUST_CHECK int train_log_checkpoint(const struct train *t, const char *path,
                                    struct err *err);
/* Tells of a run that was finished before this process: what train_log_end tells, but
 * not to the run's log nor to --log. */
MUST_CHECK int train_log_finished(const struct train *t, const char *checkpoint,
                                  struct err *err);
/* The first line of this process: model, layout, BACKEND, command. */
MUST_CHECK int train_log_start(struct train_log *l, const char *backend,
                               struct err *err);
/* Syncs the run's log: a checkpoint that is about to appear goes on with its lines. */
MUST_CHECK int train_log_sync(const struct train_log *l, struct err *err);
MUST_CHECK int train_log_step(struct train_log *l, const struct train_told *s,
                              struct err *err);
MUST_CHECK int train_log_eval(struct train_log *l, double loss,
                              const struct verdict *metrics, double seconds,
                              struct err *err);
/* CHECKPOINT is the path of the last one, or NULL. */
MUST_CHECK int train_log_end(struct train_log *l, const char *checkpoint,
                             struct err *err);

/* ---- traintime.c ---- */

/* What the passes of the shortest step took, but for the first, unless it is alone. */
struct train_times {
    struct action_table table;
    struct passtimes measured;
    uint64_t step;  /* its number, */
    double seconds; /* and what all of it took */
    uint64_t steps; /* that were seen; 0: there is none of these */
};
/* ERR_USAGE unless PATHS end as the files of --timeline do. */
MUST_CHECK int train_times_check(const struct opt_list *paths, struct err *err);
/* T, which was measured, is of STEP, which took SECONDS. */
void train_times_see(struct train_times *b, const struct action_table *t, uint64_t step,
                     double seconds);
void train_times_clear(struct train_times *b);
/* Logs what was seen, if anything; writes the files of --timeline, if it was given. */
MUST_CHECK int train_times_log(struct train_log *l, const struct train_times *b,
                               struct err *err);
MUST_CHECK int train_times_write(const struct train *t, const struct train_times *b,
                                 struct err *err);
/* Logs B and what a simulation takes; TEXT says so, in a line. */
MUST_CHECK int train_log_timeline(struct train_log *l, const struct train_times *b,
                                  double simulated, const char *text, struct err *err);

/* ---- trainshow.c: one line of a terminal ---- */

void train_show_step(struct train_log *l, double rate);
/* WHAT is being done, unless PROGRESS is false; SHARE of it, unless it is below 0. */
void train_show_doing(bool progress, const char *what, double share);
void train_show_none(bool progress);

/* ---- trainexport.c ---- */

/* Begins an event file, if one is asked for. */
MUST_CHECK int train_export_open(struct train_log *l, struct err *err);
void train_export_close(struct train_log *l);
void train_export_step(struct train_log *l);
void train_export_eval(struct train_log *l);
void train_export_end(struct train_log *l);

/* ---- trainrank.c ---- */

/* Has T, in STATE, no step left: all are done, or evaluations no longer gain? */
bool train_is_done(const struct train *t, const struct train_state *state);
int train_rank(void *arg, struct comm *world, struct err *err);

#endif
