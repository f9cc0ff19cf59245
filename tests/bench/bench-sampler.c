/* bench-sampler - how good and how fast the samplers are
 *
 *   bench-sampler quality OBJECTIVE SAMPLER TRIALS FIRST-SEED SEEDS [TABLE]
 *       one line per seed: the best loss, or the hypervolume below (11, 11)
 *   bench-sampler space OBJECTIVE
 *       its space as Optuna's distributions
 *   bench-sampler draws SAMPLER SWEEP HISTORY N
 *       the next point after HISTORY, lines of coordinates (nan: not in force) and
 *       loss, for the seeds 0 to N - 1
 *   bench-sampler speed SAMPLER TRIALS
 *       milliseconds of one draw after so many trials of five parameters */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/pareto.h"
#include "lib/sweep/sampler/sampler.h"
#include "lib/sweep/format/sweepfile.h"
#include "tests/bench/objectives.h"

static struct err err;

static int fail(void)
{
    fprintf(stderr, "bench-sampler: %s\n", err.text);
    return 2;
}

static double score(const struct history *h)
{
    static const double ref[2] = { 11, 11 };
    size_t m = h->nobjectives;
    double *losses = xcalloc(h->n, m * sizeof(*losses)), best = INFINITY;

    for (size_t i = 0; i < h->n; i++) {
        memcpy(losses + i * m, h->trials[i].loss, m * sizeof(*losses));
        best = fmin(best, h->trials[i].loss[0]);
    }
    if (m > 1)
        best = pareto_hypervolume(losses, h->n, m, ref);
    free(losses);
    return best;
}

static double study(const struct objective *o, const struct space *space,
                    const struct sampler_choice *c, uint64_t seed, int trials)
{
    struct history h;
    double *x = xcalloc(space->n, sizeof(*x)), result;
    struct sampler_note note;

    history_init(&h, space->n, o->nlosses);
    for (int i = 0; i < trials; i++) {
        struct past *t;

        sampler_draw(x, &note, c, space, &h, seed, i, NULL);
        t = history_add(&h, i, PAST_COMPLETE);
        memcpy(t->x, x, space->n * sizeof(*x));
        t->generation = note.generation;
        o->evaluate(t->loss, x);
    }
    result = score(&h);
    history_clear(&h);
    free(x);
    return result;
}

static int quality(char **argv) /* ends with NULL */
{
    const struct objective *o = objectives_find(argv[0]);
    struct sampler_choice c;
    struct sweepfile f;
    uint64_t first, seeds;
    int trials;

    if (!o || !str_int(argv[2], &trials) || !str_u64(argv[3], &first) ||
        !str_u64(argv[4], &seeds) ||
        (argv[5] && objectives_load(argv[0], argv[5]) < 1)) {
        err_set(&err, ERR_USAGE, "bad arguments");
        return fail();
    }
    if (sampler_parse(&c, argv[1], &err) < 0 ||
        sweepfile_parse(&f, o->name, o->space, strlen(o->space), &err) < 0)
        return fail();
    for (uint64_t s = first; s < first + seeds; s++)
        printf("%.17g\n", study(o, &f.space, &c, s, trials));
    sweepfile_clear(&f);
    return 0;
}

static int print_space(const char *name)
{
    const struct objective *o = objectives_find(name);
    struct str out = { 0 };
    struct sweepfile f;

    if (!o || sweepfile_parse(&f, name, o->space, strlen(o->space), &err) < 0)
        return fail();
    for (size_t i = 0; i < f.space.n; i++) {
        str_addf(&out, "%s\"%s\": ", i ? ", " : "{", f.space.params[i].name);
        dist_write(&out, &f.space.params[i].dist);
    }
    printf("%s}\n", out.s);
    str_clear(&out);
    sweepfile_clear(&f);
    return 0;
}

static int read_history(struct history *h, const char *path)
{
    FILE *fp = fopen(path, "r");
    double *row = xcalloc(h->nparams + 1, sizeof(*row)), value;
    size_t n = 0;

    while (fp && fscanf(fp, "%lf", &value) == 1) {
        row[n++] = value;
        if (n == h->nparams + 1) {
            struct past *t = history_add(h, (int)h->n, PAST_COMPLETE);

            memcpy(t->x, row, h->nparams * sizeof(*row));
            t->loss[0] = value;
            n = 0;
        }
    }
    free(row);
    if (!fp)
        return err_set(&err, ERR_SYSTEM, "%s: cannot be read", path);
    fclose(fp);
    return 0;
}

static int draws(char **argv)
{
    struct sampler_choice c;
    struct sweepfile f;
    struct history h;
    uint64_t n;

    if (sampler_parse(&c, argv[0], &err) < 0 || sweepfile_read(&f, argv[1], &err) < 0)
        return fail();
    history_init(&h, f.space.n, 1);
    if (read_history(&h, argv[2]) < 0 || !str_u64(argv[3], &n))
        return fail();
    for (uint64_t seed = 0; seed < n; seed++) {
        double *x = xcalloc(f.space.n, sizeof(*x));
        struct sampler_note note;

        sampler_draw(x, &note, &c, &f.space, &h, seed, (int)h.n, NULL);
        for (size_t i = 0; i < f.space.n; i++)
            printf("%s%.17g", i ? "\t" : "", x[i]);
        putchar('\n');
        free(x);
    }
    history_clear(&h);
    sweepfile_clear(&f);
    return 0;
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Two floats, one logarithmic float, one integer and one list. */
static int speed(char **argv)
{
    static const char *const text = "a: uniform(-5, 5)\nb: uniform(0, 1)\n"
                                    "lr: loguniform(1e-6, 1e-1)\nn: randint(1, 65)\n"
                                    "c: choice([x, y, z])\n";
    struct sampler_choice c;
    struct sweepfile f;
    struct history h;
    struct rng rng;
    double x[5], best = INFINITY;
    struct sampler_note note;
    int trials;

    if (sampler_parse(&c, argv[0], &err) < 0 || !str_int(argv[1], &trials) ||
        sweepfile_parse(&f, "speed", text, strlen(text), &err) < 0)
        return fail();
    history_init(&h, f.space.n, 1);
    for (int i = 0; i < trials; i++) {
        struct past *t = history_add(&h, i, PAST_COMPLETE);

        rng_init(&rng, 1, (uint64_t)i);
        sampler_prior(t->x, &f.space, &rng);
        t->loss[0] = t->x[0] * t->x[0] + t->x[1];
        t->generation = i / 50;
    }
    for (int i = 0; i < 7; i++) {
        double start = now_ms();

        sampler_draw(x, &note, &c, &f.space, &h, 1, trials + i, NULL);
        best = fmin(best, now_ms() - start);
    }
    printf("%.3f\n", best);
    history_clear(&h);
    sweepfile_clear(&f);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 7 && !strcmp(argv[1], "quality"))
        return quality(argv + 2);
    if (argc == 3 && !strcmp(argv[1], "space"))
        return print_space(argv[2]);
    if (argc == 6 && !strcmp(argv[1], "draws"))
        return draws(argv + 2);
    if (argc == 4 && !strcmp(argv[1], "speed"))
        return speed(argv + 2);
    fprintf(stderr, "usage: bench-sampler quality OBJECTIVE SAMPLER TRIALS FIRST SEEDS "
                    "[TABLE]\n       bench-sampler space OBJECTIVE\n"
                    "       bench-sampler draws SAMPLER SWEEP HISTORY N\n"
                    "       bench-sampler speed SAMPLER TRIALS\n");
    return 2;
}
