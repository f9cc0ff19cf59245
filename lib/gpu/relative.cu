/* relative - attention with scores of content and positions (twin of
 * lib/cpu/attention/relative.c)
 *
 * He et al. 2021, "DeBERTa", eq. 4: the score of query i and key j is q_i k_j + q_i p_r
 * + k_j u_r; p and u [rows][heads][dim] are the position table projected as keys and as
 * queries, r is the row for the distance i - j; q, k, v, y [tokens][heads][dim].  A
 * block handles one query of a head; its warps take turns at the keys (see
 * attention.cu). */
#include "lib/gpu/warps.cuh"

static __global__ void relate_kernel(float *y, const float *q, const float *k,
                                     const float *v, struct relation a,
                                     struct span rows)
{
    SHARED(float, value, WARPS *GPU_VALUE_DIM);
    SHARED(float, max, WARPS);
    SHARED(float, sum, WARPS);
    struct shared_parts shared = { value, max, sum };
    unsigned lane = threadIdx.x % GPU_WARP;
    uint64_t head = blockIdx.y, stride = a.heads * a.dim;

    EACH_ROW(i, rows)
    {
        const float *qi = q + i * stride + head * a.dim;
        const float *far = a.q_far + i * stride + head * a.dim;
        struct part part = begin_part(shared, a.dim);
        float same = 0, other = 0;
        int32_t text = text_at(&a.queries, i);
        int64_t low = a.queries.first[text], seen = a.keys.first[text];
        int64_t keys = text_end(&a.keys, text), tokens = a.tokens.first[text];
        int64_t at = pooled_token(i - low, a.pool, a.pool.times);
        bool nowhere = a.pool.apart && i == low;
        int32_t type = a.q_type ? a.type[tokens + (i == low ? 0 : at)] : 0;

        for (uint64_t d = lane; d < a.dim && a.q_type; d += GPU_WARP) {
            float x = a.q_type[i * stride + head * a.dim + d];
            uint64_t first = a.other_first ? stride : 0;

            same += x * widen(a.types.format, a.types.data, first + head * a.dim + d);
            other += x * widen(a.types.format, a.types.data,
                               stride - first + head * a.dim + d);
        }
        same = warp_sum(same);
        other = warp_sum(other);
        for (int64_t t = seen + threadIdx.x / GPU_WARP; t < keys; t += WARPS) {
            bool placed = !nowhere && !(a.pool.apart && t == seen);
            int64_t from = pooled_token(t - seen, a.pool, a.keys_pooled);
            int64_t r = placed ? positions_row(at - from, a.span, a.far) : 0;
            const float *kt = k + t * stride + head * a.dim;
            const float *vt = v + t * stride + head * a.dim;
            const float *p = a.as_key + r * stride + head * a.dim;
            const float *u = a.as_query ? a.as_query + r * stride + head * a.dim : 0;
            float s = 0;

            for (uint64_t d = lane; d < a.dim; d += GPU_WARP)
                s += qi[d] * kt[d] + (placed ? far[d] * p[d] : 0) +
                     (u ? kt[d] * u[d] : 0);
            s = warp_sum(s);
            if (a.q_type && placed) {
                int32_t key = a.type[tokens + (t == seen ? 0 : from)];

                s += type == key || type == a.any_type || key == a.any_type ? same
                                                                            : other;
            }
            add_key(&part, s * (float)a.scale, vt, a.dim);
        }
        join_parts(y, false, i * stride + head * a.dim, &part, shared, a.dim);
    }
}

extern "C" void gpu_relate(float *y, const float *q, const float *k, const float *v,
                           struct relation a, struct span rows, void *stream)
{
    if (rows.most && a.heads)
        LAUNCH(relate_kernel, dim3(gpu_blocks(rows.most, 1), (unsigned)a.heads, 1),
               GPU_THREADS, stream, y, q, k, v, a, rows);
}
