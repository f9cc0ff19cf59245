/* lease - trials whose worker is gone: found, recorded as failed, and tried again */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/sweep/job/job.h"

#define LEASE_KEY "hpo-sweep:lease" /* [seconds, end since the epoch, worker] */

/* The attribute of a trial that says how often its command was started before. */
#define ATTEMPT_KEY "hpo-sweep:attempt"

enum { MAX_RETRIES = 3 }; /* of a point whose runs were ended */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int session_lease(struct session *s, int64_t id, double seconds, const char *worker,
                  struct err *err)
{
    struct str json = { 0 };
    int ret;

    str_addf(&json, "[%.3f, %.3f", seconds, now() + seconds);
    if (worker) {
        str_add(&json, ", ");
        str_add_json(&json, worker);
    }
    str_addc(&json, ']');
    ret = s->st->ops->set_attr(s->st, s->study.id, id, true, LEASE_KEY, json.s, err);
    str_clear(&json);
    return ret;
}

struct lease {
    double seconds, end;
    char *worker; /* job_identity_dup's text, or NULL; owned */
};

static bool read_lease(struct lease *l, const struct study_trial *t)
{
    const char *json = study_attr(&t->system, LEASE_KEY);
    const struct json *j;
    struct json_doc doc;
    bool ok;

    *l = (struct lease){ 0 };
    if (!json || json_parse(&doc, LEASE_KEY, json, strlen(json), NULL) < 0)
        return false;
    j = doc.root->type == JSON_ARRAY ? doc.root->first : NULL;
    ok = j && json_double(j, &l->seconds) && j->next && json_double(j->next, &l->end);
    if (ok && j->next->next && json_string(j->next->next))
        l->worker = xstrdup(j->next->next->text);
    json_clear(&doc);
    return ok;
}

int session_renew(struct session *s, const struct study_trial *t, struct err *err)
{
    struct lease l;
    int ret = read_lease(&l, t) ? session_lease(s, t->id, l.seconds, l.worker, err) : 0;

    free(l.worker);
    return ret;
}

bool session_leased(const struct study_trial *t, const char *worker)
{
    struct lease l;
    bool ours = read_lease(&l, t) && l.worker && worker && !strcmp(l.worker, worker);

    free(l.worker);
    return ours;
}

bool session_some_run(struct session *s)
{
    for (size_t i = study_first_open(&s->study); i < s->study.n; i++)
        if (s->study.trials[i].state == STUDY_RUNNING &&
            study_attr(&s->study.trials[i].system, LEASE_KEY))
            return true;
    return false;
}

/* ---- trying again ---- */

/* How many trials of the same point have failed before T. */
static int count_retries(const struct study_trial *t)
{
    const char *history = study_attr(&t->system, STUDY_RETRY_KEY);
    int n = 0;

    for (const char *p = history; p && *p; p++)
        n += *p == ',' || *p == ']';
    return n;
}

int session_attempt(const struct study_trial *t)
{
    const char *text = study_attr(&t->system, ATTEMPT_KEY);
    int n;

    return text && str_int(text, &n) ? n : count_retries(t);
}

int session_note_attempt(struct session *s, int64_t id, int attempt, struct err *err)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", attempt);
    return s->st->ops->set_attr(s->st, s->study.id, id, true, ATTEMPT_KEY, text, err);
}

/* With the attributes that Optuna gives a trial tried again
 * (optuna/storages/_callbacks.py): the first that failed, and all that did. */
int session_hand_on(struct session *s, const struct study_trial *t, struct err *err)
{
    const char *first = study_attr(&t->system, STUDY_FAILED_KEY);
    const char *history = study_attr(&t->system, STUDY_RETRY_KEY);
    size_t n = history ? strcspn(history, "]") : 0;
    int attempt = session_attempt(t) + 1, tried = t->number, new, ret = -1;
    struct str fixed = { 0 }, number = { 0 }, all = { 0 };
    int64_t id;

    session_add_point(&fixed, s, t);
    str_addf(&number, "%d", tried);
    str_addn(&all, history ? history : "[", history ? n : 1);
    str_addf(&all, "%s%d]", n > 1 ? ", " : "", tried);
    /* T is no longer there once a trial is added */
    if (s->st->ops->add_trial(s->st, &s->study, STUDY_WAITING, &id, &new, err) == 0 &&
        s->st->ops->set_attr(s->st, s->study.id, id, true, "fixed_params", fixed.s,
                             err) == 0 &&
        s->st->ops->set_attr(s->st, s->study.id, id, true, STUDY_FAILED_KEY,
                             first ? first : number.s, err) == 0 &&
        s->st->ops->set_attr(s->st, s->study.id, id, true, STUDY_RETRY_KEY, all.s,
                             err) == 0 &&
        session_take_place(s, tried, id, err) == 0)
        ret = session_note_attempt(s, id, attempt, err);
    str_clear(&fixed);
    str_clear(&number);
    str_clear(&all);
    return ret;
}

int session_interrupt(struct session *s, struct study_trial *t, bool again,
                      struct err *err)
{
    bool over = count_retries(t) >= MAX_RETRIES;

    if (session_finish(s, t, STUDY_FAIL, NULL, 0, err) < 0)
        return -1;
    s->left += again && over;
    return again && !over ? session_hand_on(s, t, err) : 0;
}

/* ---- workers that are gone ---- */

/* Reload what was changed. */
static int reload(struct session *s, struct err *err)
{
    return s->st->ops->load(s->st, &s->study, s->name, err) < 0 ? -1 : 0;
}

int session_reap(struct session *s, bool again, struct err *err)
{
    bool some = false;

    for (size_t i = study_first_open(&s->study); i < s->study.n; i++) {
        struct study_trial *t = &s->study.trials[i];
        struct ending end = { .status = -1 };
        struct lease l;
        bool dead = t->state == STUDY_RUNNING && read_lease(&l, t);

        if (!dead)
            continue;
        dead = l.worker && job_is_dead(l.worker);
        free(l.worker);
        if (!dead)
            continue;
        end.reason = "interrupted: its run was killed";
        if (session_explain(s, t, &end, err) < 0 ||
            session_interrupt(s, t, again, err) < 0)
            return -1;
        some = true;
    }
    return some ? reload(s, err) : 0;
}

int session_end_leases(struct session *s, bool again, struct err *err)
{
    double clock = now();
    bool some = false;

    for (size_t i = study_first_open(&s->study); i < s->study.n; i++) {
        struct study_trial *t = &s->study.trials[i];
        struct ending end = { .status = -1,
                              .reason = "interrupted: its lease is over" };
        struct lease l;
        bool over;

        if (t->state != STUDY_RUNNING || !read_lease(&l, t))
            continue;
        /* a run of this host may have been asleep for a while */
        over = l.end <= clock && !(l.worker && job_is_alive(l.worker));
        free(l.worker);
        if (!over)
            continue;
        if (session_explain(s, t, &end, err) < 0 ||
            session_interrupt(s, t, again, err) < 0)
            return -1;
        some = true;
    }
    return some ? reload(s, err) : 0;
}

/* ---- why a trial failed ---- */

static int explain(struct session *s, const struct study_trial *t, const char *key,
                   const char *json, struct err *err)
{
    return s->st->ops->set_attr(s->st, s->study.id, t->id, false, key, json, err);
}

int session_explain(struct session *s, const struct study_trial *t,
                    const struct ending *end, struct err *err)
{
    struct str json = { 0 };
    char number[16];
    int ret = 0;

    if (end->status >= 0) {
        snprintf(number, sizeof(number), "%d", end->status);
        ret = explain(s, t, SESSION_STATUS_KEY, number, err);
    }
    if (ret == 0 && end->signal) {
        snprintf(number, sizeof(number), "%d", end->signal);
        ret = explain(s, t, SESSION_SIGNAL_KEY, number, err);
    }
    if (ret == 0 && end->reason) {
        str_add_json(&json, end->reason);
        ret = explain(s, t, SESSION_REASON_KEY, json.s, err);
        str_clear(&json);
    }
    return ret;
}

char *session_text_dup(const struct study_trial *t, const char *key)
{
    const char *text = study_attr(&t->user, key);
    struct json_doc doc;
    char *out = NULL;

    if (!text || json_parse(&doc, key, text, strlen(text), NULL) < 0)
        return NULL;
    if (json_string(doc.root))
        out = xstrdup(doc.root->text);
    json_clear(&doc);
    return out;
}

char *session_reason_dup(const struct study_trial *t)
{
    return session_text_dup(t, SESSION_REASON_KEY);
}

int session_retry_failed(struct session *s, struct err *err)
{
    struct points p;
    int ret = 0;

    points_init(&p, s);
    for (size_t i = 0; i < p.nfailed && ret == 0; i++)
        ret = session_hand_on(s, &s->study.trials[p.failed[i]], err);
    if (ret == 0 && p.nfailed)
        ret = reload(s, err);
    points_clear(&p);
    return ret;
}
