/* arrays - operations on flat arrays: zeroing, sums, casts, squares, updates
 *
 * Elements do not depend on one another, and squares are added as integers, so the
 * number of threads changes no bit. */
#include "lib/device/arrays.h"

#include <string.h>

#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"

/* Without contraction, whatever the clone; square roots set no errno, so that they are
 * made many at a time. */
#if defined(__GNUC__) && !defined(__clang__)
#define AS_WRITTEN \
    __attribute__((optimize("fp-contract=off", "no-math-errno", "O3"))) CPU_CLONES
#else
#define AS_WRITTEN
#endif

enum { STEP = 1 << 14, MANTISSA = 23 }; /* elements of a task */

AS_WRITTEN static void zero_loop(const struct array_call *c, size_t i, size_t end)
{
    memset((float *)c->y + i, 0, (end - i) * sizeof(float));
}

AS_WRITTEN static void sum_loop(const struct array_call *c, size_t i, size_t end)
{
    float *y = c->y;
    const float *x = c->x, *z = c->z;

    for (; i < end; i++)
        y[i] = x[i] + z[i];
}

static void cast_loop(const struct array_call *c, size_t i, size_t end)
{
    enum { SOME = 256 };
    size_t unit = (size_t)format_bits(c->x_format) / 8;
    const char *from = c->x;
    float some[SOME];

    if (c->y_format == FORMAT_F32) {
        dtype_to_f32(format_dtype(c->x_format), from + i * unit, (float *)c->y + i,
                     end - i);
        return;
    }
    for (uint16_t *y = c->y; i < end;) {
        const size_t n = end - i < SOME ? end - i : SOME;
        const float *x = some;

        if (c->x_format == FORMAT_F32)
            x = (const float *)c->x + i;
        else
            dtype_to_f32(format_dtype(c->x_format), from + i * unit, some, n);
        for (size_t k = 0; k < n; k++, i++)
            y[i] = c->y_format == FORMAT_BF16 ? dtype_f32_to_bf16(x[k])
                                              : dtype_f32_to_f16(x[k]);
    }
}

/* A task's sums stay below 2^64: a square has 48 bits, STEP 14. */
static void squares_loop(const struct array_call *c, size_t i, size_t end)
{
    uint64_t some[SQUARES_EXPONENTS] = { 0 }, *y = c->y;
    const float *x = c->x;

    for (; i < end; i++) {
        uint32_t bits, e;
        uint64_t m;

        memcpy(&bits, &x[i], sizeof(bits));
        e = bits >> MANTISSA & (SQUARES_EXPONENTS - 1);
        m = (bits & ((UINT32_C(1) << MANTISSA) - 1)) | (uint64_t)(e > 0) << MANTISSA;
        some[e] += m * m;
    }
    for (int e = 0; e < SQUARES_EXPONENTS; e++)
        if (some[e]) {
            __atomic_fetch_add(&y[e], some[e] & UINT32_MAX, __ATOMIC_RELAXED);
            __atomic_fetch_add(&y[SQUARES_EXPONENTS + e], some[e] >> 32,
                               __ATOMIC_RELAXED);
        }
}

AS_WRITTEN static void average_loop(const struct array_call *c, size_t i, size_t end)
{
    const struct average_numbers by = c->by.average;
    const float *restrict x = c->x;
    float *restrict y = c->y;

    for (; i < end; i++)
        update_average(&by, &y[i], x[i]);
}

AS_WRITTEN static void bias_loop(const struct array_call *c, size_t i, size_t end)
{
    const struct bias_numbers by = c->by.bias;
    const float *restrict x = c->x;
    float *restrict y = c->y;

    for (; i < end; i++)
        update_bias(&by, &y[i], x[i]);
}

AS_WRITTEN static void adamw_loop(const struct array_call *c, size_t i, size_t end)
{
    const struct adamw_numbers by = c->by.adamw;
    const float *restrict g = c->x;
    float *restrict p = c->y, *restrict m = c->slot[0], *restrict v = c->slot[1];

    for (; i < end; i++)
        update_adamw(&by, &p[i], g[i], &m[i], &v[i]);
}

AS_WRITTEN static void sgd_loop(const struct array_call *c, size_t i, size_t end)
{
    const struct sgd_numbers by = c->by.sgd;
    const float *restrict g = c->x;
    float *restrict p = c->y;

    for (; i < end; i++)
        update_sgd(&by, &p[i], g[i]);
}

AS_WRITTEN static void momentum_loop(const struct array_call *c, size_t i, size_t end)
{
    const struct sgd_numbers by = c->by.sgd;
    const float *restrict g = c->x;
    float *restrict p = c->y, *restrict b = c->slot[0];

    for (; i < end; i++)
        update_momentum(&by, &p[i], g[i], &b[i]);
}

AS_WRITTEN static void lion_loop(const struct array_call *c, size_t i, size_t end)
{
    const struct lion_numbers by = c->by.lion;
    const float *restrict g = c->x;
    float *restrict p = c->y, *restrict m = c->slot[0];

    for (; i < end; i++)
        update_lion(&by, &p[i], g[i], &m[i]);
}

/* ---- the table ---- */

struct some {
    const struct array_call *c;
    void (*loop)(const struct array_call *c, size_t i, size_t end);
};

static void run_some(void *arg, size_t task, int thread)
{
    const struct some *s = arg;
    size_t i = task * STEP, left = (size_t)s->c->n - i;

    (void)thread;
    s->loop(s->c, i, i + (left < STEP ? left : STEP));
}

#define ROW(id, word)                                                      \
    static int array_##word(struct device *d, const struct array_call *c,  \
                            struct err *err)                               \
    {                                                                      \
        struct some s = { c, word##_loop };                                \
                                                                           \
        (void)err;                                                         \
        cpu_parallel(d, (size_t)((c->n + STEP - 1) / STEP), run_some, &s); \
        return 0;                                                          \
    }
ARRAY_OPS(ROW)
#undef ROW

static int array_product(struct device *d, const struct array_call *c, struct err *err)
{
    const struct matrix z = { .format = FORMAT_F32,
                              .data = c->z,
                              .rows = c->inner,
                              .cols = c->rows ? c->n / c->rows : 0 };

    return cpu_matmul(d, c->y, c->x, (size_t)c->rows, &z, NULL, err);
}

#define ROW(id, word) [ARRAY_##id] = array_##word,
array_kernel *const cpu_arrays[ARRAY_COUNT] = { ARRAY_OPS(ROW) ARRAY_HOST_OPS(ROW) };
#undef ROW
