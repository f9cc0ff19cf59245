/* tables - studies in Optuna's tables, in any SQL database
 *
 * The tables are those that Optuna makes since 3.2 (schema version 12, revision
 * v3.2.0.a), so its readers and the dashboard open them.  Times are UTC, as Optuna
 * writes them since 5.0. */
#ifndef LIB_SWEEP_STORAGE_TABLES_H
#define LIB_SWEEP_STORAGE_TABLES_H

#include <stdint.h>

#include "lib/sweep/storage/storage.h"

struct tables {
    struct storage base; /* its name begins error messages */
    const struct sql *sql;
};

struct sql_rows; /* an answer that is being read; the driver's */

/* A value to put for a '?': an integer, a number (NaN is NULL), a text (NULL is NULL).
 */
struct sql_value {
    enum { SQL_INTEGER, SQL_REAL, SQL_TEXT } type;
    union {
        int64_t integer;
        double real;
        const char *text;
    };
};

/* A driver. */
struct sql {
    const char *schema;     /* TABLES_SCHEMA in the database's types */
    const char *find_table; /* answers with a table's name when it is there */
    /* Begin to read, to change alone among all workers, to make tables alone. */
    const char *begin_reading, *begin_changing, *begin_making;

    int (*run)(struct tables *t, const char *statements, struct err *err);
    int (*start)(struct tables *t, struct sql_rows **rows, const char *statement,
                 const struct sql_value *values, int n, struct err *err);
    /* 1: a row; 0: the end; -1: an error.  The rows are released unless there is one.
     */
    int (*step)(struct tables *t, struct sql_rows *rows, struct err *err);
    void (*release)(struct sql_rows *rows);
    const char *(*text)(struct sql_rows *rows, int column); /* "" for NULL */
    int64_t (*integer)(struct sql_rows *rows, int column);
    double (*real)(struct sql_rows *rows, int column);
};

/* Begin to read; make the tables first when there are none and CREATE. */
MUST_CHECK int tables_prepare(struct tables *t, bool create, struct err *err);

/* The functions of a storage that keeps tables. */
MUST_CHECK int tables_begin(struct storage *st, bool change, struct err *err);
MUST_CHECK int tables_end(struct storage *st, struct err *err);
void tables_give_up(struct storage *st);
MUST_CHECK int tables_list(struct storage *st, char ***names, size_t *n,
                           struct err *err);
MUST_CHECK int tables_load(struct storage *st, struct study *study, const char *name,
                           struct err *err);
MUST_CHECK int tables_create(struct storage *st, const char *name, const bool *maximize,
                             size_t n, struct err *err);
MUST_CHECK int tables_add_trial(struct storage *st, const struct study *study,
                                enum study_state state, int64_t *id, int *number,
                                struct err *err);
MUST_CHECK int tables_set_param(struct storage *st, int64_t trial, const char *name,
                                double value, const struct dist *d, struct err *err);
MUST_CHECK int tables_set_state(struct storage *st, int64_t trial,
                                enum study_state state, const double *values, size_t n,
                                const char *when, struct err *err);
MUST_CHECK int tables_set_report(struct storage *st, int64_t trial, int64_t step,
                                 double value, struct err *err);
MUST_CHECK int tables_set_attr(struct storage *st, int64_t study, int64_t trial,
                               bool system, const char *key, const char *json,
                               struct err *err);
#define TABLES_FUNCTIONS                                                 \
    .begin = tables_begin, .end = tables_end, .give_up = tables_give_up, \
    .list = tables_list, .load = tables_load, .create = tables_create,   \
    .add_trial = tables_add_trial, .set_param = tables_set_param,        \
    .set_state = tables_set_state, .set_report = tables_set_report,      \
    .set_attr = tables_set_attr

#define TABLES_SCHEMA_VERSION "12"
#define TABLES_REVISION       "v3.2.0.a"

/* The tables, with the database's own types for a key that counts up, a direction, a
 * state, the kinds of a value and of a report, and a time. */
#define TABLES_SCHEMA(id, direction, state, value_type, report_type, time)             \
    "CREATE TABLE studies (study_id " id " NOT NULL, study_name VARCHAR(512) NOT"      \
    " NULL, PRIMARY KEY (study_id));"                                                  \
    "CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);"               \
    "CREATE TABLE version_info (version_info_id INTEGER NOT NULL, schema_version"      \
    " INTEGER, library_version VARCHAR(256), PRIMARY KEY (version_info_id), CHECK"     \
    " (version_info_id = 1));"                                                         \
    "CREATE TABLE study_directions (study_direction_id " id " NOT NULL,"               \
    " direction " direction " NOT NULL, study_id INTEGER NOT NULL, objective"          \
    " INTEGER NOT NULL, PRIMARY KEY (study_direction_id), UNIQUE (study_id,"           \
    " objective), FOREIGN KEY(study_id) REFERENCES studies "                           \
    "(study_id));" TABLES_ATTRIBUTES_("study_user_attribute", "study", "studies", id)  \
        TABLES_ATTRIBUTES_(                                                            \
            "study_system_attribute", "study", "studies",                              \
            id) "CREATE TABLE trials (trial_id " id                                    \
                " NOT NULL, number INTEGER, study_id"                                  \
                " INTEGER, state " state " NOT NULL, datetime_start " time             \
                ", datetime_complete " time                                            \
                ", PRIMARY KEY (trial_id), FOREIGN KEY(study_id)"                      \
                " REFERENCES studies (study_id));"                                     \
                "CREATE INDEX ix_trials_study_id ON trials "                           \
                "(study_id);" TABLES_ATTRIBUTES_("trial_user_attribute", "trial",      \
                                                 "trials", id)                         \
                    TABLES_ATTRIBUTES_(                                                \
                        "trial_system_attribute", "trial", "trials",                   \
                        id) "CREATE TABLE trial_params (param_id " id                  \
                            " NOT NULL, trial_id INTEGER,"                             \
                            " param_name VARCHAR(512), param_value FLOAT, "            \
                            "distribution_json TEXT, PRIMARY"                          \
                            " KEY (param_id), UNIQUE (trial_id, param_name), FOREIGN " \
                            "KEY(trial_id)"                                            \
                            " REFERENCES trials (trial_id));"                          \
                            "CREATE TABLE trial_values (trial_value_id " id            \
                            " NOT NULL, trial_id INTEGER"                              \
                            " NOT NULL, objective INTEGER NOT NULL, value FLOAT, "     \
                            "value_type " value_type                                   \
                            " NOT NULL, PRIMARY KEY (trial_value_id), UNIQUE "         \
                            "(trial_id, objective),"                                   \
                            " FOREIGN KEY(trial_id) REFERENCES trials (trial_id));"    \
                            "CREATE TABLE trial_intermediate_values "                  \
                            "(trial_intermediate_value_id " id                         \
                            " NOT NULL, trial_id INTEGER NOT NULL, step INTEGER NOT "  \
                            "NULL,"                                                    \
                            " intermediate_value FLOAT, "                              \
                            "intermediate_value_type " report_type                     \
                            " NOT NULL, PRIMARY KEY (trial_intermediate_value_id), "   \
                            "UNIQUE (trial_id, step)"                                  \
                            ", FOREIGN KEY(trial_id) REFERENCES trials (trial_id));"   \
                            "CREATE TABLE trial_heartbeats (trial_heartbeat_id " id    \
                            " NOT NULL, trial_id"                                      \
                            " INTEGER NOT NULL, heartbeat " time                       \
                            " NOT NULL, PRIMARY KEY"                                   \
                            " (trial_heartbeat_id), UNIQUE (trial_id), FOREIGN "       \
                            "KEY(trial_id) REFERENCES"                                 \
                            " trials (trial_id));"                                     \
                            "CREATE TABLE alembic_version (version_num VARCHAR(32) "   \
                            "NOT NULL, CONSTRAINT"                                     \
                            " alembic_version_pkc PRIMARY KEY (version_num));"         \
                            "INSERT INTO version_info VALUES "                         \
                            "(1, " TABLES_SCHEMA_VERSION ", '4.9.0');"                 \
                            "INSERT INTO alembic_version VALUES ('" TABLES_REVISION    \
                            "');"

#define TABLES_ATTRIBUTES_(name, of, all, id)                                    \
    "CREATE TABLE " name "s (" name "_id " id " NOT NULL, " of "_id INTEGER,"    \
    " key VARCHAR(512), value_json TEXT, PRIMARY KEY (" name "_id), UNIQUE (" of \
    "_id, key), FOREIGN KEY(" of "_id) REFERENCES " all " (" of "_id));"

#endif
