/* lineage - trials that begin with the checkpoint of another: those of a population,
 * and those that were paused and go on
 *
 * What such a trial is, its attributes say: so every run of the study can start it, and
 * start it again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"

static int number_of(const struct study_trial *t, const char *key)
{
    const char *text = study_attr(&t->system, key);
    int n;

    return text && str_int(text, &n) && n >= 0 ? n : -1;
}

struct origin session_origin(const struct session *s, const struct study_trial *t)
{
    struct origin o = { .parent = number_of(t, STUDY_RESUMES_KEY),
                        .generation = number_of(t, PBT_GENERATION_KEY),
                        .member = number_of(t, STUDY_MEMBER_KEY) };
    const struct study_trial *parent;

    o.resumes = o.parent >= 0;
    if (!o.resumes)
        o.parent = number_of(t, STUDY_PARENT_KEY);
    parent = study_find(&s->study, o.parent);
    if (parent)
        o.checkpoint = session_text_dup(parent, STUDY_CHECKPOINT_KEY);
    return o;
}

static int set_attr(struct session *s, int64_t id, const char *key, const char *json,
                    struct err *err)
{
    return json ? s->st->ops->set_attr(s->st, s->study.id, id, true, key, json, err)
                : 0;
}

/* Trial ID has the rungs that trial PAUSED completed. */
static int take_rungs(struct session *s, int paused, int64_t id, struct err *err)
{
    const struct study_trial *t = study_find(&s->study, paused);

    for (int k = 0;; k++) {
        char key[40];
        const char *json;

        snprintf(key, sizeof(key), PRUNER_RUNG_KEY, k);
        json = study_attr(&t->system, key);
        if (!json)
            return 0;
        if (set_attr(s, id, key, json, err) < 0)
            return -1;
    }
}

int session_take_place(struct session *s, int number, int64_t id, struct err *err)
{
    static const char *const keys[] = { PBT_GENERATION_KEY, STUDY_MEMBER_KEY,
                                        STUDY_PARENT_KEY, STUDY_RESUMES_KEY };
    const struct study_trial *t = study_find(&s->study, number);
    int paused = number_of(t, STUDY_RESUMES_KEY);

    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (set_attr(s, id, keys[i], study_attr(&t->system, keys[i]), err) < 0)
            return -1;
    return study_find(&s->study, paused) ? take_rungs(s, paused, id, err) : 0;
}

int session_pruner(struct pruner_choice *c, const struct session *s, struct err *err)
{
    const char *json = study_attr(&s->study.system, STUDY_PRUNER_KEY);
    struct json_doc doc;
    int ret;

    *c = (struct pruner_choice){ .pruner = &pruner_none };
    if (!json)
        return 0;
    if (json_parse(&doc, STUDY_PRUNER_KEY, json, strlen(json), err) < 0)
        return -1;
    ret = pruner_parse(c, json_string(doc.root) ? doc.root->text : "", err);
    json_clear(&doc);
    if (ret < 0)
        err->kind = ERR_INPUT; /* the study's, not the user's */
    return ret;
}

int session_pauses(bool *pauses, const struct session *s, struct err *err)
{
    struct pruner_choice c;

    if (session_pruner(&c, s, err) < 0)
        return -1;
    *pauses = pruner_pauses(&c);
    return 0;
}

void session_add_point(struct str *out, const struct session *s,
                       const struct study_trial *t)
{
    str_addc(out, '{');
    for (size_t i = 0; i < t->nparams; i++) {
        str_add(out, i ? ", " : "");
        str_add_json(out, s->study.names[t->params[i].name]);
        str_add(out, ": ");
        dist_write_value(out, t->params[i].dist, t->params[i].value);
    }
    str_addc(out, '}');
}

/* Enqueue what goes on with trial NUMBER, which is paused. */
static int resume(struct session *s, int number, struct err *err)
{
    struct str fixed = { 0 }, text = { 0 };
    int64_t id;
    int new, ret = -1;

    session_add_point(&fixed, s, study_find(&s->study, number));
    str_addf(&text, "%d", number);
    if (s->st->ops->add_trial(s->st, &s->study, STUDY_WAITING, &id, &new, err) == 0 &&
        set_attr(s, id, "fixed_params", fixed.s, err) == 0 &&
        set_attr(s, id, STUDY_RESUMES_KEY, text.s, err) == 0)
        ret = take_rungs(s, number, id, err);
    str_clear(&fixed);
    str_clear(&text);
    return ret;
}

int session_promote(struct session *s, struct err *err)
{
    struct pruner_choice c;
    struct pruner_task task = { .study_name = s->name,
                                .maximize = s->study.maximize[0],
                                .n = s->study.n };
    struct curve *curves;
    const struct curve *next;
    int ret = 0;

    if (session_pruner(&c, s, err) < 0)
        return -1;
    if (!pruner_pauses(&c))
        return 0;
    curves = study_curves_new(&s->study);
    task.trials = curves;
    next = pruner_promote(&c, &task);
    if (next && resume(s, next->number, err) < 0)
        ret = -1;
    else if (next && s->st->ops->load(s->st, &s->study, s->name, err) < 0)
        ret = -1;
    study_curves_free(curves, task.n);
    return ret;
}

int session_note_checkpoint(struct session *s, const struct study_trial *t,
                            const char *path, struct err *err)
{
    struct str json = { 0 };
    int ret;

    str_add_json(&json, path);
    ret = s->st->ops->set_attr(s->st, s->study.id, t->id, false, STUDY_CHECKPOINT_KEY,
                               json.s, err);
    str_clear(&json);
    return ret;
}
