/* elementwise - sums, products and activations, element by element
 *
 * y[t][k] = f(x[t][k], z[t][k]); a block handles contiguous elements, or if each row
 * has numbers of its own, some columns of it. */
#include "lib/gpu/quads.cuh"
#include "lib/program/activation.h"

template <int WHAT>
static __device__ float apply(float x, float z, float number, float least)
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
        return x > number ? number : x < least ? least : x;
    }
    return activation_value((enum activation)(WHAT - GPU_ACTIVATION), x);
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
static __device__ float4 apply_quad(float4 x, float4 z, float number, float least)
{
    return float4{ apply<WHAT>(x.x, z.x, number, least),
                   apply<WHAT>(x.y, z.y, number, least),
                   apply<WHAT>(x.z, z.z, number, least),
                   apply<WHAT>(x.w, z.w, number, least) };
}

static __device__ inline void put(float *y, float v)
{
    *y = v;
}

static __device__ inline void put(uint16_t *y, float v)
{
    *y = (uint16_t)pack_bf16(v, 0);
}

template <int WHAT, class Y>
static __global__ void elementwise_kernel(Y *y, const float *x, const float *z,
                                          struct extent e, float number, float least)
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
                put(y + k, apply<WHAT>(x[k], two ? z[k] : 0, number, least));
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
                store_quad<true>(y + 4 * (i + n * blockDim.x), 4,
                                 apply_quad<WHAT>(v[n], w[n], number, least));
    }
}

extern "C" void gpu_elementwise(int what, float *y, const float *x, const float *z,
                                struct span rows, uint64_t cols, float number,
                                float least, void *stream)
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
        LAUNCH_EARLY((elementwise_kernel<WHAT, float>), blocks, GPU_THREADS, stream, \
                     y, x, z, e, number, least);                                     \
        break
#define ROW(id, ...) CASE(GPU_ACTIVATION + ACT_##id);
    switch (what) {
        CASE(GPU_ADD);
        CASE(GPU_MUL);
        CASE(GPU_SCALE);
        CASE(GPU_SOFTCAP);
        CASE(GPU_CLIP);
        ACTIVATIONS(ROW)
    }
#undef CASE
#undef ROW
}

extern "C" void gpu_elementwise_bf16(int what, void *to, const float *x, const float *z,
                                     struct span rows, uint64_t cols, void *stream)
{
    uint16_t *y = (uint16_t *)to;
    bool wide = is_wide(y, cols, sizeof(*y)) && is_wide(x, cols) &&
                (what != GPU_MUL || is_wide(z, cols));
    unsigned blocks =
        gpu_blocks(rows.most * cols, GPU_THREADS * AT_ONCE * (wide ? 4 : 1));
    struct extent e = { rows, cols, wide };

    if (!rows.most || !cols)
        return;
#define CASE(WHAT)                                                              \
    case WHAT:                                                                  \
        LAUNCH_EARLY((elementwise_kernel<WHAT, uint16_t>), blocks, GPU_THREADS, \
                     stream, y, x, z, e, 0.0f, 0.0f);                           \
        break
#define ROW(id, ...) CASE(GPU_ACTIVATION + ACT_##id);
    switch (what) {
        CASE(GPU_MUL);
        ACTIVATIONS(ROW)
    }
#undef CASE
#undef ROW
}

/* y = z act(x) */
template <int ACT, class Y>
static __global__ void gate_kernel(Y *y, const float *x, const float *z,
                                   struct span rows, uint64_t cols)
{
    uint64_t i, end, step = gridDim.x * (uint64_t)blockDim.x;

    others_ended();
    end = (uint64_t)end_row(rows, 0) * cols;
    i = (uint64_t)first_row(rows, 0) * cols + blockIdx.x * (uint64_t)blockDim.x +
        threadIdx.x;
    for (; i < end; i += step)
        put(y + i, z[i] * activation_value((enum activation)ACT, x[i]));
}

template <class Y>
static void launch_gate(Y *y, const float *x, const float *z, int act, struct span rows,
                        uint64_t cols, void *stream)
{
    unsigned blocks = gpu_blocks(rows.most * cols, GPU_THREADS);

#define ROW(id, ...)                                                                   \
    case ACT_##id:                                                                     \
        LAUNCH_EARLY((gate_kernel<ACT_##id, Y>), blocks, GPU_THREADS, stream, y, x, z, \
                     rows, cols);                                                      \
        break;
    switch (act) {
        ACTIVATIONS(ROW)
    }
#undef ROW
}

extern "C" void gpu_gate(void *y, bool bf16, const float *x, const float *z, int act,
                         struct span rows, uint64_t cols, void *stream)
{
    if (!rows.most || !cols)
        return;
    if (bf16)
        launch_gate((uint16_t *)y, x, z, act, rows, cols, stream);
    else
        launch_gate((float *)y, x, z, act, rows, cols, stream);
}

/* One row Y of a row X and a vector W. */
template <int WHAT, bool WIDE>
static __device__ void combine_vector(float *y, const float *x, const struct matrix &w)
{
    EACH_QUAD(k, w.cols, y)
    {
        uint32_t left = (uint32_t)w.cols - k;
        float4 v = load_quad<WIDE>(x + k, left);
        float4 u = widen_quad<WIDE>(w.format, w.data, k, left);

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

/* y[t][k] = x[t][k] + w[e][k], for each row t of expert e */
template <bool WIDE>
static __global__ void add_vectors_kernel(float *y, const float *x, struct vectors w,
                                          struct span rows)
{
    struct matrix own = {};
    int64_t t, end;

    own.data = w.v[blockIdx.z];
    own.format = w.format;
    own.cols = w.cols;
    others_ended();
    t = first_row(rows, blockIdx.z) + (int64_t)blockIdx.x;
    end = end_row(rows, blockIdx.z);
    for (; t < end; t += gridDim.x)
        combine_vector<GPU_ADD, WIDE>(y + t * w.cols, x + t * w.cols, own);
}

extern "C" void gpu_add_vectors(float *y, const float *x, struct vectors w,
                                struct span rows, void *stream)
{
    enum { MOST = 64 }; /* blocks of an expert, many of which have no rows */
    dim3 grid = quad_grid(rows.most < MOST ? rows.most : (uint64_t)MOST, w.cols);
    bool wide = is_wide(y, w.cols) && is_wide(x, w.cols);
    uint64_t unit = 2;

    if (!rows.most || !w.cols || !w.n)
        return;
    grid.z = w.n;
    if (w.format == FORMAT_F32)
        unit = 4;
    for (unsigned i = 0; i < w.n; i++)
        wide = wide && is_wide(w.v[i], w.cols, unit);
    if (wide)
        LAUNCH_EARLY(add_vectors_kernel<true>, grid, GPU_THREADS, stream, y, x, w,
                     rows);
    else
        LAUNCH_EARLY(add_vectors_kernel<false>, grid, GPU_THREADS, stream, y, x, w,
                     rows);
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
    float a = activation_softplus(widen(above.format, above.data, 0));
    float b = 0.5f + activation_softplus(widen(below.format, below.data, 0));

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

/* y[t][k] = x[t][k] s[t * stride] */
template <bool WIDE>
static __global__ void mul_rows_kernel(float *y, const float *x, const float *s,
                                       uint64_t stride, struct span rows, uint32_t cols)
{
    EACH_ROW(t, rows)
    {
        float by = s[t * stride];

        EACH_QUAD(k, cols, y)
        {
            uint64_t at = t * (uint64_t)cols + k;
            float4 v = load_quad<WIDE>(x + at, cols - k);

            store_quad<WIDE>(y + at, cols - k,
                             float4{ v.x * by, v.y * by, v.z * by, v.w * by });
        }
    }
}

extern "C" void gpu_mul_rows(float *y, const float *x, const float *s, uint64_t stride,
                             struct span rows, uint64_t cols, void *stream)
{
    dim3 grid = quad_grid(rows.most, cols);

    if (!rows.most || !cols)
        return;
    if (is_wide(y, cols) && is_wide(x, cols))
        LAUNCH(mul_rows_kernel<true>, grid, GPU_THREADS, stream, y, x, s, stride, rows,
               (uint32_t)cols);
    else
        LAUNCH(mul_rows_kernel<false>, grid, GPU_THREADS, stream, y, x, s, stride, rows,
               (uint32_t)cols);
}
