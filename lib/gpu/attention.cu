/* attention - softmax(scale q k^T) v over the keys that each query may see
 *
 * Vaswani et al. 2017, eq. 1; q [rows][heads][head_dim], k [keys][kv_heads][head_dim],
 * v [keys][kv_heads][value_cols], y [rows][heads][value_dim].  All kernels keep a
 * running maximum, sum and weighted sum of values, and rescale them when a larger score
 * comes (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax").
 *
 * Few queries of a sequence: a block handles one query of a head, and its warps take
 * turns at the keys.  Keys are processed in chunks of CHUNK, and the results of chunks
 * are added in order.  If there are too few queries for all multiprocessors, each chunk
 * has its own block and a second kernel adds the results ("flash-decoding") with the
 * same operations: a query's result has the same bits either way.
 *
 * Many queries: a block handles 32 and reads keys and values once for all of them, 32
 * at a time (Dao et al. 2022, "FlashAttention", section 3.1), in f32; or cores.cu does.
 * The choice depends only on the number of queries of a sequence. */
#include "lib/gpu/score.cuh"

enum { WARPS = GPU_THREADS / GPU_WARP };
/* The tiled kernel: queries and keys of a tile, maximum columns of a head, minimum
 * number of queries. */
enum {
    QUERIES = 32,
    KEYS = 32,
    TILED_DIM = 128,
    TILED_THREADS = 128,
    LANES = 8, /* lanes that share a pair of queries */
    MANY = 8
};
/* Keys of a chunk; number of query heads from which chunks are not distributed. */
#ifdef __CUDACC__
enum { CHUNK = 512, ENOUGH = 512 };
#else
enum { CHUNK = 16, ENOUGH = 8 };
#endif

/* ---- few queries ---- */

/* The maximum and the sum of exponentials over some keys. */
struct total {
    float max, sum;
};

/* Adds PART to *all.  *f and *g are the factors of the values of each. */
static __device__ inline void fold(struct total *all, struct total part, float *f,
                                   float *g)
{
    float most = part.max > all->max ? part.max : all->max;

    *f = all->sum > 0 ? expf(all->max - most) : 1;
    *g = part.sum > 0 ? expf(part.max - most) : 0;
    all->sum = fmaf(all->sum, *f, part.sum * *g);
    all->max = most;
}

/* One query of one head. */
struct query {
    const float *q;
    uint64_t head, kv;
    int64_t position, first, end; /* position of the query, and its visible keys [first,
                                   * end) */
    float slope;
};

static __device__ inline struct query query_of(const struct attention &a,
                                               struct range one, const float *q,
                                               int64_t i, float slope)
{
    struct query o;

    o.head = blockIdx.y;
    o.kv = o.head / (a.heads / a.kv_heads);
    o.q = q + ((one.row + i) * a.heads + o.head) * a.head_dim;
    o.position = one.start + i;
    o.slope = slope;
    visible(&a, one, o.position, &o.first, &o.end);
    return o;
}

/* Processes chunk CHUNK_AT in this block.  Returns the total; the values and totals of
 * the warps are in shared memory until the next barrier. */
static __device__ struct total attend_chunk(float *acc, struct total *of_warp,
                                            const float *k, const float *v,
                                            const struct attention &a,
                                            const struct ranges &r, struct range one,
                                            struct query o, int64_t chunk)
{
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    float *own = acc + warp * a.value_dim;
    struct total mine = { -INFINITY, 0 }, all = { -INFINITY, 0 };
    int64_t low = chunk * CHUNK, high = low + CHUNK;

    low = (o.first > low ? o.first : low) + warp;
    high = o.end < high ? o.end : high;
    for (uint64_t d = lane; d < a.value_dim; d += GPU_WARP)
        own[d] = 0;
    for (int64_t t = low; t < high; t += WARPS) {
        int64_t row = block_row(r, one, one.key_row + t);
        const float *kt = k + (row * a.kv_heads + o.kv) * a.head_dim;
        const float *vt = v + (row * a.kv_heads + o.kv) * a.value_cols;
        float s = 0, f, p;

        for (uint64_t d = lane; d < a.head_dim; d += GPU_WARP)
            s = fmaf(o.q[d], kt[d], s);
        s = score_of(&a, warp_sum(s), o.head, o.slope, one.first_key + t - o.position);
        if (s == -INFINITY)
            continue;
        fold(&mine, { s, 1 }, &f, &p);
        for (uint64_t d = lane; d < a.value_dim; d += GPU_WARP)
            own[d] = fmaf(p, vt[d], own[d] * f);
    }
    if (lane == 0)
        of_warp[warp] = mine;
    __syncthreads();
    for (unsigned w = 0; w < WARPS; w++) {
        float f, g;

        fold(&all, of_warp[w], &f, &g);
    }
    return all;
}

/* Column D of the block's values, whose total is ALL. */
static __device__ inline float chunk_value(const float *acc,
                                           const struct total *of_warp,
                                           struct total all, const struct attention &a,
                                           uint64_t d)
{
    float sum = 0;

    for (unsigned w = 0; w < WARPS && all.max > -INFINITY; w++)
        sum = fmaf(acc[w * a.value_dim + d], expf(of_warp[w].max - all.max), sum);
    return sum;
}

/* The initial total of a head: its sink, or nothing. */
static __device__ inline struct total total_of(const struct attention &a, uint64_t head)
{
    float sink = sink_of(&a, head);

    return { sink, sink > -INFINITY ? 1.0f : 0.0f };
}

static __device__ inline void put_lse(float *lse, uint64_t row, struct total all)
{
    if (lse && threadIdx.x == 0)
        lse[row] = all.sum > 0 ? all.max + logf(all.sum) : -INFINITY;
}

static __global__ void attention_kernel(float *y, float *lse, const float *q,
                                        const float *k, const float *v,
                                        struct attention a, struct ranges r,
                                        int64_t fewer)
{
    SHARED(float, acc, WARPS *GPU_VALUE_DIM);
    SHARED(float, value, GPU_VALUE_DIM);
    SHARED(struct total, of_warp, WARPS);
    struct range one = r.v[blockIdx.z];
    float slope = a.alibi != 0 ? alibi_slope(&a, blockIdx.y) : 0;

    if (one.rows >= fewer)
        return;
    for (int64_t i = blockIdx.x; i < one.rows; i += gridDim.x) {
        struct query o = query_of(a, one, q, i, slope);
        struct total all = total_of(a, o.head);
        uint64_t row = (uint64_t)(one.row + i) * a.heads + o.head;

        for (uint64_t d = threadIdx.x; d < a.value_dim; d += blockDim.x)
            value[d] = 0;
        for (int64_t c = o.first / CHUNK; c * CHUNK < o.end; c++) {
            struct total part = attend_chunk(acc, of_warp, k, v, a, r, one, o, c);
            float f, g;

            fold(&all, part, &f, &g);
            for (uint64_t d = threadIdx.x; d < a.value_dim; d += blockDim.x)
                value[d] = fmaf(value[d], f, chunk_value(acc, of_warp, part, a, d) * g);
            __syncthreads();
        }
        for (uint64_t d = threadIdx.x; d < a.value_dim; d += blockDim.x)
            y[row * a.value_dim + d] = all.sum > 0 ? value[d] / all.sum : 0;
        put_lse(lse, row, all);
    }
}

/* Partial result of a query's head and chunk: maximum, sum, values. */
static __device__ inline float *part_at(float *part, const struct attention &a,
                                        uint64_t row, uint64_t chunks, uint64_t chunk)
{
    return part + (row * chunks + chunk) * (a.value_dim + 2);
}

static __global__ void chunk_kernel(float *part, const float *q, const float *k,
                                    const float *v, struct attention a, struct ranges r,
                                    int64_t fewer, int64_t chunks)
{
    SHARED(float, acc, WARPS *GPU_VALUE_DIM);
    SHARED(struct total, of_warp, WARPS);
    struct range one = r.v[blockIdx.z];
    float slope = a.alibi != 0 ? alibi_slope(&a, blockIdx.y) : 0;

    if (one.rows >= fewer)
        return;
    for (int64_t i = blockIdx.x; i < one.rows * chunks; i += gridDim.x) {
        struct query o = query_of(a, one, q, i / chunks, slope);
        int64_t c = i % chunks;
        uint64_t row = (uint64_t)(one.row + i / chunks) * a.heads + o.head;
        float *to = part_at(part, a, row, (uint64_t)chunks, (uint64_t)c);
        struct total all;

        if (c < o.first / CHUNK || c * CHUNK >= o.end)
            continue;
        all = attend_chunk(acc, of_warp, k, v, a, r, one, o, c);
        for (uint64_t d = threadIdx.x; d < a.value_dim; d += blockDim.x)
            to[2 + d] = chunk_value(acc, of_warp, all, a, d);
        if (threadIdx.x == 0) {
            to[0] = all.max;
            to[1] = all.sum;
        }
        __syncthreads();
    }
}

/* Adds the chunks of each query's head in order. */
static __global__ void combine_kernel(float *y, float *lse, float *part,
                                      struct attention a, struct ranges r,
                                      int64_t fewer, int64_t chunks)
{
    struct range one = r.v[blockIdx.z];

    if (one.rows >= fewer)
        return;
    for (int64_t i = blockIdx.x; i < one.rows; i += gridDim.x) {
        struct query o = query_of(a, one, NULL, i, 0);
        uint64_t row = (uint64_t)(one.row + i) * a.heads + o.head;
        struct total all = total_of(a, o.head);

        for (uint64_t d = threadIdx.x; d < a.value_dim; d += blockDim.x) {
            float value = 0;

            all = total_of(a, o.head);
            for (int64_t c = o.first / CHUNK; c * CHUNK < o.end; c++) {
                const float *from =
                    part_at(part, a, row, (uint64_t)chunks, (uint64_t)c);
                float f, g;

                fold(&all, { from[0], from[1] }, &f, &g);
                value = fmaf(value, f, from[2 + d] * g);
            }
            y[row * a.value_dim + d] = all.sum > 0 ? value / all.sum : 0;
        }
        put_lse(lse, row, all);
    }
}

/* ---- many queries ---- */

/* Row stride of a tile in shared memory, in float4: one more than the columns, so that
 * lanes that read different rows use different banks. */
enum { STRIDE = TILED_DIM / 4 + 1 };

/* Loads columns [cols] of keys or values [FIRST, END) from FROM into TILE; zeros beyond
 * END. */
static __device__ void load_rows(float4 *tile, const float *from, uint64_t row_cols,
                                 uint64_t first_col, uint64_t cols, struct ranges r,
                                 struct range one, int64_t first, int64_t end)
{
    unsigned each = (unsigned)(cols / 4);

    for (unsigned i = threadIdx.x; i < KEYS * each; i += TILED_THREADS) {
        int64_t t = first + i / each;
        float4 f = { 0, 0, 0, 0 };

        if (t < end) {
            int64_t row = block_row(r, one, one.key_row + t);

            f = *(const float4 *)(from + row * row_cols + first_col + i % each * 4);
        }
        tile[i / each * STRIDE + i % each] = f;
    }
}

static __device__ inline float dot4(float4 a, float4 b, float s)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, s))));
}

/* Reductions over the lanes that share a pair of queries. */
static __device__ inline float pair_max(float v)
{
    for (int k = LANES / 2; k; k /= 2) {
        float other = __shfl_xor_sync(~0u, v, k);

        v = other > v ? other : v;
    }
    return v;
}

static __device__ inline float pair_sum(float v)
{
    for (int k = LANES / 2; k; k /= 2)
        v += __shfl_xor_sync(~0u, v, k);
    return v;
}

/* Lane X of pair Y has queries 2 Y and 2 Y + 1: their scores for keys X, X + 8, ...,
 * and columns 4 X to 4 X + 3, 4 X + 32, ... of their results.  Tiles of keys start at
 * multiples of KEYS, so a query's sums do not depend on the other queries of its
 * block. */
static __global__ void tiled_kernel(float *y, float *lse, const float *q,
                                    const float *k, const float *v, struct attention a,
                                    struct ranges r, int64_t least)
{
    enum { EACH = KEYS / LANES, PARTS = TILED_DIM / (4 * LANES) };
    SHARED(float4, qs, QUERIES * STRIDE);
    SHARED(float4, tile, KEYS * STRIDE);
    SHARED(float, ps, QUERIES *(KEYS + 1));
    struct range one = r.v[blockIdx.z];
    unsigned x = threadIdx.x % LANES, pair = threadIdx.x / LANES;
    uint64_t head = blockIdx.y, kv = head / (a.heads / a.kv_heads);
    float slope = a.alibi != 0 ? alibi_slope(&a, head) : 0;
    float sink = sink_of(&a, head);

    if (one.rows < least)
        return;
    for (int64_t at = blockIdx.x * (int64_t)QUERIES; at < one.rows;
         at += gridDim.x * (int64_t)QUERIES) {
        int64_t first[2], end[2], low, high, none;
        float4 acc[2][PARTS];
        float max[2], sum[2];

        for (unsigned i = threadIdx.x; i < QUERIES * (a.head_dim / 4);
             i += TILED_THREADS) {
            unsigned row = (unsigned)(i / (a.head_dim / 4)), d = i % (a.head_dim / 4);
            float4 f = { 0, 0, 0, 0 };

            if (at + row < one.rows)
                f = *(const float4 *)(q +
                                      ((one.row + at + row) * a.heads + head) *
                                          a.head_dim +
                                      d * 4);
            qs[row * STRIDE + d] = f;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            visible(&a, one, one.start + at + 2 * pair + i, &first[i], &end[i]);
            if (at + 2 * pair + i >= one.rows)
                end[i] = first[i];
            max[i] = sink;
            sum[i] = sink > -INFINITY;
#pragma unroll
            for (int j = 0; j < PARTS; j++)
                acc[i][j] = { 0, 0, 0, 0 };
        }
        visible(&a, one, one.start + at, &low, &none);
        visible(&a, one,
                one.start + (at + QUERIES < one.rows ? at + QUERIES : one.rows) - 1,
                &none, &high);
        for (int64_t t = low - low % KEYS; t < high; t += KEYS) {
            float s[2][EACH] = { { 0 } };

            load_rows(tile, k, a.kv_heads * a.head_dim, kv * a.head_dim, a.head_dim, r,
                      one, t, high);
            __syncthreads();
            for (unsigned d = 0; d < a.head_dim / 4; d++) {
                float4 q0 = qs[2 * pair * STRIDE + d],
                       q1 = qs[(2 * pair + 1) * STRIDE + d];

#pragma unroll
                for (int c = 0; c < EACH; c++) {
                    float4 key = tile[(x + c * LANES) * STRIDE + d];

                    s[0][c] = dot4(q0, key, s[0][c]);
                    s[1][c] = dot4(q1, key, s[1][c]);
                }
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float most = -INFINITY, f, all = 0;

#pragma unroll
                for (int c = 0; c < EACH; c++) {
                    int64_t key = t + x + c * LANES;

                    s[i][c] = key >= first[i] && key < end[i]
                                  ? score_of(&a, s[i][c], head, slope,
                                             one.first_key + key -
                                                 (one.start + at + 2 * pair + i))
                                  : -INFINITY;
                    most = s[i][c] > most ? s[i][c] : most;
                }
                most = pair_max(most);
                most = max[i] > most ? max[i] : most;
                f = most == -INFINITY ? 1 : expf(max[i] - most);
#pragma unroll
                for (int c = 0; c < EACH; c++) {
                    float p = most == -INFINITY ? 0 : expf(s[i][c] - most);

                    ps[(2 * pair + i) * (KEYS + 1) + x + c * LANES] = p;
                    all += p;
                }
                sum[i] = sum[i] * f + pair_sum(all);
                max[i] = most;
#pragma unroll
                for (int j = 0; j < PARTS; j++) {
                    acc[i][j].x *= f;
                    acc[i][j].y *= f;
                    acc[i][j].z *= f;
                    acc[i][j].w *= f;
                }
            }
            __syncthreads();
            load_rows(tile, v, a.kv_heads * a.value_cols, kv * a.value_cols,
                      a.value_dim, r, one, t, high);
            __syncthreads();
            for (unsigned c = 0; c < KEYS; c++) {
                float p0 = ps[2 * pair * (KEYS + 1) + c],
                      p1 = ps[(2 * pair + 1) * (KEYS + 1) + c];

#pragma unroll
                for (int j = 0; j < PARTS; j++)
                    if ((x + j * LANES) * 4 < a.value_dim) {
                        float4 f = tile[c * STRIDE + x + j * LANES];

                        acc[0][j].x = fmaf(p0, f.x, acc[0][j].x);
                        acc[0][j].y = fmaf(p0, f.y, acc[0][j].y);
                        acc[0][j].z = fmaf(p0, f.z, acc[0][j].z);
                        acc[0][j].w = fmaf(p0, f.w, acc[0][j].w);
                        acc[1][j].x = fmaf(p1, f.x, acc[1][j].x);
                        acc[1][j].y = fmaf(p1, f.y, acc[1][j].y);
                        acc[1][j].z = fmaf(p1, f.z, acc[1][j].z);
                        acc[1][j].w = fmaf(p1, f.w, acc[1][j].w);
                    }
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint64_t row = ((uint64_t)(one.row + at + 2 * pair + i) * a.heads + head);
            float part = sum[i] > 0 ? 1 / sum[i] : 0;

            if (at + 2 * pair + i >= one.rows)
                continue;
#pragma unroll
            for (int j = 0; j < PARTS; j++)
                if ((x + j * LANES) * 4 < a.value_dim)
                    *(float4 *)(y + row * a.value_dim + (x + j * LANES) * 4) = {
                        acc[i][j].x * part, acc[i][j].y * part, acc[i][j].z * part,
                        acc[i][j].w * part
                    };
            if (lse && x == 0)
                lse[row] = sum[i] > 0 ? max[i] + logf(sum[i]) : -INFINITY;
        }
    }
}

/* True if the tiled kernel supports these sizes and alignments. */
static bool fits_tiles(const float *y, const float *q, const float *k, const float *v,
                       const struct attention *a, const struct ranges *r)
{
    uintptr_t all = (uintptr_t)y | (uintptr_t)q | (uintptr_t)k | (uintptr_t)v;

    return r->most_rows >= MANY && all % 16 == 0 && a->head_dim <= TILED_DIM &&
           a->value_dim <= TILED_DIM &&
           (a->head_dim | a->value_dim | a->value_cols) % 4 == 0;
}

static size_t chunks_of(const struct ranges *r)
{
    return (r->most_keys + CHUNK - 1) / CHUNK;
}

extern "C" uint64_t gpu_attention_part(struct attention a, struct ranges r,
                                       uint64_t queries)
{
    if (chunks_of(&r) < 2 || r.most_rows >= MANY ||
        r.n * r.most_rows * a.heads >= ENOUGH)
        return 0;
    return queries * a.heads * chunks_of(&r) * (a.value_dim + 2);
}

/* Handles sequences with fewer than FEWER queries. */
static void attend_few(float *y, float *lse, const float *q, const float *k,
                       const float *v, const struct attention &a,
                       const struct ranges &r, int64_t fewer, float *part, void *stream)
{
    int64_t chunks = (int64_t)chunks_of(&r);
    dim3 grid(gpu_blocks(r.most_rows, 1), (unsigned)a.heads, (unsigned)r.n);

    if (!part) {
        LAUNCH(attention_kernel, grid, GPU_THREADS, stream, y, lse, q, k, v, a, r,
               fewer);
        return;
    }
    LAUNCH(chunk_kernel,
           dim3(gpu_blocks(r.most_rows * (uint64_t)chunks, 1), (unsigned)a.heads,
                (unsigned)r.n),
           GPU_THREADS, stream, part, q, k, v, a, r, fewer, chunks);
    LAUNCH(combine_kernel, grid, GPU_THREADS, stream, y, lse, part, a, r, fewer,
           chunks);
}

extern "C" void gpu_attention(float *y, float *lse, const float *q, const float *k,
                              const float *v, struct attention a, struct ranges r,
                              float *part, void *stream)
{
    bool tiled = fits_tiles(y, q, k, v, &a, &r);

    if (!a.heads || !r.n || !r.most_rows)
        return;
    if (tiled && a.narrow)
        gpu_attention_cores(y, lse, q, k, v, a, r, MANY, stream);
    else if (tiled)
        LAUNCH(tiled_kernel,
               dim3(gpu_blocks(r.most_rows, QUERIES), (unsigned)a.heads, (unsigned)r.n),
               TILED_THREADS, stream, y, lse, q, k, v, a, r, (int64_t)MANY);
    if (!tiled || r.n > 1)
        attend_few(y, lse, q, k, v, a, r, tiled ? (int64_t)MANY : INT64_MAX, part,
                   stream);
}

/* y, lse = attention over the keys of both (y, lse) and (z, more).  lse is the log of
 * the sum of exponentials, so exp(lse) weights each result. */
static __global__ void merge_kernel(float *y, float *lse, const float *z,
                                    const float *more, struct span rows, uint64_t heads,
                                    uint64_t dim)
{
    EACH_ROW(t, rows)
    for (uint64_t h = threadIdx.x; h < heads; h += blockDim.x) {
        uint64_t i = t * heads + h;
        float most = lse[i] > more[i] ? lse[i] : more[i], f, g;

        if (more[i] == -INFINITY)
            continue;
        f = expf(lse[i] - most);
        g = expf(more[i] - most);
        for (uint64_t k = 0; k < dim; k++)
            y[i * dim + k] = (f * y[i * dim + k] + g * z[i * dim + k]) / (f + g);
        lse[i] = most + logf(f + g);
    }
}

extern "C" void gpu_merge(float *y, float *lse, const float *z, const float *more,
                          struct span rows, uint64_t heads, uint64_t dim, void *stream)
{
    if (rows.most && heads)
        LAUNCH(merge_kernel, gpu_blocks(rows.most, 1), GPU_WARP, stream, y, lse, z,
               more, rows, heads, dim);
}
