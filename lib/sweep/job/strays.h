/* strays - processes of a trial that have left its process group
 *
 * A child that calls setsid is not reached by a signal to its group.  The runner is a
 * subreaper (prctl(2)): when a command ends, what it leaves becomes the runner's child.
 * Whose it is, its environment tells, which has HPO_TRIAL_DIR. */
#ifndef LIB_SWEEP_JOB_STRAYS_H
#define LIB_SWEEP_JOB_STRAYS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* From here on, what children leave becomes this process's. */
void strays_adopt(void);
/* Send SIGKILL to the children of this process that belong to the trial in directory
 * DIR, or, INSIDE, to one in a directory there, and to what these leave; but to none of
 * KEEP[n].  Where the system has no /proc/PID/task/TID/children, none is found. */
void strays_end(const char *dir, bool inside, const pid_t *keep, size_t n);
/* Send SIG, or with 0 none, to each process of this machine that belongs to the trial
 * in DIR; is there one? */
bool strays_signal(const char *dir, int sig);

#endif
