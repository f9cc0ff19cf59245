/* room - what the kernels of a program take beside their buffers */
#ifndef LIB_GPU_ROOM_H
#define LIB_GPU_ROOM_H

#include "lib/gpu/cuda.h"

/* Bytes of device memory. */
struct cuda_room_need {
    uint64_t room;             /* cuda_room */
    uint64_t workspace, parts; /* of products by cuBLASLt */
};

/* For steps of P within L on D; NULL: on a GPU with all that is used. */
struct cuda_room_need cuda_room_of(const struct device *d, const struct program *p,
                                   const struct room_limits *l);

#endif
