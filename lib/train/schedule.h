/* schedule - learning rate schedules, with the names of Hugging Face's Trainer
 *
 * Most are functions of the step.  Two follow the losses of evaluations, and have a
 * state. */
#ifndef LIB_TRAIN_SCHEDULE_H
#define LIB_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/ckpt/trainprogress.h"

enum schedule_kind {
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_COSINE_WITH_RESTARTS,
    SCHEDULE_POLYNOMIAL, /* to .least, by default 1e-7 */
    SCHEDULE_CONSTANT,
    SCHEDULE_CONSTANT_WITH_WARMUP,
    SCHEDULE_INVERSE_SQRT,
    SCHEDULE_COSINE_WITH_MIN_LR,
    SCHEDULE_COSINE_WARMUP_WITH_MIN_LR,
    SCHEDULE_WARMUP_STABLE_DECAY,
    SCHEDULE_PLATEAU, /* reduce_lr_on_plateau */
    SCHEDULE_GREEDY,
    SCHEDULES
};
extern const char *const schedule_names[SCHEDULES + 1];

enum schedule_curve { CURVE_LINEAR, CURVE_COSINE, CURVE_SQRT, CURVES };
extern const char *const schedule_curve_names[CURVES + 1]; /* "1-sqrt" is the last */

/* The options of some schedules; -1, or 0 of whole numbers: the schedule's default. */
struct schedule_options {
    double least, least_ratio; /* the lowest rate: itself, or as a share of the peak */
    double most;               /* greedy: the highest rate */
    double power;              /* polynomial */
    double cycles;             /* waves of a cosine, or with restarts half-waves */
    double warmup_ratio;       /* cosine_warmup_with_min_lr: share of the first step */
    int decay_steps;           /* warmup_stable_decay: the last steps */
    int warmup_curve, decay_curve; /* enum schedule_curve, of the same */
    double factor, threshold;      /* plateau, greedy: of the rate; of an improvement */
    int patience; /* evaluations without (greedy: or with) improvement that change
                   * nothing */
    int cooldown; /* evaluations after a reduction that change nothing */
};

struct schedule {
    enum schedule_kind kind;
    double base; /* the peak rate */
    uint64_t warmup, steps;
    struct schedule_options o;
};

/* What a schedule that follows losses has come to. */
struct schedule_state {
    double rate, best;
    uint64_t bad, good, wait; /* evaluations since the last change; yet to wait */
    uint64_t resets;          /* greedy: reductions at the lowest rate so far */
};

/* ERR_USAGE when S lacks an option, or has one whose value is of no use: the message
 * has the option's name on the command line of tp-run train. */
MUST_CHECK int schedule_check(const struct schedule *s, struct err *err);
/* Is the option OPTION, a name on that command line, one of this schedule?  True of
 * options that are no schedule's. */
bool schedule_takes(enum schedule_kind kind, const char *option);
/* Does it follow losses of evaluations? */
bool schedule_follows(enum schedule_kind kind);
/* Does the rate at a step depend on the number of steps? */
bool schedule_is_timed(enum schedule_kind kind);

/* Sets kind and warm-up of S, which has its peak and its steps, to the schedule whose
 * rate of update AT (from 0) is RATE, and those of the N updates LOGGED the rates
 * there.  False when there is none, or when some that fit differ later. */
bool schedule_find(struct schedule *s, uint64_t at, double rate,
                   const struct progress_rate *logged, size_t n);

void schedule_begin(const struct schedule *s, struct schedule_state *state);
/* The learning rate of update STEP (from 0); STATE is read only where the schedule
 * follows losses. */
double schedule_rate(const struct schedule *s, uint64_t step,
                     const struct schedule_state *state);
/* Takes note of an evaluation's LOSS. */
void schedule_see(const struct schedule *s, struct schedule_state *state, double loss);

#endif
