/* machine - what the CPU can do at this moment, to hold measured rates against */
#ifndef LIB_CPU_MACHINE_H
#define LIB_CPU_MACHINE_H

#include "lib/base/err.h"

/* The best of several runs on THREADS threads: bytes read from memory, and f32
 * operations of a matrix product (oneDNN's where it is built in), each a second. */
MUST_CHECK int machine_measure(int threads, double *read, double *product,
                               struct err *err);
/* The latter alone, in some hundredths of a second. */
MUST_CHECK int machine_product(int threads, double *product, struct err *err);

#endif
