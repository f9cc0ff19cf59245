/* pruner - whether a running trial is worth finishing */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/pruner/pruner.h"

static const struct setting no_settings[] = { { .name = NULL } };

static void judge_none(struct pruner_verdict *v, const struct pruner_task *task,
                       const double *set)
{
    (void)v;
    (void)task;
    (void)set;
}

const struct pruner pruner_none = {
    .name = "none",
    .summary = "let every trial finish",
    .settings = no_settings,
    .judge = judge_none,
};

enum { SET_PATIENCE, SET_DELTA };

static const struct setting patient_settings[] = {
    [SET_PATIENCE] = { .name = "patience",
                       .fallback = 5,
                       .min = 0,
                       .max = 1e9,
                       .integer = true,
                       .help = "reports without improvement borne" },
    [SET_DELTA] = { .name = "delta",
                    .fallback = 0,
                    .min = 0,
                    .max = 1e300,
                    .help = "least improvement that counts" },
    { .name = NULL },
};

/* The best of N values, as losses, NaN left out; NaN when there is none. */
static double best_loss(const double *values, size_t n, bool maximize)
{
    double best = NAN;

    for (size_t i = 0; i < n; i++)
        best = fmin(best, maximize ? -values[i] : values[i]);
    return best;
}

/* Prune when the last patience + 1 reports are all worse than the best before. */
static void judge_patient(struct pruner_verdict *v, const struct pruner_task *task,
                          const double *set)
{
    const struct curve *self = task->self;
    size_t late = (size_t)set[SET_PATIENCE] + 1, early;

    if (self->n <= late)
        return;
    early = self->n - late;
    v->prune = best_loss(self->values, early, task->maximize) + set[SET_DELTA] <
               best_loss(self->values + early, late, task->maximize);
}

const struct pruner pruner_patient = {
    .name = "patient",
    .summary = "stop what no longer improves, or ask the pruner after '+' then",
    .settings = patient_settings,
    .wraps = true,
    .judge = judge_patient,
};

const struct pruner *const pruner_all[] = {
    &pruner_none,
    &pruner_median,
    &pruner_percentile,
    &pruner_successive_halving,
    &pruner_hyperband,
    &pruner_patient,
    &pruner_threshold,
    &pruner_wilcoxon,
    NULL,
};

static const struct pruner *find(const char *name, size_t len)
{
    for (int i = 0; pruner_all[i]; i++)
        if (strlen(pruner_all[i]->name) == len &&
            !memcmp(pruner_all[i]->name, name, len))
            return pruner_all[i];
    return NULL;
}

static int parse_one(const struct pruner **pruner, double *set, const char *spec,
                     struct err *err)
{
    size_t len = strcspn(spec, ":");
    struct str known = { 0 };

    *pruner = find(spec, len);
    if (*pruner && settings_parse(set, (*pruner)->settings, (*pruner)->name,
                                  spec[len] ? spec + len + 1 : "", err) < 0)
        return -1;
    if (*pruner)
        return (*pruner)->check ? (*pruner)->check(set, err) : 0;
    for (int i = 0; pruner_all[i]; i++)
        str_addf(&known, "%s%s", i ? ", " : "", pruner_all[i]->name);
    err_set(err, ERR_USAGE, "no pruner '%s'; there are %s", spec, str_text(&known));
    str_clear(&known);
    return -1;
}

int pruner_parse(struct pruner_choice *c, const char *spec, struct err *err)
{
    size_t plus = strcspn(spec, "+");
    char *outer = xstrndup(spec, plus);
    struct pruner_choice out = { 0 };
    int ret = -1;

    /* A plus sign of an exponent is no second pruner. */
    if (spec[plus] && find(spec + plus + 1, strcspn(spec + plus + 1, ":")) == NULL) {
        free(outer);
        outer = xstrdup(spec);
        plus = strlen(spec);
    }
    if (parse_one(&out.pruner, out.set, outer, err) < 0)
        goto out;
    if (spec[plus]) {
        if (!out.pruner->wraps) {
            err_set(err, ERR_USAGE, "%s takes no second pruner", out.pruner->name);
            goto out;
        }
        if (parse_one(&out.wrapped, out.wrapped_set, spec + plus + 1, err) < 0)
            goto out;
        if (out.wrapped->pauses && out.wrapped->pauses(out.wrapped_set)) {
            err_set(err, ERR_USAGE, "%s: %s pauses trials only by itself", spec,
                    out.wrapped->name);
            goto out;
        }
    }
    *c = out;
    ret = 0;
out:
    free(outer);
    return ret;
}

bool pruner_pauses(const struct pruner_choice *c)
{
    return c->pruner->pauses && c->pruner->pauses(c->set);
}

const struct curve *pruner_promote(const struct pruner_choice *c,
                                   const struct pruner_task *task)
{
    return pruner_pauses(c) ? c->pruner->promote(task, c->set) : NULL;
}

void pruner_judge(struct pruner_verdict *v, const struct pruner_choice *c,
                  const struct pruner_task *task)
{
    *v = (struct pruner_verdict){ .prune = false };
    if (!task->self->n)
        return;
    c->pruner->judge(v, task, c->set);
    if (v->prune && c->wrapped) {
        v->prune = false;
        c->wrapped->judge(v, task, c->wrapped_set);
    }
}
