/* longformer - attention within a window and of global tokens (twin of
 * lib/cpu/attention/longformer.c)
 *
 * Beltagy et al. 2020, "Longformer", section 3.1; q, k, v, y [tokens][heads][dim].  A
 * block handles one query of a head; its warps take turns at the keys (see
 * attention.cu). */
#include "lib/gpu/warps.cuh"

static __global__ void globals_kernel(float *y, const float *q, const float *k,
                                      const float *v, struct globals a,
                                      struct span rows)
{
    SHARED(float, value, WARPS *GPU_VALUE_DIM);
    SHARED(float, max, WARPS);
    SHARED(float, sum, WARPS);
    struct shared_parts shared = { value, max, sum };
    uint64_t head = blockIdx.y, stride = a.heads * a.dim;

    EACH_ROW(i, rows)
    {
        struct part p = begin_part(shared, a.dim);
        int32_t text = text_at(&a.texts, i);
        int64_t end = text_end(&a.texts, text);
        bool global = a.mask[i] != 0;
        const float *qi;

        qi = (global ? a.q_all : q) + i * stride + head * a.dim;
        for (int64_t t = a.texts.first[text] + threadIdx.x / GPU_WARP; t < end;
             t += WARPS) {
            int64_t apart = t > i ? t - i : i - t;
            const float *kt = (global ? a.k_all : k) + t * stride + head * a.dim;
            const float *vt = (global ? a.v_all : v) + t * stride + head * a.dim;
            float s = 0;

            if (!global && apart >= a.window && !a.mask[t])
                continue;
            for (uint64_t d = threadIdx.x % GPU_WARP; d < a.dim; d += GPU_WARP)
                s += qi[d] * kt[d];
            add_key(&p, warp_sum(s) * (float)a.scale, vt, a.dim);
        }
        join_parts(y, false, i * stride + head * a.dim, &p, shared, a.dim);
    }
}

extern "C" void gpu_global_attention(float *y, const float *q, const float *k,
                                     const float *v, struct globals a, struct span rows,
                                     void *stream)
{
    if (rows.most && a.heads)
        LAUNCH(globals_kernel, dim3(gpu_blocks(rows.most, 1), (unsigned)a.heads, 1),
               GPU_THREADS, stream, y, q, k, v, a, rows);
}
