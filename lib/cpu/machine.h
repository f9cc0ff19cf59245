/* machine - measures what the CPU reaches at this moment, to compare other rates
 * with */
#ifndef LIB_CPU_MACHINE_H
#define LIB_CPU_MACHINE_H

#include "lib/base/err.h"

/* The best of several runs on THREADS threads: *read, bytes/s read from memory, and
 * *product, FLOP/s of f32 matrix products (oneDNN's if it is built in). */
MUST_CHECK int machine_measure(int threads, double *read, double *product,
                               struct err *err);
/* Only *product; takes a few hundredths of a second. */
MUST_CHECK int machine_product(int threads, double *product, struct err *err);

#endif
