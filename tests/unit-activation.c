/* unit-activation - each activation function: its formula against PyTorch, and the
 * CPU's loops against the formula
 *
 * data/activations.tsv has values and derivatives by PyTorch in float64
 * (oracle/activations.py). */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/device/device.h"
#include "lib/program/activation.h"
#include "tests/tap.h"

static struct device *team;

/* |got - want| / (1 + |want|); infinite if one of them is no number. */
static double apart(float got, double want)
{
    double d = fabs((double)got - want) / (1 + fabs(want));

    return isnan(d) ? INFINITY : d;
}

/* ---- formulas ---- */

/* What the file says of one name. */
struct seen {
    int points;
    double value, derivative; /* the largest distances */
};

static struct seen read_name(FILE *f, const char *name)
{
    struct seen seen = { 0 };
    char word[40];
    double x, y, slope;
    int act = activation_find(name, strlen(name));

    rewind(f);
    while (fscanf(f, "%39s %lf %lf %lf", word, &x, &y, &slope) == 4) {
        if (strcmp(word, name) != 0)
            continue;
        seen.points++;
        seen.value = fmax(seen.value, apart(activation_value(act, (float)x), y));
        seen.derivative =
            fmax(seen.derivative, apart(activation_derivative(act, (float)x), slope));
    }
    return seen;
}

/* Under every name of a function, so that an alias of the wrong row shows. */
static void formulas_are_pytorchs(FILE *f)
{
    for (int act = 0; act < ACTIVATION_COUNT; act++)
        for (const char *const *word = activation_words[act]; *word; word++) {
            struct seen seen = read_name(f, *word);

            if (!tap_ok(seen.points > 30 && seen.value < 4e-7 && seen.derivative < 1e-6,
                        "%s and its derivative are PyTorch's", *word))
                printf("# %d points; value off by %.2g, derivative by %.2g\n",
                       seen.points, seen.value, seen.derivative);
        }
}

static void names_are_found_whole(void)
{
    tap_ok(activation_find("silu", 4) == ACT_SILU &&
               activation_find("silux", 4) == ACT_SILU &&
               activation_find("silux", 5) < 0 && activation_find("sil", 3) < 0,
           "a name is found by all its bytes");
}

static void nan_stays_nan(void)
{
    for (int act = 0; act < ACTIVATION_COUNT; act++)
        tap_ok(isnan(activation_value(act, NAN)), "%s of NaN is NaN",
               activation_words[act][0]);
}

/* ---- the CPU's loops ---- */

/* More than a thread's share and no multiple of a vector; dense near 0, up to where
 * every function is at its limit. */
enum { N = 120007, SHORT = 37 };

static void fill(float *x)
{
    for (int i = 0; i < N; i++)
        x[i] = (float)((i - N / 2) * (i % 4 ? 12.0 : 90.0) / (N / 2));
}

static void reverse(enum activation act, const float *d, const float *x, float *y,
                    uint64_t n)
{
    int32_t rows = 1;
    struct inst inst = { .op = OP_ACTIVATION_BACK, .act = act };
    struct call call = {
        .inst = &inst,
        .y = { .data = y, .rows = &rows, .most = 1, .cols = n },
        .x = { { .data = (float *)d, .rows = &rows, .most = 1, .cols = n },
               { .data = (float *)x, .rows = &rows, .most = 1, .cols = n } },
    };
    struct err err;

    if (backend_cpu.kernel[OP_ACTIVATION_BACK](team, &call, &err) < 0)
        abort();
}

static void loops_are_the_formulas(void)
{
    float *x = xcalloc(N, sizeof(*x)), *d = xcalloc(N, sizeof(*d));
    float *y = xcalloc(N, sizeof(*y)), *dx = xcalloc(N, sizeof(*dx)), few[SHORT];

    fill(x);
    for (int i = 0; i < N; i++)
        d[i] = (float)(i % 7) - 3;
    for (int act = 0; act < ACTIVATION_COUNT; act++) {
        double value = 0, derivative = 0;

        cpu_activation(team, y, x, act, N);
        reverse(act, d, x, dx, N);
        for (int i = 0; i < N; i++) {
            double slope = (double)activation_derivative(act, x[i]);

            value = fmax(value, apart(y[i], (double)activation_value(act, x[i])));
            derivative = fmax(derivative, apart(dx[i], (double)d[i] * slope));
        }
        if (!tap_ok(value < 4e-7 && derivative < 3e-6,
                    "%s: the CPU computes the formula", activation_words[act][0]))
            printf("# value off by %.2g, derivative by %.2g\n", value, derivative);
        cpu_activation(team, few, x + N / 2 - 5, act, SHORT);
        tap_ok(!memcmp(few, y + N / 2 - 5, sizeof(few)),
               "%s: the same bits in a part of it", activation_words[act][0]);
        few[SHORT / 2] = NAN;
        cpu_activation(team, few, few, act, SHORT);
        tap_ok(isnan(few[SHORT / 2]), "%s: the CPU keeps NaN",
               activation_words[act][0]);
    }
    free(x);
    free(d);
    free(y);
    free(dx);
}

/* GELU's tail and tanh, which are polynomials here, to some units of the last place. */
static void tails_are_right(void)
{
    enum { POINTS = 20001 };
    float *x = xcalloc(POINTS, sizeof(*x)), *y = xcalloc(POINTS, sizeof(*y));
    double gelu = 0, tanh_far = 0;
    bool none;

    for (int i = 0; i < POINTS; i++)
        x[i] = (float)(i - POINTS / 2) * (4.0F / (POINTS / 2));
    cpu_activation(team, y, x, ACT_GELU, POINTS);
    for (int i = 0; i < POINTS / 2; i++) {
        double want = 0.5 * (double)x[i] * erfc(-(double)x[i] / sqrt(2));

        gelu = fmax(gelu, fabs((double)y[i] / want - 1));
    }
    if (!tap_ok(gelu < 8e-7, "gelu is right where it is small"))
        printf("# error %g\n", gelu);
    cpu_activation(team, y, x, ACT_TANH, POINTS);
    for (int i = 0; i < POINTS; i++)
        if (x[i] != 0)
            tanh_far = fmax(tanh_far, fabs((double)y[i] / tanh((double)x[i]) - 1));
    if (!tap_ok(tanh_far < 2e-7, "so is tanh"))
        printf("# error %g\n", tanh_far);
    x[0] = NAN;
    x[1] = INFINITY;
    x[2] = -INFINITY;
    cpu_activation(team, y, x, ACT_TANH, 3);
    none = isnan(y[0]) && y[1] == 1 && y[2] == -1;
    cpu_activation(team, y, x, ACT_GELU, 3);
    tap_ok(none && isnan(y[0]) && y[1] == INFINITY,
           "of no number they are none, at infinity their limits");
    free(x);
    free(y);
}

int main(void)
{
    char *path = fs_join_dup(getenv("top_srcdir"), "tests/data/activations.tsv");
    FILE *f = fopen(path, "r");
    struct err err;

    if (!f || backend_cpu.open(&team, 2, 0, &err) < 0)
        abort();
    formulas_are_pytorchs(f);
    names_are_found_whole();
    nan_stays_nan();
    loops_are_the_formulas();
    tails_are_right();
    backend_cpu.close(team);
    fclose(f);
    free(path);
    return tap_done();
}
