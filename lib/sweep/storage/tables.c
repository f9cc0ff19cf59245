/* tables - studies in Optuna's tables, in any SQL database */
#include "lib/sweep/storage/tables.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { MAX_VALUES = 8 };

/* ---- statements ---- */

/* Begin STATEMENT with its values: 'i' int64_t, 'd' double, 't' text. */
static int start(struct tables *db, struct sql_rows **rows, struct err *err,
                 const char *statement, const char *types, ...)
{
    struct sql_value values[MAX_VALUES];
    int n = 0;
    va_list ap;

    va_start(ap, types);
    for (; types[n]; n++) {
        struct sql_value *v = &values[n];

        switch (types[n]) {
        case 'i':
            v->type = SQL_INTEGER;
            v->integer = va_arg(ap, int64_t);
            break;
        case 'd':
            v->type = SQL_REAL;
            v->real = va_arg(ap, double);
            break;
        default:
            v->type = SQL_TEXT;
            v->text = va_arg(ap, const char *);
        }
    }
    va_end(ap);
    return db->sql->start(db, rows, statement, values, n, err);
}

static int step(struct tables *db, struct sql_rows *rows, struct err *err)
{
    return db->sql->step(db, rows, err);
}

/* Run what has been started and has no answer. */
static int change(struct tables *db, struct sql_rows *rows, struct err *err)
{
    int more = step(db, rows, err);

    if (more > 0)
        db->sql->release(rows);
    return more < 0 ? -1 : 0;
}

static int run(struct tables *db, const char *statements, struct err *err)
{
    return db->sql->run(db, statements, err);
}

static void roll_back(struct tables *db)
{
    run(db, "ROLLBACK", NULL);
}

/* The text of the first column of the first row, "" without one; owned.  VALUE is what
 * a '?' stands for, or NULL. */
static int query_text(struct tables *db, char **out, const char *statement,
                      const char *value, struct err *err)
{
    struct sql_rows *rows;
    int more;

    *out = NULL;
    if (start(db, &rows, err, statement, value ? "t" : "", value) < 0 ||
        (more = step(db, rows, err)) < 0)
        return -1;
    *out = xstrdup(more ? db->sql->text(rows, 0) : "");
    if (more)
        db->sql->release(rows);
    return 0;
}

/* ---- the tables ---- */

/* 1 when there is a table NAME, 0 when not. */
static int has_table(struct tables *db, const char *name, struct err *err)
{
    char *there;
    int ret = query_text(db, &there, db->sql->find_table, name, err);

    ret = ret < 0 ? -1 : *there != '\0';
    free(there);
    return ret;
}

/* What the column of the only row of TABLE says, "" where there is none; owned. */
static int read_version(struct tables *db, char **out, const char *table,
                        const char *statement, struct err *err)
{
    int there = has_table(db, table, err);

    *out = there ? NULL : xstrdup("");
    return there > 0 ? query_text(db, out, statement, NULL, err) : there;
}

static int check_version(struct tables *db, struct err *err)
{
    char *version = NULL, *revision = NULL;
    int ret = -1;

    if (read_version(db, &version, "version_info",
                     "SELECT schema_version FROM version_info", err) < 0 ||
        read_version(db, &revision, "alembic_version",
                     "SELECT version_num FROM alembic_version", err) < 0)
        goto out;
    if (!strcmp(version, TABLES_SCHEMA_VERSION) && !strcmp(revision, TABLES_REVISION))
        ret = 0;
    else
        err_set(err, ERR_INPUT,
                "%s: schema version %s, revision '%s', is not known; for an older one "
                "run 'optuna storage upgrade'",
                db->base.name, *version ? version : "missing", revision);
out:
    free(version);
    free(revision);
    return ret;
}

int tables_prepare(struct tables *db, bool create, struct err *err)
{
    int there, ret = -1;

    if (run(db, create ? db->sql->begin_making : db->sql->begin_reading, err) < 0)
        return -1;
    there = has_table(db, "studies", err);
    if (there > 0)
        ret = check_version(db, err);
    else if (there == 0 && create)
        ret = run(db, db->sql->schema, err);
    else if (there == 0)
        err_set(err, ERR_INPUT, "%s: holds no studies", db->base.name);
    if (ret == 0)
        ret = run(db, "COMMIT", err);
    if (ret < 0)
        roll_back(db);
    return ret;
}

int tables_begin(struct storage *st, bool change, struct err *err)
{
    struct tables *db = (struct tables *)st;

    return run(db, change ? db->sql->begin_changing : db->sql->begin_reading, err);
}

int tables_end(struct storage *st, struct err *err)
{
    return run((struct tables *)st, "COMMIT", err);
}

void tables_give_up(struct storage *st)
{
    roll_back((struct tables *)st);
}

/* ---- reading ---- */

int tables_list(struct storage *st, char ***names, size_t *n, struct err *err)
{
    struct tables *db = (struct tables *)st;
    struct sql_rows *q;
    size_t cap = 0;
    int more;

    *names = NULL;
    *n = 0;
    if (start(db, &q, err, "SELECT study_name FROM studies ORDER BY study_id", "") < 0)
        return -1;
    while ((more = step(db, q, err)) > 0) {
        *names = xgrow(*names, &cap, *n + 1, sizeof(**names));
        (*names)[(*n)++] = xstrdup(db->sql->text(q, 0));
    }
    if (more < 0) {
        fs_list_free(*names, *n);
        *names = NULL;
        *n = 0;
    }
    return more;
}

static double value_of(struct tables *db, struct sql_rows *q, int column)
{
    const char *type = db->sql->text(q, column + 1);

    if (!strcmp(type, "INF_POS"))
        return INFINITY;
    if (!strcmp(type, "INF_NEG"))
        return -INFINITY;
    return strcmp(type, "NAN") ? db->sql->real(q, column) : NAN;
}

static const char *type_of(double value)
{
    return isnan(value)    ? "NAN"
           : !isinf(value) ? "FINITE"
           : value > 0     ? "INF_POS"
                           : "INF_NEG";
}

static int load_directions(struct tables *db, struct study *study, struct err *err)
{
    struct sql_rows *q;
    int more;

    if (start(db, &q, err,
              "SELECT direction FROM study_directions WHERE study_id = ?"
              " ORDER BY objective",
              "i", study->id) < 0)
        return -1;
    while ((more = step(db, q, err)) > 0) {
        study->maximize = xrealloc(study->maximize, study->nobjectives + 1);
        study->maximize[study->nobjectives++] =
            !strcmp(db->sql->text(q, 0), "MAXIMIZE");
    }
    if (more == 0 && !study->nobjectives)
        return err_set(err, ERR_INPUT, "%s: study '%s' has no direction", db->base.name,
                       study->name);
    return more;
}

static int load_study_attrs(struct tables *db, struct study *study, bool system,
                            struct err *err)
{
    struct sql_rows *q;
    int more;

    if (start(db, &q, err,
              system ? "SELECT key, value_json FROM study_system_attributes"
                       " WHERE study_id = ?"
                     : "SELECT key, value_json FROM study_user_attributes"
                       " WHERE study_id = ?",
              "i", study->id) < 0)
        return -1;
    while ((more = step(db, q, err)) > 0)
        study_set_attr(system ? &study->system : &study->user, db->sql->text(q, 0),
                       db->sql->text(q, 1));
    return more;
}

/* A time with all its six decimals, or NULL; owned. */
static char *time_dup(struct tables *db, struct sql_rows *q, int column)
{
    const char *time = db->sql->text(q, column);

    if (!*time)
        return NULL;
    if (strlen(time) == 26)
        return xstrdup(time);
    return str_dupf("%s%.*s", time, strlen(time) < 26 ? (int)(26 - strlen(time)) : 0,
                    strchr(time, '.') ? "000000" : ".000000");
}

/* The trial with that id; rows come in order, so mostly it is NEAR or the next one. */
static struct study_trial *trial_of(struct study *study, int64_t id,
                                    const struct study_trial *near)
{
    size_t low = near ? (size_t)(near - study->trials) : 0, high = study->n;

    for (size_t i = low; near && i < high && i < low + 2; i++)
        if (study->trials[i].id == id)
            return &study->trials[i];
    low = 0;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (study->trials[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low < study->n && study->trials[low].id == id ? &study->trials[low] : NULL;
}

/* Read the trials with FIRST <= id <= LAST: those known are brought up to date, others
 * appended. */
static int load_trials(struct tables *db, struct study *study, int64_t first,
                       int64_t last, struct err *err)
{
    struct sql_rows *q;
    int more;

    if (start(db, &q, err,
              "SELECT trial_id, state, datetime_start, datetime_complete FROM trials"
              " WHERE study_id = ? AND trial_id BETWEEN ? AND ? ORDER BY trial_id",
              "iii", study->id, first, last) < 0)
        return -1;
    while ((more = step(db, q, err)) > 0) {
        int64_t id = db->sql->integer(q, 0);
        struct study_trial *t = first == last ? trial_of(study, id, NULL) : NULL;
        enum study_state state;

        if (!study_state_parse(&state, db->sql->text(q, 1))) {
            err_set(err, ERR_INPUT, "%s: a trial's state is '%s'", db->base.name,
                    db->sql->text(q, 1));
            db->sql->release(q);
            return -1;
        }
        if (!t)
            t = study_add_trial(study, id, state);
        t->state = state;
        t->start = time_dup(db, q, 2);
        t->complete = time_dup(db, q, 3);
    }
    return more;
}

enum part { PART_PARAMS, PART_VALUES, PART_REPORTS, PART_USER, PART_SYSTEM, NPARTS };

/* Of some trials of one study, or of the whole database, in the order of the rows: what
 * need not be looked up or sorted is read several times faster. */
enum span { SPAN_TRIALS, SPAN_ALL, NSPANS };

#define PART(columns, table, key)                                                      \
    {                                                                                  \
        [SPAN_TRIALS] =                                                                \
            "SELECT trial_id, " columns " FROM " table " JOIN trials USING (trial_id)" \
            " WHERE study_id = ? AND trial_id BETWEEN ? AND ? ORDER BY "               \
            "trial_id, " key,                                                          \
        [SPAN_ALL] = "SELECT trial_id, " columns " FROM " table " ORDER BY " key       \
    }

static const char *const part_queries[NPARTS][NSPANS] = {
    PART("param_name, param_value, distribution_json", "trial_params", "param_id"),
    PART("objective, value, value_type", "trial_values", "trial_value_id"),
    PART("step, intermediate_value, intermediate_value_type",
         "trial_intermediate_values", "trial_intermediate_value_id"),
    PART("key, value_json", "trial_user_attributes", "trial_user_attribute_id"),
    PART("key, value_json", "trial_system_attributes", "trial_system_attribute_id"),
};

static int add_part(struct tables *db, struct study *study, struct study_trial *t,
                    enum part part, struct sql_rows *q, struct err *err)
{
    switch (part) {
    case PART_PARAMS:
        return study_add_param(study, t, db->sql->text(q, 1), db->sql->real(q, 2),
                               db->sql->text(q, 3), err);
    case PART_VALUES:
        study_set_value(t, (size_t)db->sql->integer(q, 1), value_of(db, q, 2));
        return 0;
    case PART_REPORTS:
        study_set_report(t, db->sql->integer(q, 1), value_of(db, q, 2));
        return 0;
    default:
        study_set_attr(part == PART_USER ? &t->user : &t->system, db->sql->text(q, 1),
                       db->sql->text(q, 2));
        return 0;
    }
}

static int load_part(struct tables *db, struct study *study, enum part part,
                     enum span span, int64_t first, int64_t last, struct err *err)
{
    struct study_trial *t = NULL;
    struct sql_rows *q;
    int more;

    if (start(db, &q, err, part_queries[part][span], span == SPAN_ALL ? "" : "iii",
              study->id, first, last) < 0)
        return -1;
    while ((more = step(db, q, err)) > 0) {
        int64_t id = db->sql->integer(q, 0);

        if (!t || t->id != id)
            t = trial_of(study, id, t);
        if (t && add_part(db, study, t, part, q, err) < 0) {
            db->sql->release(q);
            return err_prefix(err, "%s", db->base.name);
        }
    }
    return more;
}

/* SPAN_ALL where most of the database is STUDY's, whose trials have been read. */
static int find_span(struct tables *db, enum span *span, const struct study *study,
                     struct err *err)
{
    struct sql_rows *q;

    *span = SPAN_TRIALS;
    if (start(db, &q, err, "SELECT max(trial_id) FROM trials", "") < 0 ||
        step(db, q, err) < 1)
        return -1;
    if (db->sql->integer(q, 0) / 2 <= (int64_t)study->n)
        *span = SPAN_ALL;
    db->sql->release(q);
    return 0;
}

static int load_range(struct tables *db, struct study *study, int64_t first,
                      int64_t last, struct err *err)
{
    enum span span = SPAN_TRIALS;
    int ret = load_trials(db, study, first, last, err);

    if (ret == 0 && !first)
        ret = find_span(db, &span, study, err);
    for (int part = 0; part < NPARTS && ret == 0; part++)
        ret = load_part(db, study, (enum part)part, span, first, last, err);
    return ret;
}

static int load_study(struct tables *db, struct study *study, const char *name,
                      struct err *err)
{
    struct sql_rows *q;
    int more;

    if (start(db, &q, err, "SELECT study_id FROM studies WHERE study_name = ?", "t",
              name) < 0)
        return -1;
    more = step(db, q, err);
    if (more <= 0)
        return more;
    study->id = db->sql->integer(q, 0);
    study->name = xstrdup(name);
    db->sql->release(q);
    return load_directions(db, study, err) < 0 ? -1 : 1;
}

/* Mark in STILL those of STUDY's trials from OPEN on that wait, and still do. */
static int find_waiting(struct tables *db, bool *still, struct study *study,
                        size_t open, struct err *err)
{
    struct sql_rows *q;
    bool some = false;
    int more;

    for (size_t i = open; i < study->n && !some; i++)
        some = study->trials[i].state == STUDY_WAITING;
    if (!some)
        return 0;
    if (start(db, &q, err,
              "SELECT trial_id FROM trials WHERE study_id = ? AND trial_id >= ?"
              " AND state = 'WAITING'",
              "ii", study->id, study->trials[open].id) < 0)
        return -1;
    while ((more = step(db, q, err)) > 0) {
        const struct study_trial *t = trial_of(study, db->sql->integer(q, 0), NULL);

        if (t)
            still[(size_t)t->number - open] = t->state == STUDY_WAITING;
    }
    return more;
}

/* Finished trials never change, and of those that wait only whether they do matters:
 * the others and new ones are read again. */
static int load_news(struct tables *db, struct study *study, struct err *err)
{
    size_t known = study->n, open = study_first_open(study);
    bool *still = xcalloc(known - open + 1, sizeof(*still));
    int ret = find_waiting(db, still, study, open, err);

    for (size_t i = open; i < known && ret == 0; i++) {
        struct study_trial *t = &study->trials[i];

        if (study_finished(t) || still[i - open])
            continue;
        study_reset_trial(t);
        ret = load_range(db, study, t->id, t->id, err);
    }
    free(still);
    if (ret < 0)
        return -1;
    return load_range(db, study, known ? study->trials[known - 1].id + 1 : 0, INT64_MAX,
                      err);
}

int tables_load(struct storage *st, struct study *study, const char *name,
                struct err *err)
{
    struct tables *db = (struct tables *)st;
    int ret = study->name ? 1 : load_study(db, study, name, err);

    if (ret == 0)
        return 0;
    if (ret < 0 || load_study_attrs(db, study, false, err) < 0 ||
        load_study_attrs(db, study, true, err) < 0 || load_news(db, study, err) < 0) {
        study_clear(study);
        return -1;
    }
    return 1;
}

int tables_create(struct storage *st, const char *name, const bool *maximize, size_t n,
                  struct err *err)
{
    struct tables *db = (struct tables *)st;
    struct sql_rows *q;
    int64_t id;

    if (start(db, &q, err,
              "INSERT INTO studies (study_name) VALUES (?) RETURNING study_id", "t",
              name) < 0 ||
        step(db, q, err) < 1)
        return -1;
    id = db->sql->integer(q, 0);
    db->sql->release(q);
    for (size_t i = 0; i < n; i++)
        if (start(db, &q, err,
                  "INSERT INTO study_directions (direction, study_id, objective)"
                  " VALUES (?, ?, ?)",
                  "tii", maximize[i] ? "MAXIMIZE" : "MINIMIZE", id, (int64_t)i) < 0 ||
            change(db, q, err) < 0)
            return -1;
    return 0;
}

int tables_add_trial(struct storage *st, const struct study *study,
                     enum study_state state, int64_t *id, int *number, struct err *err)
{
    struct tables *db = (struct tables *)st;
    struct sql_rows *q;
    char now[STUDY_TIME_SIZE];

    study_now(now, false);
    if (start(db, &q, err,
              "INSERT INTO trials (number, study_id, state, datetime_start) VALUES"
              " (coalesce((SELECT number + 1 FROM trials WHERE study_id = ? ORDER BY"
              " trial_id DESC LIMIT 1),"
              " (SELECT count(*) FROM trials WHERE study_id = ?)), ?, ?, ?)"
              " RETURNING trial_id, number",
              "iiitt", study->id, study->id, study->id, study_state_name(state),
              state == STUDY_RUNNING ? now : NULL) < 0 ||
        step(db, q, err) < 1)
        return -1;
    *id = db->sql->integer(q, 0);
    *number = (int)db->sql->integer(q, 1);
    db->sql->release(q);
    return 0;
}

int tables_set_param(struct storage *st, int64_t trial, const char *name, double value,
                     const struct dist *d, struct err *err)
{
    struct tables *db = (struct tables *)st;
    struct str json = { 0 };
    struct sql_rows *q;
    int ret;

    dist_write(&json, d);
    ret = start(db, &q, err,
                "INSERT INTO trial_params (trial_id, param_name, param_value,"
                " distribution_json) VALUES (?, ?, ?, ?)",
                "itdt", trial, name, value, json.s);
    str_clear(&json);
    return ret < 0 ? -1 : change(db, q, err);
}

int tables_set_state(struct storage *st, int64_t trial, enum study_state state,
                     const double *values, size_t n, const char *when, struct err *err)
{
    struct tables *db = (struct tables *)st;
    char time[STUDY_TIME_SIZE];
    struct sql_rows *q;

    if (when)
        snprintf(time, sizeof(time), "%s", when);
    else
        study_now(time, false);
    if (start(db, &q, err,
              state == STUDY_RUNNING
                  ? "UPDATE trials SET state = ?, datetime_start = ? WHERE trial_id = ?"
                  : "UPDATE trials SET state = ?, datetime_complete = ?"
                    " WHERE trial_id = ?",
              "tti", study_state_name(state), time, trial) < 0 ||
        change(db, q, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (start(db, &q, err,
                  "INSERT INTO trial_values (trial_id, objective, value, value_type)"
                  " VALUES (?, ?, ?, ?)",
                  "iidt", trial, (int64_t)i, isinf(values[i]) ? NAN : values[i],
                  type_of(values[i])) < 0 ||
            change(db, q, err) < 0)
            return -1;
    return 0;
}

int tables_set_report(struct storage *st, int64_t trial, int64_t at, double value,
                      struct err *err)
{
    struct tables *db = (struct tables *)st;
    struct sql_rows *q;

    if (start(db, &q, err,
              "INSERT INTO trial_intermediate_values (trial_id, step,"
              " intermediate_value, intermediate_value_type) VALUES (?, ?, ?, ?)"
              " ON CONFLICT (trial_id, step) DO UPDATE SET intermediate_value ="
              " excluded.intermediate_value, intermediate_value_type ="
              " excluded.intermediate_value_type",
              "iidt", trial, at, isinf(value) ? NAN : value, type_of(value)) < 0)
        return -1;
    return change(db, q, err);
}

int tables_set_attr(struct storage *st, int64_t study, int64_t trial, bool system,
                    const char *key, const char *json, struct err *err)
{
    struct tables *db = (struct tables *)st;
    const char *of = trial < 0 ? "study" : "trial";
    char *sql = str_dupf("INSERT INTO %s_%s_attributes (%s_id, key, value_json)"
                         " VALUES (?, ?, ?) ON CONFLICT (%s_id, key) DO UPDATE SET"
                         " value_json = excluded.value_json",
                         of, system ? "system" : "user", of, of);
    struct sql_rows *q;
    int ret = start(db, &q, err, sql, "itt", trial < 0 ? study : trial, key, json);

    free(sql);
    return ret < 0 ? -1 : change(db, q, err);
}
