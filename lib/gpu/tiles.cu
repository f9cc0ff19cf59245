/* tiles - y = x W^T, W [out][in], and y = x W, W [in][out], of many rows, on tensor
 * cores
 *
 * For experts, each of which has rows of its own, and where cuBLASLt is not installed.
 * A block computes a tile of 64 rows by 128 outputs, 32 terms at a time: these are
 * loaded into registers while those before are multiplied, and x is split into two bf16
 * parts on the way to shared memory, or rounded.  An f16 weight is the sum of two bf16
 * ones. The order of a sum does not depend on the number of rows. */
#include "lib/gpu/mma.cuh"
#include "lib/gpu/words.cuh"

enum {
    HIGH = 128, /* outputs of a tile */
    ROWS = 64,
    DEEP = 32, /* terms */
    THREADS = 256,
    OF_WORD = 8,             /* weights in 16 bytes */
    ACROSS = DEEP + OF_WORD, /* elements between rows in shared memory, for its banks */
    ALONG = HIGH + OF_WORD,  /* the same of a W that is [in][out] */
    OWN = 2                  /* tiles of a warp: 16 OWN outputs, 8 OWN_ROWS rows */
};
enum { OWN_ROWS = 4 };

/* Four neighbours of x, which is f32 or bf16. */
template <class X> struct four;
template <> struct four<float> {
    float4 v;
};
template <> struct four<uint16_t> {
    uint2 v;
};

/* What a thread loads of a tile: words of W, and four neighbours of x. */
template <class X> struct loads {
    uint4 w[HIGH * DEEP / OF_WORD / THREADS];
    struct four<X> x[ROWS * DEEP / 4 / THREADS];
};

template <class X> struct place {
    const uint4 *w;
    const X *x;
    int64_t row, end; /* of x, the first and behind the last */
    uint64_t out;     /* the first */
    bool wide;        /* four of x can be read at a time */
};

template <bool PLAIN, class X>
static __device__ inline void load(struct loads<X> *l, const struct products &p,
                                   const struct place<X> &at, uint32_t k)
{
#pragma unroll
    for (unsigned i = 0; i < sizeof(l->w) / sizeof(*l->w); i++) {
        unsigned n = threadIdx.x + i * THREADS;
        unsigned row = n / (PLAIN ? HIGH / OF_WORD : DEEP / OF_WORD),
                 word = n % (PLAIN ? HIGH / OF_WORD : DEEP / OF_WORD);
        uint64_t out = at.out + (PLAIN ? word * OF_WORD : row);
        uint32_t term = k + (PLAIN ? row : word * OF_WORD);

        l->w[i] = { 0, 0, 0, 0 };
        if (out < p.out && term < p.in)
            l->w[i] = at.w[PLAIN ? (term * p.w_stride + out) / OF_WORD
                                 : (out * p.w_stride + term) / OF_WORD];
    }
#pragma unroll
    for (unsigned i = 0; i < sizeof(l->x) / sizeof(*l->x); i++) {
        unsigned n = threadIdx.x + i * THREADS, row = n / (DEEP / 4);

        l->x[i] = {};
        if (at.row + row < at.end)
            l->x[i].v = four_at(at.x + (at.row + row) * p.x_stride,
                                k + n % (DEEP / 4) * 4, (uint32_t)p.in, at.wide);
    }
}

/* Writes what was loaded to W (f16: LOW has what W lacks in bf16) and to X, of which
 * the second part is PART elements behind the first. */
template <int PART, int PARTS>
static __device__ inline void store_four(uint32_t *to, struct four<float> x)
{
    float4 v = x.v;

    if (PARTS > 1) {
        split_pair(v.x, v.y, &to[0], &to[PART / 2]);
        split_pair(v.z, v.w, &to[1], &to[PART / 2 + 1]);
    } else {
        to[0] = pack_bf16(v.x, v.y);
        to[1] = pack_bf16(v.z, v.w);
    }
}

template <int PART, int PARTS>
static __device__ inline void store_four(uint32_t *to, struct four<uint16_t> x)
{
    to[0] = x.v.x;
    to[1] = x.v.y;
}

template <int TYPE, int PARTS, bool PLAIN, class X>
static __device__ inline void store(uint16_t *w, uint16_t *low, uint16_t *x,
                                    const struct loads<X> &l)
{
    enum { PART = ROWS * ACROSS };

#pragma unroll
    for (unsigned i = 0; i < sizeof(l.w) / sizeof(*l.w); i++) {
        unsigned n = threadIdx.x + i * THREADS;
        unsigned at =
            PLAIN ? n / (HIGH / OF_WORD) * ALONG + n % (HIGH / OF_WORD) * OF_WORD
                  : n / (DEEP / OF_WORD) * ACROSS + n % (DEEP / OF_WORD) * OF_WORD;
        uint4 a = l.w[i], b;

        if (TYPE == FORMAT_F16) {
            split_weights(a.x, &a.x, &b.x);
            split_weights(a.y, &a.y, &b.y);
            split_weights(a.z, &a.z, &b.z);
            split_weights(a.w, &a.w, &b.w);
            *(uint4 *)(low + at) = b;
        }
        *(uint4 *)(w + at) = a;
    }
#pragma unroll
    for (unsigned i = 0; i < sizeof(l.x) / sizeof(*l.x); i++) {
        unsigned n = threadIdx.x + i * THREADS;
        uint32_t *to = (uint32_t *)(x + n / (DEEP / 4) * ACROSS + n % (DEEP / 4) * 4);

        store_four<PART, PARTS>(to, l.x[i]);
    }
}

/* Loads operand a: 16 outputs from OUT on and 16 terms from K on. */
template <bool PLAIN>
static __device__ inline void load_a(uint32_t *a, const uint16_t *w, unsigned out,
                                     unsigned k)
{
    unsigned i = threadIdx.x % GPU_WARP;

    out += i / 8 % 2 * 8;
    k += i / 16 * 8;
    if (PLAIN)
        load_matrices<true>(a, w, (k + i % 8) * ALONG + out);
    else
        load_matrices<false>(a, w, (out + i % 8) * ACROSS + k);
}

/* sum += the products of this warp's outputs and rows, from OUT and ROW on. */
template <int TYPE, int PARTS, bool PLAIN>
static __device__ inline void multiply(float (*sum)[OWN_ROWS][4], const uint16_t *w,
                                       const uint16_t *low, const uint16_t *x,
                                       unsigned out, unsigned row)
{
    enum { PART = ROWS * ACROSS };
    unsigned lane = threadIdx.x % GPU_WARP;

#pragma unroll
    for (unsigned k = 0; k < DEEP; k += 16) {
        uint32_t a[OWN][4], rest[OWN][4];

#pragma unroll
        for (int m = 0; m < OWN; m++) {
            load_a<PLAIN>(a[m], w, out + m * 16, k);
            if (TYPE == FORMAT_F16)
                load_a<PLAIN>(rest[m], low, out + m * 16, k);
        }
#pragma unroll
        for (int n = 0; n < OWN_ROWS; n += 2)
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                uint32_t b[4]; /* of two tiles of eight rows */

                load_matrices<false>(b, x + i * PART,
                                     (row + n * 8 + lane / 16 * 8 + lane % 8) * ACROSS +
                                         k + lane / 8 % 2 * 8);
#pragma unroll
                for (int m = 0; m < OWN; m++) {
                    mma(sum[m][n], a[m], b);
                    mma(sum[m][n + 1], a[m], b + 2);
                    if (TYPE == FORMAT_F16 && i == 0) {
                        mma(sum[m][n], rest[m], b);
                        mma(sum[m][n + 1], rest[m], b + 2);
                    }
                }
            }
    }
}

template <int TYPE, int PARTS, bool PLAIN, class X>
static __global__ void __launch_bounds__(THREADS, 2)
    mma_tile_kernel(struct products p, bool wide)
{
    enum { SIZE = PLAIN ? DEEP * ALONG : HIGH * ACROSS };
    SHARED(uint4, w_words, SIZE / OF_WORD * (TYPE == FORMAT_F16 ? 2 : 1));
    SHARED(uint4, x_words, ROWS * ACROSS / OF_WORD * PARTS);
    uint16_t *w = (uint16_t *)w_words, *low = w + SIZE, *x = (uint16_t *)x_words;
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    unsigned out = warp / 2 * OWN * 16, row = warp % 2 * OWN_ROWS * 8;
    float *y = p.y + blockIdx.z * p.y_step;
    struct place<X> at;

    at.w = (const uint4 *)(p.rows.expert ? p.w[blockIdx.z] : p.w[0]) +
           blockIdx.z * (p.w_step / OF_WORD);
    at.x = (const X *)p.x + blockIdx.z * p.x_step;
    at.out = blockIdx.y * (uint64_t)HIGH;
    at.wide = wide;
    at.row = first_row(p.rows, blockIdx.z) + blockIdx.x * (int64_t)ROWS;
    at.end = end_row(p.rows, blockIdx.z);
    for (; at.row < at.end; at.row += gridDim.x * (int64_t)ROWS) {
        float sum[OWN][OWN_ROWS][4] = {};
        struct loads<X> l;

        load<PLAIN>(&l, p, at, 0);
        for (uint32_t k = 0; k < p.in; k += DEEP) {
            store<TYPE, PARTS, PLAIN>(w, low, x, l);
            __syncthreads();
            if (k + DEEP < p.in)
                load<PLAIN>(&l, p, at, k + DEEP);
            multiply<TYPE, PARTS, PLAIN>(sum, w, low, x, out, row);
            __syncthreads();
        }
        /* d: output lane / 4 (+ 8), row 2 (lane % 4) (+ 1) */
#pragma unroll
        for (int m = 0; m < OWN; m++)
#pragma unroll
            for (int n = 0; n < OWN_ROWS; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint64_t o = at.out + out + m * 16 + lane / 4 + i / 2 * 8;
                    int64_t t = at.row + row + n * 8 + lane % 4 * 2 + i % 2;

                    if (o < p.out && t < at.end)
                        y[t * p.y_stride + o] = sum[m][n][i];
                }
    }
}

template <int TYPE, int PARTS, bool PLAIN, class X>
static void launch(const struct products &p, void *stream)
{
    dim3 grid(gpu_blocks(p.rows.expert ? 2 * p.each : p.rows.most, ROWS),
              (unsigned)((p.out + HIGH - 1) / HIGH), p.n);
    bool wide = are_quads(p);

    LAUNCH((mma_tile_kernel<TYPE, PARTS, PLAIN, X>), grid, THREADS, stream, p, wide);
}

/* Of x in f32. */
template <int TYPE, int PARTS>
static void launch(const struct products &p, void *stream)
{
    p.plain ? launch<TYPE, PARTS, true, float>(p, stream)
            : launch<TYPE, PARTS, false, float>(p, stream);
}

extern "C" void gpu_tiles(struct products p, void *stream)
{
    if (!p.rows.most || !p.out || !p.n)
        return;
    if (p.format == FORMAT_F16)
        launch<FORMAT_F16, 2>(p, stream);
    else if (p.bf16)
        launch<FORMAT_BF16, 1, false, uint16_t>(p, stream);
    else if (p.rounded)
        launch<FORMAT_BF16, 1>(p, stream);
    else
        launch<FORMAT_BF16, 2>(p, stream);
}
