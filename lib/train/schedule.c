/* schedule - learning rate schedules
 *
 * The formulas and defaults are those of transformers' optimization.py: half a cosine
 * wave, one cycle, power 1. */
#include "lib/train/schedule.h"

#include <math.h>
#include <stddef.h>

const char *const schedule_names[SCHEDULES + 1] = {
    "linear",       "cosine",   "cosine_with_restarts",
    "polynomial",   "constant", "constant_with_warmup",
    "inverse_sqrt", NULL,
};

static const double pi = 3.14159265358979323846;

static double at_least_one(double x)
{
    return x > 1 ? x : 1;
}

bool schedule_is_timed(enum schedule name)
{
    return name != SCHEDULE_CONSTANT && name != SCHEDULE_CONSTANT_WITH_WARMUP &&
           name != SCHEDULE_INVERSE_SQRT;
}

double schedule_rate(enum schedule name, double base, uint64_t step, uint64_t warmup,
                     uint64_t steps)
{
    double s = (double)step, w = (double)warmup, n = (double)steps, done;
    const double end = 1e-7;

    if (name == SCHEDULE_CONSTANT)
        return base;
    if (step < warmup)
        return base * (s / at_least_one(w));
    done = (s - w) / at_least_one(n - w);
    switch (name) {
    case SCHEDULE_LINEAR:
        return base * fmax(0, (n - s) / at_least_one(n - w));
    case SCHEDULE_COSINE:
        return base * fmax(0, 0.5 * (1 + cos(pi * done)));
    case SCHEDULE_COSINE_WITH_RESTARTS:
        return done >= 1 ? 0 : base * fmax(0, 0.5 * (1 + cos(pi * fmod(done, 1))));
    case SCHEDULE_POLYNOMIAL:
        return step > steps ? end : (base - end) * (1 - (s - w) / (n - w)) + end;
    case SCHEDULE_INVERSE_SQRT: {
        double scale = warmup ? w : 10000;

        return base / sqrt((s + scale - w) / scale);
    }
    default:
        return base;
    }
}
