/* embedding - rows of a table */
#include <string.h>

#include "lib/cpu/cpu.h"

void cpu_embedding(struct device *d, float *y, const struct matrix *w,
                   const int32_t *index, size_t rows, uint64_t offset, uint64_t first)
{
    size_t row_bytes = w->cols * (size_t)format_bits(w->format) / 8;

    (void)d;
    for (size_t i = 0; i < rows; i++) {
        uint64_t row = (uint64_t)index[i] + offset;
        float *to = y + i * w->cols;

        if (row < first || row - first >= w->rows)
            memset(to, 0, w->cols * sizeof(*y));
        else
            dtype_to_f32(format_dtype(w->format),
                         (const char *)w->data + (row - first) * row_bytes, to,
                         w->cols);
        for (size_t k = 0; k < w->cols; k++)
            to[k] += 0.0f; /* -0 is 0, as in the sum with other ranks' zeros */
    }
}
