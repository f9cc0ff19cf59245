/* attention - softmax(scale q k^T) v over the keys that each query may see
 *
 * Vaswani et al. 2017, eq. 1; q [rows][heads][head_dim], k [keys][kv_heads][head_dim],
 * v [keys][kv_heads][value_cols], y [rows][heads][value_dim].  A block takes a query of
 * a head; its warps take keys by turns and keep a maximum, a sum and a weighted sum of
 * values each (Milakov and Gimelshein 2018, "Online normalizer calculation for
 * softmax"), which are put together at the end. */
#include "lib/gpu/device.cuh"

enum { WARPS = GPU_THREADS / GPU_WARP };

/* The slope of HEAD of N heads: 2^(-8/p), 2^(-16/p), ... for as many heads as the power
 * of two p below N, then every other one of 2p heads (Press et al. 2022). */
static __device__ double slope_of(uint64_t head, uint64_t n)
{
    uint64_t power = 1;

    while (power * 2 <= n)
        power *= 2;
    if (head < power)
        return exp2(-8.0 * (double)(head + 1) / (double)power);
    return exp2(-8.0 * (double)(2 * (head - power) + 1) / (double)(2 * power));
}

static __device__ float alibi_slope(const struct attention *a, uint64_t head)
{
    uint64_t per = a->heads / a->kv_heads;
    uint64_t global =
        (a->group_start + head / per) * a->per_group + a->within_start + head % per;

    return (float)(slope_of(global, a->all_heads) * a->alibi);
}

/* The bucket of a key at DISTANCE from its query (Raffel et al. 2020, section 2.1). */
static __device__ uint64_t bucket_of(int64_t distance, const struct attention *a)
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

/* A product's score: scaled, with what depends on the distance added, and capped. */
static __device__ float score_of(const struct attention *a, float product,
                                 uint64_t head, float slope, int64_t distance)
{
    float s = product * (float)a->scale + slope * (float)distance;

    if (a->bias.data)
        s += widen(a->bias.dtype, a->bias.data,
                   bucket_of(distance, a) * a->heads + head);
    if (a->softcap > 0)
        s = (float)a->softcap * tanhf(s / (float)a->softcap);
    return s;
}

/* The score that HEAD has of its own, -INFINITY: none. */
static __device__ float sink_of(const struct attention *a, uint64_t head)
{
    uint64_t per = a->heads / a->kv_heads;

    if (!a->sinks.data)
        return -INFINITY;
    return widen(a->sinks.dtype, a->sinks.data,
                 (a->sink_group + head / per) * a->sink_per + a->sink_within +
                     head % per);
}

/* The keys that the query at POSITION sees: from *first to *end, counted from the
 * range's first key. */
static __device__ void visible(const struct attention *a, struct range r,
                               int64_t position, int64_t *first, int64_t *end)
{
    int64_t low = r.first_key, high = low + r.keys, window = (int64_t)a->window;

    if (a->causal && position + 1 < high)
        high = position + 1;
    if (window && position + 1 - window > low)
        low = position + 1 - window;
    if (window && !a->causal && position + window < high)
        high = position + window;
    *first = low - r.first_key;
    *end = high > low ? high - r.first_key : *first;
}

static __global__ void attention_kernel(float *y, float *lse, const float *q,
                                        const float *k, const float *v,
                                        struct attention a, struct ranges r)
{
    SHARED(float, acc, WARPS *GPU_VALUE_DIM);
    SHARED(float, most, WARPS);
    SHARED(float, total, WARPS);
    struct range one = r.v[blockIdx.z];
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    uint64_t head = blockIdx.y, kv = head / (a.heads / a.kv_heads);
    float *own = acc + warp * a.value_dim;
    float slope = a.alibi != 0 ? alibi_slope(&a, head) : 0;
    float sink = sink_of(&a, head);

    for (int64_t i = blockIdx.x; i < one.rows; i += gridDim.x) {
        const float *qi = q + ((one.row + i) * a.heads + head) * a.head_dim;
        float *yi = y + ((one.row + i) * a.heads + head) * a.value_dim;
        int64_t position = one.start + i, first, end;
        float max = -INFINITY, sum = 0;

        for (uint64_t d = lane; d < a.value_dim; d += GPU_WARP)
            own[d] = 0;
        visible(&a, one, position, &first, &end);
        for (int64_t t = first + warp; t < end; t += WARPS) {
            int64_t row = block_row(r, one, one.key_row + t);
            const float *kt = k + (row * a.kv_heads + kv) * a.head_dim;
            const float *vt = v + (row * a.kv_heads + kv) * a.value_cols;
            float s = 0, bigger, f, p;

            for (uint64_t d = lane; d < a.head_dim; d += GPU_WARP)
                s = fmaf(qi[d], kt[d], s);
            s = score_of(&a, warp_sum(s), head, slope, one.first_key + t - position);
            bigger = s > max ? s : max;
            if (bigger == -INFINITY)
                continue;
            f = expf(max - bigger);
            p = expf(s - bigger);
            sum = sum * f + p;
            for (uint64_t d = lane; d < a.value_dim; d += GPU_WARP)
                own[d] = own[d] * f + p * vt[d];
            max = bigger;
        }
        if (lane == 0) {
            most[warp] = max;
            total[warp] = sum;
        }
        __syncthreads();
        max = sink;
        for (unsigned w = 0; w < WARPS; w++)
            max = most[w] > max ? most[w] : max;
        sum = sink > -INFINITY ? expf(sink - max) : 0;
        for (unsigned w = 0; w < WARPS && max > -INFINITY; w++)
            sum += total[w] * expf(most[w] - max);
        for (uint64_t d = threadIdx.x; d < a.value_dim; d += blockDim.x) {
            float all = 0;

            for (unsigned w = 0; w < WARPS && max > -INFINITY; w++)
                all += acc[w * a.value_dim + d] * expf(most[w] - max);
            yi[d] = sum > 0 ? all / sum : 0;
        }
        if (lse && threadIdx.x == 0)
            lse[(one.row + i) * a.heads + head] = sum > 0 ? max + logf(sum) : -INFINITY;
        __syncthreads();
    }
}

extern "C" void gpu_attention(float *y, float *lse, const float *q, const float *k,
                              const float *v, struct attention a, struct ranges r,
                              void *stream)
{
    if (a.heads && r.n && r.most_rows)
        LAUNCH(attention_kernel,
               dim3(gpu_blocks(r.most_rows, 1), (unsigned)a.heads, (unsigned)r.n),
               GPU_THREADS, stream, y, lse, q, k, v, a, r);
}

/* y, lse = those over the keys of both (y, lse) and (z, more): each is a mean weighted
 * by the exponentials that lse is the logarithm of the sum of. */
static __global__ void merge_kernel(float *y, float *lse, const float *z,
                                    const float *more, struct span rows, uint64_t heads,
                                    uint64_t dim)
{
    EACH_ROW(t, rows)
    for (uint64_t h = threadIdx.x; h < heads; h += blockDim.x) {
        uint64_t i = t * heads + h;
        float most = lse[i] > more[i] ? lse[i] : more[i], f, g;

        if (more[i] == -INFINITY)
            continue;
        f = expf(lse[i] - most);
        g = expf(more[i] - most);
        for (uint64_t k = 0; k < dim; k++)
            y[i * dim + k] = (f * y[i * dim + k] + g * z[i * dim + k]) / (f + g);
        lse[i] = most + logf(f + g);
    }
}

extern "C" void gpu_merge(float *y, float *lse, const float *z, const float *more,
                          struct span rows, uint64_t heads, uint64_t dim, void *stream)
{
    if (rows.most && heads)
        LAUNCH(merge_kernel, gpu_blocks(rows.most, 1), GPU_WARP, stream, y, lse, z,
               more, rows, heads, dim);
}
