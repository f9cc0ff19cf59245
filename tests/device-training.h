/* device-training - training on the CPU and on another backend
 *
 * By as many processes as a layout has ranks; what comes out is compared, bit for
 * bit. */
#ifndef TESTS_DEVICE_TRAINING_H
#define TESTS_DEVICE_TRAINING_H

#include "lib/program/recompute.h"
#include "tests/device-models.h"

/* A model that is trained for two steps, and its layout; 0: what is usual. */
struct device_gradients {
    const char *model, *name;
    bool often;   /* in each run of the tests */
    double bound; /* losses, norms and gradients differ by at most so much */
    double floor; /* of a weight's largest, of that of all; 0: 1e-3 */
    int tp, sp, ep, dp, pp, across, zero, micro, length;
    enum format compute;
    struct recompute_plan recompute;
    double dropout, balance, smooth;
};

/* Trains some models on several layouts, saves them and loads them again, a test for
 * each.  Needs .ops, .begin, .count, .counts_host. */
void device_training(const struct device_models *d);
/* The store of parameters alone: weights that are loaded or drawn, gradients, sums over
 * micro-batches and ranks, the norm, updates.  Needs .ops and .begin. */
void device_store(const struct device_models *d);
/* A test for each of G[N].  Needs .ops and .has_run; .bound, if it is not 0, is a
 * factor of its bounds. */
void device_gradients(const struct device_models *d, const struct device_gradients *g,
                      size_t n);

#endif
