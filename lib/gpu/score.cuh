/* score - the keys that a query sees, and its score with each
 *
 * Shared by the attention kernels, which must agree to the bit on equal products: FMAs
 * are written explicitly. */
#ifndef LIB_GPU_SCORE_CUH
#define LIB_GPU_SCORE_CUH

#include "lib/gpu/device.cuh"

/* s + the dot product of A and B */
static __device__ inline float dot4(float4 a, float4 b, float s)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, s))));
}

/* ALiBi: the slope of HEAD of N heads.  With p the largest power of two that is at most
 * N, the first p heads have 2^(-8/p), 2^(-16/p), ...; the others have every second
 * slope of 2p heads (Press et al. 2022). */
static __device__ inline double slope_of(uint64_t head, uint64_t n)
{
    uint64_t power = 1;

    while (power * 2 <= n)
        power *= 2;
    if (head < power)
        return exp2(-8.0 * (double)(head + 1) / (double)power);
    return exp2(-8.0 * (double)(2 * (head - power) + 1) / (double)(2 * power));
}

static __device__ inline float alibi_slope(const struct attention *a, uint64_t head)
{
    uint64_t per = a->heads / a->kv_heads;
    uint64_t global =
        (a->group_start + head / per) * a->per_group + a->within_start + head % per;

    return (float)(slope_of(global, a->all_heads) * a->alibi);
}

/* T5's bucket of a key at DISTANCE from its query (Raffel et al. 2020, section 2.1). */
static __device__ inline uint64_t bucket_of(int64_t distance, const struct attention *a)
{
    uint64_t buckets = a->bias.rows, base = 0, exact, away;
    float f;

    if (!a->causal) {
        buckets /= 2;
        base = distance > 0 ? buckets : 0;
        away = (uint64_t)(distance < 0 ? -distance : distance);
    } else {
        away = distance < 0 ? (uint64_t)-distance : 0;
    }
    exact = buckets / 2;
    if (away < exact)
        return base + away;
    f = logf((float)away / (float)exact) / (float)log((double)a->far / (double)exact) *
        (float)(buckets - exact);
    away = exact + (uint64_t)(f > 0 ? f : 0);
    return base + (away < buckets - 1 ? away : buckets - 1);
}

/* The score from a product: scaled, biased by distance, and capped. */
static __device__ inline float score_of(const struct attention *a, float product,
                                        uint64_t head, float slope, int64_t distance)
{
    float s = fmaf(product, (float)a->scale, slope * (float)distance);

    if (a->bias.data)
        s += widen(a->bias.dtype, a->bias.data,
                   bucket_of(distance, a) * a->bias.cols + a->bias_first + head);
    if (a->softcap > 0)
        s = (float)a->softcap * tanhf(s / (float)a->softcap);
    return s;
}

/* The attention sink of HEAD; -INFINITY: none. */
static __device__ inline float sink_of(const struct attention *a, uint64_t head)
{
    uint64_t per = a->heads / a->kv_heads;

    if (!a->sinks.data)
        return -INFINITY;
    return widen(a->sinks.dtype, a->sinks.data,
                 (a->sink_group + head / per) * a->sink_per + a->sink_within +
                     head % per);
}

/* The keys visible to the query at POSITION: [*first, *end), relative to the range's
 * first key. */
static __device__ inline void visible(const struct attention *a, struct range r,
                                      int64_t position, int64_t *first, int64_t *end)
{
    int64_t low = r.first_key, high = low + r.keys, window = (int64_t)a->window;

    if (a->chunked)
        window = position % window + 1;
    if (a->causal && position + 1 < high)
        high = position + 1;
    if (window && position + 1 - window > low)
        low = position + 1 - window;
    if (window && !a->causal && position + window < high)
        high = position + window;
    if (low > r.first_key + r.keys) /* of a ring's other keys it sees none */
        low = r.first_key + r.keys;
    *first = low - r.first_key;
    *end = high > low ? high - r.first_key : *first;
}

#endif
