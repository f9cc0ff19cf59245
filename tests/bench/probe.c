/* probe - what this machine can do at this moment: probe THREADS
 *
 * Prints two rates: bytes read from memory, and f32 operations of a matrix product
 * (oneDNN's where it was built in), each a second, the best of several runs. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"

#ifdef HAVE_DNNL
#include <dnnl.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

enum { BYTES = 1 << 30, N = 2048, RUNS = 5 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3",
                             "default"))) static uint64_t
sum(const uint64_t *p, size_t n)
{
    uint64_t s[8] = { 0 };

    for (size_t i = 0; i < n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += p[i + (size_t)k];
    return s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7];
}

static double read_rate(const uint64_t *p, int threads)
{
    size_t n = BYTES / sizeof(*p) / (size_t)threads;
    volatile uint64_t sink = 0;
    double start = now();

#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++)
        sink ^= sum(p + (size_t)t * n, n);
    return BYTES / (now() - start);
}

static double product_rate(float *a, float *b, float *c, int threads)
{
    double start = now();

#ifdef HAVE_DNNL
    (void)threads; /* main set them */
    dnnl_sgemm('N', 'T', N, N, N, 1, a, N, b, N, 0, c, N);
#else
    struct matrix w = { .data = b, .dtype = DTYPE_F32, .rows = N, .cols = N };
    struct err err = { 0 };
    struct device *device = NULL;

    if (backend_cpu.open(&device, threads, &err) == 0)
        cpu_linear(device, c, a, N, &w, &err);
    backend_cpu.close(device);
#endif
    return 2.0 * N * N * N / (now() - start);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    float *a = xcalloc(N * N, 4), *b = xcalloc(N * N, 4), *c = xcalloc(N * N, 4);
    double reading = 0, product = 0;
    uint64_t *p = xmalloc(BYTES);

    memset(p, 1, BYTES);
#ifdef _OPENMP
    omp_set_num_threads(threads);
#endif
    for (int i = 0; i < RUNS; i++) {
        double r = read_rate(p, threads), m = product_rate(a, b, c, threads);

        reading = r > reading ? r : reading;
        product = m > product ? m : product;
    }
    printf("%.0f %.0f\n", reading, product);
    return 0;
}
