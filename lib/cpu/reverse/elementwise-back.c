/* elementwise-back - gradients element by element, and of softmax and rope */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/reverse/gradient.h"
#include "lib/cpu/simd/vec.h"

enum { STEP = 1 << 14 }; /* elements of a task */

struct elements {
    float *y;
    const float *d, *x;
    size_t n;
    float number, least;
    enum activation act;
};

/* Of y = x s(u), u = x (slope + cube x^2), s the sigmoid:
 * s + x s (1 - s) (slope + 3 cube x^2). */
CPU_CLONES static void gate_back(float *y, const float *d, const float *x, size_t n,
                                 float slope, float cube)
{
    for (size_t i = 0; i < n; i += VEC) {
        size_t bytes = (n - i < VEC ? n - i : VEC) * sizeof(*x);
        vec v = { 0 }, g = { 0 }, e, s;

        memcpy(&v, x + i, bytes);
        memcpy(&g, d + i, bytes);
        e = -v * (slope + cube * v * v);
        vec_exp(&e, &e);
        s = 1.0f / (1.0f + e);
        g *= s + v * s * (e * s) * (slope + 3.0f * cube * v * v);
        memcpy(y + i, &g, bytes);
    }
}

static void silu_back(float *y, const float *d, const float *x, size_t n)
{
    gate_back(y, d, x, n, 1, 0);
}

static void gelu_tanh_back(float *y, const float *d, const float *x, size_t n)
{
    gate_back(y, d, x, n, GELU_TANH_SLOPE, GELU_TANH_CUBE);
}

static void quick_gelu_back(float *y, const float *d, const float *x, size_t n)
{
    gate_back(y, d, x, n, QUICK_GELU_SLOPE, 0);
}

static void activation_back(float *y, const float *d, const float *x,
                            enum activation act, size_t n)
{
#define ROW(id, formula, saved, loop, back, ...) [ACT_##id] = back,
    static void (*const loops[])(float *, const float *, const float *,
                                 size_t) = { ACTIVATIONS(ROW) };
#undef ROW

    if (loops[act]) {
        loops[act](y, d, x, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        y[i] = d[i] * activation_derivative(act, x[i]);
}

static void some_xielu(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t end, at = gradient_span(task, STEP, e->n, &end);

    (void)thread;
    for (size_t i = at; i < end; i++) {
        float x = e->x[i];

        e->y[i] = e->d[i] * (XIELU_LEAST +
                             (x > 0 ? 2 * e->number * x
                                    : e->least * (x < XIELU_NEAR ? expm1f(x) : -1.0f)));
    }
}

int kernel_xielu_back(struct device *d, const struct call *c, struct err *err)
{
    struct xielu slopes = cpu_xielu_slopes(c->w, c->w2);
    struct elements e = { .y = c->y.data,
                          .d = c->x[0].data,
                          .x = c->x[1].data,
                          .n = gradient_rows(&c->y) * c->y.cols,
                          .number = slopes.above,
                          .least = slopes.below };

    (void)err;
    cpu_parallel(d, gradient_blocks(e.n, STEP), some_xielu, &e);
    return 0;
}

/* The softplus of the weight has the sigmoid for its derivative. */
int kernel_xielu_weight(struct device *d, const struct call *c, struct err *err)
{
    const float *g = c->x[0].data, *x = c->x[1].data;
    size_t n = gradient_rows(&c->x[0]) * c->x[0].cols;
    bool above = c->inst->scalar != 0;
    double sum = 0;
    float wide, *y = c->y.data;

    (void)d;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i];

        if ((v > 0) == above)
            sum +=
                (double)g[i] * (above ? v * v : expm1(fmin(v, (double)XIELU_NEAR)) - v);
    }
    *y += (float)(sum / (1 + exp(-(double)*cpu_widen(c->w, 0, 1, &wide))));
    return 0;
}

static void some_activations(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t end, at = gradient_span(task, STEP, e->n, &end);

    (void)thread;
    activation_back(e->y + at, e->d + at, e->x + at, e->act, end - at);
}

static void some_caps(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t end, at = gradient_span(task, STEP, e->n, &end);

    (void)thread;
    for (size_t i = at; i < end; i++) {
        float t = tanhf(e->x[i] / e->number);

        e->y[i] = e->d[i] * (1 - t * t);
    }
}

/* The gradient passes at the bounds themselves, as in PyTorch. */
static void some_clips(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t end, at = gradient_span(task, STEP, e->n, &end);

    (void)thread;
    for (size_t i = at; i < end; i++)
        e->y[i] = e->x[i] > e->number || e->x[i] < e->least ? 0 : e->d[i];
}

static int run_elements(struct device *d, const struct call *c, cpu_task *run,
                        struct elements e)
{
    e.y = c->y.data;
    e.d = c->x[0].data;
    e.x = c->x[1].data;
    e.n = gradient_rows(&c->y) * c->y.cols;
    cpu_parallel(d, gradient_blocks(e.n, STEP), run, &e);
    return 0;
}

int kernel_activation_back(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    return run_elements(d, c, some_activations,
                        (struct elements){ .act = c->inst->act });
}

int kernel_softcap_back(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    return run_elements(d, c, some_caps,
                        (struct elements){ .number = (float)c->inst->scalar });
}

int kernel_clip_back(struct device *d, const struct call *c, struct err *err)
{
    (void)err;
    return run_elements(d, c, some_clips,
                        (struct elements){ .number = (float)c->inst->clip.most,
                                           .least = (float)c->inst->clip.least });
}

int kernel_softmax_back(struct device *d, const struct call *c, struct err *err)
{
    const float *g = c->x[0].data, *x = c->x[1].data;
    size_t cols = c->y.cols;
    float *y = c->y.data;

    (void)err;
    cpu_softmax(d, y, x, gradient_rows(&c->y), cols);
    for (size_t t = 0; t < gradient_rows(&c->y); t++, y += cols, g += cols) {
        double sum = 0;

        for (size_t k = 0; k < cols; k++)
            sum += (double)g[k] * (double)y[k];
        for (size_t k = 0; k < cols; k++)
            y[k] = (float)((double)y[k] * ((double)g[k] - sum));
    }
    return 0;
}

int kernel_rope_back(struct device *d, const struct call *c, struct err *err)
{
    const struct rope *r = &c->program->rope[c->inst->rope.table];
    size_t n = gradient_rows(&c->y) * r->dim;
    const float *angles = c->x[1].data;
    float *back = cpu_take(d, (n + 1) * sizeof(*back), "angles", err);

    if (!back)
        return -1;
    for (size_t i = 0; i < n; i++)
        back[i] = i % r->dim < r->dim / 2 ? angles[i] : -angles[i];
    cpu_rope(d, c->y.data, c->x[0].data, gradient_rows(&c->y), c->y.cols,
             c->inst->rope.head, r, back);
    cpu_give(d, back);
    return 0;
}
