/* machine - measures what the CPU reaches at this moment */
#include "lib/cpu/machine.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/cpu/simd/amx.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/product/tile.h"
#include "lib/cpu/product/onednn.h"
#include "lib/cpu/product/codes-linear.h"
#include "lib/cpu/simd/vec.h"

enum { BYTES = 1 << 29, N = 1024, SMALL = 512, RUNS = 5 };

struct job {
    uint64_t *words;
    size_t tasks, each; /* words of a task */
    size_t n;
    float *a, *b, *c;        /* [threads] matrices [n][n] */
    struct onednn **product; /* [threads] */
    bool failed;
    uint64_t *sink; /* [tasks] */
};

CPU_CLONES static uint64_t sum(const uint64_t *p, size_t n)
{
    uint64_t s[8] = { 0 };

    for (size_t i = 0; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += p[i + (size_t)k];
    return s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7];
}

/* Reads a part of the words; the sum keeps the compiler from removing the reads. */
static void read_part(void *arg, size_t task, int thread)
{
    struct job *j = arg;

    (void)thread;
    j->sink[task] = sum(j->words + task * j->each, j->each);
}

static int open_words(struct job *j, size_t threads, struct err *err)
{
    j->tasks = threads * 16;
    j->each = BYTES / sizeof(*j->words) / j->tasks;
    j->sink = xcalloc(j->tasks, sizeof(*j->sink));
    j->words = mem_alloc(BYTES, "a probe", err);
    if (!j->words)
        return -1;
    memset(j->words, 1, BYTES);
    return 0;
}

static void close_words(struct job *j)
{
    free(j->words);
    free(j->sink);
}

/* Bytes of all tasks. */
static double bytes_of(const struct job *j)
{
    return (double)(j->tasks * j->each * sizeof(*j->words));
}

static void multiply(void *arg, size_t task, int thread)
{
    struct job *j = arg;
    size_t n = j->n, at = task * n * n;

    (void)thread;
    cpu_gemm(n, n, n, j->a + at, j->b + at, j->c + at);
}

/* UNITS divided by the seconds of running TASKS tasks. */
static double rate(struct device *d, cpu_task *run, struct job *j, size_t tasks,
                   double units)
{
    double start = clock_seconds();

    cpu_parallel(d, tasks, run, j);
    return units / (clock_seconds() - start);
}

static int open_squares(struct job *j, size_t threads, size_t n, struct err *err)
{
    size_t bytes = threads * n * n * sizeof(float);

    j->n = n;
    j->a = mem_alloc(bytes, "a probe", err);
    j->b = mem_alloc(bytes, "a probe", err);
    j->c = mem_alloc(bytes, "a probe", err);
    if (!j->a || !j->b || !j->c)
        return -1;
    memset(j->a, 0, bytes);
    memset(j->b, 0, bytes);
    memset(j->c, 0, bytes);
    return 0;
}

static void close_squares(struct job *j)
{
    free(j->a);
    free(j->b);
    free(j->c);
}

static double product_rate(struct device *d, struct job *j, size_t threads)
{
    double n = (double)j->n;

    return rate(d, multiply, j, threads, 2 * n * n * n * (double)threads);
}

static void multiply_small(void *arg, size_t task, int thread)
{
    struct job *j = arg;
    size_t n = j->n, at = task * n * n;

    (void)thread;
    if (!onednn_run(j->product[task], j->c + at, j->a + at, j->b + at))
        j->failed = true;
}

/* The rate of products of TYPE by oneDNN; 0 if it has none. */
static double small_rate(struct device *d, struct job *j, size_t threads,
                         enum dtype type)
{
    const struct onednn_shape shape = { j->n, j->n, j->n, j->n, j->n };
    double n = (double)j->n, best = 0;

    j->failed = false;
    j->product = xcalloc(threads, sizeof(*j->product));
    for (size_t i = 0; i < threads; i++)
        j->failed |= !(j->product[i] = onednn_new(type, &shape));
    for (int i = 0; i < RUNS && !j->failed; i++) {
        double p = rate(d, multiply_small, j, threads, 2 * n * n * n * (double)threads);

        best = p > best ? p : best;
    }
    for (size_t i = 0; i < threads; i++)
        onednn_free(j->product[i]);
    free(j->product);
    return j->failed ? 0 : best;
}

/* The rate of our own products of bf16; 0 if the CPU has none. */
static double own_rate(struct device *d, struct job *j, size_t threads, struct err *err)
{
    const struct matrix w = {
        .data = j->b, .format = FORMAT_BF16, .rows = threads * j->n, .cols = j->n
    };
    double n = (double)j->n, best = 0;

    for (int i = 0; i < RUNS && (tile_bf16dot() || amx_has()); i++) {
        double start = clock_seconds(), p;

        /* one thread's rows by all threads' outputs fill c */
        if ((amx_has() ? cpu_amx_rows(d, j->c, j->a, FORMAT_F32, j->n, &w, err)
                       : cpu_linear_rounded(d, j->c, j->a, FORMAT_F32, j->n, &w, NULL,
                                            err)) < 0)
            return -1;
        p = 2 * n * n * n * (double)threads / (clock_seconds() - start);
        best = p > best ? p : best;
    }
    return best;
}

/* Does the CPU have products of BF16, or else of bytes? */
static bool has_product(bool bf16)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (bf16)
        return __builtin_cpu_supports("avx512bf16");
#ifndef __clang__ /* 14 does not know the name */
    if (__builtin_cpu_supports("avxvnni"))
        return true;
#endif
    return __builtin_cpu_supports("avx512vnni");
#else
    (void)bf16;
    return false;
#endif
}

const char *machine_kernels(bool rounded, enum format type)
{
    const bool codes = format_is_coded(type), fp8 = codes_are_fp8(type);

    rounded = rounded && (codes || type == FORMAT_BF16);
    if (amx_has() && (rounded || type == FORMAT_INT8))
        return "AMX";
    if (rounded && tile_bf16dot())
        return "AVX512-BF16";
#if CPU_HAS_WIDE
    if (codes && !fp8 && cpu_has() == CPU_VNNI)
        return "AVX512-VNNI";
    if (codes && !fp8 && codes_by_avx2())
        return "AVX2";
    if (cpu_is_wide())
        return "AVX-512";
    return __builtin_cpu_supports("x86-64-v3") ? "AVX2" : "SSE2";
#else
    (void)codes;
    (void)fp8;
    return "vectors of the compiler";
#endif
}

int machine_measure(int threads, struct device_rates *rates, struct err *err)
{
    size_t n = (size_t)threads;
    struct device *d = NULL;
    struct job j = { 0 };
    int ret = -1;

    if (open_words(&j, n, err) < 0 || open_squares(&j, n, N, err) < 0 ||
        cpu_open(&d, threads, 0, err) < 0)
        goto out;
    *rates = (struct device_rates){ 0 };
    for (int i = 0; i < RUNS; i++) {
        double r = rate(d, read_part, &j, j.tasks, bytes_of(&j));
        double p = product_rate(d, &j, n);

        rates->read = r > rates->read ? r : rates->read;
        rates->f32 = p > rates->f32 ? p : rates->f32;
    }
    if (has_product(true)) {
        double own = own_rate(d, &j, n, err);

        if (own < 0)
            goto out;
        rates->bf16 = small_rate(d, &j, n, DTYPE_BF16);
        rates->bf16 = own > rates->bf16 ? own : rates->bf16;
    }
    if (has_product(false))
        rates->int8 = small_rate(d, &j, n, DTYPE_I8);
    ret = 0;
out:
    cpu_close(d);
    close_words(&j);
    close_squares(&j);
    return ret;
}

int machine_read(int threads, double seconds, double *mean, struct err *err)
{
    struct device *d = NULL;
    struct job j = { 0 };
    double bytes = 0, start, took = 0;
    int ret = -1;

    if (open_words(&j, (size_t)threads, err) < 0 || cpu_open(&d, threads, 0, err) < 0)
        goto out;
    start = clock_seconds();
    while (took <= seconds) {
        cpu_parallel(d, j.tasks, read_part, &j);
        bytes += bytes_of(&j);
        took = clock_seconds() - start;
    }
    *mean = bytes / took;
    ret = 0;
out:
    cpu_close(d);
    close_words(&j);
    return ret;
}

int machine_product(int threads, double *product, struct err *err)
{
    struct device *d = NULL;
    struct job j = { 0 };
    int ret = -1;

    if (open_squares(&j, (size_t)threads, SMALL, err) < 0 ||
        cpu_open(&d, threads, 0, err) < 0)
        goto out;
    *product = 0;
    for (int i = 0; i < RUNS; i++) {
        double p = product_rate(d, &j, (size_t)threads);

        *product = p > *product ? p : *product;
    }
    ret = 0;
out:
    cpu_close(d);
    close_squares(&j);
    return ret;
}
