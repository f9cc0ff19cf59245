/* qmc - low-discrepancy sequences: Sobol and Halton
 *
 * Trial N takes point N of a sequence that the study's seed scrambles, so parallel and
 * resumed studies fill the space alike.  Unscrambled, the first point is a corner. */
#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/qmc.h"
#include "lib/sweep/sampler/sampler.h"
#include "lib/sweep/sampler/sobol.h"

/* The random stream that scrambles dimension D, far from the trials' own. */
static void scramble_rng(struct rng *rng, uint64_t seed, size_t d)
{
    rng_init(rng, seed, UINT64_MAX - d);
}

static uint32_t parity(uint32_t x)
{
    x ^= x >> 16;
    x ^= x >> 8;
    x ^= x >> 4;
    return 0x6996u >> (x & 15) & 1;
}

/* Multiply the bits of V, highest first, by a random lower triangular matrix with ones
 * on the diagonal (Matousek, "On the L2-discrepancy for anchored boxes", 1998). */
static void scramble_directions(uint32_t v[SOBOL_BITS], struct rng *rng)
{
    uint32_t out[SOBOL_BITS] = { 0 };

    for (int bit = 0; bit < SOBOL_BITS; bit++) {
        uint32_t one = 1u << (SOBOL_BITS - 1 - bit);
        uint32_t row = (rng_u32(rng) & ~(one - 1)) | one;

        for (int i = 0; i < SOBOL_BITS; i++)
            out[i] |= parity(row & v[i]) ? one : 0;
    }
    for (int i = 0; i < SOBOL_BITS; i++)
        v[i] = out[i];
}

double qmc_sobol(uint64_t index, size_t dim, const uint64_t *seed)
{
    uint32_t v[SOBOL_BITS], x = 0, gray = (uint32_t)(index ^ index >> 1);
    struct rng rng;

    sobol_directions(v, (int)dim);
    if (seed) {
        scramble_rng(&rng, *seed, dim);
        scramble_directions(v, &rng);
        x = rng_u32(&rng);
    }
    for (int i = 0; i < SOBOL_BITS; i++)
        if (gray >> i & 1)
            x ^= v[i];
    return x * 0x1p-32;
}

static unsigned prime(size_t k)
{
    unsigned p = 2;

    for (;; p++) {
        unsigned q = 2;

        while (q * q <= p && p % q)
            q++;
        if (q * q > p && k-- == 0)
            return p;
    }
}

/* A random permutation of the digits 0..BASE-1 (Fisher and Yates). */
static void shuffle(unsigned *digits, unsigned base, struct rng *rng)
{
    for (unsigned i = 0; i < base; i++)
        digits[i] = i;
    for (unsigned i = base - 1; i > 0; i--) {
        unsigned k = (unsigned)rng_below(rng, i + 1), swap = digits[i];

        digits[i] = digits[k];
        digits[k] = swap;
    }
}

double qmc_halton(uint64_t index, size_t dim, const uint64_t *seed)
{
    unsigned base = prime(dim);
    unsigned *digits = seed ? xcalloc(base, sizeof(*digits)) : NULL;
    double x = 0, scale = 1;
    struct rng rng;

    if (seed)
        scramble_rng(&rng, *seed, dim);
    /* Scrambled, the zeros ahead of the index are digits too, down to 2^-53. */
    while (seed ? scale > 0x1p-53 : index > 0) {
        unsigned digit = (unsigned)(index % base);

        if (seed) {
            shuffle(digits, base, &rng);
            digit = digits[digit];
        }
        scale /= base;
        x += digit * scale;
        index /= base;
    }
    free(digits);
    return fmin(x, 1 - 0x1p-53);
}

enum { SET_SEQUENCE, SET_SCRAMBLE };
enum { SEQUENCE_SOBOL, SEQUENCE_HALTON };

static const char *const sequences[] = { "sobol", "halton", NULL };
static const char *const no_yes[] = { "no", "yes", NULL };

static const struct setting settings[] = {
    [SET_SEQUENCE] = { .name = "sequence",
                       .words = sequences,
                       .help = "sobol or halton" },
    [SET_SCRAMBLE] = { .name = "scramble",
                       .fallback = 1,
                       .words = no_yes,
                       .help = "randomize the sequence by the seed: yes or no" },
    { .name = NULL },
};

static int check(const struct space *space, const double *set, struct err *err)
{
    (void)set;
    if (space->n > SOBOL_DIMS)
        return err_set(err, ERR_USAGE, "qmc serves at most %d parameters, not %zu",
                       SOBOL_DIMS, space->n);
    return 0;
}

static int draw(double *x, struct sampler_note *note, const struct sampler_task *task)
{
    const uint64_t *seed = task->set[SET_SCRAMBLE] > 0 ? &task->seed : NULL;
    bool halton = (int)task->set[SET_SEQUENCE] == SEQUENCE_HALTON;

    (void)note;
    for (size_t i = 0; i < task->space->n; i++) {
        double u = halton ? qmc_halton((uint64_t)task->number, i, seed)
                          : qmc_sobol((uint64_t)task->number, i, seed);

        x[i] = space_quantile(&task->space->params[i], u);
    }
    return 1;
}

const struct sampler sampler_qmc = {
    .name = "qmc",
    .summary = "low-discrepancy sequence (Sobol or Halton)",
    .settings = settings,
    .blind = true,
    .check = check,
    .draw = draw,
};
