/* skinny - y = x W^T, W [out][in], and y = x W, W [in][out], of up to 32 rows, on
 * tensor cores
 *
 * Weights are read once, 16 bytes a lane, straight into the operand of a tensor core: a
 * sum may take its terms in any order, so a lane's neighbouring terms stand where the
 * tensor core has terms that are apart, in W and in x alike.  x is split into two bf16
 * parts, 16 bits, as it is read, or before that for many rows, which every warp reads;
 * or it is rounded to bf16.  (A third part would be lost in the rounding of a tensor
 * core's sums.)  An f16 weight is the sum of two bf16 ones.
 * The products of the parts are added up by themselves, and these two sums last; so
 * parts of up to four rows can be columns of the same mma.  Warps of a block divide the
 * terms of a sum, in a way that depends on the shape of W alone: a row has the same
 * bits with any number of other rows up to 32.  Experts have any number of rows each.
 */
#include "lib/gpu/mma.cuh"
#include "lib/gpu/words.cuh"

#include <type_traits>

enum {
    COLUMNS = 8, /* of d, an mma's result: rows of x */
    OUTS = 16,   /* its rows: outputs */
    WORD = 16,   /* bytes that a lane loads at a time */
    OF_WORD = 8, /* weights in them */
    WORDS = 8    /* that a lane has under way */
};

/* Warps of a block, twice as many for fewer than FEW_OUTS outputs; warps of a launch
 * that keep enough loads in flight; outputs for which a warp may have twice as many. */
#ifdef __CUDACC__
enum { BLOCK_WARPS = 8, WANTED = 4096, FEW_OUTS = 2048, MANY_OUTS = 8192 };
#else
enum { BLOCK_WARPS = 4, WANTED = 16, FEW_OUTS = 48, MANY_OUTS = 128 };
#endif

/* part[i] = pair (A, B) in bf16, or in parts whose sum has 16 of its bits. */
template <int PARTS>
static __device__ inline void split_in(uint32_t *part, float a, float b)
{
    if constexpr (PARTS > 1)
        split_pair(a, b, &part[0], &part[1]);
    else
        part[0] = pack_bf16(a, b);
}

/* The terms of a row of x that a lane has in an mma: two words of each part. */
template <int PARTS> struct terms {
    uint32_t pair[PARTS][2];
};

template <int PARTS> static __device__ inline terms<PARTS> terms_of(float4 x)
{
    struct terms<PARTS> t;
    uint32_t one[PARTS], two[PARTS];

    split_in<PARTS>(one, x.x, x.y);
    split_in<PARTS>(two, x.z, x.w);
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        t.pair[i][0] = one[i];
        t.pair[i][1] = two[i];
    }
    return t;
}

/* x that has been split: the first parts of eight neighbours, then their second ones.
 */
struct halves;

/* What a warp works on: rows of x from X on, ROWS of them (more are the last one). */
template <class X> struct rows {
    const X *x;
    uint64_t stride;
    int32_t n;
};
template <> struct rows<struct halves> {
    const uint16_t *x;
    uint64_t stride;
    int32_t n;
};

template <class R>
static __device__ inline auto row_at(const R &r, unsigned row) -> decltype(r.x)
{
    int32_t at = (int32_t)row < r.n ? (int32_t)row : r.n - 1;

    return r.x + (uint32_t)at * (uint32_t)r.stride;
}

/* Eight neighbours of a row, as they are read; zeros beyond its end. */
template <class X> struct eight {
    static constexpr uint32_t TIMES = 1; /* elements of memory for a number */
    uint4 word[2];
};
template <> struct eight<uint16_t> {
    static constexpr uint32_t TIMES = 1;
    uint4 word[1];
};
template <> struct eight<struct halves> {
    static constexpr uint32_t TIMES = 2;
    uint4 word[2];
};

template <class X>
static __device__ inline struct eight<X>
load_eight(const struct rows<X> &r, unsigned row, uint32_t k, bool there) {
    struct eight<X> v = {
    };

    const uint4 *x = (const uint4 *)(row_at(r, row) + k * eight<X>::TIMES);

#pragma unroll
    for (unsigned i = 0; i < sizeof(v) / sizeof(*v.word); i++)
        if (there)
            v.word[i] = x[i];
    return v;
}

/* The first (HALF 0) or last four of them, as terms. */
template <int PARTS, class X>
static __device__ inline struct terms<PARTS> terms_of(const struct eight<X> &v,
                                                      int half) {
    struct terms<PARTS> t = {
    };

    if constexpr (std::is_same_v<X, float>)
        return terms_of<PARTS>(
            float4{ __uint_as_float(v.word[half].x), __uint_as_float(v.word[half].y),
                    __uint_as_float(v.word[half].z), __uint_as_float(v.word[half].w) });
    else
#pragma unroll
        for (unsigned i = 0; i < sizeof(v) / sizeof(*v.word); i++) {
            t.pair[i][0] = half ? v.word[i].z : v.word[i].x;
            t.pair[i][1] = half ? v.word[i].w : v.word[i].y;
        }
    return t;
}

/* Weights in the order of a: in bf16, or the bf16 ones whose sums they are. */
template <int TYPE>
struct operand {
    uint32_t high[4], low[4];
};

template <int TYPE>
static __device__ inline struct operand<TYPE> operand_of(uint32_t a, uint32_t b,
                                                         uint32_t c, uint32_t d) {
    struct operand<TYPE> w = {
        { a, b, c, d },
        {
            0, 0, 0, 0
        }
    };

    if (TYPE == FORMAT_F16)
#pragma unroll
        for (int i = 0; i < 4; i++)
            split_weights(w.high[i], &w.high[i], &w.low[i]);
    return w;
}

/* sum += w x; the order of the parts is part of what a sum's bits are. */
template <int TYPE, int PARTS>
static __device__ inline void add_products(float *sum, const struct operand<TYPE> &w,
                                           const struct terms<PARTS> &x)
{
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        mma(sum, w.high, x.pair[i]);
        /* the product of the two lower parts is at most 2^-18 of the whole one */
        if (TYPE == FORMAT_F16 && i == 0)
            mma(sum, w.low, x.pair[i]);
    }
}

/* ---- y = x W^T ---- */

/* Words of W that a lane has at a time: of HIGH tiles of outputs, DEEP steps of 64
 * terms. */
template <int HIGH> struct stripe {
    static constexpr int DEEP = WORDS / (4 * HIGH) ? WORDS / (4 * HIGH) : 1;
    uint4 word[DEEP][2][HIGH][2];
};

/* Loads the words of steps STEP, STEP + EVERY ...; zeros beyond END words of a row. */
template <int HIGH>
static __device__ inline void load_stripe(struct stripe<HIGH> *s, const uint4 *w,
                                          const uint32_t (*start)[2], uint32_t step,
                                          uint32_t every, uint32_t end)
{
    unsigned t = threadIdx.x % 4;

#pragma unroll
    for (int d = 0; d < stripe<HIGH>::DEEP; d++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            uint32_t at = (step + d * every) * 8 + c * 4 + t;

#pragma unroll
            for (int m = 0; m < HIGH; m++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    s->word[d][c][m][h] = { 0, 0, 0, 0 };
                    if (at < end)
                        s->word[d][c][m][h] = load_weights(w + start[m][h] + at);
                }
        }
}

/* How a warp keeps its sums: of each part of x by themselves, of TILES times eight
 * rows; or FOLDED, of up to four rows: columns 0 to 3 of an mma are the rows' first
 * parts, columns 4 to 7 their second ones. */
template <int PARTS, int TILES, bool FOLDED> struct sums {
    static constexpr int N = FOLDED ? 1 : PARTS;
    float of[N][TILES][4];
};

/* sums += w x; X are this lane's terms of a row: of row lane / 4 of eight, or of four.
 */
template <int TYPE, int PARTS, int TILES, bool FOLDED>
static __device__ inline void add_parts(struct sums<PARTS, TILES, FOLDED> *s, int tile,
                                        const struct operand<TYPE> &w,
                                        const struct terms<PARTS> &x)
{
    if constexpr (FOLDED) {
        bool later = threadIdx.x % GPU_WARP >= GPU_WARP / 2;
        uint32_t own[2] = { later ? x.pair[1][0] : x.pair[0][0],
                            later ? x.pair[1][1] : x.pair[0][1] };
        uint32_t first[2] = { later ? x.pair[0][0] : 0, later ? x.pair[0][1] : 0 };

        mma(s->of[0][tile], w.high, own);
        if (TYPE == FORMAT_F16)
            mma(s->of[0][tile], w.low, first);
    } else {
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            mma(s->of[i][tile], w.high, x.pair[i]);
        /* the product of the two lower parts is at most 2^-18 of the whole one */
        if (TYPE == FORMAT_F16)
            mma(s->of[PARTS - 1][tile], w.low, x.pair[0]);
    }
}

/* Element I of a lane's sums of a tile. */
template <int PARTS, int TILES, bool FOLDED>
static __device__ inline float sum_of(const struct sums<PARTS, TILES, FOLDED> &s,
                                      int tile, int i)
{
    if constexpr (FOLDED)
        return s.of[0][tile][i] + __shfl_xor_sync(~0u, s.of[0][tile][i], 2);
    else if constexpr (PARTS > 1)
        return s.of[0][tile][i] + s.of[1][tile][i];
    else
        return s.of[0][tile][i];
}

template <int TYPE, int PARTS, int HIGH, int TILES, bool FOLDED, class X>
static __device__ inline void
use_stripe(struct sums<PARTS, TILES, FOLDED> *sum, const struct stripe<HIGH> &s,
           const struct rows<X> &r, uint32_t step, uint32_t every, uint32_t end)
{
    unsigned g = threadIdx.x % GPU_WARP / 4 % (FOLDED ? 4 : 8), t = threadIdx.x % 4;

#pragma unroll
    for (int d = 0; d < stripe<HIGH>::DEEP; d++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            uint32_t at = (step + d * every) * 8 + c * 4 + t;
            constexpr int SOME = TILES < 2 ? TILES : 2; /* tiles that x is read for */

#pragma unroll
            for (int from = 0; from < TILES; from += SOME) {
                struct eight<X> x[SOME];

#pragma unroll
                for (int n = 0; n < SOME; n++)
                    x[n] =
                        load_eight(r, (from + n) * COLUMNS + g, at * OF_WORD, at < end);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    struct operand<TYPE> w[HIGH];

#pragma unroll
                    for (int m = 0; m < HIGH; m++) {
                        const uint4 *v = s.word[d][c][m];

                        w[m] = half ? operand_of<TYPE>(v[0].z, v[1].z, v[0].w, v[1].w)
                                    : operand_of<TYPE>(v[0].x, v[1].x, v[0].y, v[1].y);
                    }
#pragma unroll
                    for (int n = 0; n < SOME; n++) {
                        struct terms<PARTS> terms = terms_of<PARTS, X>(x[n], half);

#pragma unroll
                        for (int m = 0; m < HIGH; m++)
                            add_parts<TYPE, PARTS, TILES, FOLDED>(&sum[m], from + n,
                                                                  w[m], terms);
                    }
                }
            }
        }
}

/* The sum of what the warps that divide it have, STRIDE apart. */
static __device__ inline float sum_up(const float *part, unsigned split,
                                      uint64_t stride)
{
    float sum = part[0];

    for (unsigned k = 1; k < 1U << split; k++)
        sum += part[k * stride];
    return sum;
}

/* y[t][first + i] = the sum, for the rows T to END - 1, of what the warps that divide
 * these outputs have in part[warp][row][WIDE]. */
template <int ROWS, int WIDE, int WARPS, bool JOINED = false>
static __device__ inline void join(const struct products &p, const float *part,
                                   unsigned split, uint64_t first, int32_t t,
                                   int32_t end)
{
    const struct joined &own = p.joined[JOINED ? blockIdx.z : 0];
    float *y = JOINED ? own.y : p.y + blockIdx.z * p.y_step;
    uint64_t all = JOINED ? own.out : p.out, stride = JOINED ? own.out : p.y_stride;
    unsigned outs = WARPS * WIDE >> split;

    for (unsigned i = threadIdx.x; i < ROWS * outs; i += WARPS * GPU_WARP) {
        unsigned row = i / outs, out = i % outs;
        const float *v =
            part + ((out / WIDE << split) * ROWS + row) * WIDE + out % WIDE;
        float sum;

        if (t + (int32_t)row >= end || first + out >= all)
            continue;
        sum = sum_up(v, split, ROWS * WIDE);
        if (JOINED && own.bias)
            sum += widen(own.bias_format, own.bias, first + out);
        y[(t + row) * stride + first + out] = sum;
    }
}

/* N rows of P's x from row T on. */
template <class X>
static __device__ inline struct rows<X> rows_from(const struct products &p, int32_t t,
                                                  int32_t n) {
    if constexpr (std::is_same_v<X, struct halves>)
        return { (const uint16_t *)p.parts +
                     2 * (blockIdx.z * p.x_step + t * p.x_stride),
                 2 * p.x_stride, n };
    else
        return { (const X *)p.x + blockIdx.z * p.x_step + t * p.x_stride, p.x_stride,
                 n };
}

/* One product, or one by head; products of experts; several of one x. */
enum which {
    ALONE,
    EXPERTS,
    SEVERAL
};

/* 1 << SPLIT warps compute the same outputs.  Experts' sums of one part have no room in
 * the registers of two blocks. */
template <int TYPE, int PARTS, int HIGH, int TILES, bool FOLDED, int WARPS,
          enum which WHICH, class X>
static __global__ void
__launch_bounds__(WARPS *GPU_WARP,
                  WARPS > BLOCK_WARPS || (WHICH == EXPERTS && TILES > PARTS) ? 1 : 2)
    skinny_kernel(struct products p, unsigned split)
{
    constexpr int ROWS = TILES * COLUMNS, WIDE = HIGH * OUTS;
    constexpr bool EXPERT = WHICH == EXPERTS, JOINED = WHICH == SEVERAL;
    SHARED(float, part, WARPS *ROWS *WIDE);
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    unsigned g = lane / 4, every = 1U << split;
    uint64_t first = blockIdx.x * (uint64_t)(WARPS * WIDE >> split);
    uint32_t step = warp & (every - 1), end = (uint32_t)(p.in / OF_WORD);
    uint32_t start[HIGH][2];
    const uint4 *w = (const uint4 *)(EXPERT || JOINED ? p.w[blockIdx.z] : p.w[0]) +
                     blockIdx.z * (p.w_step / OF_WORD);
    uint64_t all = JOINED ? p.joined[blockIdx.z].out : p.out;
    struct stripe<HIGH> s;
    int32_t t, last;

#pragma unroll
    for (int m = 0; m < HIGH; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint64_t out = first + (warp >> split) * WIDE + m * OUTS + h * 8 + g;

            start[m][h] =
                (uint32_t)((out < all ? out : all - 1) * (p.w_stride / OF_WORD));
        }
    if (!EXPERT) /* an expert may have no rows */
        load_stripe(&s, w, start, step, every, end);
    others_ended();
    t = EXPERT ? p.rows.rows[blockIdx.z] : 0;
    last = p.rows.rows[EXPERT ? blockIdx.z + 1 : 0];
    if ((EXPERT && t >= last) || (JOINED && first >= all))
        return;
    if (EXPERT)
        load_stripe(&s, w, start, step, every, end);
    for (;;) {
        /* p.rows.most rows of x can be read: loads do not wait for LAST */
        struct rows<X> r =
            rows_from<X>(p, t, (EXPERT ? last : (int32_t)p.rows.most) - t);
        struct sums<PARTS, TILES, FOLDED> sum[HIGH] = {
        };

        for (uint32_t at = step;;) {
            use_stripe<TYPE, PARTS, HIGH, TILES, FOLDED>(sum, s, r, at, every, end);
            at += stripe<HIGH>::DEEP * every;
            if (at * 8 >= end)
                break;
            load_stripe(&s, w, start, at, every, end);
        }
        /* d: output g (+ 8), row 2 t (+ 1) */
#pragma unroll
        for (int m = 0; m < HIGH; m++)
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float v = sum_of<PARTS, TILES, FOLDED>(sum[m], n, i);

                    if (!FOLDED || lane % 4 < 2)
                        part[(warp * ROWS + n * COLUMNS + lane % 4 * 2 + i % 2) * WIDE +
                             m * OUTS + g + i / 2 * 8] = v;
                }
        __syncthreads();
        join<ROWS, WIDE, WARPS, JOINED>(p, part, split, first, t, last);
        t += ROWS;
        if (!EXPERT || t >= last)
            break;
        __syncthreads();
        load_stripe(&s, w, start, step, every, end);
    }
}

/* ---- y = x W ---- */

/* A warp has 64 outputs, eight neighbours of a row of W a lane: of two of them each,
 * the first is output g of an mma, the second output g + 8.  A step has 16 terms, four
 * neighbours a lane. */
enum { WIDE_OUTS = 64, STEP_TERMS = 16, PAIRS = 4 };

/* Steps whose words a lane has at a time. */
template <int TILES> static constexpr int deep_of = TILES > 2 ? 1 : WORDS / 4;

template <int DEEP>
static __device__ inline void load_rows(uint4 (*word)[4], const uint4 *w,
                                        uint64_t stride, uint32_t step, uint32_t every,
                                        uint32_t in)
{
#pragma unroll
    for (int d = 0; d < DEEP; d++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t k = (step + d * every) * STEP_TERMS + threadIdx.x % 4 * 4 + i;

            word[d][i] = { 0, 0, 0, 0 };
            if (k < in)
                word[d][i] = load_weights(w + k * stride);
        }
}

static __device__ inline uint32_t word_at(uint4 w, int i)
{
    return i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
}

template <int TYPE, int PARTS, int TILES>
static __device__ inline void use_rows(float (*sum)[TILES][4], const uint4 (*word)[4],
                                       const struct rows<float> &r, bool wide,
                                       uint32_t step, uint32_t every, uint32_t in)
{
    unsigned g = threadIdx.x % GPU_WARP / 4;

#pragma unroll
    for (int d = 0; d < deep_of<TILES>; d++) {
        uint32_t k = (step + d * every) * STEP_TERMS + threadIdx.x % 4 * 4;
        struct terms<PARTS> x[TILES];

#pragma unroll
        for (int n = 0; n < TILES; n++)
            x[n] = terms_of<PARTS>(four_at(row_at(r, n * COLUMNS + g), k, in, wide));
#pragma unroll
        for (int j = 0; j < PAIRS; j++) {
            uint32_t k0 = word_at(word[d][0], j), k1 = word_at(word[d][1], j),
                     k2 = word_at(word[d][2], j), k3 = word_at(word[d][3], j);
            struct operand<TYPE> w = operand_of<TYPE>(
                (k0 & 0xffff) | k1 << 16, k0 >> 16 | (k1 & 0xffff0000u),
                (k2 & 0xffff) | k3 << 16, k2 >> 16 | (k3 & 0xffff0000u));

#pragma unroll
            for (int n = 0; n < TILES; n++)
                add_products<TYPE, PARTS>(sum[j][n], w, x[n]);
        }
    }
}

template <int TYPE, int PARTS, int TILES, bool EXPERT>
static __global__ void __launch_bounds__(BLOCK_WARPS *GPU_WARP, TILES > 2 ? 1 : 2)
    skinny_columns_kernel(struct products p, unsigned split, bool wide)
{
    constexpr int SOME = TILES < 2 ? TILES : 2, ROWS = SOME * COLUMNS, WIDE = WIDE_OUTS;
    SHARED(float, part, BLOCK_WARPS *ROWS *WIDE);
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    unsigned g = lane / 4, every = 1U << split;
    uint64_t first = blockIdx.x * (uint64_t)(BLOCK_WARPS * WIDE >> split);
    uint64_t out = first + (warp >> split) * WIDE + g * OF_WORD;
    uint32_t step = warp & (every - 1), in = (uint32_t)p.in;
    uint64_t stride = p.w_stride / OF_WORD;
    const uint4 *w =
        (const uint4 *)(EXPERT ? p.w[blockIdx.z] : p.w[0]) +
        (blockIdx.z * p.w_step + (out < p.out ? out : p.out - OF_WORD)) / OF_WORD;
    uint4 word[deep_of<TILES>][4];
    int32_t t, last;

    if (!EXPERT)
        load_rows<deep_of<TILES>>(word, w, stride, step, every, in);
    others_ended();
    t = EXPERT ? p.rows.rows[blockIdx.z] : 0;
    last = p.rows.rows[EXPERT ? blockIdx.z + 1 : 0];
    if (EXPERT && t >= last)
        return;
    if (EXPERT)
        load_rows<deep_of<TILES>>(word, w, stride, step, every, in);
    for (;;) {
        struct rows<float> r = {
            (const float *)p.x + blockIdx.z *p.x_step + t *p.x_stride, p.x_stride,
                (EXPERT ? last : (int32_t)p.rows.most) - t
        };
        float sum[PAIRS][TILES][4] = {};

        for (uint32_t at = step;;) {
            use_rows<TYPE, PARTS, TILES>(sum, word, r, wide, at, every, in);
            at += deep_of<TILES> * every;
            if (at * STEP_TERMS >= in)
                break;
            load_rows<deep_of<TILES>>(word, w, stride, at, every, in);
        }
        /* the results of SOME tiles at a time, for which there is room; d: output
         * (of a pair) i / 2, row 2 t + i % 2 */
#pragma unroll
        for (int from = 0; from < TILES; from += SOME) {
#pragma unroll
            for (int j = 0; j < PAIRS; j++)
#pragma unroll
                for (int n = 0; n < SOME; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        part[(warp * ROWS + n * COLUMNS + lane % 4 * 2 + i % 2) * WIDE +
                             g * OF_WORD + 2 * j + i / 2] = sum[j][from + n][i];
            __syncthreads();
            join<ROWS, WIDE, BLOCK_WARPS>(p, part, split, first, t + from * COLUMNS,
                                          last);
            __syncthreads();
        }
        t += TILES * COLUMNS;
        if (!EXPERT || t >= last)
            break;
        load_rows<deep_of<TILES>>(word, w, stride, step, every, in);
    }
}

/* ---- launching ---- */

extern "C" bool gpu_is_skinny(const struct products *p)
{
    return are_words(*p) && (p->rows.expert ? p->each : p->rows.most) <= GPU_SKINNY;
}

/* 1 << n warps compute the same outputs, of which a warp has OUTS, by steps of TERMS
 * terms.  It does not depend on the number of rows, and neither does the order of a
 * sum. */
static unsigned split_of(const struct products &p, uint64_t outs, uint64_t terms,
                         unsigned most)
{
    uint64_t warps = (p.out + outs - 1) / outs * (p.rows.expert ? 1 : p.n);
    unsigned n = 0;

    while (1U << n < most && warps << n < WANTED && terms << (n + 1) <= p.in)
        n++;
    return n;
}

template <int TYPE, int PARTS, int HIGH, int TILES, bool FOLDED, int WARPS,
          enum which WHICH, class X>
static void launch_rows(const struct products &p, void *stream)
{
    unsigned split = split_of(p, OUTS, 64, WARPS);
    unsigned outs = WARPS * HIGH * OUTS >> split;

    LAUNCH_EARLY((skinny_kernel<TYPE, PARTS, HIGH, TILES, FOLDED, WARPS, WHICH, X>),
                 dim3((unsigned)((p.out + outs - 1) / outs), 1, p.n), WARPS * GPU_WARP,
                 stream, p, split);
}

/* By the number of rows: what keeps enough warps on a multiprocessor, and reads x,
 * which all of them do, seldom enough. */
template <int TYPE, int PARTS, int WARPS, enum which WHICH, class X>
static void launch_rows(const struct products &p, void *stream)
{
    constexpr bool FOLDED = PARTS > 1;
    constexpr int HIGH = WARPS == BLOCK_WARPS ? 2 : 1;
    using MANY = std::conditional_t<(PARTS > 1), struct halves, X>;
    size_t rows = p.rows.most;

    if (FOLDED && rows <= COLUMNS / 2)
        launch_rows<TYPE, PARTS, 1, 1, FOLDED, WARPS, WHICH, X>(p, stream);
    else if (rows <= COLUMNS)
        launch_rows<TYPE, PARTS, 1, 1, false, WARPS, WHICH, MANY>(p, stream);
    else if (rows <= 2 * COLUMNS)
        launch_rows<TYPE, PARTS, HIGH, 2, false, WARPS, WHICH, MANY>(p, stream);
    else if (PARTS == 1 && p.out * p.n >= MANY_OUTS)
        launch_rows<TYPE, PARTS, PARTS == 1 ? HIGH : 1, 4, false, WARPS, WHICH, MANY>(
            p, stream);
    else
        launch_rows<TYPE, PARTS, 1, 4, false, WARPS, WHICH, MANY>(p, stream);
}

template <int TYPE, int PARTS, int TILES, bool EXPERT>
static void launch_columns(const struct products &p, void *stream)
{
    unsigned split = split_of(p, WIDE_OUTS, STEP_TERMS, BLOCK_WARPS),
             outs = BLOCK_WARPS * WIDE_OUTS >> split;
    bool wide = are_quads(p);

    LAUNCH_EARLY((skinny_columns_kernel<TYPE, PARTS, TILES, EXPERT>),
                 dim3((unsigned)((p.out + outs - 1) / outs), 1, p.n),
                 BLOCK_WARPS * GPU_WARP, stream, p, split, wide);
}

/* Few experts have many rows. */
template <int TYPE, int PARTS>
static void launch_plain(const struct products &p, void *stream)
{
    size_t rows = p.rows.most;

    if (p.rows.expert)
        rows <= COLUMNS ? launch_columns<TYPE, PARTS, 1, true>(p, stream)
                        : launch_columns<TYPE, PARTS, 2, true>(p, stream);
    else if (rows <= COLUMNS)
        launch_columns<TYPE, PARTS, 1, false>(p, stream);
    else if (rows <= 2 * COLUMNS)
        launch_columns<TYPE, PARTS, 2, false>(p, stream);
    else
        launch_columns<TYPE, PARTS, 4, false>(p, stream);
}

template <int TYPE, int PARTS, class X>
static void launch(const struct products &p, void *stream)
{
    constexpr bool FOLDED = PARTS > 1;
    size_t rows = p.rows.most;

    if (p.rows.expert)
        rows <= COLUMNS / 2 && FOLDED
            ? launch_rows<TYPE, PARTS, 1, 1, FOLDED, BLOCK_WARPS, EXPERTS, X>(p, stream)
        : rows <= COLUMNS
            ? launch_rows<TYPE, PARTS, 1, 1, false, BLOCK_WARPS, EXPERTS, X>(p, stream)
            : launch_rows<TYPE, PARTS, 1, 2, false, BLOCK_WARPS, EXPERTS, X>(p, stream);
    else if (p.joined[0].out)
        launch_rows<TYPE, PARTS, BLOCK_WARPS, SEVERAL, X>(p, stream);
    else if (p.out * p.n < FEW_OUTS)
        launch_rows<TYPE, PARTS, 2 * BLOCK_WARPS, ALONE, X>(p, stream);
    else
        launch_rows<TYPE, PARTS, BLOCK_WARPS, ALONE, X>(p, stream);
}

extern "C" void gpu_skinny(struct products p, void *stream)
{
    if (!p.rows.most || !p.out || !p.n)
        return;
    if (p.parts)
        gpu_split_pairs(p.parts, (const float *)p.x, p.rows.most * p.x_stride, stream);
    if (p.plain)
        p.format == FORMAT_F16 ? launch_plain<FORMAT_F16, 2>(p, stream)
        : p.rounded            ? launch_plain<FORMAT_BF16, 1>(p, stream)
                               : launch_plain<FORMAT_BF16, 2>(p, stream);
    else if (p.format == FORMAT_F16)
        launch<FORMAT_F16, 2, float>(p, stream);
    else if (p.bf16)
        launch<FORMAT_BF16, 1, uint16_t>(p, stream);
    else if (p.rounded)
        launch<FORMAT_BF16, 1, float>(p, stream);
    else
        launch<FORMAT_BF16, 2, float>(p, stream);
}
