/* sampler - the next point to try */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/sampler.h"

const struct sampler *const sampler_all[] = {
    &sampler_tpe,     &sampler_random, &sampler_qmc, &sampler_grid, &sampler_cma_es,
    &sampler_nsga_ii, &sampler_gp,     &sampler_pbt, NULL,
};

/* With `distinct`, how often a point already taken is drawn again. */
enum { REDRAWS = 100 };

static const struct sampler *find(const char *name, size_t len)
{
    for (int i = 0; sampler_all[i]; i++)
        if (strlen(sampler_all[i]->name) == len &&
            !memcmp(sampler_all[i]->name, name, len))
            return sampler_all[i];
    return NULL;
}

/* The settings of SPEC without the word "distinct"; *distinct says if it was there. */
static char *settings_dup(const char *text, bool *distinct)
{
    struct str out = { 0 };

    *distinct = false;
    str_add(&out, "");
    for (size_t n; *text; text += n + (text[n] == ',')) {
        n = strcspn(text, ",");
        if (n == strlen("distinct") && !memcmp(text, "distinct", n)) {
            *distinct = true;
            continue;
        }
        str_add(&out, out.len ? "," : "");
        str_addn(&out, text, n);
    }
    return out.s ? str_steal(&out) : xstrdup("");
}

int sampler_parse(struct sampler_choice *c, const char *spec, struct err *err)
{
    size_t len = strcspn(spec, ":");
    const struct sampler *s = find(spec, len);
    struct sampler_choice out = { .sampler = s };
    struct str known = { 0 };
    char *settings;
    int ret;

    if (!s) {
        for (int i = 0; sampler_all[i]; i++)
            str_addf(&known, "%s%s", i ? ", " : "", sampler_all[i]->name);
        err_set(err, ERR_USAGE, "no sampler '%s'; there are %s", spec,
                str_text(&known));
        str_clear(&known);
        return -1;
    }
    settings = settings_dup(spec[len] ? spec + len + 1 : "", &out.distinct);
    ret = settings_parse(out.set, s->settings, s->name, settings, err);
    free(settings);
    if (ret == 0)
        *c = out;
    return ret;
}

int sampler_check(const struct sampler_choice *c, const struct space *space,
                  size_t nobjectives, struct err *err)
{
    const struct sampler *s = c->sampler;

    if (s->single_objective && nobjectives > 1)
        return err_set(err, ERR_USAGE, "%s serves one objective, not %zu", s->name,
                       nobjectives);
    if (s->forks && c->distinct)
        return err_set(err, ERR_USAGE, "%s goes on with its points: not distinct ones",
                       s->name);
    return s->check ? s->check(space, c->set, err) : 0;
}

void sampler_prior(double *x, const struct space *space, struct rng *rng)
{
    for (size_t i = 0; i < space->n; i++)
        x[i] = space_quantile(&space->params[i], rng_uniform(rng));
}

/* The fixed values over the drawn ones.  A branch that fixing opened was not drawn by
 * every sampler: what is missing comes from the prior. */
static void settle(double *x, const struct space *space, const double *fixed,
                   struct rng *rng)
{
    for (size_t i = 0; i < space->n; i++) {
        if (fixed && !isnan(fixed[i]))
            x[i] = fixed[i];
        if (!space_active(space, x, i))
            x[i] = NAN;
        else if (isnan(x[i]))
            x[i] = space_quantile(&space->params[i], rng_uniform(rng));
    }
}

/* The first point in the space's order that is not taken. */
static bool first_free(double *x, const struct space *space, const struct history *h,
                       const double *fixed)
{
    static const double first[SETTINGS_MAX];
    struct rng rng;
    struct sampler_task task = {
        .space = space, .history = h, .set = first, .number = -1, .rng = &rng
    };
    struct sampler_note note;

    rng_init(&rng, 0, 0);
    if (fixed || !space_size(space))
        return false;
    return sampler_grid.draw(x, &note, &task) == 1;
}

int sampler_draw(double *x, struct sampler_note *note, const struct sampler_choice *c,
                 const struct space *space, const struct history *history,
                 uint64_t seed, int number, const double *fixed)
{
    struct rng rng;
    struct sampler_task task = { .space = space,
                                 .history = history,
                                 .set = c->set,
                                 .seed = seed,
                                 .number = number,
                                 .rng = &rng };
    int tries = c->distinct && !c->sampler->ends ? REDRAWS : 1;

    rng_init(&rng, seed, (uint64_t)number);
    while (tries-- > 0) {
        int drawn;

        *note = (struct sampler_note){ -1, -1, -1 };
        drawn = c->sampler->draw(x, note, &task);
        if (drawn == SAMPLER_LATER)
            return drawn;
        if (!drawn) {
            if (!fixed)
                return 0;
            sampler_prior(x, space,
                          &rng); /* a trial that waits is tried all the same */
        }
        settle(x, space, fixed, &rng);
        if (!c->distinct || c->sampler->ends || !history_has(history, x))
            return 1;
    }
    if (fixed || !space_size(space))
        return 1;
    return first_free(x, space, history, fixed);
}
