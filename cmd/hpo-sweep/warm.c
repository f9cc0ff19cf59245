/* warm - begin a study with what another has found */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/mem.h"

#define STUDY_WARM_KEY \
    "hpo-sweep:warm-start" /* of the study: which one it began with */

/* Open the study that NAME says: of S's own storage, else a storage or a sweep file. */
static int open_source(struct session *from, const struct session *s, const char *name,
                       struct err *err)
{
    const struct where own = { .storage = s->url, .study = name }, none = { 0 };
    bool found;

    if (storage_find(&found, s->url, err) < 0)
        return -1;
    if (found && session_open(from, &own, false, err) == 0)
        return 0;
    if (err->kind == ERR_SYSTEM)
        return -1;
    if (session_open_file(from, &none, name, err) == 0)
        return 0;
    return err_prefix(err, "--warm-start: no study '%s' in %s, nor another file", name,
                      s->url);
}

/* The point X of T in the space of S; false when it has none there. */
static bool point_of(double *x, const struct session *s, const struct study *from,
                     const struct study_trial *t)
{
    const struct space *space = &s->file.space;

    for (size_t i = 0; i < space->n; i++) {
        const struct dist *d = &space->params[i].dist;
        const struct study_param *p = study_find_param(from, t, space->params[i].name);
        int choice;

        x[i] = NAN;
        if (!space_active(space, x, i))
            continue;
        if (!p)
            return false;
        if (d->kind == DIST_CATEGORICAL) {
            struct str text = { 0 };

            dist_write_value(&text, p->dist, p->value);
            choice = dist_find_choice(d, text.s);
            str_clear(&text);
            if (choice < 0)
                return false;
            x[i] = choice;
        } else if (p->dist->kind == DIST_CATEGORICAL || !dist_contains(d, p->value)) {
            return false;
        } else {
            x[i] = p->value;
        }
    }
    return true;
}

/* Add T, whose point is X, to S. */
static int add_trial(struct session *s, const struct study_trial *t, const double *x,
                     struct err *err)
{
    const struct storage_ops *ops = s->st->ops;
    const struct space *space = &s->file.space;
    bool values = true;
    char number[16];
    int64_t id;
    int new;

    for (size_t k = 0; k < t->nvalues; k++)
        values &= !isnan(t->values[k]);
    snprintf(number, sizeof(number), "%d", t->number);
    if (ops->add_trial(s->st, &s->study, STUDY_WAITING, &id, &new, err) < 0 ||
        (t->start &&
         ops->set_state(s->st, id, STUDY_RUNNING, NULL, 0, t->start, err) < 0))
        return -1;
    for (size_t i = 0; i < space->n; i++)
        if (!isnan(x[i]) && ops->set_param(s->st, id, space->params[i].name, x[i],
                                           &space->params[i].dist, err) < 0)
            return -1;
    for (size_t i = 0; i < t->nreports; i++)
        if (ops->set_report(s->st, id, t->steps[i], t->reports[i], err) < 0)
            return -1;
    for (size_t i = 0; i < t->system.n; i++)
        if (str_starts(t->system.v[i].key, "constraints") &&
            ops->set_attr(s->st, s->study.id, id, true, t->system.v[i].key,
                          t->system.v[i].json, err) < 0)
            return -1;
    if (ops->set_attr(s->st, s->study.id, id, true, STUDY_GIVEN_KEY, number, err) < 0)
        return -1;
    return ops->set_state(s->st, id, t->state, t->values, values ? t->nvalues : 0,
                          t->complete, err);
}

static bool same_objectives(const struct study *a, const struct study *b)
{
    return a->nobjectives == b->nobjectives &&
           !memcmp(a->maximize, b->maximize, a->nobjectives);
}

/* Add what FROM has found; *taken of *total trials with values fit the space. */
static int take_trials(struct session *s, const struct study *from, size_t *taken,
                       size_t *total, struct err *err)
{
    double *x = xcalloc(s->file.space.n, sizeof(*x));
    int ret = 0;

    *taken = *total = 0;
    for (size_t i = 0; i < from->n && ret == 0; i++) {
        const struct study_trial *t = &from->trials[i];

        if (t->state != STUDY_COMPLETE && t->state != STUDY_PRUNED)
            continue;
        ++*total;
        if (!point_of(x, s, from, t))
            continue;
        ret = add_trial(s, t, x, err);
        ++*taken;
    }
    free(x);
    return ret;
}

int session_warm_start(struct session *s, const char *name, size_t *taken,
                       size_t *total, struct err *err)
{
    struct str source = { 0 };
    struct session from;
    int ret = -1;

    *total = 0;
    if (study_attr(&s->study.system, STUDY_WARM_KEY)) /* by an earlier run */
        return 0;
    if (s->study.n)
        return err_set(err, ERR_USAGE,
                       "--warm-start is for a study that begins: '%s' has %zu trials",
                       s->name, s->study.n);
    if (open_source(&from, s, name, err) < 0)
        return -1;
    if (!same_objectives(&s->study, &from.study)) {
        err_set(err, ERR_USAGE, "--warm-start: study '%s' has other objectives",
                from.study.name);
        goto out;
    }
    str_add_json(&source, from.study.name);
    if (take_trials(s, &from.study, taken, total, err) == 0 &&
        s->st->ops->set_attr(s->st, s->study.id, -1, true, STUDY_WARM_KEY, source.s,
                             err) == 0 &&
        s->st->ops->load(s->st, &s->study, s->name, err) > 0)
        ret = 0;
out:
    str_clear(&source);
    session_close(&from);
    return ret;
}
