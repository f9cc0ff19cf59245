/* study - the trials of a study in memory, and what stores them */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/sweep/storage/study.h"

/* One distribution, met under one name; most trials share them. */
struct study_dist {
    struct study_dist *next;
    struct dist dist;
    int name;
    char text[];
};

static const char *const state_names[STUDY_NSTATES] = { "RUNNING", "COMPLETE", "PRUNED",
                                                        "FAIL", "WAITING" };

const char *study_state_name(enum study_state s)
{
    return state_names[s];
}

bool study_state_parse(enum study_state *s, const char *name)
{
    for (int i = 0; i < STUDY_NSTATES; i++)
        if (!strcmp(state_names[i], name)) {
            *s = (enum study_state)i;
            return true;
        }
    return false;
}

static void attrs_clear(struct study_attrs *a)
{
    for (size_t i = 0; i < a->n; i++) {
        free(a->v[i].key);
        free(a->v[i].json);
    }
    free(a->v);
}

static void trial_clear(struct study_trial *t)
{
    free(t->start);
    free(t->complete);
    free(t->params);
    free(t->values);
    free(t->steps);
    free(t->reports);
    attrs_clear(&t->user);
    attrs_clear(&t->system);
}

void study_clear(struct study *s)
{
    struct study_dist *next;

    for (size_t i = 0; i < s->n; i++)
        trial_clear(&s->trials[i]);
    for (size_t i = 0; i < s->nnames; i++)
        free(s->names[i]);
    for (struct study_dist *d = s->dists; d; d = next) {
        next = d->next;
        dist_clear(&d->dist);
        free(d);
    }
    attrs_clear(&s->user);
    attrs_clear(&s->system);
    free(s->trials);
    free(s->names);
    free(s->maximize);
    free(s->name);
    *s = (struct study){ 0 };
}

struct study_trial *study_add_trial(struct study *s, int64_t id, enum study_state state)
{
    struct study_trial *t;

    s->trials = xgrow(s->trials, &s->cap, s->n + 1, sizeof(*s->trials));
    t = &s->trials[s->n];
    *t = (struct study_trial){ .id = id, .number = (int)s->n, .state = state };
    t->values = xcalloc(s->nobjectives, sizeof(*t->values));
    t->nvalues = s->nobjectives;
    for (size_t i = 0; i < t->nvalues; i++)
        t->values[i] = NAN;
    s->n++;
    return t;
}

void study_reset_trial(struct study_trial *t)
{
    struct study_trial fresh = { .id = t->id,
                                 .number = t->number,
                                 .nvalues = t->nvalues };

    fresh.values = xcalloc(t->nvalues, sizeof(*fresh.values));
    for (size_t i = 0; i < t->nvalues; i++)
        fresh.values[i] = NAN;
    trial_clear(t);
    *t = fresh;
}

/* The index of NAME, which is mostly LIKELY: trials have their parameters in one
 * order. */
static int find_name(struct study *s, const char *name, size_t likely)
{
    if (likely < s->nnames && !strcmp(s->names[likely], name))
        return (int)likely;
    for (size_t i = 0; i < s->nnames; i++)
        if (!strcmp(s->names[i], name))
            return (int)i;
    s->names = xgrow(s->names, &s->names_cap, s->nnames + 1, sizeof(*s->names));
    s->names[s->nnames] = xstrdup(name);
    return (int)s->nnames++;
}

static const struct dist *find_dist(struct study *s, int name, const char *text,
                                    struct err *err)
{
    size_t len = strlen(text);
    struct study_dist *d;
    struct json_doc doc;
    int ret;

    /* First from where the last one was found: trials have them in one order. */
    for (int again = 0; again < 2; again++)
        for (d = again ? s->dists : s->next_dist; d; d = d->next) {
            if (again && d == s->next_dist)
                break;
            if (d->name == name && !strcmp(d->text, text)) {
                s->next_dist = d->next;
                return &d->dist;
            }
        }
    if (json_parse(&doc, s->names[name], text, len, err) < 0)
        return NULL;
    d = xcalloc(1, sizeof(*d) + len + 1);
    ret = dist_read(&d->dist, &doc, doc.root, err);
    json_clear(&doc);
    if (ret < 0) {
        free(d);
        return NULL;
    }
    memcpy(d->text, text, len + 1);
    d->name = name;
    d->next = NULL;
    *(s->last_dist ? &s->last_dist->next : &s->dists) = d;
    s->last_dist = d;
    s->next_dist = NULL;
    return &d->dist;
}

int study_add_param(struct study *s, struct study_trial *t, const char *name,
                    double value, const char *dist, struct err *err)
{
    struct study_param p = { .name = find_name(s, name, t->nparams), .value = value };

    p.dist = find_dist(s, p.name, dist, err);
    if (!p.dist)
        return err_prefix(err, "study '%s', trial %d", s->name, t->number);
    if (p.dist->kind == DIST_CATEGORICAL && !dist_contains(p.dist, value))
        return err_set(err, ERR_INPUT, "study '%s', trial %d: %s: no choice %g",
                       s->name, t->number, name, value);
    t->params = xgrow(t->params, &t->params_cap, t->nparams + 1, sizeof(*t->params));
    t->params[t->nparams++] = p;
    return 0;
}

void study_set_value(struct study_trial *t, size_t objective, double value)
{
    if (objective < t->nvalues)
        t->values[objective] = value;
}

void study_set_report(struct study_trial *t, int64_t step, double value)
{
    size_t i = 0, end = t->nreports;

    if (end && t->steps[end - 1] < step)
        i = end; /* as they come, mostly */
    while (i < end) {
        size_t mid = i + (end - i) / 2;

        if (t->steps[mid] < step)
            i = mid + 1;
        else
            end = mid;
    }
    if (i < t->nreports && t->steps[i] == step) {
        t->reports[i] = value;
        return;
    }
    t->steps = xgrow(t->steps, &t->steps_cap, t->nreports + 1, sizeof(*t->steps));
    t->reports =
        xgrow(t->reports, &t->reports_cap, t->nreports + 1, sizeof(*t->reports));
    memmove(t->steps + i + 1, t->steps + i, (t->nreports - i) * sizeof(*t->steps));
    memmove(t->reports + i + 1, t->reports + i,
            (t->nreports - i) * sizeof(*t->reports));
    t->steps[i] = step;
    t->reports[i] = value;
    t->nreports++;
}

void study_set_attr(struct study_attrs *a, const char *key, const char *json)
{
    for (size_t i = 0; i < a->n; i++)
        if (!strcmp(a->v[i].key, key)) {
            free(a->v[i].json);
            a->v[i].json = xstrdup(json);
            return;
        }
    a->v = xgrow(a->v, &a->cap, a->n + 1, sizeof(*a->v));
    a->v[a->n++] = (struct study_attr){ xstrdup(key), xstrdup(json) };
}

const char *study_attr(const struct study_attrs *a, const char *key)
{
    for (size_t i = 0; i < a->n; i++)
        if (!strcmp(a->v[i].key, key))
            return a->v[i].json;
    return NULL;
}

struct study_trial *study_find(const struct study *s, int number)
{
    return number >= 0 && (size_t)number < s->n ? &s->trials[number] : NULL;
}

const struct study_param *
study_find_param(const struct study *s, const struct study_trial *t, const char *name)
{
    for (size_t i = 0; i < t->nparams; i++)
        if (!strcmp(s->names[t->params[i].name], name))
            return &t->params[i];
    return NULL;
}

bool study_finished(const struct study_trial *t)
{
    return t->state == STUDY_COMPLETE || t->state == STUDY_PRUNED ||
           t->state == STUDY_FAIL;
}

size_t study_first_open(struct study *s)
{
    while (s->open < s->n && study_finished(&s->trials[s->open]))
        s->open++;
    return s->open;
}

static void count_trial(struct study_counts *c, const struct study_trial *t)
{
    size_t *const states[STUDY_NSTATES] = {
        [STUDY_RUNNING] = &c->running, [STUDY_COMPLETE] = &c->complete,
        [STUDY_PRUNED] = &c->pruned,   [STUDY_FAIL] = &c->failed,
        [STUDY_WAITING] = &c->waiting,
    };

    ++*states[t->state];
    c->infeasible += t->state == STUDY_FAIL && t->system.n && study_violation(t) > 0;
    c->retried += study_attr(&t->system, STUDY_RETRY_KEY) != NULL;
    c->given += study_attr(&t->system, STUDY_GIVEN_KEY) != NULL;
    c->resumed += study_attr(&t->system, STUDY_RESUMES_KEY) != NULL &&
                  study_attr(&t->system, STUDY_RETRY_KEY) == NULL;
}

/* What is before the first open trial is counted once. */
void study_count(struct study_counts *c, struct study *s)
{
    size_t open = study_first_open(s);

    while (s->counted < open)
        count_trial(&s->past, &s->trials[s->counted++]);
    *c = s->past;
    for (size_t i = open; i < s->n; i++)
        count_trial(c, &s->trials[i]);
}

/* "constraints" is a list (Optuna 4), "constraints:KEY" a number (Optuna 5). */
double study_violation(const struct study_trial *t)
{
    double sum = 0, x;
    struct json_doc doc;

    for (size_t i = 0; i < t->system.n; i++) {
        const struct study_attr *a = &t->system.v[i];

        if (!str_starts(a->key, "constraints") ||
            json_parse(&doc, a->key, a->json, strlen(a->json), NULL) < 0)
            continue;
        if (json_double(doc.root, &x))
            sum += fmax(x, 0);
        for (const struct json *j = doc.root->first; j; j = j->next)
            if (json_double(j, &x))
                sum += fmax(x, 0);
        json_clear(&doc);
    }
    return sum;
}

bool study_better(const struct study *s, const struct study_trial *a,
                  const struct study_trial *b)
{
    return s->maximize[0] ? a->values[0] > b->values[0] : a->values[0] < b->values[0];
}

const struct study_trial *study_best(const struct study *s)
{
    const struct study_trial *best = NULL;
    bool finite = false;

    for (size_t i = 0; i < s->n; i++) {
        const struct study_trial *t = &s->trials[i];
        bool is_finite;

        if (t->state != STUDY_COMPLETE || study_violation(t) > 0)
            continue;
        is_finite = isfinite(t->values[0]);
        if (!best || is_finite > finite ||
            (is_finite == finite && study_better(s, t, best))) {
            best = t;
            finite = is_finite;
        }
    }
    return best;
}

char *study_objective_dup(const struct study *s, size_t k)
{
    const char *json = study_attr(&s->system, STUDY_NAMES_KEY);
    const struct json *j;
    struct json_doc doc;
    char *name = NULL;

    if (json && json_parse(&doc, STUDY_NAMES_KEY, json, strlen(json), NULL) == 0) {
        j = doc.root->type == JSON_ARRAY ? doc.root->first : NULL;
        for (size_t i = 0; j && i < k; i++)
            j = j->next;
        if (j && json_string(j))
            name = xstrdup(j->text);
        json_clear(&doc);
    }
    return name                 ? name
           : s->nobjectives > 1 ? str_dupf("value %zu", k)
                                : xstrdup("value");
}

static enum past_state past_state(enum study_state s)
{
    return s == STUDY_COMPLETE ? PAST_COMPLETE
           : s == STUDY_PRUNED ? PAST_PRUNED
           : s == STUDY_FAIL   ? PAST_FAILED
                               : PAST_RUNNING;
}

void study_history(struct history *h, const struct study *s, const struct space *space,
                   const char *generation_key, int except)
{
    int *column = xcalloc(s->nnames + 1, sizeof(*column));

    for (size_t i = 0; i < s->nnames; i++)
        column[i] = space_find(space, s->names[i]);
    history_init(h, space->n, s->nobjectives);
    for (size_t i = 0; i < s->n; i++) {
        const struct study_trial *t = &s->trials[i];
        const char *generation =
            generation_key ? study_attr(&t->system, generation_key) : NULL;
        const char *member;
        struct past *p;

        if (t->state == STUDY_WAITING || t->number == except)
            continue;
        p = history_add(h, t->number, past_state(t->state));
        for (size_t k = 0; k < t->nparams; k++) {
            int c = column[t->params[k].name];

            if (c >= 0 && dist_contains(&space->params[c].dist, t->params[k].value))
                p->x[c] = t->params[k].value;
        }
        for (size_t k = 0; k < s->nobjectives; k++)
            p->loss[k] = s->maximize[k] ? -t->values[k] : t->values[k];
        p->violation = t->system.n ? study_violation(t) : 0;
        if (t->nreports) {
            p->last_step = t->steps[t->nreports - 1];
            p->last_loss = t->reports[t->nreports - 1] * (s->maximize[0] ? -1 : 1);
        }
        if (generation)
            str_int(generation, &p->generation);
        if (generation && (member = study_attr(&t->system, STUDY_MEMBER_KEY)))
            str_int(member, &p->member);
    }
    free(column);
}

struct curve *study_curves_new(const struct study *s)
{
    struct curve *curves = xcalloc(s->n + 1, sizeof(*curves));

    for (size_t i = 0; i < s->n; i++) {
        const struct study_trial *t = &s->trials[i];
        double *rungs = NULL, value;
        size_t n = 0, cap = 0;

        for (;; n++) {
            char key[40];
            const char *json;

            snprintf(key, sizeof(key), PRUNER_RUNG_KEY, (int)n);
            json = study_attr(&t->system, key);
            if (!json || !study_value(&value, json))
                break;
            rungs = xgrow(rungs, &cap, n + 1, sizeof(*rungs));
            rungs[n] = value;
        }
        curves[i] = (struct curve){ .number = t->number,
                                    .state = past_state(t->state),
                                    .steps = t->steps,
                                    .values = t->reports,
                                    .n = t->nreports,
                                    .value = t->nvalues ? t->values[0] : NAN,
                                    .infeasible = study_violation(t) > 0,
                                    .rungs = rungs,
                                    .nrungs = n };
        curves[i].resumable = t->state == STUDY_PRUNED &&
                              study_attr(&t->user, STUDY_CHECKPOINT_KEY) &&
                              !study_attr(&t->system, STUDY_GIVEN_KEY);
    }
    for (size_t i = 0; i < s->n; i++) {
        const char *text = study_attr(&s->trials[i].system, STUDY_RESUMES_KEY);
        int number;

        if (text && str_int(text, &number) && study_find(s, number))
            curves[number].resumed = true;
    }
    return curves;
}

void study_curves_free(struct curve *curves, size_t n)
{
    for (size_t i = 0; curves && i < n; i++)
        free((double *)curves[i].rungs);
    free(curves);
}

static void dist_copy(struct dist *out, const struct dist *d)
{
    *out = *d;
    out->choices = NULL;
    out->nchoices = 0;
    for (size_t i = 0; i < d->nchoices; i++)
        dist_add_choice(out, xstrdup(d->choices[i]));
}

/* Ranges may differ between trials; the widest is taken. */
static void widen(struct dist *out, const struct dist *d)
{
    out->low = fmin(out->low, d->low);
    out->high = fmax(out->high, d->high);
}

void study_space(struct space *space, const struct study *s)
{
    *space = (struct space){ 0 };
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->trials[i].nparams; k++) {
            const struct study_param *p = &s->trials[i].params[k];
            int at = space_find(space, s->names[p->name]);
            struct space_param q = { .parent = -1 };

            if (at >= 0) {
                widen(&space->params[at].dist, p->dist);
                continue;
            }
            q.name = xstrdup(s->names[p->name]);
            dist_copy(&q.dist, p->dist);
            space_add(space, &q);
        }
}

/* When parameter I is in force, as {"parent":[choices]}, or {"parent":[[low,high]]}
 * with null for no end; "null" if always. */
static char *condition_dup(const struct space *space, size_t i)
{
    const struct space_param *p = &space->params[i], *parent;
    struct str out = { 0 };
    bool some = false;

    if (p->parent < 0)
        return xstrdup("null");
    parent = &space->params[p->parent];
    str_addc(&out, '{');
    str_add_json(&out, parent->name);
    str_add(&out, ":[");
    for (size_t k = 0; k < parent->dist.nchoices; k++)
        if (p->when[k]) {
            str_addf(&out, "%s%s", some ? "," : "", parent->dist.choices[k]);
            some = true;
        }
    for (size_t k = 0; k < p->nranges; k++) {
        const double ends[] = { p->ranges[k].low, p->ranges[k].high };

        for (int e = 0; e < 2; e++) {
            str_add(&out, e ? "," : k ? ",[" : "[");
            if (isfinite(ends[e]))
                str_add_double(&out, ends[e]);
            else
                str_add(&out, "null");
        }
        str_addc(&out, ']');
    }
    str_add(&out, "]}");
    return str_steal(&out);
}

/* How the values of parameter P are spread over its range, as ["normal",0,1] and the
 * like; "null" if evenly. */
static char *prior_dup(const struct space_param *p)
{
    static const char *const names[] = {
        [SPACE_LOG] = "log",
        [SPACE_NORMAL] = "normal",
        [SPACE_LOGNORMAL] = "lognormal",
        [SPACE_BETA] = "beta",
        [SPACE_WEIGHTED] = "weighted",
    };
    struct str out = { 0 };
    const double ab[] = { p->a, p->b };
    bool two = p->shape == SPACE_NORMAL || p->shape == SPACE_LOGNORMAL ||
               p->shape == SPACE_BETA;
    const double *numbers = p->shape == SPACE_WEIGHTED ? p->weights : ab;
    size_t n = two ? 2 : p->shape == SPACE_WEIGHTED ? p->dist.nchoices : 0;

    if (p->shape == SPACE_FLAT)
        return xstrdup("null");
    str_addf(&out, "[\"%s\"", names[p->shape]);
    for (size_t i = 0; i < n; i++) {
        str_addc(&out, ',');
        str_add_double(&out, numbers[i]);
    }
    str_addc(&out, ']');
    return str_steal(&out);
}

/* Add KEY to the object that OUT ends in, unless JSON is null; which is freed. */
static void add_member(struct str *out, const char *key, char *json)
{
    if (strcmp(json, "null") != 0) {
        out->s[--out->len] = '\0';
        str_addf(out, ", \"%s\": %s}", key, json);
    }
    free(json);
}

char *study_space_text(const struct space *space)
{
    struct str out = { 0 };

    str_addc(&out, '{');
    for (size_t i = 0; i < space->n; i++) {
        const struct space_param *p = &space->params[i];

        str_add(&out, i ? ", " : "");
        str_add_json(&out, p->name);
        str_add(&out, ": ");
        dist_write(&out, &p->dist);
        add_member(&out, "if", condition_dup(space, i));
        add_member(&out, "prior", prior_dup(p));
    }
    str_addc(&out, '}');
    return str_steal(&out);
}

static int differs(const struct study *s, const char *name, const char *old,
                   const char *new, struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "study '%s' has another search space: %s was %.300s and is %.300s",
                   s->name, name, old, new);
}

/* Compare NOW, which is freed, with the member KEY of OLD: WHAT of parameter NAME. */
static int check_member(const struct study *s, const char *name, const char *what,
                        const struct json *old, const char *key, char *now,
                        struct err *err)
{
    struct str then = { 0 };
    int ret = 0;

    if (json_get(old, key))
        json_print(&then, json_get(old, key));
    else
        str_add(&then, "null");
    if (strcmp(then.s, now) != 0)
        ret = err_set(err, ERR_INPUT,
                      "study '%s' has another search space: the %s of %s was %.200s "
                      "and is %.200s",
                      s->name, what, name, then.s, now);
    str_clear(&then);
    free(now);
    return ret;
}

/* Whether NEW has all values of OLD, and more. */
static bool widens(const struct dist *old, const struct dist *new)
{
    return old->kind == new->kind && old->kind != DIST_CATEGORICAL &&
           old->log == new->log &&
           old->step == new->step &&dist_contains(new, old->low) &&
           dist_contains(new, old->high);
}

/* Compare parameter I with J, what it was: 0 the same, 1 wider, -1 with *err set. */
static int check_param(const struct study *s, const struct space *space, size_t i,
                       const struct json_doc *doc, const struct json *j,
                       struct err *err)
{
    const struct space_param *p = &space->params[i];
    struct str now = { 0 }, then = { 0 };
    struct dist old = { 0 };
    int ret = 0;

    dist_write(&now, &p->dist);
    if (!j) {
        ret = differs(s, p->name, "not in it", now.s, err);
        goto out;
    }
    if (dist_read(&old, doc, j, err) < 0 ||
        check_member(s, p->name, "condition", j, "if", condition_dup(space, i), err) <
            0 ||
        check_member(s, p->name, "prior", j, "prior", prior_dup(p), err) < 0) {
        ret = -1;
        goto out;
    }
    ret = !dist_same(&old, &p->dist);
    if (ret && !widens(&old, &p->dist)) {
        dist_write(&then, &old);
        ret = differs(s, p->name, then.s, now.s, err);
    }
out:
    dist_clear(&old);
    str_clear(&now);
    str_clear(&then);
    return ret;
}

/* Compare with what the study was begun with; the same results. */
static int check_begun(const struct study *s, const struct space *space,
                       const char *text, struct err *err)
{
    struct json_doc doc;
    bool wider = false;
    int ret = 0;

    if (json_parse(&doc, STUDY_SPACE_KEY, text, strlen(text), err) < 0)
        return -1;
    for (size_t i = 0; i < space->n && ret >= 0; i++) {
        ret = check_param(s, space, i, &doc, json_get(doc.root, space->params[i].name),
                          err);
        wider |= ret > 0;
    }
    for (const struct json *j = doc.root->first; j && ret >= 0; j = j->next)
        if (space_find(space, j->key) < 0)
            ret = differs(s, j->key, "in it", "not", err);
    json_clear(&doc);
    return ret < 0 ? -1 : wider;
}

/* Optuna lets ranges change within a study, but neither kind, scale nor choices. */
static bool compatible(const struct dist *a, const struct dist *b)
{
    if (a->kind != b->kind || a->log != b->log)
        return false;
    return a->kind != DIST_CATEGORICAL || dist_same(a, b);
}

int study_check_space(const struct study *s, const struct space *space, struct err *err)
{
    const char *begun = study_attr(&s->system, STUDY_SPACE_KEY);
    struct str now = { 0 }, then = { 0 };
    int ret = 0;

    if (begun)
        return check_begun(s, space, begun, err);
    for (struct study_dist *d = s->dists; d && ret == 0; d = d->next) {
        int at = space_find(space, s->names[d->name]);

        if (at < 0 || compatible(&d->dist, &space->params[at].dist))
            continue;
        dist_write(&then, &d->dist);
        dist_write(&now, &space->params[at].dist);
        ret = differs(s, s->names[d->name], then.s, now.s, err);
    }
    str_clear(&now);
    str_clear(&then);
    return ret;
}

bool study_value(double *out, const char *text)
{
    static const struct {
        const char *word;
        double value;
    } words[] = { { "inf", INFINITY }, { "infinity", INFINITY }, { "nan", NAN } };
    const char *bare = text + (*text == '-' || *text == '+');

    if (str_double(text, out))
        return true;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (!strcasecmp(bare, words[i].word)) {
            *out = *text == '-' ? -words[i].value : words[i].value;
            return true;
        }
    return false;
}

void study_add_value(struct str *s, double x)
{
    if (isnan(x))
        str_add(s, "NaN");
    else if (isinf(x))
        str_add(s, x > 0 ? "Infinity" : "-Infinity");
    else {
        size_t at = s->len;

        str_add_double(s, x);
        if (!strpbrk(s->s + at, ".e"))
            str_add(s, ".0");
    }
}

void study_now(char out[STUDY_TIME_SIZE], bool local)
{
    struct timespec t;
    struct tm tm;
    size_t n;

    clock_gettime(CLOCK_REALTIME, &t);
    if (local)
        localtime_r(&t.tv_sec, &tm);
    else
        gmtime_r(&t.tv_sec, &tm);
    n = strftime(out, STUDY_TIME_SIZE, "%Y-%m-%d %H:%M:%S", &tm);
    snprintf(out + n, STUDY_TIME_SIZE - n, ".%06d", (int)(t.tv_nsec / 1000));
}
