/* schedule - learning rates over the steps of a training, by the names that Hugging
 * Face's trainer has for them */
#ifndef LIB_TRAIN_SCHEDULE_H
#define LIB_TRAIN_SCHEDULE_H

#include <stdint.h>

enum schedule {
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_COSINE_WITH_RESTARTS,
    SCHEDULE_POLYNOMIAL, /* to 1e-7 */
    SCHEDULE_CONSTANT,
    SCHEDULE_CONSTANT_WITH_WARMUP,
    SCHEDULE_INVERSE_SQRT,
    SCHEDULES
};
extern const char *const schedule_names[SCHEDULES + 1];

/* The rate of the update STEP, counted from 0, of STEPS, WARMUP of which warm up: BASE
 * times what the schedule says. */
double schedule_rate(enum schedule name, double base, uint64_t step, uint64_t warmup,
                     uint64_t steps);

#endif
