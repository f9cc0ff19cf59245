/* cma - the covariance matrix adaptation evolution strategy
 *
 * Equation numbers are those of Hansen's tutorial, arXiv 1604.00772. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/cma.h"
#include "lib/sweep/sampler/linalg.h"
#include "lib/sweep/space/truncnorm.h"

static const double EPS = 1e-8;
static const double SIGMA_MAX = 1e32;

/* Recombination weights, (49) to (53). */
static void set_weights(struct cma *s)
{
    double n = (double)s->n, lambda = (double)s->population;
    double sum[2] = { 0 }, square[2] = { 0 }, minus_eff, positive = 0, negative = 0;
    double least;

    s->mu = s->population / 2;
    for (size_t i = 0; i < s->population; i++) {
        double w = log((lambda + 1) / 2) - log((double)i + 1);

        s->weights[i] = w;
        sum[i >= s->mu] += w;
        square[i >= s->mu] += w * w;
        positive += fmax(w, 0);
        negative -= fmin(w, 0);
    }
    s->mu_eff = sum[0] * sum[0] / square[0];
    minus_eff = sum[1] * sum[1] / square[1];
    s->c1 = 2 / ((n + 1.3) * (n + 1.3) + s->mu_eff);
    s->cmu = fmin(1 - s->c1 - 1e-8, 2 * (s->mu_eff - 2 + 1 / s->mu_eff) /
                                        ((n + 2) * (n + 2) + s->mu_eff));
    if (s->separable) {
        s->c1 *= (n + 2) / 3;
        s->cmu = fmin(1 - s->c1, s->cmu * (n + 2) / 3);
    }
    least = s->separable
                ? 0
                : fmin(1 + s->c1 / s->cmu, 1 + 2 * minus_eff / (s->mu_eff + 2));
    least = fmin(least, (1 - s->c1 - s->cmu) / (n * s->cmu));
    for (size_t i = 0; i < s->population; i++)
        s->weights[i] *= s->weights[i] >= 0 ? 1 / positive : least / negative;
}

void cma_init(struct cma *s, size_t n, const double *mean, double sigma,
              size_t population, bool separable)
{
    double dn = (double)n;
    size_t square = separable ? n : n * n;

    if (!population)
        population = 4 + (size_t)floor(3 * log(dn));
    *s = (struct cma){
        .n = n, .population = population, .sigma = sigma, .separable = separable
    };
    s->weights = xcalloc(population, sizeof(double));
    s->mean = xcalloc(n, sizeof(double));
    s->p_sigma = xcalloc(n, sizeof(double));
    s->p_c = xcalloc(n, sizeof(double));
    s->c = xcalloc(square, sizeof(double));
    s->b = separable ? NULL : xcalloc(square, sizeof(double));
    s->d = xcalloc(n, sizeof(double));
    s->work = xcalloc(square + 2 * n + population * n, sizeof(double));
    memcpy(s->mean, mean, n * sizeof(double));
    for (size_t i = 0; i < n; i++) {
        s->c[separable ? i : i * n + i] = 1;
        s->d[i] = 1;
        if (s->b)
            s->b[i * n + i] = 1;
    }
    set_weights(s);
    s->c_sigma = (s->mu_eff + 2) / (dn + s->mu_eff + 5);
    s->d_sigma = 1 + 2 * fmax(0, sqrt((s->mu_eff - 1) / (dn + 1)) - 1) + s->c_sigma;
    s->cc = (4 + s->mu_eff / dn) / (dn + 4 + 2 * s->mu_eff / dn);
    s->chi_n = sqrt(dn) * (1 - 1 / (4 * dn) + 1 / (21 * dn * dn));
}

void cma_clear(struct cma *s)
{
    free(s->weights);
    free(s->mean);
    free(s->p_sigma);
    free(s->p_c);
    free(s->c);
    free(s->b);
    free(s->d);
    free(s->work);
    *s = (struct cma){ 0 };
}

/* b and d of c; negative values, which only rounding makes, become EPS. */
static void decompose(struct cma *s)
{
    size_t n = s->n;

    if (s->separable) {
        memcpy(s->d, s->c, n * sizeof(double));
    } else {
        memcpy(s->work, s->c, n * n * sizeof(double));
        linalg_eigen(s->d, s->b, s->work, n);
    }
    for (size_t i = 0; i < n; i++)
        s->d[i] = sqrt(s->d[i] < 0 ? EPS : s->d[i]);
}

static void draw_normal(const struct cma *s, double *x, double *z, struct rng *rng)
{
    for (size_t k = 0; k < s->n; k++)
        z[k] = s->d[k] * rng_normal(rng);
    for (size_t i = 0; i < s->n; i++) {
        double y = 0;

        for (size_t k = 0; k < s->n; k++)
            y += s->b[i * s->n + k] * z[k];
        x[i] = s->mean[i] + s->sigma * y;
    }
}

static bool in_cube(const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(x[i] >= 0 && x[i] <= 1))
            return false;
    return true;
}

/* Along the axes, drawing again until all are inside is to draw each inside. */
static void draw_inside(const struct cma *s, double *x, struct rng *rng)
{
    for (size_t i = 0; i < s->n; i++) {
        double spread = s->sigma * s->d[i], u = rng_uniform(rng);

        x[i] = s->mean[i] + spread * truncnorm_quantile(u, -s->mean[i] / spread,
                                                        (1 - s->mean[i]) / spread);
        x[i] = fmin(fmax(x[i], 0), 1);
    }
}

void cma_ask(const struct cma *s, double *x, int tries, struct rng *rng)
{
    double *z;

    if (s->separable) {
        draw_inside(s, x, rng);
        return;
    }
    z = xcalloc(s->n, sizeof(*z));
    for (int i = 0; i < tries; i++) {
        draw_normal(s, x, z, rng);
        if (in_cube(x, s->n))
            goto out;
    }
    draw_normal(s, x, z, rng);
    for (size_t i = 0; i < s->n; i++)
        x[i] = fmin(fmax(x[i], 0), 1);
out:
    free(z);
}

struct scored {
    double loss;
    size_t index;
};

static int compare_scored(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    if (x->loss != y->loss)
        return x->loss < y->loss ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* OUT = C^(-1/2) Y; Z is room for n. */
static void whiten(const struct cma *s, double *out, const double *y, double *z)
{
    size_t n = s->n;

    for (size_t k = 0; k < n && s->separable; k++)
        out[k] = y[k] / s->d[k];
    if (s->separable)
        return;
    for (size_t k = 0; k < n; k++) {
        z[k] = 0;
        for (size_t i = 0; i < n; i++)
            z[k] += s->b[i * n + k] * y[i];
        z[k] /= s->d[k];
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = 0;
        for (size_t k = 0; k < n; k++)
            out[i] += s->b[i * n + k] * z[k];
    }
}

static double square_norm(const double *v, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += v[i] * v[i];
    return sum;
}

/* (46), (47): the covariance from the path and the steps Y[population][n], sorted. */
static void adapt_covariance(struct cma *s, const double *y, double h_sigma, double *t)
{
    size_t n = s->n;
    double total = 0, keep, delta = (1 - h_sigma) * s->cc * (2 - s->cc);

    for (size_t k = 0; k < s->population; k++)
        total += s->weights[k];
    keep = 1 + s->c1 * delta - s->c1 - s->cmu * total;
    if (s->separable) {
        for (size_t i = 0; i < n; i++)
            s->c[i] = keep * s->c[i] + s->c1 * s->p_c[i] * s->p_c[i];
        for (size_t k = 0; k < s->mu; k++)
            for (size_t i = 0; i < n; i++)
                s->c[i] += s->cmu * s->weights[k] * y[k * n + i] * y[k * n + i];
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            s->c[i * n + j] = keep * s->c[i * n + j] + s->c1 * s->p_c[i] * s->p_c[j];
    for (size_t k = 0; k < s->population; k++) {
        const double *step = y + k * n;
        double w = s->weights[k];

        if (w < 0) {
            whiten(s, t, step, t + n);
            w *= (double)n / (square_norm(t, n) + EPS);
        }
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++)
                s->c[i * n + j] += s->cmu * w * step[i] * step[j];
    }
}

void cma_tell(struct cma *s, const double *points, const double *losses)
{
    size_t n = s->n;
    double *t = s->work + (s->separable ? n : n * n),
           *y = t + 2 * n; /* room: [2][n], [population][n] */
    double *mean_step = xcalloc(n, sizeof(*mean_step)), norm, left, h_sigma, factor;
    struct scored *order = xcalloc(s->population, sizeof(*order));

    s->generation++;
    for (size_t k = 0; k < s->population; k++)
        order[k] = (struct scored){ losses[k], k };
    qsort(order, s->population, sizeof(*order), compare_scored);
    for (size_t k = 0; k < s->population; k++)
        for (size_t i = 0; i < n; i++)
            y[k * n + i] = (points[order[k].index * n + i] - s->mean[i]) / s->sigma;
    for (size_t k = 0; k < s->mu; k++) /* (41), (42) */
        for (size_t i = 0; i < n; i++)
            mean_step[i] += s->weights[k] * y[k * n + i];
    for (size_t i = 0; i < n; i++)
        s->mean[i] += s->sigma * mean_step[i];
    whiten(s, t, mean_step, t + n);
    factor = sqrt(s->c_sigma * (2 - s->c_sigma) * s->mu_eff);
    for (size_t i = 0; i < n; i++) /* (43) */
        s->p_sigma[i] = (1 - s->c_sigma) * s->p_sigma[i] + factor * t[i];
    norm = sqrt(square_norm(s->p_sigma, n));
    left = norm / sqrt(1 - pow(1 - s->c_sigma, 2 * (s->generation + 1)));
    h_sigma = left < (1.4 + 2 / ((double)n + 1)) * s->chi_n;
    factor = h_sigma * sqrt(s->cc * (2 - s->cc) * s->mu_eff);
    for (size_t i = 0; i < n; i++) /* (45) */
        s->p_c[i] = (1 - s->cc) * s->p_c[i] + factor * mean_step[i];
    adapt_covariance(s, y, h_sigma, t);
    s->sigma *= exp(s->c_sigma / s->d_sigma * (norm / s->chi_n - 1)); /* (44) */
    s->sigma = fmin(s->sigma, SIGMA_MAX);
    decompose(s);
    free(mean_step);
    free(order);
}
