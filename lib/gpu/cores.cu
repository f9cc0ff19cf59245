/* cores - attention of many queries on tensor cores
 *
 * Tiled as in attention.cu (Dao et al. 2022, "FlashAttention", section 3.1): a block
 * handles 64 queries of a head, 16 per warp, and reads keys and values once for all of
 * them, 32 at a time.
 *
 * Tensor cores multiply bf16.  Queries, keys, values and exponentials are split into
 * two bf16 parts, x = hi + lo with 16 significant bits, and three products are added:
 * hi lo
 * + lo hi + hi hi.  This is as exact as products with bf16 weights (blas.c) and three
 * times the work of plain bf16.  With PARTS = 1 they are rounded to bf16, and there is
 * one product.  Models with f32 weights use the f32 kernel instead. */
#include "lib/gpu/mma.cuh"
#include "lib/gpu/score.cuh"

enum { WARPS = 4, THREADS = WARPS * GPU_WARP, ROWS = 16, QUERIES = WARPS * ROWS };
enum { KEYS = 32 };

/* A row of a tile in shared memory is padded by eight elements, so that eight rows read
 * together lie in different banks.  The low parts follow the high parts. */
template <int DIM, int PARTS> struct tile {
    enum { STRIDE = DIM + 8, PART = KEYS * STRIDE, WORDS = PARTS * PART / 8 };
};

/* A lane's state for one query.  A lane has two of the warp's 16 rows: g and g + 8
 * (mma.cuh). */
struct own_row {
    int first, end; /* visible keys */
    int distance;   /* from key 0 to the query */
    float most, sum;
};

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

/* Stores the parts of four columns at FROM at TO; zeros if FROM is NULL. */
template <int PARTS>
static __device__ inline void put_parts(uint16_t *to, int part, const float *from)
{
    float4 f = { 0, 0, 0, 0 };
    uint32_t hi[2], lo[2];

    if (from)
        f = *(const float4 *)from;
    parts_of<PARTS>(f.x, f.y, &hi[0], &lo[0]);
    parts_of<PARTS>(f.z, f.w, &hi[1], &lo[1]);
    for (int i = 0; i < 2; i++) {
        ((uint32_t *)to)[i] = hi[i];
        if (PARTS == 2)
            ((uint32_t *)(to + part))[i] = lo[i];
    }
}

/* Loads keys and values FIRST to END; zeros beyond END and in missing columns. */
template <int DIM, int PARTS>
static __device__ void load_tiles(uint16_t *keys, uint16_t *values, const float *k,
                                  const float *v, const struct attention &a,
                                  uint64_t kv, struct ranges r, struct range one,
                                  int first, int end)
{
    enum { EACH = DIM / 4 };

    for (unsigned i = threadIdx.x; i < KEYS * EACH; i += THREADS) {
        unsigned key = i / EACH, col = i % EACH * 4;
        unsigned at = key * tile<DIM, PARTS>::STRIDE + col;
        bool there = first + (int)key < end;
        int64_t row = there ? block_row(r, one, (int64_t)one.key_row + first + key) : 0;
        const float *kt = k + (row * a.kv_heads + kv) * a.head_dim + col;
        const float *vt = v + (row * a.kv_heads + kv) * a.value_cols + col;

        put_parts<PARTS>(keys + at, tile<DIM, PARTS>::PART,
                         there && col < a.head_dim ? kt : NULL);
        put_parts<PARTS>(values + at, tile<DIM, PARTS>::PART,
                         there && col < a.value_dim ? vt : NULL);
    }
}

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

/* s = q k^T of this warp's queries and the tile's keys.  Of two parts, the matrices
 * that are loaded together are columns 0-7 and 8-15 of the high parts and of the low
 * parts; of one, columns 0-7 to 24-31. */
template <int DIM, int PARTS>
static __device__ inline void scores_of(float s[KEYS / 8][4], const uint32_t hi[][4],
                                        const uint32_t lo[][4], const uint16_t *keys,
                                        unsigned cols)
{
    enum { STRIDE = tile<DIM, PARTS>::STRIDE };
    unsigned lane = threadIdx.x % GPU_WARP;
    const uint16_t *own = keys +
                          lane / 16 * (PARTS == 2 ? tile<DIM, PARTS>::PART : 16) +
                          lane % 8 * STRIDE + lane / 8 % 2 * 8;

#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[j][i] = 0;
#pragma unroll
        for (unsigned c = 0; c < DIM / 16; c += 3 - PARTS) {
            uint32_t b[4];

            if (c * 16 >= cols)
                break;
            load_matrices<false>(b, own + j * 8 * STRIDE + c * 16);
            if (PARTS == 2)
                mma(s[j], lo[c], b);
            mma(s[j], hi[c + 2 - PARTS], b + 2);
            mma(s[j], hi[c], b);
        }
    }
}

/* acc += p v for the tile's values; p has the layout of scores_of.  Of one part, two
 * groups of eight columns are loaded together. */
template <int DIM, int PARTS>
static __device__ inline void add_values(float acc[DIM / 8][4],
                                         const float p[KEYS / 8][4],
                                         const uint16_t *values, unsigned cols)
{
    enum { STRIDE = tile<DIM, PARTS>::STRIDE };
    unsigned lane = threadIdx.x % GPU_WARP;
    const uint16_t *own = values +
                          lane / 16 * (PARTS == 2 ? tile<DIM, PARTS>::PART : 8) +
                          (lane % 8 + lane / 8 % 2 * 8) * STRIDE;

#pragma unroll
    for (int c = 0; c < KEYS / 16; c++) {
        uint32_t hi[4], lo[4];

        /* the result fragments of two neighbouring key groups form an operand a */
#pragma unroll
        for (int i = 0; i < 4; i++)
            parts_of<PARTS>(p[2 * c + i / 2][i % 2 * 2],
                            p[2 * c + i / 2][i % 2 * 2 + 1], &hi[i], &lo[i]);
#pragma unroll
        for (unsigned j = 0; j < DIM / 8; j += 3 - PARTS) {
            uint32_t b[4];

            if (j * 8 >= cols)
                break;
            load_matrices<true>(b, own + c * 16 * STRIDE + j * 8);
            if (PARTS == 2)
                mma(acc[j], lo, b);
            mma(acc[j + 2 - PARTS], hi, b + 2);
            mma(acc[j], hi, b);
        }
    }
}

/* Turns scores into exponentials and rescales the previous sums. */
template <int DIM>
static __device__ inline void
softmax_tile(float s[KEYS / 8][4], float acc[DIM / 8][4], struct own_row own[2],
             const struct attention &a, uint64_t head, float slope, int key)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        struct own_row *o = &own[h];
        float most = -INFINITY, f;

#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            int at = key + i / 2 * 8 + i % 2;
            float *one = &s[i / 2][2 * h + i % 2];

            *one = at >= o->first && at < o->end
                       ? score_of(&a, *one, head, slope, at - o->distance)
                       : -INFINITY;
            most = *one > most ? *one : most;
        }
        most = row_max(most);
        most = o->most > most ? o->most : most;
        f = most == -INFINITY ? 1 : expf(o->most - most);
        o->sum *= f;
        o->most = most;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float *one = &s[i / 2][2 * h + i % 2];

            *one = most == -INFINITY ? 0 : expf(*one - most);
            o->sum += *one;
        }
#pragma unroll
        for (int j = 0; j < DIM / 8; j++) {
            acc[j][2 * h] *= f;
            acc[j][2 * h + 1] *= f;
        }
    }
}

/* Writes the result in acc[.][2 h] and acc[.][2 h + 1] to row ROW of y. */
template <int DIM>
static __device__ inline void put_row(float *y, float *lse, const float acc[DIM / 8][4],
                                      int h, const struct own_row *o,
                                      const struct attention &a, uint64_t row)
{
    unsigned col = threadIdx.x % 4 * 2;
    float sum = row_sum(o->sum), part = sum > 0 ? 1 / sum : 0;

#pragma unroll
    for (unsigned j = 0; j < DIM / 8; j++)
        if (o->end >= 0 && j * 8 + col < a.value_dim) {
            y[row * a.value_dim + j * 8 + col] = acc[j][2 * h] * part;
            y[row * a.value_dim + j * 8 + col + 1] = acc[j][2 * h + 1] * part;
        }
    if (lse && o->end >= 0 && col == 0)
        lse[row] = sum > 0 ? o->most + logf(sum) : -INFINITY;
}

/* Initialises the state of query I; end = -1 if there is no such query. */
static __device__ inline void open_row(struct own_row *o, const struct attention &a,
                                       struct range one, int64_t i, float sink)
{
    int64_t first, end;

    visible(&a, one, one.start + i, &first, &end);
    o->first = i < one.rows ? (int)first : 0;
    o->end = i < one.rows ? (int)end : -1;
    o->distance = (int)(one.start + i - one.first_key);
    o->most = sink;
    o->sum = sink > -INFINITY && threadIdx.x % 4 == 0;
}

/* Key tiles start at multiples of KEYS, so a query's sums do not depend on the other
 * queries of its block. */
template <int DIM, int PARTS>
static __global__ void __launch_bounds__(THREADS, 2)
    cores_kernel(float *y, float *lse, const float *q, const float *k, const float *v,
                 struct attention a, struct ranges r, int64_t least)
{
    SHARED(uint4, key_tile, (tile<DIM, PARTS>::WORDS));
    SHARED(uint4, value_tile, (tile<DIM, PARTS>::WORDS));
    uint16_t *keys = (uint16_t *)key_tile, *values = (uint16_t *)value_tile;
    struct range one = r.v[blockIdx.z];
    unsigned lane = threadIdx.x % GPU_WARP, g = lane / 4, t = lane % 4;
    uint64_t head = blockIdx.y, kv = head / (a.heads / a.kv_heads);
    float slope = a.alibi != 0 ? alibi_slope(&a, head) : 0;
    float sink = sink_of(&a, head);

    if (one.rows < least)
        return;
    for (int64_t at = blockIdx.x * (int64_t)QUERIES; at < one.rows;
         at += gridDim.x * (int64_t)QUERIES) {
        int64_t row = at + threadIdx.x / GPU_WARP * ROWS, low, high, none;
        uint32_t hi[DIM / 16][4], lo[DIM / 16][4]; /* lo: of two parts */
        float acc[DIM / 8][4];
        struct own_row own[2];

#pragma unroll
        for (int i = 0; i < 4 * (DIM / 16); i++)
            load_pair<PARTS>(&hi[i / 4][i % 4], &lo[i / 4][i % 4], q, a, head, one,
                             row + g + i % 2 * 8, i / 4 * 16 + i % 4 / 2 * 8 + 2 * t);
#pragma unroll
        for (int i = 0; i < 4 * (DIM / 8); i++)
            acc[i / 4][i % 4] = 0;
        open_row(&own[0], a, one, row + g, sink);
        open_row(&own[1], a, one, row + g + 8, sink);
        visible(&a, one, one.start + at, &low, &none);
        visible(&a, one,
                one.start + (at + QUERIES < one.rows ? at + QUERIES : one.rows) - 1,
                &none, &high);
        for (int key = (int)(low - low % KEYS); key < high; key += KEYS) {
            float s[KEYS / 8][4];

            __syncthreads();
            load_tiles<DIM, PARTS>(keys, values, k, v, a, kv, r, one, key, (int)high);
            __syncthreads();
            scores_of<DIM, PARTS>(s, hi, lo, keys, (unsigned)a.head_dim);
            softmax_tile<DIM>(s, acc, own, a, head, slope, key + 2 * (int)t);
            add_values<DIM, PARTS>(acc, s, values, (unsigned)a.value_dim);
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
            put_row<DIM>(y, lse, acc, h, &own[h], a,
                         (uint64_t)(one.row + row + g + 8 * h) * a.heads + head);
    }
}

template <int PARTS>
static void launch(float *y, float *lse, const float *q, const float *k, const float *v,
                   const struct attention &a, const struct ranges &r, int64_t least,
                   void *stream)
{
    dim3 grid(gpu_blocks(r.most_rows, QUERIES), (unsigned)a.heads, (unsigned)r.n);

    if (a.head_dim <= 64 && a.value_dim <= 64)
        LAUNCH((cores_kernel<64, PARTS>), grid, THREADS, stream, y, lse, q, k, v, a, r,
               least);
    else
        LAUNCH((cores_kernel<128, PARTS>), grid, THREADS, stream, y, lse, q, k, v, a, r,
               least);
}

extern "C" void gpu_attention_cores(float *y, float *lse, const float *q,
                                    const float *k, const float *v, struct attention a,
                                    struct ranges r, uint64_t least, void *stream)
{
    if (a.rounded)
        launch<1>(y, lse, q, k, v, a, r, (int64_t)least, stream);
    else
        launch<2>(y, lse, q, k, v, a, r, (int64_t)least, stream);
}
