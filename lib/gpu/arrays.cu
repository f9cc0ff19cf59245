/* arrays - operations on flat arrays: zeroing, sums, casts, squares, updates
 *
 * y[i] = f(x[i], ...) for i < n; a thread has every so many elements.  Squares are
 * added as integers, first by a block in shared memory, so the order changes no bit. */
#include "lib/device/arrays.h"
#include "lib/gpu/words.cuh"

#define EACH(i, n)                                                              \
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < (n); \
         i += gridDim.x * (uint64_t)blockDim.x)

template <int OP> static __global__ void array_kernel_of(struct array_call c)
{
    float *y = (float *)c.y;
    const float *x = (const float *)c.x, *z = (const float *)c.z;

    EACH(i, c.n)
    {
        if (OP == ARRAY_ZERO)
            y[i] = 0;
        else if (OP == ARRAY_SUM)
            y[i] = x[i] + z[i];
        else if (OP == ARRAY_AVERAGE)
            update_average(&c.by.average, &y[i], x[i]);
        else if (OP == ARRAY_BIAS)
            update_bias(&c.by.bias, &y[i], x[i]);
        else if (OP == ARRAY_ADAMW)
            update_adamw(&c.by.adamw, &y[i], x[i], &c.slot[0][i], &c.slot[1][i]);
        else if (OP == ARRAY_SGD)
            update_sgd(&c.by.sgd, &y[i], x[i]);
        else if (OP == ARRAY_MOMENTUM)
            update_momentum(&c.by.sgd, &y[i], x[i], &c.slot[0][i]);
        else if (OP == ARRAY_LION)
            update_lion(&c.by.lion, &y[i], x[i], &c.slot[0][i]);
    }
}

static __global__ void cast_kernel(struct array_call c)
{
    EACH(i, c.n)
    {
        float v = widen(c.x_format, c.x, i);

        if (c.y_format == FORMAT_F32)
            ((float *)c.y)[i] = v;
        else
            ((uint16_t *)c.y)[i] =
                c.y_format == FORMAT_BF16 ? narrow_bf16(v) : narrow_f16(v);
    }
}

enum {
    MANTISSA = 23,
    TURN = 1 << 16
}; /* numbers of a block's turn: their squares of
    * 48 bits add up to less than 2^64 */

/* Sums of a thread: those of the exponents HIGH, HIGH - 1 ... in registers, where most
 * numbers are; the others are added to shared memory one by one. */
enum { HELD = 8 };
struct held_squares {
    unsigned long long sum[HELD];
    int high;
};

static __device__ inline void flush(struct held_squares *h, unsigned long long *some)
{
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        if (h->sum[k])
            atomicAdd(&some[h->high - k], h->sum[k]);
        h->sum[k] = 0;
    }
}

static __device__ inline void add_square(struct held_squares *h,
                                         unsigned long long *some, float x)
{
    uint32_t bits = __float_as_uint(x);
    int e = (int)(bits >> MANTISSA & (SQUARES_EXPONENTS - 1));
    unsigned long long m = (bits & ((1u << MANTISSA) - 1)) | (unsigned)(e > 0)
                                                                 << MANTISSA;

    m *= m;
    if (e > h->high) {
        flush(h, some);
        h->high = e;
    }
    if (h->high - e >= HELD) {
        if (m)
            atomicAdd(&some[e], m);
        return;
    }
#pragma unroll
    for (int k = 0; k < HELD; k++)
        h->sum[k] += h->high - e == k ? m : 0;
}

static __global__ void squares_kernel(struct array_call c)
{
    SHARED(unsigned long long, some, SQUARES_EXPONENTS);
    unsigned long long *y = (unsigned long long *)c.y;
    const float *x = (const float *)c.x;

    for (uint64_t first = blockIdx.x * (uint64_t)TURN; first < c.n;
         first += gridDim.x * (uint64_t)TURN) {
        uint64_t end = c.n - first < TURN ? c.n : first + TURN;
        struct held_squares h = {};

        for (unsigned e = threadIdx.x; e < SQUARES_EXPONENTS; e += blockDim.x)
            some[e] = 0;
        __syncthreads();
        for (uint64_t i = first + threadIdx.x; i < end; i += blockDim.x)
            add_square(&h, some, x[i]);
        flush(&h, some);
        __syncthreads();
        for (unsigned e = threadIdx.x; e < SQUARES_EXPONENTS; e += blockDim.x)
            if (some[e]) {
                atomicAdd(&y[e], some[e] & 0xffffffffu);
                atomicAdd(&y[SQUARES_EXPONENTS + e], some[e] >> 32);
            }
    }
}

extern "C" void gpu_array(enum array_op op, struct array_call c, void *stream)
{
    unsigned blocks = gpu_blocks(c.n, GPU_THREADS);

    if (!c.n)
        return;
    switch (op) {
    case ARRAY_ZERO:
        LAUNCH(array_kernel_of<ARRAY_ZERO>, blocks, GPU_THREADS, stream, c);
        break;
    case ARRAY_SUM:
        LAUNCH(array_kernel_of<ARRAY_SUM>, blocks, GPU_THREADS, stream, c);
        break;
    case ARRAY_CAST:
        LAUNCH(cast_kernel, blocks, GPU_THREADS, stream, c);
        break;
    case ARRAY_SQUARES:
        LAUNCH(squares_kernel, gpu_blocks(c.n, TURN), GPU_THREADS, stream, c);
        break;
    case ARRAY_AVERAGE:
        LAUNCH(array_kernel_of<ARRAY_AVERAGE>, blocks, GPU_THREADS, stream, c);
        break;
    case ARRAY_BIAS:
        LAUNCH(array_kernel_of<ARRAY_BIAS>, blocks, GPU_THREADS, stream, c);
        break;
    case ARRAY_ADAMW:
        LAUNCH(array_kernel_of<ARRAY_ADAMW>, blocks, GPU_THREADS, stream, c);
        break;
    case ARRAY_SGD:
        LAUNCH(array_kernel_of<ARRAY_SGD>, blocks, GPU_THREADS, stream, c);
        break;
    case ARRAY_MOMENTUM:
        LAUNCH(array_kernel_of<ARRAY_MOMENTUM>, blocks, GPU_THREADS, stream, c);
        break;
    case ARRAY_LION:
        LAUNCH(array_kernel_of<ARRAY_LION>, blocks, GPU_THREADS, stream, c);
        break;
    case ARRAY_PRODUCT:
    case ARRAY_COUNT:
        break;
    }
}
