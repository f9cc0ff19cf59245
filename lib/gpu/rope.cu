/* rope - rotary position embedding (Su et al. 2021, arXiv:2104.09864, eq. 34)
 *
 * (a, b) -> (a cos - b sin, b cos + a sin) for each pair of the first DIM columns of a
 * head.  The angles of a row are computed once and rounded to f32, as in training. */
#include "lib/gpu/back.h"
#include "lib/gpu/quads.cuh"

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
    others_ended();
    EACH_ROW(t, rows)
    for (uint64_t k = threadIdx.x; k < count; k += blockDim.x) {
        bool beyond = a.context && (uint64_t)length[t] > a.context;
        double frequency = !beyond ? f.v[k]
                           : a.long_freq
                               ? f.far[k]
                               : dynamic_frequency(&a, (double)length[t], first + k);
        float angle = (float)position[t] * (float)frequency;
        float *to = y + t * 2 * a.half + first + k;
        double s, c;

        sincos((double)angle, &s, &c);
        to[0] = (float)(c * a.scale);
        to[a.half] = (float)(s * a.scale);
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
        LAUNCH_EARLY(angles_kernel, gpu_blocks(rows.most, 1), (unsigned)PAIRS, stream,
                     y, position, length, a, f, first, count, rows);
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

/* Blocks (y) share the columns of a row. */
template <bool WIDE>
static __global__ void temper_kernel(float *y, const float *x, const int32_t *position,
                                     double step, double amount, struct span rows,
                                     uint32_t cols)
{
    EACH_ROW(t, rows)
    {
        float by = (float)(1 + amount * log1p(floor((position[t] + 1.0) / step)));

        EACH_QUAD(k, cols, y)
        {
            float4 v = load_quad<WIDE>(x + t * (int64_t)cols + k, cols - k);

            store_quad<WIDE>(y + t * (int64_t)cols + k, cols - k,
                             float4{ v.x * by, v.y * by, v.z * by, v.w * by });
        }
    }
}

extern "C" void gpu_temper(float *y, const float *x, const int32_t *position,
                           double step, double amount, struct span rows, uint64_t cols,
                           void *stream)
{
    dim3 grid = quad_grid(rows.most, cols);

    if (!rows.most || !cols)
        return;
    if (is_wide(x, cols) && is_wide(y, cols))
        LAUNCH(temper_kernel<true>, grid, GPU_THREADS, stream, y, x, position, step,
               amount, rows, (uint32_t)cols);
    else
        LAUNCH(temper_kernel<false>, grid, GPU_THREADS, stream, y, x, position, step,
               amount, rows, (uint32_t)cols);
}

/* What rope does with a row, in the types of the kernels. */
struct heads {
    uint32_t cols, head, half; /* half: rotated pairs of a head */
    uint32_t items; /* of a thread each: pairs, and columns that are copied */
    bool interleaved;
    float turn; /* 1, or -1 to rotate back */
};

/* Item I of a row of FROM, whose angles are C and S, to TO. */
static __device__ void turn_item(float *to, const float *from, const float *c,
                                 const float *s, struct heads h, uint32_t i)
{
    uint32_t each = h.head - h.half, k = i % each;
    uint32_t step = h.interleaved ? 2 : 1, apart = h.interleaved ? 1 : h.half;
    uint64_t at = i / each * (uint64_t)h.head;

    if (k < h.half) {
        float a = from[at + k * step], b = from[at + k * step + apart];
        float sine = h.turn * s[k];

        to[at + k * step] = a * c[k] - b * sine;
        to[at + k * step + apart] = b * c[k] + a * sine;
    } else {
        to[at + k + h.half] = from[at + k + h.half];
    }
}

/* Blocks (y) share the items of a row. */
static __global__ void rope_kernel(float *y, const float *x, const float *angles,
                                   struct span rows, struct heads h)
{
    EACH_ROW(t, rows)
    for (uint32_t i = blockIdx.y * blockDim.x + threadIdx.x; i < h.items;
         i += gridDim.y * blockDim.x) {
        const float *c = angles + t * 2 * h.half;

        turn_item(y + t * (uint64_t)h.cols, x + t * (uint64_t)h.cols, c, c + h.half, h,
                  i);
    }
}

/* (a, b) by the cosines C and sines S of four pairs. */
static __device__ void rotate_quad(float4 *a, float4 *b, float4 c, float4 s, float turn)
{
    float4 v = *a, w = *b;

    s = float4{ s.x * turn, s.y * turn, s.z * turn, s.w * turn };
    *a = float4{ v.x * c.x - w.x * s.x, v.y * c.y - w.y * s.y, v.z * c.z - w.z * s.z,
                 v.w * c.w - w.w * s.w };
    *b = float4{ w.x * c.x + v.x * s.x, w.y * c.y + v.y * s.y, w.z * c.z + v.z * s.z,
                 w.w * c.w + v.w * s.w };
}

/* The same by four pairs or four columns a thread; heads and halves are multiples of
 * four columns, and all addresses of 16 bytes. */
static __global__ void rope_quad_kernel(float *y, const float *x, const float *angles,
                                        struct span rows, struct heads h)
{
    uint32_t pairs = h.half / 4, each = h.head / 4 - pairs, n = h.items / 4;

    others_ended();
    EACH_ROW(t, rows)
    for (uint32_t i = blockIdx.y * blockDim.x + threadIdx.x; i < n;
         i += gridDim.y * blockDim.x) {
        uint32_t k = i % each, head = i / each * h.head;
        const float4 *from = (const float4 *)(x + t * (uint64_t)h.cols + head);
        const float4 *c = (const float4 *)(angles + t * 2 * h.half);
        float4 *to = (float4 *)(y + t * (uint64_t)h.cols + head);

        if (k >= pairs) {
            to[k + pairs] = from[k + pairs];
        } else if (h.interleaved) {
            float4 v = from[2 * k], w = from[2 * k + 1];
            float4 a = { v.x, v.z, w.x, w.z }, b = { v.y, v.w, w.y, w.w };

            rotate_quad(&a, &b, c[k], c[k + pairs], h.turn);
            to[2 * k] = float4{ a.x, b.x, a.y, b.y };
            to[2 * k + 1] = float4{ a.z, b.z, a.w, b.w };
        } else {
            float4 a = from[k], b = from[k + pairs];

            rotate_quad(&a, &b, c[k], c[k + pairs], h.turn);
            to[k] = a;
            to[k + pairs] = b;
        }
    }
}

static void launch_rope(float *y, const float *x, const float *angles, struct span rows,
                        struct heads h, void *stream)
{
    if (is_wide(x, h.head) && is_wide(y, h.head) && is_wide(angles, h.half))
        LAUNCH_EARLY(
            rope_quad_kernel,
            dim3(gpu_blocks(rows.most, 1), gpu_blocks(h.items, 4 * GPU_THREADS)),
            GPU_THREADS, stream, y, x, angles, rows, h);
    else
        LAUNCH(rope_kernel,
               dim3(gpu_blocks(rows.most, 1), gpu_blocks(h.items, GPU_THREADS)),
               GPU_THREADS, stream, y, x, angles, rows, h);
}

static struct heads heads_of(uint64_t cols, uint64_t head, uint64_t dim,
                             bool interleaved)
{
    struct heads h = {};

    h.cols = (uint32_t)cols;
    h.head = (uint32_t)head;
    h.half = (uint32_t)(dim / 2);
    h.interleaved = interleaved;
    h.turn = 1;
    h.items = (uint32_t)(cols / head * (head - h.half));
    return h;
}

extern "C" void gpu_rope(float *y, const float *x, const float *angles,
                         struct span rows, uint64_t cols, uint64_t head, uint64_t dim,
                         bool interleaved, void *stream)
{
    if (rows.most && cols)
        launch_rope(y, x, angles, rows, heads_of(cols, head, dim, interleaved), stream);
}

extern "C" void gpu_rope_back(float *y, const float *x, const float *angles,
                              struct span rows, uint64_t cols, uint64_t head,
                              uint64_t dim, bool interleaved, void *stream)
{
    struct heads h;

    if (!rows.most || !cols)
        return;
    h = heads_of(cols, head, dim, interleaved);
    h.turn = -1;
    launch_rope(y, x, angles, rows, h, stream);
}

/* ---- rotation and append ---- */

/* One of the values of OP_ROPE_KEEP, in the types of the kernel. */
struct turned {
    const float *x;
    float *y; /* rows of it, or the cache */
    struct heads h;
};

/* Blocks (z) handle a value each; those of an append (x) each some rows of a range. */
static __global__ void rope_keep_kernel(struct turned q, struct turned k,
                                        struct turned v, const float *angles,
                                        struct span rows, struct ranges r,
                                        struct ranges of_v)
{
    struct turned a = blockIdx.z == 0 ? q : blockIdx.z == 1 ? k : v;
    struct ranges ranges = blockIdx.z == 1 ? r : of_v;
    uint32_t first = blockIdx.y * blockDim.x + threadIdx.x;
    uint32_t step = gridDim.y * blockDim.x;
    unsigned n = (unsigned)ranges.n;

    others_ended();
    if (!a.x) /* there is none, or nothing to append */
        return;
    if (blockIdx.z == 0) {
        EACH_ROW(t, rows)
        {
            const float *c = angles + t * 2 * a.h.half;

            for (uint32_t i = first; i < a.h.items; i += step)
                turn_item(a.y + t * (uint64_t)a.h.cols, a.x + t * (uint64_t)a.h.cols, c,
                          c + a.h.half, a.h, i);
        }
        return;
    }
    if (blockIdx.x / n >= gridDim.x / n) /* they would repeat others' rows */
        return;
    struct range one = ranges.v[blockIdx.x % n];

    for (int64_t row = blockIdx.x / n; row < one.rows; row += gridDim.x / n) {
        int64_t t = one.row + row;
        const float *c = angles + t * 2 * k.h.half;
        float *to = a.y + block_row(ranges, one, one.write_row + row) * a.h.cols;

        for (uint32_t i = first; i < a.h.items; i += step)
            turn_item(to, a.x + t * (uint64_t)a.h.cols, c, c + a.h.half, a.h, i);
    }
}

static struct turned turned_of(const struct rotated *r)
{
    struct turned t = { r->x, r->y, {} };

    if (!r->x)
        return t;
    t.h.cols = (uint32_t)r->cols;
    t.h.head = (uint32_t)r->head;
    t.h.half = (uint32_t)(r->dim / 2);
    t.h.interleaved = r->interleaved;
    t.h.turn = 1;
    t.h.items = (uint32_t)(r->cols / r->head * (r->head - t.h.half));
    return t;
}

extern "C" void gpu_rope_keep(struct rotated q, struct rotated k, struct rotated v,
                              const float *angles, struct span rows, struct ranges of_k,
                              struct ranges of_v, void *stream)
{
    struct turned a = turned_of(&q), b = turned_of(&k), c = turned_of(&v);
    unsigned blocks = gpu_blocks(rows.most, 1), items = b.h.items;

    if (!rows.most)
        return;
    items = a.h.items > items ? a.h.items : items;
    items = c.h.items > items ? c.h.items : items;
    blocks = blocks < of_k.n ? (unsigned)of_k.n : blocks;
    blocks = blocks < of_v.n ? (unsigned)of_v.n : blocks;
    if (!of_k.n)
        b.x = NULL;
    if (!of_v.n)
        c.x = NULL;
    LAUNCH_EARLY(rope_keep_kernel, dim3(blocks, gpu_blocks(items, GPU_THREADS), 3),
                 GPU_THREADS, stream, a, b, c, angles, rows, of_k, of_v);
}
