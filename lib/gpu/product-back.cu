/* product-back - gradients of the weights of products: y += a^T b
 *
 * a [rows][m], b [rows][n], y [m][n].  A block of 16 x 16 threads makes a tile of 64 x
 * 64 elements, 16 rows at a time, all rows in order.  Many rows of aligned matrices are
 * cuBLASLt's (blas.c). */
#include "lib/gpu/back.h"
#include "lib/gpu/device.cuh"

enum { TILE = 64, TERMS = 16, SIDE = 16, EACH = TILE / SIDE };

static __device__ void load_terms(float *to, const float *x, uint64_t stride,
                                  uint64_t cols, uint64_t first, int64_t t, int64_t end)
{
    for (unsigned i = threadIdx.x; i < TILE * TERMS; i += SIDE * SIDE) {
        unsigned row = i / TILE, k = i % TILE;

        to[i] = t + row < end && first + k < cols
                    ? x[(t + row) * (int64_t)stride + (int64_t)(first + k)]
                    : 0;
    }
}

static __global__ void outer_kernel(struct outer o)
{
    SHARED(float, as, TILE *TERMS);
    SHARED(float, bs, TILE *TERMS);
    const float *a = o.a + blockIdx.z * o.m, *b = o.b + blockIdx.z * o.n;
    float *y = o.y + blockIdx.z * o.m * o.n;
    uint64_t m = blockIdx.x * (uint64_t)TILE, n = blockIdx.y * (uint64_t)TILE;
    unsigned tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    int64_t end = end_row(o.rows, 0);
    float sum[EACH][EACH] = { { 0 } };

    for (int64_t t = first_row(o.rows, 0); t < end; t += TERMS) {
        load_terms(as, a, o.heads * o.m, o.m, m, t, end);
        load_terms(bs, b, o.heads * o.n, o.n, n, t, end);
        __syncthreads();
#pragma unroll
        for (int c = 0; c < TERMS; c++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int k = 0; k < EACH; k++)
                    sum[i][k] = fmaf(as[c * TILE + ty + i * SIDE],
                                     bs[c * TILE + tx + k * SIDE], sum[i][k]);
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++)
        for (int k = 0; k < EACH; k++)
            if (m + ty + i * SIDE < o.m && n + tx + k * SIDE < o.n)
                y[(m + ty + i * SIDE) * o.n + n + tx + k * SIDE] += sum[i][k];
}

extern "C" void gpu_outer(struct outer o, void *stream)
{
    if (o.rows.most && o.m && o.n && o.heads)
        LAUNCH(outer_kernel,
               dim3((unsigned)((o.m + TILE - 1) / TILE),
                    (unsigned)((o.n + TILE - 1) / TILE), (unsigned)o.heads),
               SIDE * SIDE, stream, o);
}
