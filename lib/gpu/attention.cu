/* attention - softmax(scale q k^T) v over the keys that each query may see
 *
 * Vaswani et al. 2017, eq. 1; q [rows][heads][head_dim], k [keys][kv_heads][head_dim],
 * v [keys][kv_heads][value_cols], y [rows][heads][value_dim].  Kernels keep a running
 * maximum, sum and weighted sum of values, and rescale them when a larger score comes
 * (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax").
 *
 * Few queries of a text: chunks.cu.  Many: a block handles 32 and reads keys and values
 * once for all of them, 32 at a time (Dao et al. 2022, "FlashAttention", section 3.1),
 * in f32; or cores.cu does.  The choice depends only on the number of queries of a
 * text. */
#include "lib/gpu/bounds.h"
#include "lib/gpu/cached.cuh"
#include "lib/gpu/score.cuh"

/* The tiled kernel: queries and keys of a tile, maximum columns of a head, minimum
 * number of queries. */
enum {
    QUERIES = 32,
    KEYS = 32,
    TILED_DIM = GPU_TILED_DIM,
    TILED_THREADS = 128,
    LANES = 8, /* lanes that share a pair of queries */
    MANY = GPU_MANY
};

/* Row stride of a tile in shared memory, in float4: one more than the columns, so that
 * lanes that read different rows use different banks. */
enum { STRIDE = TILED_DIM / 4 + 1 };

/* Loads columns [cols] of keys or values [FIRST, END) from FROM into TILE; zeros beyond
 * END. */
static __device__ void load_rows(float4 *tile, const struct cached &from,
                                 uint64_t first_col, uint64_t cols, struct ranges r,
                                 struct range one, int64_t first, int64_t end)
{
    unsigned each = (unsigned)(cols / 4);

    for (unsigned i = threadIdx.x; i < KEYS * each; i += TILED_THREADS) {
        int64_t t = first + i / each;
        float4 f = { 0, 0, 0, 0 };

        if (t < end) {
            int64_t row = block_row(r, one, one.key_row + t);

            f = cached_any<true>(cached_row(from, row), from,
                                 (uint32_t)first_col + i % each * 4, 4);
        }
        tile[i / each * STRIDE + i % each] = f;
    }
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
static __global__ void tiled_kernel(void *y, float *lse, const float *q,
                                    struct cached k, struct cached v,
                                    struct attention a, struct ranges r, int64_t least)
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

            load_rows(tile, k, kv * a.head_dim, a.head_dim, r, one, t, high);
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
            load_rows(tile, v, kv * a.value_cols, a.value_dim, r, one, t, high);
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
                    put_quad(y, a.bf16, row * a.value_dim + (x + j * LANES) * 4,
                             { acc[i][j].x * part, acc[i][j].y * part,
                               acc[i][j].z * part, acc[i][j].w * part });
            if (lse && x == 0)
                lse[row] = sum[i] > 0 ? max[i] + logf(sum[i]) : -INFINITY;
        }
    }
}

/* True if the tiled kernel supports these sizes and alignments. */
static bool fits_tiles(const void *y, const float *q, const struct cached &k,
                       const struct cached &v, const struct attention *a,
                       const struct ranges *r)
{
    uintptr_t all = (uintptr_t)y | (uintptr_t)q;

    return r->most_rows >= MANY && all % 16 == 0 && cached_is_wide(k) &&
           cached_is_wide(v) && a->head_dim <= TILED_DIM && a->value_dim <= TILED_DIM &&
           (a->head_dim | a->value_dim | a->value_cols) % 4 == 0;
}

/* Queries of a text that chunks.cu handles at most. */
static uint64_t few_of(const struct ranges &r, bool tiled)
{
    return tiled ? r.n > 1 ? MANY - 1 : 0 : r.most_rows;
}

extern "C" uint64_t gpu_attention_room(const void *y, const float *q, struct cached k,
                                       struct cached v, struct attention a,
                                       struct ranges r)
{
    bool tiled = fits_tiles(y, q, k, v, &a, &r);
    uint64_t few = few_of(r, tiled), tiles = 0, parts = 0;

    if (!a.heads || !r.n || !r.most_rows)
        return 0;
    if (tiled && a.narrow)
        tiles = gpu_attention_tiles(a, r);
    if (few)
        parts = gpu_attention_parts(a, r, few);
    return tiles > parts ? tiles : parts;
}

extern "C" void gpu_attention(void *y, float *lse, const float *q, struct cached k,
                              struct cached v, struct attention a, struct ranges r,
                              void *room, void *stream)
{
    bool tiled = fits_tiles(y, q, k, v, &a, &r);
    uint64_t few = few_of(r, tiled);

    if (!a.heads || !r.n || !r.most_rows)
        return;
    if (tiled && a.narrow)
        gpu_attention_cores(y, lse, q, k, v, a, r, MANY, room, stream);
    else if (tiled)
        LAUNCH(tiled_kernel,
               dim3(gpu_blocks(r.most_rows, QUERIES), (unsigned)a.heads, (unsigned)r.n),
               TILED_THREADS, stream, y, lse, q, k, v, a, r, (int64_t)MANY);
    if (few)
        gpu_attention_few(y, lse, q, k, v, a, r, few,
                          tiled ? (uint64_t)MANY : UINT64_MAX / 2, room, stream);
    if (a.block && r.most_keys > a.over) /* these results replace those of long texts */
        gpu_attention_blocks(y, q, k, v, a, r, stream);
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
