/* codes-back - y = x W by weights as codes: the gradient of what they multiply
 *
 * A task has some columns of W.  It makes numbers of them, a few rows at a time, and
 * adds these rows, times x, to its columns of y, row after row of W: so a result
 * depends neither on the number of threads nor on the other rows. */
#include <string.h>

#include "lib/base/format.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"

enum { COLS = 256, ROWS = 16 }; /* of W at a time */

struct work {
    float *y;
    const float *x;
    size_t rows;
    const struct matrix *w;
};

/* y[n] += sum of x[k] * w[k][n], k below ROWS */
CPU_CLONES static void add(float *y, const float *x, size_t count,
                           const float w[][COLS], size_t n)
{
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < n; i++)
            y[i] += x[k] * w[k][i];
}

static void run(void *arg, size_t task, int thread)
{
    const struct work *p = arg;
    const struct matrix *w = p->w;
    const struct format_codes codes = { .data = (void *)(uintptr_t)w->data,
                                        .scale = (void *)(uintptr_t)w->scale,
                                        .rows = w->rows,
                                        .cols = w->cols,
                                        .per = w->per };
    size_t first = task * COLS, n = w->cols - first < COLS ? w->cols - first : COLS;
    float wide[ROWS][COLS];

    (void)thread;
    for (size_t t = 0; t < p->rows; t++)
        memset(p->y + t * w->cols + first, 0, n * sizeof(float));
    for (size_t o = 0; o < w->rows; o += ROWS) {
        size_t count = w->rows - o < ROWS ? (size_t)(w->rows - o) : ROWS;

        for (size_t k = 0; k < count; k++)
            format_table[w->format].widen(wide[k], &codes, o + k, first, n);
        for (size_t t = 0; t < p->rows; t++)
            add(p->y + t * w->cols + first, p->x + t * w->rows + o, count,
                (const float(*)[COLS])wide, n);
    }
}

void cpu_codes_back(struct device *d, float *y, const float *x, size_t rows,
                    const struct matrix *w)
{
    struct work p = { .y = y, .x = x, .rows = rows, .w = w };

    cpu_parallel(d, (size_t)((w->cols + COLS - 1) / COLS), run, &p);
}
