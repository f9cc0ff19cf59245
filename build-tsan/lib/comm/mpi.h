/* mpi - ranks that mpirun or srun has started
 *
 * The world of MPI as a group of ranks (comm.h).  Sums are made in rank order, so that
 * results are those of ranks on one machine, to the bit. */
#ifndef LIB_COMM_MPI_H
#define LIB_COMM_MPI_H

#include "lib/base/err.h"
#include "lib/comm/comm.h"

/* Begin MPI; once in a process, and ended by mpi_close.  ERR_SYSTEM in a build without
 * MPI. */
MUST_CHECK int mpi_open(struct comm **world, struct err *err);
void mpi_close(struct comm *world); /* NULL is allowed */
/* Ranks of this machine. */
int mpi_local_ranks(const struct comm *world, int *own);
/* End all ranks with STATUS. */
void mpi_abort(int status);

#endif
