/* guard - a process that outlives a runner which is killed, and ends its commands
 *
 * What SIGKILL ends can end nothing itself: its commands would go on, and keep devices
 * that the next run deals to others.  The guard sees the process group of every command
 * that runs; when the runner is gone, it sends SIGTERM to those that are left and to
 * their strays, and SIGKILL JOB_GRACE seconds later. */
#ifndef LIB_SWEEP_JOB_GUARD_H
#define LIB_SWEEP_JOB_GUARD_H

#include <sys/types.h>

#include "lib/base/err.h"

struct guard {
    pid_t pid;
    int fd;                 /* closed by the end of the runner; -1: there is no guard */
    volatile pid_t *groups; /* [slots], shared with the guard; 0: nothing runs there */
    volatile int *trials;   /* [slots], shared as well: whose they are */
    char *base;             /* shared: where the trials' directories are */
    int slots;
};

/* Begin, for commands in so many SLOTS; the guard keeps no files of the caller's open.
 */
MUST_CHECK int guard_open(struct guard *g, int slots, struct err *err);
/* Where the directories of the trials are, by which their strays are known. */
void guard_name(struct guard *g, const char *base);
/* What runs in SLOT now, for trial NUMBER. */
void guard_set(struct guard *g, int slot, pid_t group, int number);
void guard_close(struct guard *g); /* nothing runs; G may have fd -1 */

#endif
