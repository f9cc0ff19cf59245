/* sqlite - Optuna's tables in an SQLite file
 *
 * A file made here is in write-ahead mode, which Optuna reads and which lets many
 * workers share it.  What a change has written is synced when it ends: in this mode
 * SQLite does that with synchronous = FULL alone. */
#include "config.h"

#include "lib/sweep/storage/tables.h"

#ifdef HAVE_SQLITE3
#include <math.h>
#include <sqlite3.h>
#if SQLITE_VERSION_NUMBER < 3035000
#error "SQLite before 3.35 has no RETURNING"
#endif
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"

static const double TIMEOUT_S = 120; /* for a lock, unless told */

struct sqlite {
    struct tables base;
    sqlite3 *db;
    double timeout_s, since; /* a lock has been waited for */
};

static int fail(const struct sqlite *s, struct err *err)
{
    int code = sqlite3_errcode(s->db);
    bool corrupt = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;

    return err_set(err, corrupt ? ERR_INPUT : ERR_SYSTEM, "%s: %s", s->base.base.name,
                   sqlite3_errmsg(s->db));
}

/* Another has the lock, for the N-th time: whether to try again, after a nap.  The naps
 * are those of SQLite's own busy timeout, which tells nobody. */
static int wait_for_lock(void *arg, int n)
{
    static const int naps_ms[] = { 1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100 };
    enum { NAPS = sizeof(naps_ms) / sizeof(*naps_ms) };
    struct sqlite *s = arg;
    double now = clock_seconds();

    if (n == 0)
        s->since = now;
    if (now - s->since > s->timeout_s)
        return 0;
    if (now - s->since > 1 && s->base.base.waits) {
        s->base.base.waits(s->base.base.name);
        s->base.base.waits = NULL;
    }
    sqlite3_sleep(naps_ms[n < NAPS ? n : NAPS - 1]);
    return 1;
}

static int run(struct tables *t, const char *statements, struct err *err)
{
    const struct sqlite *s = (const struct sqlite *)t;

    if (sqlite3_exec(s->db, statements, NULL, NULL, NULL) != SQLITE_OK)
        return fail(s, err);
    return 0;
}

/* Statements stay prepared: for a trial, preparing costs more than executing. */
static void release(struct sql_rows *rows)
{
    sqlite3_reset((sqlite3_stmt *)rows);
    sqlite3_clear_bindings((sqlite3_stmt *)rows);
}

/* A statement of SQL that nobody is using, or NULL. */
static sqlite3_stmt *find_idle(const struct sqlite *s, const char *sql)
{
    sqlite3_stmt *st = sqlite3_next_stmt(s->db, NULL);

    while (st && (sqlite3_stmt_busy(st) || strcmp(sqlite3_sql(st), sql) != 0))
        st = sqlite3_next_stmt(s->db, st);
    return st;
}

static void bind(sqlite3_stmt *st, int at, const struct sql_value *v)
{
    if (v->type == SQL_INTEGER)
        sqlite3_bind_int64(st, at, v->integer);
    else if (v->type == SQL_TEXT)
        sqlite3_bind_text(st, at, v->text, -1, SQLITE_TRANSIENT);
    else if (!isnan(v->real))
        sqlite3_bind_double(st, at, v->real);
}

static int start(struct tables *t, struct sql_rows **rows, const char *statement,
                 const struct sql_value *values, int n, struct err *err)
{
    const struct sqlite *s = (const struct sqlite *)t;
    sqlite3_stmt *st = find_idle(s, statement);

    if (!st && sqlite3_prepare_v2(s->db, statement, -1, &st, NULL) != SQLITE_OK)
        return fail(s, err);
    for (int i = 0; i < n; i++)
        bind(st, i + 1, &values[i]);
    *rows = (struct sql_rows *)st;
    return 0;
}

static int step(struct tables *t, struct sql_rows *rows, struct err *err)
{
    int code = sqlite3_step((sqlite3_stmt *)rows);

    if (code == SQLITE_ROW)
        return 1;
    release(rows);
    return code == SQLITE_DONE ? 0 : fail((const struct sqlite *)t, err);
}

static const char *text(struct sql_rows *rows, int column)
{
    const char *t = (const char *)sqlite3_column_text((sqlite3_stmt *)rows, column);

    return t ? t : "";
}

static int64_t integer(struct sql_rows *rows, int column)
{
    return sqlite3_column_int64((sqlite3_stmt *)rows, column);
}

static double real(struct sql_rows *rows, int column)
{
    return sqlite3_column_double((sqlite3_stmt *)rows, column);
}

static const struct sql sqlite_sql = {
    .schema = TABLES_SCHEMA("INTEGER", "VARCHAR(8)", "VARCHAR(8)", "VARCHAR(7)",
                            "VARCHAR(7)", "DATETIME"),
    .find_table = "SELECT name FROM sqlite_master WHERE name = ?",
    .begin_reading = "BEGIN",
    .begin_changing = "BEGIN IMMEDIATE",
    .begin_making = "BEGIN IMMEDIATE",
    .run = run,
    .start = start,
    .step = step,
    .release = release,
    .text = text,
    .integer = integer,
    .real = real,
};

static void sqlite_close(struct storage *st)
{
    struct sqlite *s = (struct sqlite *)st;
    sqlite3_stmt *kept;

    while (s->db && (kept = sqlite3_next_stmt(s->db, NULL)))
        sqlite3_finalize(kept);
    sqlite3_close(s->db);
    free(s->base.base.name);
    free(s);
}

/* Optuna takes a waiting trial by a SELECT that is to lock its row and an UPDATE.
 * SQLite locks no rows, so two of its workers, or one of them and one of ours, can take
 * the same one.  The second is told by this that a constraint has failed, as Optuna
 * expects where somebody else was first, and goes on to the next trial. */
static const char *const START_ONCE =
    "CREATE TRIGGER IF NOT EXISTS trials_start_once BEFORE UPDATE OF state ON trials"
    " WHEN new.state = 'RUNNING' AND old.state <> 'WAITING'"
    " BEGIN SELECT RAISE(ABORT, 'the trial was started by another'); END";

/* Readers and a writer at once: a wish, which SQLite refuses without waiting while
 * others are at work.  The next that opens the file has it then. */
static int wish_log(const struct sqlite *s, struct err *err)
{
    int code = sqlite3_exec(s->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);

    return code == SQLITE_OK || code == SQLITE_BUSY ? 0 : fail(s, err);
}

/* Whether files are beside WHERE in which SQLite keeps what is not yet in it. */
static int find_use(bool *found, const char *where, struct err *err)
{
    static const char *const suffixes[] = { "-wal", "-journal" };
    int ret = 0;

    *found = false;
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes) && ret == 0 && !*found;
         i++) {
        char *path = str_dupf("%s%s", where, suffixes[i]);

        ret = fs_find(found, path, err);
        free(path);
    }
    return ret;
}

/* Is the database WHERE in a directory that cannot be written, and in nobody's use? */
static int find_fixed(bool *fixed, const char *where, struct err *err)
{
    char *dir = fs_dirname_dup(where);
    bool refused = access(dir, W_OK) < 0 && (errno == EACCES || errno == EROFS);
    bool found = false, used = false;
    int ret = 0;

    free(dir);
    if (refused)
        ret = fs_find(&found, where, err);
    if (ret == 0 && found)
        ret = find_use(&used, where, err);
    *fixed = found && !used;
    return ret;
}

/* The path of the file WHERE without links, when it and the files that SQLite makes
 * beside it may be written; owned, or NULL. */
static char *real_dup(const char *where, struct err *err)
{
    static const char *const suffixes[] = { "-wal", "-shm", "-journal" };
    char *real = output_resolve_dup(where, err);

    for (size_t i = 0; real && i < sizeof(suffixes) / sizeof(*suffixes); i++) {
        char *beside = str_dupf("%s%s", real, suffixes[i]);
        char *found = output_resolve_dup(beside, err);

        if (!found) {
            free(real);
            real = NULL;
        }
        free(found);
        free(beside);
    }
    return real;
}

/* What SQLite opens the file REAL by.  In a directory that cannot be written it can
 * make no files to share it by, and needs none when nobody is writing. */
static char *name_dup(const char *real, bool fixed, int *flags)
{
    struct str name = { 0 };

    str_add(&name, fixed ? "file:" : "");
    for (const char *p = real; *p; p++)
        str_addf(&name, fixed && strchr("%?#", *p) ? "%%%02x" : "%c", *p);
    str_add(&name, fixed ? "?immutable=1" : "");
    *flags |= fixed ? SQLITE_OPEN_URI : 0;
    return str_steal(&name);
}

/* A view or a virtual table in the place of a table computes rows that no byte of the
 * file holds, without end if its author likes.  Optuna makes none. */
static int refuse_views(struct sqlite *s, struct err *err)
{
    static const char query[] =
        "SELECT name FROM sqlite_master WHERE rootpage = 0 AND type IN ('view', "
        "'table')"
        " AND lower(name) IN ('version_info', 'alembic_version', 'studies', 'trials',"
        " 'study_directions', 'study_user_attributes', 'study_system_attributes',"
        " 'trial_params', 'trial_values', 'trial_intermediate_values',"
        " 'trial_user_attributes', 'trial_system_attributes')";
    struct sql_rows *rows;
    int found;

    if (start(&s->base, &rows, query, NULL, 0, err) < 0)
        return -1;
    found = step(&s->base, rows, err);
    if (found > 0) {
        err_set(err, ERR_INPUT, "%s: '%s' is no table but a view, which no study has",
                s->base.base.name, text(rows, 0));
        release(rows);
    }
    return found ? -1 : 0;
}

static int sqlite_open(struct storage **st, const char *where, bool create,
                       double timeout_s, void (*waits)(const char *what),
                       struct err *err)
{
    struct sqlite *s = xcalloc(1, sizeof(*s));
    bool found, fixed;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW |
                (create ? SQLITE_OPEN_CREATE : 0);
    char *path, *real = NULL;
    int code;

    s->base.base.ops = &sqlite_storage;
    s->base.base.waits = waits;
    s->base.base.name = xstrdup(where);
    s->timeout_s = timeout_s >= 0 ? timeout_s : TIMEOUT_S;
    s->base.sql = &sqlite_sql;
    if (fs_find(&found, where, err) < 0)
        goto fail;
    if (!create && !found) {
        err_set(err, ERR_INPUT, "%s: no such database", where);
        goto fail;
    }
    real = real_dup(where, err);
    if (!real || find_fixed(&fixed, real, err) < 0)
        goto fail;
    path = name_dup(real, fixed, &flags);
    /* one thread uses it: without locks reading takes a twentieth less */
    code = sqlite3_open_v2(path, &s->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    free(path);
    if (code != SQLITE_OK) {
        err_set(err, ERR_SYSTEM, "%s: %s", where, sqlite3_errmsg(s->db));
        goto fail;
    }
    sqlite3_busy_handler(s->db, wait_for_lock, s);
    /* the mode is written to the file, which is left alone when it is refused */
    if (run(&s->base, "PRAGMA synchronous = FULL", err) < 0 ||
        refuse_views(s, err) < 0 || tables_prepare(&s->base, create, err) < 0 ||
        (create && (run(&s->base, START_ONCE, err) < 0 || wish_log(s, err) < 0 ||
                    output_sync_name(where, err) < 0)))
        goto fail;
    if (create && !found && fs_is_remote(where))
        s->base.base.advice = "is on a network file system, where SQLite's locks may "
                              "fail: workers share a journal:FILE safely";
    *st = &s->base.base;
    free(real);
    return 0;
fail:
    free(real);
    sqlite_close(&s->base.base);
    return -1;
}

const struct storage_ops sqlite_storage = {
    .scheme = "sqlite",
    .open = sqlite_open,
    .close = sqlite_close,
    .hold = storage_hold_file,
    TABLES_FUNCTIONS,
};

#else

static int no_sqlite(struct storage **st, const char *where, bool create,
                     double timeout_s, void (*waits)(const char *what), struct err *err)
{
    (void)st;
    (void)timeout_s;
    (void)waits;
    (void)create;
    return err_set(err, ERR_USAGE, "%s: this build has no SQLite", where);
}

const struct storage_ops sqlite_storage = { .scheme = "sqlite", .open = no_sqlite };

#endif
