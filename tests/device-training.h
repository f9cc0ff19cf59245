/* device-training - training on the CPU and on another backend
 *
 * By as many processes as a layout has ranks; what comes out is compared, bit for
 * bit. */
#ifndef TESTS_DEVICE_TRAINING_H
#define TESTS_DEVICE_TRAINING_H

#include "tests/device-models.h"

/* Trains some models on several layouts, saves them and loads them again, a test for
 * each.  Needs .ops, .begin, .count, .counts_host. */
void device_training(const struct device_models *d);
/* The store of parameters alone: weights that are loaded or drawn, gradients, sums over
 * micro-batches and ranks, the norm, updates.  Needs .ops and .begin. */
void device_store(const struct device_models *d);

#endif
