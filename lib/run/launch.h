/* launch - starts the ranks as processes on this machine
 *
 * The caller's process forks the ranks and watches them.  When a rank fails, the others
 * are stopped and launch_ranks reports the cause.  A rank that stays stopped (SIGSTOP)
 * beyond the timeout counts as failed.  The ranks die with their parent. */
#ifndef LIB_RUN_LAUNCH_H
#define LIB_RUN_LAUNCH_H

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/comm/comm.h"

/* The main function of a rank; returns 0, or -1 with *err set. */
typedef int (*rank_main)(void *arg, struct comm *comm, struct err *err);

/* Runs MAIN on NRANKS ranks (in this process if NRANKS is 1) and waits for all.
 * Returns the error of the rank that failed first; a rank killed by a signal is
 * ERR_SYSTEM.  *signal is the signal (SIGINT, SIGTERM, SIGHUP, SIGPIPE) that ended the
 * run, else 0.  stdio must have no buffered output at the call. */
MUST_CHECK int launch_ranks(int nranks, rank_main main, void *arg, int *signal,
                            struct err *err);
/* How else ranks are watched. */
struct launch {
    int timeout_s;         /* a rank that has been stopped that long has failed; 0: no
                            * limit */
    volatile int *stop;    /* memory shared by the ranks, which can end on request: the
                            * first SIGINT, SIGTERM or SIGUSR1 is only stored there, and
                            * a second one, at least half a second later, ends them;
                            * NULL: the first one ends them */
    volatile int *hangups; /* shared too: SIGHUP adds one to it; NULL: it ends them */
    bool interrupts;       /* SIGINT is the ranks' own matter: here it does nothing */
};
MUST_CHECK int launch_ranks_as(const struct launch *how, int nranks, rank_main main,
                               void *arg, int *signal, struct err *err);
enum { LAUNCH_AGAIN_MS = 500 }; /* one request may arrive as two signals */

#endif
