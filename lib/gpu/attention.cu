/* attention - softmax(scale q k^T) v over the keys that each query may see
 *
 * Vaswani et al. 2017, eq. 1; q [rows][heads][head_dim], k [keys][kv_heads][head_dim],
 * v [keys][kv_heads][value_cols], y [rows][heads][value_dim].  All keep a maximum, a
 * sum and a weighted sum of values, which are made smaller when a larger score comes
 * (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax").
 *
 * For few queries a block takes one query of a head, and its warps take keys by turns.
 * For many it takes 32 queries and reads keys and values once for all of them, 32 at a
 * time (Dao et al. 2022, "FlashAttention", section 3.1), in f32. */
#include "lib/gpu/device.cuh"

enum { WARPS = GPU_THREADS / GPU_WARP };
/* The tiled kernel: queries and keys of a tile, columns at most; from how many queries.
 */
enum {
    QUERIES = 32,
    KEYS = 32,
    TILED_DIM = 128,
    TILED_THREADS = 128,
    LANES = 8, /* that share a pair of queries */
    MANY = 8
};

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
                   bucket_of(distance, a) * a->bias.cols + a->bias_first + head);
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

    if (a->chunked)
        window = position % window + 1;

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

/* Rows of a tile in shared memory, in float4: one more than the columns need, so that
 * lanes that read rows read other banks. */
enum { STRIDE = TILED_DIM / 4 + 1 };

/* ROW [cols] of the keys or values FIRST to END, at FROM, to TILE; zeros behind END. */
static __device__ void load_rows(float4 *tile, const float *from, uint64_t row_cols,
                                 uint64_t first_col, uint64_t cols, struct ranges r,
                                 struct range one, int64_t first, int64_t end)
{
    unsigned each = (unsigned)(cols / 4);

    for (unsigned i = threadIdx.x; i < KEYS * each; i += TILED_THREADS) {
        int64_t t = first + i / each;
        float4 f = { 0, 0, 0, 0 };

        if (t < end) {
            int64_t row = block_row(r, one, one.key_row + t);

            f = *(const float4 *)(from + row * row_cols + first_col + i % each * 4);
        }
        tile[i / each * STRIDE + i % each] = f;
    }
}

static __device__ inline float dot4(float4 a, float4 b, float s)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, s))));
}

/* Over the lanes that share a pair of queries. */
static __device__ inline float pair_max(float v)
{
    for (int k = LANES / 2; k; k /= 2) {
        float other = __shfl_xor_sync(~0u, v, k);

        v = other > v ? other : v;
    }
    return v;
}

static __device__ inline float pair_sum(float v)
{
    for (int k = LANES / 2; k; k /= 2)
        v += __shfl_xor_sync(~0u, v, k);
    return v;
}

/* Lane X of the LANES of pair Y has queries 2 Y and 2 Y + 1: of their scores those of
 * keys X, X + 8, ..., of their results columns 4 X to 4 X + 3, 4 X + 32, ...  Tiles of
 * keys begin at multiples of KEYS, so that a query's sums do not depend on the queries
 * beside it. */
static __global__ void tiled_kernel(float *y, float *lse, const float *q,
                                    const float *k, const float *v, struct attention a,
                                    struct ranges r)
{
    enum { EACH = KEYS / LANES, PARTS = TILED_DIM / (4 * LANES) };
    SHARED(float4, qs, QUERIES * STRIDE);
    SHARED(float4, tile, KEYS * STRIDE);
    SHARED(float, ps, QUERIES *(KEYS + 1));
    struct range one = r.v[blockIdx.z];
    unsigned x = threadIdx.x % LANES, pair = threadIdx.x / LANES;
    uint64_t head = blockIdx.y, kv = head / (a.heads / a.kv_heads);
    float slope = a.alibi != 0 ? alibi_slope(&a, head) : 0;
    float sink = sink_of(&a, head);

    for (int64_t at = blockIdx.x * (int64_t)QUERIES; at < one.rows;
         at += gridDim.x * (int64_t)QUERIES) {
        int64_t first[2], end[2], low, high, none;
        float4 acc[2][PARTS];
        float max[2], sum[2];

        for (unsigned i = threadIdx.x; i < QUERIES * (a.head_dim / 4);
             i += TILED_THREADS) {
            unsigned row = (unsigned)(i / (a.head_dim / 4)), d = i % (a.head_dim / 4);
            float4 f = { 0, 0, 0, 0 };

            if (at + row < one.rows)
                f = *(const float4 *)(q +
                                      ((one.row + at + row) * a.heads + head) *
                                          a.head_dim +
                                      d * 4);
            qs[row * STRIDE + d] = f;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            visible(&a, one, one.start + at + 2 * pair + i, &first[i], &end[i]);
            if (at + 2 * pair + i >= one.rows)
                end[i] = first[i];
            max[i] = sink;
            sum[i] = sink > -INFINITY;
#pragma unroll
            for (int j = 0; j < PARTS; j++)
                acc[i][j] = { 0, 0, 0, 0 };
        }
        visible(&a, one, one.start + at, &low, &none);
        visible(&a, one,
                one.start + (at + QUERIES < one.rows ? at + QUERIES : one.rows) - 1,
                &none, &high);
        for (int64_t t = low - low % KEYS; t < high; t += KEYS) {
            float s[2][EACH] = { { 0 } };

            load_rows(tile, k, a.kv_heads * a.head_dim, kv * a.head_dim, a.head_dim, r,
                      one, t, high);
            __syncthreads();
            for (unsigned d = 0; d < a.head_dim / 4; d++) {
                float4 q0 = qs[2 * pair * STRIDE + d],
                       q1 = qs[(2 * pair + 1) * STRIDE + d];

#pragma unroll
                for (int c = 0; c < EACH; c++) {
                    float4 key = tile[(x + c * LANES) * STRIDE + d];

                    s[0][c] = dot4(q0, key, s[0][c]);
                    s[1][c] = dot4(q1, key, s[1][c]);
                }
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float most = -INFINITY, f, all = 0;

#pragma unroll
                for (int c = 0; c < EACH; c++) {
                    int64_t key = t + x + c * LANES;

                    s[i][c] = key >= first[i] && key < end[i]
                                  ? score_of(&a, s[i][c], head, slope,
                                             one.first_key + key -
                                                 (one.start + at + 2 * pair + i))
                                  : -INFINITY;
                    most = s[i][c] > most ? s[i][c] : most;
                }
                most = pair_max(most);
                most = max[i] > most ? max[i] : most;
                f = most == -INFINITY ? 1 : expf(max[i] - most);
#pragma unroll
                for (int c = 0; c < EACH; c++) {
                    float p = most == -INFINITY ? 0 : expf(s[i][c] - most);

                    ps[(2 * pair + i) * (KEYS + 1) + x + c * LANES] = p;
                    all += p;
                }
                sum[i] = sum[i] * f + pair_sum(all);
                max[i] = most;
#pragma unroll
                for (int j = 0; j < PARTS; j++) {
                    acc[i][j].x *= f;
                    acc[i][j].y *= f;
                    acc[i][j].z *= f;
                    acc[i][j].w *= f;
                }
            }
            __syncthreads();
            load_rows(tile, v, a.kv_heads * a.value_cols, kv * a.value_cols,
                      a.value_dim, r, one, t, high);
            __syncthreads();
            for (unsigned c = 0; c < KEYS; c++) {
                float p0 = ps[2 * pair * (KEYS + 1) + c],
                      p1 = ps[(2 * pair + 1) * (KEYS + 1) + c];

#pragma unroll
                for (int j = 0; j < PARTS; j++)
                    if ((x + j * LANES) * 4 < a.value_dim) {
                        float4 f = tile[c * STRIDE + x + j * LANES];

                        acc[0][j].x = fmaf(p0, f.x, acc[0][j].x);
                        acc[0][j].y = fmaf(p0, f.y, acc[0][j].y);
                        acc[0][j].z = fmaf(p0, f.z, acc[0][j].z);
                        acc[0][j].w = fmaf(p0, f.w, acc[0][j].w);
                        acc[1][j].x = fmaf(p1, f.x, acc[1][j].x);
                        acc[1][j].y = fmaf(p1, f.y, acc[1][j].y);
                        acc[1][j].z = fmaf(p1, f.z, acc[1][j].z);
                        acc[1][j].w = fmaf(p1, f.w, acc[1][j].w);
                    }
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint64_t row = ((uint64_t)(one.row + at + 2 * pair + i) * a.heads + head);
            float part = sum[i] > 0 ? 1 / sum[i] : 0;

            if (at + 2 * pair + i >= one.rows)
                continue;
#pragma unroll
            for (int j = 0; j < PARTS; j++)
                if ((x + j * LANES) * 4 < a.value_dim)
                    *(float4 *)(y + row * a.value_dim + (x + j * LANES) * 4) = {
                        acc[i][j].x * part, acc[i][j].y * part, acc[i][j].z * part,
                        acc[i][j].w * part
                    };
            if (lse && x == 0)
                lse[row] = sum[i] > 0 ? max[i] + logf(sum[i]) : -INFINITY;
        }
        __syncthreads();
    }
}

/* Can the tiled kernel do it? */
static bool fits_tiles(const float *y, const float *q, const float *k, const float *v,
                       const struct attention *a, const struct ranges *r)
{
    uintptr_t all = (uintptr_t)y | (uintptr_t)q | (uintptr_t)k | (uintptr_t)v;

    return r->most_rows >= MANY && all % 16 == 0 && a->head_dim <= TILED_DIM &&
           a->value_dim <= TILED_DIM &&
           (a->head_dim | a->value_dim | a->value_cols) % 4 == 0;
}

extern "C" void gpu_attention(float *y, float *lse, const float *q, const float *k,
                              const float *v, struct attention a, struct ranges r,
                              void *stream)
{
    if (a.heads && r.n && fits_tiles(y, q, k, v, &a, &r))
        LAUNCH(tiled_kernel,
               dim3(gpu_blocks(r.most_rows, QUERIES), (unsigned)a.heads, (unsigned)r.n),
               TILED_THREADS, stream, y, lse, q, k, v, a, r);
    else if (a.heads && r.n && r.most_rows)
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
