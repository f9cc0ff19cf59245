/* blocks - attention of long texts in blocks of tokens (twin of
 * lib/cpu/attention/bias.c)
 *
 * Zaheer et al. 2020, "Big Bird", section 2; positions_in_blocks says which keys a
 * query sees.  Shapes as in attention.cu.  A block handles one query of a head; its
 * warps take turns at the keys. */
#include "lib/gpu/cached.cuh"
#include "lib/gpu/score.cuh"
#include "lib/gpu/warps.cuh"

static __global__ void blocks_kernel(void *y, const float *q, struct cached k,
                                     struct cached v, struct attention a,
                                     struct ranges r)
{
    SHARED(float, value, WARPS *GPU_VALUE_DIM);
    SHARED(float, max, WARPS);
    SHARED(float, sum, WARPS);
    struct shared_parts shared = { value, max, sum };
    struct range one = r.v[blockIdx.z];
    uint64_t head = blockIdx.y, kv = head / (a.heads / a.kv_heads);
    float more = logf((float)a.copies);

    if ((uint64_t)one.keys <= a.over)
        return;
    for (int64_t i = blockIdx.x; i < one.rows; i += gridDim.x) {
        uint64_t at = (uint64_t)(one.row + i) * a.heads + head;
        struct part p = begin_part(shared, a.value_dim);
        const float *qi = q + at * a.head_dim;

        for (int64_t t = threadIdx.x / GPU_WARP; t < one.keys; t += WARPS) {
            int seen =
                positions_in_blocks(one.start + i, t, one.keys, (int64_t)a.block);
            int64_t row;
            float s = 0;

            if (seen == UNSEEN)
                continue;
            row = block_row(r, one, one.key_row + t);
            cached_head key = { cached_row(k, row), k, (uint32_t)(kv * a.head_dim) };
            for (uint64_t d = threadIdx.x % GPU_WARP; d < a.head_dim; d += GPU_WARP)
                s = fmaf(qi[d], key[d], s);
            s = warp_sum(s) * (float)a.scale + (seen == SEEN_COPIES ? more : 0);
            add_key(&p, s,
                    cached_head{ cached_row(v, row), v, (uint32_t)(kv * a.value_cols) },
                    a.value_dim);
        }
        join_parts(y, a.bf16, at * a.value_dim, &p, shared, a.value_dim);
    }
}

extern "C" void gpu_attention_blocks(void *y, const float *q, struct cached k,
                                     struct cached v, struct attention a,
                                     struct ranges r, void *stream)
{
    LAUNCH(blocks_kernel,
           dim3(gpu_blocks(r.most_rows, 1), (unsigned)a.heads, (unsigned)r.n),
           GPU_THREADS, stream, y, q, k, v, a, r);
}
