/* activation - the table of activation functions, and their formulas
 *
 * One row per function.  Whatever differs from one to the next is a column here or one
 * of the functions that it names; the compiler, the kernels of C and CUDA, and the
 * tests read it.  The columns, in order:
 *
 *   ID       enum activation has ACT_ID
 *   formula  FORMULA_value and FORMULA_derivative below; without both it does not
 * compile saved    what the derivative can be computed from: SOURCE, or the RESULT
 * alone loop     the CPU's loop over vectors (lib/cpu/rows/elementwise.c), which must
 * agree with the formula; or NULL: the CPU calls the formula back     the same of the
 * derivative (lib/cpu/reverse/elementwise-back.c), or NULL words    its names in
 * Hugging Face configs (transformers, ACT2FN) and in the language
 *
 * A formula is f32, elementwise; NaN stays NaN, so a lower bound is written
 * "x < 0 ? 0 : x". */
#ifndef LIB_PROGRAM_ACTIVATION_H
#define LIB_PROGRAM_ACTIVATION_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/base/hostdevice.h"

/* clang-format off */
#define ACTIVATIONS(ROW)                                                               \
    ROW(SILU, silu, SOURCE, silu_loop, silu_back, "silu", "swish")                     \
    ROW(GELU, gelu, SOURCE, gelu_loop, NULL, "gelu", "gelu_python")                    \
    ROW(GELU_TANH, gelu_tanh, SOURCE, gelu_tanh_loop, gelu_tanh_back,                  \
        "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate", "gelu_python_tanh")         \
    /* the same numbers, which PyTorch computes in eight operations */                 \
    ROW(GELU_NEW, gelu_tanh, SOURCE, gelu_tanh_loop, gelu_tanh_back, "gelu_new")       \
    ROW(RELU, relu, RESULT, relu_loop, NULL, "relu")                                   \
    ROW(TANH, tanh, RESULT, tanh_loop, NULL, "tanh")                                   \
    ROW(SIGMOID, sigmoid, RESULT, NULL, NULL, "sigmoid")                               \
    ROW(QUICK_GELU, quick_gelu, SOURCE, quick_gelu_loop, quick_gelu_back,              \
        "quick_gelu")                                                                  \
    ROW(LINEAR, identity, SOURCE, NULL, NULL, "linear")                                \
    ROW(RELU2, relu2, SOURCE, relu2_loop, NULL, "relu2")                               \
    ROW(RELU6, relu6, SOURCE, NULL, NULL, "relu6")                                     \
    ROW(LEAKY_RELU, leaky_relu, SOURCE, NULL, NULL, "leaky_relu")                      \
    ROW(GELU_10, gelu_10, SOURCE, gelu_10_loop, NULL, "gelu_10")                       \
    ROW(MISH, mish, SOURCE, NULL, NULL, "mish")                                        \
    ROW(LAPLACE, laplace, SOURCE, NULL, NULL, "laplace")                               \
    ROW(HARDSWISH, hardswish, SOURCE, NULL, NULL, "hardswish")                         \
    ROW(SQRT_SOFTPLUS, sqrt_softplus, SOURCE, NULL, NULL, "sqrtsoftplus")              \
    ROW(SOFTPLUS, softplus, SOURCE, NULL, NULL, "softplus")
/* clang-format on */

#define ROW(id, formula, saved, loop, back, ...) ACT_##id,
enum activation { ACTIVATIONS(ROW) ACTIVATION_COUNT };
#undef ROW

enum { ACTIVATION_WORDS = 4 }; /* names of one function at most */
/* [activation], ended by NULL */
extern const char *const activation_words[ACTIVATION_COUNT][ACTIVATION_WORDS + 1];

/* The function that the LEN bytes at NAME name, or -1. */
int activation_find(const char *name, size_t len);
/* True if the derivative can be computed from the result alone. */
bool activation_saves_result(enum activation act);

/* ---- formulas ---- */

HOST_DEVICE float activation_sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* log(1 + exp(x)), which is x for large x; its derivative is the sigmoid. */
HOST_DEVICE float activation_softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

HOST_DEVICE float softplus_value(float x)
{
    return activation_softplus(x);
}

HOST_DEVICE float softplus_derivative(float x)
{
    return x > 20 ? 1 : activation_sigmoid(x);
}

/* Elfwing et al. 2018 */
HOST_DEVICE float silu_value(float x)
{
    return x / (1.0f + expf(-x));
}

HOST_DEVICE float silu_derivative(float x)
{
    float s = activation_sigmoid(x);

    return s + x * s * (1 - s);
}

/* Hendrycks and Gimpel 2016 */
HOST_DEVICE float gelu_value(float x)
{
    return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
}

/* the normal distribution of x, and x times its density */
HOST_DEVICE float gelu_derivative(float x)
{
    return 0.5f * (1 + erff(x * 0.70710678118654752f)) +
           x * 0.39894228040143268f * expf(-0.5f * x * x);
}

/* Its approximation x (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3), written as
 * x sigmoid(2u) = x sigmoid(x (SLOPE + CUBE x^2)). */
#define GELU_TANH_SLOPE (2 * 0.79788456080286536f)
#define GELU_TANH_CUBE  (GELU_TANH_SLOPE * 0.044715f)

HOST_DEVICE float gelu_tanh_value(float x)
{
    return x / (1.0f + expf(-x * (GELU_TANH_SLOPE + GELU_TANH_CUBE * x * x)));
}

HOST_DEVICE float gelu_tanh_derivative(float x)
{
    float s = activation_sigmoid(x * (GELU_TANH_SLOPE + GELU_TANH_CUBE * x * x));

    return s + x * s * (1 - s) * (GELU_TANH_SLOPE + 3.0f * GELU_TANH_CUBE * x * x);
}

HOST_DEVICE float relu_value(float x)
{
    return x < 0 ? 0 : x;
}

HOST_DEVICE float relu_derivative(float x)
{
    return x > 0 ? 1 : 0;
}

HOST_DEVICE float tanh_value(float x)
{
    return tanhf(x);
}

HOST_DEVICE float tanh_derivative(float x)
{
    float y = tanhf(x);

    return 1 - y * y;
}

HOST_DEVICE float sigmoid_value(float x)
{
    return activation_sigmoid(x);
}

HOST_DEVICE float sigmoid_derivative(float x)
{
    float y = activation_sigmoid(x);

    return y * (1 - y);
}

/* x sigmoid(SLOPE x) */
#define QUICK_GELU_SLOPE 1.702f

HOST_DEVICE float quick_gelu_value(float x)
{
    return x / (1.0f + expf(-x * QUICK_GELU_SLOPE));
}

HOST_DEVICE float quick_gelu_derivative(float x)
{
    float s = activation_sigmoid(QUICK_GELU_SLOPE * x);

    return s + x * s * (1 - s) * QUICK_GELU_SLOPE;
}

HOST_DEVICE float identity_value(float x)
{
    return x;
}

HOST_DEVICE float identity_derivative(float x)
{
    (void)x;
    return 1;
}

/* relu(x)^2: So et al. 2021 */
HOST_DEVICE float relu2_value(float x)
{
    return x < 0 ? 0 : x * x;
}

HOST_DEVICE float relu2_derivative(float x)
{
    return x > 0 ? 2 * x : 0;
}

HOST_DEVICE float relu6_value(float x)
{
    return x < 0 ? 0 : x > 6 ? 6 : x;
}

HOST_DEVICE float relu6_derivative(float x)
{
    return x > 0 && x < 6 ? 1 : 0;
}

HOST_DEVICE float leaky_relu_value(float x)
{
    return x > 0 ? x : 0.01f * x;
}

HOST_DEVICE float leaky_relu_derivative(float x)
{
    return x > 0 ? 1 : 0.01f;
}

/* gelu, clamped to [-10, 10] */
HOST_DEVICE float gelu_10_value(float x)
{
    float y = gelu_value(x);

    return y < -10 ? -10 : y > 10 ? 10 : y;
}

HOST_DEVICE float gelu_10_derivative(float x)
{
    float y = gelu_value(x);

    return y > 10 || y < -10 ? 0 : gelu_derivative(x);
}

/* Misra 2019 */
HOST_DEVICE float mish_value(float x)
{
    return x * tanhf(activation_softplus(x));
}

HOST_DEVICE float mish_derivative(float x)
{
    float y = tanhf(activation_softplus(x));

    return y + x * (1 - y * y) / (1 + expf(-x));
}

/* Ma et al. 2022, eq. 21, mean and deviation as published */
HOST_DEVICE float laplace_value(float x)
{
    return 0.5f * (1 + erff((x - 0.707107f) / (0.282095f * 1.41421356237309505f)));
}

/* the density */
HOST_DEVICE float laplace_derivative(float x)
{
    float y = (x - 0.707107f) / 0.282095f;

    return 0.39894228040143268f / 0.282095f * expf(-0.5f * y * y);
}

/* Howard et al. 2019 */
HOST_DEVICE float hardswish_value(float x)
{
    return x * fminf(fmaxf(x + 3, 0), 6) / 6;
}

HOST_DEVICE float hardswish_derivative(float x)
{
    return x <= -3 ? 0 : x >= 3 ? 1 : (2 * x + 3) / 6;
}

HOST_DEVICE float sqrt_softplus_value(float x)
{
    return sqrtf(activation_softplus(x));
}

HOST_DEVICE float sqrt_softplus_derivative(float x)
{
    float y = sqrt_softplus_value(x);

    return y > 0 ? 0.5f / y / (1 + expf(-x)) : 0;
}

/* ---- by number; with a constant ACT no more than the formula is compiled ----
 * (The parentheses make an error of a missing function, not an implicit declaration.)
 */

#define ROW(id, formula, saved, loop, back, ...) \
    case ACT_##id:                               \
        return (formula##_value)(x);
HOST_DEVICE float activation_value(enum activation act, float x)
{
    switch (act) {
        ACTIVATIONS(ROW)
    case ACTIVATION_COUNT:
        break;
    }
    return NAN;
}
#undef ROW

#define ROW(id, formula, saved, loop, back, ...) \
    case ACT_##id:                               \
        return (formula##_derivative)(x);
HOST_DEVICE float activation_derivative(enum activation act, float x)
{
    switch (act) {
        ACTIVATIONS(ROW)
    case ACTIVATION_COUNT:
        break;
    }
    return NAN;
}
#undef ROW

#endif
