/* launcher - starts the ranks, or joins those that another launcher has started */
#ifndef CMD_TP_RUN_LAUNCHER_H
#define CMD_TP_RUN_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/cmd.h"
#include "lib/run/launch.h"

struct launcher {
    int timeout_s;      /* limit for a stopped local rank; 0: none */
    struct comm *world; /* ranks of a launcher; NULL: this program starts them */
    bool joined;        /* ranks that variables number; else MPI's */
    struct shm *shm;    /* their shared memory, if all are on this machine; or NULL */
    int local, here;    /* index of such a rank on its machine; ranks there */
    int err_fd;         /* saved standard error of a silenced rank; else -1 */
    struct launcher_stop *stop; /* the ranks end themselves on request; NULL: a signal
                                 * ends them */
    bool hangups;               /* after launcher_hear_hangups */
    bool interrupts; /* the ranks handle SIGINT themselves; set before launcher_run */
};

/* Memory shared by all local ranks. */
struct launcher_stop {
    volatile int signal;  /* signal that requests the end; 0: none */
    volatile int obeyed;  /* signal that the ranks have obeyed */
    volatile int hangups; /* SIGHUPs so far, after launcher_hear_hangups */
};

/* NAME is auto (by the environment), local, mpi, torchrun or env.  Ranks of a launcher
 * other than rank 0 are silenced.  Those that variables number (torchrun, env) wait at
 * most TIMEOUT_S seconds for each other; 0: without limit.  Call launcher_close also
 * after a failure. */
MUST_CHECK int launcher_open(struct launcher *l, const char *name, int timeout_s,
                             struct err *err);
void launcher_close(struct launcher *l);
/* Is this process rank 0, which reads inputs and prints? */
bool launcher_is_front(const struct launcher *l);
/* Do so many ranks communicate by TCP that MPI or NCCL serve better? */
bool launcher_is_crowded(const struct launcher *l);
/* Number of ranks on this machine, of NRANKS; *own is the index of this rank among
 * them, or -1 before the ranks are started. */
int launcher_local_ranks(const struct launcher *l, int nranks, int *own);

/* Collective: if RET is a failure on any rank, the first such rank's *err becomes the
 * result on all ranks. */
MUST_CHECK int launcher_agree(const struct launcher *l, int ret, struct err *err);
/* Collective: ERR_INPUT with WHAT unless the N bytes at P are equal on all ranks. */
MUST_CHECK int launcher_same(const struct launcher *l, const void *p, size_t n,
                             const char *what, struct err *err);

/* Gives this thread a stack for signal handlers with SA_ONSTACK: oneDNN's products use
 * the stack pointer for their own data. */
MUST_CHECK int launcher_signal_stack(struct err *err);
/* From now on a signal only sets *l->stop, and the ranks end themselves
 * (struct launch). */
MUST_CHECK int launcher_ask(struct launcher *l, struct err *err);
/* From now on SIGHUP, unless it is ignored, is counted and ends nothing. */
void launcher_hear_hangups(struct launcher *l);
/* Runs MAIN on NRANKS ranks; returns the exit status, after CMD has printed the
 * error. */
int launcher_run(struct launcher *l, const struct cmd *cmd, int nranks, rank_main main,
                 void *arg);

#endif
