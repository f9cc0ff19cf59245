/* sqlite - studies in Optuna's SQLite schema
 *
 * The tables are those that Optuna makes since 3.2 (schema version 12, revision
 * v3.2.0.a), so its readers and the dashboard open the file.  Times are UTC, as Optuna
 * writes them since 5.0.  A file made here is in write-ahead mode, which Optuna reads
 * and which lets many workers share it. */
#include "config.h"

#include "lib/sweep/storage.h"

#ifdef HAVE_SQLITE3
#include <math.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { SCHEMA_VERSION = 12, BUSY_MS = 120000, TIME_SIZE = STUDY_TIME_SIZE };

static const char *const REVISION = "v3.2.0.a";

static const char *const schema =
    "CREATE TABLE studies (study_id INTEGER NOT NULL, study_name VARCHAR(512) NOT NULL,"
    " PRIMARY KEY (study_id));"
    "CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);"
    "CREATE TABLE version_info (version_info_id INTEGER NOT NULL, schema_version "
    "INTEGER,"
    " library_version VARCHAR(256), PRIMARY KEY (version_info_id),"
    " CHECK (version_info_id = 1));"
    "CREATE TABLE study_directions (study_direction_id INTEGER NOT NULL,"
    " direction VARCHAR(8) NOT NULL, study_id INTEGER NOT NULL, objective INTEGER NOT "
    "NULL,"
    " PRIMARY KEY (study_direction_id), UNIQUE (study_id, objective),"
    " FOREIGN KEY(study_id) REFERENCES studies (study_id));"
    "CREATE TABLE study_user_attributes (study_user_attribute_id INTEGER NOT NULL,"
    " study_id INTEGER, \"key\" VARCHAR(512), value_json TEXT,"
    " PRIMARY KEY (study_user_attribute_id), UNIQUE (study_id, \"key\"),"
    " FOREIGN KEY(study_id) REFERENCES studies (study_id));"
    "CREATE TABLE study_system_attributes (study_system_attribute_id INTEGER NOT NULL,"
    " study_id INTEGER, \"key\" VARCHAR(512), value_json TEXT,"
    " PRIMARY KEY (study_system_attribute_id), UNIQUE (study_id, \"key\"),"
    " FOREIGN KEY(study_id) REFERENCES studies (study_id));"
    "CREATE TABLE trials (trial_id INTEGER NOT NULL, number INTEGER, study_id INTEGER,"
    " state VARCHAR(8) NOT NULL, datetime_start DATETIME, datetime_complete DATETIME,"
    " PRIMARY KEY (trial_id), FOREIGN KEY(study_id) REFERENCES studies (study_id));"
    "CREATE INDEX ix_trials_study_id ON trials (study_id);"
    "CREATE TABLE trial_user_attributes (trial_user_attribute_id INTEGER NOT NULL,"
    " trial_id INTEGER, \"key\" VARCHAR(512), value_json TEXT,"
    " PRIMARY KEY (trial_user_attribute_id), UNIQUE (trial_id, \"key\"),"
    " FOREIGN KEY(trial_id) REFERENCES trials (trial_id));"
    "CREATE TABLE trial_system_attributes (trial_system_attribute_id INTEGER NOT NULL,"
    " trial_id INTEGER, \"key\" VARCHAR(512), value_json TEXT,"
    " PRIMARY KEY (trial_system_attribute_id), UNIQUE (trial_id, \"key\"),"
    " FOREIGN KEY(trial_id) REFERENCES trials (trial_id));"
    "CREATE TABLE trial_params (param_id INTEGER NOT NULL, trial_id INTEGER,"
    " param_name VARCHAR(512), param_value FLOAT, distribution_json TEXT,"
    " PRIMARY KEY (param_id), UNIQUE (trial_id, param_name),"
    " FOREIGN KEY(trial_id) REFERENCES trials (trial_id));"
    "CREATE TABLE trial_values (trial_value_id INTEGER NOT NULL, trial_id INTEGER NOT "
    "NULL,"
    " objective INTEGER NOT NULL, value FLOAT, value_type VARCHAR(7) NOT NULL,"
    " PRIMARY KEY (trial_value_id), UNIQUE (trial_id, objective),"
    " FOREIGN KEY(trial_id) REFERENCES trials (trial_id));"
    "CREATE TABLE trial_intermediate_values (trial_intermediate_value_id INTEGER NOT "
    "NULL,"
    " trial_id INTEGER NOT NULL, step INTEGER NOT NULL, intermediate_value FLOAT,"
    " intermediate_value_type VARCHAR(7) NOT NULL,"
    " PRIMARY KEY (trial_intermediate_value_id), UNIQUE (trial_id, step),"
    " FOREIGN KEY(trial_id) REFERENCES trials (trial_id));"
    "CREATE TABLE trial_heartbeats (trial_heartbeat_id INTEGER NOT NULL,"
    " trial_id INTEGER NOT NULL, heartbeat DATETIME NOT NULL,"
    " PRIMARY KEY (trial_heartbeat_id), UNIQUE (trial_id),"
    " FOREIGN KEY(trial_id) REFERENCES trials (trial_id));"
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL,"
    " CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));"
    "INSERT INTO version_info VALUES (1, 12, '4.9.0');"
    "INSERT INTO alembic_version VALUES ('v3.2.0.a');";

struct sqlite {
    struct storage base;
    sqlite3 *db;
    char *path;
};

static int fail(const struct sqlite *s, struct err *err)
{
    int code = sqlite3_errcode(s->db);
    bool corrupt = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;

    return err_set(err, corrupt ? ERR_INPUT : ERR_SYSTEM, "%s: %s", s->path,
                   sqlite3_errmsg(s->db));
}

static int run(const struct sqlite *s, const char *sql, struct err *err)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(s, err);
}

/* Statements stay prepared: for a trial, preparing costs more than executing. */
static void release(sqlite3_stmt *st)
{
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
}

/* A statement of SQL that nobody is using, or NULL. */
static sqlite3_stmt *find_idle(const struct sqlite *s, const char *sql)
{
    sqlite3_stmt *st = sqlite3_next_stmt(s->db, NULL);

    while (st && (sqlite3_stmt_busy(st) || strcmp(sqlite3_sql(st), sql) != 0))
        st = sqlite3_next_stmt(s->db, st);
    return st;
}

/* Prepare SQL and bind: 'i' int64_t, 'd' double (NaN: NULL), 't' text (NULL: NULL). */
static int prepare(const struct sqlite *s, sqlite3_stmt **st, struct err *err,
                   const char *sql, const char *types, ...)
{
    va_list ap;

    *st = find_idle(s, sql);
    if (!*st && sqlite3_prepare_v2(s->db, sql, -1, st, NULL) != SQLITE_OK)
        return fail(s, err);
    va_start(ap, types);
    for (int i = 1; types[i - 1]; i++) {
        double d;

        switch (types[i - 1]) {
        case 'i':
            sqlite3_bind_int64(*st, i, va_arg(ap, int64_t));
            break;
        case 'd':
            d = va_arg(ap, double);
            if (!isnan(d))
                sqlite3_bind_double(*st, i, d);
            break;
        default:
            sqlite3_bind_text(*st, i, va_arg(ap, const char *), -1, SQLITE_TRANSIENT);
        }
    }
    va_end(ap);
    return 0;
}

/* 1: a row, 0: the end, -1: an error.  The statement is released unless a row. */
static int step(const struct sqlite *s, sqlite3_stmt *st, struct err *err)
{
    int code = sqlite3_step(st);

    if (code == SQLITE_ROW)
        return 1;
    release(st);
    return code == SQLITE_DONE ? 0 : fail(s, err);
}

static const char *text(sqlite3_stmt *st, int column)
{
    const char *t = (const char *)sqlite3_column_text(st, column);

    return t ? t : "";
}

static int change(const struct sqlite *s, sqlite3_stmt *st, struct err *err)
{
    return step(s, st, err) < 0 ? -1 : 0;
}

/* The text of the first column of the first row of SQL, "" without one; owned. */
static int query_text(const struct sqlite *s, char **out, const char *sql,
                      struct err *err)
{
    sqlite3_stmt *st;
    int more;

    *out = NULL;
    if (prepare(s, &st, err, sql, "") < 0)
        return -1;
    more = step(s, st, err);
    if (more < 0)
        return -1;
    *out = xstrdup(more ? text(st, 0) : "");
    if (more)
        release(st);
    return 0;
}

static int check_version(const struct sqlite *s, struct err *err)
{
    char *tables = NULL, *schema_version = NULL, *revision = NULL;
    int ret = -1, version;

    if (query_text(s, &tables,
                   "SELECT count(*) FROM sqlite_master"
                   " WHERE name IN ('version_info', 'alembic_version')",
                   err) < 0)
        goto out;
    if (!strcmp(tables, "2") &&
        (query_text(s, &schema_version, "SELECT schema_version FROM version_info",
                    err) < 0 ||
         query_text(s, &revision, "SELECT version_num FROM alembic_version", err) < 0))
        goto out;
    if (schema_version && str_int(schema_version, &version) &&
        version == SCHEMA_VERSION && !strcmp(revision, REVISION))
        ret = 0;
    else
        err_set(
            err, ERR_INPUT,
            "%s: schema version %s, revision '%s', is not known; for an older one run "
            "'optuna storage upgrade'",
            s->path, schema_version && *schema_version ? schema_version : "missing",
            revision ? revision : "");
out:
    free(tables);
    free(schema_version);
    free(revision);
    return ret;
}

/* Make the tables unless they are there; another process may be doing so. */
static int make_schema(const struct sqlite *s, bool create, struct err *err)
{
    char *there = NULL;
    int ret = -1;

    if (run(s, create ? "BEGIN IMMEDIATE" : "BEGIN", err) < 0)
        return -1;
    if (query_text(s, &there, "SELECT name FROM sqlite_master WHERE name = 'studies'",
                   err) < 0)
        goto out;
    if (*there)
        ret = check_version(s, err);
    else if (create)
        ret = run(s, schema, err);
    else
        err_set(err, ERR_INPUT, "%s: holds no studies", s->path);
    if (ret == 0)
        ret = run(s, "COMMIT", err);
out:
    free(there);
    if (ret < 0)
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return ret;
}

static void sqlite_close(struct storage *st)
{
    struct sqlite *s = (struct sqlite *)st;

    sqlite3_stmt *kept;

    while (s->db && (kept = sqlite3_next_stmt(s->db, NULL)))
        sqlite3_finalize(kept);
    sqlite3_close(s->db);
    free(s->path);
    free(s);
}

/* Readers and a writer at once: a wish, which SQLite refuses without waiting while
 * others are at work.  The next that opens the file has it then. */
static int wish_log(const struct sqlite *s, struct err *err)
{
    int code = sqlite3_exec(s->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);

    return code == SQLITE_OK || code == SQLITE_BUSY ? 0 : fail(s, err);
}

static int sqlite_open(struct storage **st, const char *where, bool create,
                       struct err *err)
{
    struct sqlite *s = xcalloc(1, sizeof(*s));
    int flags = SQLITE_OPEN_READWRITE | (create ? SQLITE_OPEN_CREATE : 0);

    s->base.ops = &sqlite_storage;
    s->path = xstrdup(where);
    if (sqlite3_open_v2(where, &s->db, flags, NULL) != SQLITE_OK) {
        err_set(err, ERR_SYSTEM, "%s: %s", where, sqlite3_errmsg(s->db));
        goto fail;
    }
    sqlite3_busy_timeout(s->db, BUSY_MS);
    /* the mode is written to the file, which is left alone when it is refused */
    if (run(s, "PRAGMA synchronous = NORMAL", err) < 0 ||
        make_schema(s, create, err) < 0 || (create && wish_log(s, err) < 0))
        goto fail;
    *st = &s->base;
    return 0;
fail:
    sqlite_close(&s->base);
    return -1;
}

static int sqlite_begin(struct storage *st, bool write, struct err *err)
{
    return run((struct sqlite *)st, write ? "BEGIN IMMEDIATE" : "BEGIN", err);
}

static int sqlite_end(struct storage *st, struct err *err)
{
    return run((struct sqlite *)st, "COMMIT", err);
}

static void sqlite_give_up(struct storage *st)
{
    sqlite3_exec(((struct sqlite *)st)->db, "ROLLBACK", NULL, NULL, NULL);
}

static int sqlite_list(struct storage *st, char ***names, size_t *n, struct err *err)
{
    const struct sqlite *s = (const struct sqlite *)st;
    sqlite3_stmt *q;
    size_t cap = 0;
    int more;

    *names = NULL;
    *n = 0;
    if (prepare(s, &q, err, "SELECT study_name FROM studies ORDER BY study_id", "") < 0)
        return -1;
    while ((more = step(s, q, err)) > 0) {
        *names = xgrow(*names, &cap, *n + 1, sizeof(**names));
        (*names)[(*n)++] = xstrdup(text(q, 0));
    }
    return more;
}

static double value_of(sqlite3_stmt *q, int column)
{
    const char *type = text(q, column + 1);

    if (!strcmp(type, "INF_POS"))
        return INFINITY;
    if (!strcmp(type, "INF_NEG"))
        return -INFINITY;
    return strcmp(type, "NAN") ? sqlite3_column_double(q, column) : NAN;
}

static const char *type_of(double value)
{
    return isnan(value)    ? "NAN"
           : !isinf(value) ? "FINITE"
           : value > 0     ? "INF_POS"
                           : "INF_NEG";
}

static int load_directions(const struct sqlite *s, struct study *study, struct err *err)
{
    sqlite3_stmt *q;
    int more;

    if (prepare(s, &q, err,
                "SELECT direction FROM study_directions WHERE study_id = ?"
                " ORDER BY objective",
                "i", study->id) < 0)
        return -1;
    while ((more = step(s, q, err)) > 0) {
        study->maximize = xrealloc(study->maximize, study->nobjectives + 1);
        study->maximize[study->nobjectives++] = !strcmp(text(q, 0), "MAXIMIZE");
    }
    if (more == 0 && !study->nobjectives)
        return err_set(err, ERR_INPUT, "%s: study '%s' has no direction", s->path,
                       study->name);
    return more;
}

static int load_study_attrs(const struct sqlite *s, struct study *study, bool system,
                            struct err *err)
{
    sqlite3_stmt *q;
    int more;

    if (prepare(s, &q, err,
                system ? "SELECT key, value_json FROM study_system_attributes"
                         " WHERE study_id = ?"
                       : "SELECT key, value_json FROM study_user_attributes"
                         " WHERE study_id = ?",
                "i", study->id) < 0)
        return -1;
    while ((more = step(s, q, err)) > 0)
        study_set_attr(system ? &study->system : &study->user, text(q, 0), text(q, 1));
    return more;
}

static char *time_dup(sqlite3_stmt *q, int column)
{
    return sqlite3_column_type(q, column) == SQLITE_NULL ? NULL
                                                         : xstrdup(text(q, column));
}

/* The trial with that id, or NULL; they ascend. */
static struct study_trial *trial_of(struct study *study, int64_t id)
{
    size_t low = 0, high = study->n;

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
static int load_trials(const struct sqlite *s, struct study *study, int64_t first,
                       int64_t last, struct err *err)
{
    sqlite3_stmt *q;
    int more;

    if (prepare(s, &q, err,
                "SELECT trial_id, state, datetime_start, datetime_complete FROM trials"
                " WHERE study_id = ? AND trial_id BETWEEN ? AND ? ORDER BY trial_id",
                "iii", study->id, first, last) < 0)
        return -1;
    while ((more = step(s, q, err)) > 0) {
        int64_t id = sqlite3_column_int64(q, 0);
        struct study_trial *t = first == last ? trial_of(study, id) : NULL;
        enum study_state state;

        if (!study_state_parse(&state, text(q, 1))) {
            err_set(err, ERR_INPUT, "%s: a trial's state is '%s'", s->path, text(q, 1));
            release(q);
            return -1;
        }
        if (!t)
            t = study_add_trial(study, id, state);
        t->state = state;
        t->start = time_dup(q, 2);
        t->complete = time_dup(q, 3);
    }
    return more;
}

enum part { PART_PARAMS, PART_VALUES, PART_REPORTS, PART_USER, PART_SYSTEM, NPARTS };

#define OF_STUDY                                                                    \
    " JOIN trials USING (trial_id) WHERE study_id = ? AND trial_id BETWEEN ? AND ?" \
    " ORDER BY trial_id, 5"

static const char *const part_queries[NPARTS] = {
    "SELECT trial_id, param_name, param_value, distribution_json, param_id"
    " FROM trial_params" OF_STUDY,
    "SELECT trial_id, objective, value, value_type, objective FROM "
    "trial_values" OF_STUDY,
    "SELECT trial_id, step, intermediate_value, intermediate_value_type, step"
    " FROM trial_intermediate_values" OF_STUDY,
    "SELECT trial_id, key, value_json, 0, trial_user_attribute_id"
    " FROM trial_user_attributes" OF_STUDY,
    "SELECT trial_id, key, value_json, 0, trial_system_attribute_id"
    " FROM trial_system_attributes" OF_STUDY,
};

static int add_part(struct study *study, struct study_trial *t, enum part part,
                    sqlite3_stmt *q, struct err *err)
{
    switch (part) {
    case PART_PARAMS:
        return study_add_param(study, t, text(q, 1), sqlite3_column_double(q, 2),
                               text(q, 3), err);
    case PART_VALUES:
        study_set_value(t, (size_t)sqlite3_column_int64(q, 1), value_of(q, 2));
        return 0;
    case PART_REPORTS:
        study_set_report(t, sqlite3_column_int64(q, 1), value_of(q, 2));
        return 0;
    default:
        study_set_attr(part == PART_USER ? &t->user : &t->system, text(q, 1),
                       text(q, 2));
        return 0;
    }
}

static int load_part(const struct sqlite *s, struct study *study, enum part part,
                     int64_t first, int64_t last, struct err *err)
{
    sqlite3_stmt *q;
    int more;

    if (prepare(s, &q, err, part_queries[part], "iii", study->id, first, last) < 0)
        return -1;
    while ((more = step(s, q, err)) > 0) {
        struct study_trial *t = trial_of(study, sqlite3_column_int64(q, 0));

        if (t && add_part(study, t, part, q, err) < 0) {
            release(q);
            return err_prefix(err, "%s", s->path);
        }
    }
    return more;
}

static int load_range(const struct sqlite *s, struct study *study, int64_t first,
                      int64_t last, struct err *err)
{
    int ret = load_trials(s, study, first, last, err);

    for (int part = 0; part < NPARTS && ret == 0; part++)
        ret = load_part(s, study, (enum part)part, first, last, err);
    return ret;
}

static int load_study(const struct sqlite *s, struct study *study, const char *name,
                      struct err *err)
{
    sqlite3_stmt *q;
    int more;

    if (prepare(s, &q, err, "SELECT study_id FROM studies WHERE study_name = ?", "t",
                name) < 0)
        return -1;
    more = step(s, q, err);
    if (more <= 0)
        return more;
    study->id = sqlite3_column_int64(q, 0);
    study->name = xstrdup(name);
    release(q);
    return load_directions(s, study, err) < 0 ? -1 : 1;
}

/* Finished trials never change: only the others and new ones are read again. */
static int load_news(const struct sqlite *s, struct study *study, struct err *err)
{
    size_t known = study->n;
    int ret = 0;

    for (size_t i = 0; i < known && ret == 0; i++) {
        struct study_trial *t = &study->trials[i];

        if (study_finished(t))
            continue;
        study_reset_trial(t);
        ret = load_range(s, study, t->id, t->id, err);
    }
    if (ret < 0)
        return -1;
    return load_range(s, study, known ? study->trials[known - 1].id + 1 : 0, INT64_MAX,
                      err);
}

static int sqlite_load(struct storage *st, struct study *study, const char *name,
                       struct err *err)
{
    const struct sqlite *s = (const struct sqlite *)st;
    int ret = study->name ? 1 : load_study(s, study, name, err);

    if (ret == 0)
        return 0;
    if (ret < 0 || load_study_attrs(s, study, false, err) < 0 ||
        load_study_attrs(s, study, true, err) < 0 || load_news(s, study, err) < 0) {
        study_clear(study);
        return -1;
    }
    return 1;
}

static int sqlite_create(struct storage *st, const char *name, const bool *maximize,
                         size_t n, struct err *err)
{
    const struct sqlite *s = (const struct sqlite *)st;
    sqlite3_stmt *q;
    int64_t id;

    if (prepare(s, &q, err, "INSERT INTO studies (study_name) VALUES (?)", "t", name) <
            0 ||
        change(s, q, err) < 0)
        return -1;
    id = sqlite3_last_insert_rowid(s->db);
    for (size_t i = 0; i < n; i++)
        if (prepare(s, &q, err,
                    "INSERT INTO study_directions (direction, study_id, objective)"
                    " VALUES (?, ?, ?)",
                    "tii", maximize[i] ? "MAXIMIZE" : "MINIMIZE", id, (int64_t)i) < 0 ||
            change(s, q, err) < 0)
            return -1;
    return 0;
}

static int sqlite_add_trial(struct storage *st, const struct study *study,
                            enum study_state state, int64_t *id, int *number,
                            struct err *err)
{
    const struct sqlite *s = (const struct sqlite *)st;
    sqlite3_stmt *q;
    char start[TIME_SIZE];

    study_now(start);
    if (prepare(s, &q, err,
                "INSERT INTO trials (number, study_id, state, datetime_start) SELECT"
                " count(*), ?1, ?2, ?3 FROM trials WHERE study_id = ?1",
                "itt", study->id, study_state_name(state),
                state == STUDY_RUNNING ? start : NULL) < 0 ||
        change(s, q, err) < 0)
        return -1;
    *id = sqlite3_last_insert_rowid(s->db);
    if (prepare(s, &q, err, "SELECT number FROM trials WHERE trial_id = ?", "i", *id) <
            0 ||
        step(s, q, err) < 1)
        return -1;
    *number = sqlite3_column_int(q, 0);
    release(q);
    return 0;
}

static int sqlite_set_param(struct storage *st, int64_t trial, const char *name,
                            double value, const struct dist *d, struct err *err)
{
    const struct sqlite *s = (const struct sqlite *)st;
    struct str json = { 0 };
    sqlite3_stmt *q;
    int ret;

    dist_write(&json, d);
    ret = prepare(s, &q, err,
                  "INSERT INTO trial_params (trial_id, param_name, param_value,"
                  " distribution_json) VALUES (?, ?, ?, ?)",
                  "itdt", trial, name, value, json.s);
    str_clear(&json);
    return ret < 0 ? -1 : change(s, q, err);
}

static int sqlite_set_state(struct storage *st, int64_t trial, enum study_state state,
                            const double *values, size_t n, const char *when,
                            struct err *err)
{
    const struct sqlite *s = (const struct sqlite *)st;
    char time[TIME_SIZE];
    sqlite3_stmt *q;

    if (when)
        snprintf(time, sizeof(time), "%s", when);
    else
        study_now(time);
    if (prepare(
            s, &q, err,
            state == STUDY_RUNNING
                ? "UPDATE trials SET state = ?, datetime_start = ? WHERE trial_id = ?"
                : "UPDATE trials SET state = ?, datetime_complete = ?"
                  " WHERE trial_id = ?",
            "tti", study_state_name(state), time, trial) < 0 ||
        change(s, q, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (prepare(s, &q, err,
                    "INSERT INTO trial_values (trial_id, objective, value, value_type)"
                    " VALUES (?, ?, ?, ?)",
                    "iidt", trial, (int64_t)i, isinf(values[i]) ? NAN : values[i],
                    type_of(values[i])) < 0 ||
            change(s, q, err) < 0)
            return -1;
    return 0;
}

static int sqlite_set_report(struct storage *st, int64_t trial, int64_t at,
                             double value, struct err *err)
{
    const struct sqlite *s = (const struct sqlite *)st;
    sqlite3_stmt *q;

    if (prepare(s, &q, err,
                "INSERT INTO trial_intermediate_values (trial_id, step,"
                " intermediate_value, intermediate_value_type) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (trial_id, step) DO UPDATE SET intermediate_value ="
                " excluded.intermediate_value, intermediate_value_type ="
                " excluded.intermediate_value_type",
                "iidt", trial, at, isinf(value) ? NAN : value, type_of(value)) < 0)
        return -1;
    return change(s, q, err);
}

static int sqlite_set_attr(struct storage *st, int64_t study, int64_t trial,
                           bool system, const char *key, const char *json,
                           struct err *err)
{
    const struct sqlite *s = (const struct sqlite *)st;
    const char *of = trial < 0 ? "study" : "trial";
    char *sql = str_dupf("INSERT INTO %s_%s_attributes (%s_id, key, value_json)"
                         " VALUES (?, ?, ?) ON CONFLICT (%s_id, key) DO UPDATE SET"
                         " value_json = excluded.value_json",
                         of, system ? "system" : "user", of, of);
    sqlite3_stmt *q;
    int ret = prepare(s, &q, err, sql, "itt", trial < 0 ? study : trial, key, json);

    free(sql);
    return ret < 0 ? -1 : change(s, q, err);
}

const struct storage_ops sqlite_storage = {
    .scheme = "sqlite",
    .open = sqlite_open,
    .close = sqlite_close,
    .begin = sqlite_begin,
    .end = sqlite_end,
    .give_up = sqlite_give_up,
    .list = sqlite_list,
    .load = sqlite_load,
    .create = sqlite_create,
    .add_trial = sqlite_add_trial,
    .set_param = sqlite_set_param,
    .set_state = sqlite_set_state,
    .set_report = sqlite_set_report,
    .set_attr = sqlite_set_attr,
};

#else

static int no_sqlite(struct storage **st, const char *where, bool create,
                     struct err *err)
{
    (void)st;
    (void)create;
    return err_set(err, ERR_USAGE, "%s: this build has no SQLite", where);
}

const struct storage_ops sqlite_storage = { .scheme = "sqlite", .open = no_sqlite };

#endif
