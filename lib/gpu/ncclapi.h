/* ncclapi - the part of NVIDIA's NCCL that is used; it is loaded at run time
 *
 * Names, types and numbers as in nccl.h (the NCCL documentation, "NCCL API"), 2.18 or
 * newer; lib/gpu/abi.c compares them with NVIDIA's header if the build finds it. */
#ifndef LIB_GPU_NCCLAPI_H
#define LIB_GPU_NCCLAPI_H

#include <stddef.h>
#include <stdint.h>

enum {
    NCCL_SUCCESS = 0,
    NCCL_IN_PROGRESS = 7,
    NCCL_INT8 = 0, /* types */
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_SUM = 0, /* reductions */
    NCCL_ID_BYTES = 128,
    NCCL_OLDEST = 21800 /* oldest version: 10000 major + 100 minor + patch */
};

struct nccl_id {
    char internal[NCCL_ID_BYTES];
};

/* Options of a communicator, as of 2.18; newer libraries add defaults for the rest. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster, least_blocks, most_blocks;
    const char *net;
    int split_share;
};

#define NCCL_MAGIC     0xcafebeefu
#define NCCL_UNDEFINED INT32_MIN

/* FUNCTION(name, arguments); each returns an ncclResult_t. */
#define NCCL_FUNCTIONS(FUNCTION)                                                       \
    FUNCTION(ncclGetVersion, (int *version))                                           \
    FUNCTION(ncclGetUniqueId, (struct nccl_id * id))                                   \
    FUNCTION(ncclCommInitRankConfig, (void **comm, int size, struct nccl_id id,        \
                                      int rank, struct nccl_config *config))           \
    FUNCTION(ncclCommGetAsyncError, (void *comm, int *result))                         \
    FUNCTION(ncclCommFinalize, (void *comm))                                           \
    FUNCTION(ncclCommDestroy, (void *comm))                                            \
    FUNCTION(ncclCommAbort, (void *comm))                                              \
    FUNCTION(ncclGroupStart, (void))                                                   \
    FUNCTION(ncclGroupEnd, (void))                                                     \
    FUNCTION(ncclAllReduce, (const void *from, void *to, size_t n, int type, int how,  \
                             void *comm, void *stream))                                \
    FUNCTION(ncclAllGather, (const void *from, void *to, size_t n, int type,           \
                             void *comm, void *stream))                                \
    FUNCTION(ncclBroadcast, (const void *from, void *to, size_t n, int type, int root, \
                             void *comm, void *stream))                                \
    FUNCTION(ncclSend, (const void *from, size_t n, int type, int peer, void *comm,    \
                        void *stream))                                                 \
    FUNCTION(ncclRecv,                                                                 \
             (void *to, size_t n, int type, int peer, void *comm, void *stream))

#endif
