/* train - trains a model: options, and checks before the first step */
#include "cmd/tp-run/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cmd/conversion.h"
#include "cmd/picture.h"
#include "cmd/tp-run/commands.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/locate.h"
#include "lib/estimate/memory.h"
#include "lib/estimate/reversed.h"
#include "lib/pipe/csv.h"
#include "lib/program/pass-reverse.h"
#include "lib/run/adapter.h"
#include "lib/model/frozen.h"

enum { MOST_TABLE = 1 << 26 };

static const char *const compute_names[] = {
    [COMPUTE_F32] = "f32", [COMPUTE_BF16] = "bf16", [COMPUTE_F16] = "f16", NULL
};

static const double usual_momentum = 0.9, usual_beta2 = 0.999;

/* Options that are stored in the run's directory, in the order of run.json:
 * SETTING(ID, type of the option, kind of the setting, name, member of train_options,
 * its word in --help, choices or NULL, fixed as in struct setting). */
/* clang-format off */
#define SETTINGS_LIST(SETTING)                                                         \
    SETTING(STEPS, COUNT, INT, "steps", steps, "N", NULL, false)                       \
    SETTING(LR, DOUBLE, DOUBLE, "lr", lr, "RATE", NULL, true)                          \
    SETTING(SCHEDULE, CHOICE, CHOICE, "lr-schedule", schedule, "NAME", schedule_names, \
            true)                                                                      \
    SETTING(WARMUP, INT, INT, "warmup", warmup, "N", NULL, true)                       \
    SETTING(OPTIMIZER, CHOICE, CHOICE, "optimizer", optimizer, "NAME",                 \
            optimizer_names, SETTING_ADDED)                                            \
    SETTING(MOMENTUM, DOUBLE, SHARE, "momentum", momentum, "X", NULL, SETTING_ADDED)   \
    SETTING(ADAMW_LR, DOUBLE, MAYBE, "adamw-lr", adamw_lr, "RATE", NULL,               \
            SETTING_ADDED)                                                             \
    SETTING(ADJUST_LR, CHOICE, CHOICE, "adjust-lr", adjust_lr, "HOW", muon_adjusts,    \
            SETTING_ADDED)                                                             \
    SETTING(RELATIVE, FLAG, FLAG, "relative-step", relative, NULL, NULL,               \
            SETTING_ADDED)                                                             \
    SETTING(WARMUP_INIT, FLAG, FLAG, "warmup-init", warms, NULL, NULL, SETTING_ADDED)  \
    SETTING(SCALED, FLAG, FLAG, "scale-parameter", scaled, NULL, NULL, SETTING_ADDED)  \
    SETTING(CLIP_THRESHOLD, DOUBLE, DOUBLE, "clip-threshold", clip_threshold, "X",     \
            NULL, SETTING_ADDED)                                                       \
    SETTING(DECAY_RATE, DOUBLE, DOUBLE, "decay-rate", decay_rate, "X", NULL,           \
            SETTING_ADDED)                                                             \
    SETTING(DECAY, DOUBLE, DOUBLE, "weight-decay", decay, "X", NULL, true)             \
    SETTING(DECAYS, CHOICE, CHOICE, "decays", decays, "WHICH", decay_names,            \
            SETTING_ADDED)                                                             \
    SETTING(BETA1, DOUBLE, SHARE, "beta1", beta1, "X", NULL, true)                     \
    SETTING(BETA2, DOUBLE, SHARE, "beta2", beta2, "X", NULL, true)                     \
    SETTING(EPS, DOUBLE, DOUBLE, "eps", eps, "X", NULL, true)                          \
    SETTING(CLIP, DOUBLE, DOUBLE, "clip", clip, "X", NULL, true)                       \
    SETTING(DROPOUT, DOUBLE, DROPOUT, "dropout", dropout, "X", NULL, true)             \
    SETTING(GLOBAL, COUNT, COUNT, "global-batch", global, "N", NULL, true)             \
    SETTING(MICRO, COUNT, COUNT, "micro-batch", micro, "N", NULL, false)               \
    SETTING(SEQ, TOKENS, U64, "seq", seq, "N", NULL, true)                             \
    SETTING(SEED, U64, U64, "seed", seed, "N", NULL, true)                             \
    SETTING(PACK, CHOICE, CHOICE, "pack", pack, "HOW", data_pack_names, true)          \
    SETTING(ORDER, CHOICE, CHOICE, "order", order, "HOW", data_order_names, true)      \
    SETTING(FRACTION, DOUBLE, SHARE, "eval-fraction", eval_fraction, "X", NULL, true)  \
    SETTING(EVAL, COUNT, INT, "eval-every", eval_every, "N", NULL, false)              \
    SETTING(SAVE, INT, INT, "save-every", save_every, "N", NULL, false)                \
    SETTING(SPIKES, DOUBLE, SPIKES, "skip-spikes", spikes, "X", NULL, false)           \
    SETTING(INIT, FLAG, FLAG, "init", init, NULL, NULL, true)                          \
    SETTING(WIDTH, CHOICE, CHOICE, "ids-type", width, "TYPE", token_width_names,       \
            SETTING_ADDED)                                                             \
    SETTING(DROP_LAST, FLAG, FLAG, "drop-last", drop_last, NULL, NULL, SETTING_TURNED) \
    SETTING(MIN_LR, DOUBLE, MAYBE, "min-lr", rates.least, "RATE", NULL, SETTING_ADDED) \
    SETTING(MIN_RATIO, DOUBLE, MAYBE, "min-lr-ratio", rates.least_ratio, "X", NULL,    \
            SETTING_ADDED)                                                             \
    SETTING(MAX_LR, DOUBLE, MAYBE, "max-lr", rates.most, "RATE", NULL, SETTING_ADDED)  \
    SETTING(POWER, DOUBLE, MAYBE, "power", rates.power, "X", NULL, SETTING_ADDED)      \
    SETTING(CYCLES, DOUBLE, MAYBE, "cycles", rates.cycles, "X", NULL, SETTING_ADDED)   \
    SETTING(WARMUP_RATIO, DOUBLE, MAYBE, "warmup-lr-ratio", rates.warmup_ratio, "X",   \
            NULL, SETTING_ADDED)                                                       \
    SETTING(WARMUP_TYPE, CHOICE, CHOICE, "warmup-type", rates.warmup_curve, "CURVE",   \
            schedule_curve_names, SETTING_ADDED)                                       \
    SETTING(DECAY_TYPE, CHOICE, CHOICE, "decay-type", rates.decay_curve, "CURVE",      \
            schedule_curve_names, SETTING_ADDED)                                       \
    SETTING(DECAY_STEPS, INT, INT, "decay-steps", rates.decay_steps, "N", NULL,        \
            SETTING_ADDED)                                                             \
    SETTING(FACTOR, DOUBLE, MAYBE, "factor", rates.factor, "X", NULL, SETTING_ADDED)   \
    SETTING(THRESHOLD, DOUBLE, MAYBE, "threshold", rates.threshold, "X", NULL,         \
            SETTING_ADDED)                                                             \
    SETTING(PATIENCE, INT, INT, "patience", rates.patience, "N", NULL, SETTING_ADDED)  \
    SETTING(COOLDOWN, INT, INT, "cooldown", rates.cooldown, "N", NULL, SETTING_ADDED)  \
    SETTING(LAST_ANSWER, FLAG, FLAG, "last-answer", last_answer, NULL, NULL,           \
            SETTING_ADDED)                                                             \
    SETTING(BALANCE, DOUBLE, MAYBE, "balance-loss", terms.balance, "C", NULL,          \
            SETTING_ADDED)                                                             \
    SETTING(BALANCE_SUM, FLAG, FLAG, "balance-sum", terms.balance_sum, NULL, NULL,     \
            SETTING_ADDED)                                                             \
    SETTING(ROUTER_Z, DOUBLE, DOUBLE, "router-z-loss", terms.router_z, "C", NULL,      \
            SETTING_ADDED)                                                             \
    SETTING(BIAS_SPEED, DOUBLE, DOUBLE, "bias-update-speed", terms.bias_speed, "U",    \
            NULL, SETTING_ADDED)                                                       \
    SETTING(SMOOTH, DOUBLE, SHARE, "label-smoothing", terms.smooth, "X", NULL,         \
            SETTING_ADDED)                                                             \
    SETTING(Z_LOSS, DOUBLE, DOUBLE, "z-loss", terms.z, "C", NULL, SETTING_ADDED)       \
    SETTING(EMA, DOUBLE, SHARE, "ema", terms.average, "D", NULL, SETTING_ADDED)        \
    SETTING(RESIZE, U64, U64, "resize-vocab", vocab, "N", NULL, SETTING_ADDED)         \
    SETTING(RESIZE_ZERO, FLAG, FLAG, "resize-zero", vocab_zero, NULL, NULL,            \
            SETTING_ADDED)                                                             \
    SETTING(EARLY, INT, INT, "early-stop", early_stop, "N", NULL, SETTING_LATER)       \
    SETTING(LORA, STRING, TEXT, "lora", lora, "RANK[:NAMES]", NULL, SETTING_ADDED)     \
    SETTING(ALPHA, DOUBLE, DOUBLE, "lora-alpha", lora_alpha, "X", NULL, SETTING_ADDED) \
    SETTING(LORA_DROPOUT, DOUBLE, SHARE, "lora-dropout", lora_dropout, "X", NULL,      \
            SETTING_ADDED)                                                             \
    SETTING(RSLORA, FLAG, FLAG, "rslora", rslora, NULL, NULL, SETTING_ADDED)           \
    SETTING(DORA, FLAG, FLAG, "dora", dora, NULL, NULL, SETTING_ADDED)                 \
    SETTING(SAVED, STRING, TEXT, "modules-to-save", saved, "NAMES", NULL,              \
            SETTING_ADDED)                                                             \
    SETTING(FREEZE, STRING, TEXT, "freeze", freeze, "NAMES", NULL, SETTING_ADDED)      \
    SETTING(ONLY, STRING, TEXT, "train-only", only, "NAMES", NULL, SETTING_ADDED)      \
    SETTING(WEIGHTS, CHOICE, CHOICE, "weights", frozen, "TYPE", session_weights_names, \
            SETTING_ADDED)                                                             \
    SETTING(LOSS, CHOICE, CHOICE, "loss", loss, "NAME", loss_choices, SETTING_ADDED)   \
    SETTING(MASKED, DOUBLE, SHARE, "mask-probability", mask_probability, "P", NULL,    \
            SETTING_ADDED)                                                             \
    SETTING(MASK_ID, INT, INT, "mask-id", mask_id, "ID", NULL, SETTING_ADDED)          \
    SETTING(LOSS_BETA, DOUBLE, MAYBE, "loss-beta", numbers.beta, "X", NULL,            \
            SETTING_ADDED)                                                             \
    SETTING(DPO_SMOOTHING, DOUBLE, SHARE, "dpo-smoothing", numbers.smoothing, "X",     \
            NULL, SETTING_ADDED)                                                       \
    SETTING(KTO_GOOD, DOUBLE, DOUBLE, "kto-desirable", numbers.good, "X", NULL,        \
            SETTING_ADDED)                                                             \
    SETTING(KTO_BAD, DOUBLE, DOUBLE, "kto-undesirable", numbers.bad, "X", NULL,        \
            SETTING_ADDED)                                                             \
    SETTING(CLIP_LOW, DOUBLE, SHARE, "policy-clip", numbers.clip_low, "X", NULL,       \
            SETTING_ADDED)                                                             \
    SETTING(CLIP_HIGH, DOUBLE, MAYBE, "policy-clip-high", numbers.clip_high, "X",      \
            NULL, SETTING_ADDED)                                                       \
    SETTING(BY_TEXT, FLAG, FLAG, "policy-mean-text", numbers.by_text, NULL, NULL,      \
            SETTING_ADDED)                                                             \
    SETTING(UNSCALED, FLAG, FLAG, "policy-no-scale", unscaled, NULL, NULL,             \
            SETTING_ADDED)                                                             \
    SETTING(TEMPERATURE, DOUBLE, DOUBLE, "distill-temperature", numbers.temperature,   \
            "T", NULL, SETTING_ADDED)                                                  \
    SETTING(HARD, DOUBLE, SHARE, "distill-hard", numbers.hard, "X", NULL,              \
            SETTING_ADDED)                                                             \
    SETTING(COMPUTE, CHOICE, CHOICE, "compute", compute, "TYPE", compute_names,        \
            SETTING_ADDED)                                                             \
    SETTING(MASTER, CHOICE, CHOICE, "master", master, "f32|none",                      \
            optimizer_masters, SETTING_ADDED)
/* clang-format on */

#define SETTING(id, ...) S_##id,
enum { SETTINGS_LIST(SETTING) SETTINGS };
#undef SETTING

/* The command line except for settings. */
struct request {
    struct train t;
    struct opt_list data, eval;
    double *weight; /* [data.n]: of a mixture; 0: it is none */
    const char *keep, *stop_after, *pipeline, *recompute;
    bool resume, force, dry;
    double epochs;     /* --epochs; 0: not given */
    int micro_batches; /* of a replica; 0: not given */
    bool continues;    /* the run's directory has a run, which is resumed */
    bool same_model;   /* a run is resumed with the model that it was begun with */
    struct action_table table;
    bool has_table; /* it is of a file; else of the order PIPELINE: */
    enum order order;
    int chunks;          /* stages of a rank; 0: the order's */
    const char *model;   /* the model to open */
    char *located;       /* the directory of the model, or of the next two */
    const char *weights; /* --weights-from, or NULL */
    const char *fork;    /* --fork, or NULL */
    const char *from;    /* --resume-from, or NULL */
    char *newest;        /* the checkpoint that is gone on from, or NULL; */
    size_t damaged;      /* number of newer ones, which are damaged, */
    char *damage;        /* and the fault of the newest of them */
};

/* ---- options parsed here ---- */

static int parse_words(struct request *r, struct err *err)
{
    struct train_options *o = &r->t.o;

    if (r->epochs > 0 && r->t.setting[S_STEPS].given)
        return err_set(err, ERR_USAGE,
                       "--epochs and --steps: one of them says how long to train");
    if (r->recompute && recompute_parse(&o->recompute, r->recompute, err) < 0)
        return -1;
    if (o->zero < 0 || o->zero > 3)
        return err_set(err, ERR_USAGE, "--zero %d: no stage from 0 to 3", o->zero);
    if (o->hsdp && !o->zero)
        return err_set(err, ERR_USAGE, "--hsdp %d: nothing is shared without --zero",
                       o->hsdp);
    if (r->stop_after &&
        (!str_duration(r->stop_after, &o->stop_after) || o->stop_after <= 0))
        return err_set(err, ERR_USAGE,
                       "--stop-after: expected a time such as 3h50m, not '%s'",
                       r->stop_after);
    if (r->keep && !strcmp(r->keep, "best"))
        o->keep_best = true;
    else if (r->keep && (!str_int(r->keep, &o->keep) || o->keep < 1))
        return err_set(err, ERR_USAGE,
                       "--keep: expected a number from 1 or best, not '%s'", r->keep);
    return 0;
}

/* --pipeline is no schedule that there is, nor a file. */
static int refuse_pipeline(const struct request *r, struct err *err)
{
    struct str known = { 0 };

    for (int i = 0; i < ORDERS; i++)
        if (i != ORDER_DUALPIPE)
            str_addf(&known, "%s, ", order_names[i]);
    err_set(err, ERR_USAGE, "--pipeline: expected %sor a file, not '%s'",
            str_text(&known), r->pipeline);
    str_clear(&known);
    return -1;
}

/* Parses the name of a schedule, or a file of actions. */
static int parse_pipeline(struct request *r, struct err *err)
{
    char *text = NULL;
    bool found;
    size_t n;
    int ret;

    r->order = r->chunks > 1 ? ORDER_INTERLEAVED : ORDER_1F1B;
    if (!r->pipeline)
        return 0;
    for (int i = 0; i < ORDERS; i++)
        if (!strcasecmp(r->pipeline, order_names[i])) {
            r->order = (enum order)i;
            return i != ORDER_DUALPIPE
                       ? 0
                       : err_set(err, ERR_USAGE,
                                 "--pipeline %s: keeps two copies of the model; "
                                 "%s has one",
                                 order_names[i], order_names[ORDER_DUALPIPE_V]);
        }
    if (fs_find(&found, r->pipeline, err) < 0)
        return -1;
    if (!found)
        return refuse_pipeline(r, err);
    if (r->chunks)
        return err_set(err, ERR_USAGE,
                       "--model-chunks %d: not with a file, which says "
                       "what stages a rank has",
                       r->chunks);
    if (fs_read_regular(&text, &n, r->pipeline, MOST_TABLE, err) < 0)
        return -1;
    ret = csv_parse(&r->table, r->pipeline, text, n, err);
    free(text);
    r->has_table = ret == 0;
    return ret;
}

/* Finds the stages of the session's ranks. */
static int find_stages(struct request *r, struct err *err)
{
    const struct session *s = r->t.session;
    const int64_t chunks = r->chunks ? r->chunks : order_chunks(r->order);
    const int64_t stages =
        r->has_table ? r->table.stages : s->mesh.size[MESH_PP] * chunks;
    struct err why;

    if (stages > INT32_MAX)
        return err_set(err, ERR_USAGE, "--model-chunks %d: too many", r->chunks);
    if (trainer_staged(&r->t.staged, &s->mesh, s->checkpoint, (int)stages, err) < 0)
        return -1;
    if (stages == s->mesh.size[MESH_PP] ||
        model_check_mesh(s->checkpoint->model, &r->t.staged, &why) == 0)
        return 0;
    return err_set(err, ERR_USAGE, "%s: %d stages: %s",
                   r->pipeline ? r->pipeline : order_names[r->order], (int)stages,
                   why.text);
}

/* The ranks that have samples of their own. */
static int replicas_of(const struct session *s)
{
    return s->mesh.size[MESH_DP] * s->mesh.size[MESH_EP];
}

/* Makes the table of actions of a replica. */
static int make_table(struct request *r, struct err *err)
{
    const struct train_options *o = &r->t.o;
    const int pp = r->t.session->mesh.size[MESH_PP];
    const int share = o->global / (o->micro * replicas_of(r->t.session));

    if (!r->has_table &&
        order_make(&r->table, r->order, pp, share,
                   r->chunks ? r->chunks : order_chunks(r->order), err) < 0)
        return -1;
    r->t.table = &r->table;
    return trainer_check_table(&r->table, pp, share, err) < 0
               ? err_prefix(err, "%s",
                            r->pipeline ? r->pipeline : order_names[r->order])
               : 0;
}

static int check_numbers(const struct request *r, struct err *err)
{
    const struct train_options *o = &r->t.o;

    for (size_t i = 0; i < r->t.nsettings; i++) {
        const struct setting *s = &r->t.setting[i];
        const char *fault = train_setting_fault(s);

        if (fault)
            return err_set(err, ERR_USAGE, "--%s %g: %s", s->option,
                           *(const double *)s->value, fault);
    }
    if (r->eval.n && o->eval_fraction > 0)
        return err_set(err, ERR_USAGE,
                       "--eval-data and --eval-fraction: one of them says what is "
                       "evaluated");
    for (size_t i = 0; i < r->t.nsettings && !r->continues; i++)
        if (r->t.setting[i].given &&
            !schedule_takes((enum schedule_kind)o->schedule, r->t.setting[i].option))
            return err_set(err, ERR_USAGE, "--%s: --lr-schedule %s has none",
                           r->t.setting[i].option, schedule_names[o->schedule]);
    if (schedule_follows((enum schedule_kind)o->schedule) && !o->eval_every)
        return err_set(err, ERR_USAGE,
                       "--lr-schedule %s: follows evaluations: give --eval-every",
                       schedule_names[o->schedule]);
    if (o->early_stop && !o->eval_every)
        return err_set(err, ERR_USAGE,
                       "--early-stop: counts evaluations: give --eval-every");
    if (o->eval_every && !r->eval.n && !r->t.files.eval.n && !(o->eval_fraction > 0))
        return err_set(err, ERR_USAGE,
                       "--eval-every: give --eval-data or --eval-fraction as well");
    if (o->keep_best && !r->eval.n && !r->t.files.eval.n && !(o->eval_fraction > 0))
        return err_set(err, ERR_USAGE,
                       "--keep best: give --eval-data or --eval-fraction as well");
    return 0;
}

/* Sets what is not given to what is usual with the optimizer. */
static void set_usual(struct train *t)
{
    const struct optimizer_info *info = &optimizer_table[t->o.optimizer];

    if (!t->setting[S_BETA2].given)
        t->o.beta2 = info->beta2 > 0 ? info->beta2 : usual_beta2;
    if (!t->setting[S_MOMENTUM].given)
        t->o.momentum = info->momentum > 0 ? info->momentum : usual_momentum;
}

/* ---- the run's directory ---- */

/* Resolves A and B; a path that is absent stands for itself. */
static int resolve_both(char **a_full, char **b_full, const char *a, const char *b,
                        struct err *err)
{
    char *x, *y;

    if (fs_resolve(&x, a, err) < 0)
        return -1;
    if (fs_resolve(&y, b, err) < 0) {
        free(x);
        return -1;
    }
    *a_full = x ? x : xstrdup(a);
    *b_full = y ? y : xstrdup(b);
    return 0;
}

/* ERR_USAGE unless the model that is given is the one that the run was begun with. */
static int check_given(const struct request *r, struct err *err)
{
    const struct train_files *f = &r->t.files;
    char *given, *begun;
    int ret = resolve_both(&given, &begun, r->model, f->model, err);

    if (ret < 0)
        return -1;
    if (strcmp(given, begun) != 0)
        ret = err_set(err, ERR_USAGE,
                      "%s: the run in %s was begun with %s; give no model with "
                      "--resume",
                      r->model, r->t.dir, f->model);
    free(given);
    free(begun);
    return ret;
}

/* Finds where to resume: the newest checkpoint, or the model that the run started
 * with. */
static int take_up(struct request *r, struct err *err)
{
    struct train *t = &r->t;

    if (train_dir_read(t, err) < 0 || (r->model && check_given(r, err) < 0) ||
        train_newest_whole(&r->newest, &r->damaged, &r->damage, t->dir, session_cores(),
                           err) < 0)
        return -1;
    r->continues = true;
    t->resumed = r->newest != NULL;
    r->same_model = r->model || !t->resumed;
    r->model = t->resumed ? r->newest : r->t.files.model;
    r->from = !t->resumed && t->foreign ? r->model : NULL;
    return 0;
}

/* Is PATH equal to DIR or inside it? */
static int find_inside(bool *is, const char *path, const char *dir, struct err *err)
{
    char *x, *y;
    size_t n;

    if (resolve_both(&x, &y, path, dir, err) < 0)
        return -1;
    n = strlen(y);
    *is = !strncmp(x, y, n) && (x[n] == '/' || x[n] == '\0');
    free(x);
    free(y);
    return 0;
}

/* Takes what is not given from the run that has the checkpoint of --fork. */
static int take_fork(struct request *r, struct err *err)
{
    struct train_files *f = &r->t.files;
    char *full, *dir;
    bool found;
    int ret;

    if (fs_resolve(&full, r->fork, err) < 0)
        return -1;
    dir = fs_dirname_dup(full ? full : r->fork);
    ret = fs_find_in(&found, dir, "run.json", err);
    if (ret == 0 && !found)
        ret = err_set(err, ERR_INPUT,
                      "--fork %s: not a checkpoint of a run of tp-run train, which has "
                      "run.json beside it; to begin with weights alone, give it as the "
                      "model",
                      r->fork);
    if (ret == 0)
        ret = train_dir_fork(&r->t, dir, err);
    if (ret == 0 && r->t.o.optimizer != r->t.optimizer_before)
        set_usual(&r->t);
    if (ret == 0 && r->t.o.relative && !r->t.relative_before &&
        !r->t.setting[S_LR].given)
        r->t.o.lr = 1;
    if (ret == 0 && r->data.n)
        train_list_clear(&f->data);
    if (ret == 0 &&
        (r->eval.n || (r->t.setting[S_FRACTION].given && r->t.o.eval_fraction > 0)))
        train_list_clear(&f->eval);
    if (ret == 0 && r->eval.n && !r->t.setting[S_FRACTION].given)
        r->t.o.eval_fraction = 0;
    free(dir);
    free(full);
    return ret;
}

/* Names the directory that a model's path stands for, such as the newest checkpoint of
 * a run: run.json has the files in it. */
static int locate(struct request *r, struct err *err)
{
    if (!r->model)
        return 0;
    if (r->fork && checkpoint_find(r->fork, err) < 0)
        return -1;
    if (locate_model(&r->located, r->model, true, err) < 0)
        return -1;
    r->model = r->located;
    if (r->fork)
        r->fork = r->located;
    return 0;
}

static int find_run(struct request *r, struct err *err)
{
    struct train *t = &r->t;
    const char *trial = getenv("HPO_TRIAL_DIR");
    bool is, inside = false;

    t->report = getenv("HPO_REPORT");
    t->result = getenv("HPO_RESULT");
    t->trace = getenv("HPO_CHECKPOINT");
    if (!t->dir && trial)
        t->dir = xstrdup(trial);
    if (!t->dir && t->o.save_every && !r->dry)
        return err_set(err, ERR_USAGE,
                       "give -o RUN, where checkpoints go, or --save-every 0");
    if (t->dir && train_dir_look(&t->look, t->dir, err) < 0)
        return -1;
    is = t->look.is_run;
    if (r->resume && !t->dir)
        return err_set(err, ERR_USAGE, "--resume: give -o RUN");
    if (is && r->resume)
        return take_up(r, err);
    if (is && !r->force && !r->dry)
        return err_set(err, ERR_USAGE,
                       "%s: has a run: --resume goes on with it, -f removes it",
                       t->dir);
    if (is && r->force && r->model && find_inside(&inside, r->model, t->dir, err) < 0)
        return -1;
    if (inside)
        return err_set(err, ERR_USAGE, "%s: is in %s, which -f would remove", r->model,
                       t->dir);
    if (!r->model)
        return err_set(err, ERR_USAGE, "give a model%s",
                       r->resume ? ": there is no run to resume" : "");
    t->foreign = r->from != NULL;
    return r->fork ? take_fork(r, err) : 0;
}

/* ---- data ---- */

/* Compares the files of LIST, which a run was begun with, or fills it with those that
 * are GIVEN by OPTION. */
static int take_files(struct train_list *list, const struct opt_list *given,
                      const char *option, struct err *err)
{
    if (list->n)
        return train_files_compare(list, given, option, err);
    for (size_t i = 0; i < given->n; i++)
        if (train_files_add(list, given->v[i], err) < 0)
            return -1;
    return 0;
}

/* Standard input is that of one process, and is read once. */
static int check_standard(const struct request *r, struct err *err)
{
    int n = 0;

    for (size_t i = 0; i < r->data.n + r->eval.n; i++)
        n += !strcmp(i < r->data.n ? r->data.v[i] : r->eval.v[i - r->data.n], "-");
    if (n > 1)
        return err_set(err, ERR_USAGE, "standard input is given twice");
    if (n && r->t.session->launcher.world)
        return err_set(err, ERR_USAGE,
                       "the ranks of a launcher have no common standard input: give a "
                       "file");
    return 0;
}

/* The lists have files when a run is resumed. */
static int sum_files(struct request *r, struct err *err)
{
    struct train_files *f = &r->t.files;

    if (check_standard(r, err) < 0)
        return -1;
    if (r->same_model && launcher_is_front(&r->t.session->launcher) &&
        train_files_compare(&f->weights, NULL, NULL, err) < 0)
        return -1;
    if (take_files(&f->data, &r->data, "data", err) < 0 ||
        train_mix_note(&f->data, r->weight, r->data.n, r->continues, err) < 0)
        return -1;
    if (!f->data.n)
        return err_set(err, ERR_USAGE, "give --data FILE");
    return take_files(&f->eval, &r->eval, "eval-data", err);
}

static int open_files(struct data **out, const struct request *r,
                      const struct train_list *list, bool eval, struct err *err)
{
    const struct session *s = r->t.session;
    const char **path = xcalloc(list->n + 1, sizeof(*path));
    double *weight = xcalloc(list->n + 1, sizeof(*weight));
    double vocab = 0;
    struct chat *chat = NULL;
    struct err no_chat = { 0 };
    struct data_options o = { .nfiles = list->n,
                              .seq = (size_t)r->t.o.seq,
                              .pack = (enum data_pack)r->t.o.pack,
                              .order = eval ? DATA_ORDER_SEQUENTIAL
                                            : (enum data_order)r->t.o.order,
                              .seed = r->t.o.seed,
                              .tokenizer = s->tokenizer,
                              .last_answer = r->t.o.last_answer,
                              .end_id = s->stop.n ? s->stop.v[0] : -1,
                              .width = (enum token_width)r->t.o.width,
                              .held = eval ? 0 : r->t.o.eval_fraction,
                              .threads = s->machine.threads * s->local_ranks };
    int ret;

    for (size_t i = 0; i < list->n; i++) {
        path[i] = list->v[i].path;
        weight[i] = list->v[i].weight;
    }
    o.file = path;
    o.weight = list->n && weight[0] > 0 ? weight : NULL;
    if (model_number(s->checkpoint->model, "vocab", &vocab))
        o.vocab = (uint64_t)vocab;
    if (chat_open(&chat, s->checkpoint->home,
                  source_made(&s->checkpoint->source, "tokenizer_config.json"), NULL,
                  &no_chat) < 0)
        o.no_chat = no_chat.text;
    o.chat = chat;
    ret = train_loss_labels(&o, &r->t, err);
    if (ret == 0)
        ret = data_open(out, &o, err);
    train_loss_clear(&o);
    chat_free(chat);
    free(path);
    free(weight);
    if (ret < 0 && s->no_tokenizer.kind)
        *err = s->no_tokenizer;
    return ret;
}

static void show_check(void *arg, uint64_t done, uint64_t all)
{
    const struct session *s = arg;

    train_show_doing(cmd_progress(s->opt.quiet), "checking data",
                     (double)done / (double)all);
}

/* Checks the ids of DATA, which has the files of LIST, unless the run has done that. */
static int check_ids(const struct request *r, struct data *data,
                     struct train_list *list, struct err *err)
{
    struct session *s = r->t.session;
    double vocab;
    bool known = r->continues;
    int ret;

    if (!launcher_is_front(&s->launcher) ||
        !model_number(s->checkpoint->model, "vocab", &vocab))
        return 0;
    for (size_t i = 0; i < list->n; i++)
        known &= list->v[i].vocab == (uint64_t)vocab;
    if (known)
        return 0;
    ret = data_check(data, show_check, s, err);
    train_show_none(cmd_progress(s->opt.quiet));
    for (size_t i = 0; i < list->n && ret == 0; i++)
        list->v[i].vocab = (uint64_t)vocab;
    return ret;
}

/* Says what is not learned, and what is learned otherwise than asked. */
static void tell_data(const struct request *r)
{
    const struct train *t = &r->t;
    const struct session *s = t->session;
    const struct data_left left = data_left(t->data);
    const uint64_t samples = data_samples(t->data);

    if (!launcher_is_front(&s->launcher) || s->opt.quiet)
        return;
    if (left.empty)
        cmd_warn(s->cmd,
                 "%" PRIu64 " of %" PRIu64 " documents have no target within "
                 "--seq %" PRIu64 " tokens, and are no samples",
                 left.empty, left.documents, t->o.seq);
    if (left.cut)
        cmd_warn(s->cmd,
                 "%" PRIu64 " of %" PRIu64 " documents are longer than --seq "
                 "%" PRIu64 ": %s, %" PRIu64 " in all, are left out",
                 left.cut, left.documents, t->o.seq,
                 left.keeps_last ? "tokens before their last one" : "their last tokens",
                 left.tokens);
    if (samples < (uint64_t)t->o.global)
        cmd_warn(s->cmd,
                 "%" PRIu64 " samples are fewer than the global batch, %d: "
                 "%s",
                 samples, t->o.global,
                 t->o.drop_last ? "a step has some of them more than once"
                                : "a step has each of them once");
}

/* The number of steps of one epoch, or of those that --epochs asks for.  Part of a step
 * is a step, as is the last batch of an epoch, which may have fewer samples. */
static double count_steps(const struct request *r)
{
    const double global = r->t.o.global, samples = (double)data_samples(r->t.data);

    if (!r->t.o.drop_last && !data_sources(r->t.data))
        return ceil((r->epochs > 0 ? r->epochs : 1) * ceil(samples / global));
    return r->epochs > 0 ? ceil(r->epochs * samples / global) : floor(samples / global);
}

static int open_data(struct request *r, struct err *err)
{
    struct train *t = &r->t;
    struct train_options *o = &t->o;
    struct schedule schedule;
    double steps;

    if (sum_files(r, err) < 0 ||
        open_files(&t->data, r, &t->files.data, false, err) < 0)
        return -1;
    if (t->files.eval.n && open_files(&t->eval, r, &t->files.eval, true, err) < 0)
        return -1;
    if (check_ids(r, t->data, &t->files.data, err) < 0 ||
        (t->eval && check_ids(r, t->eval, &t->files.eval, err) < 0))
        return -1;
    if (train_mix_check(t, err) < 0)
        return -1;
    tell_data(r);
    t->held = t->eval ? data_samples(t->eval) : data_held(t->data);
    if (o->eval_fraction > 0 && !t->held)
        return err_set(err, ERR_USAGE, "--eval-fraction %g: no sample is held out",
                       o->eval_fraction);
    steps = count_steps(r);
    if (!o->steps || r->epochs > 0)
        o->steps = steps < 1 ? 1 : steps > INT32_MAX ? INT32_MAX : (int)steps;
    schedule = train_schedule(o);
    return schedule_check(&schedule, err);
}

/* ---- what can be trained ---- */

/* Without --balance-loss, the coefficient that the family finds in the config. */
static void find_terms(struct request *r)
{
    struct trainer_terms *terms = &r->t.o.terms;
    const struct model *m = r->t.session->checkpoint->model;
    double x;

    if (terms->balance < 0)
        terms->balance = model_number(m, "balance", &x) && x > 0 ? x : 0;
}

static int check_model(struct request *r, struct err *err)
{
    const struct session *s = r->t.session;
    struct train_options *o = &r->t.o;
    const char *state = r->weights ? r->weights : r->fork;
    struct schedule schedule;
    const struct checkpoint *c = s->checkpoint;
    const char *training = c->adapter   ? adapter_training(c->adapter)
                           : c->sharded ? c->manifest.training
                                        : NULL;

    if (state && !training)
        return err_set(err, ERR_INPUT, "%s: has no state of a training", state);
    if (train_loss_find(&r->t, err) < 0 ||
        check_config(NULL, s->checkpoint->model, KEYS_TRAINING, err) < 0)
        return -1;
    if (s->mesh.size[MESH_EP] > 1 && o->deterministic)
        return err_set(err, ERR_USAGE,
                       "--deterministic: sums of gradients over tokens depend on ep");
    if (s->mesh.size[MESH_SP] > 1 && o->deterministic)
        return err_set(err, ERR_USAGE,
                       "--deterministic: sums of gradients over tokens depend on sp");
    if (o->sequence && (s->mesh.size[MESH_TP] == 1 || o->deterministic))
        return err_set(err, ERR_USAGE, "--sequence-parallel: %s",
                       o->deterministic
                           ? "sums of gradients over tokens depend on tp"
                           : "tokens are divided over the ranks of tp, which is 1");
    if (s->mesh.pad_vocab)
        return err_set(err, ERR_NO, "a padded vocabulary cannot be trained");
    if (!o->seq)
        o->seq = s->context && s->context < TP_RUN_SEQ ? s->context : TP_RUN_SEQ;
    if (s->context && o->seq > s->context)
        return err_set(err, ERR_USAGE,
                       "--seq %" PRIu64 ": the model takes %" PRIu64 " tokens", o->seq,
                       s->context);
    find_terms(r);
    if (r->from && train_from_take(&r->t, !r->continues, err) < 0)
        return -1;
    schedule = train_schedule(o);
    schedule_begin(&schedule, &r->t.state.rates);
    if (r->from || (!r->t.resumed && !r->t.forked))
        return 0;
    if (train_state_read(&r->t, training, s->checkpoint->path, err) < 0)
        return -1;
    if (!r->t.resumed) { /* what is best is what this run has */
        r->t.state.best = (double)INFINITY;
        r->t.state.best_step = 0;
    }
    return 0;
}

/* The path of the model for an adapter's config. */
static char *base_path_dup(const struct session *s)
{
    struct err none;
    char *full = NULL;

    if (fs_resolve(&full, s->checkpoint->path, &none) < 0)
        full = NULL;
    return full ? full : xstrdup(s->checkpoint->path);
}

/* Makes the adapter of --lora, or trains the one that the run goes on with. */
static int set_adapter(struct train *t, struct err *err)
{
    struct session *s = t->session;
    const struct train_options *o = &t->o;
    struct adapter_wish w = { .alpha = o->lora_alpha,
                              .dropout = o->lora_dropout,
                              .rslora = o->rslora,
                              .dora = o->dora,
                              .saved = o->saved,
                              .seed = o->seed };
    size_t n = o->lora ? strcspn(o->lora, ":") : 0;
    char *rank, *base;
    int ret = 0;

    if (!o->lora && !s->checkpoint->adapter) {
        for (int i = S_ALPHA; i <= S_SAVED; i++)
            if (t->setting[i].given)
                return err_set(err, ERR_USAGE, "--%s: give --lora as well",
                               t->setting[i].option);
        return 0;
    }
    if (o->terms.average > 0)
        return err_set(err, ERR_USAGE, "--ema: not of an adapter");
    if (o->vocab)
        return err_set(err, ERR_USAGE,
                       "--resize-vocab: not with an adapter, whose checkpoints have no "
                       "rows of the model");
    for (int i = S_LORA; i <= S_SAVED && s->checkpoint->adapter && !t->resumed; i++)
        if (t->setting[i].given)
            return err_set(err, ERR_USAGE,
                           "--%s: the adapter that is given keeps its own",
                           t->setting[i].option);
    if (s->checkpoint->adapter)
        return adapter_train(s->checkpoint->adapter, s->checkpoint->model, err);
    if (train_loss_find(t, err) < 0)
        return -1;
    w.task = loss_table[t->loss].task;
    rank = xstrndup(o->lora, n);
    if (!str_u64(rank, &w.rank) || w.rank < 1 || w.rank > UINT32_MAX ||
        (o->lora[n] && !o->lora[n + 1]))
        ret = err_set(err, ERR_USAGE,
                      "--lora: expected a rank such as 8, or 8:q_proj,v_proj, not '%s'",
                      o->lora);
    free(rank);
    if (ret < 0)
        return -1;
    w.names = o->lora[n] ? o->lora + n + 1 : NULL;
    base = base_path_dup(s);
    ret = adapter_make(s->checkpoint, &w, base, err);
    free(base);
    if (ret == 0 && adapter_saves_any(s->checkpoint->adapter) && s->checkpoint->grown)
        ret =
            err_set(err, ERR_NO,
                    "%s: a tensor of the adapter stands in place of "
                    "the model's, which is given more rows: give the model as it was "
                    "before",
                    w.saved ? "--modules-to-save" : "--lora: the head of a classifier");
    return ret;
}

/* Marks what is not trained. */
static int set_trained(struct train *t, struct err *err)
{
    struct session *s = t->session;
    const struct train_options *o = &t->o;
    struct model *m = s->checkpoint->model;

    if (o->terms.bias_speed > 0)
        frozen_release_buffers(m);
    if (set_adapter(t, err) < 0)
        return -1;
    if (s->checkpoint->adapter && (o->freeze || o->only))
        return err_set(err, ERR_USAGE,
                       "--%s: an adapter alone is trained, and all else is frozen",
                       o->freeze ? "freeze" : "train-only");
    if (s->checkpoint->adapter && s->opt.draw)
        return err_set(err, ERR_USAGE,
                       "--init: an adapter needs a model that has been trained");
    if (o->frozen != WEIGHTS_STORED && o->deterministic && s->mesh.size[MESH_TP] > 1)
        return err_set(err, ERR_USAGE,
                       "--deterministic: sums by codes (--weights %s) depend on tp",
                       session_weights_names[o->frozen]);
    if (o->freeze && o->only)
        return err_set(err, ERR_USAGE,
                       "--freeze and --train-only: one of them says what is trained");
    if (s->checkpoint->adapter)
        adapter_freeze(s->checkpoint->adapter, m);
    return (o->freeze && frozen_names(m, "--freeze", o->freeze, true, err) < 0) ||
                   (o->only && frozen_names(m, "--train-only", o->only, false, err) < 0)
               ? -1
               : 0;
}

static struct program_options options_of(const struct train *t)
{
    return (struct program_options){ .tail = trainer_tail(t->loss),
                                     .reverse = true,
                                     .training = true,
                                     .deterministic = t->o.deterministic,
                                     .rounded = t->o.compute == COMPUTE_BF16,
                                     .half = t->o.compute == COMPUTE_F16,
                                     .sequence = t->o.sequence,
                                     .balance = trainer_balances(&t->o.terms),
                                     .loads = t->o.terms.bias_speed > 0,
                                     .smooth = t->o.terms.smooth,
                                     .z = t->o.terms.z,
                                     .dropout = t->o.dropout };
}

/* ERR_USAGE when weights cannot be kept in bf16 alone. */
static int check_master(const struct train *t, struct err *err)
{
    const struct train_options *o = &t->o;

    if (!o->master)
        return 0;
    if (o->compute != COMPUTE_BF16)
        return err_set(err, ERR_USAGE, "--master none: give --compute bf16");
    if (optimizer_table[o->optimizer].matrices != MATRICES_NONE)
        return err_set(err, ERR_USAGE,
                       "--master none: --optimizer %s updates whole matrices in f32",
                       optimizer_names[o->optimizer]);
    return t->session->checkpoint->adapter || o->lora
               ? err_set(err, ERR_USAGE, "--master none: not of an adapter")
               : 0;
}

/* ERR_USAGE when no router of the model has a bias in the choice of experts. */
static int check_biases(const struct train *t, struct err *err)
{
    const struct session *s = t->session;
    const struct program_options reverse = options_of(t);
    bool found = false;

    for (int i = 0; i < t->staged.size[MESH_PP]; i++) {
        const int coord[MESH_NAXES] = { [MESH_PP] = i };
        struct program *p;

        if (program_build(&p, s->checkpoint->model, &t->staged, coord, &reverse, err) <
            0)
            return -1;
        for (int k = p->nforward; k < p->ninsts; k++)
            found |= p->inst[k].op == OP_ROUTER_LOAD;
        program_free(p);
    }
    return found ? 0
                 : err_set(err, ERR_USAGE,
                           "--bias-update-speed: %s has no router with a bias",
                           model_config_name(s->checkpoint->model));
}

/* Checks that the program of the first stage can be trained. */
static int check_program(const struct train *t, struct err *err)
{
    const struct session *s = t->session;
    const struct program_options reverse = options_of(t);
    const int coord[MESH_NAXES] = { 0 };
    struct program *p;
    int ret;

    if (program_build(&p, s->checkpoint->model, &t->staged, coord, &reverse, err) < 0)
        return -1;
    ret = reverse_check_model(p, err);
    program_free(p);
    return ret == 0 && t->o.terms.bias_speed > 0 ? check_biases(t, err) : ret;
}

static int choose_backend(const struct train *t, struct err *err)
{
    const struct program_options reverse = options_of(t);

    t->session->optimizer = (enum optimizer_kind)t->o.optimizer;
    if (session_choose(t->session, &reverse, 1, err) < 0)
        return -1;
    if (t->o.sequence && !t->session->machine.ops->host_memory)
        return err_set(err, ERR_NO,
                       "--sequence-parallel: backend %s cannot divide tokens over tp",
                       t->session->machine.ops->name);
    return 0;
}

/* Opens and locks the directory.  Its contents change only when all ranks are ready, so
 * a failed start leaves it unchanged. */
static int lock_dir(struct request *r, struct err *err)
{
    struct train *t = &r->t;

    if (!t->dir)
        return 0;
    if (train_dir_lock(&t->lock, t->dir, err) < 0)
        return -1;
    t->replaces = r->force && !r->resume;
    if (t->files.model)
        return 0;
    if (fs_resolve(&t->files.model, r->model, err) < 0)
        return -1;
    if (!t->files.model)
        t->files.model = xstrdup(r->model);
    return 0;
}

/* Rank 0 locks the directory, which all have looked at before; then all look again. */
static int take_dir(struct request *r, struct err *err)
{
    struct launcher *l = &r->t.session->launcher;
    int ret = launcher_is_front(l) ? lock_dir(r, err) : 0;

    if (launcher_agree(l, ret, err) < 0)
        return -1;
    ret = r->t.dir ? train_dir_check(&r->t.look, r->t.dir, err) : 0;
    return launcher_agree(l, ret, err);
}

/* ---- a dry run ---- */

/* The epochs of all steps. */
static double count_epochs(const struct train *t)
{
    const double steps = t->o.steps, global = t->o.global;
    const double samples = (double)data_samples(t->data), per = ceil(samples / global);

    return t->o.drop_last || data_sources(t->data)
               ? steps * global / samples
               : floor(steps / per) + fmod(steps, per) * global / samples;
}

/* Bytes for what P trains: in *DEVICE, and the state of the optimizer that is in memory
 * of the host. */
static void count_bytes(const struct train *t, const struct program *p,
                        uint64_t *device, uint64_t *host)
{
    const struct train_options *o = &t->o;
    const struct memory_options share = { .mesh = t->session->mesh,
                                          .optimizer =
                                              (enum optimizer_kind)o->optimizer,
                                          .zero = o->zero,
                                          .hsdp = o->hsdp,
                                          .master = o->master == 0,
                                          .compute_bytes =
                                              o->compute == COMPUTE_F32 ? 4 : 2 };
    bool *trains = xcalloc((size_t)p->nweights + 1, sizeof(*trains));
    struct reversed_trained n;
    uint64_t state;

    for (int i = 0; i < p->nweights; i++)
        trains[i] = program_trains(p, i);
    n = reversed_trained(p, trains, &share, p->coord);
    free(trains);
    state = (n.slots + n.room + (o->terms.average > 0 ? n.owned : 0)) * sizeof(float);
    if (o->offload && !t->session->machine.ops->host_memory)
        state += n.local * sizeof(float);
    *host = o->offload ? state : 0;
    *device = (n.weights + n.gathered + n.gradients) * sizeof(float) + n.copies +
              state - *host;
}

/* Of a micro-batch: its tokens, and its documents. */
static size_t tokens_of(const struct train *t)
{
    return (size_t)t->o.micro * (size_t)t->o.seq;
}

static size_t documents_of(const struct train *t)
{
    const size_t most = train_documents_most(t);

    return (size_t)t->o.micro * (most ? most : 1);
}

static int print_plan(const struct request *r, struct err *err)
{
    const struct train *t = &r->t;
    const struct session *s = t->session;
    const struct train_options *o = &t->o;
    const int dp = s->mesh.size[MESH_DP];
    const struct comm first = { .size = s->mesh.size[MESH_SP] };
    uint64_t tokens = data_tokens(t->data);
    struct program_options reverse = options_of(t);
    char size[32];

    reverse.recompute = o->recompute;
    reverse.split = trainer_splits(t->table);
    printf("layout:   ");
    for (int a = 0; a < MESH_NAXES; a++)
        if (s->mesh.size[a] > 1 || a == MESH_TP)
            printf(" %s %d", mesh_axis_names[a], s->mesh.size[a]);
    printf("; %d ranks of %d threads, backend %s\n", s->mesh.nranks, s->machine.threads,
           s->machine.ops->name);
    for (int i = 0; i < t->staged.size[MESH_PP]; i++) {
        const int coord[MESH_NAXES] = { [MESH_PP] = i };
        uint64_t all = 0, n = 0, bytes, device, host, room;
        struct program *p;

        if (program_build(&p, s->checkpoint->model, &t->staged, coord, &reverse, err) <
            0)
            return -1;
        for (int k = 0; k < p->nweights; k++) {
            uint64_t some = p->weight[k].rows * p->weight[k].cols;

            all += some;
            n += program_trains(p, k) ? some : 0;
        }
        bytes = trainer_arena(p, s->machine.across, tokens_of(t),
                              (size_t)o->micro * train_source_most(t), documents_of(t));
        room = trainer_room(p, t->loss, tokens_of(t), documents_of(t), &first);
        count_bytes(t, p, &device, &host);
        program_free(p);
        printf("stage %d:   %" PRIu64 " weights a rank", i, all);
        if (t->table->stages > t->table->ranks)
            printf(" (of those at %d of %d)", t->table->rank_of[i], t->table->ranks);
        if (n < all)
            printf(", %" PRIu64 " trained", n);
        printf("; %s for %s%s", str_human(size, device), n < all ? "these" : "them",
               host ? " and gradients" : ", gradients and optimizer");
        if (host)
            printf(", %s for the optimizer in memory of the host",
                   str_human(size, host));
        printf(", %s for each micro-batch in flight", str_human(size, bytes));
        printf(room ? ", %s for the loss\n" : "\n", str_human(size, room));
    }
    printf("step:      %d samples of up to %" PRIu64
           " tokens, in %d micro-batches of %d"
           " on %d replicas\n",
           o->global, o->seq, o->global / o->micro / dp, o->micro, dp);
    printf("data:      %" PRIu64 " samples, %" PRIu64 " tokens; %" PRIu64
           " samples to evaluate\n",
           data_samples(t->data), tokens, t->held);
    printf("steps:     %d, %.3g epochs; from step %" PRIu64 "\n", o->steps,
           count_epochs(t), t->state.step);
    return 0;
}

/* ---- the command ---- */

/* What is given is used by the optimizer. */
static int check_optimizer(const struct request *r, struct err *err)
{
    static const struct {
        int setting;
        unsigned use;
    } of[] = { { S_MOMENTUM, OPTIMIZER_USES_MOMENTUM },
               { S_BETA1, OPTIMIZER_USES_BETAS },
               { S_BETA2, OPTIMIZER_USES_BETAS },
               { S_EPS, OPTIMIZER_USES_EPS },
               { S_ADAMW_LR, OPTIMIZER_USES_SHAPES },
               { S_ADJUST_LR, OPTIMIZER_USES_SHAPES },
               { S_RELATIVE, OPTIMIZER_USES_FACTORS },
               { S_WARMUP_INIT, OPTIMIZER_USES_FACTORS },
               { S_SCALED, OPTIMIZER_USES_FACTORS },
               { S_CLIP_THRESHOLD, OPTIMIZER_USES_FACTORS },
               { S_DECAY_RATE, OPTIMIZER_USES_FACTORS } };
    const enum optimizer_kind kind = (enum optimizer_kind)r->t.o.optimizer;

    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++)
        if (r->t.setting[of[i].setting].given &&
            !(optimizer_table[kind].uses & of[i].use))
            return err_set(err, ERR_USAGE, "--%s: --optimizer %s has none%s",
                           r->t.setting[of[i].setting].option, optimizer_names[kind],
                           of[i].use == OPTIMIZER_USES_MOMENTUM
                               ? "; with one it is --optimizer momentum"
                               : "");
    if (r->t.o.adamw_lr > 0 && !(r->t.o.lr > 0))
        return err_set(err, ERR_USAGE,
                       "--adamw-lr %g: follows the schedule of --lr, which must be "
                       "above 0",
                       r->t.o.adamw_lr);
    if (r->t.o.warms && !r->t.o.relative)
        return err_set(err, ERR_USAGE, "--warmup-init: goes with --relative-step");
    if (kind == OPTIMIZER_ADAFACTOR && !(r->t.o.clip_threshold > 0))
        return err_set(err, ERR_USAGE, "--clip-threshold 0: must be above 0");
    return 0;
}

/* What is given is used by the loss. */
static int check_loss(const struct request *r, struct err *err)
{
    enum {
        MASKS = 1U << LOSS_MASKED,
        KTO = 1U << LOSS_KTO,
        POLICY = 1U << LOSS_POLICY,
        DISTIL = 1U << LOSS_DISTIL,
        BETAS = 1U << LOSS_DPO | 1U << LOSS_ORPO | KTO | POLICY,
        /* sums of likelihoods */
        SUMS = 1U << LOSS_NEXT | 1U << LOSS_TARGET | 1U << LOSS_MASKED |
               1U << LOSS_CLASS | 1U << LOSS_TAGS
    };
    static const struct {
        int setting;
        unsigned losses; /* bits of those that use it */
    } of[] = { { S_MASKED, MASKS },    { S_MASK_ID, MASKS },
               { S_LOSS_BETA, BETAS }, { S_DPO_SMOOTHING, 1U << LOSS_DPO },
               { S_KTO_GOOD, KTO },    { S_KTO_BAD, KTO },
               { S_CLIP_LOW, POLICY }, { S_CLIP_HIGH, POLICY },
               { S_BY_TEXT, POLICY },  { S_UNSCALED, POLICY },
               { S_HARD, DISTIL },     { S_TEMPERATURE, DISTIL },
               { S_SMOOTH, SUMS },     { S_Z_LOSS, SUMS } };
    const struct loss_info *loss = &loss_table[r->t.loss];

    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++)
        if (r->t.setting[of[i].setting].given && !(of[i].losses >> r->t.loss & 1))
            return err_set(err, ERR_USAGE, "--%s: --loss %s has none%s",
                           r->t.setting[of[i].setting].option, loss->name,
                           of[i].setting == S_SMOOTH && r->t.loss == LOSS_DPO
                               ? "; what it has is --dpo-smoothing"
                               : "");
    if (!(r->t.o.numbers.temperature > 0))
        return err_set(err, ERR_USAGE, "--distill-temperature 0: must be above 0");
    if (r->t.setting[S_MASK_ID].given && !(r->t.o.mask_probability > 0))
        return err_set(err, ERR_USAGE,
                       "--mask-id: with --mask-probability 0 the data say what is "
                       "masked");
    return 0;
}

static const char *replicas_name(const struct session *s)
{
    return s->mesh.size[MESH_EP] > 1 ? "dp times ep" : "dp";
}

/* Of --global-batch, --micro-batch, --micro-batches and dp three determine the other;
 * a run that goes on has its global batch.  With --micro-batch alone a replica takes
 * one a step, as with the batch size of a device in Trainer, DeepSpeed and Megatron. */
static int derive_global(struct request *r, struct err *err)
{
    struct train_options *o = &r->t.o;
    const struct setting *set = r->t.setting;
    int dp = replicas_of(r->t.session);
    bool alone = set[S_MICRO].given && !set[S_GLOBAL].given && !r->continues &&
                 !r->t.forked && !r->has_table;
    int number = r->micro_batches ? r->micro_batches : alone ? 1 : 0;
    int64_t global = (int64_t)o->micro * dp * number;

    if (!number)
        return 0;
    if (global > INT32_MAX)
        return err_set(err, ERR_USAGE,
                       "--micro-batch %d: a step of %" PRId64 " samples is too large",
                       o->micro, global);
    if ((r->t.setting[S_GLOBAL].given || r->t.resumed) && global != o->global)
        return err_set(err, ERR_USAGE,
                       "--micro-batches %d: times --micro-batch %d times %s %d is not "
                       "the global batch, %d",
                       r->micro_batches, o->micro, replicas_name(r->t.session), dp,
                       o->global);
    o->global = (int)global;
    return 0;
}

static int check_shares(struct request *r, struct err *err)
{
    const struct train_options *o = &r->t.o;
    int dp = r->t.session->mesh.size[MESH_DP], replicas = replicas_of(r->t.session);
    int64_t share = (int64_t)o->micro * replicas;

    if (check_optimizer(r, err) < 0 || check_loss(r, err) < 0 ||
        derive_global(r, err) < 0)
        return -1;
    if (o->hsdp && dp % o->hsdp)
        return err_set(err, ERR_USAGE, "--hsdp %d: does not divide dp %d", o->hsdp, dp);
    if (r->continues && r->t.micro_before != o->micro && trainer_balances(&o->terms))
        return err_set(err, ERR_USAGE,
                       "--micro-batch %d: the run in %s was begun with %d, over whose "
                       "rows it balances experts",
                       o->micro, r->t.dir, r->t.micro_before);
    if (o->global % share)
        return err_set(err, ERR_USAGE,
                       "--global-batch %d: no multiple of %" PRId64
                       ", which is --micro-batch %d times %s %d",
                       o->global, share, o->micro, replicas_name(r->t.session),
                       replicas);
    return make_table(r, err);
}

/* A run that goes on may end at another step, but not before where it is; and its rate
 * is that of its new end. */
static int check_end(const struct request *r, struct err *err)
{
    const struct train *t = &r->t;
    const struct train_options *o = &t->o;
    const enum schedule_kind schedule = (enum schedule_kind)o->schedule;

    if (t->state.step > (uint64_t)o->steps ||
        (!t->resumed && t->state.step && t->state.step == (uint64_t)o->steps))
        return err_set(err, ERR_USAGE, "%s%d: %s has done %" PRIu64 " steps already",
                       r->epochs > 0 ? "--epochs, which make --steps " : "--steps ",
                       o->steps, r->model, t->state.step);
    if (t->resumed && t->steps_before && o->steps != t->steps_before && t->state.step &&
        schedule_is_timed(schedule) && launcher_is_front(&t->session->launcher))
        cmd_warn(t->session->cmd,
                 "the rate is %s over %d steps from here on; the first %" PRIu64
                 " had that over %d",
                 schedule_names[schedule], o->steps, t->state.step, t->steps_before);
    return 0;
}

static void warn_of_damage(const struct request *r)
{
    const struct train *t = &r->t;

    if (r->damage && launcher_is_front(&t->session->launcher))
        cmd_warn(t->session->cmd, "%s; going on from %s, %s", r->damage, r->newest,
                 r->damaged > 1 ? "the newest that is whole" : "the one before");
}

static int prepare(struct request *r, const struct cmd *cmd,
                   struct session_options *opt, struct err *err)
{
    struct train *t = &r->t;
    int ret;

    if (r->weights && r->model)
        return err_set(err, ERR_USAGE,
                       "--weights-from %s: takes the place of the model %s; give one",
                       r->weights, r->model);
    if (r->fork && (r->weights || r->model))
        return err_set(err, ERR_USAGE,
                       "--fork %s: takes the place of the model %s; give one", r->fork,
                       r->weights ? r->weights : r->model);
    if (r->from && (r->weights || r->fork || r->model))
        return err_set(err, ERR_USAGE,
                       "--resume-from %s: takes the place of the model %s; give one",
                       r->from,
                       r->weights ? r->weights
                       : r->fork  ? r->fork
                                  : r->model);
    if (r->from && t->o.init)
        return err_set(err, ERR_USAGE, "--resume-from %s: not with --init", r->from);
    if (r->weights || r->fork || r->from)
        r->model = r->weights ? r->weights : r->fork ? r->fork : r->from;
    if (train_mix_split(&r->data, &r->weight, err) < 0 || parse_words(r, err) < 0 ||
        train_times_check(&t->timeline, err) < 0 || locate(r, err) < 0 ||
        find_run(r, err) < 0 || check_numbers(r, err) < 0 || parse_pipeline(r, err) < 0)
        return -1;
    opt->draw = t->o.init && !t->resumed && !t->forked;
    opt->vocab = t->resumed || t->forked ? 0 : t->o.vocab;
    opt->vocab_zero = t->o.vocab_zero;
    if (t->o.vocab && t->o.init)
        return err_set(err, ERR_USAGE, "--resize-vocab: not with --init");
    if (t->o.vocab_zero && !t->o.vocab)
        return err_set(err, ERR_USAGE, "--resize-zero: give --resize-vocab as well");
    opt->weights = t->o.frozen;
    opt->moments = r->from != NULL;
    if (session_open(t->session, cmd, opt, r->model, err) < 0 ||
        find_stages(r, err) < 0)
        return -1;
    if (opt->draw && t->session->checkpoint->sharded)
        return err_set(err, ERR_USAGE, "--init: %s has been cut; give its original",
                       r->model);
    ret = set_trained(t, err);
    if (ret == 0)
        ret = check_model(r, err);
    if (ret == 0)
        ret = check_program(t, err);
    if (launcher_agree(&t->session->launcher, ret, err) < 0 ||
        choose_backend(t, err) < 0)
        return -1;
    ret = check_shares(r, err);
    if (ret == 0)
        ret = check_master(t, err);
    if (r->from)
        train_from_place(t);
    if (ret == 0)
        ret = open_data(r, err);
    if (ret == 0)
        ret = check_end(r, err);
    if (launcher_agree(&t->session->launcher, ret, err) < 0)
        return -1;
    warn_of_damage(r);
    return 0;
}

/* Had the run done all of its steps, and their evaluation? */
static bool is_finished(const struct train *t)
{
    return t->resumed && train_is_done(t, &t->state) &&
           (!t->held || !isnan(t->state.eval_loss));
}

static int run(struct request *r, struct err *err)
{
    struct train *t = &r->t;
    struct launcher *l = &t->session->launcher;

    if (r->dry)
        return launcher_is_front(l) && print_plan(r, err) < 0
                   ? cmd_fail(t->session->cmd, err)
                   : cmd_finish(t->session->cmd, 0);
    if (is_finished(t) && t->timeline.n && launcher_is_front(l) &&
        !t->session->opt.quiet)
        cmd_warn(t->session->cmd, "--timeline: no step is left to be measured");
    if (is_finished(t))
        return launcher_is_front(l) && train_log_finished(t, r->newest, err) < 0
                   ? cmd_fail(t->session->cmd, err)
                   : cmd_finish(t->session->cmd, 0);
    if (take_dir(r, err) < 0 || launcher_ask(l, err) < 0)
        return cmd_fail(t->session->cmd, err);
    return session_run(t->session, train_rank, t);
}

static void clear(struct request *r)
{
    data_close(r->t.data);
    data_close(r->t.eval);
    action_table_clear(&r->table);
    train_files_clear(&r->t.files);
    if (r->t.lock >= 0) {
        if (!r->t.look.is_dir)
            rmdir(r->t.dir); /* if this start made it, and it is empty */
        close(r->t.lock);
    }
    train_look_clear(&r->t.look);
    free(r->weight);
    free(r->t.cursors);
    free(r->newest);
    free(r->damage);
    free(r->located);
    free(r->t.dir);
}

int train_main(const char *program, int argc, char **argv)
{
    struct session_options opt = SESSION_DEFAULTS;
    struct session session = { .launcher.err_fd = -1 };
    struct request r = { .t = { .session = &session,
                                .lock = -1,
                                .log_every = 1,
                                .o = { .global = TP_RUN_GLOBAL,
                                       .micro = 1,
                                       .lr = 5e-5,
                                       .momentum = usual_momentum,
                                       .adamw_lr = -1,
                                       .clip_threshold = 1,
                                       .decay_rate = 0.8,
                                       .beta1 = 0.9,
                                       .beta2 = usual_beta2,
                                       .eps = 1e-8,
                                       .lora_alpha = 8,
                                       .mask_probability = 0.15,
                                       .mask_id = -1,
                                       .numbers = { .beta = -1,
                                                    .good = 1,
                                                    .bad = 1,
                                                    .clip_low = 0.2,
                                                    .clip_high = -1,
                                                    .temperature = 1 },
                                       .clip = 1,
                                       .dropout = -1,
                                       .rates = { .least = -1,
                                                  .least_ratio = -1,
                                                  .most = -1,
                                                  .power = -1,
                                                  .cycles = -1,
                                                  .warmup_ratio = -1,
                                                  .decay_curve = CURVE_COSINE,
                                                  .factor = -1,
                                                  .threshold = -1,
                                                  .patience = 10 },
                                       .terms = { .balance = -1 },
                                       .save_every = SAVE_AT_END },
                                .state = { .best = (double)INFINITY,
                                           .eval_loss = (double)NAN,
                                           .lowest = (double)INFINITY,
                                           .scaler.scale = SCALER_FIRST },
                                .nsettings = SETTINGS } };
    struct train_options *o = &r.t.o;
    static const char *const offloads[] = { "none", "optimizer", NULL };
    const char *out = NULL;
    bool has_epochs = false;
#define SETTING(id, type, kind, name, member, arg, choices, fixed) \
    { SETTING_##kind, name, &o->member, choices, false, fixed, NULL, NULL },
    struct setting set[SETTINGS] = { SETTINGS_LIST(SETTING) };
#undef SETTING
#define SETTING(id, type, kind, name, member, arg, choices, fixed) \
    { OPT_##type, '\0', name, &o->member, arg, NULL, choices, &set[S_##id].given },
    const struct opt opts[] = {
        { OPT_LIST, '\0', "data", &r.data, "FILE", "learn the documents in FILE", NULL,
          NULL },
        { OPT_LIST, '\0', "eval-data", &r.eval, "FILE", NULL, NULL, NULL },
        /* clang-format off */
        SETTINGS_LIST(SETTING)
        /* clang-format on */
        { OPT_DOUBLE, '\0', "epochs", &r.epochs, "X", NULL, NULL, &has_epochs },
        { OPT_COUNT, '\0', "micro-batches", &r.micro_batches, "N", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "deterministic", &o->deterministic, NULL, NULL, NULL, NULL },
        { OPT_STRING, '\0', "recompute", &r.recompute, "WHAT", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "sequence-parallel", &o->sequence, NULL, NULL, NULL, NULL },
        { OPT_INT, '\0', "zero", &o->zero, "STAGE", NULL, NULL, NULL },
        { OPT_CHOICE, '\0', "offload", &o->offload, "WHAT", NULL, offloads, NULL },
        { OPT_COUNT, '\0', "hsdp", &o->hsdp, "N", NULL, NULL, NULL },
        { OPT_STRING, '\0', "pipeline", &r.pipeline, "HOW", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "model-chunks", &r.chunks, "N", NULL, NULL, NULL },
        { OPT_STRING, '\0', "schedule", &r.pipeline, "HOW", NULL, NULL, NULL },
        { OPT_STRING, 'o', "output", &out, "RUN",
          "the run's directory: checkpoints and log", NULL, NULL },
        { OPT_FLAG, '\0', "resume", &r.resume, NULL, NULL, NULL, NULL },
        { OPT_STRING, '\0', "weights-from", &r.weights, "STEP", NULL, NULL, NULL },
        { OPT_STRING, '\0', "fork", &r.fork, "STEP", NULL, NULL, NULL },
        { OPT_STRING, '\0', "resume-from", &r.from, "DIR", NULL, NULL, NULL },
        { OPT_FLAG, 'f', "force", &r.force, NULL, "remove a run that is there", NULL,
          NULL },
        { OPT_STRING, '\0', "keep", &r.keep, "N", NULL, NULL, NULL },
        { OPT_STRING, '\0', "stop-after", &r.stop_after, "TIME", NULL, NULL, NULL },
        { OPT_STRING, '\0', "log", &r.t.log, "FILE", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "log-every", &r.t.log_every, "N", NULL, NULL, NULL },
        { OPT_LIST, '\0', "timeline", &r.t.timeline, "FILE", NULL, NULL, NULL },
        { OPT_STRING, '\0', "metrics", &r.t.metrics, "FILE", NULL, NULL, NULL },
        { OPT_STRING, '\0', "tensorboard", &r.t.tensorboard, "DIR", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "log-samples", &o->log_samples, NULL, NULL, NULL, NULL },
        { OPT_FLAG, 'n', "dry-run", &r.dry, NULL, "print what would be done", NULL,
          NULL },
        { OPT_COUNT, '\0', "tp", &opt.mesh.tp, "N", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "ep", &opt.mesh.ep, "N", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "sp", &opt.mesh.sp, "N", NULL, NULL, NULL },
        { OPT_STRING, '\0', "sp-mode", &opt.sp_mode, "MODE", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "pp", &opt.mesh.pp, "N", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "dp", &opt.mesh.dp, "N", NULL, NULL, NULL },
        { OPT_STRING, '\0', "mesh", &opt.mesh.spec, "SPEC", NULL, NULL, NULL },
        { OPT_STRING, '\0', "family", &opt.family, "FILE", NULL, NULL, NULL },
        { OPT_STRING, '\0', "config", &opt.config, "FILE", NULL, NULL, NULL },
        { OPT_STRING, '\0', "launcher", &opt.launcher, "WHO", NULL, NULL, NULL },
        { OPT_LIST, '\0', "adapter", &opt.adapters, "DIR", NULL, NULL, NULL },
        { OPT_STRING, '\0', "base", &opt.base, "MODEL", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "ignore-adapter", &opt.no_adapter, NULL, NULL, NULL, NULL },
        { OPT_COUNT, '\0', "threads", &opt.threads, "N", NULL, NULL, NULL },
        { OPT_STRING, '\0', "backend", &opt.backend, "NAME", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "json", &opt.json, NULL, NULL, NULL, NULL },
        { OPT_FLAG, '\0', "report-memory", &opt.memory, NULL, NULL, NULL, NULL },
        { OPT_INT, '\0', "rank-timeout", &opt.timeout, "SECONDS", NULL, NULL, NULL },
        { OPT_FLAG, 'q', "quiet", &opt.quiet, NULL, "print no lines", NULL, NULL },
        { .type = OPT_END },
    };
#undef SETTING
    const struct cmd cmd = { .name = "train",
                             .program = program,
                             .own_page = true,
                             .synopsis = "[OPTION]... [MODEL]",
                             .summary = "Train a model, on many ranks",
                             .opts = opts,
                             .min_args = 0,
                             .max_args = 1 };
    const char *command = picture_command(program, argc, argv);
    char **operand;
    struct err err = { 0 };
    int status;

    train_settings_note(set, SETTINGS);
    operand = cmd_parse(&cmd, argc, argv);
    opt.trains = true;
    r.t.setting = set;
    set_usual(&r.t);
    if (!set[S_LR].given && o->relative)
        o->lr = 1;
    r.t.command = command;
    r.model = operand[0];
    r.t.dir = out ? xstrdup(out) : NULL;
    if (has_epochs && !(r.epochs > 0))
        status = cmd_usage(&cmd, "--epochs %g: must be above 0", r.epochs);
    else if (prepare(&r, &cmd, &opt, &err) < 0)
        status = cmd_fail(&cmd, &err);
    else
        status = run(&r, &err);
    clear(&r);
    train_settings_clear(set, SETTINGS);
    session_close(&session);
    return status;
}
