/* transfer - studies from one storage to another */
#include "lib/sweep/storage/transfer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

static int copy_attrs(struct storage *to, int64_t study, int64_t trial, bool system,
                      const struct study_attrs *a, struct err *err)
{
    for (size_t i = 0; i < a->n; i++)
        if (to->ops->set_attr(to, study, trial, system, a->v[i].key, a->v[i].json,
                              err) < 0)
            return -1;
    return 0;
}

/* What a trial has is written while it is not finished: then nothing of it changes. */
static int copy_trial(struct storage *to, const struct study *made,
                      const struct study *s, const struct study_trial *t,
                      struct err *err)
{
    bool values = t->nvalues > 0;
    int64_t id;
    int number;

    for (size_t i = 0; i < t->nvalues; i++)
        values &= !isnan(t->values[i]);
    if (to->ops->add_trial(to, made, STUDY_WAITING, &id, &number, err) < 0)
        return -1;
    if (t->start &&
        to->ops->set_state(to, id, STUDY_RUNNING, NULL, 0, t->start, err) < 0)
        return -1;
    for (size_t i = 0; i < t->nparams; i++)
        if (to->ops->set_param(to, id, s->names[t->params[i].name], t->params[i].value,
                               t->params[i].dist, err) < 0)
            return -1;
    for (size_t i = 0; i < t->nreports; i++)
        if (to->ops->set_report(to, id, t->steps[i], t->reports[i], err) < 0)
            return -1;
    if (copy_attrs(to, made->id, id, false, &t->user, err) < 0 ||
        copy_attrs(to, made->id, id, true, &t->system, err) < 0)
        return -1;
    return study_finished(t) || (t->state == STUDY_RUNNING && !t->start)
               ? to->ops->set_state(to, id, t->state, t->values,
                                    values ? t->nvalues : 0, t->complete, err)
               : 0;
}

static int copy_study(struct storage *to, const struct study *s, struct err *err)
{
    struct study made = { 0 };
    int ret = -1, there = to->ops->load(to, &made, s->name, err);

    if (there < 0)
        return -1;
    if (there) {
        err_set(err, ERR_INPUT, "there is a study '%s' already", s->name);
        goto out;
    }
    if (to->ops->create(to, s->name, s->maximize, s->nobjectives, err) < 0 ||
        to->ops->load(to, &made, s->name, err) < 1 ||
        copy_attrs(to, made.id, -1, false, &s->user, err) < 0 ||
        copy_attrs(to, made.id, -1, true, &s->system, err) < 0)
        goto out;
    ret = 0;
    for (size_t i = 0; i < s->n && ret == 0; i++)
        ret = copy_trial(to, &made, s, &s->trials[i], err);
out:
    study_clear(&made);
    return ret;
}

int transfer_studies(struct storage *to, struct storage *from, const char *name,
                     size_t *count, struct err *err)
{
    char **names = NULL;
    size_t n = 0;
    int ret = -1;

    *count = 0;
    if (from->ops->begin(from, false, err) < 0)
        return -1;
    if (to->ops->begin(to, true, err) < 0)
        goto out;
    if (from->ops->list(from, &names, &n, err) < 0)
        goto undo;
    for (size_t i = 0; i < n; i++) {
        struct study s = { 0 };

        if (name && strcmp(names[i], name) != 0)
            continue;
        ret =
            from->ops->load(from, &s, names[i], err) < 1 ? -1 : copy_study(to, &s, err);
        study_clear(&s);
        if (ret < 0)
            goto undo;
        ++*count;
    }
    if (!*count) {
        ret = name ? err_set(err, ERR_INPUT, "there is no study '%s'", name)
                   : err_set(err, ERR_INPUT, "there is no study");
        goto undo;
    }
    ret = to->ops->end(to, err);
    goto out;
undo:
    ret = -1;
    to->ops->give_up(to);
out:
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    from->ops->give_up(from);
    return ret;
}
