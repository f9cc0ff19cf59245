/* unit-sampling - the mathematics of samplers and importance, against Optuna and
 * scipy */
#include <stdlib.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/sweep/sampler/cma.h"
#include "lib/sweep/sampler/pedanova.h"
#include "lib/sweep/sampler/pareto.h"
#include "lib/sweep/sampler/parzen.h"
#include "lib/sweep/sampler/qmc.h"
#include "lib/sweep/sampler/sampler.h"
#include "lib/sweep/space/special.h"
#include "lib/sweep/space/truncnorm.h"
#include "tests/tap.h"

static struct json_doc doc;

static double number(const struct json *j)
{
    double x = NAN; /* null stays NaN */

    json_double(j, &x);
    return x;
}

static const struct json *at(const struct json *list, size_t i)
{
    const struct json *j = list->first;

    while (i--)
        j = j->next;
    return j;
}

static size_t size(const struct json *obj, const char *key)
{
    return (size_t)number(json_get(obj, key));
}

/* All numbers of the list J, nested ones in order. */
static size_t flatten(double *out, const struct json *j)
{
    size_t n = 0;

    if (j->type != JSON_ARRAY) {
        *out = number(j);
        return 1;
    }
    for (const struct json *k = j->first; k; k = k->next)
        n += flatten(out + n, k);
    return n;
}

static double *numbers(const struct json *obj, const char *key)
{
    double *out = xcalloc(100000, sizeof(*out));

    flatten(out, json_get(obj, key));
    return out;
}

static bool near(double got, double want, double tolerance)
{
    bool ok = fabs(got - want) <= tolerance * fmax(1, fabs(want));

    if (!ok)
        printf("#   got: %.17g\n#  want: %.17g\n", got, want);
    return ok;
}

static void test_truncnorm(void)
{
    bool mass = true, quantile = true;

    for (const struct json *row = json_get(doc.root, "truncnorm")->first; row;
         row = row->next) {
        double v[5];

        flatten(v, row);
        mass &= near(truncnorm_log_mass(v[0], v[1]), v[2], 1e-11);
        quantile &= near(truncnorm_quantile(v[3], v[0], v[1]), v[4], 1e-9);
    }
    tap_ok(mass, "the log mass of an interval is scipy's, far tails included");
    tap_ok(quantile, "quantiles of a truncated normal are scipy's");
}

static void test_beta(void)
{
    bool ok = true;

    for (const struct json *row = json_get(doc.root, "beta")->first; row;
         row = row->next) {
        double v[4];

        flatten(v, row);
        ok &= near(special_beta_quantile(v[2], v[0], v[1]), v[3], 1e-10);
    }
    tap_ok(ok, "quantiles of the beta distribution are scipy's");
}

static void load_space(struct space *space)
{
    struct err err;

    for (const struct json *j = json_get(doc.root, "space")->first; j; j = j->next) {
        struct space_param p = { .name = xstrdup(j->key), .parent = -1 };

        if (dist_read(&p.dist, &doc, j, &err) < 0)
            tap_ok(false, "a distribution of the fixture is read: %s", err.text);
        space_add(space, &p);
    }
}

static void test_parzen(const struct space *space)
{
    const struct dist *dists[8];
    size_t d = space->n;

    for (size_t i = 0; i < d; i++)
        dists[i] = &space->params[i].dist;
    for (const struct json *c = json_get(doc.root, "parzen")->first; c; c = c->next) {
        size_t n = json_get(c, "observations")->n;
        double *x = numbers(c, "observations"), *points = numbers(c, "points");
        double *want = numbers(c, "log_density");
        struct parzen p;
        bool ok = true, inside = true;
        double point[8];
        struct rng rng;

        parzen_init(&p, x, n, dists, d, false);
        for (size_t i = 0; i < 4; i++)
            ok &= near(parzen_log_density(&p, points + i * d), want[i], 1e-9);
        tap_ok(ok, "the log density after %zu observations is Optuna's", n);
        rng_init(&rng, 1, n);
        for (int i = 0; i < 200; i++) {
            parzen_draw(&p, point, &rng);
            for (size_t k = 0; k < d; k++)
                inside &= dist_contains(dists[k], point[k]);
        }
        tap_ok(inside, "points drawn after %zu observations are in the space", n);
        parzen_clear(&p);
        free(x);
        free(points);
        free(want);
    }
}

static void test_sequences(void)
{
    const struct json *s = json_get(doc.root, "sequences");
    bool sobol = true, halton = true;

    for (size_t i = 0; i < json_get(s, "ids")->n; i++) {
        uint64_t id = (uint64_t)number(at(json_get(s, "ids"), i));
        const struct json *a = at(json_get(s, "sobol"), i);
        const struct json *b = at(json_get(s, "halton"), i);

        for (size_t d = 0; d < a->n; d++) {
            sobol &= qmc_sobol(id, d, NULL) == number(at(a, d));
            halton &= near(qmc_halton(id, d, NULL), number(at(b, d)), 1e-14);
        }
    }
    tap_ok(sobol, "Sobol points are scipy's in 70 dimensions");
    tap_ok(halton, "Halton points are scipy's in 70 dimensions");
}

/* Scrambled, 2^10 points still fall one into each of 2^10 intervals. */
static void test_scrambling(void)
{
    enum { N = 1024 };
    bool even = true, differ = false, inside = true;

    for (size_t d = 0; d < 40; d++) {
        bool hit[N] = { false };
        uint64_t seed = 7, other = 8;

        for (uint64_t i = 0; i < N; i++) {
            double u = qmc_sobol(i, d, &seed), h = qmc_halton(i, d, &seed);

            inside &= u >= 0 && u < 1 && h >= 0 && h < 1;
            hit[(size_t)(u * N)] = true;
            differ |= u != qmc_sobol(i, d, &other);
        }
        for (size_t i = 0; i < N; i++)
            even &= hit[i];
    }
    tap_ok(inside, "scrambled points stay in the unit cube");
    tap_ok(even, "a scrambled Sobol sequence stays evenly spread");
    tap_ok(differ, "another seed scrambles otherwise");
}

static void check_all(const char *name, const struct json *c, const char *key,
                      const double *got, size_t n)
{
    double *want = numbers(c, key);
    bool ok = true;

    for (size_t i = 0; i < n; i++)
        ok &= near(got[i], want[i], 1e-9);
    tap_ok(ok, "%s in %zu dimensions", name, size(c, "n"));
    free(want);
}

static void test_cma(void)
{
    for (const struct json *c = json_get(doc.root, "cma")->first; c; c = c->next) {
        size_t n = size(c, "n");
        double mean[16], *points = numbers(c, "points"), *losses = numbers(c, "losses");
        struct cma s;

        for (size_t i = 0; i < n; i++)
            mean[i] = 0.5;
        cma_init(&s, n, mean, 1.0 / 6, 0, false);
        tap_ok(s.population == size(c, "population") &&
                   near(s.mu_eff, number(json_get(c, "mu_eff")), 1e-12) &&
                   near(s.c1, number(json_get(c, "c1")), 1e-12) &&
                   near(s.cmu, number(json_get(c, "cmu")), 1e-12) &&
                   near(s.cc, number(json_get(c, "cc")), 1e-12) &&
                   near(s.c_sigma, number(json_get(c, "c_sigma")), 1e-12) &&
                   near(s.d_sigma, number(json_get(c, "d_sigma")), 1e-12),
               "the constants of CMA-ES are those of cmaes in %zu dimensions", n);
        check_all("the weights of CMA-ES are those of cmaes", c, "weights", s.weights,
                  s.population);
        for (size_t g = 0; g < 6; g++)
            cma_tell(&s, points + g * s.population * n, losses + g * s.population);
        tap_is_near(s.sigma, number(json_get(c, "sigma")), 1e-9,
                    "after six generations the step size is that of cmaes");
        check_all("so is the mean", c, "mean", s.mean, n);
        check_all("so is the covariance", c, "c", s.c, n * n);
        check_all("so is the path", c, "p_c", s.p_c, n);
        cma_clear(&s);
        free(points);
        free(losses);
    }
}

static void test_fronts(void)
{
    bool ranks = true, volumes = true, choices = true;

    for (const struct json *c = json_get(doc.root, "fronts")->first; c; c = c->next) {
        size_t n = size(c, "n"), m = size(c, "m"), k = size(c, "k");
        size_t rank[64], some[64], chosen[64];
        double *x = numbers(c, "losses"), *front = numbers(c, "front");
        double picked[256], ref[4] = { 10.5, 10.5, 10.5, 10.5 };

        pareto_ranks(rank, x, n, m, 0);
        pareto_ranks(some, x, n, m, size(c, "enough"));
        for (size_t i = 0; i < n; i++) {
            ranks &= (double)rank[i] == number(at(json_get(c, "ranks"), i));
            if (m > 1) /* with one objective Optuna ranks all of them */
                ranks &= (double)some[i] == number(at(json_get(c, "ranks_enough"), i));
        }
        volumes &= near(pareto_hypervolume(x, n, m, ref), number(json_get(c, "volume")),
                        1e-12);
        pareto_choose(chosen, k, front, json_get(c, "front")->n, m, ref);
        for (size_t i = 0; i < k; i++)
            memcpy(picked + i * m, front + chosen[i] * m, m * sizeof(double));
        choices &= near(pareto_hypervolume(picked, k, m, ref),
                        number(json_get(c, "chosen_volume")), 1e-12);
        free(x);
        free(front);
    }
    tap_ok(ranks, "non-domination ranks are Optuna's");
    tap_ok(volumes, "hypervolumes of two, three and four objectives are Optuna's");
    tap_ok(choices, "the subset chosen by hypervolume is as good as Optuna's");
}

static void test_importance(const struct space *space)
{
    for (const struct json *c = json_get(doc.root, "importance")->first; c;
         c = c->next) {
        const struct json *rows = json_get(c, "rows");
        struct history h;
        double out[8];
        bool ok = true;

        history_init(&h, space->n, json_get(rows->first, "losses")->n);
        for (const struct json *r = rows->first; r; r = r->next) {
            struct past *t = history_add(&h, (int)h.n, PAST_COMPLETE);

            flatten(t->x, json_get(r, "x"));
            flatten(t->loss, json_get(r, "losses"));
        }
        pedanova_importance(out, &h, space, -1, false);
        for (size_t i = 0; i < space->n; i++)
            ok &= near(out[i], number(at(json_get(c, "importance"), i)), 1e-9);
        tap_ok(ok, "importances of %zu trials with %zu objectives are Optuna's", h.n,
               h.nobjectives);
        history_clear(&h);
    }
}

int main(void)
{
    const char *top = getenv("top_srcdir");
    char *path = fs_join_dup(top ? top : ".", "tests/data/sweep/sampling.json");
    struct space space = { 0 };
    struct err err;
    char *text;
    size_t len;

    if (fs_read_file(&text, &len, path, 1 << 24, &err) < 0 ||
        json_parse(&doc, path, text, len, &err) < 0) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    load_space(&space);
    test_truncnorm();
    test_beta();
    test_parzen(&space);
    test_sequences();
    test_scrambling();
    test_cma();
    test_fronts();
    test_importance(&space);
    space_clear(&space);
    json_clear(&doc);
    free(text);
    free(path);
    return tap_done();
}
