/* dots - products of f32 matrices, by one thread */
#include "lib/cpu/product/linear.h"

void cpu_dots(float *y, size_t y_stride, const float *x, size_t x_stride, size_t m,
              const float *w, size_t w_stride, size_t n, size_t terms)
{
    struct weight_rows rows = { .data = (const char *)w, .stride = w_stride };

#if CPU_HAS_WIDE
    if (terms % VEC == 0 && cpu_has() != CPU_ANY) {
        (cpu_is_wide() ? tile_dots : tile_dots_avx2)(y, y_stride, x, x_stride, m, w,
                                                     w_stride, n, terms);
        return;
    }
#endif
    linear_tiles(FORMAT_F32)->dot(y, y_stride, x, x_stride, &rows, m, n, terms, false);
}

void cpu_add_weighted(float *y, size_t y_stride, const float *x, size_t x_stride,
                      size_t m, const float *w, size_t w_stride, size_t n, size_t terms)
{
    linear_tiles(FORMAT_F32)
        ->outer(y, y_stride, x, x_stride, (const char *)w, w_stride, m, n, terms);
}
