/* cuda - a GPU as a device: what the backend's files share
 *
 * A rank has one GPU, by its number among the ranks of the machine, and one stream, in
 * which kernels and copies follow each other.  What goes to the device goes through
 * page-locked buffers that are used in turn. */
#ifndef LIB_GPU_CUDA_H
#define LIB_GPU_CUDA_H

#include <cuda_runtime_api.h>

#include "lib/device/device.h"

enum { CUDA_RING = 2, CUDA_PIECE = 4 << 20 /* bytes of a buffer */ };

struct device {
    int number; /* of the GPU */
    cudaStream_t stream;
    struct cuda_piece {
        char *memory;     /* page-locked; NULL: not yet used */
        cudaEvent_t free; /* when what it holds has gone */
    } ring[CUDA_RING];
    int next;      /* of the ring */
    bool has_bf16; /* its tensor cores multiply bf16 */
    void *room;    /* of cuda_room */
    uint64_t room_bytes;
    int rooms;         /* that there have been, of this and of blas */
    bool records_not;  /* it has been tried */
    struct blas *blas; /* NULL: our own kernels make all products */
    struct nccl *nccl; /* NULL: other ranks are reached through the host */
};

/* The TURN-th look, from 0, at what others do has seen nothing: look again at once at
 * first, and now and then later. */
void cuda_pause(int turn);

/* Returns BYTES of scratch memory, shared by all operations; NULL with *err set on
 * failure. */
void *cuda_room(struct device *d, uint64_t bytes, const char *what, struct err *err);

/* Set *err: WHAT has failed with status E; returns -1. */
int cuda_fail(const struct device *d, cudaError_t e, const char *what, struct err *err);

/* Return -1 with *err set unless CALL succeeds. */
#define CUDA_TRY(d, call, what, err)            \
    do {                                        \
        cudaError_t e_ = (call);                \
                                                \
        if (e_ != cudaSuccess)                  \
            return cuda_fail(d, e_, what, err); \
    } while (0)

extern kernel *const cuda_kernels[OP_COUNT];

#endif
