/* conv-pool - operations that read the rows beside a token's own, in its text
 *
 * Row t reads COUNT rows, itself in the middle; rows beyond its text are zeros.  A
 * block handles a row, a thread some of its columns. */
#include "lib/gpu/device.cuh"

/* Rows of the text of row T: from *low to before *end. */
static __device__ void text_of(const struct texts *text, int64_t t, int64_t *low,
                               int64_t *end)
{
    int32_t i = text_at(text, t);

    *low = text->first[i];
    *end = text_end(text, i);
}

/* y[t] = x[t + by] */
static __global__ void shift_kernel(float *y, const float *x, int64_t by,
                                    struct texts text, struct span rows, uint64_t cols)
{
    EACH_ROW(t, rows)
    {
        int64_t low, end, from = t + by;

        text_of(&text, t, &low, &end);
        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x)
            y[t * cols + k] = from < low || from >= end ? 0 : x[from * cols + k];
    }
}

extern "C" void gpu_shift(float *y, const float *x, int64_t by, struct texts text,
                          struct span rows, uint64_t cols, void *stream)
{
    if (rows.most && cols)
        LAUNCH(shift_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x, by,
               text, rows, cols);
}

/* OP_POOL: row i of a text is of two neighbours, the first of which comes twice if it
 * is apart.  OP_UNPOOL: a token has the row that it went into. */
static __global__ void pool_kernel(float *y, const float *x, struct pooled p, bool most,
                                   bool back, struct texts from, struct texts to,
                                   struct span rows, uint64_t cols)
{
    EACH_ROW(t, rows)
    {
        int32_t text = text_at(&to, t);
        int64_t low = from.first[text], n = text_end(&from, text) - low;
        int64_t made = text_end(&to, text) - to.first[text], i = t - to.first[text];
        int64_t one = i, two = i;

        if (back) {
            one = !p.apart ? i >> p.times : i ? 1 + ((i - 1) >> p.times) : 0;
            two = one;
        } else if (made != n) {
            int64_t all = n + (p.apart && !p.cut);

            one = 2 * i;
            two = one + 1 < all ? one + 1 : one;
            one -= p.apart && one;
            two -= p.apart && two;
        }
        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x) {
            bool inside = one < n;
            float a = inside ? x[(low + one) * cols + k] : 0;
            float b = inside ? x[(low + two) * cols + k] : 0;

            y[t * cols + k] = one == two ? a : !most ? (a + b) / 2 : a > b ? a : b;
        }
    }
}

extern "C" void gpu_pool(float *y, const float *x, struct pooled p, bool most,
                         bool back, struct texts from, struct texts to,
                         struct span rows, uint64_t cols, void *stream)
{
    if (rows.most && cols)
        LAUNCH(pool_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x, p,
               most, back, from, to, rows, cols);
}

/* y[i] = the sum of BLOCK rows of its text, the last of all that are left */
static __global__ void block_sum_kernel(float *y, const float *x, int64_t block,
                                        struct texts from, struct texts to,
                                        struct span rows, uint64_t cols)
{
    EACH_ROW(t, rows)
    {
        int32_t text = text_at(&to, t);
        int64_t low = from.first[text], n = text_end(&from, text) - low;
        int64_t made = text_end(&to, text) - to.first[text], i = t - to.first[text];
        int64_t end = i + 1 < made ? (i + 1) * block : n;

        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x) {
            float sum = 0;

            for (int64_t at = i * block; at < end; at++)
                sum += x[(uint64_t)(low + at) * cols + k];
            y[t * cols + k] = sum;
        }
    }
}

extern "C" void gpu_block_sum(float *y, const float *x, uint64_t block,
                              struct texts from, struct texts to, struct span rows,
                              uint64_t cols, void *stream)
{
    if (rows.most && cols)
        LAUNCH(block_sum_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x,
               (int64_t)block, from, to, rows, cols);
}

/* y[t][c][k] = x[t stride + k - before][c], counted in the text */
static __global__ void unfold_kernel(float *y, const float *x, struct texts from,
                                     struct texts to, struct span rows, uint64_t cols,
                                     uint64_t reach, uint64_t stride, uint64_t before)
{
    EACH_ROW(t, rows)
    {
        int32_t text = text_at(&to, t);
        int64_t low = from.first[text], n = text_end(&from, text) - low;
        int64_t at = (t - to.first[text]) * (int64_t)stride - (int64_t)before;

        for (uint64_t k = threadIdx.x; k < cols * reach; k += blockDim.x) {
            int64_t row = at + (int64_t)(k % reach);

            y[t * (cols * reach) + k] =
                row >= 0 && row < n ? x[(uint64_t)(low + row) * cols + k / reach] : 0;
        }
    }
}

extern "C" void gpu_unfold(float *y, const float *x, struct texts from, struct texts to,
                           struct span rows, uint64_t cols, uint64_t reach,
                           uint64_t stride, uint64_t before, void *stream)
{
    if (rows.most && cols)
        LAUNCH(unfold_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x, from,
               to, rows, cols, reach, stride, before);
}

/* y[t][k] = sum over i of w[k][i] x[t + i - taps/2][k] */
static __global__ void convolve_kernel(float *y, const float *x, struct matrix w,
                                       struct texts text, struct span rows,
                                       uint64_t cols, int64_t taps)
{
    EACH_ROW(t, rows)
    {
        int64_t low, end;

        text_of(&text, t, &low, &end);
        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x) {
            float sum = 0;

            for (int64_t i = 0; i < taps; i++) {
                int64_t from = t + i - taps / 2;

                if (from >= low && from < end)
                    sum += widen(w.format, w.data, k * taps + i) * x[from * cols + k];
            }
            y[t * cols + k] = sum;
        }
    }
}

extern "C" void gpu_convolve(float *y, const float *x, struct matrix w,
                             struct texts text, struct span rows, uint64_t cols,
                             uint64_t taps, void *stream)
{
    if (rows.most && cols)
        LAUNCH(convolve_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x, w,
               text, rows, cols, (int64_t)taps);
}

/* y[t][h][k] = sum over i of softmax(s[t][h])[i] x[t + i - taps/2][h][k] */
static __global__ void dynamic_kernel(float *y, const float *x, const float *scores,
                                      struct texts text, struct span rows,
                                      uint64_t heads, uint64_t dim, int64_t taps)
{
    EACH_ROW(t, rows)
    {
        int64_t low, end;
        uint64_t cols = heads * dim;

        text_of(&text, t, &low, &end);
        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x) {
            const float *s = scores + (t * heads + k / dim) * taps;
            float most = -INFINITY, sum = 0, total = 0;

            for (int64_t i = 0; i < taps; i++)
                most = fmaxf(most, s[i]);
            for (int64_t i = 0; i < taps; i++) {
                int64_t from = t + i - taps / 2;
                float by = expf(s[i] - most);

                total += by;
                if (from >= low && from < end)
                    sum += by * x[from * cols + k];
            }
            y[t * cols + k] = sum / total;
        }
    }
}

extern "C" void gpu_dynamic(float *y, const float *x, const float *scores,
                            struct texts text, struct span rows, uint64_t heads,
                            uint64_t dim, uint64_t taps, void *stream)
{
    if (rows.most && heads && dim)
        LAUNCH(dynamic_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x,
               scores, text, rows, heads, dim, (int64_t)taps);
}
