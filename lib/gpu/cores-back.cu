/* cores-back - gradients of attention on tensor cores, from operands in bf16
 *
 * As attention-back.cu: one pass of queries and one of keys (Dao 2023,
 * "FlashAttention-2", section 3.1).  A block owns some queries of a head, or keys for
 * all heads that read them, 16 a warp, and goes through tiles of keys, or of queries;
 * while a tile is multiplied, the next one is copied into shared memory.  Weights and
 * their gradients are rounded to bf16 where they are multiplied; sums are f32. */
#include "lib/gpu/back.h"
#include "lib/gpu/mma.cuh"
#include "lib/gpu/score.cuh"

#ifdef __CUDACC__
enum { WARPS = 4 };
#else
enum { WARPS = 2 };
#endif
enum { THREADS = WARPS * GPU_WARP, ROWS = 16, OWN = WARPS * ROWS, EIGHT = 8 };
static const float LOG2_E = 1.44269504f;

/* Rows of a tile: what registers suffice for. */
template <int DIM> static constexpr int tile_of = DIM == 64 ? 64 : 32;

/* Numbers of 16 bits of a pair of matrices: of own rows, and of a tile. */
template <int DIM> static constexpr int own_of = 2 * OWN *DIM;
template <int DIM> static constexpr int pair_of = 2 * tile_of<DIM> *DIM;

/* Of each query of a tile. */
struct of_query {
    float lse, delta;
    int first, end; /* visible keys */
};

template <int DIM> static constexpr size_t shared_of()
{
    return (own_of<DIM> + 2 * pair_of<DIM>)*sizeof(uint16_t) +
           2 * tile_of<DIM> * sizeof(struct of_query);
}

/* Where the eight columns of group C of row R begin, so that eight rows read together
 * lie in different banks. */
template <int DIM> static __device__ inline unsigned place_of(unsigned r, unsigned c)
{
    return r * DIM + (c ^ r % EIGHT) * EIGHT;
}

/* Rows of one head in bf16. */
struct head_rows {
    const uint16_t *at; /* of row 0 */
    uint64_t stride;
    unsigned cols;
};

/* Starts to copy rows [FIRST, FIRST + N) into TO; zeros from END on, and beyond the
 * columns. */
template <int DIM>
static __device__ inline void fetch(uint16_t *to, struct head_rows x, int64_t first,
                                    int64_t end, unsigned n)
{
    for (unsigned i = threadIdx.x; i < n * (DIM / EIGHT); i += THREADS) {
        unsigned row = i / (DIM / EIGHT), group = i % (DIM / EIGHT);
        uint16_t *at = to + place_of<DIM>(row, group);

        if (first + row < end && group * EIGHT < x.cols)
            copy_start(at, x.at + (first + row) * (int64_t)x.stride + group * EIGHT);
        else
            *(uint4 *)at = { 0, 0, 0, 0 };
    }
}

/* s [16][TILE] = the warp's rows of X times those of Y. */
template <int DIM>
static __device__ inline void multiply(float s[][4], const uint16_t *x,
                                       const uint16_t *y)
{
    enum { TILE = tile_of<DIM> };
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    unsigned own = warp * ROWS + lane / 8 % 2 * 8 + lane % 8;
    unsigned row = lane / 16 * 8 + lane % 8;

#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[j][i] = 0;
#pragma unroll
    for (int c = 0; c < DIM / 16; c++) {
        unsigned at = place_of<DIM>(row, 2 * c + lane / 8 % 2);
        uint32_t a[4];

        load_matrices<false>(a, x, place_of<DIM>(own, 2 * c + lane / 16));
#pragma unroll
        for (int j = 0; j < TILE / 16; j++) {
            uint32_t b[4];

            load_matrices<false>(b, y, at + j * 16 * DIM);
            mma(s[2 * j], a, b);
            mma(s[2 * j + 1], a, b + 2);
        }
    }
}

/* sum [16][DIM] += p [16][TILE] times the rows of Y. */
template <int DIM>
static __device__ inline void add_product(float sum[][4], const float p[][4],
                                          const uint16_t *y)
{
    enum { TILE = tile_of<DIM> };
    unsigned lane = threadIdx.x % GPU_WARP;
    unsigned row = lane / 8 % 2 * 8 + lane % 8;

#pragma unroll
    for (int c = 0; c < TILE / 16; c++) {
        uint32_t a[4];

        /* the result fragments of two neighbouring groups form an operand a */
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] =
                pack_bf16(p[2 * c + i / 2][i % 2 * 2], p[2 * c + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int j = 0; j < DIM / 16; j++) {
            uint32_t b[4];

            load_matrices<true>(b, y,
                                place_of<DIM>(row, 2 * j + lane / 16) + c * 16 * DIM);
            mma(sum[2 * j], a, b);
            mma(sum[2 * j + 1], a, b + 2);
        }
    }
}

/* Replaces the product S by a weight, and the gradient D of the weight by that of the
 * product, before the scale. */
template <bool PLAIN>
static __device__ inline void weigh(float *s, float *d, const struct attention &a,
                                    uint64_t head, float slope, struct of_query q,
                                    int key, int distance)
{
    float p, by = 1;

    if (PLAIN) {
        p = exp_two((*s * (float)a.scale - q.lse) * LOG2_E);
    } else {
        float score = score_of(&a, *s, head, slope, distance);

        p = exp_two((score - q.lse) * LOG2_E);
        if (a.softcap > 0)
            by = 1 - score / (float)a.softcap * (score / (float)a.softcap);
    }
    if (key < q.first || key >= q.end)
        p = 0;
    *s = p;
    *d = p > 0 ? p * (*d - q.delta) * by : 0;
}

/* Columns of the warp's rows of Y, which begin at FIRST, times BY. */
template <int DIM>
static __device__ inline void put_rows(float *y, uint64_t stride, int64_t end,
                                       int64_t first, const float sum[][4],
                                       unsigned cols, float by)
{
    unsigned lane = threadIdx.x % GPU_WARP, g = lane / 4, t = lane % 4;

#pragma unroll
    for (int j = 0; j < DIM / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int64_t row = first + g + i / 2 * 8;
            unsigned col = j * 8 + 2 * t + i % 2;

            if (row < end && col < cols)
                y[row * (int64_t)stride + col] = by * sum[j][i];
        }
}

/* What query I of ONE, or the last one's, has of HEAD. */
static __device__ inline struct of_query query_of(const struct attention_back &b,
                                                  const struct attention &a,
                                                  struct range one, int64_t i,
                                                  uint64_t head)
{
    struct of_query q = { 0, 0, 0, 0 };
    int64_t first, end;

    if (i >= one.rows)
        return q;
    visible(&a, one, one.start + i, &first, &end);
    q.lse = b.lse[(one.row + i) * (int64_t)a.heads + (int64_t)head];
    q.delta = b.delta[(one.row + i) * (int64_t)a.heads + (int64_t)head];
    q.first = (int)first;
    q.end = (int)end;
    return q;
}

static __device__ inline struct head_rows
rows_of(const uint16_t *x, int64_t row, uint64_t heads, uint64_t head, uint64_t cols)
{
    struct head_rows r;

    r.stride = heads * cols;
    r.at = x + row * (int64_t)r.stride + head * cols;
    r.cols = (unsigned)cols;
    return r;
}

template <int DIM, bool PLAIN>
static __global__ void __launch_bounds__(THREADS)
    queries_cores_kernel(struct attention_back b, struct attention_bf16 x,
                         struct attention a, struct ranges r)
{
    enum { TILE = tile_of<DIM> };
    SHARED_AT_LAUNCH(uint16_t, own);
    struct range one = r.v[blockIdx.z];
    uint64_t head = blockIdx.y, kv = head / (a.heads / a.kv_heads);
    float slope = a.alibi != 0 ? alibi_slope(&a, head) : 0;
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    struct head_rows q = rows_of(x.q, one.row, a.heads, head, a.head_dim);
    struct head_rows d = rows_of(x.d, one.row, a.heads, head, a.value_dim);
    struct head_rows k = rows_of(x.k, one.key_row, a.kv_heads, kv, a.head_dim);
    struct head_rows v = rows_of(x.v, one.key_row, a.kv_heads, kv, a.value_dim);

    for (int64_t at = blockIdx.x * (int64_t)OWN; at < one.rows;
         at += gridDim.x * (int64_t)OWN) {
        const int64_t mine = at + warp * ROWS + lane / 4;
        struct of_query of[2] = { query_of(b, a, one, mine, head),
                                  query_of(b, a, one, mine + 8, head) };
        float sum[DIM / 8][4] = { { 0 } };
        int64_t low, high, none;
        int next = 0;

        visible(&a, one, one.start + at, &low, &none);
        visible(&a, one, one.start + (at + OWN < one.rows ? at + OWN : one.rows) - 1,
                &none, &high);
        fetch<DIM>(own, q, at, one.rows, OWN);
        fetch<DIM>(own + OWN * DIM, d, at, one.rows, OWN);
        for (int64_t t = low; t < high; t += TILE, next ^= 1) {
            uint16_t *tile = own + own_of<DIM> + next * pair_of<DIM>;
            float s[TILE / 8][4], ds[TILE / 8][4];

            if (t == low) {
                fetch<DIM>(tile, k, t, one.keys, TILE);
                fetch<DIM>(tile + TILE * DIM, v, t, one.keys, TILE);
            }
            copies_wait();
            __syncthreads();
            if (t + TILE < high) {
                uint16_t *to = own + own_of<DIM> + (next ^ 1) * pair_of<DIM>;

                fetch<DIM>(to, k, t + TILE, one.keys, TILE);
                fetch<DIM>(to + TILE * DIM, v, t + TILE, one.keys, TILE);
            }
            multiply<DIM>(s, own, tile);
            multiply<DIM>(ds, own + OWN * DIM, tile + TILE * DIM);
#pragma unroll
            for (int j = 0; j < TILE / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int key = (int)t + j * 8 + (int)(2 * (lane % 4)) + i % 2;
                    int64_t position = one.start + mine + i / 2 * 8;

                    weigh<PLAIN>(&s[j][i], &ds[j][i], a, head, slope, of[i / 2], key,
                                 (int)(one.first_key + key - position));
                }
            add_product<DIM>(sum, ds, tile);
        }
        put_rows<DIM>(b.y + one.row * (int64_t)b.cols + head * a.head_dim, b.cols,
                      one.rows, at + warp * ROWS, sum, (unsigned)a.head_dim,
                      (float)a.scale);
        copies_wait();
        __syncthreads();
    }
}

/* Copies a tile of queries from I on, and of their gradients, and what they have of
 * HEAD. */
template <int DIM>
static __device__ inline void
fetch_queries(uint16_t *to, struct of_query *of, const struct attention_back &b,
              const struct attention_bf16 &x, const struct attention &a,
              struct range one, uint64_t head, int64_t i)
{
    enum { TILE = tile_of<DIM> };

    fetch<DIM>(to, rows_of(x.q, one.row, a.heads, head, a.head_dim), i, one.rows, TILE);
    fetch<DIM>(to + TILE * DIM, rows_of(x.d, one.row, a.heads, head, a.value_dim), i,
               one.rows, TILE);
    for (unsigned n = threadIdx.x; n < TILE; n += THREADS)
        of[n] = query_of(b, a, one, i + n, head);
}

template <int DIM, bool PLAIN>
static __global__ void __launch_bounds__(THREADS)
    keys_cores_kernel(struct attention_back b, struct attention_bf16 x,
                      struct attention a, struct ranges r)
{
    enum { TILE = tile_of<DIM> };
    SHARED_AT_LAUNCH(uint16_t, own);
    struct of_query *of = (struct of_query *)(own + own_of<DIM> + 2 * pair_of<DIM>);
    struct range one = r.v[blockIdx.z];
    uint64_t kv = blockIdx.y, per = a.heads / a.kv_heads;
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    struct head_rows k = rows_of(x.k, one.key_row, a.kv_heads, kv, a.head_dim);
    struct head_rows v = rows_of(x.v, one.key_row, a.kv_heads, kv, a.value_dim);

    for (int64_t at = blockIdx.x * (int64_t)OWN; at < one.keys;
         at += gridDim.x * (int64_t)OWN) {
        float dk[DIM / 8][4] = { { 0 } }, dv[DIM / 8][4] = { { 0 } };
        float *y = b.y + (b.queries ? one.row : one.key_row) * (int64_t)b.cols;
        int64_t from = one.first_key + at - one.start, low, high, tiles;
        int next = 0;

        low = a.causal && from > 0 ? from : 0;
        high = one.rows;
        if (a.causal && a.window && from + OWN - 1 + (int64_t)a.window < high)
            high = from + OWN - 1 + (int64_t)a.window;
        tiles = high > low ? (high - low + TILE - 1) / TILE : 0;
        fetch<DIM>(own, k, at, one.keys, OWN);
        fetch<DIM>(own + OWN * DIM, v, at, one.keys, OWN);
        if (tiles)
            fetch_queries<DIM>(own + own_of<DIM>, of, b, x, a, one, kv * per, low);
        for (int64_t n = 0; n < tiles * (int64_t)per; n++, next ^= 1) {
            uint16_t *tile = own + own_of<DIM> + next * pair_of<DIM>;
            const struct of_query *its = of + next * TILE;
            uint64_t head = kv * per + (uint64_t)(n / tiles);
            int64_t i = low + n % tiles * TILE;
            float slope = a.alibi != 0 ? alibi_slope(&a, head) : 0;
            float s[TILE / 8][4], ds[TILE / 8][4];

            copies_wait();
            __syncthreads();
            if (n + 1 < tiles * (int64_t)per)
                fetch_queries<DIM>(own + own_of<DIM> + (next ^ 1) * pair_of<DIM>,
                                   of + (next ^ 1) * TILE, b, x, a, one,
                                   kv * per + (uint64_t)((n + 1) / tiles),
                                   low + (n + 1) % tiles * TILE);
            multiply<DIM>(s, own, tile);
            multiply<DIM>(ds, own + OWN * DIM, tile + TILE * DIM);
#pragma unroll
            for (int j = 0; j < TILE / 8; j++)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    int query = j * 8 + (int)(2 * (lane % 4)) + c % 2;
                    int key = (int)at + (int)(warp * ROWS + lane / 4) + c / 2 * 8;

                    weigh<PLAIN>(&s[j][c], &ds[j][c], a, head, slope, its[query], key,
                                 (int)(one.first_key + key - (one.start + i + query)));
                }
            add_product<DIM>(dv, s, tile + TILE * DIM);
            add_product<DIM>(dk, ds, tile);
        }
        put_rows<DIM>(y + b.k_at + kv * a.head_dim, b.cols, one.keys, at + warp * ROWS,
                      dk, (unsigned)a.head_dim, (float)a.scale);
        put_rows<DIM>(y + b.v_at + kv * a.value_dim, b.cols, one.keys, at + warp * ROWS,
                      dv, (unsigned)a.value_dim, 1);
        copies_wait();
        __syncthreads();
    }
}

template <int DIM, bool PLAIN>
static void launch(const struct attention_back &b, const struct attention_bf16 &x,
                   const struct attention &a, const struct ranges &r, void *stream)
{
    if (b.queries)
        LAUNCH_SHARED(
            shared_of<DIM>(), (queries_cores_kernel<DIM, PLAIN>),
            dim3(gpu_blocks(r.most_rows, OWN), (unsigned)a.heads, (unsigned)r.n),
            THREADS, stream, b, x, a, r);
    if (b.keys)
        LAUNCH_SHARED(
            shared_of<DIM>(), (keys_cores_kernel<DIM, PLAIN>),
            dim3(gpu_blocks(r.most_keys, OWN), (unsigned)a.kv_heads, (unsigned)r.n),
            THREADS, stream, b, x, a, r);
}

extern "C" void gpu_attention_back_cores(struct attention_back b,
                                         struct attention_bf16 x, struct attention a,
                                         struct ranges r, void *stream)
{
    bool plain = !(a.softcap > 0) && a.alibi == 0;
    bool small = a.head_dim <= 64 && a.value_dim <= 64;

    if (small)
        plain ? launch<64, true>(b, x, a, r, stream)
              : launch<64, false>(b, x, a, r, stream);
    else
        plain ? launch<128, true>(b, x, a, r, stream)
              : launch<128, false>(b, x, a, r, stream);
}
