/* tile-f32 - tile loops for f32 weights */
#include "lib/cpu/product/tile-loops.h"

TILE_KERNELS(tile_f32, FORMAT_F32)

#if CPU_HAS_WIDE
/* Maximum number of sums in registers beside the operands. */
enum { SUMS = 24 };

/* y[ROWS][OUTS] = x w^T over N terms, a multiple of VEC.  ROWS and OUTS are constants
 * after inlining, and their product is a multiple of 8, at most SUMS.  Adds the lanes
 * of eight sums at a time. */
static inline CPU_WIDE __attribute__((always_inline)) void
few_dots(float *y, size_t y_stride, const float *x, size_t x_stride, const float *w,
         size_t w_stride, size_t n, int rows, int outs)
{
    vec acc[SUMS];
    float sum[SUMS];

    EACH(int i = 0; i < rows; i++)
    EACH(int j = 0; j < outs; j++) acc[i * outs + j] = (vec){ 0 };
    for (size_t k = 0; k < n; k += VEC) {
        vec wv[8], xv;

        EACH(int j = 0; j < outs; j++)
        {
            vec_load_f32(&wv[j], w + (size_t)j * w_stride + k);
            vec_hold(&wv[j]);
        }
        EACH(int i = 0; i < rows; i++)
        {
            vec_load_f32(&xv, x + (size_t)i * x_stride + k);
            vec_hold(&xv);
            EACH(int j = 0; j < outs; j++)
            vec_fuse(&acc[i * outs + j], &wv[j], &xv);
        }
    }
    EACH(int i = 0; i < rows * outs; i += 8) vec_sum_eight(sum + i, acc + i, 1);
    EACH(int i = 0; i < rows; i++)
    memcpy(y + (size_t)i * y_stride, sum + i * outs, (size_t)outs * sizeof(*y));
}

/* ROWS rows by N outputs in whole tiles; returns how many outputs were computed. */
static inline CPU_WIDE __attribute__((always_inline)) size_t
dots_of(float *y, size_t y_stride, const float *x, size_t x_stride, const float *w,
        size_t w_stride, size_t n, size_t terms, int rows, int outs)
{
    size_t j = 0, step = (size_t)outs;

    for (; j + step <= n; j += step)
        few_dots(y + j, y_stride, x, x_stride, w + j * w_stride, w_stride, terms, rows,
                 outs);
    return j;
}

CPU_WIDE void tile_dots(float *y, size_t y_stride, const float *x, size_t x_stride,
                        size_t m, const float *w, size_t w_stride, size_t n,
                        size_t terms)
{
    while (m) {
        size_t rows = m >= 8 ? 8 : m >= 4 ? 4 : m, done;

        done =
            rows == 8   ? dots_of(y, y_stride, x, x_stride, w, w_stride, n, terms, 8, 3)
            : rows == 4 ? dots_of(y, y_stride, x, x_stride, w, w_stride, n, terms, 4, 6)
            : rows == 3 ? dots_of(y, y_stride, x, x_stride, w, w_stride, n, terms, 3, 8)
            : rows == 2
                ? dots_of(y, y_stride, x, x_stride, w, w_stride, n, terms, 2, 8)
                : dots_of(y, y_stride, x, x_stride, w, w_stride, n, terms, 1, 8);
        if (done < n) {
            struct weight_rows rest = { .data = (const char *)(w + done * w_stride),
                                        .stride = w_stride };

            dot(y + done, y_stride, x, x_stride, &rest, rows, n - done, terms, false);
        }
        m -= rows;
        y += rows * y_stride;
        x += rows * x_stride;
    }
}
#endif
