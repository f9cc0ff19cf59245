/* limits - what of this machine each of the jobs that run at the same time may use */
#ifndef LIB_SWEEP_JOB_LIMITS_H
#define LIB_SWEEP_JOB_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

/* Processors that can be named: as many as Linux knows. */
enum { LIMITS_WORDS = 8192 / (8 * (int)sizeof(unsigned long)) };

/* A set of processors, as sched_setaffinity(2) takes it. */
struct limits_cpus {
    unsigned long bits[LIMITS_WORDS];
};

struct limits {
    struct limits_cpus *cpus; /* [nslots], or NULL: all; owned */
    int nslots;               /* jobs that these serve; 0: as many as one likes */
    uint64_t memory_bytes;    /* of each process; 0: no limit */
    uint64_t output_bytes;    /* of standard output and error; 0: no limit */
};

/* Deal the processors that this process may use to slots of PER neighbours each (0:
 * not), and the machine's memory to slots of MEMORY_BYTES (0: not).  ERR_USAGE where
 * there is not enough for one. */
MUST_CHECK int limits_deal(struct limits *l, int per, uint64_t memory_bytes,
                           struct err *err);
void limits_clear(struct limits *l);

#endif
