/* hostdevice - functions that C and CUDA compile from one source */
#ifndef LIB_BASE_HOSTDEVICE_H
#define LIB_BASE_HOSTDEVICE_H

#ifdef __CUDACC__
#define HOST_DEVICE static __host__ __device__ inline
#else
#define HOST_DEVICE static inline
#endif

#endif
