/* cpu-trial - random numbers and the CPU backend, for tests of its operations */
#ifndef TESTS_CPU_TRIAL_H
#define TESTS_CPU_TRIAL_H

#include <stdio.h>
#include <stdlib.h>

#include "lib/base/dtype.h"
#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"
#include "lib/cpu/product/autotune.h"

/* The CPU as a device of so many threads; ends the test where there is none. */
static inline struct device *device_new(int threads)
{
    struct device *d;
    struct err err;

    if (backend_cpu.open(&d, threads, 0, &err) < 0) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
    return d;
}

/* Makes products of one row in WAY from now on, and those of more in one of two. */
static inline void device_keep(struct device *d, int way)
{
    for (int kind = 0; kind < STOREDS; kind++)
        for (int rows = 0; rows < ROWS_READ; rows++)
            *cpu_autotune(d, kind, rows) =
                (struct autotune){ .tries = UINT32_MAX,
                                   .best = rows == ONE_ROW ? way : way % 2 };
}

/* Calls RUN with each older set of loops than the newest that this CPU has. */
static inline void with_older_loops(void (*run)(void))
{
    static const char *const names[] = { [CPU_ANY] = "any CPU",
                                         [CPU_AVX2] = "AVX2",
                                         [CPU_AVX512] = "AVX-512",
                                         [CPU_VNNI] = "VNNI" };
    const enum cpu_loops newest = cpu_has();

    for (int loops = CPU_ANY; loops < (int)newest; loops++) {
        cpu_newest = (enum cpu_loops)loops;
        printf("# the loops for %s\n", names[loops]);
        run();
    }
    cpu_newest = newest;
}

/* N random numbers of a normal distribution, those of STREAM; release with free(). */
static inline float *numbers_new(size_t n, uint64_t stream)
{
    float *x = xcalloc(n + 1, sizeof(*x));
    struct rng r;

    rng_init(&r, 7, stream);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)rng_normal(&r);
    return x;
}

/* X as products by weights in bf16 take it where they round. */
static inline float *rounded_new(const float *x, size_t n)
{
    float *y = xcalloc(n + 1, sizeof(*y));

    for (size_t i = 0; i < n; i++)
        y[i] = dtype_bf16_to_f32(dtype_f32_to_bf16(x[i]));
    return y;
}

#endif
