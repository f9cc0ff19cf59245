/* repeats - steps that repeat, while texts come and go
 *
 * Texts of several lengths share a few places.  Steps of single tokens replay earlier
 * ones, and each text is what the CPU makes of it alone. */
#ifndef TESTS_REPEATS_H
#define TESTS_REPEATS_H

#include "lib/device/device.h"

struct repeats {
    const struct backend *ops;
    size_t texts, new, places; /* at most 64; 100: new tokens of a text, at most */
    double least; /* part of the steps of single tokens that are replayed */
};

/* Runs model NAME of tests/data/models. */
int repeats_run(const struct repeats *how, const char *name, struct err *err);

#endif
