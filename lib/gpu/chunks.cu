/* chunks - attention of few queries: chunks of keys, whose results are added
 *
 * "Flash-decoding" (Dao et al. 2023): the keys of a text are divided into chunks of
 * CHUNK, counted from its first key, and a block handles one query with one chunk, for
 * up to HEADS query heads that share a head of keys and values, which it reads once for
 * them.  It writes the largest score, the sum of exponentials, and the values weighted
 * by these.  The last block of a query adds its chunks if they are few, else a second
 * kernel does, in a fixed order.  So a query's result has the same bits alone and in
 * any batch.
 *
 * Scores: eight lanes share a key, so that a warp reads four keys at a time, each
 * 128 bytes of it; KEYS of them per lane are read before they are used.  Values: a warp
 * reads 128 columns of a row at a time, and warps take turns at the rows.  What a block
 * reads after something else that it has read costs most: it looks up the rows of all
 * its keys at once, and asks for the values before it has the keys. */
#include "lib/gpu/bounds.h"
#include "lib/gpu/cached.cuh"
#include "lib/gpu/score.cuh"

#ifdef __CUDACC__
enum { THREADS = 256, ADDERS = 512, WEIGHTS = 1024, FEW_CHUNKS = GPU_WARP };
#else
enum { THREADS = 64, ADDERS = 64, WEIGHTS = 4, FEW_CHUNKS = 4 };
#endif
enum {
    CHUNK = GPU_KEY_CHUNK,
    WARPS = THREADS / GPU_WARP,
    LANES = 8,                  /* lanes that share a key */
    AT_ONCE = GPU_WARP / LANES, /* keys that a warp reads together */
    KEYS = 2,                   /* times that it does so before they are used, */
    TURNS = 4,                  /* of so many times 32 columns */
    COLUMNS = 4 * GPU_WARP,     /* of values, that a warp reads together */
    ROWS = 8,                   /* rows of them that are read before they are used */
    QUERY = 4096,               /* numbers of the queries that a block has */
    TOTALS = GPU_TOTALS         /* numbers before the values of a chunk */
};
/* Bytes of results of chunks at a time, unless one query has more; heads of queries at
 * a time. */
enum { MOST_PARTS = GPU_MOST_PARTS, MOST_HEADS = 1 << 16 };

/* How many blocks have made their chunk of some heads of a query; 0 between kernels. */
static __device__ unsigned arrived[MOST_HEADS];

/* Results of chunks, [texts][queries][heads][chunks][TOTALS + value_dim], the last
 * rounded up to four: for TEXTS texts from TEXT on, and QUERIES queries of each from
 * FIRST on. */
struct parts {
    float *at;
    int64_t text, texts, first, queries, chunks;
    int64_t fewer; /* texts with as many queries are not ours */
    uint64_t stride;
};

static __device__ inline float *part_of(const struct parts &p,
                                        const struct attention &a, int64_t query,
                                        uint64_t head, int64_t chunk)
{
    uint64_t row = (uint64_t)(blockIdx.z * p.queries + query) * a.heads + head;

    return p.at + (row * p.chunks + chunk) * p.stride;
}

/* A block's query: COUNT heads from HEAD on, which share KV, and the visible keys [low,
 * high) of a chunk. */
struct piece {
    uint64_t head, kv;
    int count;
    int64_t position, begin, low, high; /* BEGIN: first key of the chunk */
    const int32_t *row; /* shared: memory rows of its keys, from BEGIN */
};

/* Where the numbers of a row of F from column COL on begin. */
template <enum format F>
static __device__ inline uint32_t bytes_of(const struct cached &c, uint32_t col)
{
    const enum format f = F == FORMAT_COUNT ? c.format : F;

    return c.codes + (f == FORMAT_F32          ? col * 4
                      : f == FORMAT_BF16       ? col * 2
                      : f == FORMAT_CACHE_INT4 ? col / 2
                                               : col);
}

/* Looks up the rows of a piece's keys, and starts to bring their values into the
 * second-level cache. */
template <enum format F>
static __device__ inline void look_up(int32_t *rows, const struct cached &v,
                                      const struct attention &a, const struct ranges &r,
                                      const struct range &one, const struct piece &o)
{
    enum { LINE = 128 }; /* bytes */
    const uint32_t first = bytes_of<F>(v, (uint32_t)(o.kv * a.value_cols));
    const uint32_t end = bytes_of<F>(v, (uint32_t)(o.kv * a.value_cols + a.value_dim));

    for (int i = threadIdx.x; i < CHUNK; i += THREADS) {
        int64_t t = o.begin + i, row;

        if (t < o.low || t >= o.high)
            continue;
        row = block_row(r, one, one.key_row + t);
        rows[i] = (int32_t)row;
        for (uint32_t at = first; at < end; at += LINE)
            prefetch_line(cached_row(v, row) + at);
    }
}

/* Four numbers from column COL of a head on, which has COLS from FIRST on of a row of
 * C; zeros beyond its end. */
template <enum format F, bool WIDE>
static __device__ inline float4 four_of(const char *row, const struct cached &c,
                                        uint32_t first, unsigned col, unsigned cols)
{
    return col < cols ? cached_quad<F, WIDE>(row, c, first + col, cols - col)
                      : float4{ 0, 0, 0, 0 };
}

/* Four numbers from column COL of a row of COLS on; zeros beyond its end.  WIDE: rows
 * are aligned to 16 bytes and COLS is a multiple of four. */
template <bool WIDE>
static __device__ inline float4 four(const float *row, unsigned col, unsigned cols)
{
    return col < cols ? load_quad<WIDE>(row + col, cols - col) : float4{ 0, 0, 0, 0 };
}

static __device__ inline void add4(float4 *sum, float p, float4 v)
{
    sum->x = fmaf(p, v.x, sum->x);
    sum->y = fmaf(p, v.y, sum->y);
    sum->z = fmaf(p, v.z, sum->z);
    sum->w = fmaf(p, v.w, sum->w);
}

/* score[h][t - begin] = the score of head h and key t */
template <int HEADS, enum format F, bool WIDE>
static __device__ inline void
score_keys(float *score, const float4 *query, const struct cached &k,
           const struct attention &a, const struct range &one, const struct piece &o)
{
    const uint32_t head = (uint32_t)(o.kv * a.head_dim);

    unsigned lane = threadIdx.x % LANES, dim = (unsigned)a.head_dim;
    unsigned place = threadIdx.x / LANES, stride = (dim + 3) / 4;
    float slope[HEADS];

#pragma unroll
    for (int h = 0; h < HEADS; h++)
        slope[h] = a.alibi != 0 ? alibi_slope(&a, o.head + (h < o.count ? h : 0)) : 0;
    for (int64_t t = o.low; t < o.high; t += WARPS * AT_ONCE * KEYS) {
        const char *key[KEYS];
        float sum[HEADS][KEYS] = { { 0 } };

#pragma unroll
        for (int i = 0; i < KEYS; i++) {
            int64_t own = t + i * WARPS * AT_ONCE + place;
            int64_t row = o.row[(own < o.high ? own : o.high - 1) - o.begin];

            key[i] = cached_row(k, row);
        }
        for (unsigned first = lane * 4; first < dim; first += 4 * LANES * TURNS) {
            float4 f[TURNS][KEYS];

#pragma unroll
            for (int c = 0; c < TURNS; c++)
#pragma unroll
                for (int i = 0; i < KEYS; i++)
                    f[c][i] =
                        four_of<F, WIDE>(key[i], k, head, first + c * 4 * LANES, dim);
#pragma unroll
            for (int c = 0; c < TURNS; c++) {
                unsigned col = first + c * 4 * LANES;

                if (col >= dim)
                    break;
#pragma unroll
                for (int h = 0; h < HEADS; h++) {
                    float4 q = query[h * stride + col / 4];

#pragma unroll
                    for (int i = 0; i < KEYS; i++)
                        sum[h][i] = dot4(q, f[c][i], sum[h][i]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < KEYS; i++) {
            int64_t own = t + i * WARPS * AT_ONCE + place;

#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                float s = sum[h][i];

                for (int by = LANES / 2; by; by /= 2)
                    s += __shfl_xor_sync(~0u, s, by);
                if (h < o.count && own < o.high && (int)lane == h % LANES)
                    score[h * CHUNK + (own - o.begin)] = score_of(
                        &a, s, o.head + h, slope[h], one.first_key + own - o.position);
            }
        }
    }
}

/* score[h] = exponentials; the largest score and their sum go to the parts */
static __device__ inline void exponentials(float *score, const struct attention &a,
                                           const struct parts &p, int64_t query,
                                           int64_t chunk, const struct piece &o)
{
    unsigned lane = threadIdx.x % GPU_WARP;
    unsigned low = (unsigned)(o.low - o.begin), high = (unsigned)(o.high - o.begin);

    for (int h = threadIdx.x / GPU_WARP; h < o.count; h += WARPS) {
        float *own = score + h * CHUNK, most = -INFINITY, sum = 0;

        for (unsigned t = low + lane; t < high; t += GPU_WARP)
            most = own[t] > most ? own[t] : most;
        most = warp_max(most);
        for (unsigned t = low + lane; t < high; t += GPU_WARP) {
            float e = own[t] == -INFINITY ? 0 : expf(own[t] - most);

            own[t] = e;
            sum += e;
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            float *to = part_of(p, a, query, o.head + h, chunk);

            to[0] = most;
            to[1] = sum;
        }
    }
}

/* The values of COLUMNS columns from FIRST on, weighted by SCORE; PART is shared memory
 * for [WARPS][HEADS][COLUMNS]. */
template <int HEADS, enum format F, bool WIDE>
static __device__ inline void
weigh_values(float4 *part, const float *score, const struct cached &v, unsigned first,
             const struct attention &a, const struct parts &p, int64_t query,
             int64_t chunk, const struct piece &o)
{
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    unsigned col = first + lane * 4, dim = (unsigned)a.value_dim;
    const uint32_t head = (uint32_t)(o.kv * a.value_cols);
    float4 sum[HEADS];

#pragma unroll
    for (int h = 0; h < HEADS; h++)
        sum[h] = { 0, 0, 0, 0 };
    for (int64_t t = o.low + warp; t < o.high; t += WARPS * ROWS) {
        float4 f[ROWS];

#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            int64_t own = t + i * WARPS;
            bool there = own < o.high;
            int64_t row = o.row[(there ? own : t) - o.begin];

            f[i] = four_of<F, WIDE>(cached_row(v, row), v, head, col, there ? dim : 0);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            int64_t own = t + i * WARPS;

#pragma unroll
            for (int h = 0; h < HEADS; h++)
                if (own < o.high)
                    add4(&sum[h], h < o.count ? score[h * CHUNK + (own - o.begin)] : 0,
                         f[i]);
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++)
        part[(warp * HEADS + h) * GPU_WARP + lane] = sum[h];
    __syncthreads();
    for (int i = threadIdx.x; i < o.count * GPU_WARP; i += THREADS) {
        int h = i / GPU_WARP;
        unsigned at = first + i % GPU_WARP * 4;
        float4 all = { 0, 0, 0, 0 };

        for (unsigned w = 0; w < WARPS; w++)
            add4(&all, 1, part[(w * HEADS + h) * GPU_WARP + i % GPU_WARP]);
        if (at < dim)
            *(float4 *)(part_of(p, a, query, o.head + h, chunk) + TOTALS + at) = all;
    }
}

/* Chunks with the keys from LOW to HIGH - 1. */
static __device__ inline unsigned chunks_seen(int64_t low, int64_t high)
{
    return high > low ? (unsigned)((high + CHUNK - 1) / CHUNK - low / CHUNK) : 0;
}

/* y[row + col ...] = V / ALL, four numbers of a head's value_dim. */
static __device__ inline void put_four(void *y, const struct attention &a, uint64_t row,
                                       unsigned col, float4 v, float all)
{
    if (col < a.value_dim)
        put_number(y, a.bf16, row + col, all > 0 ? v.x / all : 0);
    if (col + 1 < a.value_dim)
        put_number(y, a.bf16, row + col + 1, all > 0 ? v.y / all : 0);
    if (col + 2 < a.value_dim)
        put_number(y, a.bf16, row + col + 2, all > 0 ? v.z / all : 0);
    if (col + 3 < a.value_dim)
        put_number(y, a.bf16, row + col + 3, all > 0 ? v.w / all : 0);
}

/* y = what the N chunks of a head at FROM add up to, in columns FIRST + 4 * lane and
 * on; N is at most GPU_WARP. */
static __device__ inline void add_few(void *y, float *lse, const float *from,
                                      unsigned n, uint64_t stride, unsigned first,
                                      uint64_t row, const struct attention &a,
                                      uint64_t head)
{
    unsigned lane = threadIdx.x % GPU_WARP, col = first + lane * 4;
    float sink = sink_of(&a, head), most, weight = 0, all;
    float2 total = { -INFINITY, 0 };
    float4 value = { 0, 0, 0, 0 };

    if (lane < n)
        total = load_written((const float2 *)(from + lane * stride));
    most = warp_max(total.x > sink ? total.x : sink);
    if (total.x > -INFINITY)
        weight = expf(total.x - most);
    all = (float)warp_sum((double)(total.y * weight));
    all += sink > -INFINITY ? expf(sink - most) : 0;
#pragma unroll 4
    for (unsigned k = 0; k < n; k++) {
        float own = __shfl_sync(~0u, weight, k);

        if (col < a.value_dim)
            add4(&value, own,
                 load_written((const float4 *)(from + k * stride + TOTALS + col)));
    }
    put_four(y, a, row * a.value_dim, col, value, all);
    if (lse && first == 0 && lane == 0)
        lse[row] = all > 0 ? most + logf(all) : -INFINITY;
}

/* The chunks of O's heads, whose first is LOW, are there: adds them. */
static __device__ inline void add_chunks(void *y, float *lse, const struct parts &p,
                                         const struct attention &a, int64_t query,
                                         uint64_t row, int64_t low, unsigned n,
                                         const struct piece &o)
{
    unsigned each = ((unsigned)a.value_dim + COLUMNS - 1) / COLUMNS;

    for (unsigned i = threadIdx.x / GPU_WARP; i < o.count * each; i += WARPS) {
        uint64_t head = o.head + i / each;

        add_few(y, lse, part_of(p, a, query, head, low), n, p.stride,
                i % each * COLUMNS, row * a.heads + head, a, head);
    }
}

/* Blocks: queries and chunks, heads of keys and groups of the heads that share them,
 * texts. */
template <int HEADS, enum format F, bool WIDE>
static __global__ void __launch_bounds__(THREADS, HEADS > 4 ? 1 : 2)
    chunk_kernel(void *y, float *lse, struct parts p, const float *q, struct cached k,
                 struct cached v, struct attention a, struct ranges r)
{
    enum { VALUES = WARPS * HEADS * GPU_WARP };
    SHARED(float4, memory, (int)VALUES > QUERY / 4 ? (int)VALUES : QUERY / 4);
    SHARED(float, score, HEADS *CHUNK);
    SHARED(int32_t, rows, CHUNK);
    SHARED(int, is_last, 1);
    struct range one;
    unsigned per = (unsigned)(a.heads / a.kv_heads), groups = (per + HEADS - 1) / HEADS;
    unsigned group = blockIdx.y % groups * HEADS;
    float4 *query = memory, *part = memory; /* the queries are not needed any more */
    struct piece o;

    others_ended();
    one = r.v[p.text + blockIdx.z];
    o.row = rows;
    if (one.rows >= p.fewer)
        return;
    o.kv = blockIdx.y / groups;
    o.head = o.kv * per + group;
    o.count = per - group < HEADS ? (int)(per - group) : (int)HEADS;
    for (int64_t i = blockIdx.x; i < p.queries * p.chunks; i += gridDim.x) {
        int64_t own = i / p.chunks, chunk = i % p.chunks, row = p.first + own;
        unsigned dim = (unsigned)a.head_dim, stride = (dim + 3) / 4, n;
        int64_t least;

        if (row >= one.rows)
            break;
        o.position = one.start + row;
        o.begin = chunk * CHUNK;
        visible(&a, one, o.position, &o.low, &o.high);
        n = chunks_seen(o.low, o.high);
        least = o.low / CHUNK;
        if (n == 0 && chunk == 0)
            add_chunks(y, lse, p, a, own, one.row + row, 0, 0, o);
        o.low = o.low > o.begin ? o.low : o.begin;
        o.high = o.high < o.begin + CHUNK ? o.high : o.begin + CHUNK;
        if (o.low >= o.high)
            continue;
        look_up<F>(rows, v, a, r, one, o);
        for (unsigned at = threadIdx.x; at < HEADS * stride; at += THREADS) {
            int h = (int)(at / stride);

            query[at] =
                four<WIDE>(q + ((one.row + row) * a.heads + o.head) * dim + h * dim,
                           at % stride * 4, h < o.count ? dim : 0);
        }
        __syncthreads();
        score_keys<HEADS, F, WIDE>(score, query, k, a, one, o);
        __syncthreads();
        exponentials(score, a, p, own, chunk, o);
        __syncthreads();
        for (unsigned first = 0; first < a.value_dim; first += COLUMNS) {
            weigh_values<HEADS, F, WIDE>(part, score, v, first, a, p, own, chunk, o);
            __syncthreads();
        }
        if (n > FEW_CHUNKS)
            continue;
        if (threadIdx.x == 0)
            *is_last = has_arrived(
                &arrived[(blockIdx.z * p.queries + own) * gridDim.y + blockIdx.y], n);
        __syncthreads();
        if (*is_last)
            add_chunks(y, lse, p, a, own, one.row + row, least, n, o);
        __syncthreads();
    }
}

/* The largest of V over a block; PART as in block_sum. */
static __device__ inline float block_max(float v, float *part)
{
    v = warp_max(v);
    if (threadIdx.x % GPU_WARP == 0)
        part[threadIdx.x / GPU_WARP] = v;
    __syncthreads();
    for (unsigned w = 0; w < ADDERS / GPU_WARP; w++)
        v = part[w] > v ? part[w] : v;
    return v;
}

/* Adds the chunks of head blockIdx.y of each query. */
static __global__ void __launch_bounds__(ADDERS)
    combine_kernel(void *y, float *lse, struct parts p, struct attention a,
                   struct ranges r)
{
    enum { TAKERS = ADDERS / GPU_WARP };
    SHARED(float4, part, ADDERS);
    SHARED(float, weight, WEIGHTS);
    SHARED(float, largest, TAKERS);
    SHARED(double, sums, TAKERS);
    struct range one;
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    uint64_t head = blockIdx.y;
    float sink = sink_of(&a, head);

    others_ended();
    one = r.v[p.text + blockIdx.z];
    if (one.rows >= p.fewer)
        return;
    for (int64_t i = blockIdx.x; i < p.queries && p.first + i < one.rows;
         i += gridDim.x) {
        const float *from = part_of(p, a, i, head, 0);
        uint64_t row = (uint64_t)(one.row + p.first + i) * a.heads + head;
        int64_t first, end, low, high;
        float most = sink, all = 0;
        double sum = 0;

        visible(&a, one, one.start + p.first + i, &first, &end);
        low = first / CHUNK;
        high = low + chunks_seen(first, end);
        if (high - low <= FEW_CHUNKS) /* its last block has added them */
            continue;
        for (int64_t c = low + threadIdx.x; c < high; c += ADDERS)
            most = from[c * p.stride] > most ? from[c * p.stride] : most;
        most = block_max(most, largest);
        for (unsigned col = 0; col < a.value_dim; col += COLUMNS) {
            float4 value = { 0, 0, 0, 0 };

            for (int64_t c = low; c < high; c += WEIGHTS) {
                int64_t n = high - c < WEIGHTS ? high - c : (int64_t)WEIGHTS;

                __syncthreads();
                for (int64_t k = threadIdx.x; k < n; k += ADDERS) {
                    float2 total = *(const float2 *)(from + (c + k) * p.stride);

                    weight[k] = total.x > -INFINITY ? expf(total.x - most) : 0;
                    if (col == 0)
                        sum += (double)(total.y * weight[k]);
                }
                __syncthreads();
                if (col + lane * 4 >= a.value_dim)
                    continue;
#pragma unroll 8
                for (int64_t k = warp; k < n; k += TAKERS)
                    add4(&value, weight[k],
                         *(const float4 *)(from + (c + k) * p.stride + TOTALS + col +
                                           lane * 4));
            }
            part[threadIdx.x] = value;
            if (col == 0) {
                all = (float)block_sum(sum, sums);
                all += sink > -INFINITY ? expf(sink - most) : 0;
            }
            __syncthreads();
            if (threadIdx.x < COLUMNS / 4) {
                float4 total = { 0, 0, 0, 0 };
                uint64_t to = row * a.value_dim;
                unsigned at = col + threadIdx.x * 4;

                for (unsigned w = 0; w < TAKERS; w++)
                    add4(&total, 1, part[w * GPU_WARP + threadIdx.x]);
                put_four(y, a, to, at, total, all);
            }
        }
        if (lse && threadIdx.x == 0)
            lse[row] = all > 0 ? most + logf(all) : -INFINITY;
    }
}

/* Chunks, and the texts, and queries of each, of at most ROWS, that are handled at a
 * time. */
static struct parts sizes_of(const struct attention &a, const struct ranges &r,
                             int64_t rows)
{
    struct parts p = {};
    int64_t most;

    p.chunks = (int64_t)gpu_key_chunks(r.most_keys ? r.most_keys : 1);
    p.stride = gpu_chunk_numbers(&a);
    most = MOST_PARTS /
           (int64_t)(a.heads * (uint64_t)p.chunks * p.stride * sizeof(float) + 1);
    most = most < MOST_HEADS / (int64_t)a.heads ? most : MOST_HEADS / (int64_t)a.heads;
    most = most < 1 ? 1 : most; /* queries of all texts */
    p.texts = (int64_t)r.n < most ? (int64_t)r.n : most;
    p.queries = most / p.texts < rows ? most / p.texts : rows;
    return p;
}

extern "C" uint64_t gpu_attention_parts(struct attention a, struct ranges r,
                                        uint64_t rows)
{
    struct parts p = sizes_of(a, r, (int64_t)rows);

    return (uint64_t)(p.texts * p.queries) * a.heads * (uint64_t)p.chunks * p.stride *
           sizeof(float);
}

template <int HEADS, enum format F, bool WIDE>
static void launch(void *y, float *lse, const struct parts &p, const float *q,
                   const struct cached &k, const struct cached &v,
                   const struct attention &a, const struct ranges &r, void *stream)
{
    uint64_t per = a.heads / a.kv_heads, groups = (per + HEADS - 1) / HEADS;

    LAUNCH_EARLY((chunk_kernel<HEADS, F, WIDE>),
                 dim3(gpu_blocks((uint64_t)(p.queries * p.chunks), 1),
                      (unsigned)(a.kv_heads * groups), (unsigned)p.texts),
                 THREADS, stream, y, lse, p, q, k, v, a, r);
}

template <enum format F, bool WIDE>
static void choose(void *y, float *lse, const struct parts &p, const float *q,
                   const struct cached &k, const struct cached &v,
                   const struct attention &a, const struct ranges &r, void *stream)
{
    uint64_t heads = a.heads / a.kv_heads, most = QUERY / ((a.head_dim + 3) / 4 * 4);

    heads = heads < most ? heads : most;
    if (heads >= 8)
        launch<8, F, WIDE>(y, lse, p, q, k, v, a, r, stream);
    else if (heads > 2 && most >= 4)
        launch<4, F, WIDE>(y, lse, p, q, k, v, a, r, stream);
    else if (heads == 2)
        launch<2, F, WIDE>(y, lse, p, q, k, v, a, r, stream);
    else
        launch<1, F, WIDE>(y, lse, p, q, k, v, a, r, stream);
}

/* K and V have one format. */
static void choose_format(void *y, float *lse, const struct parts &p, bool wide,
                          const float *q, const struct cached &k,
                          const struct cached &v, const struct attention &a,
                          const struct ranges &r, void *stream)
{
    if (!wide && k.format != FORMAT_F32)
        return choose<FORMAT_COUNT, false>(y, lse, p, q, k, v, a, r, stream);
    switch (k.format) {
    case FORMAT_BF16:
        return choose<FORMAT_BF16, true>(y, lse, p, q, k, v, a, r, stream);
    case FORMAT_CACHE_INT8:
        return choose<FORMAT_CACHE_INT8, true>(y, lse, p, q, k, v, a, r, stream);
    case FORMAT_CACHE_FP8:
        return choose<FORMAT_CACHE_FP8, true>(y, lse, p, q, k, v, a, r, stream);
    case FORMAT_CACHE_INT4:
        return choose<FORMAT_CACHE_INT4, true>(y, lse, p, q, k, v, a, r, stream);
    default:
        return wide ? choose<FORMAT_F32, true>(y, lse, p, q, k, v, a, r, stream)
                    : choose<FORMAT_F32, false>(y, lse, p, q, k, v, a, r, stream);
    }
}

extern "C" void gpu_attention_few(void *y, float *lse, const float *q, struct cached k,
                                  struct cached v, struct attention a, struct ranges r,
                                  uint64_t rows, uint64_t fewer, void *parts,
                                  void *stream)
{
    struct parts p = sizes_of(a, r, (int64_t)rows);
    int64_t texts = p.texts;
    bool wide = (uintptr_t)q % 16 == 0 && cached_is_wide(k) && cached_is_wide(v) &&
                (a.head_dim | a.value_dim | a.value_cols) % 4 == 0;

    p.at = (float *)parts;
    p.fewer = (int64_t)fewer;
    for (; p.text < (int64_t)r.n; p.text += texts) {
        p.texts = (int64_t)r.n - p.text < texts ? (int64_t)r.n - p.text : texts;
        for (p.first = 0; p.first < (int64_t)rows; p.first += p.queries) {
            choose_format(y, lse, p, wide, q, k, v, a, r, stream);
            if (p.chunks <= FEW_CHUNKS)
                continue;
            LAUNCH_EARLY(combine_kernel,
                         dim3(gpu_blocks((uint64_t)p.queries, 1), (unsigned)a.heads,
                              (unsigned)p.texts),
                         ADDERS, stream, y, lse, p, a, r);
        }
    }
}
