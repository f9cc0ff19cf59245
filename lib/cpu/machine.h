/* machine - measures what the CPU reaches at this moment, to compare other rates
 * with */
#ifndef LIB_CPU_MACHINE_H
#define LIB_CPU_MACHINE_H

#include <stdbool.h>

#include "lib/base/format.h"
#include "lib/base/err.h"
#include "lib/device/device.h"

/* The best of several runs on THREADS threads.  Products are oneDNN's if it is built
 * in. */
MUST_CHECK int machine_measure(int threads, struct device_rates *rates,
                               struct err *err);
/* Bytes read from memory a second: the mean over at least SECONDS, to compare a mean
 * rate with. */
MUST_CHECK int machine_read(int threads, double seconds, double *rate, struct err *err);
/* The kernels that products of many rows with weights of TYPE use on this CPU; if x is
 * ROUNDED, those with --compute bf16. */
const char *machine_kernels(bool rounded, enum format type);
/* Only the f32 product; takes a few hundredths of a second. */
MUST_CHECK int machine_product(int threads, double *product, struct err *err);

#endif
