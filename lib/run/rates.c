/* rates - measured memory bandwidth and matrix throughput of a device */
#include "lib/run/rates.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

enum { TIMES = 8, SMALL_COPY = 1 << 20, SMALL_PRODUCT = 128, LARGE_PRODUCT = 8192 };
static const size_t large_copy = (size_t)1 << 30;
static const double enough_s = 2e-3; /* of one run: hides the launch overhead */

struct probe {
    const struct backend *ops;
    struct device *device;
    void *x, *y, *w, *rows;
    size_t n; /* bytes of a copy; rows and each side of the weight matrix */
    bool rounded;
};

static int copy_once(struct probe *p, struct err *err)
{
    return p->ops->copy(p->device, p->y, p->x, p->n, err);
}

static int multiply_once(struct probe *p, struct err *err)
{
    struct matrix w = {
        .data = p->w, .format = FORMAT_BF16, .rows = p->n, .cols = p->n
    };
    struct inst inst = { .op = OP_LINEAR, .nsrc = 1, .weight = -1, .weight2 = -1 };
    struct program program = { .rounded = p->rounded };
    struct call call = { .program = &program, .inst = &inst, .w = &w };

    call.y = (struct buffer){ p->y, p->rows, p->n, p->n, FORMAT_F32, 0 };
    call.x[0] = (struct buffer){ p->x, p->rows, p->n, p->n, FORMAT_F32, 0 };
    return p->ops->kernel[OP_LINEAR](p->device, &call, err);
}

/* Seconds of one run: the mean of TIMES runs after a warm-up. */
static int time_runs(struct probe *p, int (*run)(struct probe *p, struct err *err),
                     double *seconds, struct err *err)
{
    double start;

    if (run(p, err) < 0 || p->ops->wait(p->device, err) < 0)
        return -1;
    start = clock_seconds();
    for (int i = 0; i < TIMES; i++)
        if (run(p, err) < 0)
            return -1;
    if (p->ops->wait(p->device, err) < 0)
        return -1;
    *seconds = (clock_seconds() - start) / TIMES;
    return 0;
}

static void release(struct probe *p)
{
    void *all[] = { p->x, p->y, p->w, p->rows };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        p->ops->release(p->device, all[i]);
    p->x = p->y = p->w = p->rows = NULL;
}

/* BYTES of device memory with bf16 numbers near 1 (also valid as f32). */
static void *fill_new(const struct probe *p, size_t bytes, struct err *err)
{
    void *at = p->ops->alloc(p->device, bytes, "a probe", err);
    uint16_t *host = at ? mem_alloc(bytes, "a probe", err) : NULL;

    for (size_t i = 0; host && i < bytes / sizeof(*host); i++)
        host[i] = (uint16_t)(0x3f00 + i * 2654435761u % 251);
    if (!host || p->ops->copy_in(p->device, at, host, bytes, err) < 0) {
        p->ops->release(p->device, at);
        at = NULL;
    }
    free(host);
    return at;
}

static int prepare_copy(struct probe *p, struct err *err)
{
    p->x = fill_new(p, p->n, err);
    p->y = p->x ? p->ops->alloc(p->device, p->n, "a probe", err) : NULL;
    return p->y ? 0 : -1;
}

static int prepare_product(struct probe *p, struct err *err)
{
    int32_t rows = (int32_t)p->n;

    p->x = fill_new(p, p->n * p->n * sizeof(float), err);
    p->w = p->x ? fill_new(p, p->n * p->n * sizeof(uint16_t), err) : NULL;
    p->y = p->w ? p->ops->alloc(p->device, p->n * p->n * sizeof(float), "a probe", err)
                : NULL;
    p->rows = p->y ? p->ops->alloc(p->device, sizeof(rows), "a probe", err) : NULL;
    return p->rows ? p->ops->copy_in(p->device, p->rows, &rows, sizeof(rows), err) : -1;
}

/* Doubles the size while there is memory and time; *rate is the last one's. */
static int grow(struct probe *p, size_t small, size_t large,
                int (*prepare)(struct probe *p, struct err *err),
                int (*run)(struct probe *p, struct err *err), double (*units)(double n),
                double *rate, struct err *err)
{
    double seconds = 0;

    *rate = 0;
    for (p->n = small; p->n <= large && seconds < enough_s; p->n *= 2) {
        struct err none = { 0 };

        if (prepare(p, p->n == small ? err : &none) < 0) {
            release(p);
            return p->n == small ? -1 : 0;
        }
        if (time_runs(p, run, &seconds, err) < 0) {
            release(p);
            return -1;
        }
        release(p);
        *rate = units((double)p->n) / seconds;
    }
    return 0;
}

static double copied(double n)
{
    return 2 * n;
}

static double multiplied(double n)
{
    return 2 * n * n * n;
}

int rates_measure(const struct backend *ops, struct device *d, bool rounded,
                  double *memory, double *product, struct err *err)
{
    struct probe p = { .ops = ops, .device = d, .rounded = rounded };

    if (grow(&p, SMALL_COPY, large_copy, prepare_copy, copy_once, copied, memory, err) <
        0)
        return -1;
    return grow(&p, SMALL_PRODUCT, LARGE_PRODUCT, prepare_product, multiply_once,
                multiplied, product, err);
}
