/* elementwise - sums, products and activations, element by element */
#include <math.h>
#include <string.h>

#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"

enum { STEP = 1 << 14 }; /* elements of a task */

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

/* y = what CHANGE makes of each vector v of x, the last of which is part of one. */
#define VECTORS(y, x, n, change)                       \
    do {                                               \
        size_t i_ = 0;                                 \
        vec v = { 0 };                                 \
                                                       \
        for (; i_ + VEC <= (n); i_ += VEC) {           \
            vec_load_f32(&v, (x) + i_);                \
            change;                                    \
            memcpy((y) + i_, &v, sizeof(v));           \
        }                                              \
        memcpy(&v, (x) + i_, ((n)-i_) * sizeof(*(x))); \
        change;                                        \
        memcpy((y) + i_, &v, ((n)-i_) * sizeof(*(y))); \
    } while (0)

/* x sigmoid(x (slope + cube x^2)) */
static inline __attribute__((always_inline)) void gate_vec(vec *x, float slope,
                                                           float cube)
{
    vec e = -*x * (slope + cube * *x * *x);

    vec_exp(&e, &e);
    *x /= 1.0f + e;
}

/* x times the normal distribution of x */
static inline __attribute__((always_inline)) void gelu_vec(vec *x)
{
    vec part;

    vec_normal(&part, x);
    *x *= part;
}

CPU_CLONES static void gate(float *y, const float *x, size_t n, float slope, float cube)
{
    VECTORS(y, x, n, gate_vec(&v, slope, cube));
}

static void silu_loop(float *y, const float *x, size_t n)
{
    gate(y, x, n, 1, 0);
}

static void gelu_tanh_loop(float *y, const float *x, size_t n)
{
    gate(y, x, n, GELU_TANH_SLOPE, GELU_TANH_CUBE);
}

static void quick_gelu_loop(float *y, const float *x, size_t n)
{
    gate(y, x, n, QUICK_GELU_SLOPE, 0);
}

CPU_CLONES static void gelu_loop(float *y, const float *x, size_t n)
{
    VECTORS(y, x, n, gelu_vec(&v));
}

CPU_CLONES static void gelu_10_loop(float *y, const float *x, size_t n)
{
    VECTORS(y, x, n, gelu_vec(&v); vec_clamp(&v, -10, 10));
}

/* 0 where x is negative; a NaN stays one */
static inline __attribute__((always_inline)) void relu_vec(vec *x)
{
    const vec none = { 0 };
    const vec_i32 below = *x < none;

    vec_choose(x, &below, &none, x);
}

CPU_CLONES static void relu_loop(float *y, const float *x, size_t n)
{
    VECTORS(y, x, n, relu_vec(&v));
}

CPU_CLONES static void relu2_loop(float *y, const float *x, size_t n)
{
    VECTORS(y, x, n, relu_vec(&v); v *= v);
}

CPU_CLONES static void cap_tanh(float *y, const float *x, size_t n, float cap)
{
    VECTORS(y, x, n, vec_cap(&v, cap));
}

static void tanh_loop(float *y, const float *x, size_t n)
{
    cap_tanh(y, x, n, 1);
}

static void activate(float *y, const float *x, enum activation act, size_t n)
{
#define ROW(id, formula, saved, loop, back, ...) [ACT_##id] = loop,
    static void (*const loops[])(float *, const float *, size_t) = { ACTIVATIONS(ROW) };
#undef ROW

    if (loops[act]) {
        loops[act](y, x, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        y[i] = activation_value(act, x[i]);
}

/* One operation on N elements, or on rows of N columns. */
struct elements {
    float *y;
    uint16_t *bf16; /* instead of y, or NULL */
    const float *x, *z;
    size_t n;
    float number, least;
    enum activation act;
    const struct matrix *w;
    void (*combine)(float *y, const float *x, const float *z, size_t n);
};

/* The elements of TASK: *n of them, from the index returned. */
static size_t share(const struct elements *e, size_t task, size_t *n)
{
    size_t at = task * STEP;

    *n = e->n - at < STEP ? e->n - at : STEP;
    return at;
}

static void share_out(struct device *d, cpu_task *run, struct elements e)
{
    cpu_parallel(d, (e.n + STEP - 1) / STEP, run, &e);
}

static void add_some(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t n, at = share(e, task, &n);

    (void)thread;
    add(e->y + at, e->x + at, e->z + at, n);
}

static void mul_some(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t n, at = share(e, task, &n);

    (void)thread;
    mul(e->y + at, e->x + at, e->z + at, n);
}

/* x z, or the activation of x without a z, in bf16: made in f32, PART at a time. */
enum { PART = 1 << 10 };

static void make_some_bf16(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t n, at = share(e, task, &n), end = at + n;
    float made[PART];

    (void)thread;
    for (; at < end; at += n) {
        n = end - at < PART ? end - at : PART;
        if (e->z)
            mul(made, e->x + at, e->z + at, n);
        else
            activate(made, e->x + at, e->act, n);
        cpu_round_bf16(e->bf16 + at, made, n);
    }
}

static void scale_some(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t n, at = share(e, task, &n);

    (void)thread;
    scale(e->y + at, e->x + at, e->number, n);
}

static void cap_some(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t n, at = share(e, task, &n);

    (void)thread;
    cap_tanh(e->y + at, e->x + at, n, e->number);
}

static void clip_some(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t n, at = share(e, task, &n);

    (void)thread;
    for (size_t i = at; i < at + n; i++)
        e->y[i] = e->x[i] > e->number  ? e->number
                  : e->x[i] < e->least ? e->least
                                       : e->x[i];
}

static void activate_some(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t n, at = share(e, task, &n);

    (void)thread;
    activate(e->y + at, e->x + at, e->act, n);
}

/* Combines row TASK with the vector in E's matrix. */
static void combine_row(void *arg, size_t task, int thread)
{
    enum { COLS = 512 };
    const struct elements *e = arg;

    (void)thread;
    for (size_t k = 0; k < e->n; k += COLS) {
        size_t n = e->n - k < COLS ? e->n - k : COLS, at = task * e->n + k;
        float wide[COLS];

        e->combine(e->y + at, e->x + at, cpu_widen(e->w, k, n, wide), n);
    }
}

/* The slopes that the two weights stand for. */
struct xielu cpu_xielu_slopes(const struct matrix *above, const struct matrix *below)
{
    float a, b;

    return (struct xielu){
        .above = activation_softplus(*cpu_widen(above, 0, 1, &a)),
        .below = XIELU_LEAST + activation_softplus(*cpu_widen(below, 0, 1, &b)),
    };
}

static void xielu_some(void *arg, size_t task, int thread)
{
    const struct elements *e = arg;
    size_t n, at = share(e, task, &n);

    (void)thread;
    for (size_t i = at; i < at + n; i++) {
        float x = e->x[i];

        e->y[i] =
            XIELU_LEAST * x +
            (x > 0 ? e->number * x * x : e->least * (expm1f(fminf(x, XIELU_NEAR)) - x));
    }
}

void cpu_add(struct device *d, float *y, const float *x, const float *z, size_t n)
{
    share_out(d, add_some, (struct elements){ .y = y, .x = x, .z = z, .n = n });
}

void cpu_mul(struct device *d, float *y, const float *x, const float *z, size_t n)
{
    share_out(d, mul_some, (struct elements){ .y = y, .x = x, .z = z, .n = n });
}

void cpu_mul_bf16(struct device *d, uint16_t *y, const float *x, const float *z,
                  size_t n)
{
    share_out(d, make_some_bf16,
              (struct elements){ .bf16 = y, .x = x, .z = z, .n = n });
}

void cpu_scale(struct device *d, float *y, const float *x, double number, size_t n)
{
    share_out(d, scale_some,
              (struct elements){ .y = y, .x = x, .n = n, .number = (float)number });
}

void cpu_softcap(struct device *d, float *y, const float *x, double number, size_t n)
{
    share_out(d, cap_some,
              (struct elements){ .y = y, .x = x, .n = n, .number = (float)number });
}

void cpu_clip(struct device *d, float *y, const float *x, double least, double most,
              size_t n)
{
    share_out(
        d, clip_some,
        (struct elements){
            .y = y, .x = x, .n = n, .number = (float)most, .least = (float)least });
}

void cpu_activation(struct device *d, float *y, const float *x, enum activation act,
                    size_t n)
{
    share_out(d, activate_some,
              (struct elements){ .y = y, .x = x, .n = n, .act = act });
}

void cpu_activation_bf16(struct device *d, uint16_t *y, const float *x,
                         enum activation act, size_t n)
{
    share_out(d, make_some_bf16,
              (struct elements){ .bf16 = y, .x = x, .n = n, .act = act });
}

void cpu_add_vector(struct device *d, float *y, const float *x, const struct matrix *w,
                    size_t rows)
{
    struct elements e = {
        .y = y, .x = x, .n = (size_t)w->cols, .w = w, .combine = add
    };

    cpu_parallel(d, rows, combine_row, &e);
}

void cpu_mul_vector(struct device *d, float *y, const float *x, const struct matrix *w,
                    size_t rows)
{
    struct elements e = {
        .y = y, .x = x, .n = (size_t)w->cols, .w = w, .combine = mul
    };

    cpu_parallel(d, rows, combine_row, &e);
}

void cpu_xielu(struct device *d, float *y, const float *x, struct xielu slopes,
               size_t n)
{
    share_out(
        d, xielu_some,
        (struct elements){
            .y = y, .x = x, .n = n, .number = slopes.above, .least = slopes.below });
}

/* ---- rows of logits ---- */

CPU_CLONES float cpu_largest(const float *x, size_t n)
{
    float max = -INFINITY;
    vec most = { 0 };
    size_t i = 0;

    most += max;
    for (; i + VEC <= n; i += VEC) {
        vec v;

        vec_load_f32(&v, x + i);
        vec_raise(&most, &v);
    }
    max = vec_largest(&most, max);
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

/* *terms = exp((x - most) / divisor) of eight numbers at X. */
static inline __attribute__((always_inline)) void
exp_eight(vec_double *terms, const float *x, double most, double divisor)
{
    vec_half v;

    memcpy(&v, x, sizeof(v));
    *terms = (__builtin_convertvector(v, vec_double) - most) / divisor;
    vec_exp_double(terms, terms);
}

CPU_CLONES double cpu_exp_terms(double *to, const float *x, size_t n, double most,
                                double divisor)
{
    enum { EIGHT = VEC / 2 };
    vec_double sum = { 0 }, terms;
    float rest[EIGHT] = { 0 };
    double all = 0;
    size_t i = 0;

    for (; i + EIGHT <= n; i += EIGHT) {
        exp_eight(&terms, x + i, most, divisor);
        sum += terms;
        if (to)
            memcpy(to + i, &terms, sizeof(terms));
    }
    memcpy(rest, x + i, (n - i) * sizeof(*x));
    exp_eight(&terms, rest, most, divisor);
    for (int k = 0; k < EIGHT; k++)
        all += sum[k];
    for (size_t k = 0; i + k < n; k++)
        all += terms[k];
    if (to)
        memcpy(to + i, &terms, (n - i) * sizeof(*to));
    return all;
}
