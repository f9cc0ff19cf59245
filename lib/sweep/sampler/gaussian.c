/* gaussian - Gaussian process regression in a unit cube */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/gaussian.h"
#include "lib/sweep/sampler/linalg.h"
#include "lib/sweep/sampler/minimize.h"

/* Of the search for the best lengths: from each start, and from the best of them on.
 * FEW observations and less are fitted from each start to the end. */
enum { FIRST_STEPS = 12, STEPS = 60, FEW = 128 };

/* Of the prior: 1 / length^2 between 0.1 and 10, by and large; gamma densities of the
 * variances. */
static const double LENGTH_RATE = 0.1;
static const double SIGNAL_SHAPE = 2, SIGNAL_RATE = 1;
static const double NOISE_SHAPE = 1.1, NOISE_RATE = 30;
static const double NOISE_LEAST = 1e-6;
/* A relative gain of the fit that is none: of FEW observations, and of more. */
static const double LEVEL_FEW = 1e-9, LEVEL = 1e-5;
static const double DEVIATION_LEAST = 1e-10;

static double square_distance(const struct gaussian *g, const double *a,
                              const double *b)
{
    double sum = 0;

    for (size_t i = 0; i < g->d; i++) {
        double gap = g->choice[i] ? a[i] != b[i] : a[i] - b[i];

        sum += g->inverse[i] * gap * gap;
    }
    return sum;
}

/* The kernel at squared distance Q, for a signal of 1, and its derivative by Q. */
static double matern(double q, double *derivative)
{
    double a = sqrt(5 * q), e = exp(-a);

    *derivative = -5.0 / 6 * (1 + a) * e;
    return (1 + a + a * a / 3) * e;
}

/* l and alpha; false when the covariance is not positive definite.  KERNEL and SLOPE,
 * unless NULL, become [n][n] the kernel and its derivative, the lower triangle only. */
static bool factor(struct gaussian *g, double *kernel, double *slope)
{
    for (size_t i = 0; i < g->n; i++) {
        for (size_t j = 0; j < i; j++) {
            double q = square_distance(g, g->x + i * g->d, g->x + j * g->d), s;
            double k = matern(q, &s);

            if (kernel) {
                kernel[i * g->n + j] = k;
                slope[i * g->n + j] = s;
            }
            g->l[i * g->n + j] = g->signal * k;
        }
        g->l[i * g->n + i] = g->signal + g->noise;
    }
    if (!linalg_cholesky(g->l, g->n))
        return false;
    memcpy(g->alpha, g->y, g->n * sizeof(*g->y));
    linalg_solve_lower(g->l, g->alpha, g->n);
    linalg_solve_upper(g->l, g->alpha, g->n);
    return true;
}

/* The same with as much noise as that takes. */
static void factor_surely(struct gaussian *g)
{
    while (!factor(g, NULL, NULL))
        g->noise = 10 * fmax(g->noise, NOISE_LEAST);
}

struct fitting {
    struct gaussian *g;
    double *inverse;        /* [n][n]: of the covariance */
    double *kernel, *slope; /* [n][n]: as of factor */
};

/* What the prior adds, as a loss, for the logarithms in P, and its gradient. */
static double prior(const struct gaussian *g, const double *p, double *gradient)
{
    double loss = 0;

    for (size_t i = 0; i < g->d; i++) {
        double inverse = g->inverse[i];

        loss += LENGTH_RATE * (1 / inverse + inverse);
        gradient[i] += 2 * LENGTH_RATE * (1 / inverse - inverse);
    }
    loss += SIGNAL_RATE * g->signal - (SIGNAL_SHAPE - 1) * p[g->d];
    gradient[g->d] += SIGNAL_RATE * g->signal - (SIGNAL_SHAPE - 1);
    loss += NOISE_RATE * g->noise - (NOISE_SHAPE - 1) * p[g->d + 1];
    gradient[g->d + 1] += NOISE_RATE * g->noise - (NOISE_SHAPE - 1);
    return loss;
}

/* P[d + 2] are the logarithms of the lengths, the signal and the noise. */
static void take(struct gaussian *g, const double *p)
{
    for (size_t i = 0; i < g->d; i++)
        g->inverse[i] = exp(-2 * p[i]);
    g->signal = exp(p[g->d]);
    g->noise = exp(p[g->d + 1]);
}

/* Minus the logarithm of the posterior density (2.30, 5.9), P as in take. */
static double badness(void *context, const double *p, double *gradient)
{
    struct fitting *f = context;
    struct gaussian *g = f->g;
    double loss = 0;

    take(g, p);
    memset(gradient, 0, (g->d + 2) * sizeof(*gradient));
    if (!factor(g, f->kernel, f->slope))
        return INFINITY;
    linalg_inverse(f->inverse, g->l, g->n);
    for (size_t i = 0; i < g->n; i++) {
        const double *a = g->x + i * g->d;
        double w = f->inverse[i * g->n + i] - g->alpha[i] * g->alpha[i];

        loss += 0.5 * g->y[i] * g->alpha[i] + log(g->l[i * g->n + i]);
        gradient[g->d] += 0.5 * w * g->signal;
        gradient[g->d + 1] += 0.5 * w * g->noise;
        for (size_t j = 0; j < i; j++) {
            const double *b = g->x + j * g->d;
            double slope = f->slope[i * g->n + j];

            w = g->signal * (f->inverse[i * g->n + j] - g->alpha[i] * g->alpha[j]);
            gradient[g->d] += w * f->kernel[i * g->n + j];
            for (size_t c = 0; c < g->d; c++) {
                double gap = g->choice[c] ? a[c] != b[c] : a[c] - b[c];

                gradient[c] -= 2 * w * slope * g->inverse[c] * gap * gap;
            }
        }
    }
    return loss + prior(g, p, gradient);
}

static void allocate(struct gaussian *g, const double *x, const double *y, size_t n,
                     const bool *choice, size_t d)
{
    *g = (struct gaussian){ .n = n, .d = d, .x = x, .y = y, .choice = choice };
    g->inverse = xcalloc(d + 1, sizeof(*g->inverse));
    g->l = xcalloc(n * n + 1, sizeof(*g->l));
    g->alpha = xcalloc(n + 1, sizeof(*g->alpha));
}

/* Improve the logarithms P of G's lengths and variances; returns the loss there. */
static double improve(struct gaussian *g, double *p, const double *low,
                      const double *high, int steps)
{
    double *room = xcalloc(3 * g->n * g->n + 1, sizeof(*room)), loss;
    struct fitting f = { .g = g,
                         .inverse = room,
                         .kernel = room + g->n * g->n,
                         .slope = room + 2 * g->n * g->n };

    loss = minimize(p, g->d + 2, low, high, badness, &f,
                    g->n <= FEW ? LEVEL_FEW : LEVEL, steps);
    free(room);
    return loss;
}

/* The best of a few starts: BEST[d + 2].  Of more than FEW observations by some steps
 * from each, with every second, which tell them apart. */
static void choose_start(double *best, const struct gaussian *g, const double *low,
                         const double *high)
{
    static const double starts[] = { 0.5, 0.2, 2 };
    size_t stride = g->n > FEW ? 2 : 1, n = (g->n + stride - 1) / stride, d = g->d;
    double *x = xcalloc(n, d * sizeof(*x)), *y = xcalloc(n, sizeof(*y));
    double *p = xcalloc(d + 2, sizeof(*p)), least = INFINITY;
    struct gaussian some;

    for (size_t i = 0; i < n; i++) {
        memcpy(x + i * d, g->x + i * stride * d, d * sizeof(*x));
        y[i] = g->y[i * stride];
    }
    allocate(&some, x, y, n, g->choice, d);
    for (size_t s = 0; s < sizeof(starts) / sizeof(*starts); s++) {
        double loss;

        for (size_t i = 0; i < d; i++)
            p[i] = log(starts[s] * sqrt((double)d));
        p[d] = 0;
        p[d + 1] = log(1e-3);
        loss = improve(&some, p, low, high, stride > 1 ? FIRST_STEPS : STEPS);
        if (s > 0 && !(loss < least))
            continue;
        least = loss;
        memcpy(best, p, (d + 2) * sizeof(*p));
    }
    gaussian_clear(&some);
    free(x);
    free(y);
    free(p);
}

void gaussian_fit(struct gaussian *g, const double *x, const double *y, size_t n,
                  const bool *choice, size_t d)
{
    double *room = xcalloc(3 * (d + 2), sizeof(*room));
    double *best = room, *low = best + d + 2, *high = low + d + 2;

    allocate(g, x, y, n, choice, d);
    for (size_t i = 0; i < d; i++) {
        low[i] = log(0.005);
        high[i] = log(100);
    }
    low[d] = log(0.01);
    high[d] = log(1000);
    low[d + 1] = log(NOISE_LEAST);
    high[d + 1] = 0;
    choose_start(best, g, low, high);
    if (g->n > FEW)
        improve(g, best, low, high, STEPS);
    take(g, best);
    factor_surely(g);
    free(room);
}

void gaussian_again(struct gaussian *g, const struct gaussian *fitted, const double *x,
                    const double *y, size_t n)
{
    allocate(g, x, y, n, fitted->choice, fitted->d);
    memcpy(g->inverse, fitted->inverse, g->d * sizeof(*g->inverse));
    g->signal = fitted->signal;
    g->noise = fitted->noise;
    factor_surely(g);
}

void gaussian_clear(struct gaussian *g)
{
    free(g->inverse);
    free(g->l);
    free(g->alpha);
    *g = (struct gaussian){ 0 };
}

void gaussian_predict(const struct gaussian *g, const double *x, double *mean,
                      double *deviation, double *dmean, double *ddeviation,
                      double *room)
{
    double *k = room, *slope = room + g->n, variance = g->signal;

    *mean = 0;
    for (size_t i = 0; i < g->n; i++) {
        double q = square_distance(g, x, g->x + i * g->d);

        k[i] = g->signal * matern(q, &slope[i]);
        *mean += k[i] * g->alpha[i];
    }
    linalg_solve_lower(g->l, k, g->n);
    for (size_t i = 0; i < g->n; i++)
        variance -= k[i] * k[i];
    *deviation = sqrt(fmax(variance, DEVIATION_LEAST));
    if (!dmean)
        return;
    linalg_solve_upper(g->l, k, g->n);
    memset(dmean, 0, g->d * sizeof(*dmean));
    memset(ddeviation, 0, g->d * sizeof(*ddeviation));
    for (size_t i = 0; i < g->n; i++)
        for (size_t c = 0; c < g->d; c++) {
            double gap = g->choice[c] ? 0 : x[c] - g->x[i * g->d + c];
            double dk = 2 * g->signal * slope[i] * g->inverse[c] * gap;

            dmean[c] += dk * g->alpha[i];
            ddeviation[c] -= dk * k[i] / *deviation; /* d sqrt(s - k'Ck) */
        }
}
