/* norm-back - gradients of RMS norm and layer norm, and sums over rows
 *
 * With xh = (x - mean) r and a = d (w + plus), of each group of WIDTH columns:
 * dx = r (a - mean(a) - xh mean(a xh)), where RMS norm has no mean(a); the weight's
 * gradient gets the sum over the rows of d xh.  Statistics are f64.  A block handles a
 * group, or each of its warps does if groups are narrow.  Sums over rows: blocks (y)
 * add up runs of rows, and a second kernel adds these sums in order. */
#include "lib/gpu/back.h"
#include "lib/gpu/quads.cuh"

enum { MOST_WARPS = GPU_MOST_THREADS / GPU_WARP };

/* What a launch makes of a group. */
enum { STATISTICS, TERMS, BACK };

struct job {
    float *y;
    double *made; /* [groups][2]: mean and r, or the sums of a xh and of a */
    const float *d, *x;
    struct norm_sums sums;
    struct norm_weights n;
    struct span rows;
    uint32_t width, groups, turns; /* groups of a row, and of the weight */
    double over_whole;
    bool corrects;
};

template <bool BY_WARPS> static __device__ double sum_of(double v, double *part)
{
    return BY_WARPS ? warp_sum(v) : block_sum(v, part);
}

template <int WHAT, bool BY_WARPS>
static __global__ void __launch_bounds__(GPU_MOST_THREADS) group_kernel(struct job j)
{
    SHARED(double, first, MOST_WARPS);
    SHARED(double, second, MOST_WARPS);
    const uint32_t teams = BY_WARPS ? blockDim.x / GPU_WARP : 1;
    const uint32_t from = BY_WARPS ? threadIdx.x % GPU_WARP : threadIdx.x;
    const uint32_t step = BY_WARPS ? (unsigned)GPU_WARP : blockDim.x;
    int64_t end = (int64_t)end_row(j.rows, 0) * j.groups;
    int64_t i = (int64_t)first_row(j.rows, 0) * j.groups + (int64_t)blockIdx.x * teams +
                (BY_WARPS ? threadIdx.x / GPU_WARP : 0);

    for (; i < end; i += (int64_t)gridDim.x * teams) {
        const float *x = j.x + i * j.width, *d = j.d + i * j.width;
        const uint64_t at = (uint32_t)i % j.turns * (uint64_t)j.width;
        double mean = 0, r = 0, by = 0, sum = 0;

        if (j.sums.squares) {
            mean = j.n.centred ? j.sums.total[i] * j.over_whole : 0;
            r = j.sums.squares[i];
        } else {
            for (uint32_t k = from; j.n.centred && k < j.width; k += step)
                mean += (double)x[k];
            if (j.n.centred)
                mean = sum_of<BY_WARPS>(mean, first) * j.over_whole;
            for (uint32_t k = from; k < j.width; k += step)
                r += ((double)x[k] - mean) * ((double)x[k] - mean);
            r = sum_of<BY_WARPS>(r, second);
        }
        r = 1 / sqrt(r * j.over_whole + j.n.eps);
        if (WHAT == STATISTICS) {
            if (from == 0) {
                j.made[2 * i] = mean;
                j.made[2 * i + 1] = r;
            }
            if (!BY_WARPS)
                __syncthreads();
            continue;
        }
        if (WHAT == BACK && j.sums.terms) {
            by = j.sums.terms[2 * i];
            sum = j.sums.terms[2 * i + 1];
        } else {
            for (uint32_t k = from; k < j.width; k += step) {
                double w =
                    j.n.w.data
                        ? (double)widen(j.n.w.format, j.n.w.data, at + k) + j.n.plus
                        : 1;
                double a = (double)d[k] * w;

                by += a * (((double)x[k] - mean) * r);
                sum += a;
            }
            if (!BY_WARPS)
                __syncthreads();
            by = sum_of<BY_WARPS>(by, first);
            sum = sum_of<BY_WARPS>(sum, second);
        }
        if (WHAT == TERMS) {
            if (from == 0) {
                j.made[2 * i] = by;
                j.made[2 * i + 1] = sum;
            }
            if (!BY_WARPS)
                __syncthreads();
            continue;
        }
        by = j.corrects ? by * j.over_whole : 0;
        sum = j.corrects && j.n.centred ? sum * j.over_whole : 0;
        for (uint32_t k = from; k < j.width; k += step) {
            double w = j.n.w.data
                           ? (double)widen(j.n.w.format, j.n.w.data, at + k) + j.n.plus
                           : 1;

            j.y[i * j.width + k] =
                (float)(r * ((double)d[k] * w - sum - ((double)x[k] - mean) * r * by));
        }
        if (!BY_WARPS)
            __syncthreads();
    }
}

/* Y of the gradient, or MADE of the others. */
static struct job job_of(float *y, double *made, const float *d, const float *x,
                         struct groups g, struct norm_weights n, struct norm_sums s)
{
    struct job j = {};

    j.y = y;
    j.made = made;
    j.d = d;
    j.x = x;
    j.sums = s;
    j.n = n;
    j.rows = g.rows;
    j.width = (uint32_t)g.width;
    j.groups = (uint32_t)(g.cols / g.width);
    j.turns = n.w.data && n.w.cols > g.width ? (uint32_t)(n.w.cols / g.width) : 1;
    j.over_whole = 1 / g.whole_width;
    j.corrects = s.corrects;
    return j;
}

template <int WHAT> static void launch_groups(struct job j, void *stream)
{
    unsigned threads = threads_of_row(j.width);
    uint64_t n = j.rows.most * j.groups;

    if (!n || !j.width)
        return;
    if (threads > GPU_WARP)
        LAUNCH((group_kernel<WHAT, false>), gpu_blocks(n, 1), threads, stream, j);
    else
        LAUNCH((group_kernel<WHAT, true>), gpu_blocks(n, GPU_THREADS / GPU_WARP),
               GPU_THREADS, stream, j);
}

extern "C" void gpu_norm_back(float *y, const float *d, const float *x, struct groups g,
                              struct norm_weights n, struct norm_sums s, void *stream)
{
    launch_groups<BACK>(job_of(y, NULL, d, x, g, n, s), stream);
}

extern "C" void gpu_norm_terms(double *y, const float *d, const float *x,
                               struct groups g, struct norm_weights n,
                               struct norm_sums s, void *stream)
{
    launch_groups<TERMS>(job_of(NULL, y, d, x, g, n, s), stream);
}

/* ---- sums over rows ---- */

/* Columns and warps of a block. */
#ifdef __CUDACC__
enum { SUM_COLS = GPU_WARP, SUM_WARPS = 8 };
#else
enum { SUM_COLS = GPU_WARP, SUM_WARPS = 2 };
#endif

/* The rows that are added: ROWS, each of PER rows of COLS columns.  STATS [groups][2]
 * or NULL: d is multiplied by the normalized x. */
struct sums {
    const float *d, *x;
    const double *stats;
    struct span rows;
    uint64_t cols, per, width;
};

/* part[blockIdx.y][k] = the sum of column k over the block's rows, whose order is
 * that of the warps. */
static __global__ void part_kernel(double *part, struct sums s)
{
    SHARED(double, warp, SUM_WARPS *SUM_COLS);
    uint64_t first = (uint64_t)first_row(s.rows, 0) * s.per;
    uint64_t n = (uint64_t)end_row(s.rows, 0) * s.per - first;
    uint64_t from = first + n * blockIdx.y / gridDim.y;
    uint64_t end = first + n * (blockIdx.y + 1) / gridDim.y;
    unsigned lane = threadIdx.x % GPU_WARP, me = threadIdx.x / GPU_WARP;
    uint64_t k = blockIdx.x * (uint64_t)SUM_COLS + lane;
    double sum = 0;

    for (uint64_t t = from + me; k < s.cols && t < end; t += SUM_WARPS) {
        uint64_t at = t * s.cols + k;
        double v = (double)s.d[at];

        if (s.stats) {
            const double *its = s.stats + 2 * (at / s.width);

            v *= ((double)s.x[at] - its[0]) * its[1];
        }
        sum += v;
    }
    warp[me * SUM_COLS + lane] = sum;
    __syncthreads();
    if (me || k >= s.cols)
        return;
    for (unsigned i = 1; i < SUM_WARPS; i++)
        sum += warp[i * SUM_COLS + lane];
    part[blockIdx.y * s.cols + k] = sum;
}

/* y[k] += the sum of the N parts. */
static __global__ void add_parts_kernel(float *y, const double *part, unsigned n,
                                        uint64_t cols)
{
    uint64_t k = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;

    for (; k < cols; k += gridDim.x * (uint64_t)blockDim.x) {
        double sum = 0;

        for (unsigned i = 0; i < n; i++)
            sum += part[i * cols + k];
        y[k] += (float)sum;
    }
}

static void add_columns(float *y, double *room, struct sums s, void *stream)
{
    unsigned parts = (unsigned)gpu_sum_parts(s.cols);

    if (!s.rows.most || !s.cols)
        return;
    LAUNCH(part_kernel, dim3((unsigned)((s.cols + SUM_COLS - 1) / SUM_COLS), parts),
           SUM_WARPS * GPU_WARP, stream, room, s);
    LAUNCH(add_parts_kernel, gpu_blocks(s.cols, GPU_THREADS), GPU_THREADS, stream, y,
           (const double *)room, parts, s.cols);
}

extern "C" void gpu_column_sum(float *y, const float *d, struct span rows,
                               uint64_t cols, uint64_t per, double *room, void *stream)
{
    struct sums s = {};

    s.d = d;
    s.rows = rows;
    s.cols = cols;
    s.per = per;
    add_columns(y, room, s, stream);
}

extern "C" void gpu_norm_weight(float *y, const float *d, const float *x,
                                struct groups g, struct norm_weights n,
                                struct norm_sums s, double *room, void *stream)
{
    uint64_t period = n.w.cols;
    double *stats = room + gpu_sum_parts(period) * period;
    struct sums sums = {};

    if (!period || !g.rows.most)
        return;
    launch_groups<STATISTICS>(job_of(NULL, stats, d, x, g, n, s), stream);
    sums.d = d;
    sums.x = x;
    sums.stats = stats;
    sums.rows = g.rows;
    sums.cols = period;
    sums.per = g.cols / period;
    sums.width = g.width;
    add_columns(y, room, sums, stream);
}
