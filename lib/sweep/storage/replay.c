/* replay - the studies that the lines of a journal make
 *
 * What an operation does is what Optuna's JournalStorageReplayResult does: changes of
 * what is not there or is finished are passed over. */
#define _GNU_SOURCE
#include "lib/sweep/storage/replay.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

/* The study that J is loading, when ID is its. */
static struct study *target_of(const struct replay *r, int64_t id)
{
    return id >= 0 && r->target && r->target->name && r->target->id == id ? r->target
                                                                          : NULL;
}

static struct study_trial *trial_in_target(const struct replay *r, int64_t id)
{
    struct study *s;

    if (id < 0 || (size_t)id >= r->ntrials)
        return NULL;
    s = target_of(r, r->trial[id].study);
    return s ? study_find(s, r->trial[id].number) : NULL;
}

static bool is_finished(enum study_state s)
{
    return s == STUDY_COMPLETE || s == STUDY_PRUNED || s == STUDY_FAIL;
}

/* May trial ID be changed?  Optuna passes over changes of what is not there or is
 * finished. */
static bool updatable(const struct replay *r, int64_t id)
{
    return id >= 0 && (size_t)id < r->ntrials && !is_finished(r->trial[id].state);
}

/* When the hour "2024-05-06T07" of this host's zone began, -1 if it is none.  Most
 * times are of the hour of the one before, and the C library looks at the zone's file
 * for each answer. */
static time_t hour_of(struct replay *r, const char *iso)
{
    struct tm tm = { .tm_isdst = -1 };
    int end = 0;

    if (r->hour_start && !strncmp(r->hour, iso, sizeof(r->hour)))
        return r->hour_start;
    if (sscanf(iso, "%4d-%2d-%2d%*1[T ]%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &end) != 4 ||
        end != sizeof(r->hour))
        return -1;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    memcpy(r->hour, iso, sizeof(r->hour));
    return r->hour_start = mktime(&tm);
}

/* "2024-05-06T07:08:09.123456", a time of this host's zone, in UTC; NULL if it is none.
 */
static char *local_dup(struct replay *r, const char *iso)
{
    char out[STUDY_TIME_SIZE];
    int minute, second, end = 0;
    time_t t = hour_of(r, iso);
    struct tm tm;

    if (t == -1 ||
        sscanf(iso + sizeof(r->hour), ":%2d:%2d%n", &minute, &second, &end) != 2 ||
        end != 6)
        return NULL;
    t += 60 * minute + second;
    if (!gmtime_r(&t, &tm) || !strftime(out, sizeof(out), "%Y-%m-%d %H:%M:%S", &tm))
        return NULL;
    return str_dupf("%s%s", out, iso + sizeof(r->hour) + end);
}

/* "2024-05-06T07:08:09.123456+00:00" as a study has it.  Without a zone, as version 4
 * of Optuna writes it, it is local: so versions 4 and 5 take it. */
static void set_time(struct replay *r, char **at, const char *iso)
{
    size_t n;

    if (!iso)
        return;
    free(*at);
    *at = NULL;
    n = strcspn(iso, "+Z");
    if (!iso[n]) {
        *at = local_dup(r, iso);
        r->local_times |= *at != NULL;
    } else if (n >= 19) {
        *at = xstrndup(iso, n);
        if ((*at)[10] == 'T')
            (*at)[10] = ' ';
    }
}

/* What a word that stands for a number JSON has not begins with, as quote_numbers makes
 * a text of it: no text of Optuna's does. */
#define BARE "\\u0001"

/* A number, or one of the words that stand for what JSON has no number for. */
static double number_of(const struct json *v)
{
    const char *word = json_string(v);
    double x = NAN;

    if (word && *word == '\1')
        word++;
    if (word && !strcmp(word, "Infinity"))
        return INFINITY;
    if (word && !strcmp(word, "-Infinity"))
        return -INFINITY;
    return json_double(v, &x) ? x : NAN;
}

/* ATTR's value with the words that were quoted bare again, as Python wrote them. */
static void apply_attr(struct study_attrs *to, const struct json *attr)
{
    struct str quoted = { 0 }, text = { 0 };
    const char *p, *at;

    json_print(&quoted, attr);
    for (p = str_text(&quoted); (at = strstr(p, "\"" BARE)); p = at + (*at == '"')) {
        str_addn(&text, p, (size_t)(at - p));
        at += strlen("\"" BARE);
        str_addn(&text, at, strcspn(at, "\""));
        at += strcspn(at, "\"");
    }
    str_add(&text, p);
    study_set_attr(to, attr->key, str_text(&text));
    str_clear(&quoted);
    str_clear(&text);
}

/* The first member of LOG's object KEY; NULL when it has none. */
static int read_members(const struct json **out, const struct json *log,
                        const char *key, struct err *err)
{
    const struct json *object = json_get(log, key);

    *out = NULL;
    if (object && object->type != JSON_OBJECT && object->type != JSON_NULL)
        return err_set(err, ERR_INPUT, "'%s' is not an object", key);
    if (object)
        *out = object->first;
    return 0;
}

static int apply_attrs(struct study_attrs *to, const struct json *log, const char *key,
                       struct err *err)
{
    const struct json *a;

    if (read_members(&a, log, key, err) < 0)
        return -1;
    for (; a; a = a->next)
        apply_attr(to, a);
    return 0;
}

static void apply_values(struct study_trial *t, const struct json *values)
{
    size_t i = 0;

    for (const struct json *v = values ? values->first : NULL; v; v = v->next)
        study_set_value(t, i++, number_of(v));
}

static void create_study(struct replay *r, const struct json *log)
{
    const char *name = json_string(json_get(log, "study_name"));
    const struct json *directions = json_get(log, "directions");

    for (size_t i = 0; name && i < r->nstudies; i++)
        if (!r->study[i].deleted && !strcmp(r->study[i].name, name))
            return;
    r->study = xgrow(r->study, &r->studies_cap, r->nstudies + 1, sizeof(*r->study));
    r->study[r->nstudies++] =
        (struct replay_study){ .name = xstrdup(name ? name : "") };
    if (!r->target || !r->target->name || !name || strcmp(r->target->name, name) != 0 ||
        r->target->id >= 0)
        return;
    r->target->id = (int64_t)r->nstudies - 1;
    for (const struct json *d = directions ? directions->first : NULL; d; d = d->next) {
        uint64_t way = 1;

        json_u64(d, &way);
        r->target->maximize =
            xrealloc(r->target->maximize,
                     sizeof(*r->target->maximize) * (r->target->nobjectives + 1));
        r->target->maximize[r->target->nobjectives++] = way == 2;
    }
}

/* A trial that comes with all it has, as enqueued ones do. */
static int apply_template(struct replay *r, struct study_trial *t,
                          const struct json *log, struct err *err)
{
    const struct json *dists = json_get(log, "distributions"),
                      *value = json_get(log, "value");
    const struct json *p, *v;

    if (read_members(&p, log, "params", err) < 0 ||
        read_members(&v, log, "intermediate_values", err) < 0)
        return -1;
    for (; p; p = p->next) {
        const char *dist = json_string(json_get(dists, p->key));

        if (!dist || study_add_param(r->target, t, p->key, number_of(p), dist, err) < 0)
            return dist ? -1
                        : err_set(err, ERR_INPUT, "parameter '%s' has no distribution",
                                  p->key);
    }
    if (value && value->type != JSON_NULL)
        study_set_value(t, 0, number_of(value));
    apply_values(t, json_get(log, "values"));
    for (; v; v = v->next) {
        int64_t step;

        if (str_i64(v->key, &step))
            study_set_report(t, step, number_of(v));
    }
    if (apply_attrs(&t->user, log, "user_attrs", err) < 0 ||
        apply_attrs(&t->system, log, "system_attrs", err) < 0)
        return -1;
    set_time(r, &t->start, json_string(json_get(log, "datetime_start")));
    set_time(r, &t->complete, json_string(json_get(log, "datetime_complete")));
    return 0;
}

static int create_trial(struct replay *r, const struct json *log, int64_t study,
                        struct err *err)
{
    uint64_t state = STUDY_RUNNING;
    struct replay_study *in;
    struct study *s = target_of(r, study);

    if (study < 0 || (size_t)study >= r->nstudies || r->study[study].deleted)
        return 0;
    json_u64(json_get(log, "state"), &state);
    if (state >= STUDY_NSTATES)
        return err_set(err, ERR_INPUT, "no state %" PRIu64, state);
    in = &r->study[study];
    r->trial = xgrow(r->trial, &r->trials_cap, r->ntrials + 1, sizeof(*r->trial));
    r->trial[r->ntrials++] = (struct replay_trial){ .study = study,
                                                    .number = (int)in->trials++,
                                                    .state = (enum study_state)state };
    if (!s)
        return 0;
    return apply_template(
        r, study_add_trial(s, (int64_t)r->ntrials - 1, (enum study_state)state), log,
        err);
}

static int set_param(struct replay *r, const struct json *log, int64_t id,
                     struct err *err)
{
    struct study_trial *t = trial_in_target(r, id);
    const char *name = json_string(json_get(log, "param_name"));
    const char *dist = json_string(json_get(log, "distribution"));

    if (!t || !name || !dist)
        return 0;
    return study_add_param(r->target, t, name,
                           number_of(json_get(log, "param_value_internal")), dist, err);
}

static int set_state(struct replay *r, const struct json *log, int64_t id,
                     struct err *err)
{
    struct study_trial *t = trial_in_target(r, id);
    uint64_t state = STUDY_NSTATES;

    if (!json_u64(json_get(log, "state"), &state) || state >= STUDY_NSTATES)
        return err_set(err, ERR_INPUT, "no such state");
    if (state == STUDY_RUNNING && r->trial[id].state == STUDY_RUNNING)
        return 0; /* another worker was first */
    r->trial[id].state = (enum study_state)state;
    if (!t)
        return 0;
    t->state = (enum study_state)state;
    if (state == STUDY_RUNNING)
        set_time(r, &t->start, json_string(json_get(log, "datetime_start")));
    if (is_finished(t->state))
        set_time(r, &t->complete, json_string(json_get(log, "datetime_complete")));
    apply_values(t, json_get(log, "values"));
    return 0;
}

static int apply_to_trial(struct replay *r, enum replay_op op, const struct json *log,
                          struct err *err)
{
    struct study_trial *t;
    int64_t id = -1, step;

    json_i64(json_get(log, "trial_id"), &id);
    if (!updatable(r, id))
        return 0;
    t = trial_in_target(r, id);
    switch (op) {
    case REPLAY_TRIAL_PARAM:
        return set_param(r, log, id, err);
    case REPLAY_TRIAL_STATE:
        return set_state(r, log, id, err);
    case REPLAY_TRIAL_REPORT:
        if (t && json_i64(json_get(log, "step"), &step))
            study_set_report(t, step, number_of(json_get(log, "intermediate_value")));
        return 0;
    case REPLAY_TRIAL_USER_ATTR:
        return t ? apply_attrs(&t->user, log, "user_attr", err) : 0;
    default:
        return t ? apply_attrs(&t->system, log, "system_attr", err) : 0;
    }
}

static int apply(struct replay *r, const struct json *log, struct err *err)
{
    uint64_t op = REPLAY_OPS;
    int64_t study = -1;
    struct study *s;

    if (!json_u64(json_get(log, "op_code"), &op) || op >= REPLAY_OPS)
        return err_set(err, ERR_INPUT,
                       "unknown operation; a newer Optuna may have written it");
    json_i64(json_get(log, "study_id"), &study);
    s = target_of(r, study);
    switch ((enum replay_op)op) {
    case REPLAY_CREATE_STUDY:
        create_study(r, log);
        return 0;
    case REPLAY_DELETE_STUDY:
        if (study >= 0 && (size_t)study < r->nstudies)
            r->study[study].deleted = true;
        if (s) { /* one of its name may follow */
            char *name = xstrdup(s->name);

            study_clear(s);
            s->name = name;
            s->id = -1;
        }
        return 0;
    case REPLAY_STUDY_USER_ATTR:
        return s ? apply_attrs(&s->user, log, "user_attr", err) : 0;
    case REPLAY_STUDY_SYSTEM_ATTR:
        return s ? apply_attrs(&s->system, log, "system_attr", err) : 0;
    case REPLAY_CREATE_TRIAL:
        return create_trial(r, log, study, err);
    case REPLAY_DISCARD_TRIALS:
        return 0;
    default:
        return apply_to_trial(r, (enum replay_op)op, log, err);
    }
}

/* ---- lines ---- */

/* Python writes NaN and Infinity bare, which JSON has not: LINE (N bytes) with them as
 * texts. */
static void quote_numbers(struct str *out, const char *line, size_t n)
{
    static const char *const words[] = { "NaN", "-Infinity", "Infinity" };
    bool inside = false;

    str_reset(out);
    for (size_t i = 0; i < n;) {
        size_t k = 0;

        while (
            !inside && k < 3 &&
            (n - i < strlen(words[k]) || memcmp(line + i, words[k], strlen(words[k]))))
            k++;
        if (!inside && k < 3) {
            str_addf(out, "\"" BARE "%s\"", words[k]);
            i += strlen(words[k]);
            continue;
        }
        if (line[i] == '"')
            inside = !inside;
        if (inside && line[i] == '\\' && i + 1 < n)
            str_addc(out, line[i++]);
        str_addc(out, line[i++]);
    }
}

/* What LINE has no effect on without a target: attributes, parameters and reports, by
 * the operation with which both writers begin. */
static bool is_detail(const char *line, size_t n)
{
    static const char begin[] = "{\"op_code\":";
    size_t at = sizeof(begin) - 1;

    if (n < at + 3 || memcmp(line, begin, at) != 0)
        return false;
    at += line[at] == ' ';
    return strchr("235789", line[at]) && line[at + 1] == ',';
}

int replay_parse(struct json_doc *doc, const char *path, int number, const char *line,
                 size_t n, struct err *err)
{
    struct str quoted = { 0 };
    struct err refused;
    int ret = json_reparse(doc, path, (uint32_t)number, line, n, &refused);

    if (ret < 0 && (memmem(line, n, "NaN", 3) || memmem(line, n, "Infinity", 8))) {
        quote_numbers(&quoted, line, n);
        ret = json_reparse(doc, path, (uint32_t)number, str_text(&quoted), quoted.len,
                           &refused);
    }
    str_clear(&quoted);
    return ret < 0 ? err_set(err, ERR_INPUT, "%s", refused.text)
                   : 0; /* has its place */
}

static int apply_line(struct replay *r, struct json_doc *doc, const char *line,
                      size_t n, struct err *err)
{
    struct err refused;

    if (!r->target && is_detail(line, n))
        return 0;
    if (replay_parse(doc, r->path, r->line, line, n, err) < 0)
        return -1;
    if (apply(r, doc->root, &refused) == 0)
        return 0;
    return err_set(err, ERR_INPUT, "%s: line %d: bad journal: %.600s", r->path, r->line,
                   refused.text);
}

int replay_lines(struct replay *r, const char *text, size_t n, size_t *used,
                 struct err *err)
{
    struct json_doc doc = { 0 };
    const char *p = text, *feed;
    int ret = 0;

    while (ret == 0 && (feed = memchr(p, '\n', (size_t)(text + n - p))) != NULL) {
        r->line++;
        if (feed > p)
            ret = apply_line(r, &doc, p, (size_t)(feed - p), err);
        p = feed + 1;
    }
    *used = (size_t)(p - text);
    json_clear(&doc);
    return ret;
}

void replay_forget(struct replay *r)
{
    for (size_t i = 0; i < r->nstudies; i++)
        free(r->study[i].name);
    r->nstudies = r->ntrials = 0;
    r->line = 0;
    r->local_times = false;
}

void replay_clear(struct replay *r)
{
    replay_forget(r);
    free(r->study);
    free(r->trial);
    *r = (struct replay){ 0 };
}
