/* joblog - what ran, in the columns of GNU parallel's --joblog */
#ifndef LIB_SWEEP_JOB_JOBLOG_H
#define LIB_SWEEP_JOB_JOBLOG_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct joblog_entry {
    int number;            /* the trial */
    double start, seconds; /* since the epoch; long */
    uint64_t output_bytes;
    int status;  /* as from waitpid */
    bool killed; /* by the sweep: exit value -1, as parallel writes of a timeout */
    const char *command;
};

/* Open PATH for appending and write the heading when it is empty; the descriptor is
 * closed on exec.  -1 with *err set. */
MUST_CHECK int joblog_open(const char *path, struct err *err);
MUST_CHECK int joblog_add(int fd, const char *path, const struct joblog_entry *e,
                          struct err *err);

#endif
