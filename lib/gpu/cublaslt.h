/* cublaslt - the part of NVIDIA's cuBLASLt that is used; it is loaded at run time
 *
 * Names, types and numbers as in cublasLt.h of CUDA 12 and 13 (the cuBLAS
 * documentation, "Using the cuBLASLt API"); lib/gpu/abi.c compares them with NVIDIA's
 * header if the build finds it. */
#ifndef LIB_GPU_CUBLASLT_H
#define LIB_GPU_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

enum {
    LT_COMPUTE_32F = 68,
    LT_REAL_32F = 0,
    LT_REAL_16F = 2,
    LT_REAL_16BF = 14,
    LT_POINTERS_DEVICE = 1,
    LT_OP_N = 0,
    LT_OP_T = 1,
    LT_DESC_POINTER_MODE = 2,
    LT_DESC_TRANSA = 3,
    LT_DESC_TRANSB = 4,
    LT_PREF_MAX_WORKSPACE = 1,
    LT_PREF_REDUCTION_MASK = 3,
    LT_PREF_ALIGN_A = 5, /* followed by B, C and D */
    LT_REDUCTION_COMPUTE_TYPE = 2,
};

struct lt_algo {
    uint64_t data[8];
};

struct lt_heuristic {
    struct lt_algo algo;
    size_t workspace;
    int state; /* 0: usable */
    float waves;
    int reserved[4];
};

/* FUNCTION(name, arguments); each returns 0 on success. */
#define LT_FUNCTIONS(FUNCTION)                                                        \
    FUNCTION(cublasLtCreate, (void **lt))                                             \
    FUNCTION(cublasLtDestroy, (void *lt))                                             \
    FUNCTION(cublasLtMatmulDescCreate, (void **desc, int compute, int scale))         \
    FUNCTION(cublasLtMatmulDescDestroy, (void *desc))                                 \
    FUNCTION(cublasLtMatmulDescSetAttribute,                                          \
             (void *desc, int attribute, const void *value, size_t size))             \
    FUNCTION(cublasLtMatrixLayoutCreate,                                              \
             (void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride)) \
    FUNCTION(cublasLtMatrixLayoutDestroy, (void *layout))                             \
    FUNCTION(cublasLtMatmulPreferenceCreate, (void **pref))                           \
    FUNCTION(cublasLtMatmulPreferenceDestroy, (void *pref))                           \
    FUNCTION(cublasLtMatmulPreferenceSetAttribute,                                    \
             (void *pref, int attribute, const void *value, size_t size))             \
    FUNCTION(cublasLtMatmulAlgoGetHeuristic,                                          \
             (void *lt, void *desc, void *a, void *b, void *c, void *d, void *pref,   \
              int most, struct lt_heuristic *out, int *found))                        \
    FUNCTION(cublasLtMatmul,                                                          \
             (void *lt, void *desc, const void *alpha, const void *a, void *a_layout, \
              const void *b, void *b_layout, const void *beta, const void *c,         \
              void *c_layout, void *d, void *d_layout, const struct lt_algo *algo,    \
              void *workspace, size_t bytes, void *stream))

#endif
