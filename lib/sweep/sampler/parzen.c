/* parzen - a Parzen estimator: a mixture of products, one kernel per observation */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/parzen.h"
#include "lib/sweep/space/space.h"
#include "lib/sweep/space/truncnorm.h"

enum { FLAT_WEIGHTS = 25 }; /* the newest observations, which count fully */

static const double LOG_SQRT_2PI = 0.91893853320467274178;

struct parzen_dim {
    const struct dist *dist;
    double low, high; /* on the scale; half a step beyond the values when discrete */

    /* normals */
    double *mu, *sigma; /* [nkernels] */
    /* discrete: kernels that share centre and width share the mass of a value */
    size_t *distinct; /* [nkernels]: index into mass, NULL when continuous */
    double *mass;     /* [ndistinct]: room, log mass of the value at hand */
    size_t *sample;   /* [ndistinct]: a kernel of each */
    size_t ndistinct;

    /* choices */
    size_t *choice; /* [nkernels - 1]: as observed */
    double log_hit, log_miss, log_prior;
    double hit, miss;
};

struct ranked {
    double mu;
    size_t index;
};

/* By mu, then index: merges ever longer runs (qsort's calls take most of its time). */
static void sort_ranked(struct ranked *v, size_t n)
{
    struct ranked *room = xcalloc(n + 1, sizeof(*room)), *from = v, *to = room, *swap;

    for (size_t width = 1; width < n; width *= 2) {
        for (size_t at = 0; at < n; at += 2 * width) {
            size_t middle = at + width < n ? at + width : n;
            size_t end = middle + width < n ? middle + width : n;
            size_t a = at, b = middle;

            for (size_t k = at; k < end; k++)
                to[k] = b >= end || (a < middle && from[a].mu <= from[b].mu)
                            ? from[a++]
                            : from[b++];
        }
        swap = from;
        from = to;
        to = swap;
    }
    if (from != v)
        memcpy(v, from, n * sizeof(*v));
    free(room);
}

static void weigh(double *weights, size_t n, bool even)
{
    size_t ramp = n > FLAT_WEIGHTS && !even ? n - FLAT_WEIGHTS : 0;
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        weights[i] = 1;
    for (size_t i = 0; i < ramp; i++) /* evenly from 1/n up to 1 */
        weights[i] = ramp == 1 ? 1.0 / (double)n
                               : 1.0 / (double)n + (1 - 1.0 / (double)n) * (double)i /
                                                       (double)(ramp - 1);
    weights[n] = 1; /* the prior */
    for (size_t i = 0; i <= n; i++)
        sum += weights[i];
    for (size_t i = 0; i <= n; i++)
        weights[i] /= sum;
}

/* Widths: the larger distance to a neighbour; the outermost look inwards alone. */
static void widths(struct parzen_dim *d, const struct ranked *r, size_t n)
{
    double range = d->high - d->low;
    double least = range / fmin(100, 2.0 + (double)n);

    for (size_t k = 0; k < n; k++) {
        double left = k > 0 ? r[k].mu - r[k - 1].mu : -INFINITY;
        double right = k + 1 < n ? r[k + 1].mu - r[k].mu : -INFINITY;
        double sigma = fmax(left, right);

        if (n == 1)
            sigma = fmax(r[k].mu - d->low, d->high - r[k].mu);
        d->sigma[r[k].index] = fmin(fmax(sigma, least), range);
    }
    d->mu[n] = 0.5 * (d->low + d->high);
    d->sigma[n] = range;
}

/* Number the different kernels; R is sorted by centre, so equals are neighbours
 * unless their widths alternate, which only costs time. */
static void find_distinct(struct parzen_dim *d, const struct ranked *r, size_t n)
{
    d->distinct = xcalloc(n + 1, sizeof(*d->distinct));
    d->sample = xcalloc(n + 1, sizeof(*d->sample));
    for (size_t k = 0; k <= n; k++) {
        size_t i = k < n ? r[k].index : n;
        size_t last = d->ndistinct ? d->sample[d->ndistinct - 1] : 0;

        if (!d->ndistinct || d->mu[i] != d->mu[last] || d->sigma[i] != d->sigma[last])
            d->sample[d->ndistinct++] = i;
        d->distinct[i] = d->ndistinct - 1;
    }
    d->mass = xcalloc(d->ndistinct, sizeof(*d->mass));
}

static void init_normals(struct parzen_dim *d, const double *x, size_t n, size_t stride)
{
    struct ranked *r = xcalloc(n + 1, sizeof(*r));

    space_scale_bounds(d->dist, &d->low, &d->high);
    d->mu = xcalloc(n + 1, sizeof(*d->mu));
    d->sigma = xcalloc(n + 1, sizeof(*d->sigma));
    for (size_t k = 0; k < n; k++) {
        d->mu[k] = space_to_scale(d->dist, x[k * stride]);
        r[k] = (struct ranked){ d->mu[k], k };
    }
    sort_ranked(r, n); /* equals keep the order of their index */
    widths(d, r, n);
    if (d->dist->step > 0)
        find_distinct(d, r, n);
    free(r);
}

/* A kernel gives its own choice 1 + 1/nkernels, the others 1/nkernels, over the sum. */
static void init_choices(struct parzen_dim *d, const double *x, size_t n, size_t stride)
{
    double share = 1.0 / (double)(n + 1), choices = (double)d->dist->nchoices;

    d->choice = xcalloc(n + 1, sizeof(*d->choice));
    for (size_t k = 0; k < n; k++)
        d->choice[k] = (size_t)x[k * stride];
    d->hit = (1 + share) / (1 + share * choices);
    d->miss = share / (1 + share * choices);
    d->log_hit = log(d->hit);
    d->log_miss = log(d->miss);
    d->log_prior = -log(choices);
}

/* log of what the truncation leaves of kernel K, and the normal's own factor. */
static double normalizer(const struct parzen_dim *d, size_t k)
{
    double mu = d->mu[k], sigma = d->sigma[k];
    double log_z = truncnorm_log_mass((d->low - mu) / sigma, (d->high - mu) / sigma);

    return d->distinct ? log_z : log_z + log(sigma) + LOG_SQRT_2PI;
}

static void subtract_normalizers(const struct parzen *p, const struct parzen_dim *d)
{
    if (d->distinct) {
        for (size_t g = 0; g < d->ndistinct; g++)
            d->mass[g] = normalizer(d, d->sample[g]);
        for (size_t k = 0; k < p->nkernels; k++)
            p->constants[k] -= d->mass[d->distinct[k]];
        return;
    }
    for (size_t k = 0; k < p->nkernels; k++)
        p->constants[k] -= normalizer(d, k);
}

void parzen_init(struct parzen *p, const double *observations, size_t n,
                 const struct dist *const *dists, size_t ndims, bool even)
{
    *p = (struct parzen){ .ndims = ndims, .nkernels = n + 1 };
    p->weights = xcalloc(n + 1, sizeof(*p->weights));
    p->constants = xcalloc(n + 1, sizeof(*p->constants));
    p->sums = xcalloc(n + 1, sizeof(*p->sums));
    p->dims = xcalloc(ndims, sizeof(*p->dims));
    weigh(p->weights, n, even);
    for (size_t k = 0; k <= n; k++)
        p->constants[k] = log(p->weights[k]);
    for (size_t i = 0; i < ndims; i++) {
        struct parzen_dim *d = &p->dims[i];

        d->dist = dists[i];
        if (d->dist->kind == DIST_CATEGORICAL) {
            init_choices(d, observations + i, n, ndims);
        } else {
            init_normals(d, observations + i, n, ndims);
            subtract_normalizers(p, d);
        }
    }
}

void parzen_clear(struct parzen *p)
{
    for (size_t i = 0; i < p->ndims; i++) {
        struct parzen_dim *d = &p->dims[i];

        free(d->mu);
        free(d->sigma);
        free(d->distinct);
        free(d->mass);
        free(d->sample);
        free(d->choice);
    }
    free(p->dims);
    free(p->weights);
    free(p->constants);
    free(p->sums);
    *p = (struct parzen){ 0 };
}

static size_t draw_kernel(const struct parzen *p, struct rng *rng)
{
    double u = rng_uniform(rng);
    size_t k = 0;

    while (k + 1 < p->nkernels && (u -= p->weights[k]) >= 0)
        k++;
    return k;
}

static double draw_choice(const struct parzen_dim *d, bool prior, size_t k, double u)
{
    size_t n = d->dist->nchoices;

    if (prior)
        return fmin(floor(u * (double)n), (double)n - 1);
    for (size_t c = 0; c + 1 < n; c++) {
        u -= c == d->choice[k] ? d->hit : d->miss;
        if (u < 0)
            return (double)c;
    }
    return (double)(n - 1);
}

void parzen_draw(const struct parzen *p, double *x, struct rng *rng)
{
    size_t k = draw_kernel(p, rng);

    for (size_t i = 0; i < p->ndims; i++) {
        const struct parzen_dim *d = &p->dims[i];
        double u = rng_uniform(rng), t;

        if (d->choice) {
            x[i] = draw_choice(d, k + 1 == p->nkernels, k, u);
            continue;
        }
        t = truncnorm_quantile(u, (d->low - d->mu[k]) / d->sigma[k],
                               (d->high - d->mu[k]) / d->sigma[k]);
        x[i] = space_from_scale(d->dist, d->mu[k] + t * d->sigma[k]);
    }
}

static void add_choice(const struct parzen *p, const struct parzen_dim *d, double x)
{
    size_t choice = (size_t)x, n = p->nkernels - 1;

    for (size_t k = 0; k < n; k++)
        p->sums[k] += d->choice[k] == choice ? d->log_hit : d->log_miss;
    p->sums[n] += d->log_prior;
}

static void add_discrete(const struct parzen *p, const struct parzen_dim *d, double x)
{
    double half = d->dist->step / 2;
    double left = space_to_scale(d->dist, x - half);
    double right = space_to_scale(d->dist, x + half);

    for (size_t g = 0; g < d->ndistinct; g++) {
        double mu = d->mu[d->sample[g]], sigma = d->sigma[d->sample[g]];

        d->mass[g] = truncnorm_log_mass((left - mu) / sigma, (right - mu) / sigma);
    }
    for (size_t k = 0; k < p->nkernels; k++)
        p->sums[k] += d->mass[d->distinct[k]];
}

static void add_continuous(const struct parzen *p, const struct parzen_dim *d, double x)
{
    double t = space_to_scale(d->dist, x);

    for (size_t k = 0; k < p->nkernels; k++) {
        double z = (t - d->mu[k]) / d->sigma[k];

        p->sums[k] -= 0.5 * z * z;
    }
}

double parzen_log_density(struct parzen *p, const double *x)
{
    double most = -INFINITY, sum = 0;

    for (size_t k = 0; k < p->nkernels; k++)
        p->sums[k] = p->constants[k];
    for (size_t i = 0; i < p->ndims; i++) {
        const struct parzen_dim *d = &p->dims[i];

        if (d->choice)
            add_choice(p, d, x[i]);
        else if (d->distinct)
            add_discrete(p, d, x[i]);
        else
            add_continuous(p, d, x[i]);
    }
    for (size_t k = 0; k < p->nkernels; k++)
        most = fmax(most, p->sums[k]);
    if (most == -INFINITY)
        return most;
    for (size_t k = 0; k < p->nkernels; k++)
        if (p->sums[k] > most - 40) /* below: lost in the rounding */
            sum += exp(p->sums[k] - most);
    return most + log(sum);
}
