/* cores - attention of many queries on tensor cores
 *
 * Tiled as in attention.cu (Dao et al. 2022, "FlashAttention", section 3.1; Dao 2023,
 * "FlashAttention-2", section 3.3): a block handles 128 queries of a head, 16 per warp,
 * and reads keys and values once for all of them, a tile of up to 64 at a time.  While
 * a tile is multiplied, the next one is copied into shared memory.
 *
 * Tensor cores multiply bf16.  Queries, keys, values and exponentials are split into
 * two bf16 parts, x = hi + lo with 16 significant bits, and three products are added:
 * hi lo + lo hi + hi hi.  This is as exact as products with bf16 weights (blas.c) and
 * three times the work of plain bf16.  With PARTS = 1 they are rounded to bf16, and
 * there is one product.  Models with f32 weights use the f32 kernel instead.
 *
 * Keys and values are split once for all queries and heads: a first kernel lays them
 * out in device memory as tiles in the order in which shared memory has them. */
#include "lib/gpu/bounds.h"
#include "lib/gpu/cached.cuh"
#include "lib/gpu/mma.cuh"
#include "lib/gpu/score.cuh"

#ifdef __CUDACC__
enum { WARPS = 8 };
#else
enum { WARPS = 2 };
#endif
enum { THREADS = WARPS * GPU_WARP, ROWS = 16, QUERIES = WARPS * ROWS, EIGHT = 8 };
/* Bytes of tiles at a time, unless a head of one text has more. */
enum { MOST_TILES = GPU_MOST_TILES };
static const float LOG2_E = 1.44269504f;

/* A tile has a matrix [COUNT][DIM] of keys, in PARTS parts, and then one of values;
 * COUNT is what registers suffice for.  Eight columns of a row are stored together,
 * group C of row R at place C ^ (R % 8), so that eight rows read together lie in
 * different banks. */
template <int DIM, int PARTS> struct tile {
    enum {
        COUNT = GPU_TILE_KEYS(DIM, PARTS),
        PART = COUNT * DIM,
        ELEMENTS = GPU_TILE_ELEMENTS(DIM, PARTS)
    };
};

/* Where the eight columns of group C of row R begin. */
template <int DIM> static __device__ inline unsigned place_of(unsigned r, unsigned c)
{
    return r * DIM + (c ^ r % EIGHT) * EIGHT;
}

/* A lane's state for one query.  A lane has two of the warp's 16 rows: g and g + 8
 * (mma.cuh). */
struct own_row {
    int first, end; /* visible keys */
    float most, sum;
};

/* PLAIN: scores are proportional to products, which stand for them, in units of the
 * scale. */
static bool is_plain(const struct attention &a)
{
    return !a.bias.data && !(a.softcap > 0) && a.alibi == 0 && a.scale > 0;
}

/* The parts of two numbers; LO is not set if there is one part. */
template <int PARTS>
static __device__ inline void parts_of(float low, float high, uint32_t *hi,
                                       uint32_t *lo)
{
    if (PARTS == 1)
        *hi = pack_bf16(low, high);
    else
        split_pair(low, high, hi, lo);
}

/* ---- tiles ---- */

/* Stores the parts of columns COL to COL + 7 of a head, which has COLS from FIRST on,
 * of ROW of C at TO; zeros beyond them and if ROW is NULL. */
template <int DIM, int PARTS>
static __device__ inline void put_eight(uint16_t *to, const struct cached &c,
                                        const char *row, unsigned first, unsigned col,
                                        unsigned cols)
{
    float4 f[2] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } };
    uint4 hi, lo;

#pragma unroll
    for (unsigned i = 0; i < 2; i++)
        if (row && col + 4 * i < cols)
            f[i] = cached_any<true>(row, c, first + col + 4 * i, 4);
    parts_of<PARTS>(f[0].x, f[0].y, &hi.x, &lo.x);
    parts_of<PARTS>(f[0].z, f[0].w, &hi.y, &lo.y);
    parts_of<PARTS>(f[1].x, f[1].y, &hi.z, &lo.z);
    parts_of<PARTS>(f[1].z, f[1].w, &hi.w, &lo.w);
    *(uint4 *)to = hi;
    if (PARTS == 2)
        *(uint4 *)(to + tile<DIM, PARTS>::PART) = lo;
}

/* What is laid out at a time: TILES tiles of each of HEADS heads of keys, from HEAD on,
 * of each of TEXTS texts, from TEXT on. */
struct laid {
    uint16_t *at;
    uint64_t tiles;
    unsigned text, texts, head, heads;
};

/* The tiles of the KV-th head of them, of text blockIdx.z. */
template <int DIM, int PARTS>
static __device__ inline uint16_t *tiles_of(const struct laid &l, uint64_t kv)
{
    return l.at + (blockIdx.z * l.heads + kv) * l.tiles * tile<DIM, PARTS>::ELEMENTS;
}

/* Blocks that lay out a tile: a thread waits for each of its loads. */
enum { PIECES = 8 };

/* Lays out the keys and values of tile blockIdx.x / PIECES of head blockIdx.y of text
 * blockIdx.z, of those of L. */
template <int DIM, int PARTS>
static __global__ void lay_kernel(struct laid l, struct cached k, struct cached v,
                                  struct attention a, struct ranges r, int64_t least)
{
    enum { COUNT = tile<DIM, PARTS>::COUNT, GROUPS = DIM / EIGHT };
    enum { EACH = 2 * COUNT * GROUPS / PIECES };
    struct range one = r.v[l.text + blockIdx.z];
    uint64_t kv = l.head + blockIdx.y;
    uint16_t *to = tiles_of<DIM, PARTS>(l, blockIdx.y);

    if (one.rows < least)
        return;
    for (int64_t p = blockIdx.x; p / PIECES * COUNT < one.keys; p += gridDim.x)
        for (unsigned n = threadIdx.x; n < EACH; n += blockDim.x) {
            unsigned i = (unsigned)(p % PIECES) * EACH + n;
            int64_t t = p / PIECES;
            bool value = i >= COUNT * GROUPS;
            unsigned key = i % (COUNT * GROUPS) / GROUPS, group = i % GROUPS;
            bool there = t * COUNT + key < one.keys;
            int64_t row =
                there ? block_row(r, one, (int64_t)one.key_row + t * COUNT + key) : 0;
            struct cached from = value ? v : k;

            put_eight<DIM, PARTS>(to + t * tile<DIM, PARTS>::ELEMENTS +
                                      (value ? PARTS * tile<DIM, PARTS>::PART : 0) +
                                      place_of<DIM>(key, group),
                                  from, there ? cached_row(from, row) : NULL,
                                  (unsigned)(kv * (value ? a.value_cols : a.head_dim)),
                                  group * EIGHT,
                                  (unsigned)(value ? a.value_dim : a.head_dim));
        }
}

/* Starts to copy a tile. */
template <int DIM, int PARTS>
static __device__ inline void fetch(uint16_t *to, const uint16_t *from)
{
#pragma unroll
    for (unsigned i = 0; i < tile<DIM, PARTS>::ELEMENTS / (THREADS * EIGHT); i++) {
        unsigned at = (i * THREADS + threadIdx.x) * EIGHT;

        copy_start(to + at, from + at);
    }
}

/* ---- products ---- */

/* The parts of columns COL and COL + 1 of query ROW of a head; zeros if absent. */
template <int PARTS>
static __device__ inline void load_pair(uint32_t *hi, uint32_t *lo, const float *q,
                                        const struct attention &a, uint64_t head,
                                        struct range one, int64_t row, unsigned col)
{
    const float *from = q + ((one.row + row) * a.heads + head) * a.head_dim + col;
    bool there = row < one.rows && col < a.head_dim;

    parts_of<PARTS>(there ? from[0] : 0, there ? from[1] : 0, hi, lo);
}

/* Reductions over the four lanes of a row. */
static __device__ inline float row_max(float v)
{
    for (int k = 2; k; k /= 2) {
        float other = __shfl_xor_sync(~0u, v, k);

        v = other > v ? other : v;
    }
    return v;
}

static __device__ inline float row_sum(float v)
{
    for (int k = 2; k; k /= 2)
        v += __shfl_xor_sync(~0u, v, k);
    return v;
}

/* s = q k^T of this warp's queries and the tile's keys.  The queries' low parts are at
 * LO, THREADS apart, in shared memory: registers do not suffice.  The matrices that are
 * loaded together are two groups of eight keys, of columns 0-7 and 8-15 each. */
template <int DIM, int PARTS>
static __device__ inline void scores_of(float s[][4], const uint32_t hi[][4],
                                        const uint4 *lo, const uint16_t *keys)
{
    enum { COUNT = tile<DIM, PARTS>::COUNT, PART = tile<DIM, PARTS>::PART };
    unsigned lane = threadIdx.x % GPU_WARP;
    unsigned row = lane / 16 * 8 + lane % 8, half = lane / 8 % 2;

#pragma unroll
    for (int j = 0; j < COUNT / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[j][i] = 0;
#pragma unroll
    for (int c = 0; c < DIM / 16; c++) {
        unsigned at = place_of<DIM>(row, 2 * c + half);
        uint4 four = PARTS == 2 ? lo[c * THREADS] : uint4{ 0, 0, 0, 0 };
        uint32_t own[4] = { four.x, four.y, four.z, four.w };

#pragma unroll
        for (int j = 0; j < COUNT / 16; j++) {
            uint32_t b[4], low[4];

            load_matrices<false>(b, keys, at + j * 16 * DIM);
            if (PARTS == 2) {
                load_matrices<false>(low, keys, at + PART + j * 16 * DIM);
                mma(s[2 * j], own, b);
                mma(s[2 * j + 1], own, b + 2);
                mma(s[2 * j], hi[c], low);
                mma(s[2 * j + 1], hi[c], low + 2);
            }
            mma(s[2 * j], hi[c], b);
            mma(s[2 * j + 1], hi[c], b + 2);
        }
    }
}

/* acc += p v for the tile's values; p has the layout of scores_of.  The matrices that
 * are loaded together are keys 0-7 and 8-15, of two groups of eight columns each. */
template <int DIM, int PARTS>
static __device__ inline void add_values(float acc[DIM / 8][4], const float p[][4],
                                         const uint16_t *values)
{
    enum { COUNT = tile<DIM, PARTS>::COUNT, PART = tile<DIM, PARTS>::PART };
    unsigned lane = threadIdx.x % GPU_WARP;
    unsigned row = lane / 8 % 2 * 8 + lane % 8, half = lane / 16;

#pragma unroll
    for (int c = 0; c < COUNT / 16; c++) {
        uint32_t hi[4], lo[4];

        /* the result fragments of two neighbouring key groups form an operand a */
#pragma unroll
        for (int i = 0; i < 4; i++)
            parts_of<PARTS>(p[2 * c + i / 2][i % 2 * 2],
                            p[2 * c + i / 2][i % 2 * 2 + 1], &hi[i], &lo[i]);
#pragma unroll
        for (int j = 0; j < DIM / 16; j++) {
            unsigned at = place_of<DIM>(row, 2 * j + half) + c * 16 * DIM;
            uint32_t b[4], low[4];

            load_matrices<true>(b, values, at);
            if (PARTS == 2) {
                load_matrices<true>(low, values, at + PART);
                mma(acc[2 * j], lo, b);
                mma(acc[2 * j + 1], lo, b + 2);
                mma(acc[2 * j], hi, low);
                mma(acc[2 * j + 1], hi, low + 2);
            }
            mma(acc[2 * j], hi, b);
            mma(acc[2 * j + 1], hi, b + 2);
        }
    }
}

/* ---- softmax ---- */

/* Makes scores of products, and -infinity of those of keys that are not visible; KEY is
 * this lane's first key, and DISTANCE that from key 0 to its first query. */
template <int COUNT, bool PLAIN>
static __device__ inline void mask_tile(float s[][4], const struct own_row own[2],
                                        const struct attention &a, uint64_t head,
                                        float slope, int key, int distance)
{
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) {
        const struct own_row *o = &own[i / 2 % 2];
        int at = key + i / 4 * 8 + i % 2;
        float *one = &s[i / 4][i % 4];

        if (!PLAIN)
            *one = score_of(&a, *one, head, slope, at - distance - i / 2 % 2 * 8);
        if (at < o->first || at >= o->end)
            *one = -INFINITY;
    }
}

/* Turns scores into exponentials and rescales the previous sums. */
template <int DIM, int COUNT>
static __device__ inline void softmax_tile(float s[][4], float acc[DIM / 8][4],
                                           struct own_row own[2], float unit)
{
    unit *= LOG2_E;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        struct own_row *o = &own[h];
        float most = -INFINITY, f, base;

#pragma unroll
        for (int j = 0; j < COUNT / 8; j++)
            most = fmaxf(most, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
        most = row_max(most);
        most = o->most > most ? o->most : most;
        base = most == -INFINITY ? 0 : most; /* exp_two(-infinity) is 0 */
        f = exp_two((o->most - base) * unit);
        o->sum *= f;
        o->most = most;
#pragma unroll
        for (int j = 0; j < COUNT / 8; j++)
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++) {
                s[j][i] = exp_two((s[j][i] - base) * unit);
                o->sum += s[j][i];
            }
#pragma unroll
        for (int j = 0; j < DIM / 8; j++) {
            acc[j][2 * h] *= f;
            acc[j][2 * h + 1] *= f;
        }
    }
}

/* ---- a block ---- */

/* Writes the result in acc[.][2 h] and acc[.][2 h + 1] to row ROW of y. */
template <int DIM>
static __device__ inline void put_row(void *y, float *lse, const float acc[DIM / 8][4],
                                      int h, const struct own_row *o, float unit,
                                      const struct attention &a, uint64_t row)
{
    unsigned col = threadIdx.x % 4 * 2;
    float sum = row_sum(o->sum), part = sum > 0 ? 1 / sum : 0;

#pragma unroll
    for (unsigned j = 0; j < DIM / 8; j++)
        if (o->end >= 0 && j * 8 + col < a.value_dim) {
            float2 two = { acc[j][2 * h] * part, acc[j][2 * h + 1] * part };
            uint64_t at = row * a.value_dim + j * 8 + col;

            if (a.bf16)
                *(uint32_t *)((uint16_t *)y + at) = pack_bf16(two.x, two.y);
            else
                *(float2 *)((float *)y + at) = two;
        }
    if (lse && o->end >= 0 && col == 0)
        lse[row] = sum > 0 ? o->most * unit + logf(sum) : -INFINITY;
}

/* Initialises the state of query I; end = -1 if there is no such query. */
static __device__ inline void open_row(struct own_row *o, const struct attention &a,
                                       struct range one, int64_t i, float sink)
{
    int64_t first, end;

    visible(&a, one, one.start + i, &first, &end);
    o->first = i < one.rows ? (int)first : 0;
    o->end = i < one.rows ? (int)end : -1;
    o->most = sink;
    o->sum = sink > -INFINITY && threadIdx.x % 4 == 0;
}

/* The keys that all queries of the warp see, [*all, *all_end), and that any of them
 * sees. */
static __device__ inline void warp_keys(const struct own_row own[2], int *any,
                                        int *any_end, int *all, int *all_end)
{
    *any = INT32_MAX;
    *any_end = *all = 0;
    *all_end = INT32_MAX;
    for (int h = 0; h < 2; h++)
        if (own[h].end >= 0) {
            *any = own[h].first < *any ? own[h].first : *any;
            *any_end = own[h].end > *any_end ? own[h].end : *any_end;
            *all = own[h].first > *all ? own[h].first : *all;
            *all_end = own[h].end < *all_end ? own[h].end : *all_end;
        }
    for (int k = GPU_WARP / 2; k; k /= 2) {
        int low = __shfl_xor_sync(~0u, *any, k),
            high = __shfl_xor_sync(~0u, *any_end, k);

        *any = low < *any ? low : *any;
        *any_end = high > *any_end ? high : *any_end;
        low = __shfl_xor_sync(~0u, *all, k);
        high = __shfl_xor_sync(~0u, *all_end, k);
        *all = low > *all ? low : *all;
        *all_end = high < *all_end ? high : *all_end;
    }
}

/* Queries of text blockIdx.z, and of their head blockIdx.x of those that have the heads
 * of keys of L; blocks of the last queries, which may see the most keys, come first.
 * Key tiles start at multiples of COUNT, so a query's sums do not depend on the other
 * queries of its block. */
template <int DIM, int PARTS, bool PLAIN>
static __global__ void __launch_bounds__(THREADS, 1)
    cores_kernel(void *y, float *lse, const float *q, struct laid l, struct attention a,
                 struct ranges r, int64_t least)
{
    enum { COUNT = tile<DIM, PARTS>::COUNT, ELEMENTS = tile<DIM, PARTS>::ELEMENTS };
    SHARED_AT_LAUNCH(uint4, memory);
    uint16_t *stage = (uint16_t *)memory;
    uint4 *lo = memory + 2 * ELEMENTS / EIGHT + threadIdx.x;
    struct range one = r.v[l.text + blockIdx.z];
    unsigned lane = threadIdx.x % GPU_WARP, g = lane / 4, t = lane % 4;
    uint64_t per = a.heads / a.kv_heads, head = l.head * per + blockIdx.x;
    const uint16_t *tiles = tiles_of<DIM, PARTS>(l, blockIdx.x / per);
    float slope = a.alibi != 0 ? alibi_slope(&a, head) : 0;
    float unit = PLAIN ? (float)a.scale : 1;
    float sink = sink_of(&a, head) / unit;

    if (one.rows < least)
        return;
    for (int block = (one.rows - 1) / QUERIES - (int)blockIdx.y; block >= 0;
         block -= (int)gridDim.y) {
        int at = block * QUERIES, row = at + (int)threadIdx.x / GPU_WARP * ROWS, key,
            key_end;
        int64_t low, high, none;
        uint32_t hi[DIM / 16][4];
        float acc[DIM / 8][4];
        struct own_row own[2];
        int any, any_end, all, all_end, at_stage = 0;

#pragma unroll
        for (int c = 0; c < DIM / 16; c++) {
            uint32_t own[4];

#pragma unroll
            for (int i = 0; i < 4; i++)
                load_pair<PARTS>(&hi[c][i], &own[i], q, a, head, one,
                                 row + g + i % 2 * 8, c * 16 + i / 2 * 8 + 2 * t);
            if (PARTS == 2)
                lo[c * THREADS] = { own[0], own[1], own[2], own[3] };
        }
#pragma unroll
        for (int i = 0; i < 4 * (DIM / 8); i++)
            acc[i / 4][i % 4] = 0;
        open_row(&own[0], a, one, row + g, sink);
        open_row(&own[1], a, one, row + g + 8, sink);
        warp_keys(own, &any, &any_end, &all, &all_end);
        visible(&a, one, one.start + at, &low, &none);
        visible(&a, one,
                one.start + (at + QUERIES < one.rows ? at + QUERIES : one.rows) - 1,
                &none, &high);
        key = (int)(low - low % COUNT);
        key_end = (int)high;
        __syncthreads();
        if (key < key_end)
            fetch<DIM, PARTS>(stage, tiles + (uint64_t)(key / COUNT) * ELEMENTS);
        for (; key < key_end; key += COUNT) {
            const uint16_t *keys = stage + at_stage * ELEMENTS,
                           *values = keys + ELEMENTS / 2;
            float s[COUNT / 8][4];

            copies_wait();
            __syncthreads();
            at_stage = !at_stage;
            if (key + COUNT < key_end)
                fetch<DIM, PARTS>(stage + at_stage * ELEMENTS,
                                  tiles + (uint64_t)(key / COUNT + 1) * ELEMENTS);
            if (key >= any_end || key + COUNT <= any)
                continue;
            scores_of<DIM, PARTS>(s, hi, lo, keys);
            if (!PLAIN || key < all || key + COUNT > all_end)
                mask_tile<COUNT, PLAIN>(s, own, a, head, slope, key + 2 * (int)t,
                                        (int)(one.start - one.first_key) + row +
                                            (int)g);
            softmax_tile<DIM, COUNT>(s, acc, own, unit);
            add_values<DIM, PARTS>(acc, s, values);
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
            put_row<DIM>(y, lse, acc, h, &own[h], unit, a,
                         (uint64_t)(one.row + row + g + 8 * h) * a.heads + head);
    }
}

/* ---- launches ---- */

/* What is laid out at a time, the first time. */
template <int DIM, int PARTS>
static struct laid sizes_of(const struct attention &a, const struct ranges &r)
{
    enum { COUNT = tile<DIM, PARTS>::COUNT };
    struct laid l = {};
    uint64_t most;

    l.tiles = (r.most_keys + COUNT - 1) / COUNT;
    most = MOST_TILES / (l.tiles * tile<DIM, PARTS>::ELEMENTS * sizeof(uint16_t) + 1);
    most = most < 1 ? 1 : most; /* heads of all texts */
    l.heads = (unsigned)(most < a.kv_heads ? most : a.kv_heads);
    l.texts = (unsigned)(most / l.heads < r.n ? most / l.heads : r.n);
    return l;
}

template <int DIM, int PARTS>
static uint64_t bytes_of(const struct attention &a, const struct ranges &r)
{
    struct laid l = sizes_of<DIM, PARTS>(a, r);

    return (uint64_t)l.texts * l.heads * l.tiles * tile<DIM, PARTS>::ELEMENTS *
           sizeof(uint16_t);
}

template <int DIM, int PARTS>
static void launch(void *y, float *lse, const float *q, const struct cached &k,
                   const struct cached &v, const struct attention &a,
                   const struct ranges &r, int64_t least, const struct laid &l,
                   void *stream)
{
    size_t shared = 2 * tile<DIM, PARTS>::ELEMENTS * sizeof(uint16_t) +
                    (PARTS - 1) * DIM / 16 * THREADS * sizeof(uint4);
    dim3 grid((unsigned)(l.heads * (a.heads / a.kv_heads)),
              gpu_blocks(r.most_rows, QUERIES), l.texts);

    LAUNCH((lay_kernel<DIM, PARTS>),
           dim3(gpu_blocks(l.tiles * PIECES, 1), l.heads, l.texts), GPU_THREADS, stream,
           l, k, v, a, r, least);
    if (is_plain(a))
        LAUNCH_SHARED(shared, (cores_kernel<DIM, PARTS, true>), grid, THREADS, stream,
                      y, lse, q, l, a, r, least);
    else
        LAUNCH_SHARED(shared, (cores_kernel<DIM, PARTS, false>), grid, THREADS, stream,
                      y, lse, q, l, a, r, least);
}

template <int DIM, int PARTS>
static void launch_all(void *y, float *lse, const float *q, const struct cached &k,
                       const struct cached &v, const struct attention &a,
                       const struct ranges &r, uint64_t least, void *room, void *stream)
{
    const struct laid all = sizes_of<DIM, PARTS>(a, r);
    struct laid l = all;

    l.at = (uint16_t *)room;
    for (l.text = 0; l.text < r.n; l.text += all.texts)
        for (l.head = 0; l.head < a.kv_heads; l.head += all.heads) {
            l.texts = (unsigned)(r.n - l.text < all.texts ? r.n - l.text : all.texts);
            l.heads = (unsigned)(a.kv_heads - l.head < all.heads ? a.kv_heads - l.head
                                                                 : all.heads);
            launch<DIM, PARTS>(y, lse, q, k, v, a, r, (int64_t)least, l, stream);
        }
}

static bool is_small(const struct attention &a)
{
    return gpu_tile_dim(&a) == 64;
}

extern "C" uint64_t gpu_attention_tiles(struct attention a, struct ranges r)
{
    if (is_small(a))
        return a.rounded ? bytes_of<64, 1>(a, r) : bytes_of<64, 2>(a, r);
    return a.rounded ? bytes_of<128, 1>(a, r) : bytes_of<128, 2>(a, r);
}

extern "C" void gpu_attention_cores(void *y, float *lse, const float *q,
                                    struct cached k, struct cached v,
                                    struct attention a, struct ranges r, uint64_t least,
                                    void *tiles, void *stream)
{
    if (is_small(a) && a.rounded)
        launch_all<64, 1>(y, lse, q, k, v, a, r, least, tiles, stream);
    else if (is_small(a))
        launch_all<64, 2>(y, lse, q, k, v, a, r, least, tiles, stream);
    else if (a.rounded)
        launch_all<128, 1>(y, lse, q, k, v, a, r, least, tiles, stream);
    else
        launch_all<128, 2>(y, lse, q, k, v, a, r, least, tiles, stream);
}
