/* elementwise - sums, products and activations, element by element
 *
 * y[t][k] = f(x[t][k], z[t][k]); a block handles contiguous elements. */
#include "lib/gpu/device.cuh"

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

template <int WHAT>
static __global__ void elementwise_kernel(float *y, const float *x, const float *z,
                                          struct span rows, uint64_t cols, float number,
                                          float cube)
{
    uint64_t end = (uint64_t)end_row(rows, 0) * cols;
    uint64_t i = (uint64_t)first_row(rows, 0) * cols +
                 (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;

    for (; i < end; i += (uint64_t)gridDim.x * blockDim.x)
        y[i] = apply<WHAT>(x[i], WHAT == GPU_ADD || WHAT == GPU_MUL ? z[i] : 0, number,
                           cube);
}

extern "C" void gpu_elementwise(enum gpu_elementwise what, float *y, const float *x,
                                const float *z, struct span rows, uint64_t cols,
                                float number, float cube, void *stream)
{
    unsigned blocks = gpu_blocks(rows.most * cols, GPU_THREADS);

    if (!rows.most || !cols)
        return;
#define CASE(WHAT)                                                                   \
    case WHAT:                                                                       \
        LAUNCH(elementwise_kernel<WHAT>, blocks, GPU_THREADS, stream, y, x, z, rows, \
               cols, number, cube);                                                  \
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

/* y[t][k] = x[t][k] + w[k] */
static __global__ void add_vector_kernel(float *y, const float *x, struct matrix w,
                                         struct span rows)
{
    EACH_ROW(t, rows)
    for (uint64_t k = threadIdx.x; k < w.cols; k += blockDim.x)
        y[t * w.cols + k] = x[t * w.cols + k] + widen(w.dtype, w.data, k);
}

extern "C" void gpu_add_vector(float *y, const float *x, struct matrix w,
                               struct span rows, void *stream)
{
    if (rows.most && w.cols)
        LAUNCH(add_vector_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x,
               w, rows);
}

/* y[t][k] = x[t][k] w[k] */
static __global__ void mul_vector_kernel(float *y, const float *x, struct matrix w,
                                         struct span rows)
{
    EACH_ROW(t, rows)
    for (uint64_t k = threadIdx.x; k < w.cols; k += blockDim.x)
        y[t * w.cols + k] = x[t * w.cols + k] * widen(w.dtype, w.data, k);
}

extern "C" void gpu_mul_vector(float *y, const float *x, struct matrix w,
                               struct span rows, void *stream)
{
    if (rows.most && w.cols)
        LAUNCH(mul_vector_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x,
               w, rows);
}

/* Huang and Schlag 2024, arXiv:2411.13010, eq. 6 */
static __global__ void xielu_kernel(float *y, const float *x, struct matrix above,
                                    struct matrix below, struct span rows,
                                    uint64_t cols)
{
    float a = softplus(widen(above.dtype, above.data, 0));
    float b = 0.5f + softplus(widen(below.dtype, below.data, 0));

    EACH_ROW(t, rows)
    for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x) {
        float v = x[t * cols + k];

        y[t * cols + k] =
            0.5f * v + (v > 0 ? a * v * v : b * (expm1f(fminf(v, -1e-6f)) - v));
    }
}

extern "C" void gpu_xielu(float *y, const float *x, struct matrix above,
                          struct matrix below, struct span rows, uint64_t cols,
                          void *stream)
{
    if (rows.most && cols)
        LAUNCH(xielu_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x, above,
               below, rows, cols);
}

/* y[t][k] = x[t][k] s[t] */
static __global__ void mul_rows_kernel(float *y, const float *x, const float *s,
                                       struct span rows, uint64_t cols)
{
    EACH_ROW(t, rows)
    for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
        y[t * cols + k] = x[t * cols + k] * s[t];
}

extern "C" void gpu_mul_rows(float *y, const float *x, const float *s, struct span rows,
                             uint64_t cols, void *stream)
{
    if (rows.most && cols)
        LAUNCH(mul_rows_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x, s,
               rows, cols);
}
