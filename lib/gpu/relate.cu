/* relate - attention with scores of content and positions (twin of lib/cpu/relate.c)
 *
 * He et al. 2021, "DeBERTa", eq. 4: the score of query i and key j is q_i k_j + q_i p_r
 * + k_j u_r; p and u [rows][heads][dim] are the position table projected as keys and as
 * queries, r is the row for the distance i - j; q, k, v, y [tokens][heads][dim].  A
 * block handles one query of a head; its warps take turns at the keys (see
 * attention.cu). */
#include "lib/gpu/device.cuh"

enum { WARPS = GPU_THREADS / GPU_WARP };

/* The same as in lib/cpu/relate.c. */
static __device__ int64_t row_of(const struct relation *a, int64_t distance)
{
    int64_t mid = a->span / 2, away = distance < 0 ? -distance : distance;
    int64_t row = distance;

    if (a->far && away > mid) {
        float f = ceilf(logf((float)away / (float)mid) /
                        logf((float)((double)(a->far - 1) / (double)mid)) *
                        (float)(mid - 1)) +
                  (float)mid;

        row = distance < 0 ? -(int64_t)f : (int64_t)f;
    }
    row += a->span;
    return row < 0 ? 0 : row > 2 * a->span - 1 ? 2 * a->span - 1 : row;
}

static __global__ void relate_kernel(float *y, const float *q, const float *k,
                                     const float *v, struct relation a,
                                     const int32_t *first, const int32_t *texts,
                                     struct span rows)
{
    SHARED(float, acc, WARPS *GPU_VALUE_DIM);
    SHARED(float, most, WARPS);
    SHARED(float, total, WARPS);
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    uint64_t head = blockIdx.y, stride = a.heads * a.dim;
    float *own = acc + warp * a.dim;

    EACH_ROW(i, rows)
    {
        const float *qi = q + i * stride + head * a.dim;
        const float *far = a.q_far + i * stride + head * a.dim;
        float same = 0, other = 0;
        float max = -INFINITY, sum = 0;
        int64_t low = 0, end = rows.rows[0], at, keys;
        bool nowhere, beyond;
        int32_t type;

        for (int32_t s = 0; s < texts[0]; s++) {
            if (first[s] <= i)
                low = first[s];
            else if (first[s] < end)
                end = first[s];
        }
        beyond = i - low >= pooled_rows(end - low, a.pool, a.pool.times);
        keys = beyond ? 0 : pooled_rows(end - low, a.pool, a.keys_pooled);
        at = pooled_token(i - low, a.pool, a.pool.times);
        nowhere = a.pool.apart && i == low;
        type = a.q_type && !beyond ? a.type[low + (i == low ? 0 : at)] : 0;
        for (uint64_t d = lane; d < a.dim && a.q_type; d += GPU_WARP) {
            float x = a.q_type[i * stride + head * a.dim + d];
            uint64_t first = a.other_first ? stride : 0;

            same += x * widen(a.types.dtype, a.types.data, first + head * a.dim + d);
            other += x * widen(a.types.dtype, a.types.data,
                               stride - first + head * a.dim + d);
        }
        same = warp_sum(same);
        other = warp_sum(other);
        for (uint64_t d = lane; d < a.dim; d += GPU_WARP)
            own[d] = 0;
        for (int64_t t = low + warp; t < low + keys; t += WARPS) {
            bool placed = !nowhere && !(a.pool.apart && t == low);
            int64_t from = pooled_token(t - low, a.pool, a.keys_pooled);
            int64_t r = placed ? row_of(&a, at - from) : 0;
            const float *kt = k + t * stride + head * a.dim;
            const float *vt = v + t * stride + head * a.dim;
            const float *p = a.as_key + r * stride + head * a.dim;
            const float *u = a.as_query ? a.as_query + r * stride + head * a.dim : 0;
            float s = 0, bigger, f, e;

            for (uint64_t d = lane; d < a.dim; d += GPU_WARP)
                s += qi[d] * kt[d] + (placed ? far[d] * p[d] : 0) +
                     (u ? kt[d] * u[d] : 0);
            s = warp_sum(s);
            if (a.q_type && placed) {
                int32_t key = a.type[low + (t == low ? 0 : from)];

                s += type == key || type == a.any_type || key == a.any_type ? same
                                                                            : other;
            }
            s *= (float)a.scale;
            bigger = s > max ? s : max;
            f = expf(max - bigger);
            e = expf(s - bigger);
            sum = sum * f + e;
            for (uint64_t d = lane; d < a.dim; d += GPU_WARP)
                own[d] = own[d] * f + e * vt[d];
            max = bigger;
        }
        if (lane == 0) {
            most[warp] = max;
            total[warp] = sum;
        }
        __syncthreads();
        max = -INFINITY;
        sum = 0;
        for (unsigned w = 0; w < WARPS; w++)
            max = most[w] > max ? most[w] : max;
        for (unsigned w = 0; w < WARPS; w++)
            sum += total[w] * expf(most[w] - max);
        for (uint64_t d = threadIdx.x; d < a.dim; d += blockDim.x) {
            float all = 0;

            for (unsigned w = 0; w < WARPS; w++)
                all += acc[w * a.dim + d] * expf(most[w] - max);
            y[i * stride + head * a.dim + d] = beyond ? 0 : all / sum;
        }
        __syncthreads();
    }
}

extern "C" void gpu_relate(float *y, const float *q, const float *k, const float *v,
                           struct relation a, const int32_t *first,
                           const int32_t *texts, struct span rows, void *stream)
{
    if (rows.most && a.heads)
        LAUNCH(relate_kernel, dim3(gpu_blocks(rows.most, 1), (unsigned)a.heads, 1),
               GPU_THREADS, stream, y, q, k, v, a, first, texts, rows);
}
