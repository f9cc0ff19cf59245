/* experts-back - gradients of the weights of chosen experts, and of their rows */
#include <math.h>
#include <string.h>

#include "lib/cpu/reverse/gradient.h"

/* Each choice's weight is a softmax over scores near it. */
static void near_back(float *y, const float *g, const float *x, const int32_t *choice,
                      size_t cols, const struct inst *inst)
{
    for (uint64_t i = 0; i < inst->route.top && choice[i] >= 0; i++) {
        double sum = cpu_route_softmax(inst, x, cols, choice, i);
        double d = (double)g[choice[i]] * inst->route.scale / sum;

        for (size_t k = 0; k < cols; k++)
            if (cpu_route_near(inst, x, choice, i, k))
                y[k] -= (float)(d * exp((double)(x[k] - x[choice[i]])) / sum);
        y[choice[i]] += (float)d;
    }
}

/* The choice is no function of the scores; a chosen one's weight is its score, or its
 * share of those chosen. */
int kernel_route_back(struct device *d, const struct call *c, struct err *err)
{
    const float *g = c->x[0].data, *x = c->x[1].data;
    const int32_t *choice = c->x[2].data;
    size_t cols = c->y.cols, top = c->x[2].cols;
    float *y = c->y.data;

    (void)d;
    (void)err;
    memset(y, 0, gradient_rows(&c->y) * cols * sizeof(*y));
    for (size_t t = 0; t < gradient_rows(&c->y); t++, choice += top) {
        double sum = 1e-20, by = 0, factor = c->inst->route.scale;
        size_t at = t * cols;

        if (c->inst->route.near > 0) {
            near_back(y + at, g + at, x + at, choice, cols, c->inst);
            continue;
        }
        for (size_t i = 0; i < top && choice[i] >= 0; i++) {
            size_t k = at + (size_t)choice[i];

            sum += (double)x[k];
            by += (double)g[k] * (double)x[k];
        }
        if (c->inst->route.renorm)
            factor /= sum;
        for (size_t i = 0; i < top && choice[i] >= 0; i++) {
            size_t k = at + (size_t)choice[i];

            y[k] = (float)(factor *
                           ((double)g[k] - (c->inst->route.renorm ? by / sum : 0)));
        }
    }
    return 0;
}

/* The rows of expert E: FIRST (returned) to *end, counted over all rows sent. */
static size_t expert_span(const struct call *c, size_t e, size_t *end)
{
    const int32_t *counts = c->x[3].data;

    *end = (size_t)counts[e + 1];
    return (size_t)counts[e];
}

int kernel_expert_spread(struct device *d, const struct call *c, struct err *err)
{
    const struct mixture *m = &c->program->mixture[c->inst->mixture];
    const float *g = c->x[0].data, *r = c->x[1].data;
    const int32_t *index = c->x[2].data;
    size_t cols = c->y.cols, end;
    float *y = c->y.data;

    (void)d;
    (void)err;
    for (uint64_t e = 0; e < m->all; e++)
        for (size_t i = expert_span(c, e, &end); i < end; i++) {
            size_t t = (size_t)index[i];
            float by = r[t * c->x[1].cols + e];

            for (size_t k = 0; k < cols; k++)
                y[i * cols + k] = by * g[t * cols + k];
        }
    return 0;
}

int kernel_expert_dot(struct device *d, const struct call *c, struct err *err)
{
    const struct mixture *m = &c->program->mixture[c->inst->mixture];
    const float *g = c->x[0].data, *a = c->x[1].data;
    const int32_t *index = c->x[2].data;
    size_t cols = c->x[0].cols, end;
    float *y = c->y.data;

    (void)d;
    (void)err;
    memset(y, 0, gradient_rows(&c->y) * c->y.cols * sizeof(*y));
    for (uint64_t e = 0; e < m->all; e++)
        for (size_t i = expert_span(c, e, &end); i < end; i++) {
            size_t t = (size_t)index[i];
            double sum = 0;

            for (size_t k = 0; k < cols; k++)
                sum += (double)g[t * cols + k] * (double)a[i * cols + k];
            y[t * c->y.cols + e] = (float)sum;
        }
    return 0;
}

static void scatter_columns(void *arg, size_t task, int thread)
{
    const struct gradient_columns *s = arg;
    const int32_t *index = s->c->x[1].data;
    size_t end, first = gradient_span(task, GRADIENT_COLS, s->cols, &end);

    (void)thread;
    for (size_t i = 0; i < s->rows; i++)
        for (size_t k = first; k < end; k++)
            s->y[(size_t)index[i] * s->cols + k] += s->d[i * s->cols + k];
}

int kernel_expert_scatter(struct device *d, const struct call *c, struct err *err)
{
    struct gradient_columns s = { .c = c,
                                  .y = c->y.data,
                                  .d = c->x[0].data,
                                  .rows = gradient_rows(&c->x[0]),
                                  .cols = c->y.cols };

    (void)err;
    memset(s.y, 0, gradient_rows(&c->y) * s.cols * sizeof(*s.y));
    cpu_parallel(d, gradient_blocks(s.cols, GRADIENT_COLS), scatter_columns, &s);
    return 0;
}
