/* embedding - rows of a table */
#include <string.h>

#include "lib/cpu/cpu.h"

struct cpu_index cpu_index_of(const struct call *c)
{
    const struct inst *inst = c->inst;

    return (struct cpu_index){
        .x = c->step->input[inst->embedding.input],
        .cols = c->program->input[inst->embedding.input].feed->axis.size,
        .column = inst->embedding.column,
        .minus = inst->embedding.minus
    };
}

void cpu_embedding(struct device *d, float *y, const struct matrix *w,
                   struct cpu_index index, size_t rows, uint64_t offset, uint64_t first)
{
    size_t row_bytes = w->cols * (size_t)format_bits(w->format) / 8;

    (void)d;
    for (size_t i = 0; i < rows; i++) {
        uint64_t row = (uint64_t)cpu_index_at(&index, i) + offset;
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
