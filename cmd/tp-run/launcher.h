/* launcher - who starts the ranks: this program, mpirun and srun, or torchrun */
#ifndef CMD_TP_RUN_LAUNCHER_H
#define CMD_TP_RUN_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/cmd.h"
#include "lib/run/launch.h"

struct launcher {
    int timeout_s;      /* of a rank of ours that is stopped; 0: none */
    struct comm *world; /* of ranks that another has started; NULL: this program does */
    struct shm *shm;    /* what those of torchrun share; NULL: they are MPI's */
    int local;          /* number of this rank on its machine, of torchrun's */
    int err_fd;         /* standard error, of a rank that keeps quiet; else -1 */
    struct launcher_stop *stop; /* the ranks end by themselves; NULL: they are ended */
};

/* Memory that all local ranks share. */
struct launcher_stop {
    volatile int signal; /* that asks the ranks to end; 0: none has come */
    volatile int obeyed; /* they have ended because of it */
};

/* NAME is auto (mpirun's, srun's and torchrun's ranks are told by their environment),
 * local, mpi or torchrun.  Ranks that another has started but the first say nothing
 * from now on.  Who waits for another to come does so for at most TIMEOUT_S seconds; 0:
 * any time.  Release with launcher_close, also after a failure. */
MUST_CHECK int launcher_open(struct launcher *l, const char *name, int timeout_s,
                             struct err *err);
void launcher_close(struct launcher *l);
/* Is this the process that reads what the user gives, and prints? */
bool launcher_is_front(const struct launcher *l);
/* How many ranks share this machine, of NRANKS; *own is which of them this is, or -1
 * where they are yet to be started. */
int launcher_local_ranks(const struct launcher *l, int nranks, int *own);

/* RET and *err of all ranks: the error of the first rank that has one becomes
 * everybody's. */
MUST_CHECK int launcher_agree(const struct launcher *l, int ret, struct err *err);
/* The N bytes at P must be the same on all ranks, or it is ERR_INPUT with WHAT. */
MUST_CHECK int launcher_same(const struct launcher *l, const void *p, size_t n,
                             const char *what, struct err *err);

/* Ranks are to end by themselves when a signal asks them to (launch_ranks_until), which
 * *l->stop tells from now on. */
MUST_CHECK int launcher_ask(struct launcher *l, struct err *err);
/* Run MAIN on NRANKS ranks; the exit status, without what CMD says. */
int launcher_run(struct launcher *l, const struct cmd *cmd, int nranks, rank_main main,
                 void *arg);

#endif
