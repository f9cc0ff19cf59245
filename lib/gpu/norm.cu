/* norm - RMS norm (Zhang and Sennrich 2019) and layer norm (Ba et al. 2016)
 *
 * y = (x - mean) / sqrt(squares / n + eps) (w + plus) + b over each group of WIDTH
 * columns; squares is the sum of (x - mean)^2.  x and y are [rows][groups][width], w
 * and b [width] or [groups][width].  A block handles one group, or each of its warps
 * does if groups are narrow; the choice depends on WIDTH alone.  Statistics are f64;
 * the factor 1 / sqrt is applied as a sum of two f32, which on most GPUs costs less
 * than converting each element to f64 and back.  If ranks share a group, one kernel
 * computes its partial sums, the ranks all-reduce them, and another kernel applies
 * them. */
#include "lib/gpu/quads.cuh"

enum { MOST_WARPS = GPU_MOST_THREADS / GPU_WARP };

/* What kernels are compiled for. */
enum {
    WIDE = 1,     /* as in quads.cuh */
    BY_WARPS = 2, /* a group is handled by a warp */
    OF_SUM = 4    /* of x + z, which is stored */
};

/* struct groups in the types of the kernels. */
struct shape {
    uint32_t width, groups;        /* groups of a row */
    uint32_t turns;                /* groups that w and b have */
    double over_width, over_whole; /* reciprocals of the widths */
};

/* Two f32 whose sum is an f64, but for its least bits. */
struct pair {
    float high, low;
};

static __device__ struct pair pair_of(double v)
{
    struct pair p;

    p.high = (float)v;
    p.low = (float)(v - (double)p.high);
    return p;
}

struct weights {
    float4 w, b; /* with PLUS */
};

/* Those of columns I to I + 3. */
template <bool WIDE_ROWS>
static __device__ struct weights weights_at(const struct norm_weights *n, uint64_t i,
                                            uint32_t left)
{
    struct weights o = { { 1, 1, 1, 1 }, { 0, 0, 0, 0 } };

    if (n->w.data) {
        float plus = (float)n->plus;

        o.w = widen_quad<WIDE_ROWS>(n->w.format, n->w.data, i, left);
        o.w = float4{ o.w.x + plus, o.w.y + plus, o.w.z + plus, o.w.w + plus };
    }
    if (n->b.data)
        o.b = widen_quad<WIDE_ROWS>(n->b.format, n->b.data, i, left);
    return o;
}

/* (x - mean) factor w + b; the rounding of the first product is made good. */
static __device__ float normalize(float x, struct pair mean, struct pair factor,
                                  float w, float b)
{
    float d = x - mean.high - mean.low, v = d * factor.high;
    float rest = fmaf(d, factor.low, fmaf(d, factor.high, -v));

    return fmaf(v, w, fmaf(rest, w, b));
}

static __device__ float4 normalize_quad(float4 x, struct pair mean, struct pair factor,
                                        const struct weights *o)
{
    return float4{ normalize(x.x, mean, factor, o->w.x, o->b.x),
                   normalize(x.y, mean, factor, o->w.y, o->b.y),
                   normalize(x.z, mean, factor, o->w.z, o->b.z),
                   normalize(x.w, mean, factor, o->w.w, o->b.w) };
}

static __device__ double factor_of(double squares, double over_whole, double eps)
{
    return rsqrt(squares * over_whole + eps);
}

/* The sum of x - mean, or of its square, over the first LEFT of four columns. */
static __device__ double sum_quad(float4 x, uint32_t left, double mean, bool squares)
{
    double a = (double)x.x - mean, b = (double)x.y - mean;
    double c = (double)x.z - mean, d = (double)x.w - mean;

    b = left > 1 ? b : 0;
    c = left > 2 ? c : 0;
    d = left > 3 ? d : 0;
    return squares ? (a * a + b * b) + (c * c + d * d) : (a + b) + (c + d);
}

/* The columns of a group that a thread handles: quads at FIRST, FIRST + STEP ...; the
 * first QUADS_KEPT of them are kept in V. */
struct columns {
    const float *x;
    const float *z; /* added to x; or NULL */
    uint32_t first, step, width;
    float4 v[QUADS_KEPT];
};

#define EACH_KEPT(j, k, c)                                                  \
    for (uint32_t j = 0, k = (c).first; j < QUADS_KEPT; j++, k += (c).step) \
        if (k < (c).width)

/* Columns K to K + 3. */
template <bool WIDE_ROWS, bool SUM>
static __device__ float4 columns_at(const struct columns *c, uint32_t k)
{
    float4 v = load_quad<WIDE_ROWS>(c->x + k, c->width - k), w;

    if (!SUM)
        return v;
    w = load_quad<WIDE_ROWS>(c->z + k, c->width - k);
    return float4{ v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w };
}

template <bool WIDE_ROWS, bool SUM = false>
static __device__ void keep_columns(struct columns *c)
{
    EACH_KEPT(j, k, *c)
    c->v[j] = columns_at<WIDE_ROWS, SUM>(c, k);
}

/* The sum over a thread's columns. */
template <bool WIDE_ROWS, bool SUM = false>
static __device__ double add_up(const struct columns *c, double mean, bool squares)
{
    double sum = 0;

    EACH_KEPT(j, k, *c)
    sum += sum_quad(c->v[j], WIDE_ROWS ? 4 : c->width - k, mean, squares);
    for (uint32_t k = c->first + QUADS_KEPT * c->step; k < c->width; k += c->step) {
        float4 x = columns_at<WIDE_ROWS, SUM>(c, k);

        sum += sum_quad(x, WIDE_ROWS ? 4 : c->width - k, mean, squares);
    }
    return sum;
}

/* The weights of the columns that are kept, from element FROM on. */
template <bool WIDE_ROWS>
static __device__ void keep_weights(struct weights o[QUADS_KEPT],
                                    const struct norm_weights *n, uint64_t from,
                                    const struct columns *c)
{
    EACH_KEPT(j, k, *c)
    o[j] = weights_at<WIDE_ROWS>(n, from + k, c->width - k);
}

/* Of a block. */
static constexpr int most_threads(int how)
{
    return how & BY_WARPS ? (int)GPU_THREADS : (int)GPU_MOST_THREADS;
}

template <int HOW, class Y>
static __global__ void __launch_bounds__(most_threads(HOW))
    norm_kernel(Y *y, float *added, const float *x, const float *z, struct span rows,
                struct shape s, struct norm_weights n)
{
    SHARED(double, sums, MOST_WARPS);
    SHARED(double, squares, MOST_WARPS);
    constexpr bool wide = HOW & WIDE, by_warps = HOW & BY_WARPS, two = HOW & OF_SUM;
    uint32_t teams = by_warps ? blockDim.x / GPU_WARP : 1;
    int64_t i, end;
    struct columns c;
    struct weights o[QUADS_KEPT];

    c.first = 4 * (by_warps ? threadIdx.x % GPU_WARP : threadIdx.x);
    c.step = 4 * (by_warps ? (unsigned)GPU_WARP : blockDim.x);
    c.width = s.width;
    /* weights come from far: they are asked for before the number of rows is known */
    if (s.turns == 1)
        keep_weights<wide>(o, &n, 0, &c);
    others_ended();
    end = (int64_t)end_row(rows, 0) * s.groups;
    i = (int64_t)first_row(rows, 0) * s.groups + (int64_t)blockIdx.x * teams +
        (by_warps ? threadIdx.x / GPU_WARP : 0);
    for (; i < end; i += (int64_t)gridDim.x * teams) {
        Y *to = y + i * s.width;
        struct pair mean = { 0, 0 }, factor;
        uint64_t from = 0;
        double middle = 0, all;

        c.x = x + i * s.width;
        c.z = two ? z + i * s.width : NULL;
        keep_columns<wide, two>(&c);
        if (s.turns > 1) {
            from = (uint64_t)((uint32_t)i % s.turns) * s.width;
            keep_weights<wide>(o, &n, from, &c);
        }
        if (n.centred) {
            middle = add_up<wide, two>(&c, 0, false);
            middle = by_warps ? warp_sum(middle) : block_sum(middle, sums);
            middle *= s.over_width;
            mean = pair_of(middle);
        }
        all = add_up<wide, two>(&c, middle, true);
        all = by_warps ? warp_sum(all) : block_sum(all, squares);
        factor = pair_of(factor_of(all, s.over_whole, n.eps));
        EACH_KEPT(j, k, c)
        store_quad<wide>(to + k, s.width - k,
                         normalize_quad(c.v[j], mean, factor, &o[j]));
        for (uint32_t k = c.first + QUADS_KEPT * c.step; k < s.width; k += c.step) {
            float4 v = columns_at<wide, two>(&c, k);
            struct weights more = weights_at<wide>(&n, from + k, s.width - k);

            store_quad<wide>(to + k, s.width - k,
                             normalize_quad(v, mean, factor, &more));
            if (two && added)
                store_quad<wide>(added + i * s.width + k, s.width - k, v);
        }
        if (two && added)
            EACH_KEPT(j, k, c)
        store_quad<wide>(added + i * s.width + k, s.width - k, c.v[j]);
        if (!by_warps)
            __syncthreads();
    }
}

static struct shape shape_of(const struct groups *g, const struct norm_weights *n)
{
    struct shape s;

    s.width = (uint32_t)g->width;
    s.groups = (uint32_t)(g->cols / g->width);
    s.turns = 1;
    s.over_width = 1 / (double)g->width;
    s.over_whole = 1 / g->whole_width;
    if (n->w.data && n->w.cols > g->width)
        s.turns = (uint32_t)(n->w.cols / g->width);
    return s;
}

/* Whether all rows are WIDE. */
static bool is_wide_norm(const void *y, const float *x, const struct groups *g,
                         const struct norm_weights *n)
{
    return is_wide(y, g->width, n->bf16 ? sizeof(uint16_t) : sizeof(float)) &&
           is_wide(x, g->width) && (!n->w.data || is_wide(n->w)) &&
           (!n->b.data || is_wide(n->b));
}

/* Z NULL: of X alone. */
template <class Y>
static void launch_norm(Y *y, float *added, const float *x, const float *z,
                        struct groups g, struct norm_weights n, void *stream)
{
    bool wide =
        is_wide_norm(y, x, &g, &n) && is_wide(z, g.width) && is_wide(added, g.width);
    unsigned threads, blocks;
    struct shape s;
    uint64_t all;
    int how;

    if (!g.rows.most || !g.cols)
        return;
    s = shape_of(&g, &n);
    all = g.rows.most * s.groups;
    threads = threads_of_row(g.width);
    how = (wide ? WIDE : 0) | (threads > GPU_WARP ? 0 : BY_WARPS) | (z ? OF_SUM : 0);
    blocks = gpu_blocks(all, how & BY_WARPS ? GPU_THREADS / GPU_WARP : 1);
    threads = how & BY_WARPS ? (unsigned)GPU_THREADS : threads;
#define CASE(HOW)                                                                    \
    case HOW:                                                                        \
        LAUNCH_EARLY((norm_kernel<HOW, Y>), blocks, threads, stream, y, added, x, z, \
                     g.rows, s, n);                                                  \
        break
    switch (how) {
        CASE(0);
        CASE(WIDE);
        CASE(BY_WARPS);
        CASE(BY_WARPS | WIDE);
        CASE(OF_SUM);
        CASE(OF_SUM | WIDE);
        CASE(OF_SUM | BY_WARPS);
        CASE(OF_SUM | BY_WARPS | WIDE);
    }
#undef CASE
}

extern "C" void gpu_norm(void *y, const float *x, struct groups g,
                         struct norm_weights n, void *stream)
{
    gpu_add_norm(y, NULL, x, NULL, g, n, stream);
}

extern "C" void gpu_add_norm(void *y, float *sum, const float *x, const float *z,
                             struct groups g, struct norm_weights n, void *stream)
{
    if (n.bf16)
        launch_norm((uint16_t *)y, sum, x, z, g, n, stream);
    else
        launch_norm((float *)y, sum, x, z, g, n, stream);
}

/* A rank that owns none of the group's columns adds 0. */
template <bool WIDE_ROWS>
static __global__ void
group_sum_kernel(double *sum, const float *x, const double *total, bool squares,
                 uint32_t width, double over_whole, struct span rows)
{
    SHARED(double, part, MOST_WARPS);
    struct columns c;

    c.first = 4 * threadIdx.x;
    c.step = 4 * blockDim.x;
    c.width = width;
    EACH_ROW(t, rows)
    {
        double mean = total ? total[t] * over_whole : 0, all;

        c.x = x + t * (int64_t)width;
        keep_columns<WIDE_ROWS>(&c);
        all = block_sum(add_up<WIDE_ROWS>(&c, mean, squares), part);
        if (threadIdx.x == 0)
            sum[t] = all;
        __syncthreads();
    }
}

extern "C" void gpu_group_sum(double *sum, const float *x, const double *total,
                              bool squares, bool owned, struct groups g, void *stream)
{
    unsigned blocks = gpu_blocks(g.rows.most, 1), threads = threads_of_row(g.width);
    uint32_t width = owned ? (uint32_t)g.width : 0;

    if (!g.rows.most)
        return;
    if (is_wide(x, g.width))
        LAUNCH(group_sum_kernel<true>, blocks, threads, stream, sum, x, total, squares,
               width, 1 / g.whole_width, g.rows);
    else
        LAUNCH(group_sum_kernel<false>, blocks, threads, stream, sum, x, total, squares,
               width, 1 / g.whole_width, g.rows);
}

template <class Y, bool WIDE_ROWS>
static __global__ void norm_apply_kernel(Y *y, const float *x, const double *squares,
                                         const double *total, struct span rows,
                                         struct shape s, struct norm_weights n)
{
    EACH_ROW(t, rows)
    {
        struct pair factor = pair_of(factor_of(squares[t], s.over_whole, n.eps));
        struct pair mean = pair_of(n.centred ? total[t] * s.over_whole : 0);

        EACH_QUAD(k, s.width, y)
        {
            uint64_t at = t * (uint64_t)s.width + k;
            struct weights o = weights_at<WIDE_ROWS>(&n, k, s.width - k);
            float4 v = load_quad<WIDE_ROWS>(x + at, s.width - k);

            store_quad<WIDE_ROWS>(y + at, s.width - k,
                                  normalize_quad(v, mean, factor, &o));
        }
    }
}

template <class Y>
static void launch_apply(Y *y, const float *x, const double *squares,
                         const double *total, struct groups g, struct norm_weights n,
                         void *stream)
{
    dim3 grid = quad_grid(g.rows.most, g.width);
    struct shape s;

    if (!g.rows.most || !g.width)
        return;
    s = shape_of(&g, &n);
    if (is_wide_norm(y, x, &g, &n))
        LAUNCH((norm_apply_kernel<Y, true>), grid, GPU_THREADS, stream, y, x, squares,
               total, g.rows, s, n);
    else
        LAUNCH((norm_apply_kernel<Y, false>), grid, GPU_THREADS, stream, y, x, squares,
               total, g.rows, s, n);
}

extern "C" void gpu_norm_apply(void *y, const float *x, const double *squares,
                               const double *total, struct groups g,
                               struct norm_weights n, void *stream)
{
    if (n.bf16)
        launch_apply((uint16_t *)y, x, squares, total, g, n, stream);
    else
        launch_apply((float *)y, x, squares, total, g, n, stream);
}
