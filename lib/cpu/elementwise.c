/* elementwise - sums, products and activations, element by element */
#include <math.h>
#include <string.h>

#include "lib/cpu/cpu.h"
#include "lib/cpu/vec.h"

enum { STEP = 1 << 14 }; /* elements that a thread takes at a time */

static size_t share(size_t n, long at)
{
    return n - (size_t)at < STEP ? n - (size_t)at : STEP;
}

CPU_CLONES static void add(float *y, const float *x, const float *z, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] + z[i];
}

CPU_CLONES static void mul(float *y, const float *x, const float *z, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * z[i];
}

CPU_CLONES static void scale(float *y, const float *x, float f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * f;
}

void cpu_add(float *y, const float *x, const float *z, size_t n)
{
#pragma omp parallel for schedule(static) if (n > STEP)
    for (long at = 0; at < (long)n; at += STEP)
        add(y + at, x + at, z + at, share(n, at));
}

void cpu_mul(float *y, const float *x, const float *z, size_t n)
{
#pragma omp parallel for schedule(static) if (n > STEP)
    for (long at = 0; at < (long)n; at += STEP)
        mul(y + at, x + at, z + at, share(n, at));
}

void cpu_scale(float *y, const float *x, double number, size_t n)
{
#pragma omp parallel for schedule(static) if (n > STEP)
    for (long at = 0; at < (long)n; at += STEP)
        scale(y + at, x + at, (float)number, share(n, at));
}

void cpu_softcap(float *y, const float *x, double number, size_t n)
{
    float c = (float)number;

#pragma omp parallel for schedule(static) if (n > STEP)
    for (long i = 0; i < (long)n; i++)
        y[i] = c * tanhf(x[i] / c);
}

/* y = x sigmoid(x (slope + cube x^2)), sixteen at a time: SILU (Elfwing et al. 2018)
 * and what stands for GELU in its likeness, 1 + tanh(u) being 2 sigmoid(2u). */
CPU_CLONES static void gate(float *y, const float *x, size_t n, float slope, float cube)
{
    for (size_t i = 0; i < n; i += VEC) {
        size_t bytes = (n - i < VEC ? n - i : VEC) * sizeof(*x);
        vec v = { 0 }, e;

        memcpy(&v, x + i, bytes);
        e = -v * (slope + cube * v * v);
        vec_exp(&e, &e);
        v = v / (1.0f + e);
        memcpy(y + i, &v, bytes);
    }
}

static float apply(enum activation act, float x)
{
    switch (act) {
    case ACT_GELU: /* Hendrycks and Gimpel 2016: x times the normal distribution of x */
        return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
    case ACT_RELU:
        return x > 0 ? x : 0;
    case ACT_TANH:
        return tanhf(x);
    case ACT_SIGMOID:
        return 1 / (1 + expf(-x));
    case ACT_SILU:
    case ACT_GELU_TANH:
    case ACT_QUICK_GELU:
        break;
    }
    return x;
}

static void activate(float *y, const float *x, enum activation act, size_t n)
{
    static const float twice = 2 * 0.79788456080286536f; /* 2 sqrt(2 / pi) */

    switch (act) {
    case ACT_SILU:
        gate(y, x, n, 1, 0);
        return;
    case ACT_GELU_TANH:
        gate(y, x, n, twice, twice * 0.044715f);
        return;
    case ACT_QUICK_GELU:
        gate(y, x, n, 1.702f, 0);
        return;
    default:
        for (size_t i = 0; i < n; i++)
            y[i] = apply(act, x[i]);
    }
}

void cpu_activation(float *y, const float *x, enum activation act, size_t n)
{
#pragma omp parallel for schedule(static) if (n > STEP)
    for (long at = 0; at < (long)n; at += STEP)
        activate(y + at, x + at, act, share(n, at));
}

void cpu_add_vector(float *y, const float *x, const struct matrix *w, size_t rows)
{
    enum { COLS = 512 };
    size_t n = rows * w->cols;

#pragma omp parallel for schedule(static) if (n > STEP)
    for (long at = 0; at < (long)w->cols; at += COLS) {
        size_t cols = w->cols - (size_t)at < COLS ? w->cols - (size_t)at : COLS;
        float wide[COLS];
        const float *b = cpu_widen(w, (uint64_t)at, cols, wide);

        for (size_t i = 0; i < rows; i++)
            add(y + i * w->cols + at, x + i * w->cols + at, b, cols);
    }
}
