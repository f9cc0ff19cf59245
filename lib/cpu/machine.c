/* machine - measures what the CPU reaches at this moment */
#include "lib/cpu/machine.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/vec.h"

enum { BYTES = 1 << 29, N = 1024, SMALL = 512, RUNS = 5 };

struct job {
    const uint64_t *words;
    size_t each; /* words of a task */
    size_t n;
    float *a, *b, *c; /* [threads] matrices [n][n] */
    uint64_t *sink;   /* [tasks] */
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

int machine_measure(int threads, double *read, double *product, struct err *err)
{
    size_t n = (size_t)threads, tasks = n * 16;
    struct device *d = NULL;
    void *words = mem_alloc(BYTES, "a probe", err);
    struct job j = { .words = words, .each = BYTES / sizeof(uint64_t) / tasks };
    int ret = -1;

    j.sink = xcalloc(tasks, sizeof(*j.sink));
    if (!words || open_squares(&j, n, N, err) < 0 || cpu_open(&d, threads, 0, err) < 0)
        goto out;
    memset(words, 1, BYTES);
    *read = *product = 0;
    for (int i = 0; i < RUNS; i++) {
        double r = rate(d, read_part, &j, tasks, (double)(tasks * j.each * 8));
        double p = product_rate(d, &j, n);

        *read = r > *read ? r : *read;
        *product = p > *product ? p : *product;
    }
    ret = 0;
out:
    cpu_close(d);
    free(words);
    free(j.sink);
    close_squares(&j);
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
