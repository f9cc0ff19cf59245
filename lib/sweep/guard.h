/* guard - a process that outlives a runner which is killed, and ends its commands
 *
 * What SIGKILL ends can end nothing itself: its commands would go on, and keep devices
 * that the next run deals to others.  The guard is told of every command's process
 * group; when the runner is gone, it sends SIGTERM to those that are left, and SIGKILL
 * JOB_GRACE seconds later. */
#ifndef LIB_SWEEP_GUARD_H
#define LIB_SWEEP_GUARD_H

#include <sys/types.h>

#include "lib/base/err.h"

struct guard {
    pid_t pid;
    int fd; /* to the guard; -1: there is none */
};

/* Begin; the guard keeps no files of the caller's open. */
int guard_open(struct guard *g, struct err *err);
void guard_add(struct guard *g, pid_t group);
void guard_remove(struct guard *g, pid_t group);
void guard_close(struct guard *g); /* G may have fd -1 */

#endif
