/* state-conv - causal convolutions over a sequence's last rows
 *
 * y[t][c] = sum over k of w[c][k] x[t + k - taps + 1][c].  A sequence's state is the
 * taps - 1 rows before those of the step, [taps - 1][cols], the oldest first. */
#include "lib/gpu/device.cuh"
#include "lib/gpu/gpu.h"

/* Column K of row AT of the sequence U, counted from its first row in the step. */
static __device__ float value_at(const float *x, const struct states_view *s,
                                 const struct state_use *u, int64_t at, uint64_t cols,
                                 int64_t tail, uint64_t k)
{
    if (at >= 0)
        return x[((int64_t)u->row + at) * cols + k];
    if (u->fresh)
        return 0;
    return s->memory[(u->record * tail + tail + at) * cols + k];
}

static __global__ void convolve_kernel(float *y, const float *x, struct matrix w,
                                       struct states_view s, struct span rows,
                                       uint64_t cols, int64_t taps)
{
    EACH_ROW(t, rows)
    {
        const struct state_use *u = s.use;

        while (u->row + u->rows <= t)
            u++;
        for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x) {
            float sum = 0;

            for (int64_t i = 0; i < taps; i++)
                sum += widen(w.format, w.data, k * taps + i) *
                       value_at(x, &s, u, t - u->row + i - taps + 1, cols, taps - 1, k);
            y[t * cols + k] = sum;
        }
    }
}

/* Column K of the state after row AT. */
static __device__ void write_state(const float *x, const struct states_view *s,
                                   const struct state_use *u, int64_t at,
                                   int32_t record, uint64_t cols, int64_t tail,
                                   uint64_t k)
{
    float *to = s->memory + record * tail * cols + k;

    for (int64_t i = 0; i < tail; i++)
        to[i * cols] = value_at(x, s, u, at + 1 + i - tail, cols, tail, k);
}

/* A block for each sequence.  A thread reads and writes its columns alone, and each row
 * of the state comes from a later one. */
static __global__ void state_kernel(const float *x, struct states_view s, uint64_t cols,
                                    int64_t tail)
{
    const struct state_use *u = &s.use[blockIdx.x];

    if (!u->rows)
        return;
    for (uint64_t k = threadIdx.x; k < cols; k += blockDim.x) {
        for (int32_t i = u->save; i < u->save + u->saves; i++)
            write_state(x, &s, u, s.save[i].row - u->row, s.save[i].record, cols, tail,
                        k);
        write_state(x, &s, u, u->rows - 1, u->record, cols, tail, k);
    }
}

extern "C" void gpu_causal_convolve(float *y, const float *x, struct matrix w,
                                    struct states_view state, struct span rows,
                                    uint64_t cols, uint64_t taps, void *stream)
{
    if (!rows.most || !cols)
        return;
    LAUNCH(convolve_kernel, gpu_blocks(rows.most, 1), GPU_THREADS, stream, y, x, w,
           state, rows, cols, (int64_t)taps);
    LAUNCH(state_kernel, state.n, GPU_THREADS, stream, x, state, cols,
           (int64_t)taps - 1);
}
