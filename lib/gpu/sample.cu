/* sample - draw the next token of each row from its logits
 *
 * weight[i] = exp((x[i] - maximum) / temperature); one token is drawn from the top_k
 * most likely, limited to the smallest set that sums to top_p.  A block handles one
 * row.  Instead of sorting, each logit and its index form a 64-bit key, and a threshold
 * key is found bit by bit; each bit takes one sum over the row, but for the bits of the
 * index if only one element has that logit.  If only the K most likely are wanted, a
 * bound is found first among the largest numbers of the threads, K of which are not
 * less; what is not less in the row, seldom much more than K, is kept in shared memory,
 * and sums are over that.  Random numbers are those of lib/base/rng. */
#include "lib/gpu/quads.cuh"

enum { THREADS = GPU_MOST_THREADS, WARPS = THREADS / GPU_WARP };
/* Keys that are kept, at most. */
#ifdef __CUDACC__
enum { KEPT = 2048 };
#else
enum { KEPT = 24 };
#endif

/* Larger logits have larger keys; of equal logits the first does. */
static __device__ uint32_t high_key_of(float x)
{
    uint32_t bits = __float_as_uint(x + 0.0f); /* -0 is 0 */

    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

static __device__ uint64_t key_of(float x, uint32_t i)
{
    return (uint64_t)high_key_of(x) << 32 | (0xffffffffu - i);
}

/* The number that has a key's upper half. */
static __device__ float number_of(uint64_t key)
{
    uint32_t high = (uint32_t)(key >> 32);

    return __uint_as_float(high >> 31 ? high & 0x7fffffffu : ~high);
}

struct row {
    const float *x;
    uint32_t cols;
    const uint64_t *kept; /* keys of what is looked at; NULL: of all */
    uint32_t nkept;
    bool wide;                        /* as in quads.cuh */
    double largest, over_temperature; /* 1 / temperature */
    uint64_t most;                    /* no key is larger */
    double *part;
};

/* Loops over a thread's columns; COL is the first of four.  If keys are kept there are
 * none, but those. */
#define EACH_FOUR(col, r)                                               \
    for (uint32_t col = 4 * threadIdx.x; !(r)->kept && col < (r)->cols; \
         col += 4 * THREADS)
#define EACH_KEPT_KEY(i, r) \
    for (uint32_t i = threadIdx.x; (r)->kept && i < (r)->nkept; i += THREADS)

struct four {
    float x[4];
    uint32_t n; /* that the row has */
};

static __device__ struct four four_at(const struct row *r, uint32_t col)
{
    uint32_t left = r->cols - col;
    float4 v = r->wide ? load_quad<true>(r->x + col, left)
                       : load_quad<false>(r->x + col, left);

    return { { v.x, v.y, v.z, v.w }, left < 4 ? left : 4 };
}

static __device__ double weight_of(const struct row *r, float x)
{
    return exp(((double)x - r->largest) * r->over_temperature);
}

/* The sum of the weights, or the number, of elements with a key of at least KEY. */
static __device__ double above(const struct row *r, uint64_t key, bool count)
{
    double sum = 0;

    EACH_KEPT_KEY(i, r)
    if (r->kept[i] >= key)
        sum += count ? 1 : weight_of(r, number_of(r->kept[i]));
    EACH_FOUR(col, r)
    {
        struct four f = four_at(r, col);

        for (uint32_t i = 0; i < 4; i++)
            if (i < f.n && key_of(f.x[i], col + i) >= key)
                sum += count ? 1 : weight_of(r, f.x[i]);
    }
    sum = block_sum(sum, r->part);
    __syncthreads();
    return sum;
}

/* The key of the only element whose key has the upper half of KEY; KEY, if there are
 * none or several. */
static __device__ uint64_t only_one(const struct row *r, uint64_t key)
{
    double number = 0, index = 0;

    EACH_KEPT_KEY(i, r)
    if (r->kept[i] >> 32 == key >> 32) {
        number += 1;
        index += (double)(0xffffffffu - (uint32_t)r->kept[i]);
    }
    EACH_FOUR(col, r)
    {
        struct four f = four_at(r, col);

        for (uint32_t i = 0; i < 4; i++)
            if (i < f.n && high_key_of(f.x[i]) == key >> 32) {
                number += 1;
                index += (double)(col + i);
            }
    }
    number = block_sum(number, r->part);
    __syncthreads();
    index = block_sum(index, r->part);
    __syncthreads();
    return number == 1 ? key | (0xffffffffu - (uint32_t)index) : key;
}

/* The largest key, at least LEAST, for which `above` is at least LIMIT, or greater than
 * LIMIT if MORE. */
static __device__ uint64_t seek(const struct row *r, uint64_t least, double limit,
                                bool more, bool count)
{
    uint64_t key = 0;

    for (int bit = 63; bit >= 0; bit--) {
        uint64_t next = key | (uint64_t)1 << bit;
        double sum = next < least     ? INFINITY
                     : next > r->most ? 0
                                      : above(r, next, count);

        if (more ? sum > limit : sum >= limit)
            key = next;
        if (bit == 32) {
            uint64_t one = only_one(r, key);

            if (one != key)
                return one < least ? least : one;
        }
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
 * partial sum, and R->part each warp's. */
static __device__ uint32_t draw_plain(const struct row *r, double u, double *sums)
{
    uint32_t each = (r->cols + THREADS - 1) / THREADS, at = 0;
    uint32_t first = threadIdx.x * each, end = first + each;
    double sum = 0, limit;

    for (uint32_t i = first; i < end && i < r->cols; i++)
        sum += weight_of(r, r->x[i]);
    sums[threadIdx.x] = sum;
    sum = block_sum(sum, r->part);
    if (threadIdx.x)
        return 0;
    limit = u * sum;
    sum = 0;
    for (; at < WARPS && limit >= sum + r->part[at]; at++)
        sum += r->part[at];
    for (at *= GPU_WARP; at < THREADS && limit >= sum + sums[at]; at++)
        sum += sums[at];
    for (at *= each; at < r->cols; at++) {
        sum += weight_of(r, r->x[at]);
        if (limit < sum)
            return at;
    }
    return r->cols - 1;
}

static __device__ uint32_t draw_likely(const struct row *r, const struct draw *d,
                                       double u)
{
    uint64_t least = 0;
    double total;

    if (d->temperature <= 0)
        return 0xffffffffu - (uint32_t)seek(r, 0, 1, false, true);
    if (d->top_k && d->top_k < r->cols) /* and those as likely as the last of them */
        least = seek(r, 0, (double)d->top_k, false, true) >> 32 << 32;
    total = above(r, least, false);
    if (d->top_p < 1) {
        least = seek(r, least, d->top_p * total, false, false);
        total = above(r, least, false);
    }
    return 0xffffffffu - (uint32_t)seek(r, least, u * total, true, false);
}

/* The largest number, by its key's upper half, that at least N threads' OWN are not
 * less than. */
static __device__ uint32_t bound_of(const struct row *r, uint32_t own, double n)
{
    uint32_t bound = 0;

    for (int bit = 31; bit >= 0; bit--) {
        uint32_t next = bound | 1u << bit;
        double reach = block_sum(own >= next ? 1.0 : 0.0, r->part);

        __syncthreads();
        if (reach >= n)
            bound = next;
    }
    return bound;
}

/* The sum of N over the threads before this one, and in *ALL over all; COUNT is shared
 * memory for a number of each warp. */
static __device__ uint32_t before(uint32_t n, uint32_t *count, uint32_t *all)
{
    uint32_t sum = 0, warp = 0;

    for (unsigned k = 0; k < GPU_WARP; k++) {
        uint32_t other = __shfl_sync(~0u, n, k);

        sum += k < threadIdx.x % GPU_WARP ? other : 0;
        warp += other;
    }
    if (threadIdx.x % GPU_WARP == 0)
        count[threadIdx.x / GPU_WARP] = warp;
    __syncthreads();
    *all = 0;
    for (unsigned k = 0; k < WARPS; k++) {
        sum += k < threadIdx.x / GPU_WARP ? count[k] : 0;
        *all += count[k];
    }
    return sum;
}

/* Keeps the keys of the numbers that are not less than the K most likely ones, if there
 * is room; OWN is the largest of this thread. */
static __device__ void keep_likely(struct row *r, float own, uint64_t k, uint64_t *kept,
                                   uint32_t *count)
{
    uint32_t least = bound_of(r, high_key_of(own), (double)k), n = 0, all, at;

    EACH_FOUR(col, r)
    {
        struct four f = four_at(r, col);

        for (uint32_t i = 0; i < 4; i++)
            n += i < f.n && high_key_of(f.x[i]) >= least;
    }
    at = before(n, count, &all);
    if (all > KEPT)
        return;
    EACH_FOUR(col, r)
    {
        struct four f = four_at(r, col);

        for (uint32_t i = 0; n && i < 4; i++)
            if (i < f.n && high_key_of(f.x[i]) >= least)
                kept[at++] = key_of(f.x[i], col + i);
    }
    __syncthreads();
    r->kept = kept;
    r->nkept = all;
}

static __device__ float warp_most(float v)
{
    for (int k = GPU_WARP / 2; k; k /= 2)
        v = fmaxf(v, __shfl_xor_sync(~0u, v, k));
    return v;
}

static __global__ void __launch_bounds__(THREADS)
    sample_kernel(int32_t *y, const float *x, const struct draw *draw, struct span rows,
                  uint32_t cols, bool wide)
{
    SHARED(double, part, WARPS);
    SHARED(double, sums, THREADS);
    SHARED(float, most, WARPS);
    SHARED(uint64_t, kept, KEPT);
    SHARED(uint32_t, count, WARPS);

    EACH_ROW(t, rows)
    {
        struct draw d = draw[t];
        struct row r = { x + t * (int64_t)cols, cols, NULL, 0, wide, 0,
                         1 / d.temperature,     0,    part };
        double u = uniform(d.seed, d.position);
        uint64_t likely = d.temperature <= 0 ? 1 : d.top_k;
        float largest = -INFINITY, own;
        uint32_t id;

        EACH_FOUR(col, &r)
        {
            struct four f = four_at(&r, col);

            for (uint32_t i = 0; i < 4; i++) {
                float v = f.x[i] < INFINITY ? f.x[i] : INFINITY; /* also of NaN */

                largest = i < f.n && v > largest ? v : largest;
            }
        }
        own = largest;
        largest = warp_most(largest);
        if (threadIdx.x % GPU_WARP == 0)
            most[threadIdx.x / GPU_WARP] = largest;
        __syncthreads();
        largest = warp_most(most[threadIdx.x % WARPS]);
        r.largest = (double)largest;
        r.most = key_of(largest, 0);
        if (likely && likely <= THREADS && likely < cols)
            keep_likely(&r, own, likely, kept, count);
        id = d.top_k || d.top_p < 1 || d.temperature <= 0 ? draw_likely(&r, &d, u)
                                                          : draw_plain(&r, u, sums);
        if (threadIdx.x == 0)
            y[t] = largest > -INFINITY && largest < INFINITY ? (int32_t)id : -1;
        /* all have read most before the last barrier of drawing: none is needed here */
    }
}

extern "C" void gpu_sample(int32_t *y, const float *x, const struct draw *draw,
                           struct span rows, uint64_t cols, void *stream)
{
    if (rows.most && cols)
        LAUNCH(sample_kernel, gpu_blocks(rows.most, 1), THREADS, stream, y, x, draw,
               rows, (uint32_t)cols, is_wide(x, cols));
}
