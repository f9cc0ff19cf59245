/* long-cache - attention of one query over a long KV cache
 *
 * long-cache THREADS KEYS KV_HEADS HEADS HEAD_DIM TYPE
 *
 * Prints the rate at which the cache is read, as a share of reading memory, and the
 * time that reading or products take at least, whichever is longer, as a share of the
 * time; and which it is: read, f32 or int8. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/attention/decode-int8.h"
#include "lib/cpu/machine.h"

enum { RUNS = 7, COPIES = 3 /* caches in turns, so that none stays in a CPU cache */ };

static int number(const char *s)
{
    return (int)strtol(s, NULL, 10);
}

static void *cache_new(const struct buffer *p, struct err *err)
{
    uint64_t row = format_row_bytes(p->format, p->cols, p->width);
    char *data = mem_alloc(p->most * row, "a cache", err);
    float *x = xcalloc(p->cols, sizeof(*x));

    for (uint64_t i = 0; i < p->cols; i++)
        x[i] = (float)(i % 17) / 17 - 0.5f;
    for (uint64_t i = 0; data && i < p->most; i++)
        cpu_cache_row(data + i * row, x, p);
    free(x);
    return data;
}

static int run(char **argv, enum format type, struct err *err)
{
    int threads = number(argv[1]);
    size_t keys = (size_t)number(argv[2]), kv = (size_t)number(argv[3]);
    size_t heads = (size_t)number(argv[4]), dim = (size_t)number(argv[5]);
    struct inst inst = { .op = OP_ATTENTION };
    struct buffer p = { NULL, NULL, keys, kv * dim, type, dim };
    struct attention_step step = {
        .rows = 1, .start = keys - 1, .keys = keys, .block_rows = 16
    };
    double bytes = 2.0 * (double)keys * (double)format_row_bytes(type, kv * dim, dim);
    struct buffer k[COPIES], v[COPIES];
    struct device_rates rates;
    int32_t *block = xcalloc(keys / 16 + 1, sizeof(*block));
    float *q = xcalloc(heads * dim, sizeof(*q)), *y = xcalloc(heads * dim, sizeof(*y));
    struct device *d;
    double best = 0, work, memory;
    const char *products = "f32";
    struct kv_rows kv_rows;

    inst.attention.heads = heads;
    inst.attention.kv_heads = kv;
    inst.attention.head_dim = inst.attention.value_dim = inst.attention.value_cols =
        dim;
    inst.attention.scale = 0.1;
    inst.attention.causal = true;
    for (size_t i = 0; i <= keys / 16; i++)
        block[i] = (int32_t)i;
    step.block = block;
    for (int i = 0; i < COPIES; i++) {
        k[i] = v[i] = p;
        k[i].data = cache_new(&p, err);
        v[i].data = cache_new(&p, err);
        if (!k[i].data || !v[i].data)
            return -1;
    }
    if (machine_measure(threads, &rates, err) < 0 || cpu_open(&d, threads, 0, err) < 0)
        return -1;
    for (int i = 0; i < RUNS; i++) {
        double start = clock_seconds(), rate;

        for (int c = 0; c < COPIES; c++) {
            if (type == FORMAT_F32) {
                step.k = k[c].data;
                step.v = v[c].data;
            } else {
                step.cached_k = &k[c];
                step.cached_v = &v[c];
            }
            if (cpu_attention(d, y, q, &inst, &step, err) < 0)
                return -1;
        }
        rate = COPIES * bytes / (clock_seconds() - start);
        best = rate > best ? rate : best;
    }
    work = 4.0 * (double)keys * (double)(heads * dim) / rates.f32;
    kv_rows = kv_rows_of(&k[0], NULL, kv, dim, dim);
    if (decode_int8_has(&kv_rows)) {
        /* products of bytes: two for each of a key, three for each of a value */
        work = 2.5 * 4.0 * (double)keys * (double)(heads * dim) / rates.int8;
        products = "int8";
    }
    memory = bytes / rates.read;
    printf("%.3f %.3f %s\n", best / rates.read,
           (work > memory ? work : memory) * best / bytes,
           work > memory ? products : "read");
    cpu_close(d);
    for (int i = 0; i < COPIES; i++) {
        free(k[i].data);
        free(v[i].data);
    }
    free(block);
    free(q);
    free(y);
    return 0;
}

int main(int argc, char **argv)
{
    struct err err = { 0 };

    if (argc != 7)
        return 2;
    if (run(argv,
            !strcmp(argv[6], "bf16")   ? FORMAT_BF16
            : !strcmp(argv[6], "int8") ? FORMAT_CACHE_INT8
                                       : FORMAT_F32,
            &err) < 0) {
        fprintf(stderr, "long-cache: %s\n", err.text);
        return 4;
    }
    return 0;
}
