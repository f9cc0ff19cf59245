/* room - what the kernels of a program take beside their buffers
 *
 * No CUDA is needed: a prediction asks the same as the backend. */
#ifndef LIB_GPU_ROOM_H
#define LIB_GPU_ROOM_H

#include "lib/device/device.h"
#include "lib/gpu/bounds.h"

/* Bytes of device memory. */
struct gpu_room {
    uint64_t room;      /* cuda_room */
    uint64_t workspace; /* of products by cuBLASLt, */
    uint64_t parts[2];  /* and of their operands in parts (blas.h) */
};

/* For steps of P within L. */
struct gpu_room gpu_room_of(const struct gpu_facts *gpu, const struct program *p,
                            const struct room_limits *l);
/* Is there a kernel for the fused OP, with a cache of that format? */
bool gpu_fuses(enum op op, enum format cache);
/* Which operands kernels take in bf16 (backend.bf16). */
extern const unsigned gpu_bf16[OP_COUNT];
/* Adds them to LIST by name. */
void gpu_room_add(struct ledger *list, const struct gpu_room *need);

#endif
