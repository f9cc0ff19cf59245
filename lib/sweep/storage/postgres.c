/* postgres - Optuna's tables in a PostgreSQL database
 *
 * libpq is loaded when it is used; its functions and numbers are those of its manual,
 * https://www.postgresql.org/docs/current/libpq.html, and stable since version 5.  A
 * change locks the studies and the trials against all but readers, which is what
 * SQLite's IMMEDIATE means: Optuna's workers lock rows of the same tables. */
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/sweep/storage/tables.h"

enum { NUMBER_SIZE = 32, MAX_VALUES = 8 };
enum { CONNECTION_OK = 0, COMMAND_OK = 1, TUPLES_OK = 2, ANY_TYPE = 0, INT8_TYPE = 20 };
enum { PING_REJECTED = 1, PING_NO_RESPONSE = 2 };
enum { FLOAT8_TYPE = 701, MESSAGE_PRIMARY = 'M', SQLSTATE = 'C' };

struct libpq {
    void *handle;
    void *(*PQconnectdbParams)(const char *const *keywords, const char *const *values,
                               int expand_name);
    int (*PQpingParams)(const char *const *keywords, const char *const *values,
                        int expand_name);
    int (*PQstatus)(const void *connection);
    char *(*PQerrorMessage)(const void *connection);
    void (*PQfinish)(void *connection);
    void *(*PQsetNoticeProcessor)(void *connection, void (*)(void *, const char *),
                                  void *arg);
    void *(*PQexec)(void *connection, const char *statements);
    void *(*PQexecParams)(void *connection, const char *statement, int n,
                          const unsigned *types, const char *const *values,
                          const int *lengths, const int *formats, int result_format);
    int (*PQresultStatus)(const void *result);
    char *(*PQresultErrorField)(const void *result, int field);
    void (*PQclear)(void *result);
    int (*PQntuples)(const void *result);
    char *(*PQgetvalue)(const void *result, int row, int column);
};

#define FUNCTIONS(f)                                                               \
    f(PQconnectdbParams) f(PQpingParams) f(PQstatus) f(PQerrorMessage) f(PQfinish) \
        f(PQsetNoticeProcessor) f(PQexec) f(PQexecParams) f(PQresultStatus)        \
            f(PQresultErrorField) f(PQclear) f(PQntuples) f(PQgetvalue)

struct postgres {
    struct tables base;
    struct libpq lib;
    void *connection;
    char *url;   /* for libpq; owned */
    char *study; /* that is held, or NULL; owned */
    bool share;  /* how */
    bool create; /* the tables, if there are none */
    char *away;  /* why there was no connection when it was opened: what is asked then
                    fails, which may pass; or NULL; owned */
    char *process, *process_age; /* the server's for this connection, of a study that is
                                    held: its number, and when it began; owned */
};

struct sql_rows {
    const struct libpq *lib;
    void *result;
    int at; /* the row that is read, -1 before the first */
};

static int load_library(struct libpq *lib, struct err *err)
{
    lib->handle = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib->handle)
        return err_set(err, ERR_SYSTEM, "libpq cannot be loaded: %s", dlerror());
#define LOAD(name)                                    \
    *(void **)&lib->name = dlsym(lib->handle, #name); \
    if (!lib->name)                                   \
        return err_set(err, ERR_SYSTEM, "libpq has no %s", #name);
    FUNCTIONS(LOAD)
#undef LOAD
    return 0;
}

/* May what failed with CODE so pass?  libpq's own errors have no code, which is how a
 * connection is lost, whatever PQstatus says: it may not have read the end yet. */
static bool passes(const struct postgres *p, const char *code)
{
    static const char *const passing[] = {
        "08",                      /* connection exceptions */
        "40001", "40P01",          /* serialization_failure, deadlock_detected */
        "53300",                   /* too_many_connections */
        "57P01", "57P02", "57P03", /* shutdown, crash, a server that starts */
    };

    if (!code || p->lib.PQstatus(p->connection) != CONNECTION_OK)
        return true;
    for (size_t i = 0; i < sizeof(passing) / sizeof(*passing); i++)
        if (str_starts(code, passing[i]))
            return true;
    return false;
}

/* What libpq says, in one line. */
static int fail(struct postgres *p, const void *result, struct err *err)
{
    const char *said =
        result ? p->lib.PQresultErrorField(result, MESSAGE_PRIMARY) : NULL;
    char *line = xstrdup(said ? said : p->lib.PQerrorMessage(p->connection));
    size_t n = strlen(line);

    while (n && line[n - 1] == '\n')
        line[--n] = '\0';
    for (char *c = line; *c; c++)
        if (*c == '\n' || *c == '\t')
            *c = ' ';
    err_set(err, ERR_SYSTEM, "%s: %s", p->base.base.name, line);
    free(line);
    p->base.base.passing =
        passes(p, result ? p->lib.PQresultErrorField(result, SQLSTATE) : NULL);
    return -1;
}

/* Takes over RESULT when it is no answer. */
static int check(struct postgres *p, void *result, struct err *err)
{
    int status = p->lib.PQresultStatus(result);

    if (status == COMMAND_OK || status == TUPLES_OK)
        return 0;
    fail(p, result, err);
    p->lib.PQclear(result);
    return -1;
}

/* Lock against all but readers. */
static const char LOCK[] = "BEGIN; LOCK TABLE studies, trials IN EXCLUSIVE MODE";

/* The same for a second; then the wait that follows is told. */
static bool lock_at_once(struct postgres *p)
{
    static const char brief[] = "BEGIN; SET LOCAL lock_timeout = '1s'; "
                                "LOCK TABLE studies, trials IN EXCLUSIVE MODE; "
                                "SET LOCAL lock_timeout = 0";
    void *result = p->lib.PQexec(p->connection, brief);
    const char *code = p->lib.PQresultErrorField(result, SQLSTATE);
    bool locked = p->lib.PQresultStatus(result) == COMMAND_OK;
    bool late = !locked && code && !strcmp(code, "55P03"); /* lock_not_available */

    p->lib.PQclear(result);
    if (locked)
        return true;
    p->lib.PQclear(p->lib.PQexec(p->connection, "ROLLBACK"));
    if (late) {
        p->base.base.waits(p->base.base.name);
        p->base.base.waits = NULL;
    }
    return false;
}

static int fail_away(struct postgres *p, struct err *err)
{
    p->base.base.passing = true;
    return err_set(err, ERR_SYSTEM, "%s", p->away);
}

static int run(struct tables *t, const char *statements, struct err *err)
{
    struct postgres *p = (struct postgres *)t;
    void *result;

    if (p->away)
        return fail_away(p, err);

    if (statements == LOCK && p->base.base.waits && lock_at_once(p))
        return 0;
    result = p->lib.PQexec(p->connection, statements);
    if (check(p, result, err) < 0)
        return -1;
    p->lib.PQclear(result);
    return 0;
}

/* STATEMENT with $1, $2 ... for '?'. */
static void number_values(struct str *out, const char *statement)
{
    int n = 0;

    for (const char *c = statement; *c; c++)
        if (*c == '?')
            str_addf(out, "$%d", ++n);
        else
            str_addc(out, *c);
}

static int start(struct tables *t, struct sql_rows **rows, const char *statement,
                 const struct sql_value *values, int n, struct err *err)
{
    struct postgres *p = (struct postgres *)t;
    char number[MAX_VALUES][NUMBER_SIZE];
    const char *texts[MAX_VALUES];
    unsigned types[MAX_VALUES];
    struct str numbered = { 0 };
    void *result;

    if (p->away)
        return fail_away(p, err);
    for (int i = 0; i < n; i++) {
        const struct sql_value *v = &values[i];

        texts[i] = v->type == SQL_TEXT ? v->text : number[i];
        types[i] = v->type == SQL_TEXT      ? ANY_TYPE
                   : v->type == SQL_INTEGER ? INT8_TYPE
                                            : FLOAT8_TYPE;
        if (v->type == SQL_INTEGER)
            snprintf(number[i], NUMBER_SIZE, "%" PRId64, v->integer);
        else if (v->type == SQL_REAL && isnan(v->real))
            texts[i] = NULL;
        else if (v->type == SQL_REAL)
            snprintf(number[i], NUMBER_SIZE, "%.17g", v->real);
    }
    number_values(&numbered, statement);
    result =
        p->lib.PQexecParams(p->connection, numbered.s, n, types, texts, NULL, NULL, 0);
    str_clear(&numbered);
    if (check(p, result, err) < 0)
        return -1;
    *rows = xmalloc(sizeof(**rows));
    **rows = (struct sql_rows){ .lib = &p->lib, .result = result, .at = -1 };
    return 0;
}

static void release(struct sql_rows *rows)
{
    rows->lib->PQclear(rows->result);
    free(rows);
}

static int step(struct tables *t, struct sql_rows *rows, struct err *err)
{
    (void)t;
    (void)err;
    if (++rows->at < rows->lib->PQntuples(rows->result))
        return 1;
    release(rows);
    return 0;
}

static const char *text(struct sql_rows *rows, int column)
{
    return rows->lib->PQgetvalue(rows->result, rows->at, column);
}

static int64_t integer(struct sql_rows *rows, int column)
{
    return strtoll(text(rows, column), NULL, 10);
}

static double real(struct sql_rows *rows, int column)
{
    return strtod(text(rows, column), NULL);
}

static const struct sql postgres_sql = {
    .schema = "CREATE TYPE studydirection AS ENUM ('NOT_SET', 'MINIMIZE', 'MAXIMIZE');"
              "CREATE TYPE trialstate AS ENUM ('RUNNING', 'COMPLETE', 'PRUNED', 'FAIL',"
              " 'WAITING');"
              "CREATE TYPE trialvaluetype AS ENUM ('FINITE', 'INF_POS', 'INF_NEG');"
              "CREATE TYPE trialintermediatevaluetype AS ENUM ('FINITE', 'INF_POS',"
              " 'INF_NEG', 'NAN');" TABLES_SCHEMA(
                  "SERIAL", "studydirection", "trialstate", "trialvaluetype",
                  "trialintermediatevaluetype", "TIMESTAMP"),
    .find_table = "SELECT to_regclass(?)",
    .begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    .begin_changing = LOCK,
    .begin_making = "BEGIN; SELECT pg_advisory_xact_lock(hashtext('hpo-sweep tables'))",
    .run = run,
    .start = start,
    .step = step,
    .release = release,
    .text = text,
    .integer = integer,
    .real = real,
};

static void postgres_close(struct storage *st)
{
    struct postgres *p = (struct postgres *)st;

    if (p->connection)
        p->lib.PQfinish(p->connection);
    if (p->lib.handle)
        dlclose(p->lib.handle);
    free(p->base.base.name);
    free(p->url);
    free(p->study);
    free(p->process);
    free(p->process_age);
    free(p->away);
    free(p);
}

static void ignore_notice(void *arg, const char *notice)
{
    (void)arg;
    (void)notice;
}

/* URL for people to read: without its password, which ends at the last '@' when it has
 * one itself, and may be a parameter as well. */
static char *shown_dup(const char *url)
{
    struct str out = { 0 };
    const char *user = strstr(url, "://") + 3, *query = strchr(user, '?');
    const char *end = query ? query : user + strlen(user), *at = end;
    const char *colon, *password;

    while (at > user && *at != '@')
        at--;
    colon = *at == '@' ? memchr(user, ':', (size_t)(at - user)) : NULL;
    if (colon)
        str_addf(&out, "%.*s:...", (int)(colon - url), url);
    url = colon ? at : url;
    password = query ? strstr(query, "password=") : NULL;
    if (password) {
        password += strlen("password=");
        str_addf(&out, "%.*s...", (int)(password - url), url);
        url = password + strcspn(password, "&");
    }
    str_addf(&out, "%s", url);
    return str_steal(&out);
}

/* URL as libpq knows it: "postgresql+psycopg2://" is SQLAlchemy's way to name a driver.
 */
static char *plain_dup(const char *url)
{
    return str_dupf("postgresql%s", strstr(url, "://"));
}

enum { NKEYWORDS = 6 };

static const char *const keywords[NKEYWORDS + 1] = {
    "connect_timeout",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "dbname",
    NULL,
};

/* p->url, whose own settings win.  An idle connection is kept from being cut, and one
 * that is dead is found within minutes instead of hours. */
static void settings_of(const struct postgres *p, const char *values[NKEYWORDS + 1])
{
    static const char *const ours[] = { "10", "60", "10", "6", "60000" };

    memcpy(values, ours, sizeof(ours));
    values[NKEYWORDS - 1] = p->url;
    values[NKEYWORDS] = NULL;
}

static int connect_server(struct postgres *p, struct err *err)
{
    const char *values[NKEYWORDS + 1];

    settings_of(p, values);
    p->connection = p->lib.PQconnectdbParams(keywords, values, 1);
    if (p->lib.PQstatus(p->connection) != CONNECTION_OK)
        return fail(p, NULL, err);
    p->lib.PQsetNoticeProcessor(p->connection, ignore_notice, NULL);
    return run(&p->base, "SET datestyle TO ISO; SET client_encoding TO UTF8", err);
}

/* Does the server not answer, or is it about to start or to end?  One that refuses us
 * does not change its mind. */
static bool is_away(const struct postgres *p)
{
    const char *values[NKEYWORDS + 1];
    int answer;

    if (p->lib.PQstatus(p->connection) == CONNECTION_OK)
        return true; /* it was there a moment ago */
    settings_of(p, values);
    answer = p->lib.PQpingParams(keywords, values, 1);
    return answer == PING_REJECTED || answer == PING_NO_RESPONSE;
}

static int postgres_open(struct storage **st, const char *where, bool create,
                         double timeout_s, void (*waits)(const char *what),
                         struct err *err)
{
    struct postgres *p = xcalloc(1, sizeof(*p));

    (void)timeout_s;
    p->base.base.ops = &postgres_storage;
    p->base.base.waits = waits;
    p->base.base.name = shown_dup(where);
    p->base.sql = &postgres_sql;
    p->url = plain_dup(where);
    if (load_library(&p->lib, err) < 0) {
        err_prefix(err, "%s", p->base.base.name);
        goto fail;
    }
    p->create = create;
    if (connect_server(p, err) < 0 || tables_prepare(&p->base, create, err) < 0) {
        if (!p->base.base.passing || !is_away(p))
            goto fail;
        p->away = xstrdup(err->text); /* begin fails, and may be tried again */
    }
    *st = &p->base.base;
    return 0;
fail:
    postgres_close(&p->base.base);
    return -1;
}

/* The only row of STATEMENT, which has one: its first N columns, owned. */
static int ask(struct postgres *p, const char *statement, const char *const *texts,
               int ntexts, char **columns, int n, struct err *err)
{
    struct sql_value values[MAX_VALUES];
    struct sql_rows *rows = NULL; /* gcc -O3 does not see that start sets it */

    for (int i = 0; i < ntexts; i++)
        values[i] = (struct sql_value){ .type = SQL_TEXT, .text = texts[i] };
    if (start(&p->base, &rows, statement, values, ntexts, err) < 0)
        return -1;
    if (step(&p->base, rows, err) < 1)
        return err_set(err, ERR_SYSTEM, "%s: no answer", p->base.base.name);
    for (int i = 0; i < n; i++)
        columns[i] = xstrdup(text(rows, i));
    release(rows);
    return 0;
}

/* The server's lock, which ends with the connection: it holds for all machines. */
static int take_study(struct postgres *p, struct err *err)
{
    const char *const study[] = { p->study };
    char *answer = NULL;
    bool held;

    if (ask(p,
            p->share ? "SELECT pg_try_advisory_lock_shared(hashtext('hpo-sweep run'),"
                       " hashtext(?))"
                     : "SELECT pg_try_advisory_lock(hashtext('hpo-sweep run'),"
                       " hashtext(?))",
            study, 1, &answer, 1, err) < 0)
        return -1;
    held = !strcmp(answer, "t");
    free(answer);
    if (held)
        return 0;
    p->base.base.passing = false;
    return err_set(err, ERR_LOCKED, "%s: another run holds study '%s'",
                   p->base.base.name, p->study);
}

/* Note who we are at the server. */
static int note_process(struct postgres *p, struct err *err)
{
    char *found[2];

    if (ask(p,
            "SELECT pid, backend_start FROM pg_stat_activity"
            " WHERE pid = pg_backend_pid()",
            NULL, 0, found, 2, err) < 0)
        return -1;
    free(p->process);
    free(p->process_age);
    p->process = found[0];
    p->process_age = found[1];
    return 0;
}

static int postgres_hold(struct storage *st, const char *study, bool share,
                         struct err *err)
{
    struct postgres *p = (struct postgres *)st;

    free(p->study);
    p->study = xstrdup(study);
    p->share = share;
    return note_process(p, err) < 0 ? -1 : take_study(p, err);
}

/* A server may not know yet that a connection is lost, and keep its locks: end its
 * process.  An error while it is there. */
static int end_process(struct postgres *p, struct err *err)
{
    const char *const who[] = { p->process, p->process_age };
    char *n = NULL;
    bool gone;

    if (ask(p,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE"
            " pid = ?::int AND backend_start = ?::timestamptz",
            who, 2, &n, 1, err) < 0)
        return -1;
    gone = !strcmp(n, "0");
    free(n);
    if (gone)
        return 0;
    p->base.base.passing = true;
    return err_set(err, ERR_SYSTEM, "%s: the lost connection is still open",
                   p->base.base.name);
}

/* Without the study nothing may be changed: connect anew next time. */
static int disconnect(struct postgres *p)
{
    p->lib.PQfinish(p->connection);
    p->connection = NULL;
    return -1;
}

/* We are noted before the lock is taken: of whatever is lost then, the next try knows
 * which process may have it. */
static int postgres_recover(struct storage *st, struct err *err)
{
    struct postgres *p = (struct postgres *)st;
    char *away = p->away;

    p->away = NULL;
    if (away) { /* begin at the beginning */
        p->lib.PQfinish(p->connection);
        if (connect_server(p, err) < 0 ||
            tables_prepare(&p->base, p->create, err) < 0) {
            p->away = away;
            return -1;
        }
        free(away);
        return 0;
    }
    if (p->lib.PQstatus(p->connection) == CONNECTION_OK)
        return run(&p->base, "ROLLBACK", err) < 0 ? disconnect(p) : 0;
    p->lib.PQfinish(p->connection);
    if (connect_server(p, err) < 0)
        return disconnect(p);
    if (!p->study)
        return 0;
    if (end_process(p, err) < 0 || note_process(p, err) < 0 || take_study(p, err) < 0)
        return disconnect(p);
    return 0;
}

const struct storage_ops postgres_storage = {
    .scheme = "postgresql",
    .open = postgres_open,
    .close = postgres_close,
    .hold = postgres_hold,
    .recover = postgres_recover,
    TABLES_FUNCTIONS,
};
