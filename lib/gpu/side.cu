/* side - attention within a window and to the side rows of blocks of tokens (twin of
 * lib/cpu/attention/side.c)
 *
 * Guo et al. 2021, "LongT5", section 2.2; q, k, v, y [tokens][heads][dim], side rows
 * alike.  A block handles one query of a head; its warps take turns at the keys (see
 * attention.cu). */
#include "lib/device/positions.h"
#include "lib/gpu/warps.cuh"

/* The bias of a key at DISTANCE from its query. */
static __device__ inline float bias_of(const struct sides *a, const struct matrix *m,
                                       uint64_t head, int64_t distance)
{
    return widen(m->format, m->data,
                 positions_bucket(distance, m->rows, a->far, true) * m->cols + head);
}

static __device__ inline float product(const float *q, const float *k, uint64_t dim)
{
    float s = 0;

    for (uint64_t d = threadIdx.x % GPU_WARP; d < dim; d += GPU_WARP)
        s = fmaf(q[d], k[d], s);
    return warp_sum(s);
}

static __global__ void side_kernel(float *y, const float *q, const float *k,
                                   const float *v, struct sides a, struct span rows)
{
    SHARED(float, value, WARPS *GPU_VALUE_DIM);
    SHARED(float, max, WARPS);
    SHARED(float, sum, WARPS);
    struct shared_parts shared = { value, max, sum };
    uint64_t head = blockIdx.y, stride = a.heads * a.dim;

    EACH_ROW(i, rows)
    {
        struct part p = begin_part(shared, a.dim);
        int32_t text = text_at(&a.texts, i);
        int64_t begin = a.texts.first[text], end = text_end(&a.texts, text);
        int64_t low = i - a.window + 1 > begin ? i - a.window + 1 : begin;
        int64_t high = i + a.window < end ? i + a.window : end;
        int64_t first = a.sides.first[text], n = text_end(&a.sides, text) - first;
        int64_t own = positions_side(i - begin, n, a.block);
        const float *qi = q + i * stride + head * a.dim;

        for (int64_t t = low + threadIdx.x / GPU_WARP; t < high; t += WARPS) {
            uint64_t at = (uint64_t)t * stride + head * a.dim;

            add_key(&p,
                    fmaf(product(qi, k + at, a.dim), (float)a.scale,
                         bias_of(&a, &a.bias, head, t - (int64_t)i)),
                    v + at, a.dim);
        }
        for (int64_t t = threadIdx.x / GPU_WARP; t < n; t += WARPS) {
            uint64_t at = (uint64_t)(first + t) * stride + head * a.dim;

            add_key(&p,
                    fmaf(product(qi, a.k + at, a.dim), (float)a.scale,
                         bias_of(&a, &a.side, head, t - own)),
                    a.v + at, a.dim);
        }
        join_parts(y, false, i * stride + head * a.dim, &p, shared, a.dim);
    }
}

extern "C" void gpu_side_attention(float *y, const float *q, const float *k,
                                   const float *v, struct sides a, struct span rows,
                                   void *stream)
{
    if (rows.most && a.heads)
        LAUNCH(side_kernel, dim3(gpu_blocks(rows.most, 1), (unsigned)a.heads, 1),
               GPU_THREADS, stream, y, q, k, v, a, rows);
}
