/* schedule - learning rate schedules
 *
 * The formulas and defaults are those of transformers' optimization.py and, of
 * reduce_lr_on_plateau, of PyTorch's ReduceLROnPlateau. */
#include "lib/train/schedule.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

const char *const schedule_names[SCHEDULES + 1] = {
    [SCHEDULE_LINEAR] = "linear",
    [SCHEDULE_COSINE] = "cosine",
    [SCHEDULE_COSINE_WITH_RESTARTS] = "cosine_with_restarts",
    [SCHEDULE_POLYNOMIAL] = "polynomial",
    [SCHEDULE_CONSTANT] = "constant",
    [SCHEDULE_CONSTANT_WITH_WARMUP] = "constant_with_warmup",
    [SCHEDULE_INVERSE_SQRT] = "inverse_sqrt",
    [SCHEDULE_COSINE_WITH_MIN_LR] = "cosine_with_min_lr",
    [SCHEDULE_COSINE_WARMUP_WITH_MIN_LR] = "cosine_warmup_with_min_lr",
    [SCHEDULE_WARMUP_STABLE_DECAY] = "warmup_stable_decay",
    [SCHEDULE_PLATEAU] = "reduce_lr_on_plateau",
    [SCHEDULE_GREEDY] = "greedy",
};

const char *const schedule_curve_names[CURVES + 1] = { "linear", "cosine", "1-sqrt",
                                                       NULL };

static const double pi = 3.14159265358979323846;

/* ---- options ---- */

/* The options of each schedule, and of several, by their names on the command line. */
static const char *const takes[SCHEDULES] = {
    [SCHEDULE_LINEAR] = " warmup ",
    [SCHEDULE_COSINE] = " warmup cycles ",
    [SCHEDULE_COSINE_WITH_RESTARTS] = " warmup cycles ",
    [SCHEDULE_POLYNOMIAL] = " warmup min-lr power ",
    [SCHEDULE_CONSTANT] = " ",
    [SCHEDULE_CONSTANT_WITH_WARMUP] = " warmup ",
    [SCHEDULE_INVERSE_SQRT] = " warmup ",
    [SCHEDULE_COSINE_WITH_MIN_LR] = " warmup min-lr min-lr-ratio cycles ",
    [SCHEDULE_COSINE_WARMUP_WITH_MIN_LR] =
        " warmup min-lr min-lr-ratio cycles warmup-lr-ratio ",
    [SCHEDULE_WARMUP_STABLE_DECAY] =
        " warmup min-lr-ratio cycles decay-steps warmup-type decay-type ",
    [SCHEDULE_PLATEAU] = " min-lr factor threshold patience cooldown ",
    [SCHEDULE_GREEDY] = " min-lr max-lr factor threshold patience cooldown ",
};

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = words; (at = strstr(at, word)) != NULL; at += n)
        if (at[-1] == ' ' && at[n] == ' ')
            return true;
    return false;
}

bool schedule_takes(enum schedule_kind kind, const char *option)
{
    bool known = false;

    for (int i = 0; i < SCHEDULES; i++)
        known |= has_word(takes[i], option);
    return !known || has_word(takes[kind], option);
}

bool schedule_follows(enum schedule_kind kind)
{
    return kind == SCHEDULE_PLATEAU || kind == SCHEDULE_GREEDY;
}

bool schedule_is_timed(enum schedule_kind kind)
{
    return kind != SCHEDULE_CONSTANT && kind != SCHEDULE_CONSTANT_WITH_WARMUP &&
           kind != SCHEDULE_INVERSE_SQRT && !schedule_follows(kind);
}

/* X, or USUAL where it is not given. */
static double given(double x, double usual)
{
    return x < 0 ? usual : x;
}

static double least_of(const struct schedule *s)
{
    static const double usual[SCHEDULES] = {
        [SCHEDULE_POLYNOMIAL] = 1e-7, [SCHEDULE_GREEDY] = 1e-3
    };

    return given(s->o.least, usual[s->kind]);
}

/* The same as a share of the peak. */
static double least_ratio(const struct schedule *s)
{
    return s->o.least >= 0 ? s->o.least / s->base : given(s->o.least_ratio, 0);
}

int schedule_check(const struct schedule *s, struct err *err)
{
    const char *name = schedule_names[s->kind];
    const struct schedule_options *o = &s->o;
    bool cosine = s->kind == SCHEDULE_COSINE_WITH_MIN_LR ||
                  s->kind == SCHEDULE_COSINE_WARMUP_WITH_MIN_LR;

    if (cosine && (o->least < 0) == (o->least_ratio < 0))
        return err_set(err, ERR_USAGE,
                       "--lr-schedule %s: give either --min-lr or --min-lr-ratio",
                       name);
    if (s->kind == SCHEDULE_POLYNOMIAL && s->base <= least_of(s))
        return err_set(err, ERR_USAGE,
                       "--lr %g: --lr-schedule %s falls to --min-lr %g, which is not "
                       "below",
                       s->base, name, least_of(s));
    if (s->kind == SCHEDULE_WARMUP_STABLE_DECAY && o->decay_steps < 1)
        return err_set(err, ERR_USAGE, "--lr-schedule %s: give --decay-steps", name);
    if (s->kind == SCHEDULE_WARMUP_STABLE_DECAY &&
        s->warmup + (uint64_t)o->decay_steps > s->steps)
        return err_set(err, ERR_USAGE,
                       "--lr-schedule %s: --warmup %llu and --decay-steps %d are more "
                       "than --steps %llu",
                       name, (unsigned long long)s->warmup, o->decay_steps,
                       (unsigned long long)s->steps);
    if (schedule_follows(s->kind) && o->factor >= 1)
        return err_set(err, ERR_USAGE, "--factor %g: must be below 1", o->factor);
    return 0;
}

/* ---- functions of the step ---- */

static double at_least_one(double x)
{
    return x > 1 ? x : 1;
}

/* With R as the lowest. */
static double above(double factor, double r)
{
    return fmax(0, factor * (1 - r) + r);
}

static double wave(const struct schedule *s, double done)
{
    return 0.5 * (1 + cos(pi * given(s->o.cycles, 0.5) * 2 * done));
}

/* The first stage of warmup_stable_decay. */
static double rise(enum schedule_curve curve, double done)
{
    return curve == CURVE_LINEAR   ? done
           : curve == CURVE_COSINE ? 0.5 * (1 - cos(pi * done))
                                   : 1 - sqrt(1 - done);
}

/* And the last. */
static double fall(const struct schedule *s, double done)
{
    const enum schedule_curve curve = (enum schedule_curve)s->o.decay_curve;

    return curve == CURVE_LINEAR   ? 1 - done
           : curve == CURVE_COSINE ? wave(s, done)
                                   : 1 - sqrt(done);
}

static double three_stages(const struct schedule *s, uint64_t step)
{
    const uint64_t decay = (uint64_t)s->o.decay_steps;
    const uint64_t begin = s->steps > decay ? s->steps - decay : 0;
    const double r = least_ratio(s);

    if (step < s->warmup)
        return above(rise((enum schedule_curve)s->o.warmup_curve,
                          (double)step / at_least_one((double)s->warmup)),
                     r);
    if (step < begin)
        return 1;
    return step < s->steps ? above(fall(s, (double)(step - begin) / (double)decay), r)
                           : r;
}

/* cosine_warmup_with_min_lr: no step has the rate 0. */
static double from_first(const struct schedule *s, uint64_t step)
{
    const double at = (double)step, w = (double)s->warmup, n = (double)s->steps;
    const double first = s->o.warmup_ratio;

    if (step < s->warmup)
        return first < 0 ? (at + 1) / at_least_one(w)
                         : first + (1 - first) * at / at_least_one(w - 1);
    return above(wave(s, (at - w + 1) / at_least_one(n - w)), least_ratio(s));
}

double schedule_rate(const struct schedule *s, uint64_t step,
                     const struct schedule_state *state)
{
    const double at = (double)step, w = (double)s->warmup, n = (double)s->steps;
    const double base = s->base;
    double done;

    if (schedule_follows(s->kind))
        return state->rate;
    if (s->kind == SCHEDULE_CONSTANT)
        return base;
    if (s->kind == SCHEDULE_WARMUP_STABLE_DECAY)
        return base * three_stages(s, step);
    if (s->kind == SCHEDULE_COSINE_WARMUP_WITH_MIN_LR)
        return base * from_first(s, step);
    if (step < s->warmup)
        return base * (at / at_least_one(w));
    done = (at - w) / at_least_one(n - w);
    switch (s->kind) {
    case SCHEDULE_LINEAR:
        return base * fmax(0, (n - at) / at_least_one(n - w));
    case SCHEDULE_COSINE:
        return base * fmax(0, wave(s, done));
    case SCHEDULE_COSINE_WITH_MIN_LR:
        return base * above(wave(s, done), least_ratio(s));
    case SCHEDULE_COSINE_WITH_RESTARTS:
        return done >= 1
                   ? 0
                   : base *
                         fmax(0, 0.5 * (1 + cos(pi * fmod(given(s->o.cycles, 1) * done,
                                                          1))));
    case SCHEDULE_POLYNOMIAL: {
        double end = least_of(s);

        return step > s->steps
                   ? end
                   : (base - end) * pow(1 - (at - w) / (n - w), given(s->o.power, 1)) +
                         end;
    }
    case SCHEDULE_INVERSE_SQRT: {
        double scale = s->warmup ? w : 10000;

        return base / sqrt((at + scale - w) / scale);
    }
    default:
        return base;
    }
}

/* ---- finding a schedule ---- */

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

static bool fits(const struct schedule *s, uint64_t at, double rate,
                 const struct progress_rate *logged, size_t n)
{
    if (!is_near(schedule_rate(s, at, NULL), rate))
        return false;
    for (size_t i = 0; i < n; i++)
        if (logged[i].update <= at &&
            !is_near(schedule_rate(s, logged[i].update - 1, NULL), logged[i].rate))
            return false;
    return true;
}

/* Have A and B the same rates from update AT on? */
static bool ends_alike(const struct schedule *a, const struct schedule *b, uint64_t at)
{
    enum { TRIES = 64 };
    uint64_t step = at < a->steps ? (a->steps - at) / TRIES + 1 : 1;

    for (; at < a->steps; at += step)
        if (!is_near(schedule_rate(a, at, NULL), schedule_rate(b, at, NULL)))
            return false;
    return true;
}

bool schedule_find(struct schedule *s, uint64_t at, double rate,
                   const struct progress_rate *logged, size_t n)
{
    static const enum schedule_kind kinds[] = { SCHEDULE_CONSTANT, SCHEDULE_LINEAR,
                                                SCHEDULE_COSINE,
                                                SCHEDULE_CONSTANT_WITH_WARMUP };
    struct schedule found = *s;
    bool any = false;

    for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
        struct schedule x = *s;
        uint64_t most = kinds[k] == SCHEDULE_CONSTANT ? 0 : s->steps;

        x.kind = kinds[k];
        x.warmup = 0;
        while (x.warmup <= most && !fits(&x, at, rate, logged, n))
            x.warmup++;
        if (x.warmup > most)
            continue;
        if (any && !ends_alike(&found, &x, at))
            return false;
        if (!any)
            found = x;
        any = true;
    }
    if (any)
        *s = found;
    return any;
}

/* ---- schedules that follow losses ---- */

static const double EPS = 1e-8; /* a smaller change of the rate is none */
enum { PATIENCE = 10, RESETS = 500 };

void schedule_begin(const struct schedule *s, struct schedule_state *state)
{
    *state = (struct schedule_state){ .rate = s->base, .best = (double)INFINITY };
}

static void reduce(const struct schedule *s, struct schedule_state *state)
{
    const double factor = given(s->o.factor, s->kind == SCHEDULE_GREEDY ? 0.95 : 0.1);
    const double rate = fmax(state->rate * factor, least_of(s));

    if (state->rate - rate > EPS)
        state->rate = rate;
}

static void raise(const struct schedule *s, struct schedule_state *state)
{
    const double rate =
        fmin(state->rate / given(s->o.factor, 0.95), given(s->o.most, 1));

    if (rate - state->rate > EPS)
        state->rate = rate;
    state->resets = 0;
}

static bool is_better(const struct schedule *s, double loss, double best)
{
    return s->kind == SCHEDULE_GREEDY ? loss < best - given(s->o.threshold, 1e-6)
                                      : loss < best * (1 - given(s->o.threshold, 1e-4));
}

static void see_plateau(const struct schedule *s, struct schedule_state *state,
                        double loss, uint64_t patience)
{
    if (is_better(s, loss, state->best)) {
        state->best = loss;
        state->bad = 0;
    } else {
        state->bad++;
    }
    if (state->wait) {
        state->wait--;
        state->bad = 0;
    }
    if (state->bad > patience) {
        reduce(s, state);
        state->wait = (uint64_t)s->o.cooldown;
        state->bad = 0;
    }
}

/* arXiv:2512.14527 */
static void see_greedy(const struct schedule *s, struct schedule_state *state,
                       double loss, uint64_t patience)
{
    if (state->wait) {
        state->wait--;
        state->bad = state->good = 0;
        return;
    }
    if (is_better(s, loss, state->best)) {
        state->best = loss;
        state->bad = 0;
        state->good++;
    } else {
        state->bad++;
        state->good = 0;
    }
    if (state->good > patience) {
        raise(s, state);
        state->good = 0;
    } else if (state->bad > patience) {
        reduce(s, state);
        state->wait = (uint64_t)s->o.cooldown;
        state->bad = 0;
        if (state->rate <= least_of(s) && ++state->resets >= RESETS)
            schedule_begin(s, state);
    }
}

void schedule_see(const struct schedule *s, struct schedule_state *state, double loss)
{
    const uint64_t patience = s->o.patience < 0 ? PATIENCE : (uint64_t)s->o.patience;

    if (s->kind == SCHEDULE_GREEDY)
        see_greedy(s, state, loss, patience);
    else if (s->kind == SCHEDULE_PLATEAU)
        see_plateau(s, state, loss, patience);
}
