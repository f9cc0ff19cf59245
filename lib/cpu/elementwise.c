/* elementwise - sums, products and activations, element by element */
#include <math.h>
#include <string.h>

#include "lib/cpu/cpu.h"
#include "lib/cpu/vec.h"

CPU_CLONES void cpu_add(float *y, const float *x, const float *z, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] + z[i];
}

CPU_CLONES void cpu_mul(float *y, const float *x, const float *z, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * z[i];
}

CPU_CLONES void cpu_scale(float *y, const float *x, double number, size_t n)
{
    float f = (float)number;

    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * f;
}

void cpu_softcap(float *y, const float *x, double number, size_t n)
{
    float c = (float)number;

#pragma omp parallel for schedule(static) if (n > 16384)
    for (long i = 0; i < (long)n; i++)
        y[i] = c * tanhf(x[i] / c);
}

/* SILU (Elfwing et al. 2018) is the activation that is everywhere: sixteen at a time.
 */
CPU_CLONES static void silu(float *y, const float *x, size_t n)
{
    size_t i = 0;

    for (; i + VEC <= n; i += VEC) {
        vec v, e, minus;

        vec_load_f32(&v, x + i);
        minus = -v;
        vec_exp(&e, &minus);
        v = v / (1.0f + e);
        memcpy(y + i, &v, sizeof(v));
    }
    for (; i < n; i++)
        y[i] = x[i] / (1 + expf(-x[i]));
}

static float apply(enum activation act, float x)
{
    switch (act) {
    case ACT_SILU:
        return x / (1 + expf(-x));
    case ACT_GELU: /* Hendrycks and Gimpel 2016: x times the normal distribution of x */
        return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
    case ACT_GELU_TANH:
        return 0.5f * x *
               (1 + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case ACT_RELU:
        return x > 0 ? x : 0;
    case ACT_TANH:
        return tanhf(x);
    case ACT_SIGMOID:
        return 1 / (1 + expf(-x));
    case ACT_QUICK_GELU:
        return x / (1 + expf(-1.702f * x));
    }
    return x;
}

void cpu_activation(float *y, const float *x, enum activation act, size_t n)
{
    enum { STEP = 1 << 14 };

#pragma omp parallel for schedule(static) if (n > STEP)
    for (long at = 0; at < (long)n; at += STEP) {
        size_t end = n - (size_t)at < STEP ? n : (size_t)at + STEP;

        if (act == ACT_SILU)
            silu(y + at, x + at, end - (size_t)at);
        else
            for (size_t i = (size_t)at; i < end; i++)
                y[i] = apply(act, x[i]);
    }
}

void cpu_add_vector(float *y, const float *x, const struct matrix *w, size_t rows)
{
    for (uint64_t k = 0; k < w->cols; k++) {
        float b = (float)dtype_get(w->dtype, w->data, k);

        for (size_t i = 0; i < rows; i++)
            y[i * w->cols + k] = x[i * w->cols + k] + b;
    }
}
