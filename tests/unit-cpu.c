/* unit-cpu - each operation of the CPU backend against sums in double precision */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/rng.h"
#include "lib/cpu/simd/amx.h"
#include "lib/cpu/simd/avx512bf16.h"
#include "lib/cpu/attention/prefill-bf16.h"
#include "tests/cpu-trial.h"
#include "tests/tap.h"

static const int thread_counts[] = { 1, 2, 3, 7 };
static const enum format dtypes[] = { FORMAT_F32, FORMAT_BF16, FORMAT_F16 };

enum {
    NTHREADS = sizeof(thread_counts) / sizeof(*thread_counts),
    NDTYPES = sizeof(dtypes) / sizeof(*dtypes),
};

static struct device *team; /* for checks that are not about threads */

/* ---- numbers ---- */

/* Random weights of type T; release data with free(). */
static struct matrix matrix_new(enum format t, uint64_t rows, uint64_t cols,
                                uint64_t stream)
{
    size_t n = (size_t)(rows * cols);
    float *x = numbers_new(n, stream);
    uint16_t *h;

    if (t == FORMAT_F32)
        return (struct matrix){ .data = x, .format = t, .rows = rows, .cols = cols };
    h = xcalloc(n + 1, sizeof(*h));
    for (size_t i = 0; i < n; i++)
        h[i] = t == FORMAT_BF16 ? dtype_f32_to_bf16(x[i]) : dtype_f32_to_f16(x[i]);
    free(x);
    return (struct matrix){ .data = h, .format = t, .rows = rows, .cols = cols };
}

static void matrix_free(struct matrix *w)
{
    free((void *)w->data);
}

static double weight_at(const struct matrix *w, uint64_t row, uint64_t col)
{
    return dtype_get(format_dtype(w->format), w->data, row * w->cols + col);
}

/* The largest |got - want| / (1 + |want|). */
static double furthest(const float *got, const double *want, size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]) / (1 + fabs(want[i]));

        if (!(d <= most)) /* NaN counts as far */
            most = isnan(d) ? INFINITY : d;
    }
    return most;
}

/* ---- threads ---- */

enum { TASKS = 1000 };

static void count_task(void *arg, size_t task, int thread)
{
    int *seen = arg; /* [threads][TASKS] */

    seen[(size_t)thread * TASKS + task]++;
}

static void tasks_run_once(int threads)
{
    struct device *d = device_new(threads);
    int *seen = xcalloc((size_t)threads * TASKS, sizeof(*seen)), wrong = 0;

    for (int round = 1; round <= 200; round++) {
        size_t tasks = (size_t)(round * 7 % TASKS);

        memset(seen, 0, (size_t)threads * TASKS * sizeof(*seen));
        cpu_parallel(d, tasks, count_task, seen);
        for (size_t t = 0; t < TASKS; t++) {
            int times = 0;

            for (int i = 0; i < threads; i++)
                times += seen[(size_t)i * TASKS + t];
            wrong += times != (t < tasks);
        }
    }
    tap_ok(wrong == 0, "%d threads run every task once", threads);
    free(seen);
    backend_cpu.close(d);
}

/* ---- products ---- */

typedef int product_fn(struct device *d, float *y, const float *x, size_t rows,
                       const struct matrix *w, const struct sum_tree *tree,
                       struct err *err);

/* x w^T, or x w, over the length of the sums' terms: errors are relative to it. */
static void product_by_hand(double *y, double *size, const float *x, size_t rows,
                            const struct matrix *w, bool transposed)
{
    uint64_t in = transposed ? w->cols : w->rows, out = transposed ? w->rows : w->cols;

    for (size_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < out; j++) {
            double sum = 0, squares = 0;

            for (uint64_t k = 0; k < in; k++) {
                double term = (double)x[i * in + k] *
                              (transposed ? weight_at(w, j, k) : weight_at(w, k, j));

                sum += term;
                squares += term * term;
            }
            y[i * out + j] = sum;
            size[i * out + j] = sqrt(squares);
        }
}

struct product_result {
    double error; /* the largest, relative to the terms */
    bool same;    /* for every number of threads */
    bool alone;   /* each row as when it is made by itself */
    bool older;   /* by older loops, but for products of pairs of bf16 */
};

static int rounded(struct device *d, float *y, const float *x, size_t rows,
                   const struct matrix *w, const struct sum_tree *tree, struct err *err)
{
    return cpu_linear_rounded(d, y, x, FORMAT_F32, rows, w, tree, err);
}

static int amx_rows(struct device *d, float *y, const float *x, size_t rows,
                    const struct matrix *w, const struct sum_tree *tree,
                    struct err *err)
{
    (void)tree;
    return cpu_amx_rows(d, y, x, FORMAT_F32, rows, w, err);
}

static int transposed_matmul(struct device *d, float *y, const float *x, size_t rows,
                             const struct matrix *w, const struct sum_tree *tree,
                             struct err *err)
{
    (void)tree;
    return cpu_transposed_matmul(d, y, x, rows, w, err);
}

static int transposed_linear(struct device *d, float *y, const float *x, size_t rows,
                             const struct matrix *w, const struct sum_tree *tree,
                             struct err *err)
{
    (void)tree;
    return cpu_transposed_linear(d, y, x, FORMAT_F32, rows, w, err);
}

enum product {
    MATMUL,
    LINEAR,
    ROUNDED,
    AMX_ROWS_LINEAR,
    TRANSPOSED,
    TRANSPOSED_LINEAR
};

static product_fn *const product_of[] = {
    [MATMUL] = cpu_matmul,
    [LINEAR] = cpu_linear,
    [ROUNDED] = rounded,
    [AMX_ROWS_LINEAR] = amx_rows,
    [TRANSPOSED] = transposed_matmul,
    [TRANSPOSED_LINEAR] = transposed_linear,
};

static const char *const product_names[] = { "matmul",
                                             "linear",
                                             "rounded",
                                             "rounded, by tiles",
                                             "rounded, transposed",
                                             "rounded, transposed linear" };

/* Can this machine make it? */
static bool product_runs(enum product how)
{
    const uint16_t one = 0x3f80;
    const struct matrix w = {
        .data = &one, .format = FORMAT_BF16, .rows = 1, .cols = 1
    };
    const float x = 1;
    struct err err;
    float y;

    if ((how == AMX_ROWS_LINEAR && !cpu_has_amx_rows(SIZE_MAX, &w)) ||
        (how >= TRANSPOSED && !cpu_has_transposed_matmul(SIZE_MAX, &w)))
        return false;
    return product_of[how](team, &y, &x, 1, &w, NULL, &err) == 0;
}

/* Does the compiler round a product and a sum once, as newer loops do?  Not when it
 * hardly optimizes. */
CPU_CLONES static bool clones_fuse(const float *a, const float *b, const float *c)
{
    float sum[VEC];

    for (int i = 0; i < VEC; i++)
        sum[i] = a[i] * b[i] + c[i];
    return sum[VEC - 1] == fmaf(a[VEC - 1], b[VEC - 1], c[VEC - 1]);
}

static bool loops_agree(void)
{
    float a[VEC], c[VEC];

    for (int i = 0; i < VEC; i++) {
        a[i] = 1 + 0x1p-12f;
        c[i] = -1 - 0x1p-11f;
    }
    return clones_fuse(a, a, c);
}

/* BYTES that end where memory does that may not be read; freed with guarded_free. */
static char *guarded_new(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (bytes + page - 1) / page * page;
    char *p = mmap(NULL, all + page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED || mprotect(p + all, page, PROT_NONE) < 0)
        abort();
    return p + (all - bytes);
}

static void guarded_free(char *p, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (bytes + page - 1) / page * page;

    munmap(p + bytes - all, all + page);
}

static struct product_result try_product(enum format t, enum product how, size_t rows,
                                         uint64_t in, uint64_t out)
{
    product_fn *product = product_of[how];
    bool transposed = how != MATMUL && how != TRANSPOSED;
    struct matrix w =
        transposed ? matrix_new(t, out, in, 1) : matrix_new(t, in, out, 1);
    size_t n = rows * (size_t)out, bytes = (size_t)(in * out) * format_bits(t) / 8;
    void *owned = (void *)(uintptr_t)w.data;
    char *last = guarded_new(bytes); /* nothing is read behind the weights */
    float *x = numbers_new(rows * (size_t)in, 2),
          *first = xcalloc(n + 1, sizeof(*first)), *y = xcalloc(n + 1, sizeof(*y));
    double *want = xcalloc(n + 1, sizeof(*want)), *size = xcalloc(n + 1, sizeof(*size));
    struct product_result r = { .same = true, .alone = true, .older = true };
    const enum cpu_loops newest = cpu_has();
    struct err err;
    float *taken;

    w.data = memcpy(last, owned, bytes);
    taken = how >= ROUNDED ? rounded_new(x, rows * (size_t)in) : NULL;
    product_by_hand(want, size, taken ? taken : x, rows, &w, transposed);
    free(taken);
    for (int i = 0; i < NTHREADS; i++) {
        struct device *d = device_new(thread_counts[i]);

        memset(y, 0xff, n * sizeof(*y));
        device_keep(d, i % AUTOTUNE_WAYS);
        if (product(d, i ? y : first, x, rows, &w, NULL, &err) < 0)
            r.same = false;
        if (i && memcmp(first, y, n * sizeof(*y)) != 0)
            r.same = false;
        for (size_t k = 0; k < rows && i < 2; k++) {
            device_keep(d, (int)k % AUTOTUNE_WAYS);
            if (product(d, y, x + k * in, 1, &w, NULL, &err) < 0 ||
                memcmp(first + k * out, y, out * sizeof(*y)) != 0)
                r.alone = false;
        }
        backend_cpu.close(d);
    }
    for (int loops = loops_agree() ? CPU_ANY : CPU_AVX2;
         how <= LINEAR && loops < (int)newest; loops++) {
        cpu_newest = (enum cpu_loops)loops;
        if (product(team, y, x, rows, &w, NULL, &err) < 0 ||
            memcmp(first, y, n * sizeof(*y)) != 0)
            r.older = false;
        cpu_newest = newest;
    }
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)first[i] - want[i]) / (size[i] + 1e-30);

        if (!(d <= r.error))
            r.error = isnan(d) ? INFINITY : d;
    }
    guarded_free(last, bytes);
    w.data = owned;
    matrix_free(&w);
    free(x);
    free(first);
    free(y);
    free(want);
    free(size);
    return r;
}

static void products_are_right(enum product how)
{
    static const size_t rows[] = { 1, 2, 7, 8, 9, 25, 33 };
    static const uint64_t shape[][2] = { { 1, 1 },     { 3, 5 },     { 17, 33 },
                                         { 64, 100 },  { 257, 130 }, { 1100, 40 },
                                         { 40, 1100 }, { 70, 1 } };
    const char *name = product_names[how];

    if (!product_runs(how)) {
        printf("# skipped: %s\n", name);
        return;
    }
    for (int t = how >= ROUNDED; t < (how >= ROUNDED ? 2 : NDTYPES); t++) {
        double worst = 0;
        bool same = true, alone = true, older = true;

        for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
            for (size_t s = 0; s < sizeof(shape) / sizeof(*shape); s++) {
                struct product_result result =
                    try_product(dtypes[t], how, rows[r], shape[s][0], shape[s][1]);

                worst = result.error > worst ? result.error : worst;
                if (!result.same)
                    printf("# %s: %zu rows, %llu to %llu\n", name, rows[r],
                           (unsigned long long)shape[s][0],
                           (unsigned long long)shape[s][1]);
                same &= result.same;
                alone &= result.alone;
                older &= result.older;
            }
        if (!tap_ok(worst < 5e-6, "%s in %s is the sum of products", name,
                    format_name(dtypes[t])))
            printf("# error %g\n", worst);
        tap_ok(same, "%s in %s is the same for any number of threads", name,
               format_name(dtypes[t]));
        tap_ok(alone, "%s in %s gives a row the same bits alone and among others", name,
               format_name(dtypes[t]));
        if (how <= LINEAR)
            tap_ok(older, "%s in %s has the same bits by older loops", name,
                   format_name(dtypes[t]));
    }
}

/* Of so many rows and terms the weights are copied, several times. */
static void many_rows_by_columns(void)
{
    struct product_result r[4] = { try_product(FORMAT_F32, MATMUL, 131, 530, 140),
                                   try_product(FORMAT_BF16, MATMUL, 131, 530, 140) };
    int n = 2;

    for (int how = TRANSPOSED; how <= TRANSPOSED_LINEAR && product_runs(how); how++)
        r[n++] = try_product(FORMAT_BF16, how, 131, 530, 140);
    for (int i = 0; i < n; i++) {
        tap_ok(r[i].error < 5e-6, "many rows by columns, %d: the sum of products", i);
        tap_ok(r[i].same && r[i].alone && r[i].older,
               "many rows by columns, %d: the same bits alone", i);
    }
}

/* Sums so long, and outputs so few, that a library would share out the sum. */
static void long_sums_do_not_depend_on_threads(void)
{
    bool same = true, alone = true;

    for (int t = 0; t < NDTYPES; t++) {
        struct product_result long_sum = try_product(dtypes[t], LINEAR, 16, 9000, 24);

        same &= long_sum.same;
        alone &= long_sum.alone;
        same &= try_product(dtypes[t], MATMUL, 16, 9000, 24).same;
    }
    for (int how = ROUNDED; how <= AMX_ROWS_LINEAR; how++)
        if (product_runs(how)) {
            struct product_result long_sum =
                try_product(FORMAT_BF16, how, 16, 9000, 24);

            same &= long_sum.same;
            alone &= long_sum.alone;
        }
    tap_ok(same, "a long sum into few outputs is the same for any number of threads");
    tap_ok(alone, "a long sum has the same bits alone, however its weights are read");
}

/* Ways are tried in turns, by products that are large enough; the fastest is kept. */
static void fastest_way_is_kept(void)
{
    static const double seconds[AUTOTUNE_WAYS] = { 3, 1, 2, 4 };
    const uint64_t bytes = AUTOTUNE_LEAST_BYTES;
    bool turns = true, kept = true;

    for (int n = 2; n <= AUTOTUNE_WAYS; n++) {
        struct autotune w = { 0 };

        (void)autotune_next(&w, n, bytes - 1);
        autotune_note(&w, n, bytes - 1, 1e-6);
        for (int i = 0; i < n * AUTOTUNE_TRIES * AUTOTUNE_EACH; i++) {
            int try = i / AUTOTUNE_EACH, way = autotune_next(&w, n, bytes);

            turns &= i % AUTOTUNE_EACH || way == try % n;
            /* some that were disturbed, and one whose weights were near */
            autotune_note(&w, n, bytes,
                          i % AUTOTUNE_EACH ? 1e-6
                          : try < 17 * n    ? 9 * seconds[way]
                          : try == 20 * n   ? 1e-6
                                            : seconds[way]);
        }
        for (int i = 0; i < n * AUTOTUNE_EACH; i++) {
            kept &= autotune_next(&w, n, bytes) == 1 && autotune_next(&w, n, 1) == 1;
            autotune_note(&w, n, bytes, 1e-6);
        }
    }
    tap_ok(turns, "ways of a product are tried in turns");
    tap_ok(kept, "and the fastest is kept");
}

/* A panel of weights is widened at a time: more than one of them. */
static void panels_join(void)
{
    double linear = 0, matmul = 0;

    bool alone = true;

    for (int t = 0; t < NDTYPES; t++) {
        struct product_result r = try_product(dtypes[t], LINEAR, 9, 3000, 700);

        alone &= r.alone && try_product(dtypes[t], LINEAR, 16, 1030, 75).alone;
        linear = fmax(linear, r.error);
        /* blocks of rows, of which the last has too few */
        r = try_product(dtypes[t], LINEAR, 517, 1030, 131);
        alone &= r.alone && r.same;
        linear = fmax(linear, r.error);
        matmul = fmax(matmul, try_product(dtypes[t], MATMUL, 9, 3000, 700).error);
    }
    /* chunks and blocks of rows, and stretches */
    for (enum product how = ROUNDED; how <= AMX_ROWS_LINEAR; how++) {
        struct product_result r = { .same = true, .alone = true };

        if (product_runs(how))
            r = try_product(FORMAT_BF16, how, 530, 4100, 50);
        tap_ok(r.error < 2e-5 && r.same, "%s of many rows joins its tasks",
               product_names[how]);
        alone &= r.alone;
        /* whole tiles of weights, as they lie or copied */
        for (size_t rows = 40; rows <= 80 && product_runs(how); rows += 40) {
            r = try_product(FORMAT_BF16, how, rows, 4096, 150);
            alone &= r.alone && r.same;
            linear = fmax(linear, r.error);
        }
    }
    tap_ok(linear < 2e-5, "linear of a large weight joins its panels");
    tap_ok(matmul < 2e-5, "matmul of a large weight joins its panels");
    tap_ok(alone, "eight rows at a time have the bits of each row");
}

/* The columns (or, of x w, rows) of W from FIRST on. */
static struct matrix part_new(const struct matrix *w, bool transposed, uint64_t first,
                              uint64_t n)
{
    size_t unit = (size_t)format_bits(w->format) / 8;
    uint64_t cols = transposed ? n : w->cols, rows = transposed ? w->rows : n;
    char *data = xcalloc((size_t)(rows * cols), unit);

    for (uint64_t i = 0; i < rows; i++)
        memcpy(data + i * cols * unit,
               (const char *)w->data +
                   (transposed ? i * w->cols + first : (first + i) * w->cols) * unit,
               cols * unit);
    return (
        struct matrix){ .data = data, .format = w->format, .rows = rows, .cols = cols };
}

/* A tree of N leaves, a power of two, of EACH columns. */
static struct sum_tree tree_of(int n, uint64_t each)
{
    struct sum_tree t = { .n = n };

    for (int i = 0; i < n; i++) {
        t.leaf[i].cols = each;
        for (int k = i + 1; k % 2 == 0; k /= 2)
            t.leaf[i].adds++;
    }
    return t;
}

/* By a tree of 8 leaves: bits are those of the sum of halves by trees of 4, of
 * quarters' by trees of 2, of those of one leaf, and of each row alone. */
static bool tree_is_that_of_parts(enum format t, enum product how, size_t rows)
{
    enum { IN = 8 * 150, OUT = 61 };
    product_fn *product = product_of[how];
    bool transposed = how != MATMUL;
    struct matrix w =
        transposed ? matrix_new(t, OUT, IN, 1) : matrix_new(t, IN, OUT, 1);
    float *x = numbers_new(rows * IN, 2), *part = xcalloc(rows * IN, sizeof(*part)),
          *y = xcalloc(rows * OUT, sizeof(*y)), *z = xcalloc(rows * OUT, sizeof(*z));
    const struct sum_tree tree = tree_of(8, IN / 8);
    float *sum[8];
    struct err err;
    bool same = product(team, y, x, rows, &w, &tree, &err) == 0;

    for (size_t i = 0; i < rows; i++)
        same &= product(team, z, x + i * IN, 1, &w, &tree, &err) == 0 &&
                !memcmp(z, y + i * OUT, OUT * sizeof(*y));
    for (size_t n = 2; n <= 8; n *= 2) {
        const struct sum_tree sub = tree_of((int)(8 / n), IN / 8);

        for (size_t p = 0; p < n; p++) {
            struct matrix own = part_new(&w, transposed, p * (IN / n), IN / n);

            for (size_t i = 0; i < rows; i++)
                memcpy(part + i * (IN / n), x + i * IN + p * (IN / n),
                       IN / n * sizeof(*x));
            sum[p] = xcalloc(rows * OUT, sizeof(**sum));
            same &= product(team, sum[p], part, rows, &own, &sub, &err) == 0;
            matrix_free(&own);
        }
        for (size_t step = 1; step < n; step *= 2)
            for (size_t p = 0; p < n; p += 2 * step)
                for (size_t i = 0; i < rows * OUT; i++)
                    sum[p][i] += sum[p + step][i];
        same &= !memcmp(sum[0], y, rows * OUT * sizeof(*y));
        for (size_t p = 0; p < n; p++)
            free(sum[p]);
    }
    free(x);
    free(part);
    free(y);
    free(z);
    matrix_free(&w);
    return same;
}

static void trees_join(void)
{
    static const size_t rows[] = { 1, 2, 9, 40, 517 };

    for (int t = 0; t < NDTYPES; t++) {
        bool same = true;

        for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
            same &= tree_is_that_of_parts(dtypes[t], LINEAR, rows[r]) &&
                    tree_is_that_of_parts(dtypes[t], MATMUL, rows[r]) &&
                    (dtypes[t] != FORMAT_BF16 ||
                     tree_is_that_of_parts(FORMAT_BF16, ROUNDED, rows[r]));
        tap_ok(same, "in %s parts of a tree of sums add up to its bits",
               format_name(dtypes[t]));
    }
}

/* By a weight of 1: of all exponents and signs, ties and what is beside them. */
static void numbers_are_rounded(void)
{
    static const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
    enum { LOWS = sizeof(low) / sizeof(*low), COUNT = (1 << 16) * LOWS };
    float *x = xcalloc(COUNT, sizeof(*x)), *y = xcalloc(COUNT, sizeof(*y));
    const uint16_t one = 0x3f80;
    const struct matrix w = {
        .data = &one, .format = FORMAT_BF16, .rows = 1, .cols = 1
    };
    struct err err;
    int wrong = 0;

    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t bits = i / LOWS << 16 | low[i % LOWS];

        memcpy(&x[i], &bits, sizeof(bits));
    }
    wrong += cpu_linear_rounded(team, y, x, FORMAT_F32, COUNT, &w, NULL, &err) < 0;
    for (size_t i = 0; i < COUNT; i++) {
        float want = dtype_bf16_to_f32(dtype_f32_to_bf16(x[i]));

        if (fabsf(want) < 0x1p-126f) /* or zero, where the CPU multiplies pairs */
            wrong += !(fabsf(y[i]) < 0x1p-126f);
        else
            wrong += isnan(want) ? !isnan(y[i]) : y[i] != want;
    }
    tap_ok(!wrong, "every kind of number is rounded to the nearest bf16, ties to even");
    free(x);
    free(y);
}

static void no_rows_give_nothing(void)
{
    struct matrix none = { .data = "", .format = FORMAT_F32, .cols = 3 };
    float y[6] = { 1, 1, 1, 1, 1, 1 };
    struct err err;

    tap_ok(cpu_matmul(team, y, NULL, 2, &none, NULL, &err) == 0 && y[0] == 0 &&
               y[5] == 0,
           "matmul by a part without rows is zero, a sum's share of nothing");
    tap_ok(cpu_linear(team, NULL, y, 2, &none, NULL, &err) == 0,
           "linear by a part without rows writes nothing");
}

/* Every 16-bit pattern goes through the vector loop, alone in a row of zeros. */
static void every_pattern_is_widened(enum format t)
{
    enum { COUNT = 1 << 16, COLS = 64 };
    uint16_t *h = xcalloc((size_t)COUNT * COLS, sizeof(*h));
    float *y = xcalloc(COUNT, sizeof(*y)), x[COLS];
    struct matrix w = { .data = h, .format = t, .rows = COUNT, .cols = COLS };
    struct err err;
    int wrong = 0;

    for (int i = 0; i < COLS; i++)
        x[i] = 1;
    for (int i = 0; i < COUNT; i++)
        h[i * COLS + i % COLS] = (uint16_t)i;
    wrong += cpu_linear(team, y, x, 1, &w, NULL, &err) < 0;
    for (int i = 0; i < COUNT; i++) {
        float want = t == FORMAT_F16 ? dtype_f16_to_f32((uint16_t)i)
                                     : dtype_bf16_to_f32((uint16_t)i);
        bool subnormal = t == FORMAT_BF16 && !(i & 0x7f80);

        if (!(isnan(want) ? isnan(y[i]) : y[i] == want) && !subnormal)
            wrong++;
    }
    tap_is_int(wrong, 0,
               t == FORMAT_F16 ? "every f16 is widened as it is"
                               : "every bf16 is widened as it is");
    free(h);
    free(y);
}

/* ---- rows of a table, rotation ---- */

static void embedding_takes_rows(void)
{
    static const int32_t index[] = { 4, 0, 6, 3 };

    for (int t = 0; t < NDTYPES; t++) {
        struct matrix w = matrix_new(dtypes[t], 4, 19, 3);
        float y[4 * 19];
        bool right = true;

        cpu_embedding(team, y, &w, (struct cpu_index){ index, 1, 0, -1 }, 4, 2,
                      5); /* rows 5 to 8 of the table */
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 19; k++) {
                int row = index[i] + 2 - 5;
                double want =
                    row < 0 || row > 3 ? 0 : weight_at(&w, (uint64_t)row, (uint64_t)k);

                right &= (double)y[i * 19 + k] == want;
            }
        tap_ok(right, "embedding in %s is the row, or zero where it is not held",
               format_name(dtypes[t]));
        matrix_free(&w);
    }
}

static void rope_turns_pairs(bool interleaved)
{
    enum { ROWS = 3, HEADS = 2, HEAD = 10, DIM = 6, COLS = HEADS * HEAD };
    const struct rope r = { .dim = DIM, .interleaved = interleaved };
    float *x = numbers_new(ROWS * COLS, 4), y[ROWS * COLS];
    float angles[ROWS * DIM];
    double want[ROWS * COLS];

    for (int i = 0; i < ROWS * DIM / 2; i++) {
        float *row = angles + i / (DIM / 2) * DIM;

        row[i % (DIM / 2)] = cosf((float)i);
        row[DIM / 2 + i % (DIM / 2)] = sinf((float)i);
    }
    for (int i = 0; i < ROWS * COLS; i++)
        want[i] = (double)x[i];
    for (int row = 0; row < ROWS; row++)
        for (int h = 0; h < HEADS; h++)
            for (int k = 0; k < DIM / 2; k++) {
                int base = row * COLS + h * HEAD;
                int i = base + (interleaved ? 2 * k : k);
                int j = base + (interleaved ? 2 * k + 1 : k + DIM / 2);
                double angle = row * DIM / 2 + k, a = (double)x[i], b = (double)x[j];

                want[i] = a * cos(angle) - b * sin(angle);
                want[j] = a * sin(angle) + b * cos(angle);
            }
    cpu_rope(team, y, x, ROWS, COLS, HEAD, &r, angles);
    tap_ok(furthest(y, want, ROWS * COLS) < 1e-6,
           "rope turns %s pairs and leaves the rest of a head",
           interleaved ? "neighbouring" : "half-apart");
    free(x);
}

/* ---- norms and elements ---- */

static void groups_are_normed(bool center, enum format t)
{
    enum { GROUPS = 5, WIDTH = 37, N = GROUPS * WIDTH };
    struct matrix w = matrix_new(t, 1, WIDTH, 5), b = matrix_new(t, 1, WIDTH, 6);
    float *x = numbers_new(N, 7), y[N];
    double sum[GROUPS], square[GROUPS], want[N];

    for (int i = 0; i < N; i++)
        x[i] += 3;
    for (int g = 0; g < GROUPS; g++) {
        double mean = 0, variance = 0;

        for (int i = 0; i < WIDTH && center; i++)
            mean += (double)x[g * WIDTH + i] / WIDTH;
        for (int i = 0; i < WIDTH; i++)
            variance += pow((double)x[g * WIDTH + i] - mean, 2) / WIDTH;
        for (int i = 0; i < WIDTH; i++)
            want[g * WIDTH + i] = ((double)x[g * WIDTH + i] - mean) / sqrt(variance) *
                                      (weight_at(&w, 0, (uint64_t)i) + 1) +
                                  weight_at(&b, 0, (uint64_t)i);
    }
    cpu_group_sum(team, sum, x, WIDTH, NULL, GROUPS, WIDTH);
    for (int g = 0; g < GROUPS; g++)
        sum[g] = center ? sum[g] / WIDTH : 0;
    cpu_group_sum(team, square, x, WIDTH, sum, GROUPS, WIDTH);
    for (int g = 0; g < GROUPS; g++)
        square[g] = 1 / sqrt(square[g] / WIDTH);
    cpu_group_scale(team, y, FORMAT_F32, x, center ? sum : NULL, square, GROUPS, WIDTH,
                    &w, 1, &b);
    tap_ok(furthest(y, want, N) < 1e-6, "%s norm with weights in %s",
           center ? "a layer" : "an RMS", format_name(t));
    matrix_free(&w);
    matrix_free(&b);
    free(x);
}

static void elements_are_added_and_scaled(void)
{
    enum { ROWS = 6, COLS = 11, N = ROWS * COLS };
    float *x = numbers_new(N, 9), *z = numbers_new(N, 10), y[7][N];
    struct matrix w = matrix_new(FORMAT_BF16, 1, COLS, 11);
    double want[7][N];

    cpu_add(team, y[0], x, z, N);
    cpu_mul(team, y[1], x, z, N);
    cpu_scale(team, y[2], x, 0.37, N);
    cpu_softcap(team, y[3], x, 1.5, N);
    cpu_add_vector(team, y[4], x, &w, ROWS);
    cpu_clip(team, y[5], x, -0.4, 0.4, N);
    cpu_mul_vector(team, y[6], x, &w, ROWS);
    for (int i = 0; i < N; i++) {
        want[0][i] = (double)x[i] + (double)z[i];
        want[1][i] = (double)x[i] * (double)z[i];
        want[2][i] = (double)x[i] * 0.37;
        want[3][i] = 1.5 * tanh((double)x[i] / 1.5);
        want[4][i] = (double)x[i] + weight_at(&w, 0, (uint64_t)(i % COLS));
        want[5][i] = fmax(-0.4, fmin(0.4, (double)x[i]));
        want[6][i] = (double)x[i] * weight_at(&w, 0, (uint64_t)(i % COLS));
    }
    tap_ok(furthest(y[0], want[0], N) < 1e-6, "values are added");
    tap_ok(furthest(y[1], want[1], N) < 1e-6, "values are multiplied");
    tap_ok(furthest(y[2], want[2], N) < 1e-6, "a value is scaled");
    tap_ok(furthest(y[3], want[3], N) < 1e-6, "a soft cap is its formula");
    tap_ok(furthest(y[4], want[4], N) < 1e-6, "a vector is added to every row");
    tap_ok(furthest(y[5], want[5], N) < 1e-6, "a value is clipped on both sides");
    tap_ok(furthest(y[6], want[6], N) < 1e-6, "a vector multiplies every row");
    matrix_free(&w);
    free(x);
    free(z);
}

/* ---- rows beside a row ---- */

enum { BESIDE_ROWS = 9, BESIDE_HEADS = 3, BESIDE_DIM = 2, BESIDE_TAPS = 5 };
enum { BESIDE_COLS = BESIDE_HEADS * BESIDE_DIM };

/* Row T + BY of two texts of 4 and 5 rows, or -1 beyond the text of row T. */
static int beside(int t, int by)
{
    int low = t < 4 ? 0 : 4, end = t < 4 ? 4 : BESIDE_ROWS;

    return t + by < low || t + by >= end ? -1 : t + by;
}

static double taps_by_hand(const float *x, const struct matrix *w, const float *s,
                           int t, int col)
{
    double sum = 0, total = 0;

    for (int k = 0; k < BESIDE_TAPS; k++) {
        int from = beside(t, k - BESIDE_TAPS / 2), head = col / BESIDE_DIM;
        double by = s ? exp((double)s[(t * BESIDE_HEADS + head) * BESIDE_TAPS + k])
                      : weight_at(w, (uint64_t)col, (uint64_t)k);

        total += by;
        sum += from < 0 ? 0 : by * (double)x[from * BESIDE_COLS + col];
    }
    return s ? sum / total : sum;
}

static void rows_beside_are_read(enum format dtype)
{
    enum { N = BESIDE_ROWS * BESIDE_COLS };
    static const int32_t first[] = { 0, 4 };
    float *x = numbers_new(N, 21), y[3][N];
    float *s = numbers_new(BESIDE_ROWS * BESIDE_HEADS * BESIDE_TAPS, 22);
    struct matrix w = matrix_new(dtype, BESIDE_COLS, BESIDE_TAPS, 23);
    struct inst inst = { .shift = -2 };
    struct cpu_taps c = { .x = x,
                          .scores = s,
                          .w = &w,
                          .from = { first, 2, BESIDE_ROWS },
                          .to = { first, 2, BESIDE_ROWS },
                          .cols = BESIDE_COLS };
    double want[3][N];
    struct err err;

    c.y = y[0];
    cpu_shift(team, &inst, &c);
    inst.taps.count = BESIDE_TAPS;
    inst.taps.heads = BESIDE_HEADS;
    inst.taps.dim = BESIDE_DIM;
    c.y = y[1];
    cpu_dynamic(team, &inst, &c);
    c.y = y[2];
    if (cpu_convolve(team, &inst, &c, &err) < 0)
        abort();
    for (int i = 0; i < N; i++) {
        int t = i / BESIDE_COLS, col = i % BESIDE_COLS, from = beside(t, -2);

        want[0][i] = from < 0 ? 0 : (double)x[from * BESIDE_COLS + col];
        want[1][i] = taps_by_hand(x, NULL, s, t, col);
        want[2][i] = taps_by_hand(x, &w, NULL, t, col);
    }
    tap_ok(furthest(y[0], want[0], N) == 0, "rows are moved within their text");
    tap_ok(furthest(y[1], want[1], N) < 1e-6, "a head's taps are softmaxes of scores");
    tap_ok(furthest(y[2], want[2], N) < 1e-6, "each column has its taps");
    matrix_free(&w);
    free(x);
    free(s);
}

/* Two texts of 4 and 5 rows, pooled as AT says to FEW and MADE - FEW rows, and made
 * rows of tokens again. */
static void try_pool(struct pooled_text at, bool most, int32_t few, size_t made,
                     const float *want, const float *back, const char *name)
{
    enum { N = 9 };
    static const int32_t first[] = { 0, 4 };
    static const float x[N] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    const int32_t pooled[] = { 0, few };
    struct inst inst = { .op = OP_POOL, .pool = { .at = at, .most = most } };
    float y[N], z[N];
    struct cpu_taps c = {
        .y = y, .x = x, .from = { first, 2, N }, .to = { pooled, 2, made }, .cols = 1
    };

    cpu_pool(team, &inst, &c);
    inst.op = OP_UNPOOL;
    c = (struct cpu_taps){
        .y = z, .x = y, .from = { pooled, 2, made }, .to = { first, 2, N }, .cols = 1
    };
    cpu_pool(team, &inst, &c);
    tap_ok(!memcmp(y, want, made * sizeof(*y)) && !memcmp(z, back, sizeof(z)), "%s",
           name);
}

static void rows_are_pooled(void)
{
    try_pool((struct pooled_text){ 1, true, true }, false, 2, 5,
             (float[]){ 1, 2.5f, 5, 6.5f, 8 },
             (float[]){ 1, 2.5f, 2.5f, 0, 5, 6.5f, 6.5f, 8, 8 },
             "pooled rows: the first stays apart, the last may be passed over");
    try_pool((struct pooled_text){ 1, true, false }, false, 3, 6,
             (float[]){ 1, 2.5f, 4, 5, 6.5f, 8.5f },
             (float[]){ 1, 2.5f, 2.5f, 4, 5, 6.5f, 6.5f, 8.5f, 8.5f },
             "pooled rows: or not");
    try_pool((struct pooled_text){ 1, false, false }, true, 2, 5,
             (float[]){ 2, 4, 6, 8, 9 }, (float[]){ 2, 2, 4, 4, 6, 6, 8, 8, 9 },
             "pooled rows: the largest of two");
}

/* ---- attention ---- */

/* The bias of the query in row I and head H for a key AWAY tokens before it. */
static double own_bias(const struct inst *inst, const struct attention_step *s,
                       size_t i, size_t h, long away)
{
    size_t buckets = inst->attention.span, exact = buckets / 2, at = (size_t)away;

    if (!s->biases || away < 0)
        return 0;
    if (at >= exact)
        at = exact + (size_t)(log((double)away / (double)exact) /
                              log((double)inst->attention.far / (double)exact) *
                              (double)(buckets - exact));
    at = at < buckets ? at : buckets - 1;
    return (double)s->biases[(i * inst->attention.heads + h) * buckets + at];
}

/* The key that only the query in row I sees: returns exp of its score. */
static double own_key(const float *q, const struct inst *inst,
                      const struct attention_step *s, size_t i, size_t h)
{
    size_t dim = inst->attention.head_dim, at = i * inst->attention.heads + h;
    double score = 0;

    for (size_t k = 0; k < dim; k++)
        score += (double)q[at * dim + k] * (double)s->own_k[at * dim + k];
    return exp(score * inst->attention.scale + own_bias(inst, s, i, h, 0));
}

/* How often the query at OWN counts key T of N in blocks: it sees its own block, those
 * beside it, the last, and the first, several times; those at both ends see all. */
static double seen_in_blocks(const struct attention_shape *a, size_t own, size_t t,
                             size_t n)
{
    size_t size = (size_t)a->block, last = (n + size - 1) / size - 1;
    long apart = (long)(own / size) - (long)(t / size);

    if (own < size || own / size == last)
        return 1;
    return t < size ? a->copies : labs(apart) < 2 || t / size == last;
}

static void attention_by_hand(double *y, const float *q, const struct inst *inst,
                              const struct attention_step *s)
{
    size_t heads = inst->attention.heads, kv_heads = inst->attention.kv_heads;
    size_t dim = inst->attention.head_dim, vdim = inst->attention.value_dim;
    size_t cols = inst->attention.value_cols;
    double *p = xcalloc(s->keys, sizeof(*p));

    for (size_t i = 0; i < s->rows; i++)
        for (size_t h = 0; h < heads; h++) {
            size_t kv = h / (heads / kv_heads);
            double own = s->own_k ? own_key(q, inst, s, i, h) : 0;
            double total = own, *out = y + (i * heads + h) * vdim;

            if (s->sinks)
                total = exp((double)((const float *)s->sinks->data)[h]);

            for (size_t t = 0; t < s->keys; t++) {
                long far = (long)(s->start + i) - (long)t;
                double score = 0;

                for (size_t k = 0; k < dim; k++)
                    score += (double)q[(i * heads + h) * dim + k] *
                             (double)s->k[(t * kv_heads + kv) * dim + k];
                score *= inst->attention.scale;
                score += own_bias(inst, s, i, h, far + (s->own_k != NULL));
                if (inst->attention.softcap > 0)
                    score =
                        inst->attention.softcap * tanh(score / inst->attention.softcap);
                p[t] = exp(score);
                if ((inst->attention.causal && far < 0) ||
                    (inst->attention.window &&
                     labs(far) >= (long)inst->attention.window))
                    p[t] = 0;
                if (inst->attention.block && s->keys > inst->attention.over)
                    p[t] *= seen_in_blocks(&inst->attention.shape, s->start + i, t,
                                           s->keys);
                total += p[t];
            }
            for (size_t k = 0; k < vdim; k++)
                out[k] = s->own_v ? own / total *
                                        (double)s->own_v[(i * heads + h) * vdim + k]
                                  : 0;
            for (size_t t = 0; t < s->keys; t++)
                for (size_t k = 0; k < vdim; k++)
                    out[k] +=
                        p[t] / total * (double)s->v[(t * kv_heads + kv) * cols + k];
        }
    free(p);
}

struct attention_case {
    const char *name;
    size_t rows, start; /* of the queries */
    uint64_t heads, kv_heads, dim, value_dim, window;
    double softcap;
    bool causal;
    uint64_t more;        /* columns of a head in v that are no values */
    uint64_t buckets;     /* of biases that each query brings; 0: none */
    bool own;             /* each query also has a key and a value of its own */
    uint64_t block, over; /* more keys than OVER are seen in blocks */
    double copies;
};

/* The same keys and values in blocks that do not follow each other. */
static void blocks_are_right(const struct attention_case *c, const struct inst *inst,
                             const float *q, const struct attention_step *s,
                             const double *want)
{
    enum { ROWS = 4, SKIP = 3 }; /* of a block; before the first key */
    size_t n = c->rows * c->heads * c->value_dim;
    size_t k_cols = c->kv_heads * c->dim,
           v_cols = c->kv_heads * (c->value_dim + c->more);
    size_t blocks = (SKIP + s->keys + ROWS - 1) / ROWS;
    float *k = xcalloc(blocks * ROWS * k_cols, sizeof(*k)),
          *v = xcalloc(blocks * ROWS * v_cols, sizeof(*v)), *y = xcalloc(n, sizeof(*y));
    int32_t *block = xcalloc(blocks, sizeof(*block));
    struct attention_step scattered = *s;
    struct err err;
    bool ok;

    for (size_t i = 0; i < blocks; i++) /* pairs follow each other, backwards */
        block[i] = (int32_t)((blocks - 1 - i) ^ (blocks % 2 == 0));
    for (size_t t = 0; t < s->keys; t++) {
        size_t row = (size_t)block[(SKIP + t) / ROWS] * ROWS + (SKIP + t) % ROWS;

        memcpy(k + row * k_cols, s->k + t * k_cols, k_cols * sizeof(*k));
        memcpy(v + row * v_cols, s->v + t * v_cols, v_cols * sizeof(*v));
    }
    scattered.k = k;
    scattered.v = v;
    scattered.key_row = SKIP;
    scattered.block = block;
    scattered.block_rows = ROWS;
    ok = cpu_attention(team, y, q, inst, &scattered, &err) == 0;
    tap_ok(ok && furthest(y, want, n) < 3e-6, "attention: %s: over scattered blocks",
           c->name);
    free(k);
    free(v);
    free(y);
    free(block);
}

static void attention_is_right(const struct attention_case *c)
{
    struct inst inst = { .op = OP_ATTENTION,
                         .attention = { .heads = c->heads,
                                        .kv_heads = c->kv_heads,
                                        .head_dim = c->dim,
                                        .value_dim = c->value_dim,
                                        .value_cols = c->value_dim + c->more,
                                        .scale = 0.4,
                                        .softcap = c->softcap,
                                        .window = c->window,
                                        .far = 40,
                                        .span = c->buckets,
                                        .block = c->block,
                                        .over = c->over,
                                        .copies = c->copies,
                                        .causal = c->causal } };
    size_t keys = c->start + c->rows, n = c->rows * c->heads * c->value_dim;
    float *q = numbers_new(c->rows * c->heads * c->dim, 12),
          *k = numbers_new(keys * c->kv_heads * c->dim, 13),
          *v = numbers_new(keys * c->kv_heads * (c->value_dim + c->more), 14),
          *biases = numbers_new(c->rows * c->heads * (c->buckets + 1), 15),
          *own = numbers_new(c->rows * c->heads * (c->dim + c->value_dim), 16),
          *first = xcalloc(n, sizeof(*first)), *y = xcalloc(n, sizeof(*y));
    double *want = xcalloc(n, sizeof(*want));
    struct attention_step s = { .rows = c->rows,
                                .start = c->start,
                                .keys = keys,
                                .k = k,
                                .v = v,
                                .biases = c->buckets ? biases : NULL,
                                .own_k = c->own ? own : NULL };
    size_t last = (c->rows - 1) * c->heads;
    struct err err;
    bool same = true;

    s.own_v = c->own ? own + c->rows * c->heads * c->dim : NULL;
    attention_by_hand(want, q, &inst, &s);
    for (int i = 0; i < NTHREADS; i++) {
        struct device *d = device_new(thread_counts[i]);

        memset(y, 0xff, n * sizeof(*y));
        same &= cpu_attention(d, i ? y : first, q, &inst, &s, &err) == 0;
        same &= !i || !memcmp(first, y, n * sizeof(*y));
        backend_cpu.close(d);
    }
    if (!tap_ok(furthest(first, want, n) < 3e-6, "attention: %s", c->name))
        printf("# error %g\n", furthest(first, want, n));
    tap_ok(same, "attention: %s: the same for any number of threads", c->name);
    s.rows = 1;
    s.start += c->rows - 1;
    s.biases = s.biases ? s.biases + last * c->buckets : NULL;
    s.own_k = s.own_k ? s.own_k + last * c->dim : NULL;
    s.own_v = s.own_v ? s.own_v + last * c->value_dim : NULL;
    n = c->heads * c->value_dim;
    for (int i = 0; i < NTHREADS; i++) {
        struct device *d = device_new(thread_counts[i]);

        same &= cpu_attention(d, y, q + (c->rows - 1) * c->heads * c->dim, &inst, &s,
                              &err) == 0 &&
                !memcmp(first + (c->rows - 1) * n, y, n * sizeof(*y));
        backend_cpu.close(d);
    }
    tap_ok(same, "attention: %s: the last query's bits are those of it alone", c->name);
    s.rows = c->rows;
    s.start = c->start;
    s.biases = c->buckets ? biases : NULL;
    s.own_k = c->own ? own : NULL;
    s.own_v = c->own ? own + c->rows * c->heads * c->dim : NULL;
    blocks_are_right(c, &inst, q, &s, want);
    free(q);
    free(k);
    free(v);
    free(biases);
    free(own);
    free(first);
    free(y);
    free(want);
}

/* The rows X as TO keeps them, and what they are then, in place. */
static void keep(struct buffer *to, float *x, size_t rows)
{
    uint64_t bytes = format_row_bytes(to->format, to->cols, to->width);

    to->data = xcalloc(rows, bytes);
    for (size_t i = 0; i < rows; i++) {
        char *row = (char *)to->data + i * bytes;

        cpu_cache_row(row, x + i * to->cols, to);
        cpu_cached(x + i * to->cols, row, 0, to->cols, to);
    }
}

/* Rounds N numbers to bf16. */
static void round_all(float *x, size_t n)
{
    float *rounded = rounded_new(x, n);

    memcpy(x, rounded, n * sizeof(*x));
    free(rounded);
}

/* Rounds queries to 16 bits, relative to the largest of each, as they are for products
 * of bytes. */
static void round_queries(float *q, size_t n, size_t dim)
{
    for (size_t i = 0; i < n; i++, q += dim) {
        float most = 0;

        for (size_t c = 0; c < dim; c++)
            most = fmaxf(most, fabsf(q[c]));
        for (size_t c = 0; c < dim; c++)
            q[c] = rintf(q[c] * (32767 / most)) * most / 32767;
    }
}

/* Attention of a case over keys and values in a cache of TYPE. */
struct cached_trial {
    size_t n; /* of the result */
    struct inst inst;
    float *q, *k, *v, *first, *y;
    double *want;
    struct buffer cached_k, cached_v;
    struct attention_step step;
};

/* If ROUND, the numbers are bf16; SINKS may be NULL. */
static void cached_open(struct cached_trial *t, const struct attention_case *c,
                        enum format type, bool round, const struct matrix *sinks)
{
    size_t keys = c->start + c->rows, nq = c->rows * c->heads * c->dim;
    uint64_t width = c->value_dim + c->more;
    uint64_t k_cols = c->kv_heads * c->dim, v_cols = c->kv_heads * width;
    float *q = xcalloc(nq, sizeof(*q)); /* as the loops take them */

    *t = (struct cached_trial){ .n = c->rows * c->heads * c->value_dim,
                                .inst = { .op = OP_ATTENTION,
                                          .attention = { .heads = c->heads,
                                                         .kv_heads = c->kv_heads,
                                                         .head_dim = c->dim,
                                                         .value_dim = c->value_dim,
                                                         .value_cols = width,
                                                         .scale = 0.4,
                                                         .softcap = c->softcap,
                                                         .window = c->window,
                                                         .causal = c->causal,
                                                         .sink_per =
                                                             c->heads / c->kv_heads } },
                                .q = numbers_new(nq, 12),
                                .k = numbers_new(keys * k_cols, 13),
                                .v = numbers_new(keys * v_cols, 14),
                                .cached_k = { NULL, NULL, keys, k_cols, type, c->dim },
                                .cached_v = { NULL, NULL, keys, v_cols, type, width } };
    t->first = xcalloc(t->n, sizeof(*t->first));
    t->y = xcalloc(t->n, sizeof(*t->y));
    t->want = xcalloc(t->n, sizeof(*t->want));
    if (round) {
        round_all(t->q, nq);
        round_all(t->k, keys * k_cols);
        round_all(t->v, keys * v_cols);
    }
    if (type != FORMAT_F32) {
        keep(&t->cached_k, t->k, keys);
        keep(&t->cached_v, t->v, keys);
    }
    t->step = (struct attention_step){ .rows = c->rows,
                                       .start = c->start,
                                       .keys = keys,
                                       .k = t->k,
                                       .v = t->v,
                                       .sinks = sinks,
                                       .rounded = round };
    memcpy(q, t->q, nq * sizeof(*q));
    if (type == FORMAT_CACHE_INT8 && cpu_has() == CPU_VNNI)
        round_queries(q, c->rows * c->heads, c->dim);
    attention_by_hand(t->want, q, &t->inst, &t->step);
    free(q);
    if (type != FORMAT_F32) {
        t->step.cached_k = &t->cached_k;
        t->step.cached_v = &t->cached_v;
        t->step.k = t->step.v = NULL;
    }
}

static void cached_close(struct cached_trial *t)
{
    free(t->cached_k.data);
    free(t->cached_v.data);
    free(t->q);
    free(t->k);
    free(t->v);
    free(t->first);
    free(t->y);
    free(t->want);
}

/* With numbers in bf16, by tiles: only weights are rounded.  Over a cache of TYPE. */
static void rounded_attention_is_right(const struct attention_case *c, enum format type)
{
    bool same = true, ran = true;
    struct cached_trial t;
    struct err err;
    double far;

    cached_open(&t, c, type, true, NULL);
    for (int i = 0; i < NTHREADS; i++) {
        struct device *d = device_new(thread_counts[i]);

        memset(t.y, 0xff, t.n * sizeof(*t.y));
        ran &= cpu_attention(d, i ? t.y : t.first, t.q, &t.inst, &t.step, &err) == 0;
        same &= !i || !memcmp(t.first, t.y, t.n * sizeof(*t.y));
        backend_cpu.close(d);
    }
    far = furthest(t.first, t.want, t.n);
    if (!tap_ok(ran && far < (type == FORMAT_CACHE_INT8 ? 2e-2 : 6e-3),
                "attention, rounded: %s, %s", c->name, format_name(type)))
        printf("# error %g\n", far);
    tap_ok(same, "attention, rounded: %s: the same for any number of threads", c->name);
    if (type == FORMAT_F32 && bf16tile_has() && c->rows >= 32)
        tap_ok(far > 3e-6, "attention, rounded: %s: it is", c->name);
    cached_close(&t);
}

/* Products by pairs, of whole numbers, whose sums are exact: Y has no other numbers
 * written. */
static void pairs_are_right(void)
{
    enum { STEPS = 3, TERMS = STEPS * AMX_SIDE - 5, STRIDE = AMX_SIDE + 3 };
    static const size_t counts[] = { 1, 7, 8, 9, 16, 17, 31, 32 };
    enum { N = sizeof(counts) / sizeof(*counts) };
    float x[AMX_SIDE * TERMS], w[AMX_SIDE * STEPS * AMX_SIDE], y[AMX_SIDE * STRIDE];
    uint16_t packed[STEPS * AMX_SIDE * AMX_SIDE], rounded[AMX_SIDE * STEPS * AMX_SIDE];
    bool right = true, kept = true;

    for (size_t i = 0; i < sizeof(x) / sizeof(*x); i++)
        x[i] = (float)(i * 7 % 23) - 11;
    for (size_t i = 0; i < sizeof(w) / sizeof(*w); i++)
        w[i] = (float)(i * 5 % 17) - 8;
    for (size_t i = 0; i < (size_t)N * N && avx512bf16_has(); i++) {
        const size_t rows = counts[i / N], outs = counts[i % N];
        struct amx_product p = { .w = rounded,
                                 .w_stride = (size_t)STEPS * AMX_SIDE,
                                 .x = packed,
                                 .steps = STEPS,
                                 .rows = rows,
                                 .outs = outs,
                                 .y = y,
                                 .y_stride = STRIDE,
                                 .transposed = true };

        amx_pack(packed, x, TERMS, rows, TERMS, STEPS);
        amx_round(rounded, w, sizeof(w) / sizeof(*w));
        memset(y, 0xff, sizeof(y));
        avx512bf16_multiply(&p);
        for (size_t o = 0; o < AMX_SIDE; o++)
            for (size_t r = 0; r < STRIDE; r++) {
                float sum = 0;

                for (size_t k = 0; k < TERMS && o < outs && r < rows; k++)
                    sum += w[o * STEPS * AMX_SIDE + k] * x[r * TERMS + k];
                if (o < outs && r < rows)
                    right &= y[o * STRIDE + r] == sum;
                else
                    kept &= isnan(y[o * STRIDE + r]);
            }
    }
    tap_ok(right, "products by pairs are right");
    tap_ok(kept, "products by pairs write only their numbers");
}

static void attentions_are_right(void)
{
    static const struct attention_case cases[] = {
        { "a prompt", 90, 0, 4, 4, 16, 16, 0, 0, true, 0, 0, false, 0, 0, 0 },
        { "one new token", 1, 70, 4, 2, 24, 24, 0, 0, true, 0, 0, false, 0, 0, 0 },
        { "a chunk after a chunk", 75, 66, 6, 2, 8, 8, 0, 0, true, 0, 0, false, 0, 0,
          0 },
        { "an encoder", 70, 0, 3, 3, 10, 10, 0, 0, false, 0, 0, false, 0, 0, 0 },
        { "a sliding window", 140, 20, 2, 1, 12, 12, 9, 0, true, 0, 0, false, 0, 0, 0 },
        { "one new token in a window", 1, 50, 2, 1, 12, 12, 9, 0, true, 0, 0, false, 0,
          0, 0 },
        { "a window to both sides", 100, 0, 2, 2, 12, 12, 7, 0, false, 0, 0, false, 0,
          0, 0 },
        { "a soft cap", 67, 0, 2, 2, 12, 12, 0, 1.3, true, 0, 0, false, 0, 0, 0 },
        { "values narrower than keys", 65, 3, 2, 2, 20, 6, 0, 0, true, 0, 0, false, 0,
          0, 0 },
        { "values among other columns", 70, 0, 4, 2, 20, 6, 0, 0, true, 5, 0, false, 0,
          0, 0 },
        { "one token's among others", 1, 9, 4, 1, 20, 6, 0, 0, true, 5, 0, false, 0, 0,
          0 },
        { "one of many heads", 1, 300, 20, 4, 64, 64, 0, 0, true, 0, 0, false, 0, 0,
          0 },
        { "many heads", 7, 130, 20, 4, 64, 64, 0, 0, true, 0, 0, false, 0, 0, 0 },
        { "one of many heads and one of keys", 1, 200, 14, 1, 32, 48, 0, 0, true, 0, 0,
          false, 0, 0, 0 },
        { "many heads and one of keys", 3, 200, 14, 1, 32, 48, 0, 0, true, 0, 0, false,
          0, 0, 0 },
        { "a single token", 1, 0, 5, 5, 7, 7, 0, 0, true, 0, 0, false, 0, 0, 0 },
        { "biases of each query", 90, 5, 3, 3, 9, 9, 0, 0, true, 0, 12, false, 0, 0,
          0 },
        { "keys that only their query sees", 70, 0, 3, 3, 9, 9, 0, 0, true, 0, 12, true,
          0, 0, 0 },
        { "one query with its key", 1, 65, 4, 4, 8, 8, 0, 0, true, 0, 8, true, 0, 0,
          0 },
        { "a text in blocks", 333, 0, 3, 3, 10, 10, 0, 0, false, 0, 0, false, 16, 80,
          3 },
        { "a text in blocks, the last whole", 352, 0, 2, 1, 8, 8, 0, 0, false, 0, 0,
          false, 32, 300, 1 },
        { "blocks of one token", 90, 0, 1, 1, 6, 6, 0, 0, false, 0, 0, false, 1, 6, 2 },
        { "few blocks", 70, 0, 1, 1, 6, 6, 0, 0, false, 0, 0, false, 20, 69, 4 },
        { "a text that is too short for blocks", 80, 0, 1, 1, 6, 6, 0, 0, false, 0, 0,
          false, 16, 80, 3 },
    };
    static const struct attention_case rounded[] = {
        { "a prompt", 150, 0, 4, 2, 64, 64, 0, 0, true, 0, 0, false, 0, 0, 0 },
        { "a chunk after a chunk", 75, 66, 6, 2, 40, 40, 0, 0, true, 0, 0, false, 0, 0,
          0 },
        { "an encoder", 70, 0, 3, 3, 10, 10, 0, 0, false, 0, 0, false, 0, 0, 0 },
        { "a sliding window", 140, 20, 2, 1, 12, 12, 9, 0, true, 0, 0, false, 0, 0, 0 },
        { "a soft cap", 67, 0, 2, 2, 32, 96, 0, 1.3, true, 0, 0, false, 0, 0, 0 },
        { "values among other columns", 65, 3, 2, 2, 20, 6, 0, 0, true, 10, 0, false, 0,
          0, 0 },
        { "few queries", 3, 200, 4, 2, 32, 32, 0, 0, true, 0, 0, false, 0, 0, 0 },
    };
    static const enum format types[] = { FORMAT_F32, FORMAT_BF16, FORMAT_CACHE_INT8 };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        attention_is_right(&cases[i]);
    for (size_t i = 0; i < sizeof(rounded) / sizeof(*rounded); i++)
        for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++)
            rounded_attention_is_right(&rounded[i], types[t]);
}

/* Are T's results the same if the rows lie in blocks, backwards, the first key in the
 * last row? */
static bool scattered_is_same(const struct cached_trial *t, size_t from, size_t rows)
{
    enum { ROWS = 5, SKIP = ROWS - 1 }; /* of a block; before the first key */
    size_t blocks = (SKIP + t->step.keys + ROWS - 1) / ROWS, one = t->n / t->step.rows;
    const struct buffer *plain[] = { &t->cached_k, &t->cached_v };
    struct buffer moved[2] = { t->cached_k, t->cached_v };
    struct attention_step step = t->step;
    int32_t *block = xcalloc(blocks, sizeof(*block));
    uint64_t bytes[2];
    struct err err;
    bool same;

    for (size_t i = 0; i < blocks; i++)
        block[i] = (int32_t)(blocks - 1 - i);
    for (int side = 0; side < 2; side++) {
        bytes[side] =
            format_row_bytes(moved[side].format, moved[side].cols, moved[side].width);
        moved[side].data = guarded_new(blocks * ROWS * bytes[side]);
        for (size_t key = 0; key < t->step.keys; key++) {
            size_t at = SKIP + key, row = (size_t)block[at / ROWS] * ROWS + at % ROWS;

            memcpy((char *)moved[side].data + row * bytes[side],
                   (char *)plain[side]->data + key * bytes[side], bytes[side]);
        }
    }
    step.cached_k = &moved[0];
    step.cached_v = &moved[1];
    step.key_row = SKIP;
    step.block = block;
    step.block_rows = ROWS;
    step.start += from;
    step.rows = rows;
    same = cpu_attention(
               team, t->y,
               t->q + from * (t->inst.attention.heads * t->inst.attention.head_dim),
               &t->inst, &step, &err) == 0 &&
           !memcmp(t->y, t->first + from * one, rows * one * sizeof(*t->y));
    for (int side = 0; side < 2; side++)
        guarded_free(moved[side].data, blocks * ROWS * bytes[side]);
    free(block);
    return same;
}

/* Keys and values in a cache of TYPE: by the last query alone, and among others. */
static void cache_is_right(const struct attention_case *c, enum format type)
{
    size_t one = c->heads * c->value_dim, last = (c->rows - 1) * one;
    float *sinks = numbers_new(c->heads, 15);
    const struct matrix sink = {
        .data = sinks, .format = FORMAT_F32, .rows = 1, .cols = c->heads
    };
    const enum cpu_loops newest = cpu_newest;
    struct cached_trial t;
    bool same = true;
    struct err err;

    cached_open(&t, c, type, false, &sink);
    for (int i = 0; i < NTHREADS; i++) {
        struct device *d = device_new(thread_counts[i]);
        struct attention_step alone = t.step;

        same &= cpu_attention(d, i ? t.y : t.first, t.q, &t.inst, &t.step, &err) == 0;
        same &= !i || !memcmp(t.first, t.y, t.n * sizeof(*t.y));
        alone.rows = 1;
        alone.start += c->rows - 1;
        same &= cpu_attention(d, t.y, t.q + (c->rows - 1) * c->heads * c->dim, &t.inst,
                              &alone, &err) == 0;
        same &= !memcmp(t.first + last, t.y, one * sizeof(*t.y));
        backend_cpu.close(d);
    }
    for (int loops = loops_agree() ? CPU_ANY : CPU_AVX2; loops < (int)newest; loops++) {
        if (type == FORMAT_CACHE_INT8 && cpu_has() == CPU_VNNI)
            break; /* they round queries; the others do not */
        cpu_newest = (enum cpu_loops)loops;
        same &= cpu_attention(team, t.y, t.q, &t.inst, &t.step, &err) == 0;
        same &= !memcmp(t.first, t.y, t.n * sizeof(*t.y));
        cpu_newest = newest;
    }
    if (type != FORMAT_F32)
        same &=
            scattered_is_same(&t, 0, c->rows) && scattered_is_same(&t, c->rows - 1, 1);
    if (!tap_ok(same && furthest(t.first, t.want, t.n) < 3e-6,
                "a cache of %s: %s, with the same bits alone, among others, in blocks, "
                "for any number of threads and with older loops",
                format_name(type), c->name))
        printf("# error %g%s\n", furthest(t.first, t.want, t.n),
               same ? "" : ", other bits");
    free(sinks);
    cached_close(&t);
}

/* A cache of 8 bits: a query that is no number, one of zeros, and values that are none.
 */
static void numbers_that_are_none_are_seen(void)
{
    static const struct attention_case c = { "none", 2,    40, 4, 2,     16, 16, 0,
                                             0,      true, 0,  0, false, 0,  0,  0 };
    const size_t dim = c.dim, row = c.heads * dim;
    bool none = true, mean = true, others = true, values = true;
    struct cached_trial t;
    struct err err;
    float *bad;

    cached_open(&t, &c, FORMAT_CACHE_INT8, false, NULL);
    (void)!cpu_attention(team, t.first, t.q, &t.inst, &t.step, &err);
    t.q[1] = NAN;
    memset(t.q + dim, 0, dim * sizeof(*t.q));
    (void)!cpu_attention(team, t.y, t.q, &t.inst, &t.step, &err);
    for (size_t i = 0; i < dim; i++) {
        double sum = 0;

        none &= isnan(t.y[i]);
        for (size_t k = 0; k <= c.start; k++)
            sum += (double)t.v[k * c.kv_heads * dim + i];
        mean &= fabs(sum / (double)(c.start + 1) - (double)t.y[dim + i]) < 1e-6;
    }
    others = !memcmp(t.y + 2 * dim, t.first + 2 * dim, (t.n - 2 * dim) * sizeof(*t.y));
    tap_ok(none && others, "a cache of bytes: a query that is no number has no result");
    tap_ok(mean, "a cache of bytes: one of zeros sees all keys alike");
    bad = xcalloc(c.kv_heads * dim, sizeof(*bad));
    bad[dim + 3] = INFINITY;
    cpu_cache_row((char *)t.cached_v.data +
                      20 * format_row_bytes(FORMAT_CACHE_INT8, t.cached_v.cols, dim),
                  bad, &t.cached_v);
    (void)!cpu_attention(team, t.y, t.q, &t.inst, &t.step, &err);
    for (size_t i = 0; i < t.n; i++)
        values &= isnan(t.y[i]) == (i == i % dim || i % row >= 2 * dim);
    tap_ok(values,
           "a cache of bytes: values that are no numbers, for their heads alone");
    free(bad);
    cached_close(&t);
}

/* The largest sum of products with codes that a head can have. */
static void long_rows_do_not_overflow(void)
{
    static const struct attention_case c = { "long", 1,    1, 1, 1,     1000, 4, 0,
                                             0,      true, 0, 0, false, 0,    0, 0 };
    struct cached_trial t;
    struct err err;
    float *row = xcalloc(c.dim, sizeof(*row));

    cached_open(&t, &c, FORMAT_CACHE_INT8, false, NULL);
    for (size_t i = 0; i < c.dim; i++)
        t.q[i] = row[i] = 1;
    cpu_cache_row(t.cached_k.data, row, &t.cached_k);
    for (size_t i = 0; i < c.dim; i++)
        row[i] = -1;
    cpu_cache_row((char *)t.cached_k.data +
                      format_row_bytes(FORMAT_CACHE_INT8, t.cached_k.cols, c.dim),
                  row, &t.cached_k);
    (void)!cpu_attention(team, t.y, t.q, &t.inst, &t.step, &err);
    tap_ok(furthest(t.y,
                    (const double[]){ (double)t.v[0], (double)t.v[1], (double)t.v[2],
                                      (double)t.v[3] },
                    c.value_dim) < 1e-6,
           "a cache of bytes: sums of a thousand largest products");
    free(row);
    cached_close(&t);
}

static void caches_are_right(void)
{
    static const enum format types[] = { FORMAT_F32, FORMAT_BF16, FORMAT_CACHE_INT8 };
    static const struct attention_case cases[] = {
        { "four heads a key", 2, 1029, 8, 2, 64, 64, 0, 0, true, 0, 0, false, 0, 0, 0 },
        { "seven heads a key", 3, 510, 7, 1, 32, 48, 0, 0, true, 0, 0, false, 0, 0, 0 },
        { "a head a key", 2, 15, 5, 5, 16, 144, 0, 0, true, 0, 0, false, 0, 0, 0 },
        { "a window", 2, 1200, 6, 2, 48, 48, 700, 0, true, 0, 0, false, 0, 0, 0 },
        { "a soft cap", 2, 520, 4, 2, 80, 80, 0, 1.3, true, 0, 0, false, 0, 0, 0 },
        { "odd columns", 3, 600, 4, 2, 20, 12, 0, 0, true, 0, 0, false, 0, 0, 0 },
        { "values among other columns", 2, 513, 6, 2, 32, 32, 0, 0, true, 16, 0, false,
          0, 0, 0 },
        { "one key", 1, 0, 4, 1, 16, 16, 0, 0, true, 0, 0, false, 0, 0, 0 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++)
            cache_is_right(&cases[i], types[t]);
    numbers_that_are_none_are_seen();
    long_rows_do_not_overflow();
}

/* ---- global tokens ---- */

enum global_tokens { GLOBAL_FIRST, GLOBAL_QUESTION, GLOBAL_CHOICE, GLOBAL_SOME };

/* Is row I of a text seen by all?  Its first separator is at S. */
static bool is_global(enum global_tokens who, size_t i, size_t s)
{
    return who == GLOBAL_FIRST      ? i == 0
           : who == GLOBAL_QUESTION ? i < s
           : who == GLOBAL_CHOICE   ? i > s + 1
                                    : i % 7 == 2 || i % 11 < 2;
}

static void global_tokens_see_all(enum global_tokens who, uint64_t window)
{
    enum { TEXTS = 2, ROWS = 87, HEADS = 3, DIM = 5, COLS = HEADS * DIM };
    static const int32_t first[TEXTS] = { 0, 37 };
    static const size_t end[TEXTS] = { 37, ROWS }, separator[TEXTS] = { 20, 3 };
    struct inst inst = {
        .attention = { .heads = HEADS, .head_dim = DIM, .window = window, .scale = 0.4 }
    };
    int32_t mask[ROWS];
    float *x[6], y[ROWS * COLS], again[ROWS * COLS];
    double want[ROWS * COLS] = { 0 };
    struct cpu_globals c = { .mask = mask, .texts = { first, TEXTS, ROWS } };
    struct err err;
    bool same = true;

    for (int i = 0; i < 6; i++)
        x[i] = numbers_new(ROWS * COLS, 60 + (uint64_t)i);
    c.q = x[0], c.k = x[1], c.v = x[2], c.q_all = x[3], c.k_all = x[4], c.v_all = x[5];
    for (size_t t = 0; t < TEXTS; t++)
        for (size_t i = 0; i < end[t] - (size_t)first[t]; i++)
            mask[(size_t)first[t] + i] = is_global(who, i, separator[t]);
    for (size_t t = 0; t < TEXTS; t++)
        for (size_t at = 0; at < (end[t] - (size_t)first[t]) * HEADS; at++) {
            size_t i = at / HEADS, low = (size_t)first[t], n = end[t] - low;
            size_t from = at % HEADS * DIM, row = (low + i) * COLS + from;
            bool global = is_global(who, i, separator[t]);
            double sum = 0;

            for (size_t k = 0; k < n; k++) {
                size_t key = (low + k) * COLS + from, apart = k > i ? k - i : i - k;
                double s = 0;

                if (!global && apart >= window && !is_global(who, k, separator[t]))
                    continue;
                for (size_t d = 0; d < DIM; d++)
                    s +=
                        (double)x[global ? 3 : 0][row + d] * x[global ? 4 : 1][key + d];
                s = exp(s * 0.4);
                sum += s;
                for (size_t d = 0; d < DIM; d++)
                    want[row + d] += s * x[global ? 5 : 2][key + d];
            }
            for (size_t d = 0; d < DIM; d++)
                want[row + d] /= sum;
        }
    c.y = y;
    same &= cpu_global_attention(team, &inst, &c, &err) == 0;
    for (int i = 0; i < NTHREADS; i++) {
        struct device *d = device_new(thread_counts[i]);

        c.y = again;
        same &= cpu_global_attention(d, &inst, &c, &err) == 0 &&
                !memcmp(y, again, sizeof(y));
        backend_cpu.close(d);
    }
    tap_ok(same && furthest(y, want, ROWS * COLS) < 3e-6,
           "global tokens (%d) see all and are seen, others a window of %d", (int)who,
           (int)window);
    for (int i = 0; i < 6; i++)
        free(x[i]);
}

/* ---- side rows ---- */

/* T5's bucket, by its definition. */
static size_t bucket_by_hand(long far, size_t buckets, double most)
{
    size_t half = buckets / 2, base = far > 0 ? half : 0, exact = half / 2;
    double away = fabs((double)far);
    size_t at = (size_t)away;

    if (at >= exact)
        at = exact + (size_t)(log(away / (double)exact) / log(most / (double)exact) *
                              (double)(half - exact));
    return base + (at < half ? at : half - 1);
}

/* Two texts with a side row for each BLOCK tokens; a token sees the window and all side
 * rows of its text. */
static void side_rows_are_seen(uint64_t window, uint64_t block)
{
    enum { TEXTS = 2, ROWS = 87, HEADS = 3, DIM = 5, COLS = HEADS * DIM, BUCKETS = 8 };
    static const int32_t first[TEXTS] = { 0, 37 };
    static const size_t end[TEXTS] = { 37, ROWS };
    const int32_t at_side[TEXTS] = { 0, 37 / (int32_t)block };
    const size_t sides = 37 / block + 50 / block;
    struct inst inst = { .op = OP_SIDE_ATTENTION,
                         .attention = { .heads = HEADS,
                                        .head_dim = DIM,
                                        .window = window,
                                        .block = block,
                                        .far = 20,
                                        .scale = 0.4 } };
    struct inst sum = { .op = OP_BLOCK_SUM, .block = block };
    float *x[5], y[ROWS * COLS], again[ROWS * COLS], blocks[ROWS * COLS];
    struct matrix near = matrix_new(FORMAT_BF16, BUCKETS, HEADS, 3),
                  far = matrix_new(FORMAT_F32, BUCKETS, HEADS, 4);
    double want[ROWS * COLS] = { 0 }, sums[ROWS * COLS] = { 0 };
    struct cpu_side c = { .bias = &near,
                          .side = &far,
                          .texts = { first, TEXTS, ROWS },
                          .sides = { at_side, TEXTS, sides } };
    struct cpu_taps taps = {
        .y = blocks, .from = c.texts, .to = c.sides, .cols = COLS
    };
    struct err err;
    bool same = true;

    for (int i = 0; i < 5; i++)
        x[i] = numbers_new(ROWS * COLS, 60 + (uint64_t)i);
    c.q = x[0], c.k = x[1], c.v = x[2], c.side_k = x[3], c.side_v = x[4];
    for (size_t t = 0; t < TEXTS; t++)
        for (size_t at = 0; at < (end[t] - (size_t)first[t]) * HEADS; at++) {
            size_t i = at / HEADS, h = at % HEADS, low = (size_t)first[t];
            size_t n = end[t] - low, made = n / block, own = i / block;
            size_t row = (low + i) * COLS + h * DIM;
            double total = 0;

            own = own < made ? own : made - 1;
            for (size_t k = 0; k < n + made; k++) {
                bool side = k >= n;
                size_t key = side ? (size_t)at_side[t] + k - n : low + k;
                long apart = side ? (long)(k - n) - (long)own : (long)k - (long)i;
                double s = 0;

                if (!side && labs(apart) >= (long)window)
                    continue;
                for (size_t d = 0; d < DIM; d++)
                    s += (double)x[0][row + d] *
                         x[side ? 3 : 1][key * COLS + h * DIM + d];
                s = exp(s * 0.4 + weight_at(side ? &far : &near,
                                            bucket_by_hand(apart, BUCKETS, 20), h));
                total += s;
                for (size_t d = 0; d < DIM; d++)
                    want[row + d] += s * x[side ? 4 : 2][key * COLS + h * DIM + d];
            }
            for (size_t d = 0; d < DIM; d++) {
                want[row + d] /= total;
                if (made)
                    sums[((size_t)at_side[t] + own) * COLS + h * DIM + d] +=
                        (double)x[0][row + d];
            }
        }
    c.y = y;
    same &= cpu_side_attention(team, &inst, &c, &err) == 0;
    for (int i = 0; i < NTHREADS; i++) {
        struct device *d = device_new(thread_counts[i]);

        c.y = again;
        same &=
            cpu_side_attention(d, &inst, &c, &err) == 0 && !memcmp(y, again, sizeof(y));
        backend_cpu.close(d);
    }
    tap_ok(same && furthest(y, want, ROWS * COLS) < 3e-6,
           "a token sees a window of %d and the side rows of blocks of %d", (int)window,
           (int)block);
    taps.x = x[0];
    cpu_block_sum(team, &sum, &taps);
    tap_ok(furthest(blocks, sums, sides * COLS) < 1e-5,
           "blocks of %d rows are added up, what is left to the last", (int)block);
    for (int i = 0; i < 5; i++)
        free(x[i]);
    matrix_free(&near);
    matrix_free(&far);
}

/* ---- experts ---- */

static bool routes(const float *scores, const struct inst *inst, const float *bias,
                   const float *want, size_t cols)
{
    struct matrix b = { .data = bias, .format = FORMAT_F32, .rows = 1, .cols = cols };
    int32_t choice[16];
    float y[16];

    cpu_choose(team, choice, scores, 1, cols, inst, bias ? &b : NULL);
    cpu_route(team, y, scores, choice, 1, cols, inst);
    for (size_t i = 0; i < cols; i++)
        if (fabsf(y[i] - want[i]) > 1e-6f)
            return false;
    return true;
}

static void experts_are_chosen(void)
{
    static const float scores[] = { 0.1f, 0.4f, 0.4f, 0.3f, 0.5f, 0.2f },
                       bias[] = { 1, 0, 0, 0, 0, 0 };
    struct inst inst = { .op = OP_ROUTE,
                         .route = {
                             .top = 2, .groups = 1, .of = 1, .best = 1, .scale = 1 } };

    tap_ok(routes(scores, &inst, NULL, (float[]){ 0, 0.4f, 0, 0, 0.5f, 0 }, 6),
           "route: the largest scores, the first of equal ones");
    tap_ok(routes(scores, &inst, bias, (float[]){ 0.1f, 0, 0, 0, 0.5f, 0 }, 6),
           "route: a bias is for the choice alone");
    inst.route.renorm = true;
    inst.route.scale = 9;
    tap_ok(routes(scores, &inst, NULL, (float[]){ 0, 4, 0, 0, 5, 0 }, 6),
           "route: weights add up to the scale");
    inst.route = (struct inst){
        .route = { .top = 2, .groups = 3, .of = 1, .best = 1, .scale = 1 }
    }.route;
    tap_ok(routes(scores, &inst, NULL, (float[]){ 0, 0, 0, 0, 0.5f, 0.2f }, 6),
           "route: from the group with the best score");
    inst.route.best = 2; /* sums 0.5, 0.7, 0.7 */
    tap_ok(routes(scores, &inst, NULL, (float[]){ 0, 0, 0.4f, 0.3f, 0, 0 }, 6),
           "route: from the group with the best two");
}

/* ---- dropout ---- */

static void dropout_keeps_the_mean(void)
{
    enum { N = 1 << 17 };
    const double rate = 0.3, spread = sqrt(rate / (1 - rate) / N);
    float *x = xmalloc(N * sizeof(*x)), *y = xmalloc(N * sizeof(*y));
    size_t zero = 0, other = 0, both = 0;
    double sum = 0;

    for (size_t i = 0; i < N; i++)
        x[i] = y[i] = 1;
    cpu_drop(x, 0, N, rate, 5, 6, 7);
    for (size_t i = 0; i < N; i++) {
        sum += (double)x[i];
        zero += x[i] == 0;
        other += x[i] != 0 && x[i] != (float)(1 / (1 - rate));
    }
    tap_ok(!other && fabs(sum / N - 1) < 5 * spread &&
               fabs((double)zero / N - rate) < 5 * sqrt(rate * (1 - rate) / N),
           "dropout keeps the mean, and drops at its rate");
    for (size_t at = 0, n = 1; at < N; at += n, n = n % 7 + 1)
        cpu_drop(y + at, at, at + n < N ? n : N - at, rate, 5, 6, 7);
    tap_ok(!memcmp(x, y, N * sizeof(*x)), "a row is dropped piece by piece as at once");
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < N; i++)
            y[i] = 1;
        cpu_drop(y, 0, N, rate, 5 + (k == 0), 6 + (k == 1), 7 + (k == 2));
        both = 0;
        for (size_t i = 0; i < N; i++)
            both += x[i] == 0 && y[i] == 0;
        tap_ok(fabs((double)both / N - rate * rate) <
                   5 * sqrt(rate * rate * (1 - rate * rate) / N),
               "another %s drops others",
               k == 0   ? "site"
               : k == 1 ? "token"
                        : "head");
    }
    free(x);
    free(y);
}

/* A softmax whose second score underflows: rows are sent by the choice, not by the
 * weights. */
static void a_weight_of_nothing_is_a_choice(void)
{
    static const float scores[] = { 1, 0, 0, 0, 0, 1 };
    const struct inst route = { .route = {
                                    .top = 2, .groups = 1, .of = 1, .best = 1 } };
    struct mixture m = { .count = 3, .all = 3, .top = 2 };
    const struct program p = { .mixture = &m, .nmixtures = 1 };
    const struct inst inst = { .mixture = 0 };
    int32_t choice[4], counts[4], index[4], rows = 2, one = 1;
    struct call call = { .program = &p, .inst = &inst };
    struct err err;

    cpu_choose(team, choice, scores, 2, 3, &route, NULL);
    call.x[0] = (struct buffer){ choice, &rows, 2, 2, FORMAT_I32, 0 };
    call.y = (struct buffer){ counts, &one, 1, 4, FORMAT_I32, 0 };
    tap_ok(cpu_kernels[OP_EXPERT_COUNT](team, &call, &err) == 0 && counts[1] == 2 &&
               counts[2] == 3 && counts[3] == 4,
           "rows are sent to an expert whose weight is 0 where it was chosen");
    call.x[1] = (struct buffer){ counts, &one, 1, 4, FORMAT_I32, 0 };
    call.y = (struct buffer){ index, &counts[3], 4, 1, FORMAT_I32, 0 };
    tap_ok(cpu_kernels[OP_EXPERT_INDEX](team, &call, &err) == 0 && index[0] == 0 &&
               index[1] == 1 && index[2] == 0 && index[3] == 1,
           "in order, by expert");
}

/* ---- tokens drawn ---- */

struct likely {
    double weight;
    float logit;
    int32_t id;
};

static int likelier_first(const void *a, const void *b)
{
    const struct likely *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

/* The token that U in [0, 1) draws, by sorting all. */
static int32_t drawn_by_hand(const float *x, size_t n, const struct draw *d, double u)
{
    struct likely *c = xcalloc(n, sizeof(*c));
    double total = 0, sum = 0, largest = -INFINITY;
    size_t kept = n, i;
    int32_t id;

    for (i = 0; i < n; i++)
        largest = fmax(largest, (double)x[i]);
    for (i = 0; i < n; i++)
        c[i] = (struct likely){ exp(((double)x[i] - largest) / d->temperature), x[i],
                                (int32_t)i };
    if (d->top_k || d->top_p < 1)
        qsort(c, n, sizeof(*c), likelier_first);
    if (d->top_k && d->top_k < n)
        kept = (size_t)d->top_k;
    while (d->top_k && kept < n && c[kept].logit == c[kept - 1].logit)
        kept++;
    for (i = 0; i < kept; i++)
        total += c[i].weight;
    if (d->top_p < 1) {
        for (i = 0; i < kept && sum < d->top_p * total; i++)
            sum += c[i].weight;
        kept = i;
        total = sum;
    }
    sum = 0;
    for (i = 0; i + 1 < kept; i++) {
        sum += c[i].weight;
        if (u * total < sum)
            break;
    }
    id = c[i].id;
    free(c);
    return id;
}

/* Logits of several shapes: among them equal ones, and some that are excluded. */
static float logit_of(int shape, size_t i, const float *random)
{
    switch (shape) {
    case 0:
        return random[i] * 12;
    case 1:
        return random[i] * 0.01F;
    case 2:
        return (float)(int)(random[i] * 5);
    case 3:
        return i % 3 ? -INFINITY : random[i] * 4;
    case 4:
        return (float)i * 0.01F;
    default:
        return 7 - (float)i;
    }
}

static void tokens_are_drawn(void)
{
    static const size_t sizes[] = { 1, 2, 7, 64, 65, 200, 5000 };
    static const uint64_t most[] = { 0, 1, 4, 40, 79, 5000 };
    static const double parts[] = { 1, 0.95, 0.5, 1e-9 };
    enum { SHAPES = 6, LARGEST = 5000, DRAWS = 6 };
    float *random = numbers_new(LARGEST, 77), *x = xcalloc(LARGEST, sizeof(*x));
    void *room = xcalloc(1, cpu_sample_bytes(LARGEST));
    int wrong = 0, all = 0;

    for (int shape = 0; shape < SHAPES; shape++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
            for (size_t i = 0; i < sizes[s]; i++)
                x[i] = logit_of(shape, i, random);
            for (size_t m = 0; m < sizeof(most) / sizeof(*most) * 4 * DRAWS; m++) {
                struct draw d = { .temperature = m % 2 ? 0.7 : 2,
                                  .top_p = parts[m / DRAWS % 4],
                                  .top_k = most[m / DRAWS / 4],
                                  .seed = 5,
                                  .position = m };
                struct rng rng;
                double u;

                rng_init(&rng, d.seed, d.position);
                u = rng_uniform(&rng);
                wrong += drawn_by_hand(x, sizes[s], &d, u) !=
                         cpu_sample(x, sizes[s], &d, room);
                all++;
            }
        }
    if (!tap_ok(wrong == 0, "tokens are drawn as from sorted ones"))
        printf("# %d of %d are others\n", wrong, all);
    wrong = 0;
    for (int k = 0; k < 4; k++) { /* one NaN, one +inf, all -inf; one -inf is right */
        static const float bad[] = { NAN, INFINITY, -INFINITY, -INFINITY };

        for (int i = 0; i < LARGEST; i++)
            x[i] = k == 2 || i == LARGEST / 2 ? bad[k] : 1;
        for (int m = 0; m < 4; m++) {
            const struct draw d = { 1, m & 1 ? 0.9 : 1, m & 2 ? 40 : 0, 1, 1 };

            wrong += (cpu_sample(x, LARGEST, &d, room) < 0) != (k < 3);
        }
    }
    tap_ok(wrong == 0, "none is drawn where a logit is NaN or +inf, or all are -inf");
    free(random);
    free(room);
    free(x);
}

/* Rows of logits have the same tokens on any number of threads, and alone. */
static void rows_are_drawn(void)
{
    enum { ROWS = 5, COLS = 300 };
    float *x = numbers_new((size_t)ROWS * COLS, 78);
    int32_t y[ROWS];
    void *room = xcalloc(1, cpu_sample_bytes(COLS));
    struct draw draw[ROWS];
    const struct step_view step = { .draw = draw };
    int32_t rows = ROWS;
    struct call call = { .step = &step };
    bool same = true;
    struct err err;

    call.x[0] = (struct buffer){ x, &rows, ROWS, COLS, FORMAT_F32, 0 };
    call.y = (struct buffer){ y, &rows, ROWS, 1, FORMAT_I32, 0 };
    for (int i = 0; i < ROWS; i++)
        draw[i] = (struct draw){ 1, 0.9, i % 2 ? 30 : 0, 4, (uint64_t)i };
    for (int t = 0; t < NTHREADS; t++) {
        struct device *d = device_new(thread_counts[t]);

        memset(y, 0xff, sizeof(y));
        same &= cpu_kernels[OP_SAMPLE](d, &call, &err) == 0;
        for (size_t i = 0; i < ROWS; i++)
            same &= y[i] == cpu_sample(x + i * COLS, COLS, &draw[i], room);
        backend_cpu.close(d);
    }
    tap_ok(same, "rows are drawn alike by any number of threads");
    free(x);
    free(room);
}

/* Wherever it stands, also behind the last whole vector. */
static void the_largest_is_found(void)
{
    enum { N = 2 * VEC + 5 };
    float x[N];
    bool found = true, none;

    for (size_t at = 0; at < N; at++) {
        for (size_t i = 0; i < N; i++)
            x[i] = i == at ? -1 : i % 3 ? -2 - (float)i : NAN;
        found &= cpu_largest(x, N) == -1;
    }
    for (size_t i = 0; i < N; i++)
        x[i] = NAN;
    none = cpu_largest(x, N) == -INFINITY;
    tap_ok(found && none, "the largest logit that is a number is found");
}

/* Exponentials in double precision, and their sum, also of a part of a vector. */
static void exponentials_are_right(void)
{
    enum { N = 1003 };
    float x[N];
    double y[N + 1], far = 0;
    bool sums = true;

    for (int i = 0; i < N; i++)
        x[i] = (float)(i - N + 1) * 0.97F;
    for (size_t n = 0; n < N; n += n < 20 ? 1 : 91) {
        double sum, want = 0;

        y[n] = -1;
        sum = cpu_exp_terms(y, x + N - n, n, 0, 1.5);
        for (size_t i = 0; i < n; i++) {
            double is = exp((double)x[N - n + i] / 1.5);

            want += is;
            far = fmax(far, fabs(y[i] - is) / is);
        }
        sums &= fabs(sum - want) <= 1e-14 * want && y[n] == -1 &&
                sum == cpu_exp_terms(NULL, x + N - n, n, 0, 1.5);
    }
    if (!tap_ok(far < 4e-16, "exponentials are right"))
        printf("# error %g\n", far);
    tap_ok(sums, "so are their sums");
    x[3] = -INFINITY;
    x[5] = NAN;
    (void)cpu_exp_terms(y, x, 8, 0, 1);
    tap_ok(y[3] < 1e-300 && isnan(y[5]) && !isnan(y[4]),
           "of no number it is none, and of minus infinity next to nothing");
}

/* Rows of a cache of int8: a scale for each head, also for numbers that have none. */
static void cache_rows_are_read_again(void)
{
    enum { WIDTH = 5, HEADS = 4, COLS = WIDTH * HEADS };
    struct buffer p = { .cols = COLS, .width = WIDTH, .format = FORMAT_CACHE_INT8 };
    _Alignas(float) char row[HEADS * sizeof(float) + COLS];
    float x[COLS], y[COLS];
    bool near = true, lost = true, tiny = true, part = true;

    for (int i = 0; i < COLS; i++)
        x[i] = (float)(i % WIDTH - 2) * (i < WIDTH ? 0.1F : 3000);
    x[2 * WIDTH + 1] = NAN;
    x[2 * WIDTH + 2] = 7;
    for (int i = 3 * WIDTH; i < COLS; i++)
        x[i] = i % 2 ? 1e-38F : 0;
    cpu_cache_row(row, x, &p);
    cpu_cached(y, row, 0, COLS, &p);
    for (int i = 0; i < 2 * WIDTH; i++)
        near = near && fabsf(y[i] - x[i]) <= (i < WIDTH ? 0.2F : 6000) / 253;
    for (int i = 2 * WIDTH; i < 3 * WIDTH; i++)
        lost = lost && isnan(y[i]);
    for (int i = 3 * WIDTH; i < COLS; i++)
        tiny = tiny && fabsf(y[i]) <= 1e-38F;
    tap_ok(near, "a row of int8 is within half a step of each head's largest");
    tap_ok(lost, "a number that is none is seen in its whole head");
    tap_ok(tiny, "a head of numbers near 0 has nothing else");
    x[2 * WIDTH + 1] = -INFINITY;
    cpu_cache_row(row, x, &p);
    cpu_cached(y, row, 0, COLS, &p);
    tap_ok(isnan(y[2 * WIDTH]) && !isnan(y[WIDTH]), "so is an infinite one");
    cpu_cached(x, row, WIDTH - 2, WIDTH, &p);
    for (int i = 0; i < WIDTH; i++)
        part = part && x[i] == y[WIDTH - 2 + i];
    tap_ok(part, "columns of two heads have both scales");
}

/* What each set of loops has of its own. */
static void products_and_caches_are_right(void)
{
    if (!loops_agree())
        printf("# skipped: bits of older loops: the compiler does not fuse\n");
    products_are_right(LINEAR);
    products_are_right(MATMUL);
    many_rows_by_columns();
    long_sums_do_not_depend_on_threads();
    panels_join();
    trees_join();
    caches_are_right();
}

/* Every number of f16 and what lies around it, between it and the next. */
static void numbers_become_halves(void)
{
    size_t bad = 0;

    for (uint32_t h = 0; h < 1 << 16; h++) {
        const float a = dtype_f16_to_f32((uint16_t)h);
        const float b = dtype_f16_to_f32((uint16_t)(h + 1)), middle = a + (b - a) / 2;
        const float x[] = {
            a,     middle,       nextafterf(middle, a), nextafterf(middle, b),
            2 * a, a * 0x1p-10f, a * 0x1p100f
        };
        float y[sizeof(x) / sizeof(*x)];

        cpu_round_half(y, x, sizeof(x) / sizeof(*x));
        for (size_t i = 0; i < sizeof(x) / sizeof(*x); i++) {
            const float want = dtype_f16_to_f32(dtype_f32_to_f16(x[i]));

            bad += isnan(want) ? !isnan(y[i]) : memcmp(&want, &y[i], sizeof(want)) != 0;
        }
    }
    tap_ok(bad == 0, "floats are rounded to f16 as they are converted");
}

int main(void)
{
    team = device_new(2);
    for (int i = 0; i < NTHREADS; i++)
        tasks_run_once(thread_counts[i]);
    products_and_caches_are_right();
    with_older_loops(products_and_caches_are_right);
    products_are_right(ROUNDED);
    products_are_right(AMX_ROWS_LINEAR);
    products_are_right(TRANSPOSED);
    products_are_right(TRANSPOSED_LINEAR);
    numbers_are_rounded();
    numbers_become_halves();
    fastest_way_is_kept();
    no_rows_give_nothing();
    dropout_keeps_the_mean();
    every_pattern_is_widened(FORMAT_F16);
    every_pattern_is_widened(FORMAT_BF16);
    embedding_takes_rows();
    rope_turns_pairs(false);
    rope_turns_pairs(true);
    for (int t = 0; t < NDTYPES; t++) {
        groups_are_normed(false, dtypes[t]);
        groups_are_normed(true, dtypes[t]);
    }
    elements_are_added_and_scaled();
    rows_beside_are_read(FORMAT_F32);
    rows_beside_are_read(FORMAT_BF16);
    rows_are_pooled();
    pairs_are_right();
    attentions_are_right();
    for (int who = GLOBAL_FIRST; who <= GLOBAL_SOME; who++) {
        global_tokens_see_all((enum global_tokens)who, 1);
        global_tokens_see_all((enum global_tokens)who, 6);
        global_tokens_see_all((enum global_tokens)who, 30);
    }
    side_rows_are_seen(1, 4);
    side_rows_are_seen(9, 16);
    side_rows_are_seen(100, 38);
    side_rows_are_seen(7, 60);
    experts_are_chosen();
    a_weight_of_nothing_is_a_choice();
    cache_rows_are_read_again();
    tokens_are_drawn();
    rows_are_drawn();
    the_largest_is_found();
    exponentials_are_right();
    backend_cpu.close(team);
    return tap_done();
}
