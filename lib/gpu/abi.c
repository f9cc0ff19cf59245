/* abi - what we say of NVIDIA's libraries is what their headers say */
#include "config.h"

#include <stddef.h>

#ifdef HAVE_CUBLASLT_H
#include <cublasLt.h>

#include "lib/gpu/cublaslt.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(LT_REAL_32F, CUDA_R_32F);
SAME(LT_REAL_16BF, CUDA_R_16BF);
SAME(LT_OP_N, CUBLAS_OP_N);
SAME(LT_OP_T, CUBLAS_OP_T);
SAME(LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(LT_PREF_MAX_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(LT_PREF_REDUCTION_MASK, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(LT_PREF_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(LT_PREF_ALIGN_A + 1, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(LT_PREF_ALIGN_A + 2, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(LT_PREF_ALIGN_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(LT_REDUCTION_NONE, CUBLASLT_REDUCTION_SCHEME_NONE);
SAME(sizeof(struct lt_algo), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(struct lt_heuristic), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(struct lt_heuristic, workspace),
     offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(struct lt_heuristic, state),
     offsetof(cublasLtMatmulHeuristicResult_t, state));
#else
typedef int abi_is_not_compared;
#endif
