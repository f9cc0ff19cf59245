/* rope - rotary position embedding (Su et al. 2021, arXiv:2104.09864, eq. 34)
 *
 * (a, b) -> (a cos - b sin, b cos + a sin) for each pair of the first dim columns of a
 * head. */
#include <string.h>

#include "lib/cpu/cpu.h"

void cpu_rope(struct device *d, float *y, const float *x, size_t rows, size_t cols,
              size_t head, const struct rope *r, const float *angles)
{
    size_t half = r->dim / 2;
    size_t step = r->interleaved ? 2 : 1, apart = r->interleaved ? 1 : half;

    (void)d;
    for (size_t i = 0; i < rows; i++)
        for (size_t h = 0; h < cols; h += head) {
            const float *from = x + i * cols + h, *c = angles + i * r->dim,
                        *s = c + half;
            float *to = y + i * cols + h;

            for (size_t k = 0; k < half; k++) {
                float a = from[k * step], b = from[k * step + apart];

                to[k * step] = a * c[k] - b * s[k];
                to[k * step + apart] = b * c[k] + a * s[k];
            }
            memcpy(to + r->dim, from + r->dim, (head - r->dim) * sizeof(*to));
        }
}
