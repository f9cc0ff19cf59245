/* schedule - learning rate schedules, with the names of Hugging Face's Trainer */
#ifndef LIB_TRAIN_SCHEDULE_H
#define LIB_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum schedule {
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_COSINE_WITH_RESTARTS,
    SCHEDULE_POLYNOMIAL, /* decays to 1e-7 */
    SCHEDULE_CONSTANT,
    SCHEDULE_CONSTANT_WITH_WARMUP,
    SCHEDULE_INVERSE_SQRT,
    SCHEDULES
};
extern const char *const schedule_names[SCHEDULES + 1];

/* The learning rate of update STEP (from 0) of STEPS; the first WARMUP steps are
 * warm-up.  BASE is the peak rate. */
double schedule_rate(enum schedule name, double base, uint64_t step, uint64_t warmup,
                     uint64_t steps);
/* Does the rate at a step depend on the number of steps? */
bool schedule_is_timed(enum schedule name);

#endif
