/* mpi-ranks - the exchanges of all-ranks among the ranks that mpirun has started */
#include <stdio.h>

#include "lib/comm/mpi.h"
#include "tests/all-ranks.h"

int main(void)
{
    struct err err = { .text = "" };
    struct comm *world;
    int ret;

    if (mpi_open(&world, &err) < 0) {
        fprintf(stderr, "mpi-ranks: %s\n", err.text);
        return (int)err.kind;
    }
    ret = exchange_all(world, &err);
    for (unsigned seed = 0; seed < 4 && ret == 0; seed++)
        ret = overlap_all(world, seed, &err);
    if (ret == 0)
        ret = wait_otherwise(world, &err);
    if (ret < 0) {
        fprintf(stderr, "mpi-ranks: %s\n", err.text);
        mpi_abort((int)err.kind);
    }
    mpi_close(world);
    return 0;
}
