/* norm - RMS norm (Zhang and Sennrich 2019) and layer norm (Ba et al. 2016)
 *
 * y = (x - mean) / sqrt(squares / n + eps) (w + plus) + b over each group of WIDTH
 * columns; squares is the sum of (x - mean)^2.  A block handles one group; statistics
 * are f64.  If ranks share a group, one kernel computes its partial sums, the ranks
 * all-reduce them, and another kernel applies them. */
#include "lib/gpu/device.cuh"

/* Loops over this block's groups; a row has `per` groups. */
#define EACH_GROUP(i, g)                                                            \
    for (int64_t per_ = (int64_t)((g).cols / (g).width),                            \
                 i = first_row((g).rows, 0) * per_ + (int64_t)blockIdx.x;           \
         i < end_row((g).rows, 0) * per_; i += gridDim.x)

static __device__ double add_up(const float *x, uint64_t width, double mean, bool squares,
                                double *part)
{
    double sum = 0;

    for (uint64_t k = threadIdx.x; k < width; k += blockDim.x) {
        double d = (double)x[k] - mean;

        sum += squares ? d * d : d;
    }
    return block_sum(sum, part);
}

/* Normalizes one group; AT is the index of its first element in x. */
static __device__ void apply(float *y, const float *x, uint64_t at, uint64_t width,
                             double mean, double factor, const struct norm_weights *n)
{
    uint64_t period = n->w.data ? n->w.cols : 1;

    for (uint64_t k = threadIdx.x; k < width; k += blockDim.x) {
        double v = ((double)x[k] - mean) * factor;

        if (n->w.data)
            v *= (double)widen(n->w.dtype, n->w.data, (at + k) % period) + n->plus;
        if (n->b.data)
            v += (double)widen(n->b.dtype, n->b.data, (at + k) % period);
        y[k] = (float)v;
    }
}

static __device__ double factor_of(double squares, const struct groups *g,
                                   const struct norm_weights *n)
{
    return 1 / sqrt(squares / g->whole_width + n->eps);
}

static __global__ void norm_kernel(float *y, const float *x, struct groups g,
                                   struct norm_weights n)
{
    SHARED(double, sums, GPU_THREADS / GPU_WARP);
    SHARED(double, squares, GPU_THREADS / GPU_WARP);

    EACH_GROUP(i, g)
    {
        uint64_t at = (uint64_t)i * g.width;
        double mean = 0, all;

        if (n.centred)
            mean = add_up(x + at, g.width, 0, false, sums) / (double)g.width;
        all = add_up(x + at, g.width, mean, true, squares);
        apply(y + at, x + at, at, g.width, mean, factor_of(all, &g, &n), &n);
        __syncthreads();
    }
}

extern "C" void gpu_norm(float *y, const float *x, struct groups g, struct norm_weights n,
                         void *stream)
{
    if (g.rows.most && g.cols)
        LAUNCH(norm_kernel, gpu_blocks(g.rows.most * (g.cols / g.width), 1), GPU_THREADS,
               stream, y, x, g, n);
}

/* A rank that owns none of the group's columns adds 0. */
static __global__ void group_sum_kernel(double *sum, const float *x, const double *total,
                                        bool squares, bool owned, struct groups g)
{
    SHARED(double, part, GPU_THREADS / GPU_WARP);

    EACH_ROW(t, g.rows)
    {
        double mean = total ? total[t] / g.whole_width : 0;
        double all = add_up(x + t * g.width, owned ? g.width : 0, mean, squares, part);

        if (threadIdx.x == 0)
            sum[t] = all;
        __syncthreads();
    }
}

extern "C" void gpu_group_sum(double *sum, const float *x, const double *total,
                              bool squares, bool owned, struct groups g, void *stream)
{
    if (g.rows.most)
        LAUNCH(group_sum_kernel, gpu_blocks(g.rows.most, 1), GPU_THREADS, stream, sum, x,
               total, squares, owned, g);
}

static __global__ void norm_apply_kernel(float *y, const float *x, const double *squares,
                                         const double *total, struct groups g,
                                         struct norm_weights n)
{
    EACH_ROW(t, g.rows)
    apply(y + t * g.width, x + t * g.width, t * g.width, g.width,
          n.centred ? total[t] / g.whole_width : 0, factor_of(squares[t], &g, &n), &n);
}

extern "C" void gpu_norm_apply(float *y, const float *x, const double *squares,
                               const double *total, struct groups g,
                               struct norm_weights n, void *stream)
{
    if (g.rows.most && g.width)
        LAUNCH(norm_apply_kernel, gpu_blocks(g.rows.most, 1), GPU_THREADS, stream, y, x,
               squares, total, g, n);
}
