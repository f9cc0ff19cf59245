/* fuzz-space - sweep files, YAML and JSON, and points drawn from what they say */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/sampler.h"
#include "lib/sweep/format/sweepfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *lookup(const char *name)
{
    (void)name;
    return NULL;
}

static void use(const struct sweepfile *f, double *x)
{
    struct err err = { 0 };
    struct str text = { 0 };
    struct rng rng;
    char **words = NULL;

    rng_init(&rng, 1, 1);
    sampler_prior(x, &f->space, &rng);
    space_settle(&f->space, x);
    for (size_t i = 0; i < f->space.n; i++)
        if (!isnan(x[i]) && !dist_contains(&f->space.params[i].dist, x[i]))
            abort();
    sweepfile_write_params(&text, &f->space, x);
    if (sweepfile_has_command(f))
        words = sweepfile_command_new(f, x, "p.json", lookup, &err);
    for (size_t i = 0; words && words[i]; i++)
        free(words[i]);
    free(words);
    str_clear(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    struct sweepfile f;
    double *x;

    if (sweepfile_parse(&f, "fuzz", (const char *)data, size, &err) < 0)
        return 0;
    x = xcalloc(f.space.n, sizeof(*x));
    use(&f, x);
    free(x);
    sweepfile_clear(&f);
    return 0;
}
