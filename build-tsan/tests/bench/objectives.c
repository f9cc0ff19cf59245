/* objectives - functions to be minimized that samplers are compared on
 *
 * Optima are moved away from the middle of the ranges, where a sampler's prior sits.
 * Formulas: Branin, Hartmann, Ackley and Rosenbrock as in the collection of Surjanovic
 * and Bingham (Virtual Library of Simulation Experiments), and so are those that no
 * sampler was developed on: Hartmann in 3 dimensions, the six-hump camel, Levy,
 * Styblinski-Tang, Goldstein-Price, Beale, Michalewicz; ZDT1 to ZDT3 from Zitzler,
 * Deb and Thiele, "Comparison of Multiobjective Evolutionary Algorithms" (2000). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/objectives.h"

static const double PI = 3.14159265358979323846;

static void branin(double *loss, const double *x)
{
    double a = x[0] + 1.3, b = x[1] - 0.9;
    double t = b - 5.1 / (4 * PI * PI) * a * a + 5 / PI * a - 6;

    *loss = t * t + 10 * (1 - 1 / (8 * PI)) * cos(a) + 10;
}

static void hartmann6(double *loss, const double *x)
{
    static const double alpha[4] = { 1.0, 1.2, 3.0, 3.2 };
    static const double a[4][6] = { { 10, 3, 17, 3.5, 1.7, 8 },
                                    { 0.05, 10, 17, 0.1, 8, 14 },
                                    { 3, 3.5, 1.7, 10, 17, 8 },
                                    { 17, 8, 0.05, 10, 0.1, 14 } };
    static const double p[4][6] = { { 1312, 1696, 5569, 124, 8283, 5886 },
                                    { 2329, 4135, 8307, 3736, 1004, 9991 },
                                    { 2348, 1451, 3522, 2883, 3047, 6650 },
                                    { 4047, 8828, 8732, 5743, 1091, 381 } };

    *loss = 0;
    for (int i = 0; i < 4; i++) {
        double sum = 0;

        for (int k = 0; k < 6; k++)
            sum += a[i][k] * (x[k] - 1e-4 * p[i][k]) * (x[k] - 1e-4 * p[i][k]);
        *loss -= alpha[i] * exp(-sum);
    }
}

static void ackley5(double *loss, const double *x)
{
    static const double shift[5] = { 5.1, -7.3, 11.7, -3.9, 8.3 };
    double squares = 0, cosines = 0;

    for (int i = 0; i < 5; i++) {
        double v = x[i] - shift[i];

        squares += v * v / 5;
        cosines += cos(2 * PI * v) / 5;
    }
    *loss = -20 * exp(-0.2 * sqrt(squares)) - exp(cosines) + 20 + exp(1);
}

static void rosenbrock4(double *loss, const double *x)
{
    *loss = 0;
    for (int i = 0; i < 3; i++) {
        double v = x[i] + 0.4, w = x[i + 1] + 0.4;

        *loss += 100 * (w - v * v) * (w - v * v) + (1 - v) * (1 - v);
    }
}

/* A training run in caricature: rate, width, dropout, depth, optimizer, activation. */
static void mixed(double *loss, const double *x)
{
    static const double best_rate[3] = { -1.7, -3.1, -2.6 };
    static const double penalty[4] = { 0.12, 0.03, 0, 0.25 };
    double rate = log10(x[0]) - best_rate[(int)x[4]];
    double width = log2(x[1]) - 7.4, depth = x[3] - 5, drop = x[2] - 0.15;

    *loss = 0.3 * rate * rate + 0.05 * width * width + 0.02 * depth * depth +
            2 * drop * drop + penalty[(int)x[5]] + 0.04 * ((int)x[4] == 0) +
            0.05 * fabs(depth * width);
}

/* Three branches of two parameters each, which meet at no loss in common. */
static void branches(double *loss, const double *x)
{
    static const double at[3][2] = { { 0.3, 0.7 }, { 0.55, 0.2 }, { 0.8, 0.85 } };
    static const double floor_of[3] = { 0.1, 0.05, 0 };
    static const double steep[3] = { 1, 2, 6 };
    int b = (int)x[0];
    double u = x[1 + 2 * b] - at[b][0], v = x[2 + 2 * b] - at[b][1];

    *loss = floor_of[b] + steep[b] * (fabs(u) + fabs(v + 0.5 * u));
}

static void michalewicz5(double *loss, const double *x)
{
    *loss = 0;
    for (int i = 0; i < 5; i++)
        *loss -= sin(x[i]) * pow(sin((i + 1) * x[i] * x[i] / PI), 20);
}

static void hartmann3(double *loss, const double *x)
{
    static const double alpha[4] = { 1.0, 1.2, 3.0, 3.2 };
    static const double a[4][3] = {
        { 3, 10, 30 }, { 0.1, 10, 35 }, { 3, 10, 30 }, { 0.1, 10, 35 }
    };
    static const double p[4][3] = { { 3689, 1170, 2673 },
                                    { 4699, 4387, 7470 },
                                    { 1091, 8732, 5547 },
                                    { 381, 5743, 8828 } };

    *loss = 0;
    for (int i = 0; i < 4; i++) {
        double sum = 0;

        for (int k = 0; k < 3; k++)
            sum += a[i][k] * (x[k] - 1e-4 * p[i][k]) * (x[k] - 1e-4 * p[i][k]);
        *loss -= alpha[i] * exp(-sum);
    }
}

static void camel(double *loss, const double *x)
{
    double a = x[0] * x[0], b = x[1] * x[1];

    *loss = (4 - 2.1 * a + a * a / 3) * a + x[0] * x[1] + (4 * b - 4) * b;
}

static void levy4(double *loss, const double *x)
{
    double w[4], last;

    for (int i = 0; i < 4; i++)
        w[i] = 1 + (x[i] - 1) / 4;
    last = w[3] - 1;
    *loss = sin(PI * w[0]) * sin(PI * w[0]) +
            last * last * (1 + sin(2 * PI * w[3]) * sin(2 * PI * w[3]));
    for (int i = 0; i < 3; i++) {
        double t = sin(PI * w[i] + 1);

        *loss += (w[i] - 1) * (w[i] - 1) * (1 + 10 * t * t);
    }
}

static void styblinski4(double *loss, const double *x)
{
    *loss = 0;
    for (int i = 0; i < 4; i++)
        *loss += 0.5 * (pow(x[i], 4) - 16 * x[i] * x[i] + 5 * x[i]);
}

static void goldstein(double *loss, const double *x)
{
    double a = x[0], b = x[1], s = a + b + 1, t = 2 * a - 3 * b;

    *loss =
        (1 + s * s * (19 - 14 * a + 3 * a * a - 14 * b + 6 * a * b + 3 * b * b)) *
        (30 + t * t * (18 - 32 * a + 12 * a * a + 48 * b - 36 * a * b + 27 * b * b));
}

static void beale(double *loss, const double *x)
{
    double a = x[0], b = x[1];
    double r = 1.5 - a + a * b, s = 2.25 - a + a * b * b, t = 2.625 - a + a * b * b * b;

    *loss = r * r + s * s + t * t;
}

struct table {
    double *rows; /* [n][ndims + 1] */
    double low[8], high[8];
    int n;
};

static struct table nas_table, xgboost_table, deepar_table;

/* The loss of the row nearest to X, each coordinate scaled to its range. */
static double nearest(const struct table *t, const double *x, size_t d)
{
    double best = INFINITY, loss = NAN;

    for (int i = 0; i < t->n; i++) {
        const double *row = t->rows + (size_t)i * (d + 1);
        double sum = 0;

        for (size_t k = 0; k < d; k++) {
            double gap = (row[k] - x[k]) / (t->high[k] - t->low[k]);

            sum += gap * gap;
        }
        if (sum < best) {
            best = sum;
            loss = row[d];
        }
    }
    return loss;
}

static void nas(double *loss, const double *x)
{
    *loss = nearest(&nas_table, x, 6);
}

static void xgboost(double *loss, const double *x)
{
    *loss = nearest(&xgboost_table, x, 8);
}

static void deepar(double *loss, const double *x)
{
    *loss = nearest(&deepar_table, x, 6);
}

static double zdt_g(const double *x)
{
    double sum = 0;

    for (int i = 1; i < 30; i++)
        sum += x[i];
    return 1 + 9 * sum / 29;
}

static void zdt1(double *loss, const double *x)
{
    double g = zdt_g(x);

    loss[0] = x[0];
    loss[1] = g * (1 - sqrt(x[0] / g));
}

static void zdt2(double *loss, const double *x)
{
    double g = zdt_g(x);

    loss[0] = x[0];
    loss[1] = g * (1 - (x[0] / g) * (x[0] / g));
}

static void zdt3(double *loss, const double *x)
{
    double g = zdt_g(x);

    loss[0] = x[0];
    loss[1] = g * (1 - sqrt(x[0] / g) - x[0] / g * sin(10 * PI * x[0]));
}

#define U "uniform(0, 1)\n"
#define ZDT_SPACE                                                                    \
    "x0: " U "x1: " U "x2: " U "x3: " U "x4: " U "x5: " U "x6: " U "x7: " U "x8: " U \
    "x9: " U "x10: " U "x11: " U "x12: " U "x13: " U "x14: " U "x15: " U "x16: " U   \
    "x17: " U "x18: " U "x19: " U "x20: " U "x21: " U "x22: " U "x23: " U "x24: " U  \
    "x25: " U "x26: " U "x27: " U "x28: " U "x29: " U
#define BRANCH(name) "uniform(0, 1) if b == " name "\n"
#define OPS          "choice([none, skip, conv1, conv3, pool])\n"

static const struct objective objectives[] = {
    { "branin", "x0: uniform(-5, 10)\nx1: uniform(0, 15)\n", 2, 1, branin },
    { "hartmann6", "x0: " U "x1: " U "x2: " U "x3: " U "x4: " U "x5: " U, 6, 1,
      hartmann6 },
    { "ackley5",
      "x0: uniform(-32.768, 32.768)\nx1: uniform(-32.768, 32.768)\n"
      "x2: uniform(-32.768, 32.768)\nx3: uniform(-32.768, 32.768)\n"
      "x4: uniform(-32.768, 32.768)\n",
      5, 1, ackley5 },
    { "rosenbrock4",
      "x0: uniform(-2, 2)\nx1: uniform(-2, 2)\nx2: uniform(-2, 2)\nx3: uniform(-2, "
      "2)\n",
      4, 1, rosenbrock4 },
    { "mixed",
      "rate: loguniform(1e-5, 1e-1)\nwidth: lograndint(16, 513)\n"
      "drop: quniform(0, 0.5, 0.05)\ndepth: randint(1, 9)\n"
      "opt: choice([sgd, adam, lamb])\nact: choice([relu, gelu, silu, tanh])\n",
      6, 1, mixed },
    { "nas", "x0: " OPS "x1: " OPS "x2: " OPS "x3: " OPS "x4: " OPS "x5: " OPS, 6, 1,
      nas },
    { "xgboost",
      "child: uniform(-8, 6)\nrows: uniform(0.5, 1)\ncolumns: uniform(0.3, 1)\n"
      "gamma: uniform(-20, 6)\nlambda: uniform(-10, 8)\neta: uniform(0, 1)\n"
      "depth: randint(0, 13)\nalpha: uniform(-20, 8)\n",
      8, 1, xgboost },
    { "branches",
      "b: choice([p, q, r])\np0: " BRANCH("p") "p1: " BRANCH("p") "q0: " BRANCH(
          "q") "q1: " BRANCH("q") "r0: " BRANCH("r") "r1: " BRANCH("r"),
      7, 1, branches },
    { "michalewicz5",
      "x0: uniform(0, 3.14159265358979)\nx1: uniform(0, 3.14159265358979)\n"
      "x2: uniform(0, 3.14159265358979)\nx3: uniform(0, 3.14159265358979)\n"
      "x4: uniform(0, 3.14159265358979)\n",
      5, 1, michalewicz5 },
    { "hartmann3", "x0: " U "x1: " U "x2: " U, 3, 1, hartmann3 },
    { "camel", "x0: uniform(-2, 2)\nx1: uniform(-1.5, 1.5)\n", 2, 1, camel },
    { "levy4",
      "x0: uniform(-10, 10)\nx1: uniform(-10, 10)\nx2: uniform(-10, 10)\n"
      "x3: uniform(-10, 10)\n",
      4, 1, levy4 },
    { "styblinski4",
      "x0: uniform(-5, 5)\nx1: uniform(-5, 5)\nx2: uniform(-5, 5)\n"
      "x3: uniform(-5, 5)\n",
      4, 1, styblinski4 },
    { "goldstein", "x0: uniform(-2, 2)\nx1: uniform(-2, 2)\n", 2, 1, goldstein },
    { "beale", "x0: uniform(-4.5, 4.5)\nx1: uniform(-4.5, 4.5)\n", 2, 1, beale },
    { "deepar",
      "layers: uniform(0.69, 1.39)\ncells: uniform(3.4, 4.79)\n"
      "dropout: uniform(-4.6, -0.7)\nrate: uniform(-9.2, -2.3)\n"
      "batches: uniform(2.3, 9.17)\ncontext: uniform(-2.49, 1.38)\n",
      6, 1, deepar },
    { "zdt1", ZDT_SPACE, 30, 2, zdt1 },
    { "zdt2", ZDT_SPACE, 30, 2, zdt2 },
    { "zdt3", ZDT_SPACE, 30, 2, zdt3 },
};

const struct objective *objectives_find(const char *name)
{
    for (size_t i = 0; i < sizeof(objectives) / sizeof(*objectives); i++)
        if (!strcmp(objectives[i].name, name))
            return &objectives[i];
    return NULL;
}

int objectives_evaluate(const char *name, double *losses, const double *x)
{
    const struct objective *o = objectives_find(name);

    if (!o)
        return -1;
    o->evaluate(losses, x);
    return 0;
}

const char *objectives_space(const char *name)
{
    const struct objective *o = objectives_find(name);

    return o ? o->space : NULL;
}

static int read_rows(struct table *t, FILE *fp, size_t columns)
{
    size_t room = 0, n = 0;
    double value;

    while (fscanf(fp, "%lf", &value) == 1) {
        if (n == room) {
            room = room ? 2 * room : 1024;
            t->rows = realloc(t->rows, room * sizeof(*t->rows));
            if (!t->rows)
                return -1;
        }
        t->rows[n++] = value;
    }
    t->n = (int)(n / columns);
    for (size_t k = 0; k + 1 < columns; k++) {
        t->low[k] = INFINITY;
        t->high[k] = -INFINITY;
        for (int i = 0; i < t->n; i++) {
            t->low[k] = fmin(t->low[k], t->rows[(size_t)i * columns + k]);
            t->high[k] = fmax(t->high[k], t->rows[(size_t)i * columns + k]);
        }
    }
    return t->n;
}

int objectives_load(const char *name, const char *path)
{
    const struct objective *o = objectives_find(name);
    struct table *t = !strcmp(name, "nas")      ? &nas_table
                      : !strcmp(name, "deepar") ? &deepar_table
                                                : &xgboost_table;
    FILE *fp = o ? fopen(path, "r") : NULL;
    int n;

    if (!fp)
        return -1;
    n = read_rows(t, fp, o->ndims + 1);
    fclose(fp);
    return n;
}
