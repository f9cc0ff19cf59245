/* sample - draw the next token of each row from its logits
 *
 * weight[i] = exp((x[i] - maximum) / temperature); one token is drawn from the top_k
 * most likely, limited to the smallest set that sums to top_p.  A block handles one
 * row.  Instead of sorting, each logit and its index form a 64-bit key, and a threshold
 * key is found bit by bit; each bit takes one sum over the row.  Random numbers are
 * those of lib/base/rng. */
#include "lib/gpu/device.cuh"

#ifdef __CUDACC__
enum { THREADS = 1024 };
#else
enum { THREADS = 64 };
#endif

/* Larger logits have larger keys; of equal logits the first does. */
static __device__ uint64_t key_of(float x, uint64_t i)
{
    uint32_t bits = __float_as_uint(x);

    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (0xffffffffu - (uint32_t)i);
}

struct row {
    const float *x;
    uint64_t cols;
    double largest, temperature;
    double *part;
};

static __device__ double weight_of(const struct row *r, uint64_t i)
{
    return exp(((double)r->x[i] - r->largest) / r->temperature);
}

/* The sum of the weights, or the number, of elements with a key of at least KEY. */
static __device__ double above(const struct row *r, uint64_t key, bool count)
{
    double sum = 0;

    for (uint64_t i = threadIdx.x; i < r->cols; i += blockDim.x)
        if (key_of(r->x[i], i) >= key)
            sum += count ? 1 : weight_of(r, i);
    sum = block_sum(sum, r->part);
    __syncthreads();
    return sum;
}

/* The largest key, at least LEAST, for which `above` is at least LIMIT, or greater than
 * LIMIT if MORE. */
static __device__ uint64_t seek(const struct row *r, uint64_t least, double limit,
                                bool more, bool count)
{
    uint64_t key = 0;

    for (int bit = 63; bit >= 0; bit--) {
        uint64_t next = key | (uint64_t)1 << bit;
        double sum = next < least ? INFINITY : above(r, next, count);

        if (more ? sum > limit : sum >= limit)
            key = next;
    }
    return key < least ? least : key;
}

/* Philox4x32-10 (Salmon et al., SC'11): the first number of a stream, in [0, 1). */
static __device__ double uniform(uint64_t seed, uint64_t stream)
{
    uint32_t c[4] = { 0, 0, (uint32_t)stream, (uint32_t)(stream >> 32) };
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];

        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (double)((c[0] | (uint64_t)c[1] << 32) >> 11) * 1.1102230246251565e-16;
}

/* Draws from all tokens in index order by U in [0, 1); SUMS receives each thread's
 * partial sum. */
static __device__ uint64_t draw_plain(const struct row *r, double u, double *sums)
{
    uint64_t each = (r->cols + blockDim.x - 1) / blockDim.x;
    uint64_t first = threadIdx.x * each, end = first + each;
    double sum = 0, limit;
    uint64_t id = r->cols - 1;

    for (uint64_t i = first; i < end && i < r->cols; i++)
        sum += weight_of(r, i);
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x)
        return id;
    sum = 0;
    for (unsigned i = 0; i < blockDim.x; i++)
        sum += sums[i];
    limit = u * sum;
    sum = 0;
    for (unsigned i = 0; i < blockDim.x; i++) {
        if (limit >= sum + sums[i]) {
            sum += sums[i];
            continue;
        }
        for (uint64_t k = i * each; k < (i + 1) * each && k < r->cols; k++) {
            sum += weight_of(r, k);
            if (limit < sum)
                return k;
        }
    }
    return id;
}

static __device__ uint64_t draw_likely(const struct row *r, const struct draw *d,
                                       double u)
{
    uint64_t least = 0;
    double total;

    if (d->top_k && d->top_k < r->cols)
        least = seek(r, 0, (double)d->top_k, false, true);
    total = above(r, least, false);
    if (d->top_p < 1) {
        least = seek(r, least, d->top_p * total, false, false);
        total = above(r, least, false);
    }
    return 0xffffffffu - (uint32_t)seek(r, least, u * total, true, false);
}

static __global__ void sample_kernel(float *y, const float *x, const struct draw *draw,
                                     struct span rows, uint64_t cols)
{
    SHARED(double, part, THREADS / GPU_WARP);
    SHARED(double, sums, THREADS);
    SHARED(float, most, THREADS);

    EACH_ROW(t, rows)
    {
        struct draw d = draw[t];
        struct row r = { x + t * cols, cols, -INFINITY, d.temperature, part };
        double u = uniform(d.seed, d.position);
        float largest = -INFINITY;
        uint64_t id;

        for (uint64_t i = threadIdx.x; i < cols; i += blockDim.x)
            largest = r.x[i] > largest ? r.x[i] : largest;
        most[threadIdx.x] = largest;
        __syncthreads();
        for (unsigned i = 0; i < blockDim.x; i++)
            largest = most[i] > largest ? most[i] : largest;
        r.largest = (double)largest;
        id = d.top_k || d.top_p < 1 ? draw_likely(&r, &d, u) : draw_plain(&r, u, sums);
        if (threadIdx.x == 0)
            y[t] = (float)id;
        /* all have read most before the last barrier of drawing: none is needed here */
    }
}

extern "C" void gpu_sample(float *y, const float *x, const struct draw *draw,
                           struct span rows, uint64_t cols, void *stream)
{
    if (rows.most && cols)
        LAUNCH(sample_kernel, gpu_blocks(rows.most, 1), THREADS, stream, y, x, draw,
               rows, cols);
}
