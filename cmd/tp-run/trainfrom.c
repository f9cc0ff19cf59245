/* trainfrom - goes on with the training of another trainer's checkpoint */
#include "cmd/tp-run/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ckpt/trainprogress.h"
#include "lib/model/decay.h"
#include "lib/reshard/pytorchgroups.h"

static const double RATE_NOISE = 1e-6; /* of a rate that was printed, relative */

static const struct setting *find(const struct train *t, const char *option)
{
    size_t i = 0;

    while (strcmp(t->setting[i].option, option) != 0)
        i++;
    return &t->setting[i];
}

static bool is_given(const struct train *t, const char *option)
{
    return find(t, option)->given;
}

/* Was a schedule's option given, other than the rate and the number of steps? */
static bool has_schedule(const struct train *t)
{
    for (size_t i = 0; i < t->nsettings; i++) {
        bool own = !strcmp(t->setting[i].option, "lr-schedule");

        for (int k = 0; k < SCHEDULES && !own; k++)
            own = !schedule_takes((enum schedule_kind)k, t->setting[i].option);
        if (own && t->setting[i].given)
            return true;
    }
    return false;
}

/* ---- groups ---- */

/* Takes VALUE, which all groups have, for the setting OPTION at TO, unless it is
 * given. */
static void take(const struct train *t, const char *option, double *to, double value)
{
    if (!is_given(t, option) && !isnan(value))
        *to = value;
}

/* Sets *KIND and *DECAY to those of the groups of C. */
static int find_decay(enum decay_kind *kind, double *decay, const struct checkpoint *c,
                      struct err *err)
{
    if (pytorchgroups_decay(kind, decay, c))
        return 0;
    return err_set(
        err, ERR_NO,
        "%s: weights decay by different numbers, or others than --decays can "
        "say: give --weight-decay and --decays",
        c->path);
}

/* ---- the schedule ---- */

static int unclear(const struct train *t, const char *path, struct err *err)
{
    return err_set(err, ERR_USAGE,
                   "%s: its rate is %g of %g after %" PRIu64
                   " steps, which no schedule alone has: give --lr-schedule and its "
                   "options%s",
                   path, t->checkpoint_rate, t->o.lr, t->state.step,
                   t->o.steps ? "" : ", and --steps");
}

/* Finds the schedule of which P has rates, if none is given. */
static int find_schedule(struct train *t, const struct progress *p, const char *path,
                         struct err *err)
{
    const uint64_t at = t->state.step - t->state.scaler.overflowed;
    struct schedule s = train_schedule(&t->o);
    struct schedule_state state;
    double rate;

    t->checkpoint_rate = p->group[0].rate;
    if (!has_schedule(t) && !is_given(t, "lr")) {
        if (isnan(p->group[0].first_rate)) {
            s.kind = SCHEDULE_CONSTANT;
        } else if (!schedule_find(&s, at, p->group[0].rate, p->logged, p->nlogged)) {
            return unclear(t, path, err);
        }
        t->o.schedule = s.kind;
        t->o.warmup = (int)s.warmup;
    }
    if (!s.steps) /* of an epoch that is not known yet */
        return 0;
    schedule_begin(&s, &state);
    rate = schedule_rate(&s, at, &state);
    if (fabs(rate - p->group[0].rate) > RATE_NOISE * fabs(p->group[0].rate) &&
        launcher_is_front(&t->session->launcher) && !schedule_follows(s.kind))
        cmd_warn(t->session->cmd,
                 "%s: the rate of step %" PRIu64 " is %g there, and %g by "
                 "--lr-schedule %s",
                 path, t->state.step + 1, p->group[0].rate, rate,
                 schedule_names[s.kind]);
    return 0;
}

/* ---- the whole ---- */

/* How far it is. */
static int take_state(struct train *t, const struct progress *p, const char *path,
                      struct err *err)
{
    struct train_state *s = &t->state;
    const double most = 0x1p53;

    if (p->uneven)
        return err_set(err, ERR_NO,
                       "%s: some parameters have had more updates than others", path);
    if (!(p->updates >= 0 && p->updates < most) || p->updates != floor(p->updates))
        return err_set(err, ERR_INPUT, "%s: does not say how many updates it has had",
                       path);
    s->updates = (uint64_t)p->updates;
    s->step = p->steps == UINT64_MAX ? s->updates : p->steps;
    if (s->step < s->updates || s->step > INT32_MAX)
        return err_set(err, ERR_INPUT, "%s: %" PRIu64 " updates in %" PRIu64 " steps",
                       path, s->updates, s->step);
    if (p->scheduled < s->step) /* steps without an update */
        s->scaler.overflowed = s->step - p->scheduled;
    return 0;
}

int train_from_take(struct train *t, bool anew, struct err *err)
{
    const struct checkpoint *c = t->session->checkpoint;
    const struct progress *p = &c->source.progress;
    struct train_options *o = &t->o;
    enum decay_kind kind = DECAY_USUAL;
    double decay = (double)NAN;

    if (c->sharded || !p->ngroups || c->ntensors == c->nweights)
        return err_set(err, ERR_INPUT,
                       "--resume-from %s: has no state of an optimizer of PyTorch%s",
                       c->path,
                       c->sharded ? "; --fork takes checkpoints of tp-run" : "");
    if (c->adapter)
        return err_set(err, ERR_NO, "--resume-from %s: not with an adapter", c->path);
    if (o->optimizer != OPTIMIZER_ADAMW)
        return err_set(err, ERR_USAGE,
                       "--resume-from %s: has moments of --optimizer "
                       "adamw, not %s",
                       c->path, optimizer_names[o->optimizer]);
    if (pytorchgroups_check(c, err) < 0 ||
        (anew && !is_given(t, "decays") && find_decay(&kind, &decay, c, err) < 0) ||
        take_state(t, p, c->path, err) < 0)
        return -1;
    if (!anew)
        return 0;
    take(t, "beta1", &o->beta1, p->group[0].beta1);
    take(t, "beta2", &o->beta2, p->group[0].beta2);
    take(t, "eps", &o->eps, p->group[0].eps);
    take(t, "lr", &o->lr,
         isnan(p->group[0].first_rate) ? p->group[0].rate : p->group[0].first_rate);
    if (!is_given(t, "decays")) {
        o->decays = kind;
        take(t, "weight-decay", &o->decay, decay);
    }
    if (!o->steps && p->all <= INT32_MAX)
        o->steps = (int)p->all;
    return find_schedule(t, p, c->path, err);
}

void train_from_place(struct train *t)
{
    t->state.samples = t->state.step * (uint64_t)t->o.global;
}
