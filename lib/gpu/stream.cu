/* stream - attention of a stream of predictions (twin of OP_STREAM in
 * lib/cpu/attention/attention.c)
 *
 * Qi et al. 2020, "ProphetNet", section 3.2: a query brings its biases by distance,
 * [rows][heads][buckets], and may have a key and a value of its own, at distance 0; the
 * other keys are then one further away.  q, y, own [rows][heads][dim], k, v
 * [keys][heads][dim].  A block handles one query of a head; its warps take turns at the
 * keys (see attention.cu). */
#include "lib/gpu/cached.cuh"
#include "lib/gpu/score.cuh"
#include "lib/gpu/warps.cuh"

template <class KEY>
static __device__ inline float score(const float *q, KEY k, uint64_t dim, double scale,
                                     float bias)
{
    float s = 0;

    for (uint64_t d = threadIdx.x % GPU_WARP; d < dim; d += GPU_WARP)
        s = fmaf(q[d], k[d], s);
    return fmaf(warp_sum(s), (float)scale, bias);
}

static __global__ void stream_kernel(float *y, const float *q, struct cached k,
                                     struct cached v, struct attention a,
                                     struct streams o, struct ranges r)
{
    SHARED(float, value, WARPS *GPU_VALUE_DIM);
    SHARED(float, max, WARPS);
    SHARED(float, sum, WARPS);
    struct shared_parts shared = { value, max, sum };
    struct range one = r.v[blockIdx.z];
    uint64_t head = blockIdx.y, dim = a.head_dim;

    for (int64_t i = blockIdx.x; i < one.rows; i += gridDim.x) {
        uint64_t at = (uint64_t)(one.row + i) * a.heads + head;
        const float *bias = o.biases + at * a.bias.rows;
        struct part p = begin_part(shared, dim);
        int64_t position = one.start + i, first, end;

        visible(&a, one, position, &first, &end);
        for (int64_t t = first + threadIdx.x / GPU_WARP; t < end; t += WARPS) {
            int64_t row = block_row(r, one, one.key_row + t);
            uint32_t from = (uint32_t)(head * dim);
            int64_t distance = one.first_key + t - position - (o.own_k ? 1 : 0);

            add_key(&p,
                    score(q + at * dim, cached_head{ cached_row(k, row), k, from }, dim,
                          a.scale, bias[bucket_of(distance, &a)]),
                    cached_head{ cached_row(v, row), v, from }, dim);
        }
        if (o.own_k && threadIdx.x < GPU_WARP)
            add_key(&p, score(q + at * dim, o.own_k + at * dim, dim, a.scale, bias[0]),
                    o.own_v + at * dim, dim);
        join_parts(y, false, at * dim, &p, shared, dim);
    }
}

extern "C" void gpu_stream(float *y, const float *q, struct cached k, struct cached v,
                           struct attention a, struct streams o, struct ranges r,
                           void *stream)
{
    if (r.most_rows && r.n && a.heads)
        LAUNCH(stream_kernel,
               dim3(gpu_blocks(r.most_rows, 1), (unsigned)a.heads, (unsigned)r.n),
               GPU_THREADS, stream, y, q, k, v, a, o, r);
}
