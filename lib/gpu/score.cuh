/* score - the keys that a query sees, and its score with each
 *
 * Shared by the attention kernels, which must agree to the bit on equal products: FMAs
 * are written explicitly. */
#ifndef LIB_GPU_SCORE_CUH
#define LIB_GPU_SCORE_CUH

#include "lib/device/positions.h"
#include "lib/gpu/device.cuh"

/* s + the dot product of A and B */
static __device__ inline float dot4(float4 a, float4 b, float s)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, s))));
}

static __device__ inline float alibi_slope(const struct attention *a, uint64_t head)
{
    uint64_t global = positions_head(head, a->heads / a->kv_heads, a->group_start,
                                     a->per_group, a->within_start);

    return (float)(positions_slope(global, a->all_heads) * a->alibi);
}

/* The bucket of a key at DISTANCE from its query. */
static __device__ inline uint64_t bucket_of(int64_t distance, const struct attention *a)
{
    return positions_bucket(distance, a->bias.rows, a->far, !a->causal);
}

/* The score from a product: scaled, biased by distance, and capped. */
static __device__ inline float score_of(const struct attention *a, float product,
                                        uint64_t head, float slope, int64_t distance)
{
    float s = fmaf(product, (float)a->scale, slope * (float)distance);

    if (a->bias.data)
        s += widen(a->bias.format, a->bias.data,
                   bucket_of(distance, a) * a->bias.cols + a->bias_first + head);
    if (a->softcap > 0)
        s = (float)a->softcap * tanhf(s / (float)a->softcap);
    return s;
}

/* The attention sink of HEAD; -INFINITY: none. */
static __device__ inline float sink_of(const struct attention *a, uint64_t head)
{
    if (!a->sinks.data)
        return -INFINITY;
    return widen(a->sinks.format, a->sinks.data,
                 positions_head(head, a->heads / a->kv_heads, a->sink_group,
                                a->sink_per, a->sink_within));
}

/* The keys visible to the query at POSITION: [*first, *end), relative to the range's
 * first key. */
static __device__ inline void visible(const struct attention *a, struct range r,
                                      int64_t position, int64_t *first, int64_t *end)
{
    positions_visible(position, r.first_key, r.keys, (int64_t)a->window, a->causal,
                      a->chunked, first, end);
}

#endif
