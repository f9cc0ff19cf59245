/* abi - compile-time checks of cublaslt.h and ncclapi.h against NVIDIA's headers */
#include "config.h"

#include <stddef.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
typedef int abi_is_compared;

#ifdef HAVE_CUBLASLT_H
#include <cublasLt.h>

#include "lib/gpu/cublaslt.h"

SAME(LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(LT_REAL_32F, CUDA_R_32F);
SAME(LT_REAL_16F, CUDA_R_16F);
SAME(LT_REAL_16BF, CUDA_R_16BF);
SAME(LT_OP_N, CUBLAS_OP_N);
SAME(LT_OP_T, CUBLAS_OP_T);
SAME(LT_DESC_POINTER_MODE, CUBLASLT_MATMUL_DESC_POINTER_MODE);
SAME(LT_POINTERS_DEVICE, CUBLASLT_POINTER_MODE_DEVICE);
SAME(LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(LT_PREF_MAX_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(LT_PREF_REDUCTION_MASK, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(LT_PREF_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(LT_PREF_ALIGN_A + 1, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(LT_PREF_ALIGN_A + 2, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(LT_PREF_ALIGN_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(LT_REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(sizeof(struct lt_algo), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(struct lt_heuristic), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(struct lt_heuristic, workspace),
     offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(struct lt_heuristic, state),
     offsetof(cublasLtMatmulHeuristicResult_t, state));
#endif

#ifdef HAVE_NCCL_H
#include <nccl.h>

#include "lib/gpu/ncclapi.h"

SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_INT8, ncclInt8);
SAME(NCCL_FLOAT32, ncclFloat32);
SAME(NCCL_FLOAT64, ncclFloat64);
SAME(NCCL_SUM, ncclSum);
SAME(NCCL_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
SAME(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
SAME(NCCL_OLDEST, NCCL_VERSION(2, 18, 0));
SAME(offsetof(struct nccl_config, blocking), offsetof(ncclConfig_t, blocking));
SAME(offsetof(struct nccl_config, cluster), offsetof(ncclConfig_t, cgaClusterSize));
SAME(offsetof(struct nccl_config, net), offsetof(ncclConfig_t, netName));
SAME(offsetof(struct nccl_config, split_share), offsetof(ncclConfig_t, splitShare));
#endif
