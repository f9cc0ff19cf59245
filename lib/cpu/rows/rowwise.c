/* rowwise - whole rows: each times a number, its softmax, and heads side by side */
#include <math.h>
#include <string.h>

#include "lib/cpu/cpu.h"

/* An operation on rows. */
struct row_job {
    float *y;
    const float *x, *s;
    size_t stride, cols;
    const struct inst *inst;
};

static void mul_row(void *arg, size_t task, int thread)
{
    const struct row_job *r = arg;

    (void)thread;
    for (size_t k = 0; k < r->cols; k++)
        r->y[task * r->cols + k] = r->x[task * r->cols + k] * r->s[task * r->stride];
}

void cpu_mul_rows(struct device *d, float *y, const float *x, const float *s,
                  size_t stride, size_t rows, size_t cols)
{
    struct row_job r = { .y = y, .x = x, .s = s, .stride = stride, .cols = cols };

    cpu_parallel(d, rows, mul_row, &r);
}

static void softmax_row(void *arg, size_t task, int thread)
{
    const struct row_job *r = arg;
    const float *x = r->x + task * r->cols;
    float *y = r->y + task * r->cols, most = -INFINITY;
    double sum = 0;

    (void)thread;
    for (size_t k = 0; k < r->cols; k++)
        most = x[k] > most ? x[k] : most;
    for (size_t k = 0; k < r->cols; k++)
        sum += (double)(y[k] = expf(x[k] - most));
    for (size_t k = 0; k < r->cols; k++)
        y[k] = (float)((double)y[k] / sum);
}

void cpu_softmax(struct device *d, float *y, const float *x, size_t rows, size_t cols)
{
    struct row_job r = { .y = y, .x = x, .cols = cols };

    cpu_parallel(d, rows, softmax_row, &r);
}

static void concat_row(void *arg, size_t task, int thread)
{
    const struct row_job *r = arg;
    size_t a = r->inst->head.a, b = r->inst->head.b, heads = r->inst->head.count;
    bool shared = r->inst->head.shared;

    (void)thread;
    for (size_t h = 0; h < heads; h++) {
        float *y = r->y + (task * heads + h) * (a + b);

        memcpy(y, r->x + (task * heads + h) * a, a * sizeof(*y));
        memcpy(y + a, r->s + (shared ? task : task * heads + h) * b, b * sizeof(*y));
    }
}

void cpu_concat(struct device *d, float *y, const float *a, const float *b, size_t rows,
                const struct inst *inst)
{
    struct row_job r = { .y = y, .x = a, .s = b, .inst = inst };

    cpu_parallel(d, rows, concat_row, &r);
}
