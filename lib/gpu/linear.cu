/* linear - y = x W^T, W [out][in], and y = x W, W [in][out]
 *
 * Few rows: the weights are read once.  y = x W^T: a warp computes one output; its
 * lanes take terms in turn, eight at a time if rows are aligned to 16 bytes.  y = x W:
 * a thread computes one output.  Many rows: a block of 16 x 16 threads computes a tile
 * of 64 rows by 64 outputs, 16 terms at a time.  Weights are widened as they are read;
 * sums are f32.  Products of bf16 weights may round x to bf16. */
#include "lib/gpu/mma.cuh"

enum {
    FEW = 16,
    ROWS = 4,
    TILE = 64,
    TERMS = 16,
    SIDE = 16,
    EACH = TILE / SIDE,
    EIGHT = 8
};

/* The matrix of product blockIdx.z. */
static __device__ const void *matrix_of(const struct products &p)
{
    return p.rows.expert ? p.w[blockIdx.z] : p.w[0];
}

/* Widens elements I to I + 7 of memory of type T; a word has two f16 or bf16, low half
 * first. */
static __device__ inline void widen_eight(enum dtype t, const void *p, uint64_t i,
                                          float *f)
{
    if (t == DTYPE_F32) {
        const float4 *at = (const float4 *)((const float *)p + i);
        float4 a = at[0], b = at[1];

        f[0] = a.x;
        f[1] = a.y;
        f[2] = a.z;
        f[3] = a.w;
        f[4] = b.x;
        f[5] = b.y;
        f[6] = b.z;
        f[7] = b.w;
    } else {
        uint4 a = *(const uint4 *)((const uint16_t *)p + i);
        unsigned word[4] = { a.x, a.y, a.z, a.w };

#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            uint16_t half = (uint16_t)(word[k / 2] >> 16 * (k % 2));

            f[k] = t == DTYPE_BF16 ? widen_bf16(half) : widen_f16(half);
        }
    }
}

/* x, rounded to bf16 if P says so */
template <int TYPE>
static __device__ inline float term(const struct products &p, float x)
{
    if (TYPE == DTYPE_BF16 && p.rounded)
        x = __uint_as_float(pack_bf16(0, x) & 0xffff0000u);
    return x;
}

template <int TYPE>
static __device__ inline float dot_eight(const struct products &p, const float *x,
                                         const float *f, float sum)
{
    const float4 *at = (const float4 *)x;
    float4 a = at[0], b = at[1];

    if (TYPE == DTYPE_BF16 && p.rounded) {
        a = { term<TYPE>(p, a.x), term<TYPE>(p, a.y), term<TYPE>(p, a.z),
              term<TYPE>(p, a.w) };
        b = { term<TYPE>(p, b.x), term<TYPE>(p, b.y), term<TYPE>(p, b.z),
              term<TYPE>(p, b.w) };
    }
    sum = fmaf(a.x, f[0], sum);
    sum = fmaf(a.y, f[1], sum);
    sum = fmaf(a.z, f[2], sum);
    sum = fmaf(a.w, f[3], sum);
    sum = fmaf(b.x, f[4], sum);
    sum = fmaf(b.y, f[5], sum);
    sum = fmaf(b.z, f[6], sum);
    return fmaf(b.w, f[7], sum);
}

/* y[t][j] for ROWS rows at a time; j is this warp's output. */
template <int TYPE> static __global__ void dot_kernel(struct products p)
{
    unsigned lane = threadIdx.x % GPU_WARP;
    uint64_t j =
        blockIdx.x * (uint64_t)(blockDim.x / GPU_WARP) + threadIdx.x / GPU_WARP;
    const float *x = p.x + blockIdx.z * p.x_step;
    float *y = p.y + blockIdx.z * p.y_step;
    const void *w = matrix_of(p);
    int64_t end = end_row(p.rows, blockIdx.z);

    if (j >= p.out)
        return;
    for (int64_t t = first_row(p.rows, blockIdx.z); t < end; t += ROWS) {
        uint64_t at = blockIdx.z * p.w_step + j * p.w_stride;
        float sum[ROWS] = { 0 };

        for (uint64_t k = lane; k < p.in; k += GPU_WARP) {
            float f = widen((enum dtype)TYPE, w, at + k);

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

/* The same with 16-byte loads, for rows that are aligned to 16 bytes (all widths that
 * are multiples of 8): memory bandwidth is the limit then. */
template <int TYPE> static __global__ void wide_dot_kernel(struct products p)
{
    unsigned lane = threadIdx.x % GPU_WARP;
    uint64_t j =
        blockIdx.x * (uint64_t)(blockDim.x / GPU_WARP) + threadIdx.x / GPU_WARP;
    const float *x = p.x + blockIdx.z * p.x_step;
    float *y = p.y + blockIdx.z * p.y_step;
    const void *w = matrix_of(p);
    int64_t end = end_row(p.rows, blockIdx.z);

    if (j >= p.out)
        return;
    for (int64_t t = first_row(p.rows, blockIdx.z); t < end; t += ROWS) {
        uint64_t at = blockIdx.z * p.w_step + j * p.w_stride;
        float sum[ROWS] = { 0 };

#pragma unroll 4
        for (uint64_t k = lane * EIGHT; k < p.in; k += GPU_WARP * EIGHT) {
            float f[EIGHT];

            widen_eight((enum dtype)TYPE, w, at + k, f);
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                if (t + i < end)
                    sum[i] =
                        dot_eight<TYPE>(p, x + (t + i) * p.x_stride + k, f, sum[i]);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float all = warp_sum(sum[i]);

            if (lane == 0 && t + i < end)
                y[(t + i) * p.y_stride + j] = all;
        }
    }
}

/* The same for y = x W; j is this thread's output. */
template <int TYPE> static __global__ void column_kernel(struct products p)
{
    uint64_t j = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    const float *x = p.x + blockIdx.z * p.x_step;
    float *y = p.y + blockIdx.z * p.y_step;
    const void *w = matrix_of(p);
    int64_t end = end_row(p.rows, blockIdx.z);

    if (j >= p.out)
        return;
    for (int64_t t = first_row(p.rows, blockIdx.z); t < end; t += ROWS) {
        float sum[ROWS] = { 0 };

        for (uint64_t k = 0; k < p.in; k++) {
            float f =
                widen((enum dtype)TYPE, w, blockIdx.z * p.w_step + k * p.w_stride + j);

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
template <int TYPE, bool PLAIN>
static __device__ void load_tiles(float *xs, float *ws, const struct products &p,
                                  const float *x, const void *w, int64_t t, int64_t end,
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
            there ? widen((enum dtype)TYPE, w, blockIdx.z * p.w_step + at) : 0;
    }
}

template <int TYPE, bool PLAIN> static __global__ void tile_kernel(struct products p)
{
    SHARED(float, xs, TILE *TERMS);
    SHARED(float, ws, TILE *TERMS);
    const float *x = p.x + blockIdx.z * p.x_step;
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

/* True if rows can be read 16 bytes at a time. */
static bool is_wide(const struct products &p, uint64_t unit)
{
    uint64_t bytes = (p.w_stride | p.w_step) * unit |
                     (p.x_stride | p.x_step) * sizeof(float) | (uintptr_t)p.x;

    for (unsigned i = 0; i < (p.rows.expert ? p.n : 1); i++)
        bytes |= (uintptr_t)p.w[i];
    return bytes % 16 == 0 && p.in % EIGHT == 0;
}

template <int TYPE> static void launch(const struct products &p, void *stream)
{
    unsigned tiles = (unsigned)((p.out + TILE - 1) / TILE);

    if (p.rows.most > FEW && p.plain)
        LAUNCH((tile_kernel<TYPE, true>),
               dim3(gpu_blocks(p.rows.most, TILE), tiles, p.n), SIDE * SIDE, stream, p);
    else if (p.rows.most > FEW)
        LAUNCH((tile_kernel<TYPE, false>),
               dim3(gpu_blocks(p.rows.most, TILE), tiles, p.n), SIDE * SIDE, stream, p);
    else if (p.plain)
        LAUNCH(column_kernel<TYPE>,
               dim3((unsigned)((p.out + GPU_THREADS - 1) / GPU_THREADS), 1, p.n),
               GPU_THREADS, stream, p);
    else if (is_wide(p, TYPE == DTYPE_F32 ? 4 : 2))
        LAUNCH(wide_dot_kernel<TYPE>,
               dim3((unsigned)((p.out * GPU_WARP + GPU_THREADS - 1) / GPU_THREADS), 1,
                    p.n),
               GPU_THREADS, stream, p);
    else
        LAUNCH(dot_kernel<TYPE>,
               dim3((unsigned)((p.out * GPU_WARP + GPU_THREADS - 1) / GPU_THREADS), 1,
                    p.n),
               GPU_THREADS, stream, p);
}

/* hi = bf16(x), lo = bf16(x - hi) unless NULL; lo of an infinity is 0 */
static __global__ void split_bf16_kernel(uint16_t *hi, uint16_t *lo, const float *x,
                                         uint64_t n)
{
    uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;

    for (; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
        uint16_t h = narrow_bf16(x[i]);
        float left = x[i] - widen_bf16(h);

        hi[i] = h;
        if (lo)
            lo[i] = fabsf(widen_bf16(h)) < INFINITY ? narrow_bf16(left) : 0;
    }
}

extern "C" void gpu_split_bf16(void *hi, void *lo, const float *x, uint64_t n,
                               void *stream)
{
    if (n)
        LAUNCH(split_bf16_kernel, gpu_blocks(n, GPU_THREADS), GPU_THREADS, stream,
               (uint16_t *)hi, (uint16_t *)lo, x, n);
}

extern "C" void gpu_product(struct products p, void *stream)
{
    if (!p.rows.most || !p.out || !p.n)
        return;
    if (p.dtype == DTYPE_F32)
        launch<DTYPE_F32>(p, stream);
    else if (p.dtype == DTYPE_BF16)
        launch<DTYPE_BF16>(p, stream);
    else
        launch<DTYPE_F16>(p, stream);
}
