/* attention-back - gradients of attention
 *
 * With p = exp(s - lse) of a score s, and delta = d . y of a query and head: dv = sum p
 * d, ds = p (d . v - delta), dq = sum ds k, dk = sum ds q (Dao et al. 2022,
 * "FlashAttention", algorithm 4; Dao 2023, "FlashAttention-2", section 3.1), where ds
 * is times the scale and the derivative of a cap.  Sums are made in two passes, of
 * queries and of keys, without atomic operations.  A warp has one query of a head, or
 * one key for all heads that read it; its lanes have the columns in turn. */
#include "lib/gpu/back.h"
#include "lib/gpu/score.cuh"

enum { WARPS = GPU_THREADS / GPU_WARP };

/* Columns lane, lane + 32 ... of N. */
template <int EACH>
static __device__ inline void load_lane(float *v, const float *from, uint64_t n)
{
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        uint64_t k = threadIdx.x % GPU_WARP + (uint64_t)i * GPU_WARP;

        v[i] = k < n ? from[k] : 0;
    }
}

template <int EACH>
static __device__ inline void store_lane(float *to, const float *v, uint64_t n)
{
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        uint64_t k = threadIdx.x % GPU_WARP + (uint64_t)i * GPU_WARP;

        if (k < n)
            to[k] = v[i];
    }
}

template <int EACH> static __device__ inline float dot(const float *a, const float *b)
{
    float sum = 0;

#pragma unroll
    for (int i = 0; i < EACH; i++)
        sum = fmaf(a[i], b[i], sum);
    return warp_sum(sum);
}

template <int EACH>
static __device__ inline void add_lane(float *y, const float *x, float by)
{
#pragma unroll
    for (int i = 0; i < EACH; i++)
        y[i] = fmaf(by, x[i], y[i]);
}

/* The weight of a score, and the gradient of its product before the scale. */
static __device__ inline float score_back(const struct attention *a, float p, float s,
                                          float dp, float delta)
{
    float cap = a->softcap > 0 ? s / (float)a->softcap : 0;

    return p * (dp - delta) * (1 - cap * cap);
}

/* delta[row][head] = d . y, and the gradients of the sinks.  If d is rounded elsewhere,
 * it is here: delta is subtracted from what is nearly equal to it. */
static __global__ void delta_kernel(struct attention_back b, struct attention a,
                                    struct span rows)
{
    int64_t n = (int64_t)rows.rows[0] * (int64_t)a.heads;

    for (int64_t i = blockIdx.x * (int64_t)WARPS + threadIdx.x / GPU_WARP; i < n;
         i += gridDim.x * (int64_t)WARPS) {
        const float *d = b.d + i * (int64_t)a.value_dim,
                    *y = b.made + i * (int64_t)a.value_dim;
        float sum = 0;

        for (uint64_t k = threadIdx.x % GPU_WARP; k < a.value_dim; k += GPU_WARP)
            sum = fmaf(b.rounded ? widen_bf16(narrow_bf16(d[k])) : d[k], y[k], sum);
        sum = warp_sum(sum);
        if (threadIdx.x % GPU_WARP == 0) {
            uint64_t head = (uint64_t)i % a.heads;

            b.delta[i] = sum;
            if (a.sinks.data && b.queries) /* the sink's value vector is 0 */
                b.y[i / (int64_t)a.heads * (int64_t)b.cols + b.sink_at + head] =
                    -expf(sink_of(&a, head) - b.lse[i]) * sum;
        }
    }
}

template <int EACH>
static __global__ void queries_kernel(struct attention_back b, struct attention a,
                                      struct ranges r)
{
    struct range one = r.v[blockIdx.z];
    uint64_t head = blockIdx.y, kv = head / (a.heads / a.kv_heads);
    uint64_t k_cols = a.kv_heads * a.head_dim, v_cols = a.kv_heads * a.value_cols;
    float slope = a.alibi != 0 ? alibi_slope(&a, head) : 0;
    bool first_lane = threadIdx.x % GPU_WARP == 0;

    for (int64_t i = blockIdx.x * (int64_t)WARPS + threadIdx.x / GPU_WARP; i < one.rows;
         i += gridDim.x * (int64_t)WARPS) {
        const int64_t row = one.row + i, at = row * (int64_t)a.heads + (int64_t)head;
        const float lse = b.lse[at], delta = b.delta[at];
        const int64_t position = one.start + i;
        float q[EACH], d[EACH], sum[EACH] = { 0 }, x[EACH];
        float *y = b.y + row * (int64_t)b.cols;
        int64_t first, end;

        load_lane<EACH>(q, b.q + at * (int64_t)a.head_dim, a.head_dim);
        load_lane<EACH>(d, b.d + at * (int64_t)a.value_dim, a.value_dim);
        visible(&a, one, position, &first, &end);
        for (uint64_t k = threadIdx.x % GPU_WARP; head == 0 && k < b.bias_cols;
             k += GPU_WARP)
            for (uint64_t t = 0; t < a.bias.rows; t++)
                if (k < a.bias_first || k >= a.bias_first + a.heads)
                    y[b.bias_at + t * b.bias_cols + k] = 0;
        for (uint64_t t = threadIdx.x % GPU_WARP; b.bias_cols && t < a.bias.rows;
             t += GPU_WARP)
            y[b.bias_at + t * b.bias_cols + a.bias_first + head] = 0;
        __syncwarp();
        for (int64_t j = first; j < end; j++) {
            const int64_t key = one.key_row + j, away = one.first_key + j - position;
            float s, dp, ds;

            load_lane<EACH>(x, b.v + key * (int64_t)v_cols + kv * a.value_cols,
                            a.value_dim);
            dp = dot<EACH>(d, x);
            load_lane<EACH>(x, b.k + key * (int64_t)k_cols + kv * a.head_dim,
                            a.head_dim);
            s = score_of(&a, dot<EACH>(q, x), head, slope, away);
            ds = score_back(&a, expf(s - lse), s, dp, delta);
            add_lane<EACH>(sum, x, (float)a.scale * ds);
            if (b.bias_cols && first_lane)
                y[b.bias_at + bucket_of(away, &a) * b.bias_cols + a.bias_first +
                  head] += ds;
        }
        store_lane<EACH>(y + head * a.head_dim, sum, a.head_dim);
    }
}

/* The queries of ONE among which are those that see key J. */
static __device__ inline void seen_by(const struct attention *a, struct range one,
                                      int64_t j, int64_t *first, int64_t *end)
{
    int64_t from = one.first_key + j - one.start;

    *first = a->causal && from > 0 ? from : 0;
    *end = one.rows;
    if (a->causal && a->window && from + (int64_t)a->window < *end)
        *end = from + (int64_t)a->window;
}

template <int EACH>
static __global__ void keys_kernel(struct attention_back b, struct attention a,
                                   struct ranges r)
{
    struct range one = r.v[blockIdx.z];
    uint64_t kv = blockIdx.y, per = a.heads / a.kv_heads;
    uint64_t k_cols = a.kv_heads * a.head_dim, v_cols = a.kv_heads * a.value_cols;

    for (int64_t j = blockIdx.x * (int64_t)WARPS + threadIdx.x / GPU_WARP; j < one.keys;
         j += gridDim.x * (int64_t)WARPS) {
        const int64_t key = one.key_row + j;
        float *y = b.y + ((b.queries ? one.row : one.key_row) + j) * (int64_t)b.cols;
        float k[EACH], v[EACH], dk[EACH] = { 0 }, dv[EACH] = { 0 }, x[EACH];
        int64_t first, end;

        load_lane<EACH>(k, b.k + key * (int64_t)k_cols + kv * a.head_dim, a.head_dim);
        load_lane<EACH>(v, b.v + key * (int64_t)v_cols + kv * a.value_cols,
                        a.value_dim);
        seen_by(&a, one, j, &first, &end);
        for (uint64_t head = kv * per; head < (kv + 1) * per; head++) {
            float slope = a.alibi != 0 ? alibi_slope(&a, head) : 0;

            for (int64_t i = first; i < end; i++) {
                const int64_t position = one.start + i;
                const int64_t at = (one.row + i) * (int64_t)a.heads + (int64_t)head;
                int64_t low, high;
                float s, p, dp;

                visible(&a, one, position, &low, &high);
                if (j < low || j >= high)
                    continue;
                load_lane<EACH>(x, b.d + at * (int64_t)a.value_dim, a.value_dim);
                dp = dot<EACH>(v, x);
                /* the score is needed before values get their part */
                float q[EACH];

                load_lane<EACH>(q, b.q + at * (int64_t)a.head_dim, a.head_dim);
                s = score_of(&a, dot<EACH>(q, k), head, slope,
                             one.first_key + j - position);
                p = expf(s - b.lse[at]);
                add_lane<EACH>(dv, x, p);
                add_lane<EACH>(dk, q,
                               (float)a.scale * score_back(&a, p, s, dp, b.delta[at]));
            }
        }
        store_lane<EACH>(y + b.k_at + kv * a.head_dim, dk, a.head_dim);
        store_lane<EACH>(y + b.v_at + kv * a.value_cols, dv, a.value_dim);
        for (uint64_t c = a.value_dim + threadIdx.x % GPU_WARP; c < a.value_cols;
             c += GPU_WARP)
            y[b.v_at + kv * a.value_cols + c] = 0;
    }
}

template <int EACH>
static void launch_back(const struct attention_back &b, const struct attention &a,
                        const struct ranges &r, void *stream)
{
    if (b.queries)
        LAUNCH(queries_kernel<EACH>,
               dim3(gpu_blocks(r.most_rows, WARPS), (unsigned)a.heads, (unsigned)r.n),
               GPU_THREADS, stream, b, a, r);
    if (b.keys)
        LAUNCH(
            keys_kernel<EACH>,
            dim3(gpu_blocks(r.most_keys, WARPS), (unsigned)a.kv_heads, (unsigned)r.n),
            GPU_THREADS, stream, b, a, r);
}

/* Rounds the operands, which follow each other in X, and the rest of the passes. */
static void launch_cores(const struct attention_back &b, const struct attention &a,
                         const struct ranges &r, uint64_t rows, void *stream)
{
    uint64_t q = rows * a.heads * a.head_dim, d = rows * a.heads * a.value_dim;
    uint64_t k = b.key_rows * a.kv_heads * a.head_dim;
    uint64_t v = b.key_rows * a.kv_heads * a.value_dim;
    struct attention_bf16 x;

    x.q = (uint16_t *)b.rounded;
    x.d = x.q + q;
    x.k = (uint16_t *)((char *)b.rounded + gpu_whole_lines((q + d) * sizeof(*x.q)));
    x.v = x.k + k;
    gpu_split_bf16(x.q, NULL, b.q, q, stream);
    gpu_split_bf16(x.d, NULL, b.d, d, stream);
    gpu_split_bf16(x.k, NULL, b.k, k, stream);
    gpu_split_bf16(x.v, NULL, b.v, v, stream);
    gpu_attention_back_cores(b, x, a, r, stream);
}

extern "C" void gpu_attention_back(struct attention_back b, struct attention a,
                                   struct ranges r, struct span rows, void *stream)
{
    uint64_t most = a.head_dim > a.value_dim ? a.head_dim : a.value_dim;

    if (!r.n || !rows.most || !a.heads)
        return;
    LAUNCH(delta_kernel, gpu_blocks(rows.most * a.heads, WARPS), GPU_THREADS, stream, b,
           a, rows);
    if (b.rounded) {
        launch_cores(b, a, r, rows.most, stream);
        return;
    }
    most <= GPU_WARP       ? launch_back<1>(b, a, r, stream)
    : most <= 2 * GPU_WARP ? launch_back<2>(b, a, r, stream)
    : most <= 4 * GPU_WARP ? launch_back<4>(b, a, r, stream)
    : most <= 8 * GPU_WARP ? launch_back<8>(b, a, r, stream)
                           : launch_back<32>(b, a, r, stream);
}
