/* globals - attention within a window and of global tokens (twin of lib/cpu/globals.c)
 *
 * Beltagy et al. 2020, "Longformer", section 3.1; q, k, v, y [tokens][heads][dim].  A
 * block handles one query of a head; its warps take turns at the keys (see
 * attention.cu). */
#include "lib/gpu/device.cuh"

enum { WARPS = GPU_THREADS / GPU_WARP };

static __global__ void globals_kernel(float *y, const float *q, const float *k,
                                      const float *v, struct globals a,
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
        int64_t low = 0, end = rows.rows[0], from, to;
        float max = -INFINITY, sum = 0;
        const float *qi;
        bool global;

        for (int32_t s = 0; s < texts[0]; s++) {
            if (first[s] <= i)
                low = first[s];
            else if (first[s] < end)
                end = first[s];
        }
        from = low;
        to = low + 1;
        if (!a.first) {
            int64_t s = low;

            while (s < end && a.ids[s] != a.separator)
                s++;
            to = s < end ? s : low;
            if (a.after) {
                from = s + 2 < end ? s + 2 : end;
                to = end;
            }
        }
        global = i >= from && i < to;
        qi = (global ? a.q_all : q) + i * stride + head * a.dim;
        for (uint64_t d = lane; d < a.dim; d += GPU_WARP)
            own[d] = 0;
        for (int64_t t = low + warp; t < end; t += WARPS) {
            int64_t apart = t > i ? t - i : i - t;
            const float *kt = (global ? a.k_all : k) + t * stride + head * a.dim;
            const float *vt = (global ? a.v_all : v) + t * stride + head * a.dim;
            float s = 0, bigger, f, e;

            if (!global && apart >= a.window && (t < from || t >= to))
                continue;
            for (uint64_t d = lane; d < a.dim; d += GPU_WARP)
                s += qi[d] * kt[d];
            s = warp_sum(s) * (float)a.scale;
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
            y[i * stride + head * a.dim + d] = all / sum;
        }
        __syncthreads();
    }
}

extern "C" void gpu_global_attention(float *y, const float *q, const float *k,
                                     const float *v, struct globals a,
                                     const int32_t *first, const int32_t *texts,
                                     struct span rows, void *stream)
{
    if (rows.most && a.heads)
        LAUNCH(globals_kernel, dim3(gpu_blocks(rows.most, 1), (unsigned)a.heads, 1),
               GPU_THREADS, stream, y, q, k, v, a, first, texts, rows);
}
