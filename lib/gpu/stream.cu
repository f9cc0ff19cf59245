/* stream - attention of a stream of predictions (twin of OP_STREAM in
 * lib/cpu/attention.c)
 *
 * Qi et al. 2020, "ProphetNet", section 3.2: a query brings its biases by distance,
 * [rows][heads][buckets], and may have a key and a value of its own, at distance 0; the
 * other keys are then one further away.  q, y, own [rows][heads][dim], k, v
 * [keys][heads][dim].  A block handles one query of a head; its warps take turns at the
 * keys (see attention.cu). */
#include "lib/gpu/score.cuh"

enum { WARPS = GPU_THREADS / GPU_WARP };

/* The maximum of some scores, the sum of their exponentials, and the values by them. */
struct part {
    float max, sum;
    float *value; /* [dim] */
};

/* Adds the value V with the score S; all lanes of a warp. */
static __device__ inline void add_key(struct part *p, float s, const float *v,
                                      uint64_t dim)
{
    float most = s > p->max ? s : p->max;
    float f = expf(p->max - most), e = expf(s - most);

    p->sum = p->sum * f + e;
    for (uint64_t d = threadIdx.x % GPU_WARP; d < dim; d += GPU_WARP)
        p->value[d] = p->value[d] * f + e * v[d];
    p->max = most;
}

static __device__ inline float score(const float *q, const float *k, uint64_t dim,
                                     double scale, float bias)
{
    float s = 0;

    for (uint64_t d = threadIdx.x % GPU_WARP; d < dim; d += GPU_WARP)
        s = fmaf(q[d], k[d], s);
    return fmaf(warp_sum(s), (float)scale, bias);
}

static __global__ void stream_kernel(float *y, const float *q, const float *k,
                                     const float *v, struct attention a,
                                     struct streams o, struct ranges r)
{
    SHARED(float, acc, WARPS *GPU_VALUE_DIM);
    SHARED(float, most, WARPS);
    SHARED(float, total, WARPS);
    struct range one = r.v[blockIdx.z];
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    uint64_t head = blockIdx.y, dim = a.head_dim;

    for (int64_t i = blockIdx.x; i < one.rows; i += gridDim.x) {
        uint64_t at = (uint64_t)(one.row + i) * a.heads + head;
        const float *bias = o.biases + at * a.bias.rows;
        struct part p = { -INFINITY, 0, acc + warp * dim };
        int64_t position = one.start + i, first, end;
        float max = -INFINITY, sum = 0;

        visible(&a, one, position, &first, &end);
        for (uint64_t d = lane; d < dim; d += GPU_WARP)
            p.value[d] = 0;
        for (int64_t t = first + warp; t < end; t += WARPS) {
            int64_t row = block_row(r, one, one.key_row + t);
            uint64_t from = ((uint64_t)row * a.heads + head) * dim;
            int64_t distance = one.first_key + t - position - (o.own_k ? 1 : 0);

            add_key(&p,
                    score(q + at * dim, k + from, dim, a.scale,
                          bias[bucket_of(distance, &a)]),
                    v + from, dim);
        }
        if (o.own_k && warp == 0)
            add_key(&p, score(q + at * dim, o.own_k + at * dim, dim, a.scale, bias[0]),
                    o.own_v + at * dim, dim);
        if (lane == 0) {
            most[warp] = p.max;
            total[warp] = p.sum;
        }
        __syncthreads();
        for (unsigned w = 0; w < WARPS; w++)
            max = most[w] > max ? most[w] : max;
        for (unsigned w = 0; w < WARPS; w++)
            sum += total[w] * expf(most[w] - max);
        for (uint64_t d = threadIdx.x; d < dim; d += blockDim.x) {
            float all = 0;

            for (unsigned w = 0; w < WARPS; w++)
                all += acc[w * dim + d] * expf(most[w] - max);
            y[at * dim + d] = sum > 0 ? all / sum : 0;
        }
        __syncthreads();
    }
}

extern "C" void gpu_stream(float *y, const float *q, const float *k, const float *v,
                           struct attention a, struct streams o, struct ranges r,
                           void *stream)
{
    if (r.most_rows && r.n && a.heads)
        LAUNCH(stream_kernel,
               dim3(gpu_blocks(r.most_rows, 1), (unsigned)a.heads, (unsigned)r.n),
               GPU_THREADS, stream, y, q, k, v, a, o, r);
}
