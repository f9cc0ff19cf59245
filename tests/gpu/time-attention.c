/* time-attention - seconds that causal attention takes on a GPU
 *
 *   time-attention TOKENS HEADS KV_HEADS HEAD_DIM TIMES QUERIES BITS
 *
 * of the last QUERIES of TOKENS, to BITS, 8, 16 or 32 (call.rounded, call.narrow). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/base/str.h"
#include "lib/device/device.h"

static struct device *gpu;
static struct err err;

static void check(bool fine)
{
    if (fine)
        return;
    fprintf(stderr, "time-attention: %s\n", err.text);
    exit(4);
}

static void *device_new(const void *host, size_t bytes)
{
    void *p = backend_cuda.alloc(gpu, bytes, "a trial", &err);

    check(p && backend_cuda.copy_in(gpu, p, host, bytes, &err) == 0);
    return p;
}

static struct buffer numbers(uint64_t rows, uint64_t cols, const int32_t *device_rows)
{
    size_t n = (size_t)(rows * cols);
    float *x = xcalloc(n, sizeof(*x));
    struct rng r;
    struct buffer b;

    rng_init(&r, 1, cols);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)rng_normal(&r);
    b = (struct buffer){
        device_new(x, n * sizeof(*x)), device_rows, rows, cols, FORMAT_F32, 0
    };
    free(x);
    return b;
}

int main(int argc, char **argv)
{
    struct inst inst = { .op = OP_ATTENTION, .nsrc = 3, .weight = -1, .weight2 = -1 };
    struct call call = { .inst = &inst };
    enum { NUMBERS = 7 };
    uint64_t n[NUMBERS], queries;
    struct range range;
    int32_t rows;
    int32_t *device_rows;
    double start = 0;

    for (int i = 0; i < NUMBERS; i++)
        if (argc != NUMBERS + 1 || !str_u64(argv[1 + i], &n[i]) || !n[i] ||
            n[i] > 1 << 20) {
            fputs("time-attention: TOKENS HEADS KV_HEADS HEAD_DIM TIMES QUERIES BITS\n",
                  stderr);
            return 2;
        }
    queries = n[5] < n[0] ? n[5] : n[0];
    call.narrow = n[6] <= 16;
    call.rounded = n[6] == 8;
    check(backend_cuda.open(&gpu, 1, 0, &err) == 0);
    rows = (int32_t)n[0];
    device_rows = device_new(&rows, sizeof(rows));
    inst.attention.heads = inst.attention.all_heads = n[1];
    inst.attention.kv_heads = inst.attention.groups = n[2];
    inst.attention.within = inst.attention.per_group = n[1] / n[2];
    inst.attention.head_dim = inst.attention.value_dim = inst.attention.value_cols =
        n[3];
    inst.attention.scale = 0.125;
    inst.attention.causal = true;
    range = (struct range){ .rows = (int32_t)queries,
                            .start = (int32_t)(n[0] - queries),
                            .keys = rows,
                            .block = -1 };
    call.range = (struct ranges){ .v = device_new(&range, sizeof(range)),
                                  .n = 1,
                                  .block_rows = 16,
                                  .most_rows = queries,
                                  .most_keys = n[0] };
    call.y = numbers(queries, n[1] * n[3], device_rows);
    call.x[0] = numbers(queries, n[1] * n[3], device_rows);
    call.x[1] = numbers(n[0], n[2] * n[3], device_rows);
    call.x[2] = numbers(n[0], n[2] * n[3], device_rows);
    for (uint64_t i = 0; i <= n[4]; i++) { /* the first warms up */
        if (i == 1)
            start = clock_seconds();
        check(backend_cuda.kernel[OP_ATTENTION](gpu, &call, &err) == 0);
        if (i == 0 || i == n[4])
            check(backend_cuda.wait(gpu, &err) == 0);
    }
    printf("%.9g\n", (clock_seconds() - start) / (double)n[4]);
    backend_cuda.release(gpu, device_rows);
    backend_cuda.release(gpu, (void *)(uintptr_t)call.range.v);
    backend_cuda.release(gpu, call.y.data);
    for (int k = 0; k < 3; k++)
        backend_cuda.release(gpu, call.x[k].data);
    backend_cuda.close(gpu);
    return 0;
}
