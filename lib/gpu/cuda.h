/* cuda - a GPU as a device: declarations shared by the backend's files
 *
 * A rank has one GPU, by its number among the ranks of the machine, and one stream,
 * which runs kernels and copies one after another.  Data goes to the device through
 * page-locked buffers, used in turn. */
#ifndef LIB_GPU_CUDA_H
#define LIB_GPU_CUDA_H

#include <cuda_runtime_api.h>

#include "lib/device/device.h"

enum { CUDA_RING = 2, CUDA_PIECE = 8 << 20 /* bytes of a buffer */ };

struct device {
    int number; /* CUDA's number of the GPU */
    cudaStream_t stream;
    struct cuda_piece {
        char *memory;     /* page-locked; NULL: not yet used */
        cudaEvent_t free; /* its copy to the device is done */
    } ring[CUDA_RING];
    int next;      /* index into ring */
    int threads;   /* that fill a buffer */
    bool has_bf16; /* its tensor cores multiply bf16 */
    void *room;    /* of cuda_room */
    uint64_t room_bytes;
    int rooms;        /* allocations so far of room and of blas */
    uint64_t grown;   /* those in a step: there should be none */
    bool records_not; /* it has been tried */
    bool records;     /* between record and recorded */
    struct recording *recordings;
    struct blas *blas; /* NULL: own kernels compute all products */
    struct nccl *nccl; /* NULL: communication goes through the host */
};

/* Called after the TURN-th unsuccessful poll, from 0: returns at once at first, lets
 * others run later, and sleeps a little after some milliseconds: a sleep is longer than
 * what is left of a step. */
void cuda_pause(int turn);

/* Destroys all graphs of D, and ends a capture.  NCCL waits for graphs that have its
 * operations when a communicator goes, even if it is aborted. */
void cuda_drop_graphs(struct device *d);

/* Returns BYTES of scratch memory, shared by all operations; NULL with *err set on
 * failure.  It is reserved when an engine opens (room.h). */
void *cuda_room(struct device *d, uint64_t bytes, const char *what, struct err *err);

/* Sets *err: WHAT failed with status E; returns -1. */
int cuda_fail(const struct device *d, cudaError_t e, const char *what, struct err *err);

/* Returns -1 from the calling function, with *err set, if CALL fails. */
#define CUDA_TRY(d, call, what, err)            \
    do {                                        \
        cudaError_t e_ = (call);                \
                                                \
        if (e_ != cudaSuccess)                  \
            return cuda_fail(d, e_, what, err); \
    } while (0)

extern kernel *const cuda_kernels[OP_COUNT];
extern array_kernel *const cuda_arrays[ARRAY_COUNT];
int cuda_round(struct device *d, const struct rounding *r, struct err *err);
extern const struct kernel_limits cuda_limits[OP_COUNT];

#endif
