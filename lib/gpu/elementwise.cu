/* elementwise - sums, products and activations, element by element
 *
 * y[t][k] = f(x[t][k], z[t][k]); a block handles contiguous elements, or if each row
 * has numbers of its own, some columns of it. */
#include "lib/gpu/quads.cuh"

/* log(1 + exp(x)); x for large x */
static __device__ float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

template <int WHAT>
static __device__ float apply(float x, float z, float number, float cube)
{
    switch (WHAT) {
    case GPU_ADD:
        return x + z;
    case GPU_MUL:
        return x * z;
    case GPU_SCALE:
        return x * number;
    case GPU_SOFTCAP:
        return number * tanhf(x / number);
    case GPU_CLIP: /* a NaN stays NaN */
        return x > number ? number : x < cube ? cube : x;
    case GPU_GATE: /* SiLU (Elfwing et al. 2018), and the tanh approximation of GELU */
        return x / (1.0f + expf(-x * (number + cube * x * x)));
    case GPU_GELU: /* Hendrycks and Gimpel 2016 */
        return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
    case GPU_RELU:
        return x > 0 ? x : 0;
    case GPU_TANH:
        return tanhf(x);
    case GPU_SIGMOID:
        return 1 / (1 + expf(-x));
    case GPU_RELU2: /* So et al. 2021 */
        return x > 0 ? x * x : 0;
    case GPU_RELU6:
        return fminf(fmaxf(x, 0), 6);
    case GPU_LEAKY_RELU:
        return x > 0 ? x : 0.01f * x;
    case GPU_GELU_10:
        return fmaxf(fminf(0.5f * x * (1 + erff(x * 0.70710678118654752f)), 10), -10);
    case GPU_MISH: /* Misra 2019 */
        return x * tanhf(softplus(x));
    case GPU_LAPLACE: /* Ma et al. 2022, eq. 21, mean and deviation as published */
        return 0.5f * (1 + erff((x - 0.707107f) / (0.282095f * 1.41421356237309505f)));
    case GPU_HARDSWISH: /* Howard et al. 2019 */
        return x * fminf(fmaxf(x + 3, 0), 6) / 6;
    case GPU_SQRT_SOFTPLUS:
        return sqrtf(softplus(x));
    case GPU_COPY:
        break;
    }
    return x;
}

/* Quads of a thread: their loads are under way together. */
enum { AT_ONCE = 2 };

/* The elements of some rows; WIDE as in quads.cuh. */
struct extent {
    struct span rows;
    uint64_t cols;
    bool wide;
};

template <int WHAT>
static __device__ float4 apply_quad(float4 x, float4 z, float number, float cube)
{
    return float4{ apply<WHAT>(x.x, z.x, number, cube),
                   apply<WHAT>(x.y, z.y, number, cube),
                   apply<WHAT>(x.z, z.z, number, cube),
                   apply<WHAT>(x.w, z.w, number, cube) };
}

template <int WHAT>
static __global__ void elementwise_kernel(float *y, const float *x, const float *z,
                                          struct extent e, float number, float cube)
{
    constexpr bool two = WHAT == GPU_ADD || WHAT == GPU_MUL;
    uint64_t i, end, step = gridDim.x * (uint64_t)blockDim.x * AT_ONCE;

    others_ended();
    end = (uint64_t)end_row(e.rows, 0) * e.cols / (e.wide ? 4 : 1);
    i = (uint64_t)first_row(e.rows, 0) * e.cols / (e.wide ? 4 : 1) +
        blockIdx.x * (uint64_t)blockDim.x * AT_ONCE + threadIdx.x;
    if (!e.wide) {
        for (; i < end; i += step)
            for (uint64_t k = i, n = 0; n < AT_ONCE && k < end; n++, k += blockDim.x)
                y[k] = apply<WHAT>(x[k], two ? z[k] : 0, number, cube);
        return;
    }
    for (; i < end; i += step) {
        float4 v[AT_ONCE], w[AT_ONCE] = {};

        for (unsigned n = 0; n < AT_ONCE; n++)
            if (i + n * blockDim.x < end) {
                v[n] = ((const float4 *)x)[i + n * blockDim.x];
                if (two)
                    w[n] = ((const float4 *)z)[i + n * blockDim.x];
            }
        for (unsigned n = 0; n < AT_ONCE; n++)
            if (i + n * blockDim.x < end)
                ((float4 *)y)[i + n * blockDim.x] =
                    apply_quad<WHAT>(v[n], w[n], number, cube);
    }
}

extern "C" void gpu_elementwise(enum gpu_elementwise what, float *y, const float *x,
                                const float *z, struct span rows, uint64_t cols,
                                float number, float cube, void *stream)
{
    bool two = what == GPU_ADD || what == GPU_MUL;
    bool wide = is_wide(y, cols) && is_wide(x, cols) && (!two || is_wide(z, cols));
    unsigned blocks =
        gpu_blocks(rows.most * cols, GPU_THREADS * AT_ONCE * (wide ? 4 : 1));
    struct extent e = { rows, cols, wide };

    if (!rows.most || !cols)
        return;
#define CASE(WHAT)                                                                   \
    case WHAT:                                                                       \
        LAUNCH_EARLY(elementwise_kernel<WHAT>, blocks, GPU_THREADS, stream, y, x, z, \
                     e, number, cube);                                               \
        break
    switch (what) {
        CASE(GPU_ADD);
        CASE(GPU_MUL);
        CASE(GPU_SCALE);
        CASE(GPU_SOFTCAP);
        CASE(GPU_CLIP);
        CASE(GPU_GATE);
        CASE(GPU_GELU);
        CASE(GPU_RELU);
        CASE(GPU_TANH);
        CASE(GPU_SIGMOID);
        CASE(GPU_COPY);
        CASE(GPU_RELU2);
        CASE(GPU_RELU6);
        CASE(GPU_LEAKY_RELU);
        CASE(GPU_GELU_10);
        CASE(GPU_MISH);
        CASE(GPU_LAPLACE);
        CASE(GPU_HARDSWISH);
        CASE(GPU_SQRT_SOFTPLUS);
    }
#undef CASE
}

/* One row Y of a row X and a vector W. */
template <int WHAT, bool WIDE>
static __device__ void combine_vector(float *y, const float *x, const struct matrix &w)
{
    EACH_QUAD(k, w.cols, y)
    {
        uint32_t left = (uint32_t)w.cols - k;
        float4 v = load_quad<WIDE>(x + k, left);
        float4 u = widen_quad<WIDE>(w.dtype, w.data, k, left);

        store_quad<WIDE>(y + k, left, apply_quad<WHAT>(v, u, 0, 0));
    }
}

/* y[t][k] = x[t][k] + w[k] */
template <bool WIDE>
static __global__ void add_vector_kernel(float *y, const float *x, struct matrix w,
                                         struct span rows)
{
    EACH_ROW(t, rows)
    combine_vector<GPU_ADD, WIDE>(y + t * w.cols, x + t * w.cols, w);
}

extern "C" void gpu_add_vector(float *y, const float *x, struct matrix w,
                               struct span rows, void *stream)
{
    dim3 grid = quad_grid(rows.most, w.cols);

    if (!rows.most || !w.cols)
        return;
    if (is_wide(y, w.cols) && is_wide(x, w.cols) && is_wide(w))
        LAUNCH(add_vector_kernel<true>, grid, GPU_THREADS, stream, y, x, w, rows);
    else
        LAUNCH(add_vector_kernel<false>, grid, GPU_THREADS, stream, y, x, w, rows);
}

/* y[t][k] = x[t][k] w[k] */
template <bool WIDE>
static __global__ void mul_vector_kernel(float *y, const float *x, struct matrix w,
                                         struct span rows)
{
    EACH_ROW(t, rows)
    combine_vector<GPU_MUL, WIDE>(y + t * w.cols, x + t * w.cols, w);
}

extern "C" void gpu_mul_vector(float *y, const float *x, struct matrix w,
                               struct span rows, void *stream)
{
    dim3 grid = quad_grid(rows.most, w.cols);

    if (!rows.most || !w.cols)
        return;
    if (is_wide(y, w.cols) && is_wide(x, w.cols) && is_wide(w))
        LAUNCH(mul_vector_kernel<true>, grid, GPU_THREADS, stream, y, x, w, rows);
    else
        LAUNCH(mul_vector_kernel<false>, grid, GPU_THREADS, stream, y, x, w, rows);
}

static __device__ float xielu(float v, float a, float b)
{
    return 0.5f * v + (v > 0 ? a * v * v : b * (expm1f(fminf(v, -1e-6f)) - v));
}

/* Huang and Schlag 2024, arXiv:2411.13010, eq. 6 */
template <bool WIDE>
static __global__ void xielu_kernel(float *y, const float *x, struct matrix above,
                                    struct matrix below, struct span rows,
                                    uint32_t cols)
{
    float a = softplus(widen(above.dtype, above.data, 0));
    float b = 0.5f + softplus(widen(below.dtype, below.data, 0));

    EACH_ROW(t, rows)
    EACH_QUAD(k, cols, y)
    {
        uint64_t at = t * (uint64_t)cols + k;
        float4 v = load_quad<WIDE>(x + at, cols - k);

        store_quad<WIDE>(y + at, cols - k,
                         float4{ xielu(v.x, a, b), xielu(v.y, a, b), xielu(v.z, a, b),
                                 xielu(v.w, a, b) });
    }
}

extern "C" void gpu_xielu(float *y, const float *x, struct matrix above,
                          struct matrix below, struct span rows, uint64_t cols,
                          void *stream)
{
    dim3 grid = quad_grid(rows.most, cols);

    if (!rows.most || !cols)
        return;
    if (is_wide(y, cols) && is_wide(x, cols))
        LAUNCH(xielu_kernel<true>, grid, GPU_THREADS, stream, y, x, above, below, rows,
               (uint32_t)cols);
    else
        LAUNCH(xielu_kernel<false>, grid, GPU_THREADS, stream, y, x, above, below, rows,
               (uint32_t)cols);
}

/* y[t][k] = x[t][k] s[t] */
template <bool WIDE>
static __global__ void mul_rows_kernel(float *y, const float *x, const float *s,
                                       struct span rows, uint32_t cols)
{
    EACH_ROW(t, rows)
    {
        float by = s[t];

        EACH_QUAD(k, cols, y)
        {
            uint64_t at = t * (uint64_t)cols + k;
            float4 v = load_quad<WIDE>(x + at, cols - k);

            store_quad<WIDE>(y + at, cols - k,
                             float4{ v.x * by, v.y * by, v.z * by, v.w * by });
        }
    }
}

extern "C" void gpu_mul_rows(float *y, const float *x, const float *s, struct span rows,
                             uint64_t cols, void *stream)
{
    dim3 grid = quad_grid(rows.most, cols);

    if (!rows.most || !cols)
        return;
    if (is_wide(y, cols) && is_wide(x, cols))
        LAUNCH(mul_rows_kernel<true>, grid, GPU_THREADS, stream, y, x, s, rows,
               (uint32_t)cols);
    else
        LAUNCH(mul_rows_kernel<false>, grid, GPU_THREADS, stream, y, x, s, rows,
               (uint32_t)cols);
}
