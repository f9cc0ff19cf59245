/* warps - attention of one query of a head by a block, whose warps take turns at the
 * keys */
#ifndef LIB_GPU_WARPS_CUH
#define LIB_GPU_WARPS_CUH

#include "lib/gpu/quads.cuh"

enum { WARPS = GPU_THREADS / GPU_WARP };

/* Shared memory of a block: [WARPS][dim], and [WARPS] each. */
struct shared_parts {
    float *value, *max, *sum;
};

/* What a warp has of a query: the maximum of its scores, the sum of their exponentials,
 * and the values by them (Milakov and Gimelshein 2018, "Online normalizer calculation
 * for softmax", algorithm 3). */
struct part {
    float max, sum;
    float *value; /* [dim] */
};

static __device__ inline struct part begin_part(struct shared_parts s, uint64_t dim)
{
    struct part p = { -INFINITY, 0, s.value + threadIdx.x / GPU_WARP * dim };

    for (uint64_t d = threadIdx.x % GPU_WARP; d < dim; d += GPU_WARP)
        p.value[d] = 0;
    return p;
}

/* Adds the value V, an array, with the score S; all lanes of a warp. */
template <class VALUE>
static __device__ inline void add_key(struct part *p, float s, VALUE v, uint64_t dim)
{
    float most = s > p->max ? s : p->max;
    float f = expf(p->max - most), e = expf(s - most);

    p->sum = p->sum * f + e;
    for (uint64_t d = threadIdx.x % GPU_WARP; d < dim; d += GPU_WARP)
        p->value[d] = p->value[d] * f + e * v[d];
    p->max = most;
}

/* The numbers of Y, bf16 or f32, from AT on: DIM values by the softmax of all warps'
 * scores, or 0 without scores; all threads of the block.  The memory S can be used
 * again. */
static __device__ inline void join_parts(void *y, bool bf16, uint64_t at,
                                         const struct part *p, struct shared_parts s,
                                         uint64_t dim)
{
    float max = -INFINITY, sum = 0;

    if (threadIdx.x % GPU_WARP == 0) {
        s.max[threadIdx.x / GPU_WARP] = p->max;
        s.sum[threadIdx.x / GPU_WARP] = p->sum;
    }
    __syncthreads();
    for (unsigned w = 0; w < WARPS; w++)
        max = s.max[w] > max ? s.max[w] : max;
    for (unsigned w = 0; w < WARPS; w++)
        sum += s.sum[w] * expf(s.max[w] - max);
    for (uint64_t d = threadIdx.x; d < dim; d += blockDim.x) {
        float all = 0;

        for (unsigned w = 0; w < WARPS; w++)
            all += s.value[w * dim + d] * expf(s.max[w] - max);
        put_number(y, bf16, at + d, max == -INFINITY ? 0 : all / sum);
    }
    __syncthreads();
}

#endif
