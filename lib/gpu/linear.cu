/* linear - y = x W^T, W [out][in], and y = x W, W [in][out]
 *
 * Few rows: memory bandwidth is the limit, and the weights are read once for up to
 * eight rows.  y = x W^T with rows that are aligned to 16 bytes: a warp computes four
 * or eight outputs, so that these share x, and lanes take terms in turn; warps of a
 * block divide the terms if there are few outputs.  The order of a sum depends on the
 * shape of W, and not on the number of rows.  Other rows: a warp computes one output.
 * y = x W with rows of W that are aligned: a thread reads a word of each of its rows of
 * W, and the threads of a block join their sums.  Other rows: a thread computes one
 * output.  Many rows: a block of 16 x 16 threads
 * computes a tile of 64 rows by 64 outputs, 16 terms at a time.  Weights are widened as
 * they are read; sums are f32.  Products of bf16 weights may round x to bf16. */
#include "lib/gpu/mma.cuh"
#include "lib/gpu/words.cuh"

enum {
    ROWS = 4,
    TILE = 64,
    TERMS = 16,
    SIDE = 16,
    EACH = TILE / SIDE,
    WORD = 16 /* bytes that a lane loads at a time */
};

/* Few rows: warps of a block; warps of a launch that keep enough loads in flight. */
#ifdef __CUDACC__
enum { FEW_WARPS = 8, FEW_WANTED = 4096 };
#else
enum { FEW_WARPS = 4, FEW_WANTED = 16 };
#endif

/* Blocks with one row that a multiprocessor has at a time.  On an H200 four were faster
 * than three, and both than half as many warps (FEW_WANTED). */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
enum { ONE_ROW_BLOCKS = 3 }; /* four would spill registers */
#else
enum { ONE_ROW_BLOCKS = 4 };
#endif

/* The matrix of product blockIdx.z. */
static __device__ const void *matrix_of(const struct products &p)
{
    return p.rows.expert ? p.w[blockIdx.z] : p.w[0];
}

/* Number of weights in a word. */
template <int TYPE> static constexpr int of_word = TYPE == FORMAT_F32 ? 4 : 8;

/* Widens four weights of a word: the first ones, or those behind them if LATER. */
template <int TYPE>
static __device__ inline void widen_four(float *f, uint4 w, bool later)
{
    uint32_t one = later ? w.z : w.x, two = later ? w.w : w.y;

    if (TYPE == FORMAT_F32) {
        f[0] = __uint_as_float(w.x);
        f[1] = __uint_as_float(w.y);
        f[2] = __uint_as_float(w.z);
        f[3] = __uint_as_float(w.w);
    } else if (TYPE == FORMAT_BF16) {
        f[0] = __uint_as_float(one << 16);
        f[1] = __uint_as_float(one & 0xffff0000u);
        f[2] = __uint_as_float(two << 16);
        f[3] = __uint_as_float(two & 0xffff0000u);
    } else {
        f[0] = widen_half(one);
        f[1] = widen_half(one >> 16);
        f[2] = widen_half(two);
        f[3] = widen_half(two >> 16);
    }
}

/* x, rounded to bf16 if P says so, or bf16 */
template <int TYPE>
static __device__ inline float term(const struct products &p, float x)
{
    if (TYPE == FORMAT_BF16 && p.rounded)
        x = __uint_as_float(pack_bf16(0, x) & 0xffff0000u);
    return x;
}

template <int TYPE>
static __device__ inline float term(const struct products &p, uint16_t x)
{
    (void)p;
    return widen_bf16(x);
}

/* y[t][j] for ROWS rows at a time; j is this warp's output. */
template <int TYPE, class X> static __global__ void dot_kernel(struct products p)
{
    unsigned lane = threadIdx.x % GPU_WARP;
    uint64_t j =
        blockIdx.x * (uint64_t)(blockDim.x / GPU_WARP) + threadIdx.x / GPU_WARP;
    const X *x = (const X *)p.x + blockIdx.z * p.x_step;
    float *y = p.y + blockIdx.z * p.y_step;
    const void *w = matrix_of(p);
    int64_t end = end_row(p.rows, blockIdx.z);

    if (j >= p.out)
        return;
    for (int64_t t = first_row(p.rows, blockIdx.z); t < end; t += ROWS) {
        uint64_t at = blockIdx.z * p.w_step + j * p.w_stride;
        float sum[ROWS] = { 0 };

        for (uint64_t k = lane; k < p.in; k += GPU_WARP) {
            float f = widen((enum format)TYPE, w, at + k);

#pragma unroll
            for (int i = 0; i < ROWS; i++)
                if (t + i < end)
                    sum[i] =
                        fmaf(term<TYPE>(p, x[(t + i) * p.x_stride + k]), f, sum[i]);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float all = warp_sum(sum[i]);

            if (lane == 0 && t + i < end)
                y[(t + i) * p.y_stride + j] = all;
        }
    }
}

/* Sums N numbers over the lanes of a warp, each in the order of warp_sum.  Lane I gets
 * in v[0] (and v[1], ... if N > GPU_WARP) the sums of numbers I N / GPU_WARP and on.
 * Or over the lanes that are apart by multiples of LEAST, of which there are L: the
 * I-th of them gets in v[0], v[1], ... the sums of numbers I N / L and on. */
template <int N, int LEAST = 1, int STEP = GPU_WARP / 2>
static __device__ inline void fold(float *v)
{
    bool upper = threadIdx.x % GPU_WARP & STEP;

    if constexpr (N == 1) {
        v[0] += __shfl_xor_sync(~0u, v[0], STEP);
    } else {
        /* a lane keeps one half of its numbers and gives the other away */
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            float mine = upper ? v[i + N / 2] : v[i];
            float other = upper ? v[i] : v[i + N / 2];

            v[i] = mine + __shfl_xor_sync(~0u, other, STEP);
        }
    }
    if constexpr (STEP > LEAST)
        fold<N == 1 ? 1 : N / 2, LEAST, STEP / 2>(v);
}

/* What a warp computes: outputs OUT to OUT + OUTS - 1, of which the last there is P's
 * last one; terms by pairs of words a lane, pairs FIRST, FIRST + STEP, ... */
template <class X> struct stripe {
    const uint4 *w;
    const X *x;   /* its first row, of f32 or bf16 */
    int32_t rows; /* of x that can be read, from there on */
    uint64_t out;
    unsigned first, step;
};

/* Four numbers of x; zeros if they are not THERE. */
template <int TYPE>
static __device__ inline float4 four_terms(const struct products &p, const float *x,
                                           bool there)
{
    float4 f = { 0, 0, 0, 0 };

    if (there)
        f = *(const float4 *)x;
    if (TYPE == FORMAT_BF16 && p.rounded)
        f = { term<TYPE>(p, f.x), term<TYPE>(p, f.y), term<TYPE>(p, f.z),
              term<TYPE>(p, f.w) };
    return f;
}

template <int TYPE>
static __device__ inline float4 four_terms(const struct products &p, const uint16_t *x,
                                           bool there)
{
    ushort4 f = { 0, 0, 0, 0 };

    (void)p;
    if (there)
        f = *(const ushort4 *)x;
    return { widen_bf16(f.x), widen_bf16(f.y), widen_bf16(f.z), widen_bf16(f.w) };
}

/* Adds to sum[i STRIDE] the products of row I with four weights of W. */
template <int TYPE, int ROWS>
static __device__ inline void add_terms(float *sum, int stride, const float4 *x,
                                        uint4 w, bool later)
{
    float f[4];

    widen_four<TYPE>(f, w, later);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float v = sum[i * stride];

        v = fmaf(x[i].x, f[0], v);
        v = fmaf(x[i].y, f[1], v);
        v = fmaf(x[i].z, f[2], v);
        sum[i * stride] = fmaf(x[i].w, f[3], v);
    }
}

/* Starts to bring the first words of each row into the second-level cache. */
template <int TYPE, int OUTS, class X>
static __device__ inline void prefetch_stripe(const struct products &p,
                                              struct stripe<X> s)
{
    enum { LINE = 8, LINES = 2 * GPU_WARP / LINE }; /* words; lines of a pair */
    uint32_t end = (uint32_t)(p.in / of_word<TYPE>);

    for (unsigned i = threadIdx.x % GPU_WARP; i < OUTS * LINES; i += GPU_WARP) {
        uint64_t out = s.out + i / LINES;
        uint32_t k = s.first * 2 * GPU_WARP + i % LINES * LINE;

        if (out < p.out && k < end)
            prefetch_line(s.w + out * (p.w_stride / of_word<TYPE>)+k);
    }
}

/* part[row][out] = this warp's sums.  All loads of weights of a round are under way
 * before the first is used: eight words a lane, four for eight rows.  Rows and outputs
 * beyond the last one are computed as that one. */
template <int TYPE, int ROWS, int OUTS, class X>
static __device__ inline void dot_stripe(float *part, const struct products &p,
                                         struct stripe<X> s)
{
    constexpr int SUMS = ROWS * OUTS, N = of_word<TYPE>,
                  WORDS = OUTS > 4 || SUMS > 16 ? 1 : 2;
    constexpr int SOME = ROWS == 4  ? 2
                         : ROWS < 4 ? ROWS
                                    : 4; /* rows of x in registers */
    constexpr int LANES = SUMS < GPU_WARP ? GPU_WARP / SUMS : 1; /* with one sum */
    unsigned lane = threadIdx.x % GPU_WARP;
    uint32_t end = (uint32_t)(p.in / N); /* words of a row */
    uint32_t last = (uint32_t)(s.rows < ROWS ? s.rows : ROWS) - 1, start[OUTS];
    float sum[SUMS] = { 0 };

#pragma unroll
    for (int o = 0; o < OUTS; o++)
        start[o] =
            (uint32_t)((s.out + o < p.out ? s.out + o : p.out - 1) * (p.w_stride / N));
    for (uint32_t pair = s.first * 2 * GPU_WARP; pair < end;
         pair += s.step * 2 * GPU_WARP)
#pragma unroll 1
        for (int half = 0; half < 2; half += WORDS) {
            uint32_t k = pair + half * GPU_WARP + lane;
            const uint4 *w = s.w + k;
            const X *from = s.x + k * N;
            uint4 word[WORDS][OUTS] = { { { 0, 0, 0, 0 } } };

#pragma unroll
            for (int c = 0; c < WORDS; c++)
                if (k + c * GPU_WARP < end)
#pragma unroll
                    for (int o = 0; o < OUTS; o++)
                        word[c][o] = load_weights(w + start[o] + c * GPU_WARP);
#pragma unroll(ROWS > 4 ? 1 : 4)
            for (int c = 0; c < WORDS * N / 4; c++) {
                int at = c / (N / 4) * GPU_WARP;

#pragma unroll
                for (uint32_t first = 0; first < ROWS; first += SOME) {
                    float4 x[SOME];

#pragma unroll
                    for (int i = 0; i < SOME; i++) {
                        uint32_t row = first + i < last ? first + i : last;

                        x[i] = four_terms<TYPE>(p,
                                                from + row * (uint32_t)p.x_stride +
                                                    at * N + c % (N / 4) * 4,
                                                k + at < end);
                    }
#pragma unroll
                    for (int o = 0; o < OUTS; o++)
                        add_terms<TYPE, SOME>(sum + first * OUTS + o, OUTS, x,
                                              word[c / (N / 4)][o], c % (N / 4));
                }
            }
        }
    fold<SUMS>(sum);
    if (lane % LANES == 0)
#pragma unroll
        for (int i = 0; i < SUMS * LANES / GPU_WARP; i++)
            part[lane * SUMS / GPU_WARP + i] = sum[i];
}

/* Outputs of a warp. */
template <int ROWS> static constexpr int outs_of = ROWS == 4 ? 8 : 4;

/* y[t][j] for ROWS rows at a time; 1 << SPLIT warps compute the same outputs. */
template <int TYPE, int ROWS, bool EXPERT, class X>
static __global__ void __launch_bounds__(FEW_WARPS *GPU_WARP,
                                         ROWS > 1 ? 2 : ONE_ROW_BLOCKS)
    wide_dot_kernel(struct products p, unsigned split)
{
    constexpr int OUTS = outs_of<ROWS>, SUMS = ROWS * OUTS;
    SHARED(float, part, FEW_WARPS *SUMS);
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    unsigned outs = FEW_WARPS * OUTS >> split;
    uint64_t first = blockIdx.x * (uint64_t)outs;
    const X *x = (const X *)p.x + blockIdx.z * p.x_step;
    float *y = p.y + blockIdx.z * p.y_step + first;
    int32_t t, end;
    struct stripe<X> s;

    s.w = (const uint4 *)(EXPERT ? p.w[blockIdx.z] : p.w[0]) +
          blockIdx.z * (p.w_step / of_word<TYPE>);
    s.out = first + (warp >> split) * OUTS;
    s.first = warp & ((1U << split) - 1);
    s.step = 1U << split;
    if (!EXPERT) /* an expert may have no rows */
        prefetch_stripe<TYPE, OUTS>(p, s);
    others_ended();
    t = EXPERT ? p.rows.rows[blockIdx.z] : 0;
    end = p.rows.rows[EXPERT ? blockIdx.z + 1 : 0];
    if (EXPERT && t >= end)
        return;
    /* p.rows.most rows of x can be read: loads do not wait for END */
    do {
        s.x = x + t * p.x_stride;
        s.rows = (EXPERT ? end : (int32_t)p.rows.most) - t;
        dot_stripe<TYPE, ROWS, OUTS>(part + warp * SUMS, p, s);
        __syncthreads();
        for (int32_t row = (int32_t)warp; row < ROWS && t + row < end; row += FEW_WARPS)
            for (unsigned out = lane; out < outs && first + out < p.out;
                 out += GPU_WARP) {
                const float *v =
                    part + (out / OUTS << split) * SUMS + row * OUTS + out % OUTS;
                float sum = v[0];

                for (unsigned k = 1; k < s.step; k++)
                    sum += v[k * SUMS];
                y[(t + row) * p.y_stride + out] = sum;
            }
        __syncthreads();
        t += ROWS;
    } while (t < end);
}

/* y = x W: LINE lanes read 64 bytes of a row of W, the others of a block other rows. */
enum { LINE = 4, SLOTS = FEW_WARPS * GPU_WARP / LINE };

/* part[row][LINE words] = this warp's sums of the outputs at W, K is this lane's first
 * term; P has a stripe's x and rows.  DEEP words a lane are under way before the first
 * is used. */
template <int TYPE, int ROWS>
static __device__ inline void column_stripe(float *part, const struct products &p,
                                            const uint4 *w, const float *x,
                                            int32_t rows)
{
    constexpr int N = of_word<TYPE>, SUMS = ROWS * N;
    constexpr int DEEP = ROWS > 1 ? 8 : 16;
    constexpr int SLICES = GPU_WARP / LINE;                  /* of k, in a warp */
    constexpr int LANES = SUMS < SLICES ? SLICES / SUMS : 1; /* with one sum */
    unsigned lane = threadIdx.x % GPU_WARP, slice = lane / LINE;
    uint32_t last = (uint32_t)(rows < ROWS ? rows : ROWS) - 1;
    float sum[SUMS] = { 0 };

    for (uint32_t k = threadIdx.x / LINE; k < p.in; k += SLOTS * DEEP) {
        uint4 word[DEEP];

#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            word[d] = { 0, 0, 0, 0 };
            if (k + d * SLOTS < p.in)
                word[d] = load_weights(w + (k + d * SLOTS) * (p.w_stride / N));
        }
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            float f[N];

            widen_four<TYPE>(f, word[d], false);
            if (N > 4)
                widen_four<TYPE>(f + N - 4, word[d], true);
#pragma unroll
            for (uint32_t i = 0; i < ROWS; i++) {
                uint32_t row = i < last ? i : last;
                float v = 0;

                if (k + d * SLOTS < p.in)
                    v = x[row * (uint32_t)p.x_stride + k + d * SLOTS];
#pragma unroll
                for (int e = 0; e < N; e++)
                    sum[i * N + e] = fmaf(v, f[e], sum[i * N + e]);
            }
        }
    }
    fold<SUMS, LINE>(sum);
    if (slice % LANES == 0)
#pragma unroll
        for (int i = 0; i < SUMS * LANES / SLICES; i++) {
            unsigned at = slice * SUMS / SLICES + i;

            part[at / N * LINE * N + lane % LINE * N + at % N] = sum[i];
        }
}

/* y[t][j] for ROWS rows at a time. */
template <int TYPE, int ROWS, bool EXPERT>
static __global__ void __launch_bounds__(FEW_WARPS *GPU_WARP, ROWS > 4 ? 1 : 2)
    wide_column_kernel(struct products p)
{
    constexpr int N = of_word<TYPE>, OUTS = LINE * N, SUMS = ROWS * OUTS;
    SHARED(float, part, FEW_WARPS *SUMS);
    unsigned warp = threadIdx.x / GPU_WARP;
    uint64_t first = blockIdx.x * (uint64_t)OUTS;
    uint64_t mine = first + threadIdx.x % LINE * N;
    const float *x = (const float *)p.x + blockIdx.z * p.x_step;
    float *y = p.y + blockIdx.z * p.y_step + first;
    const uint4 *w = (const uint4 *)(EXPERT ? p.w[blockIdx.z] : p.w[0]) +
                     (blockIdx.z * p.w_step + (mine < p.out ? mine : p.out - N)) / N;
    int32_t t, end;

    others_ended();
    t = EXPERT ? p.rows.rows[blockIdx.z] : 0;
    end = p.rows.rows[EXPERT ? blockIdx.z + 1 : 0];
    if (EXPERT && t >= end)
        return;
    /* p.rows.most rows of x can be read: loads do not wait for END */
    do {
        const float *from = x + t * p.x_stride;
        int32_t rows = (EXPERT ? end : (int32_t)p.rows.most) - t;

        if (EXPERT && rows == 1)
            column_stripe<TYPE, 1>(part + warp * SUMS, p, w, from, rows);
        else
            column_stripe<TYPE, ROWS>(part + warp * SUMS, p, w, from, rows);
        __syncthreads();
        for (unsigned i = threadIdx.x; i < SUMS; i += blockDim.x) {
            float sum = part[i];

            for (int k = 1; k < FEW_WARPS; k++)
                sum += part[k * SUMS + i];
            if (t + (int32_t)(i / OUTS) < end && first + i % OUTS < p.out)
                y[(t + i / OUTS) * p.y_stride + i % OUTS] = sum;
        }
        __syncthreads();
        t += ROWS;
    } while (t < end);
}

/* The same for rows that are not aligned; j is this thread's output. */
template <int TYPE> static __global__ void column_kernel(struct products p)
{
    uint64_t j = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    const float *x = (const float *)p.x + blockIdx.z * p.x_step;
    float *y = p.y + blockIdx.z * p.y_step;
    const void *w = matrix_of(p);
    int64_t end = end_row(p.rows, blockIdx.z);

    if (j >= p.out)
        return;
    for (int64_t t = first_row(p.rows, blockIdx.z); t < end; t += ROWS) {
        float sum[ROWS] = { 0 };

        for (uint64_t k = 0; k < p.in; k++) {
            float f =
                widen((enum format)TYPE, w, blockIdx.z * p.w_step + k * p.w_stride + j);

#pragma unroll
            for (int i = 0; i < ROWS; i++)
                if (t + i < end)
                    sum[i] = fmaf(x[(t + i) * p.x_stride + k], f, sum[i]);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (t + i < end)
                y[(t + i) * p.y_stride + j] = sum[i];
    }
}

/* Loads terms K to K + TERMS - 1 of TILE rows of x from T on and of TILE outputs from J
 * on; zeros beyond the ends. */
template <int TYPE, bool PLAIN, class X>
static __device__ void load_tiles(float *xs, float *ws, const struct products &p,
                                  const X *x, const void *w, int64_t t, int64_t end,
                                  uint64_t j, uint64_t k)
{
    for (unsigned i = threadIdx.x; i < TILE * TERMS; i += SIDE * SIDE) {
        unsigned row = i / TERMS, column = i % TERMS;
        bool there = t + row < end && k + column < p.in;

        xs[column * TILE + row] =
            there ? term<TYPE>(p, x[(t + row) * p.x_stride + k + column]) : 0;
    }
    for (unsigned i = threadIdx.x; i < TILE * TERMS; i += SIDE * SIDE) {
        unsigned out = PLAIN ? i % TILE : i / TERMS,
                 column = PLAIN ? i / TILE : i % TERMS;
        uint64_t at = PLAIN ? (k + column) * p.w_stride + j + out
                            : (j + out) * p.w_stride + k + column;
        bool there = j + out < p.out && k + column < p.in;

        ws[column * TILE + out] =
            there ? widen((enum format)TYPE, w, blockIdx.z * p.w_step + at) : 0;
    }
}

template <int TYPE, bool PLAIN, class X>
static __global__ void tile_kernel(struct products p)
{
    SHARED(float, xs, TILE *TERMS);
    SHARED(float, ws, TILE *TERMS);
    const X *x = (const X *)p.x + blockIdx.z * p.x_step;
    float *y = p.y + blockIdx.z * p.y_step;
    const void *w = matrix_of(p);
    int64_t end = end_row(p.rows, blockIdx.z);
    uint64_t j = blockIdx.y * (uint64_t)TILE;
    unsigned tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;

    for (int64_t t = first_row(p.rows, blockIdx.z) + blockIdx.x * (int64_t)TILE;
         t < end; t += gridDim.x * (int64_t)TILE) {
        float sum[EACH][EACH] = { { 0 } };

        for (uint64_t k = 0; k < p.in; k += TERMS) {
            load_tiles<TYPE, PLAIN>(xs, ws, p, x, w, t, end, j, k);
            __syncthreads();
#pragma unroll
            for (int c = 0; c < TERMS; c++)
#pragma unroll
                for (int a = 0; a < EACH; a++)
#pragma unroll
                    for (int b = 0; b < EACH; b++)
                        sum[a][b] = fmaf(xs[c * TILE + ty + a * SIDE],
                                         ws[c * TILE + tx + b * SIDE], sum[a][b]);
            __syncthreads();
        }
        for (int a = 0; a < EACH; a++)
            for (int b = 0; b < EACH; b++)
                if (t + ty + a * SIDE < end && j + tx + b * SIDE < p.out)
                    y[(t + ty + a * SIDE) * p.y_stride + j + tx + b * SIDE] = sum[a][b];
    }
}

/* True if rows can be read 16 bytes at a time: of W, and of x unless PLAIN. */
static bool is_wide(const struct products &p, uint64_t unit)
{
    uint64_t bytes = (p.w_stride | p.w_step) * unit;

    if (!p.plain)
        bytes |= (p.x_stride | p.x_step) * x_unit(p) | (uintptr_t)p.x;
    for (unsigned i = 0; i < (p.rows.expert ? p.n : 1); i++)
        bytes |= (uintptr_t)p.w[i];
    return bytes % WORD == 0 && (p.plain ? p.out : p.in) % 8 == 0;
}

/* 1 << n warps compute the same outputs.  It does not depend on the number of
 * rows, and neither does the order of a sum. */
static unsigned split_of(const struct products &p, uint64_t pair)
{
    uint64_t warps = (p.out + 3) / 4 * (p.rows.expert ? 1 : p.n);
    unsigned n = 0;

    while (1 << n < FEW_WARPS && warps << n < FEW_WANTED && pair << (n + 1) <= p.in)
        n++;
    return n;
}

template <int TYPE, int ROWS, bool EXPERT, class X>
static void launch_wide(const struct products &p, void *stream)
{
    unsigned split = split_of(p, 2 * GPU_WARP * of_word<TYPE>);
    unsigned outs = FEW_WARPS * outs_of<ROWS> >> split;

    LAUNCH_EARLY((wide_dot_kernel<TYPE, ROWS, EXPERT, X>),
                 dim3((unsigned)((p.out + outs - 1) / outs), 1, p.n),
                 FEW_WARPS * GPU_WARP, stream, p, split);
}

/* Most experts have one row or none. */
template <int TYPE, class X>
static void launch_wide(const struct products &p, void *stream)
{
    size_t rows = p.rows.most;

    if (p.rows.expert)
        rows <= 2 ? launch_wide<TYPE, 2, true, X>(p, stream)
                  : launch_wide<TYPE, 4, true, X>(p, stream);
    else if (rows == 1)
        launch_wide<TYPE, 1, false, X>(p, stream);
    else if (rows == 2)
        launch_wide<TYPE, 2, false, X>(p, stream);
    else if (rows <= 4)
        launch_wide<TYPE, 4, false, X>(p, stream);
    else
        launch_wide<TYPE, 8, false, X>(p, stream);
}

template <int TYPE> static void launch_columns(const struct products &p, void *stream)
{
    constexpr unsigned OUTS = LINE * of_word<TYPE>;
    dim3 grid((unsigned)((p.out + OUTS - 1) / OUTS), 1, p.n);

    if (p.rows.expert)
        LAUNCH_EARLY((wide_column_kernel<TYPE, 4, true>), grid, FEW_WARPS * GPU_WARP,
                     stream, p);
    else if (p.rows.most == 1)
        LAUNCH_EARLY((wide_column_kernel<TYPE, 1, false>), grid, FEW_WARPS * GPU_WARP,
                     stream, p);
    else if (p.rows.most <= 4)
        LAUNCH_EARLY((wide_column_kernel<TYPE, 4, false>), grid, FEW_WARPS * GPU_WARP,
                     stream, p);
    else
        LAUNCH_EARLY((wide_column_kernel<TYPE, 8, false>), grid, FEW_WARPS * GPU_WARP,
                     stream, p);
}

template <int TYPE> static void launch_plain(const struct products &p, void *stream)
{
    if (p.rows.most > GPU_FEW)
        LAUNCH((tile_kernel<TYPE, true, float>),
               dim3(gpu_blocks(p.rows.most, TILE),
                    (unsigned)((p.out + TILE - 1) / TILE), p.n),
               SIDE * SIDE, stream, p);
    else if (is_wide(p, TYPE == FORMAT_F32 ? 4 : 2))
        launch_columns<TYPE>(p, stream);
    else
        LAUNCH(column_kernel<TYPE>,
               dim3((unsigned)((p.out + GPU_THREADS - 1) / GPU_THREADS), 1, p.n),
               GPU_THREADS, stream, p);
}

template <int TYPE, class X> static void launch(const struct products &p, void *stream)
{
    if (p.rows.most > GPU_FEW)
        LAUNCH((tile_kernel<TYPE, false, X>),
               dim3(gpu_blocks(p.rows.most, TILE),
                    (unsigned)((p.out + TILE - 1) / TILE), p.n),
               SIDE * SIDE, stream, p);
    else if (is_wide(p, TYPE == FORMAT_F32 ? 4 : 2))
        launch_wide<TYPE, X>(p, stream);
    else
        LAUNCH((dot_kernel<TYPE, X>),
               dim3((unsigned)((p.out * GPU_WARP + GPU_THREADS - 1) / GPU_THREADS), 1,
                    p.n),
               GPU_THREADS, stream, p);
}

extern "C" void gpu_product(struct products p, void *stream)
{
    if (!p.rows.most || !p.out || !p.n)
        return;
    if (gpu_is_skinny(&p))
        gpu_skinny(p, stream);
    else if (are_words(p) && p.rows.most > GPU_FEW)
        gpu_tiles(p, stream);
    else if (p.plain)
        p.format == FORMAT_F32    ? launch_plain<FORMAT_F32>(p, stream)
        : p.format == FORMAT_BF16 ? launch_plain<FORMAT_BF16>(p, stream)
                                  : launch_plain<FORMAT_F16>(p, stream);
    else if (p.bf16)
        launch<FORMAT_BF16, uint16_t>(p, stream);
    else if (p.format == FORMAT_F32)
        launch<FORMAT_F32, float>(p, stream);
    else if (p.format == FORMAT_BF16)
        launch<FORMAT_BF16, float>(p, stream);
    else
        launch<FORMAT_F16, float>(p, stream);
}
