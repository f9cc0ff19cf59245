/* launch - the ranks as processes of this machine
 *
 * The caller's process forks the ranks and watches them.  A rank that fails ends all:
 * the others are stopped, and launch_ranks tells why in one line.  So does one that is
 * stopped (SIGSTOP) and does not go on in time.  The ranks die with their parent. */
#ifndef LIB_RUN_LAUNCH_H
#define LIB_RUN_LAUNCH_H

#include "lib/base/err.h"
#include "lib/comm/comm.h"

/* What a rank does; returns 0, or -1 with *err set. */
typedef int (*rank_main)(void *arg, struct comm *comm, struct err *err);

/* Run MAIN on NRANKS ranks (in this process when there is one) and wait for the end.
 * The error of the rank that failed first is passed on; one that died by a signal is
 * ERR_SYSTEM.  *signal is the signal (SIGINT, SIGTERM, SIGHUP, SIGPIPE) that ended the
 * run, else 0.  Nothing must be buffered in stdio when it is called. */
MUST_CHECK int launch_ranks(int nranks, rank_main main, void *arg, int *signal,
                            struct err *err);
/* The same; a rank that has been stopped for TIMEOUT_S seconds (0: any time) fails. */
MUST_CHECK int launch_ranks_within(int nranks, int timeout_s, rank_main main, void *arg,
                                   int *signal, struct err *err);

#endif
