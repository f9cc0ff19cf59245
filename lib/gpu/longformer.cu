/* longformer - attention within a window and of global tokens (twin of
 * lib/cpu/attention/longformer.c)
 *
 * Beltagy et al. 2020, "Longformer", section 3.1; q, k, v, y [tokens][heads][dim].  A
 * block handles one query of a head; its warps take turns at the keys (see
 * attention.cu). */
#include "lib/gpu/warps.cuh"

static __global__ void globals_kernel(float *y, const float *q, const float *k,
                                      const float *v, struct globals a,
                                      const int32_t *first, const int32_t *texts,
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
        int64_t low, end, from, to;
        const float *qi;
        bool global;

        text_of(i, first, texts, rows.rows[0], &low, &end);
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
        for (int64_t t = low + threadIdx.x / GPU_WARP; t < end; t += WARPS) {
            int64_t apart = t > i ? t - i : i - t;
            const float *kt = (global ? a.k_all : k) + t * stride + head * a.dim;
            const float *vt = (global ? a.v_all : v) + t * stride + head * a.dim;
            float s = 0;

            if (!global && apart >= a.window && (t < from || t >= to))
                continue;
            for (uint64_t d = threadIdx.x % GPU_WARP; d < a.dim; d += GPU_WARP)
                s += qi[d] * kt[d];
            add_key(&p, warp_sum(s) * (float)a.scale, vt, a.dim);
        }
        join_parts(y + i * stride + head * a.dim, &p, shared, a.dim);
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
