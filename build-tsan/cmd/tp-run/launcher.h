/* launcher - who starts the ranks: this program, or mpirun and srun */
#ifndef CMD_TP_RUN_LAUNCHER_H
#define CMD_TP_RUN_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/cmd.h"
#include "lib/run/launch.h"

struct launcher {
    int timeout_s;      /* of a rank of ours that is stopped; 0: none */
    struct comm *world; /* of MPI; NULL: this program starts the ranks */
    int err_fd;         /* standard error, of a rank that keeps quiet; else -1 */
};

/* NAME is auto (mpirun's and srun's ranks are told by their environment), local or mpi.
 * Ranks of MPI but the first say nothing from now on.  Release with launcher_close,
 * also after a failure. */
MUST_CHECK int launcher_open(struct launcher *l, const char *name, struct err *err);
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

/* Run MAIN on NRANKS ranks; the exit status, without what CMD says. */
int launcher_run(struct launcher *l, const struct cmd *cmd, int nranks, rank_main main,
                 void *arg);

#endif
