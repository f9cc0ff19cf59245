/* rotate - rotary position embedding (Su et al. 2021, arXiv:2104.09864, eq. 34)
 *
 * (a, b) -> (a cos - b sin, b cos + a sin) for each pair of the first DIM columns of a
 * head.  The angles of a row are computed once and rounded to f32, as in training. */
#include "lib/gpu/device.cuh"

static const uint64_t PAIRS = 64; /* pairs per launch */

struct frequencies {
    double v[PAIRS], far[PAIRS]; /* far: for sequences longer than the context */
};

/* Dynamic scaling (program_rope_at) for a sequence of LENGTH tokens. */
static __device__ double dynamic_frequency(const struct angles *a, double length,
                                           uint64_t pair)
{
    double dim = 2 * (double)a->half;
    double theta =
        a->theta *
        pow(a->factor * length / (double)a->context - (a->factor - 1), dim / (dim - 2));

    return (double)(1 / powf((float)theta, 2.0f * (float)pair / (float)dim));
}

/* Pairs FIRST to FIRST + COUNT - 1. */
static __global__ void angles_kernel(float *y, const int32_t *position,
                                     const int32_t *length, struct angles a,
                                     struct frequencies f, uint64_t first,
                                     uint64_t count, struct span rows)
{
    EACH_ROW(t, rows)
    for (uint64_t k = threadIdx.x; k < count; k += blockDim.x) {
        bool beyond = a.context && (uint64_t)length[t] > a.context;
        double frequency = !beyond ? f.v[k]
                           : a.long_freq
                               ? f.far[k]
                               : dynamic_frequency(&a, (double)length[t], first + k);
        float angle = (float)position[t] * (float)frequency;
        float *to = y + t * 2 * a.half + first + k;

        to[0] = (float)(cos((double)angle) * a.scale);
        to[a.half] = (float)(sin((double)angle) * a.scale);
    }
}

extern "C" void gpu_angles(float *y, const int32_t *position, const int32_t *length,
                           struct angles a, struct span rows, void *stream)
{
    for (uint64_t first = 0; first < a.half && rows.most; first += PAIRS) {
        uint64_t count = a.half - first < PAIRS ? a.half - first : PAIRS;
        struct frequencies f = {};

        for (uint64_t k = 0; k < count; k++) {
            f.v[k] = a.inv_freq[first + k];
            f.far[k] = a.long_freq ? a.long_freq[first + k] : 0;
        }
        LAUNCH(angles_kernel, gpu_blocks(rows.most, 1), (unsigned)PAIRS, stream, y,
               position, length, a, f, first, count, rows);
    }
}

/* Columns FIRST to FIRST + COUNT - 1 of both halves. */
static __global__ void sinusoid_kernel(float *y, const float *x,
                                       const int32_t *position, int64_t offset,
                                       struct frequencies f, uint64_t first,
                                       uint64_t count, uint64_t half, struct span rows)
{
    EACH_ROW(t, rows)
    for (uint64_t k = threadIdx.x; k < count; k += blockDim.x) {
        float angle = (float)(position[t] + offset) * (float)f.v[k];
        uint64_t at = (uint64_t)t * 2 * half + first + k;

        y[at] = (x ? x[at] : 0) + (float)sin((double)angle);
        y[at + half] = (x ? x[at + half] : 0) + (float)cos((double)angle);
    }
}

extern "C" void gpu_sinusoid(float *y, const float *x, const int32_t *position,
                             int64_t offset, const double *inv_freq, uint64_t half,
                             struct span rows, void *stream)
{
    for (uint64_t first = 0; first < half && rows.most; first += PAIRS) {
        uint64_t count = half - first < PAIRS ? half - first : PAIRS;
        struct frequencies f = {};

        for (uint64_t k = 0; k < count; k++)
            f.v[k] = inv_freq[first + k];
        LAUNCH(sinusoid_kernel, gpu_blocks(rows.most, 1), (unsigned)PAIRS, stream, y, x,
               position, offset, f, first, count, half, rows);
    }
}

static __global__ void temper_kernel(float *y, const float *x, const int32_t *position,
                                     double step, double amount, struct span rows,
                                     uint64_t cols)
{
    EACH_ROW(t, rows)
    {
        float by = (float)(1 + amount * log1p(floor((position[t] + 1.0) / step)));

        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
            y[t * cols + k] = x[t * cols + k] * by;
    }
}

extern "C" void gpu_temper(float *y, const float *x, const int32_t *position,
                           double step, double amount, struct span rows, uint64_t cols,
                           void *stream)
{
    if (rows.most && cols)
        LAUNCH(temper_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x,
               position, step, amount, rows, cols);
}

static __global__ void rope_kernel(float *y, const float *x, const float *angles,
                                   struct span rows, uint64_t cols, uint64_t head,
                                   uint64_t dim, bool interleaved)
{
    uint64_t half = dim / 2, each = half + head - dim; /* each: rotated pairs, and
                                                        * columns that are copied */
    uint64_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : half;

    EACH_ROW(t, rows)
    for (uint64_t i = threadIdx.x; i < cols / head * each; i += blockDim.x) {
        uint64_t at = t * cols + i / each * head, k = i % each;
        const float *c = angles + t * dim, *s = c + half;

        if (k < half) {
            float a = x[at + k * step], b = x[at + k * step + apart];

            y[at + k * step] = a * c[k] - b * s[k];
            y[at + k * step + apart] = b * c[k] + a * s[k];
        } else {
            y[at + k + half] = x[at + k + half];
        }
    }
}

extern "C" void gpu_rope(float *y, const float *x, const float *angles,
                         struct span rows, uint64_t cols, uint64_t head, uint64_t dim,
                         bool interleaved, void *stream)
{
    if (rows.most && cols)
        LAUNCH(rope_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x, angles,
               rows, cols, head, dim, interleaved);
}
