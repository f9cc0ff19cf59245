/* gpuround - the launcher of stochastic rounding (rounding.cu) */
#ifndef LIB_GPU_GPUROUND_H
#define LIB_GPU_GPUROUND_H

#include "lib/device/rounding.h"

#ifdef __cplusplus
extern "C" {
#endif

/* R's arrays are in memory of the device. */
void gpu_round(struct rounding r, void *stream);

#ifdef __cplusplus
}
#endif

#endif
